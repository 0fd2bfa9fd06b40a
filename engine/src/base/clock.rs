//! Time enters the engine here, so that a test can drive it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

/// A monotonic clock. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Clock {
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    Real,
    Manual(Arc<AtomicU64>),
    #[cfg(feature = "simulation")]
    Simulated(Arc<super::surroundings::Surroundings>),
}

/// Nanoseconds since the process first looked at a real clock, or since a manual one was made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Time from `earlier` to this moment; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Nanos) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// One for all real clocks: a thread may use several databases, and compare what it noted with one to what another says.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Clock {
    /// The machine's monotonic clock.
    #[must_use]
    pub fn real() -> Clock {
        #[cfg(feature = "simulation")]
        if let Some(surroundings) = super::surroundings::Surroundings::of_this_thread() {
            return Clock { source: Source::Simulated(surroundings) };
        }
        Clock { source: Source::Real }
    }

    /// A clock that stands still until [`Clock::advance`].
    #[must_use]
    pub fn manual() -> Clock {
        Clock { source: Source::Manual(Arc::new(AtomicU64::new(0))) }
    }

    /// Now.
    #[must_use]
    pub fn now(&self) -> Nanos {
        match &self.source {
            Source::Real => Nanos(START.elapsed().as_nanos() as u64),
            Source::Manual(nanos) => Nanos(nanos.load(Ordering::SeqCst)),
            #[cfg(feature = "simulation")]
            Source::Simulated(surroundings) => Nanos(surroundings.look()),
        }
    }

    /// Moves a manual clock; a real one is not changed.
    pub fn advance(&self, by: Duration) {
        if let Source::Manual(nanos) = &self.source {
            nanos.fetch_add(by.as_nanos() as u64, Ordering::SeqCst);
        }
    }
}

/// How long somebody has waited who looks again and again: of the time between two looks no more than [`Patience::LOOK`] counts. A machine
/// that was suspended, or a thread that did not run, costs one look, and whoever is waited for still has nearly all of his time.
#[derive(Debug)]
pub struct Patience {
    clock: Clock,
    last: Nanos,
    waited: Duration,
}

impl Patience {
    /// The most that looks should be apart.
    pub const LOOK: Duration = Duration::from_millis(10);

    /// Begins to wait.
    #[must_use]
    pub fn begin(clock: &Clock) -> Patience {
        Patience { clock: clock.clone(), last: clock.now(), waited: Duration::ZERO }
    }

    /// To be called at each look.
    pub fn waited(&mut self) -> Duration {
        let now = self.clock.now();
        self.waited += now.since(self.last).min(Patience::LOOK);
        self.last = now;
        self.waited
    }
}

#[cfg(test)]
mod tests;
