//! What must never happen?

use super::scenario::Scenario;
use super::state::{Publication, State};
use crate::objects::explore::sound;
use stateright::Property;

/// A broken promise.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Violation {
    /// A reported block is not in a published recovery.
    ReportedLost,
    /// A block of an earlier published recovery is not in a later one.
    ServedLost,
    /// A block that a published recovery has discarded is in a later one.
    DiscardedCameBack,
    /// The log has a block twice.
    BlockTwice,
    /// The newest manifest names an object that is not there.
    ObjectMissing,
    /// A writer ends although no other one has claimed the database.
    HealthyWriterEnded,
    /// An earlier writer has published after a later one.
    EarlierWriterPublished,
}

/// A writer reports a block after a later one has published its recovery.
pub const REACHED_LATE_REPORT: &str = "reached: a block is reported after the takeover";
/// A recovery does not accept a block that is in the store.
pub const REACHED_DISCARD: &str = "reached: a recovery discards a block";
/// The last writer serves, and every block of it is reported.
pub const REACHED_END: &str = "reached: the last writer reports all its blocks";

impl Scenario {
    pub(super) fn judge_report(&self, state: &mut State, writer: usize, bits: u16) {
        state.reported |= bits;
        let later = state.publications.iter().filter(|publication| usize::from(publication.writer) > writer);
        for publication in later {
            if bits != 0 {
                state.was_late = true;
            }
            if bits & !publication.content != 0 {
                state.violation.get_or_insert(Violation::ReportedLost);
            }
        }
    }

    pub(super) fn judge_publication(&self, state: &mut State, new: Publication) {
        let ended = self.before(usize::from(new.writer));
        if state.reported & ended & !new.content != 0 {
            state.violation.get_or_insert(Violation::ReportedLost);
        }
        for old in &state.publications {
            let decided = self.before(usize::from(old.writer));
            let violation = if old.writer > new.writer {
                Violation::EarlierWriterPublished
            } else if old.content & !new.content != 0 {
                Violation::ServedLost
            } else if new.content & decided & !old.content != 0 {
                Violation::DiscardedCameBack
            } else {
                continue;
            };
            state.violation.get_or_insert(violation);
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
        Property::sometimes(REACHED_DISCARD, |_, state: &State| state.has_discarded),
        Property::sometimes(REACHED_END, |scenario: &Scenario, state: &State| {
            let (last, blocks) = (state.writers.last(), scenario.blocks.last());
            last.zip(blocks).is_some_and(|(last, blocks)| last.reported.count_ones() == u32::from(*blocks))
        }),
    ]
}
