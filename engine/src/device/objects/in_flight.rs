//! Counts what is in flight, and waits until nothing is.

use crate::base::clock::{Clock, Nanos};
use crate::sync::Event;
use crate::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The number of writes, answers or passes that an owner waits for.
///
/// The owner begins each before it hands it on, and ends it after it has reported the outcome. So
/// all outcomes are reported when nothing is in flight.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    /// Sequentially consistent: what begins sees a flag of its owner, or the owner, which sets the
    /// flag and then waits, sees what has begun.
    count: AtomicUsize,
    /// Happens when the count falls to 0.
    idle: Event,
}

impl InFlight {
    pub(super) fn begin(&self, count: usize) {
        self.count.fetch_add(count, Ordering::SeqCst);
    }

    /// Returns whether nothing is in flight any more.
    pub(super) fn end(&self) -> bool {
        let before = self.count.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0, "what ends has begun");
        if before == 1 {
            self.idle.notify_all();
        }
        before == 1
    }

    pub(super) fn is_idle(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    /// Waits until nothing is in flight, if `most` is given for at most so long. Returns whether
    /// nothing is.
    pub(super) fn wait(&self, most: Option<Duration>) -> bool {
        let clock = Clock::real();
        let until = most.map(|most| Nanos(clock.now().0.saturating_add(most.as_nanos() as u64)));
        loop {
            let (ticket, now) = (self.idle.ticket(), clock.now());
            if self.is_idle() || until.is_some_and(|until| now >= until) {
                return self.is_idle();
            }
            self.idle.wait(ticket, until.map(|until| until.since(now)));
        }
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
