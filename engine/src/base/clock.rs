//! Time enters the engine here, so that a test can drive it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A monotonic clock. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Clock {
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    Real(Instant),
    Manual(Arc<AtomicU64>),
    #[cfg(feature = "simulation")]
    Simulated(Arc<super::surroundings::Surroundings>),
}

/// Nanoseconds since the clock was made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Time from `earlier` to this moment; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Nanos) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Clock {
    /// The machine's monotonic clock.
    #[must_use]
    pub fn real() -> Clock {
        #[cfg(feature = "simulation")]
        if let Some(surroundings) = super::surroundings::Surroundings::of_this_thread() {
            return Clock { source: Source::Simulated(surroundings) };
        }
        Clock { source: Source::Real(Instant::now()) }
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
            Source::Real(start) => Nanos(start.elapsed().as_nanos() as u64),
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
