//! When transactions arrive, in an open loop.
//!
//! A closed loop begins a transaction when the one before it has ended. So a stall of the engine
//! delays one transaction of each thread, and hides the transactions that would have arrived
//! meanwhile (coordinated omission). In an open loop, transactions arrive at moments that do not
//! depend on the engine. Latency counts from the arrival, even if all threads are busy then.

use quenchdb::internals::base::random::Random;

/// The gaps between arrivals.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Gaps {
    /// Exponentially distributed, as of many independent clients.
    #[default]
    Poisson,
    /// Equal gaps.
    Fixed,
}

impl Gaps {
    /// Returns the name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Gaps::Poisson => "poisson",
            Gaps::Fixed => "fixed",
        }
    }
}

/// How clients of an open loop learn that a commit is durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Clients {
    /// A callback informs clients, which cause no write: the protocol decides which thread writes,
    /// and when.
    #[default]
    Callback,
    /// An idle worker waits for its oldest commit, which causes its write.
    Wait,
}

impl Clients {
    /// Returns the name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Clients::Callback => "callback",
            Clients::Wait => "wait",
        }
    }
}

/// The arrivals at all threads together.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rate {
    /// Transactions per second.
    pub per_second: f64,
    /// Distribution of the gaps.
    pub gaps: Gaps,
    /// How clients learn of their commits.
    pub clients: Clients,
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
    /// Creates the arrivals at thread `index` of `threads` from `now_ns` on. With fixed gaps the
    /// threads take turns.
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

    /// Returns the time of the next arrival, in nanoseconds of the clock of `now_ns`.
    pub fn take(&mut self) -> u64 {
        let now = self.next_ns;
        self.next_ns += self.gap();
        now as u64
    }
}

#[cfg(test)]
mod tests;
