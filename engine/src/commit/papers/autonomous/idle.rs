//! How long is a worker idle between its transactions?
//!
//! ```text
//!   transaction | append, submit, acknowledge, yield | idle ....... | transaction
//!   begun                                     ends ->|              |<- begun
//! ```
//!
//! Idle time begins where the worker's last work ends, and ends where its next transaction, its
//! next abort, or its next snapshot begins. So the write that a worker submits does not make it
//! look idle. A pause counts only if
//! * it is at least an eighth of `idle_max`: a thread that does nothing else needs about that long
//!   between two transactions;
//! * the thread slept. A preempted thread is not idle, nor is one that the system interrupted. The
//!   system is asked only about a pause that is long enough, and at the end of the work of a thread
//!   that was idle lately, so that a busy worker pays one look at the clock.
//!
//! So a worker that computes and commits without a pause is never idle, on however few processors.
//! Nor is one that polls for its next request: to the engine that looks like computing.

use crate::base::clock::{Clock, Nanos};
use crate::commit::core::dice::dice;
use crate::sync::thread::times_slept;
use std::cell::Cell;
use std::time::Duration;

/// The newest idle time of a thread counts for one part in so many in its average.
pub const WEIGHT: u64 = 8;

thread_local! {
    static IDLE: Cell<Idle> = const { Cell::new(Idle { ended: 0, average: 0, sleeps: 0 }) };
}

/// Measures the idle time of the calling thread, and says whether that forces a write.
#[derive(Debug)]
pub struct IdleTimes {
    clock: Clock,
    /// `idle_max` in ns; 0: nothing is measured.
    most: u64,
}

/// Idle time of a thread between its transactions, in ns.
#[derive(Clone, Copy, Debug, Default)]
struct Idle {
    /// When its last work ended; 0 before the first.
    ended: u64,
    average: u64,
    /// How often it had slept when the system was last asked.
    sleeps: u64,
}

impl IdleTimes {
    /// `idle_max`: zero if no protocol asks.
    pub fn new(clock: Clock, idle_max: Duration) -> IdleTimes {
        IdleTimes { clock, most: idle_max.as_nanos() as u64 }
    }

    /// Returns the moment, to be given to [`IdleTimes::worked`] later, if idle time is measured.
    #[inline]
    #[must_use]
    pub fn work_begins(&self) -> Option<Nanos> {
        (self.most > 0).then(|| self.clock.now())
    }

    /// The calling thread has worked since `begun`, and what follows is idle time. To be called
    /// last, at the end of each transaction, abort and snapshot.
    #[inline]
    pub fn worked(&self, begun: Nanos) {
        if self.most > 0 {
            self.update(|idle| {
                idle.begins(begun, self.most, times_slept);
                idle.ends(|| self.clock.now(), times_slept);
            });
        }
    }

    /// Returns whether the thread, at the end of a transaction that began at `begun`, is likely to
    /// be idle next: with the probability average idle time / `idle_max`. A fixed bound instead
    /// would starve a worker just below it.
    #[inline]
    pub fn force(&self, begun: Nanos) -> bool {
        self.most > 0
            && self.update(|idle| {
                idle.begins(begun, self.most, times_slept);
                idle.average > 0 && idle.average >= dice() % self.most
            })
    }

    fn update<T>(&self, change: impl FnOnce(&mut Idle) -> T) -> T {
        let mut idle = IDLE.get();
        let result = change(&mut idle);
        IDLE.set(idle);
        result
    }
}

impl Idle {
    /// Notes the idle time before work that began at `begun`, once. An idle time above twice `most`
    /// counts as that.
    fn begins(&mut self, begun: Nanos, most: u64, times_slept: impl FnOnce() -> u64) {
        if self.ended == 0 || begun.0 <= self.ended {
            // Its first work, or work beside other work.
            return;
        }
        let mut idle = begun.0 - self.ended;
        if idle >= most / 8 {
            let before = std::mem::replace(&mut self.sleeps, times_slept());
            if self.sleeps == before {
                idle = 0;
            }
        } else {
            idle = 0;
        }
        self.average = (self.average * (WEIGHT - 1) + idle.min(2 * most)) / WEIGHT;
        self.ended = begun.0;
    }

    /// Work ends now.
    fn ends(&mut self, now: impl FnOnce() -> Nanos, times_slept: impl FnOnce() -> u64) {
        if self.average > 0 {
            // A sleep during its work makes no pause idle.
            self.sleeps = times_slept();
        }
        // Last: to ask the system takes longer than the pause of a busy worker.
        self.ended = now().0.max(1);
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
