//! The choice of rows: uniform, or Zipfian as in Gray et al., "Quickly generating billion-record
//! synthetic databases" (SIGMOD 1994), with the ranks scattered over the rows so that hot rows are
//! not neighbours.

use quenchdb::internals::base::random::Random;

/// An odd constant near 2^64 / phi: multiplication by it permutes the 64-bit numbers and scatters
/// neighbours.
pub(crate) const SCATTER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Permutes the 64-bit numbers: turns a counter into distinct keys in random order.
#[must_use]
pub fn scrambled(counter: u64) -> u64 {
    let mut z = counter.wrapping_mul(SCATTER);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// How rows are chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Every row equally often.
    Uniform,
    /// By Zipf's law, the hot rows scattered.
    Zipfian,
    /// By Zipf's law, the newest rows the hottest.
    Latest,
}

impl Access {
    /// Returns the name in reports and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Access::Uniform => "uniform",
            Access::Zipfian => "zipfian",
            Access::Latest => "latest",
        }
    }
}

/// Draws self-similarly from `0 .. below` (Gray et al., SIGMOD 1994): the first `h` of the values
/// get the share 1 - `h` of the draws, and of these again the first `h` the same share, and so on.
/// `h` is above 0 and at most one half, which is uniform.
pub fn self_similar(random: &mut Random, below: u64, h: f64) -> u64 {
    let value = below as f64 * random.unit().powf(h.ln() / (1.0 - h).ln());
    (value as u64).min(below - 1)
}

/// Zipf's law over ranks `0 .. rows`: rank i has weight 1 / (i + 1)^theta.
#[derive(Clone, Debug)]
pub struct Zipfian {
    rows: u64,
    theta: f64,
    alpha: f64,
    zeta: f64,
    eta: f64,
}

impl Zipfian {
    /// `theta` must be above 0 and not 1; `rows` at least 1.
    #[must_use]
    pub fn new(rows: u64, theta: f64) -> Zipfian {
        assert!(rows > 0 && theta > 0.0 && (theta - 1.0).abs() > 1e-9, "checked by the caller");
        let zeta = zeta(rows, theta);
        let eta = (1.0 - (2.0 / rows as f64).powf(1.0 - theta)) / (1.0 - zeta_two(theta) / zeta);
        Zipfian { rows, theta, alpha: 1.0 / (1.0 - theta), zeta, eta }
    }

    /// Draws the next rank; 0 is the most frequent.
    pub fn rank(&self, random: &mut Random) -> u64 {
        let u = random.unit();
        let scaled = u * self.zeta;
        if scaled < 1.0 || self.rows == 1 {
            return 0;
        }
        if scaled < zeta_two(self.theta) || self.rows == 2 {
            return 1;
        }
        let rank = self.rows as f64 * (self.eta * u - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.rows - 1)
    }
}

fn zeta_two(theta: f64) -> f64 {
    1.0 + 0.5f64.powf(theta)
}

/// Returns the sum of 1 / i^theta: exact up to ten million terms, then the integral with the
/// midpoint correction.
fn zeta(rows: u64, theta: f64) -> f64 {
    const EXACT: u64 = 10_000_000;
    let exact: f64 = (1..=rows.min(EXACT)).map(|i| (i as f64).powf(-theta)).sum();
    if rows <= EXACT {
        return exact;
    }
    let integral = |x: f64| x.powf(1.0 - theta) / (1.0 - theta);
    exact + integral(rows as f64 + 0.5) - integral(EXACT as f64 + 0.5)
}

/// How a workload chooses rows.
#[derive(Clone, Debug)]
pub enum Choice {
    /// Every row equally often.
    Uniform(u64),
    /// Zipfian over scattered ranks.
    Zipfian(Zipfian),
}

impl Choice {
    /// Creates a choice over `rows` rows; uniform if `theta` is 0.
    #[must_use]
    pub fn new(rows: u64, theta: f64) -> Choice {
        if theta == 0.0 { Choice::Uniform(rows) } else { Choice::Zipfian(Zipfian::new(rows, theta)) }
    }

    /// Draws the next row number.
    pub fn row(&self, random: &mut Random) -> u64 {
        match self {
            Choice::Uniform(rows) => random.below(*rows),
            Choice::Zipfian(zipfian) => {
                let scattered = zipfian.rank(random).wrapping_add(1).wrapping_mul(SCATTER);
                // The high half of the product: as even over the rows as the hash is over 64 bits.
                ((u128::from(scattered) * u128::from(zipfian.rows)) >> 64) as u64
            }
        }
    }
}

#[cfg(test)]
mod tests;
