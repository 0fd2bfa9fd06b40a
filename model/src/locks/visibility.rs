//! Which version does a read return, and what does the reader depend on?
//!
//! A reader sees a prefix of a key's versions, and returns the last one of it. The prefix of length
//! 0 is what was there before all transactions.

use super::scenario::{Key, Mistake, Mode, Release, Scenario, TransactionId};
use super::state::{Phase, ReadVersion, State};

impl Scenario {
    /// Returns the number of versions of `key` that `id` sees, or `None` if `id` waits.
    fn visible_versions(&self, state: &State, id: TransactionId, key: Key) -> Option<usize> {
        let (entry, snapshot, mode) = (state.entry(key), state.progress(id).snapshot, self.mode(id));
        if mode == Mode::Pessimistic && !self.makes(Mistake::PessimisticReadsSnapshot) {
            return Some(entry.versions.len());
        }
        if let Some(writer) = state.in_progress(key, Some(id)) {
            let writer = state.progress(writer);
            let is_in_snapshot = writer.phase == Phase::Undecided && writer.csn <= snapshot;
            if is_in_snapshot && !self.makes(Mistake::UndecidedIsInvisible) {
                return None;
            }
        }
        let newest = entry.versions.iter().rposition(|writer| state.csn(*writer) <= snapshot);
        let visible = newest.map_or(0, |at| at + 1);
        if mode == Mode::ReadOnly && visible > entry.purged && !self.makes(Mistake::ReadersDoNotWait) {
            let is_committed = self.is_committed(state, entry.versions[visible - 1]);
            return is_committed.then_some(visible);
        }
        Some(visible)
    }

    /// Reads `key`. Returns `None` if `id` waits.
    pub fn read(&self, state: &mut State, id: TransactionId, key: Key) -> Option<()> {
        let visible = self.visible_versions(state, id, key)?;
        let versions = &state.entry(key).versions;
        let version = visible.checked_sub(1).map_or(ReadVersion::Initial, |at| ReadVersion::Of(versions[at]));
        let is_newest = versions.len() == visible && state.in_progress(key, Some(id)).is_none();
        let leaf_version = state.leaf_version;
        self.observe(state, id, key, visible, false);
        let progress = state.progress_mut(id);
        progress.reads[usize::from(key)] = version;
        if self.rules.uses_leaf_versions {
            progress.saw_unsettled |= !is_newest || progress.leaf_version != leaf_version;
        }
        Some(())
    }

    /// Makes `id` depend on the last of the first `visible` versions of `key`.
    pub fn observe(&self, state: &mut State, id: TransactionId, key: Key, visible: usize, overwrites: bool) {
        let Some(at) = visible.checked_sub(1) else { return };
        let entry = state.entry(key);
        let (writer, is_purged) = (entry.versions[at], visible <= entry.purged);
        let is_missed = self.makes(Mistake::TombstonesNotObserved) && self.transaction(writer).deletes(key)
            || self.makes(Mistake::OverwrittenNotObserved) && overwrites
            || self.makes(Mistake::LateReleaseReplacesDependencies) && self.rules.release == Release::Late;
        let csn = state.csn(writer);
        let progress = state.progress_mut(id);
        progress.observed.insert(writer);
        if !is_purged && !is_missed {
            progress.listed.insert(writer);
            progress.dsn = progress.dsn.max(csn);
        }
    }
}
