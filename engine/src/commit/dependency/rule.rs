//! The trait of a dependency rule.

use super::super::watermark::Watermark;
use super::clocks::Clocks;
use super::undecided::{DependsOn, Facts, Obstacle, Undecided};
use crate::base::Csn;

/// The state from which a rule decides.
pub(in super::super) struct Known<'a> {
    pub watermark: &'a Watermark,
    pub undecided: &'a Undecided,
    pub facts: &'a dyn Facts,
}

/// A dependency rule.
pub(in super::super) trait Rule: Send + Sync {
    /// Returns the CSN that W must have passed before the transaction `csn`, whose record is
    /// durable, is committed; zero if none.
    fn required_watermark(&self, csn: Csn, dsn: Csn) -> Csn;

    /// Returns the CSN that W has to pass so that `csn`, which waits in a queue and depends on
    /// `on`, is committed. It may be higher than necessary.
    fn required_for_queued(&self, csn: Csn, dsn: Csn, _on: &DependsOn) -> Csn {
        self.required_watermark(csn, dsn)
    }

    /// Returns whether `csn`, which W has not passed, is committed.
    fn is_committed(&self, csn: Csn, known: &Known<'_>) -> bool {
        known.watermark.is_committed(csn)
    }

    /// Names to `each` what keeps `csn` from being committed.
    fn obstacles(&self, csn: Csn, known: &Known<'_>, each: &mut dyn FnMut(Obstacle)) {
        if csn >= known.watermark.get() {
            each(Obstacle::Watermark(csn));
        }
    }

    /// Returns whether records list their predecessors, and transactions are judged by these
    /// instead of by W.
    fn lists_predecessors(&self) -> bool {
        false
    }

    /// Returns the clocks, if the rule goes by clocks.
    fn clocks(&self) -> Option<&Clocks> {
        None
    }
}
