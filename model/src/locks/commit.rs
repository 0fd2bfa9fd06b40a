//! How does a transaction get from its last operation to its end?

use super::scenario::{CommitPath, Key, Mistake, Mode, Operation, Release, Scenario, TransactionId, keys};
use super::state::{Phase, ReadVersion, State};
use crate::state::Csn;

impl Scenario {
    /// Returns true if the reads of `id` are valid, and `None` if `id` waits for another decision.
    ///
    /// A transaction with a CSN validates as of this CSN: the reads are valid if no version between
    /// its snapshot and its CSN exists.
    #[must_use]
    pub fn validate(&self, state: &State, id: TransactionId) -> Option<bool> {
        let progress = state.progress(id);
        let trusts_leaf = !progress.saw_unsettled || self.makes(Mistake::LeafVersionSuffices);
        if self.rules.uses_leaf_versions && progress.leaf_version == state.leaf_version && trusts_leaf {
            return Some(true);
        }
        for key in keys().filter(|key| self.has_to_validate(state, id, *key)) {
            if !self.validate_key(state, id, key)? {
                return Some(false);
            }
        }
        Some(true)
    }

    fn has_to_validate(&self, state: &State, id: TransactionId, key: Key) -> bool {
        let progress = state.progress(id);
        let was_absent = match progress.read(key) {
            ReadVersion::None => return false,
            ReadVersion::Initial => self.absent.contains(key),
            ReadVersion::Of(writer) => self.transaction(writer).deletes(key),
        };
        // The first write of a key compared the newest version with the snapshot, and no other
        // transaction has changed the key since.
        if progress.changed.contains(key) || progress.forgotten.contains(key) {
            return false;
        }
        let by_scan = !self.transaction(id).operations.contains(&Operation::Read(key));
        let skips = if by_scan { Mistake::GapsNotValidated } else { Mistake::AbsentKeysNotValidated };
        !(was_absent && self.makes(skips))
    }

    fn validate_key(&self, state: &State, id: TransactionId, key: Key) -> Option<bool> {
        let progress = state.progress(id);
        let limit = if progress.csn > 0 { progress.csn } else { Csn::MAX };
        let writer = state.in_progress(key, Some(id));
        let entry = state.entry(key);
        let is_conflict = |other: &TransactionId| {
            let csn = state.csn(*other);
            *other != id && csn > progress.snapshot && csn < limit
        };
        let is_hidden = self.makes(Mistake::OnlyNewestStampValidated) && writer.is_some();
        if !is_hidden && entry.versions[entry.purged..].iter().any(is_conflict) {
            return Some(false);
        }
        let Some(writer) = writer.map(|writer| state.progress(writer)) else { return Some(true) };
        match self.rules.commit {
            CommitPath::DrawFirst => {
                let is_lower = writer.phase == Phase::Undecided && writer.csn < limit;
                let waits = is_lower && !self.makes(Mistake::LowerUndecidedNotAwaited);
                (!waits).then_some(true)
            }
            CommitPath::AnnounceFirst => Some(false),
            CommitPath::Marks => Some(writer.phase != Phase::Announced),
            CommitPath::Atomic | CommitPath::ValidateFirst => Some(true),
        }
    }

    /// Announces the commit of `id`, and marks what it read.
    pub fn announce(&self, state: &mut State, id: TransactionId) {
        let progress = state.progress_mut(id);
        progress.phase = Phase::Announced;
        if self.rules.commit == CommitPath::Marks {
            let is_read = |key: &Key| progress.read(*key) != ReadVersion::None;
            progress.marks = keys().filter(is_read).filter(|key| !progress.changed.contains(*key)).collect();
        }
    }

    /// Returns true if a mark of another transaction is on a key that `id` changed.
    #[must_use]
    pub fn is_marked_elsewhere(&self, state: &State, id: TransactionId) -> bool {
        let changed = state.progress(id).changed;
        self.ids().any(|other| other != id && !state.progress(other).marks.is_disjoint(changed))
    }

    /// Validates `id` before its draw. Returns `None` if `id` waits.
    pub fn validate_before_draw(&self, state: &mut State, id: TransactionId) -> Option<()> {
        if !self.validate(state, id)? {
            self.abort(state, id);
        } else if self.rules.commit == CommitPath::Atomic {
            self.append(state, id);
            self.make_ready(state, id);
        } else {
            state.progress_mut(id).phase = Phase::Validated;
        }
        Some(())
    }

