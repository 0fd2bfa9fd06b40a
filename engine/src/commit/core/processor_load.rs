//! Have the processors time to spare?
//!
//! A write costs processor time, and an interval between two writes bounds how much. While this
//! process leaves half of the processors idle, a write takes time from no other work: then a record
//! is written at once.

use crate::base::clock::{Clock, Nanos};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::thread;
use std::time::Duration;

/// Time between two looks at the processor time of the process: reading it is a system call.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// See the module's text.
#[derive(Debug)]
pub struct SpareTime {
    clock: Clock,
    /// When a thread looked last.
    looked: AtomicU64,
    /// The processor time that the process had used then, in ns.
    used: AtomicU64,
    is_there: AtomicBool,
}

impl SpareTime {
    pub fn new(clock: Clock) -> SpareTime {
        let (looked, used) = (clock.now().0, clock.processor_time().0);
        SpareTime {
            clock,
            looked: AtomicU64::new(looked),
            used: AtomicU64::new(used),
            is_there: AtomicBool::new(true),
        }
    }

    /// Returns whether the process has left half of the processors idle of late.
    #[inline]
    pub fn is_there(&self) -> bool {
        self.is_there.load(Ordering::Relaxed)
    }

    /// Looks, if no thread has for some time.
    pub fn look(&self, now: Nanos) {
        let looked = self.looked.load(Ordering::Relaxed);
        let elapsed = now.since(Nanos(looked));
        if elapsed < LOOK_EVERY
            || self.looked.compare_exchange(looked, now.0, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return;
        }
        let used = self.clock.processor_time();
        let before = Nanos(self.used.swap(used.0, Ordering::Relaxed));
        self.is_there
            .store(leaves_half(used.since(before), elapsed, thread::processors()), Ordering::Relaxed);
    }
}

/// Returns whether a process that used `used` processor time in `elapsed` left half of the
/// processors idle.
fn leaves_half(used: Duration, elapsed: Duration, processors: usize) -> bool {
    used.as_nanos() * 2 <= elapsed.as_nanos() * processors as u128
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_processors_idle_is_time_to_spare() {
        let elapsed = Duration::from_millis(10);
        assert!(leaves_half(Duration::from_millis(10), elapsed, 2));
        assert!(!leaves_half(Duration::from_millis(11), elapsed, 2));
        assert!(!leaves_half(Duration::from_millis(6), elapsed, 1));
        assert!(leaves_half(Duration::from_millis(40), elapsed, 8));
    }

    /// Other threads of the test process may use time, too: what is asked holds beside them.
    #[test]
    fn a_process_that_works_on_all_processors_spares_nothing() {
        let (clock, stop) = (Clock::real(), AtomicBool::new(false));
        let spare = SpareTime::new(clock.clone());
        assert!(spare.is_there(), "nothing was measured yet");
        spare.look(clock.now());
        std::thread::scope(|scope| {
            for _ in 0..thread::processors() {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let deadline = std::time::Instant::now() + Duration::from_secs(60);
            while spare.is_there() && std::time::Instant::now() < deadline {
                std::thread::sleep(LOOK_EVERY * 2);
                spare.look(clock.now());
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(!spare.is_there());
    }
}
