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
mod tests {
    use super::*;
    use crate::base::clock::Clock;

    #[test]
    fn a_slow_answer_keeps_longer_than_a_quick_one_but_not_for_ever() {
        let clock = Clock::manual();
        let begun = clock.now();
        clock.advance(Duration::from_millis(2));
        let quick = AskedInVain::new(begun, clock.now());
        clock.advance(Duration::from_millis(19));
        assert!(quick.is_fresh(clock.now()));
        clock.advance(Duration::from_millis(1));
        assert!(!quick.is_fresh(clock.now()));
        let slow = AskedInVain::new(begun, clock.now());
        clock.advance(Duration::from_millis(99));
        assert!(slow.is_fresh(clock.now()));
        clock.advance(Duration::from_millis(1));
        assert!(!slow.is_fresh(clock.now()));
    }
}
