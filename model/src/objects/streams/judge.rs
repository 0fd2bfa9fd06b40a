//! What must never happen?

use super::scenario::Scenario;
use super::state::State;
use crate::objects::explore::sound;
use stateright::Property;

/// A broken promise.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Violation {
    /// A reported block is not in a published recovery.
    ReportedLost,
    /// A block of an earlier published recovery is not in a later one.
    ServedLost,
    /// The log has a block twice.
    BlockTwice,
    /// A log that lost nothing is taken for a damaged one.
    SoundLogRefused,
    /// The manifest is empty, for ever if its writer dies now.
    ManifestEmpty,
}

/// What a writer has published.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Publication {
    /// The writer.
    pub writer: u8,
    /// All blocks that count.
    pub content: u16,
}

/// A writer reports a block after a later one has published its recovery.
pub const REACHED_LATE_REPORT: &str = "reached: a block is reported after the takeover";
/// A recovery meets a torn block.
pub const REACHED_TORN: &str = "reached: a recovery meets a torn block";
/// The last writer serves, and every block of it is reported.
pub const REACHED_END: &str = "reached: the last writer reports all its blocks";

impl Scenario {
    pub(super) fn judge_report(&self, state: &mut State, writer: usize, bits: u16) {
        state.reported |= bits;
        for later in state.publications.iter().filter(|later| usize::from(later.writer) > writer) {
            state.was_late |= bits != 0;
            if bits & !later.content != 0 {
                state.violation.get_or_insert(Violation::ReportedLost);
            }
        }
    }

    pub(super) fn judge_publication(&self, state: &mut State, new: Publication) {
        if state.reported & self.before(usize::from(new.writer)) & !new.content != 0 {
            state.violation.get_or_insert(Violation::ReportedLost);
        }
        if state.publications.iter().any(|old| old.content & !new.content != 0) {
            state.violation.get_or_insert(Violation::ServedLost);
        }
        state.publications.push(new);
    }
}

/// Returns all properties.
#[must_use]
pub fn properties() -> Vec<Property<Scenario>> {
    vec![
        sound(),
        Property::sometimes(REACHED_LATE_REPORT, |_, state: &State| state.was_late),
        Property::sometimes(REACHED_TORN, |_, state: &State| state.was_torn),
        Property::sometimes(REACHED_END, |scenario: &Scenario, state: &State| {
            let (last, blocks) = (state.writers.last(), scenario.blocks.last());
            last.zip(blocks).is_some_and(|(last, blocks)| last.reported == *blocks && *blocks > 0)
        }),
    ]
}
