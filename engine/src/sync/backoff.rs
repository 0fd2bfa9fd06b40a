//! Waiting for another thread that needs nanoseconds, but may be off the CPU.

use super::{imp, thread};

/// Spins a few times, then yields the CPU, which the other thread may need.
#[derive(Debug, Default)]
pub struct Backoff {
    steps: u32,
}

/// Pauses that spin before the first yield; about a microsecond in all.
const SPIN_STEPS: u32 = 6;

impl Backoff {
    /// Returns a backoff that starts with spinning.
    #[must_use]
    pub fn new() -> Backoff {
        Backoff { steps: 0 }
    }

    /// Waits a little, longer each time.
    pub fn pause(&mut self) {
        if self.steps < SPIN_STEPS && cfg!(not(any(loom, feature = "shuttle"))) {
            for _ in 0..1u32 << self.steps {
                imp::hint::spin_loop();
            }
        } else {
            thread::yield_now();
        }
        self.steps = self.steps.saturating_add(1);
    }

    /// Returns the number of calls of [`Backoff::pause`].
    #[must_use]
    pub fn steps(&self) -> u32 {
        self.steps
    }
}
