//! Settings of a zonal bucket.

use super::faults::RapidFaults;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// A model of the latency of a zonal bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RapidLatency {
    /// As fast as the machine can.
    #[default]
    None,
    /// A flush takes 1.5 ms and 16 us for each KiB, and a stream completes one a millisecond. To
    /// create, open and finalize takes 35 ms, a read 2 ms. One in a hundred takes longer, up to 30
    /// times.
    GcsRapid,
}

/// One request in so many is in the tail.
const TAIL_ONE_IN: u32 = 100;
/// Most that a request in the tail takes, in usual requests.
const TAIL_FACTOR_MAX: f64 = 30.0;

impl RapidLatency {
    /// The least time between two flushes of a stream.
    pub(super) fn between_flushes(self) -> Duration {
        if self == RapidLatency::None { Duration::ZERO } else { Duration::from_millis(1) }
    }

    /// Draws the time of a flush of so many bytes.
    pub(super) fn flush(self, bytes: usize, random: &mut fastrand::Rng) -> Duration {
        self.draw(0.001_5 + 0.000_016 * bytes as f64 / 1024.0, random)
    }

    /// Draws the time to create, open or finalize an object.
    pub(super) fn open(self, random: &mut fastrand::Rng) -> Duration {
        self.draw(0.035, random)
    }

    /// Draws the time of a read.
    pub(super) fn read(self, random: &mut fastrand::Rng) -> Duration {
        self.draw(0.002, random)
    }

    fn draw(self, usual: f64, random: &mut fastrand::Rng) -> Duration {
        if self == RapidLatency::None {
            return Duration::ZERO;
        }
        let factor = if random.u32(0..TAIL_ONE_IN) == 0 {
            // A factor above x has the probability one in x squared.
            (1.0 - random.f64()).powf(-0.5).min(TAIL_FACTOR_MAX)
        } else {
            1.0 + 0.1 * (2.0 * random.f64() - 1.0)
        };
        Duration::from_secs_f64(usual * factor)
    }
}

impl FromStr for RapidLatency {
    type Err = String;

    fn from_str(text: &str) -> Result<RapidLatency, String> {
        match text {
            "none" => Ok(RapidLatency::None),
            "gcs-rapid" => Ok(RapidLatency::GcsRapid),
            _ => Err(format!("there is no model `{text}`: use none, gcs-rapid")),
        }
    }
}

/// A promise that the server breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RapidMistake {
    /// A stream continues when another one has taken its object over.
    NoRevocation,
    /// A finalized object takes appends.
    AppendsAfterFinalize,
    /// Bytes that were not flushed count as durable, and are lost with their stream.
    UnflushedReported,
    /// A message behind the end of the object is appended at the end.
    IgnoresGap,
    /// An object is created although there is one.
    IgnoresGeneration,
    /// An append that comes again is appended again.
    AppendsAgain,
    /// The last byte of an object is lost when it is finalized.
    FinalizesShort,
}

impl RapidMistake {
    /// All of them, with their names on the command line.
    pub const ALL: [(&'static str, RapidMistake); 7] = [
        ("no-revocation", RapidMistake::NoRevocation),
        ("appends-after-finalize", RapidMistake::AppendsAfterFinalize),
        ("unflushed-reported", RapidMistake::UnflushedReported),
        ("ignores-gap", RapidMistake::IgnoresGap),
        ("ignores-generation", RapidMistake::IgnoresGeneration),
        ("appends-again", RapidMistake::AppendsAgain),
        ("finalizes-short", RapidMistake::FinalizesShort),
    ];
}

impl FromStr for RapidMistake {
    type Err = String;

    fn from_str(text: &str) -> Result<RapidMistake, String> {
        let found = RapidMistake::ALL.iter().find(|(name, _)| *name == text);
        found.map(|(_, mistake)| *mistake).ok_or_else(|| {
            let names: Vec<&str> = RapidMistake::ALL.iter().map(|(name, _)| *name).collect();
            format!("there is no mistake `{text}`: use {}", names.join(", "))
        })
    }
}

/// Settings of a [`RapidEmulator`](super::RapidEmulator).
#[derive(Clone, Debug)]
pub struct RapidOptions {
    /// The address; port 0 chooses a free one.
    pub listen: SocketAddr,
    /// The bucket.
    pub bucket: String,
    /// The storage class that the bucket says it has.
    pub class: String,
    /// Objects survive the server, and a kill of its process, in this directory. What was not
    /// flushed is lost then, or a part of it.
    pub directory: Option<PathBuf>,
    /// How long requests take.
    pub latency: RapidLatency,
    /// What goes wrong.
    pub faults: RapidFaults,
    /// The promises that this server breaks.
    pub mistakes: Vec<RapidMistake>,
    /// Behaves as Google's server for tests: a stream that is open is not revoked, and a generation
    /// of 0 opens the newest object.
    pub as_testbench: bool,
    /// Refuses to delete an object that is not finalized, as the service did in 2025.
    pub keeps_open_objects: bool,
    /// Seed of faults and latencies. Their order follows the order in which messages arrive.
    pub seed: u64,
}

impl RapidOptions {
    /// The zonal bucket that exists by default.
    pub const BUCKET: &'static str = "quench-zonal";
}

impl Default for RapidOptions {
    fn default() -> RapidOptions {
        RapidOptions {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            bucket: RapidOptions::BUCKET.into(),
            class: "RAPID".into(),
            directory: None,
            latency: RapidLatency::None,
            faults: RapidFaults::default(),
            mistakes: Vec::new(),
            as_testbench: false,
            keeps_open_objects: false,
            seed: 1,
        }
    }
}
