//! When transactions arrive, in an open loop.
//!
//! A closed loop asks for the next transaction when the one before it is done, so a stall of the engine is met by one
//! transaction a thread, and hides from all that would have arrived meanwhile (coordinated omission). In an open loop they
//! arrive at moments that do not depend on the engine, and latency counts from the moment of arrival, whenever a thread gets
//! round to it.

use quenchdb::internals::base::random::Random;

/// The gaps between arrivals.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Gaps {
    /// Exponentially distributed: arrivals of many independent clients.
    #[default]
    Poisson,
    /// All equal.
    Fixed,
}

impl Gaps {
    /// For reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Gaps::Poisson => "poisson",
            Gaps::Fixed => "fixed",
        }
    }
}

/// What arrives at all threads together.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rate {
    /// Transactions per second.
    pub per_second: f64,
    /// Their distribution.
    pub gaps: Gaps,
}

/// The arrivals at one thread.
#[derive(Clone, Debug)]
pub struct Arrivals {
    gaps: Gaps,
    mean_ns: f64,
    next_ns: f64,
    random: Random,
}

impl Arrivals {
    /// At thread `index` of `threads`, from `now_ns` on. With fixed gaps the threads take turns.
    #[must_use]
    pub fn new(rate: Rate, index: usize, threads: usize, seed: u64, now_ns: u64) -> Arrivals {
        let mean_ns = 1e9 * threads as f64 / rate.per_second;
        let turn = mean_ns * index as f64 / threads as f64;
        let mut arrivals = Arrivals {
            gaps: rate.gaps,
            mean_ns,
            next_ns: now_ns as f64 + turn,
            random: Random::from_seed(seed ^ 0xa881_7a15 ^ ((index as u64) << 40)),
        };
        if rate.gaps == Gaps::Poisson {
            arrivals.next_ns = now_ns as f64 + arrivals.gap();
        }
        arrivals
    }

    fn gap(&mut self) -> f64 {
        match self.gaps {
            Gaps::Fixed => self.mean_ns,
            // 1 - unit() is above 0, so the logarithm is finite.
            Gaps::Poisson => -(1.0 - self.random.unit()).ln() * self.mean_ns,
        }
    }

    /// The moment of the next arrival, in nanoseconds of the clock that `now_ns` was read from.
    pub fn take(&mut self) -> u64 {
        let now = self.next_ns;
        self.next_ns += self.gap();
        now as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps_of(gaps: Gaps, count: usize) -> Vec<f64> {
        let mut arrivals = Arrivals::new(Rate { per_second: 10_000.0, gaps }, 1, 2, 7, 1000);
        let moments: Vec<u64> = (0..=count).map(|_| arrivals.take()).collect();
        moments.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect()
    }

    #[test]
    fn fixed_arrivals_are_evenly_spread_over_the_threads() {
        assert!(gaps_of(Gaps::Fixed, 1000).iter().all(|gap| (gap - 200_000.0).abs() <= 1.0));
        let rate = Rate { per_second: 1000.0, gaps: Gaps::Fixed };
        let first: Vec<u64> = (0..4).map(|index| Arrivals::new(rate, index, 4, 1, 0).take()).collect();
        assert_eq!(first, [0, 1_000_000, 2_000_000, 3_000_000]);
    }

    #[test]
    fn poisson_gaps_are_exponential() {
        // Chi-square over ten bins of equal probability: 9 degrees of freedom, 27.9 is the 99.9th percentile.
        let (count, mean) = (100_000, 200_000.0);
        let mut bins = [0u32; 10];
        for gap in gaps_of(Gaps::Poisson, count) {
            bins[((1.0 - (-gap / mean).exp()) * 10.0).min(9.0) as usize] += 1;
        }
        let expected = count as f64 / 10.0;
        let chi: f64 = bins.iter().map(|&seen| (f64::from(seen) - expected).powi(2) / expected).sum();
        assert!(chi < 27.9, "{chi} {bins:?}");
    }
}
