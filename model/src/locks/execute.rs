//! What does one operation do?
//!
//! Two operations take two steps, because another transaction may act in between: a pessimistic
//! scan publishes its interval, then reads; a writer that checks the lock table outside the latch
//! checks, then writes.

use super::scenario::{LockNames, Mistake, Mode, Operation, Scenario, TransactionId};
use super::state::{Phase, Progress, State};

impl Scenario {
    /// Returns the next operation of `id`, or `None` if all are completed.
    #[must_use]
    pub fn next_operation(&self, state: &State, id: TransactionId) -> Option<Operation> {
        let completed = usize::from(state.progress(id).completed);
        self.transaction(id).operations.get(completed).copied()
    }

    fn has_two_steps(&self, id: TransactionId, operation: Operation) -> bool {
        match operation {
            Operation::Scan(..) => {
                self.mode(id) == Mode::Pessimistic && self.rules.names == LockNames::Intervals
            }
            Operation::Write(_) | Operation::Delete(_) => self.makes(Mistake::CheckedOutsideLatch),
            _ => false,
        }
    }

    /// Returns true if the next operation of `id` waits for a lock.
    #[must_use]
    pub fn is_blocked(&self, state: &State, id: TransactionId) -> bool {
        let is_halfway = state.progress(id).is_halfway;
        let is_pessimistic = self.mode(id) == Mode::Pessimistic;
        match self.next_operation(state, id) {
            None | Some(Operation::RollBack(_)) => false,
            Some(Operation::Read(_) | Operation::Scan(..)) if !is_pessimistic => false,
            Some(Operation::Read(key)) => {
                !self.makes(Mistake::PessimisticIgnoresWriters) && self.is_exclusive_elsewhere(state, id, key)
            }
            Some(Operation::Scan(from, to)) => {
                // Publishing an interval waits for no lock.
                let publishes = self.rules.names == LockNames::Intervals
                    && is_halfway == self.makes(Mistake::ScanReadsThenLocks);
                !publishes && (from..to).any(|key| self.is_exclusive_elsewhere(state, id, key))
            }
            Some(Operation::Write(key) | Operation::Delete(key)) => {
                let is_exclusive = self.is_exclusive_elsewhere(state, id, key);
                let is_shared = self.is_shared_elsewhere(state, id, key);
                if !self.makes(Mistake::CheckedOutsideLatch) {
                    is_exclusive || is_shared
                } else if is_halfway {
                    is_exclusive
                } else {
                    is_shared
                }
            }
        }
    }

    /// Executes a step of the next operation of `id`. Returns `None` if `id` waits.
    pub fn execute(&self, state: &mut State, id: TransactionId) -> Option<()> {
        let operation = self.next_operation(state, id)?;
        let has_two_steps = self.has_two_steps(id, operation);
        let progress = state.progress_mut(id);
        let is_first_of_two = has_two_steps && !progress.is_halfway;
        progress.is_halfway = is_first_of_two;
        progress.completed += u8::from(!is_first_of_two);
        match operation {
            Operation::Read(key) => {
                self.lock_shared(state, id, key, key + 1);
                self.read_unless_changed(state, id, key)?;
            }
            Operation::Scan(from, to) => {
                let locks_now = is_first_of_two != self.makes(Mistake::ScanReadsThenLocks);
                if !has_two_steps || locks_now {
                    self.lock_shared(state, id, from, to);
                }
                if !has_two_steps || !locks_now {
                    (from..to).try_for_each(|key| self.read_unless_changed(state, id, key))?;
                }
            }
            Operation::Write(_) | Operation::Delete(_) if is_first_of_two => {}
            Operation::Write(key) | Operation::Delete(key) => self.write(state, id, key),
            Operation::RollBack(key) => self.roll_back(state, id, key),
        }
        Some(())
    }

    fn lock_shared(&self, state: &mut State, id: TransactionId, from: u8, to: u8) {
        if self.mode(id) == Mode::Pessimistic {
            let names = self.names_of_read(state, from, to);
            let progress = state.progress_mut(id);
            progress.shared = progress.shared.union(names);
        }
    }

    fn read_unless_changed(&self, state: &mut State, id: TransactionId, key: u8) -> Option<()> {
        if state.progress(id).changed.contains(key) { Some(()) } else { self.read(state, id, key) }
    }

    fn write(&self, state: &mut State, id: TransactionId, key: u8) {
        let entry = state.entry(key);
        let (versions, known) = (entry.versions.len(), entry.versions.len() > entry.purged);
        let newest = entry.versions.last().filter(|_| known);
        let is_newer = newest.is_some_and(|writer| state.csn(*writer) > state.progress(id).snapshot);
        if self.mode(id) == Mode::Optimistic && is_newer {
            self.abort(state, id);
            return;
        }
        self.split_gap(state, key);
        self.observe(state, id, key, versions, true);
        if self.rules.uses_leaf_versions {
            let was_current = state.progress(id).leaf_version == state.leaf_version;
            state.leaf_version += 1;
            if was_current {
                state.progress_mut(id).leaf_version = state.leaf_version;
            }
        }
        let progress = state.progress_mut(id);
        progress.changed.insert(key);
        progress.holds_exclusive = true;
    }

    /// Gives up the change of `key` and keeps what was read.
    fn roll_back(&self, state: &mut State, id: TransactionId, key: u8) {
        state.leaf_version += u8::from(self.rules.uses_leaf_versions);
        let progress = state.progress_mut(id);
        progress.changed.remove(key);
        progress.holds_exclusive = !progress.changed.is_empty();
        if self.makes(Mistake::SavepointForgetsReads) {
            progress.shared.keys.remove(key);
            progress.forgotten.insert(key);
        }
    }

    /// Rolls `id` back. If it has a CSN, its record becomes void.
    pub fn abort(&self, state: &mut State, id: TransactionId) {
        let progress = state.progress_mut(id);
        let (changed, was_visible) = (progress.changed, progress.phase == Phase::Visible);
        if progress.csn == 0 {
            *progress = Progress::new(Phase::Aborted);
        } else {
            progress.phase = Phase::Aborted;
            progress.changed = Default::default();
            progress.marks = Default::default();
            self.release(state, id);
        }
        if self.rules.uses_leaf_versions && !changed.is_empty() {
            state.leaf_version += 1;
        }
        if was_visible {
            state.entries.iter_mut().for_each(|entry| entry.versions.retain(|writer| *writer != id));
        }
        self.join_gaps_after_abort(state, changed);
    }

    /// Releases all locks of `id`.
    pub fn release(&self, state: &mut State, id: TransactionId) {
        let progress = state.progress_mut(id);
        progress.holds_exclusive = false;
        progress.shared = Default::default();
    }
}
