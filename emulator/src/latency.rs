//! How long requests take, from published figures.

use std::str::FromStr;
use std::time::Duration;

/// A model of a store's latency.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Latency {
    /// As fast as the machine can.
    #[default]
    None,
    /// S3 Express One Zone: a write takes 8 ms to 1 MiB, a read 5 ms to 256 KiB, then 75 MB/s. One
    /// request in a hundred takes longer, up to 30 times.
    S3Express,
    /// S3 Standard: a write takes 77 ms to 2 MiB, a read 100 ms to 1 MiB, then 85 MB/s.
    S3Standard,
}

/// The figures of a model.
struct Curve {
    base: Duration,
    /// Up to so many bytes the size does not count.
    flat_bytes: u64,
    bytes_per_second: u64,
}

/// One request in so many is in the tail.
const TAIL_ONE_IN: u32 = 100;
/// Most that a request in the tail takes, in usual requests.
const TAIL_FACTOR_MAX: f64 = 30.0;
/// A factor above x has the probability x to the power -1/0.5: one in x squared.
const TAIL_EXPONENT: f64 = 0.5;

impl Latency {
    /// The names on the command line.
    pub const NAMES: [&'static str; 3] = ["none", "s3-express", "s3-standard"];

    /// Draws the time of a request that moves so many bytes.
    pub(crate) fn draw(self, writes: bool, bytes: u64, random: &mut fastrand::Rng) -> Duration {
        let (curve, jitter) = match (self, writes) {
            (Latency::None, _) => return Duration::ZERO,
            (Latency::S3Express, true) => (curve(8, 1 << 20, 75_000_000), 0.1),
            (Latency::S3Express, false) => (curve(5, 256 << 10, 75_000_000), 0.1),
            (Latency::S3Standard, true) => (curve(77, 2 << 20, 85_000_000), 0.2),
            (Latency::S3Standard, false) => (curve(100, 1 << 20, 85_000_000), 0.2),
        };
        let more = bytes.saturating_sub(curve.flat_bytes) as f64 / curve.bytes_per_second as f64;
        let usual = curve.base.as_secs_f64() + more;
        let factor = if random.u32(0..TAIL_ONE_IN) == 0 {
            // At least 1/900, so that the factor is at most 30.
            (1.0 - random.f64()).powf(-TAIL_EXPONENT).min(TAIL_FACTOR_MAX)
        } else {
            1.0 + jitter * (2.0 * random.f64() - 1.0)
        };
        Duration::from_secs_f64(usual * factor)
    }
}

fn curve(milliseconds: u64, flat_bytes: u64, bytes_per_second: u64) -> Curve {
    Curve { base: Duration::from_millis(milliseconds), flat_bytes, bytes_per_second }
}

impl FromStr for Latency {
    type Err = String;

    fn from_str(text: &str) -> Result<Latency, String> {
        match text {
            "none" => Ok(Latency::None),
            "s3-express" => Ok(Latency::S3Express),
            "s3-standard" => Ok(Latency::S3Standard),
            _ => Err(format!("there is no model `{text}`: use {}", Latency::NAMES.join(", "))),
        }
    }
}

#[cfg(test)]
mod tests;
