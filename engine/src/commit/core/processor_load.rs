//! Samples how much of the processors this process uses.
//!
//! A write costs processor time, and an interval between two writes bounds how much. While this
//! process leaves half of the processors idle, a write takes no time from its other threads: then
//! a record is written at once.

use crate::base::clock::{Clock, Nanos};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Time between two samples: each is a system call.
const SAMPLE_EVERY: Duration = Duration::from_millis(5);

/// The use of the processors between the last two samples.
#[derive(Debug)]
pub struct ProcessorLoad {
    clock: Clock,
    processors: usize,
    /// The time of the last sample, in ns. Written by the holder of `used`.
    sampled_at: AtomicU64,
    /// The processor time that the process had used at the last sample.
    used: Mutex<Nanos>,
    is_low: AtomicBool,
}

impl ProcessorLoad {
    /// Returns a low load, until the first sample says otherwise.
    pub fn new(clock: Clock, processors: usize) -> ProcessorLoad {
        let (sampled_at, used) = (AtomicU64::new(clock.now().0), Mutex::new(clock.processor_time()));
        ProcessorLoad { clock, processors, sampled_at, used, is_low: AtomicBool::new(true) }
    }

    /// Returns whether the process left half of the processors idle between the last two samples.
    #[inline]
    pub fn is_low(&self) -> bool {
        self.is_low.load(Ordering::Relaxed)
    }

    /// Takes a sample, unless the last one is recent or another thread takes one.
    pub fn sample(&self, now: Nanos) {
        if self.elapsed_at(now) < SAMPLE_EVERY {
            return;
        }
        let Some(mut used_before) = self.used.try_lock() else { return };
        // The last holder of the lock may have taken one meanwhile.
        let elapsed = self.elapsed_at(now);
        if elapsed < SAMPLE_EVERY {
            return;
        }
        let used = self.clock.processor_time();
        let is_low = leaves_half(used.since(*used_before), elapsed, self.processors);
        self.is_low.store(is_low, Ordering::Relaxed);
        *used_before = used;
        self.sampled_at.store(now.0, Ordering::Relaxed);
    }

    fn elapsed_at(&self, now: Nanos) -> Duration {
        now.since(Nanos(self.sampled_at.load(Ordering::Relaxed)))
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
    fn half_of_the_processors_idle_is_a_low_load() {
        let elapsed = Duration::from_millis(10);
        assert!(leaves_half(Duration::from_millis(10), elapsed, 2));
        assert!(!leaves_half(Duration::from_millis(11), elapsed, 2));
        assert!(!leaves_half(Duration::from_millis(6), elapsed, 1));
        assert!(leaves_half(Duration::from_millis(40), elapsed, 8));
    }

    /// A manual clock has two processors, idle for 20 ms and then busy for 20 ms.
    #[test]
    fn load_follows_the_samples_and_not_the_time_between_them() {
        let clock = Clock::manual();
        let load = ProcessorLoad::new(clock.clone(), 2);
        let sample_after = |milliseconds| {
            clock.advance(Duration::from_millis(milliseconds));
            load.sample(clock.now());
            load.is_low()
        };
        assert!(load.is_low() && sample_after(20));
        assert!(sample_after(4), "the last sample is recent");
        assert!(!sample_after(1), "busy for 5 ms");
        assert!(!sample_after(15));
        assert!(sample_after(20), "idle again");
        assert!(sample_after(40), "busy for half of the time");
    }
}
