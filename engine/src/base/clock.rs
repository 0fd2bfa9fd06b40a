//! The engine's only source of time, so that a test can drive it.

use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A monotonic clock. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Clock {
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    /// Counts from this moment of the system's monotonic clock.
    Real(u64),
    Manual(Arc<AtomicU64>),
    #[cfg(feature = "simulation")]
    Simulated(Arc<super::environment::Environment>),
}

/// Nanoseconds since the process first read a real clock, or since a manual clock was made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Returns the time from `earlier` to this moment; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Nanos) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The origin of all real clocks: a thread may use several databases, and compares their times.
static START: LazyLock<u64> = LazyLock::new(monotonic_ns);

/// Returns the time of the system's monotonic clock. A commit asks several times, and `Instant`
/// takes three times as many instructions.
#[inline]
fn monotonic_ns() -> u64 {
    if cfg!(miri) {
        // Miri makes no system call of this kind.
        return SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
    }
    system_ns(ClockId::Monotonic)
}

/// Returns the time of a clock of the system, in ns.
#[inline]
fn system_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Time for which two processors of a manual clock are idle, and then busy.
const PHASE_NS: u64 = 20_000_000;

impl Clock {
    /// Returns the machine's monotonic clock.
    #[must_use]
    pub fn real() -> Clock {
        #[cfg(feature = "simulation")]
        if let Some(environment) = super::environment::Environment::current() {
            return Clock { source: Source::Simulated(environment) };
        }
        Clock { source: Source::Real(*START) }
    }

    /// Returns a clock that stands still until [`Clock::advance`].
    #[must_use]
    pub fn manual() -> Clock {
        Clock { source: Source::Manual(Arc::new(AtomicU64::new(0))) }
    }

    /// Returns the current time.
    #[must_use]
    pub fn now(&self) -> Nanos {
        match &self.source {
            Source::Real(start) => Nanos(monotonic_ns().saturating_sub(*start)),
            Source::Manual(nanos) => Nanos(nanos.load(Ordering::SeqCst)),
            #[cfg(feature = "simulation")]
            Source::Simulated(environment) => Nanos(environment.read_clock()),
        }
    }

    /// Returns the processor time that this process has used. A manual or simulated clock has
    /// processors that are alternately idle and busy.
    #[must_use]
    pub fn processor_time(&self) -> Nanos {
        match &self.source {
            Source::Real(_) if !cfg!(miri) => Nanos(system_ns(ClockId::ProcessCPUTime)),
            _ => {
                let now = self.now().0;
                let (phases, busy) = (now / (2 * PHASE_NS), (now % (2 * PHASE_NS)).saturating_sub(PHASE_NS));
                Nanos((phases * PHASE_NS + busy) * 2)
            }
        }
    }

    /// Returns the seconds since 1970. The machine's calendar may be wrong and may jump, so that
    /// nothing but a note may depend on it.
    #[must_use]
    pub fn unix_seconds(&self) -> u64 {
        match &self.source {
            Source::Real(_) => SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
            _ => self.now().0 / 1_000_000_000,
        }
    }

    /// Advances a manual clock. Does nothing to a real clock.
    pub fn advance(&self, by: Duration) {
        if let Source::Manual(nanos) = &self.source {
            nanos.fetch_add(by.as_nanos() as u64, Ordering::SeqCst);
        }
    }
}

/// Measures how long a thread has waited that polls a condition. Of the time between two polls at
/// most [`WaitTimer::POLL_INTERVAL_MAX`] counts. So a suspended machine or a descheduled thread
/// costs one interval, and the awaited thread still has nearly all of its time.
#[derive(Debug)]
pub struct WaitTimer {
    clock: Clock,
    last: Nanos,
    elapsed: Duration,
}

impl WaitTimer {
    /// The longest time between two polls that counts in full.
    pub const POLL_INTERVAL_MAX: Duration = Duration::from_millis(10);

    /// Starts to measure.
    #[must_use]
    pub fn start(clock: &Clock) -> WaitTimer {
        WaitTimer { clock: clock.clone(), last: clock.now(), elapsed: Duration::ZERO }
    }

    /// Returns the time waited so far. Callers call this at each poll.
    pub fn elapsed(&mut self) -> Duration {
        let now = self.clock.now();
        self.elapsed += now.since(self.last).min(WaitTimer::POLL_INTERVAL_MAX);
        self.last = now;
        self.elapsed
    }
}

#[cfg(test)]
mod tests;
