//! The length of the file that was needed recently, so that the file is not cut and extended in
//! turn.

use crate::base::clock::Nanos;
use std::time::Duration;

/// A need that is older than this, or at most twice this, is forgotten.
pub const RECENT: Duration = Duration::from_secs(15);

/// Blocks that the file needed, over two periods of [`RECENT`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecentNeed {
    /// The most in the current period.
    newest: u64,
    /// The most in the period before.
    before: u64,
    /// When the current period began: at the first call of `advance`.
    since: Option<Nanos>,
}

impl RecentNeed {
    /// Records that the file needs `blocks` blocks now.
    pub fn note(&mut self, blocks: u64) {
        self.newest = self.newest.max(blocks);
    }

    /// Forgets periods that ended.
    pub fn advance(&mut self, now: Nanos) {
        let passed = now.since(*self.since.get_or_insert(now));
        if passed < RECENT {
            return;
        }
        let before = if passed < 2 * RECENT { self.newest } else { 0 };
        *self = RecentNeed { newest: 0, before, since: Some(now) };
    }

    /// The most blocks needed in both periods.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.newest.max(self.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::Clock;

    #[test]
    fn recent_need_is_kept_for_two_periods_and_then_forgotten() {
        let clock = Clock::manual();
        let mut need = RecentNeed::default();
        need.note(1600);
        need.note(100);
        need.advance(clock.now());
        assert_eq!(need.blocks(), 1600);
        clock.advance(RECENT);
        need.advance(clock.now());
        need.note(200);
        assert_eq!(need.blocks(), 1600, "one period ago");
        clock.advance(RECENT / 2);
        need.advance(clock.now());
        assert_eq!(need.blocks(), 1600);
        clock.advance(RECENT / 2);
        need.advance(clock.now());
        assert_eq!(need.blocks(), 200, "two periods ago");
        clock.advance(2 * RECENT);
        need.advance(clock.now());
        assert_eq!(need.blocks(), 0);
    }
}
