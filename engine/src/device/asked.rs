//! When a full disk is asked for space again: the file of pages and the log's segments ask by the same rule.

use crate::base::clock::Nanos;
use std::time::Duration;

/// Asking takes at most one part in so many of the time...
const ASKING_PART: u32 = 10;
/// ... but the disk is asked at least this often, if anybody needs space.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// A disk was asked for space and had none.
#[derive(Clone, Copy, Debug)]
pub struct AskedInVain {
    /// When the answer came.
    pub at: Nanos,
    took: Duration,
}

impl AskedInVain {
    /// The answer came at `now` to a question that was begun at `begun`.
    #[must_use]
    pub fn new(begun: Nanos, now: Nanos) -> AskedInVain {
        AskedInVain { at: now, took: now.since(begun) }
    }

    /// True while it is too early to ask again.
    #[must_use]
    pub fn is_fresh(self, now: Nanos) -> bool {
        now.since(self.at) < (self.took * ASKING_PART).min(ASK_AGAIN)
    }
}

#[cfg(test)]
mod tests;
