//! Which names do shared locks have, and which transaction waits?
//!
//! An exclusive lock is a change in the leaf. Shared locks are names in the lock table. A reader
//! publishes names and then waits for changes in progress; a writer waits for names that cover its
//! key.

use super::scenario::{KEYS, Key, LockNames, Mistake, Mode, Scenario, TransactionId, keys};
use super::state::{Names, State};
use crate::state::Set;

fn row(key: Key) -> Names {
    Names { keys: [key].into_iter().collect(), gaps: Set::default() }
}

fn gap_below(key: Key) -> Names {
    Names { keys: Set::default(), gaps: [key].into_iter().collect() }
}

impl Scenario {
    /// Returns true if the leaf has an entry for `key`.
    #[must_use]
    pub fn has_entry(&self, state: &State, key: Key) -> bool {
        let entry = state.entry(key);
        let was_there = entry.purged == 0 && !self.absent.contains(key);
        was_there || entry.versions.len() > entry.purged || state.in_progress(key, None).is_some()
    }

    /// Returns the first key from `key` on with an entry, or `KEYS`.
    fn next_entry(&self, state: &State, key: Key) -> Key {
        (key..KEYS as Key).find(|next| self.has_entry(state, *next)).unwrap_or(KEYS as Key)
    }

    /// Returns the names that a read of the keys from `from` to `to`, excluded, locks.
    #[must_use]
    pub fn names_of_read(&self, state: &State, from: Key, to: Key) -> Names {
        match self.rules.names {
            LockNames::Intervals => Names { keys: (from..to).collect(), gaps: Set::default() },
            LockNames::RowsOnly => Names {
                keys: (from..to).filter(|key| self.has_entry(state, *key)).collect(),
                gaps: Set::default(),
            },
            _ if to - from == 1 && self.has_entry(state, from) => row(from),
            _ => self.next_keys_of_read(state, from, to),
        }
    }

    fn next_keys_of_read(&self, state: &State, from: Key, to: Key) -> Names {
        let (mut names, mut at) = (Names::default(), from);
        loop {
            let next = self.next_entry(state, at);
            names.gaps.insert(next);
            if next >= to {
                return names;
            }
            names.keys.insert(next);
            at = next + 1;
        }
    }

    /// Returns true if another transaction than `writer` has a shared lock that covers `key`.
    #[must_use]
    pub fn is_shared_elsewhere(&self, state: &State, writer: TransactionId, key: Key) -> bool {
        if self.makes(Mistake::OptimisticIgnoresShared) && self.mode(writer) == Mode::Optimistic {
            return false;
        }
        let name = match self.rules.names {
            LockNames::Intervals | LockNames::RowsOnly => row(key),
            _ if self.has_entry(state, key) => row(key),
            _ => gap_below(self.next_entry(state, key)),
        };
        self.ids().any(|other| other != writer && state.progress(other).shared.overlap(name))
    }

    /// Returns true if another transaction than `id` has an exclusive lock on `key`.
    #[must_use]
    pub fn is_exclusive_elsewhere(&self, state: &State, id: TransactionId, key: Key) -> bool {
        self.ids().any(|other| {
            let holder = state.progress(other);
            other != id && holder.holds_exclusive && holder.changed.contains(key)
        })
    }

    fn transfers(&self) -> bool {
        matches!(self.rules.names, LockNames::NextKeys | LockNames::NextKeysNotTransferredOnAbort)
    }

    /// Transfers locks before an entry for `key` appears: the gap around it becomes two.
    pub fn split_gap(&self, state: &mut State, key: Key) {
        if self.transfers() && !self.has_entry(state, key) {
            let next = self.next_entry(state, key);
            for progress in &mut state.transactions {
                if progress.shared.gaps.contains(next) {
                    progress.shared.gaps.insert(key);
                }
            }
        }
    }

    /// Transfers locks after the entry of `key` has left: it and the gap below join the gap above.
    pub fn join_gaps(&self, state: &mut State, key: Key) {
        if self.transfers() {
            let next = self.next_entry(state, key);
            for progress in &mut state.transactions {
                if progress.shared.gaps.contains(key) || progress.shared.keys.contains(key) {
                    progress.shared.gaps.insert(next);
                }
            }
        }
    }

    /// Transfers locks after an abort of a transaction that changed the keys `changed`.
    pub fn join_gaps_after_abort(&self, state: &mut State, changed: Set) {
        if self.rules.names == LockNames::NextKeysNotTransferredOnAbort {
            return;
        }
        for key in keys().filter(|key| changed.contains(*key)) {
            if !self.has_entry(state, key) {
                self.join_gaps(state, key);
            }
        }
    }
}
