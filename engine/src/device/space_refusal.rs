//! When to ask a full disk for space again. The page file and the log segments use the same rule.

use crate::base::clock::Nanos;
use std::time::Duration;

/// Asking takes at most one part in this many of the time.
const ASKING_PART: u32 = 10;
/// The disk is asked at least this often while a caller needs space.
const ASK_INTERVAL_MAX: Duration = Duration::from_millis(100);

/// A request for disk space that failed because the disk was full.
#[derive(Clone, Copy, Debug)]
pub struct SpaceRefusal {
    /// The time of the answer.
    pub at: Nanos,
    took: Duration,
}

impl SpaceRefusal {
    /// Returns the refusal of a request that began at `begun` and was answered at `now`.
    #[must_use]
    pub fn new(begun: Nanos, now: Nanos) -> SpaceRefusal {
        SpaceRefusal { at: now, took: now.since(begun) }
    }

    /// Allows to ask at once: there may be space now.
    pub fn expire(&mut self) {
        self.took = Duration::ZERO;
    }

    /// Returns true while it is too early to ask again.
    #[must_use]
    pub fn is_recent(self, now: Nanos) -> bool {
        now.since(self.at) < (self.took * ASKING_PART).min(ASK_INTERVAL_MAX)
    }
}

#[cfg(test)]
mod tests;