    /// Draws the CSN of `id` and appends its record.
    pub fn draw(&self, state: &mut State, id: TransactionId) {
        self.append(state, id);
        if self.mode(id) == Mode::Optimistic && self.rules.commit == CommitPath::DrawFirst {
            state.progress_mut(id).phase = Phase::Undecided;
        } else {
            self.make_ready(state, id);
        }
    }

    fn append(&self, state: &mut State, id: TransactionId) {
        let log = usize::from(self.transaction(id).log);
        state.progress_mut(id).csn = state.next_csn;
        state.next_csn += 1;
        state.logs[log].records.push(id);
    }

    fn make_ready(&self, state: &mut State, id: TransactionId) {
        if state.progress(id).phase != Phase::Visible {
            self.show(state, id);
        }
        let progress = state.progress_mut(id);
        progress.phase = Phase::Ready;
        progress.marks = Default::default();
        (progress.leaf_version, progress.saw_unsettled) = (0, false);
    }

    fn show(&self, state: &mut State, id: TransactionId) {
        let changed = state.progress(id).changed;
        changed.iter().for_each(|key| state.entry_mut(key).versions.push(id));
    }

    /// Decides the undecided `id`. Returns `None` if `id` waits.
    pub fn decide(&self, state: &mut State, id: TransactionId) -> Option<()> {
        if self.validate(state, id)? {
            self.make_ready(state, id);
        } else {
            self.abort(state, id);
        }
        Some(())
    }

    /// Returns true if `id` may release its locks before it is acknowledged.
    #[must_use]
    pub fn may_release(&self, state: &State, id: TransactionId) -> bool {
        let progress = state.progress(id);
        let by_rule = match self.rules.release {
            Release::Early => true,
            Release::Late => false,
            Release::Mixed => id % 2 == 1,
        };
        let by_mistake = self.makes(Mistake::LateReleaseReplacesDependencies) && self.is_durable(state, id);
        (progress.holds_exclusive || !progress.shared.is_empty()) && (by_rule || by_mistake)
    }

    /// Returns true if the rules make an active `id` release locks before its draw.
    #[must_use]
    pub fn releases_before_draw(&self, state: &State, id: TransactionId) -> bool {
        let has_shared = !state.progress(id).shared.is_empty();
        self.makes(Mistake::SharedReleasedBeforeDraw) && has_shared
            || self.makes(Mistake::AllReleasedBeforeAppend)
    }

    /// Releases locks of `id` before its draw, as a wrong rule wants it.
    pub fn release_before_draw(&self, state: &mut State, id: TransactionId) {
        if self.makes(Mistake::SharedReleasedBeforeDraw) {
            state.progress_mut(id).shared = Default::default();
        } else {
            self.show(state, id);
            state.progress_mut(id).phase = Phase::Visible;
            self.release(state, id);
        }
    }

    /// Reports the result of `id`, which may have written nothing.
    pub fn acknowledge(&self, state: &mut State, id: TransactionId) {
        let progress = state.progress_mut(id);
        progress.phase = Phase::Acknowledged;
        let shown = match progress.csn {
            0 if self.makes(Mistake::ReadsDoNotAcknowledge) => 0,
            0 => progress.dsn,
            csn => csn,
        };
        state.newest_acknowledged = state.newest_acknowledged.max(shown);
        self.release(state, id);
    }

    /// Returns true if the newest version of `key` is a tombstone that no transaction needs.
    #[must_use]
    pub fn may_purge(&self, state: &State, key: Key) -> bool {
        let entry = state.entry(key);
        let Some(writer) = entry.versions[entry.purged..].last() else { return false };
        if state.in_progress(key, None).is_some() || !self.transaction(*writer).deletes(key) {
            return false;
        }
        let csn = state.csn(*writer);
        let pins = |id: &TransactionId| {
            let reader = state.progress(*id);
            self.mode(*id) != Mode::Pessimistic && reader.is_in_progress() && reader.snapshot < csn
        };
        let is_durable = csn < self.watermark(state) || self.makes(Mistake::PurgeBeforeDurable);
        let is_pinned = self.ids().any(|id| pins(&id)) && !self.makes(Mistake::PurgeIgnoresPins);
        csn > 0 && is_durable && !is_pinned
    }

    /// Removes the entry of `key`, whose newest version is a tombstone.
    pub fn purge(&self, state: &mut State, key: Key) {
        state.leaf_version += u8::from(self.rules.uses_leaf_versions);
        let entry = state.entry_mut(key);
        entry.purged = entry.versions.len();
        self.join_gaps(state, key);
    }
}
