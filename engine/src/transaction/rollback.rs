//! Taking changes back: to a savepoint, at an abort, after a panic.
//!
//! A transaction keeps the serials of the savepoints that it can be rolled back to, oldest first.
//! Rolling back to one makes the later ones invalid: they belong to a state that is gone, even if
//! as many changes and as much redo follow.

use super::active::ActiveTransaction;
use super::committed::USER;
use super::descriptor::{DescriptorId, Descriptors, Progress, Stamp};
use super::garbage::purge;
use super::versions::{Before, Undo};
use super::write_set::Change;
use crate::base::planted::{self, Bug};
use crate::base::settings::Durability;
use crate::base::{Error, Location, Result};
use crate::buffer::EmergencyReserve;
use crate::log::RedoMark;
use crate::sync::epoch::{Guard, pin};
use crate::tree::{EntryMeta, LeafHint, LeafWrite};

/// A rollback that takes back more changes drops the transaction's dead ranges first, rather than
/// take each key out of them.
const TAKEN_OUT_MAX: usize = 16;

/// A point to roll back to. Belongs to the transaction that created it.
#[derive(Clone, Copy, Debug)]
pub struct Savepoint {
    /// The number of the system: transactions of another have the same identifiers.
    system: u64,
    owner: DescriptorId,
    serial: u64,
    changes: usize,
    values: usize,
    redo: RedoMark,
}

impl ActiveTransaction {
    /// Creates a point to roll back to.
    pub fn savepoint(&mut self) -> Savepoint {
        let writes = &mut *self.writes;
        let changes = writes.changes.len();
        // Without a change since the last savepoint the point is the same: there are no more
        // savepoints than changes.
        if writes.savepoints.is_empty() || writes.savepoint_changes != changes {
            writes.last_savepoint += 1;
            writes.savepoints.push(writes.last_savepoint);
        }
        writes.savepoint_changes = changes;
        Savepoint {
            system: self.system.number,
            owner: self.id,
            serial: writes.savepoints.last().copied().unwrap_or_default(),
            changes,
            values: writes.values.len(),
            redo: writes.redo.mark(),
        }
    }

    /// Takes back everything since `savepoint`. What was read since stays a dependency.
    ///
    /// # Errors
    /// `InvalidArgument` for a savepoint of another transaction, or of a state that was rolled back
    /// itself. I/O, `Corruption` or `OutOfMemory` if a page cannot be read: then the transaction
    /// can only abort.
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()> {
        self.check_unbroken()?;
        let own = savepoint.system == self.system.number && savepoint.owner == self.id;
        let (true, Ok(at)) = (own, self.writes.savepoints.binary_search(&savepoint.serial)) else {
            return Err(Error::invalid("the savepoint does not belong to this state of this transaction"));
        };
        let first = savepoint.changes + usize::from(planted::is(Bug::RollbackLeavesRow));
        let before = self.writes.changes.len();
        self.keep_as_reads(first);
        let taken_back = self.take_back(first, savepoint.values);
        if self.writes.changes.len() < before {
            self.system.descriptors.rows_released(self.id);
            self.system.locks.waiters.released(self.id);
        }
        if let Err(error) = taken_back {
            // The pages are taken back in part and the redo is not, and there may be fewer changes
            // than before the newest savepoint. Only an abort is possible in this state.
            self.broken = Some(error.duplicate());
            return Err(error);
        }
        if !planted::is(Bug::RollbackKeepsRedo) {
            self.writes.redo.truncate(savepoint.redo);
        }
        self.writes.savepoint_changes = savepoint.changes;
        self.writes.savepoints.truncate(at + 1);
        Ok(())
    }

    /// Restores the entries of all changes from `first` on, newest first, and discards large values
    /// except the first `values`. After a failure the changes that were not restored are still
    /// listed, and all values.
    pub(super) fn take_back(&mut self, first: usize, values: usize) -> Result<()> {
        if self.writes.changes.len() - first.min(self.writes.changes.len()) > TAKEN_OUT_MAX {
            self.writes.dead_ranges.get_mut().end(self.own, None);
        }
        // The changes of this transaction may be what leaves no memory for reading their pages.
        let _reserve = EmergencyReserve::begin();
        let (mut guard, shard) = (pin(), Descriptors::slot(self.id));
        while self.writes.changes.len() > first {
            // References from before are not used again, and a long rollback in one epoch would
            // defer all frees.
            guard.repin();
            let change = self.writes.changes.last().expect("longer than `first`");
            let (handle, keys_len) = (change.version, change.key.0 as usize);
            let restored = self.restore(change, &guard)?;
            debug_assert!(restored, "no other transaction changes an entry in progress");
            let deleted = change.deleted;
            self.system.versions.slots.abort(shard, handle, &guard);
            let writes = &mut *self.writes;
            writes.count_deletion(&self.system, writes.keys.len() - keys_len, deleted, false);
            writes.changes.pop();
            writes.keys.truncate(keys_len);
        }
        let kept = self.writes.replaced.partition_point(|replaced| replaced.change < first);
        self.writes.replaced.truncate(kept);
        // No entry refers to the values any more.
        while self.writes.values.len() > values {
            let Some(value) = self.writes.values.pop() else { break };
            self.system.large_values.discard(shard, &value);
        }
        Ok(())
    }

    /// Restores the entry to its state before `change`. Returns false, and changes nothing, if the
    /// change is not the newest of the entry.
    fn restore(&self, change: &Change, guard: &Guard) -> Result<bool> {
        let table = &self.writes.tables[change.table as usize];
        let (key, versions) = (self.writes.key(change), &self.system.versions.slots);
        let Some(version) = versions.read(change.version, guard) else {
            return Err(Error::corruption("a version of an open transaction was collected")
                .at(Location::Table(table.name.to_string())));
        };
        let mut hint = LeafHint::default();
        let mut leaf = table.tree.write(key, 0, &mut hint)?;
        let newest = leaf.entry().map(|entry| entry.stamp) == Some(change.version.word());
        table.dead_ranges.take_out(key, guard);
        if newest && planted::is(Bug::AbortLeavesRow) && change.key.0 == 0 {
            leaf.set_stamp(version.undo.prior);
        } else if newest {
            put_back(&mut leaf, &version.undo);
            // The collector may have skipped a deleted row meanwhile, and does not return to the
            // row.
            let is_over = |entry: EntryMeta| entry.tombstone && versions.is_settled(entry.stamp);
            if leaf.entry().is_some_and(is_over) {
                drop(leaf);
                purge(table, key);
            }
        }
        Ok(newest)
    }

    /// Marks changes that cannot be taken back as orphaned, so that every reader sees the value
    /// before, and takes back the rest.
    pub(super) fn orphan_changes(&mut self) {
        let _reserve = EmergencyReserve::begin();
        let (mut guard, versions) = (pin(), &self.system.versions.slots);
        for change in self.writes.changes.iter().rev() {
            guard.repin();
            // Below an orphaned change the same row may have an earlier one.
            match self.restore(change, &guard) {
                Ok(true) => versions.abort(Descriptors::slot(self.id), change.version, &guard),
                Ok(false) | Err(_) => versions.set_stamp(change.version, Stamp::ORPHANED),
            }
        }
        // An orphaned entry may refer to one of the values: their pages stay until the next open,
        // in no image.
        for value in &self.writes.values {
            versions.set_stamp(value.owner, Stamp::ORPHANED);
        }
    }

    /// Takes everything back. At level durable returns once everything that the transaction
    /// observed is durable: its caller is about to learn something of it.
    ///
    /// # Errors
    /// `Poisoned` if that can no longer become durable.
    pub fn abort_acknowledging(self: Box<Self>) -> Result<()> {
        let (system, pending) = (self.system.clone(), self.pending(true));
        drop(self);
        let commit = system.commit();
        let _inside = commit.failure().guard(USER);
        match pending.durability {
            Durability::Durable | Durability::Written if !planted::is(Bug::ErrorNotAwaited) => {
                commit.waits().acknowledge_observed(&pending)
            }
            _ => Ok(()),
        }
    }

    fn abort_open(&mut self) {
        // Stays true if a panic interrupts the abort, which then is not repeated.
        self.inside.set(true);
        self.system.counters.aborted.add(1);
        if let Err(error) = self.take_back(0, 0) {
            // A page was evicted and cannot be read.
            tracing::error!(%error, "a change could not be taken back; no reader sees it");
            self.orphan_changes();
        }
        self.inside.set(false);
        self.end();
        self.system.commit().worked(self.begun);
    }

    /// Ends a commit that panicked after the draw of its CSN. The next open may replay the record,
    /// so the database is poisoned before any thread sees the state of the rows.
    #[cold]
    fn end_after_panic(&mut self, progress: Progress) {
        self.system.committed.panicked("a thread that committed");
        if let Progress::Ready(csn) = progress {
            // Others may have read the rows. A version that is stamped already may have been given
            // back and reused.
            let (own, stamp, versions) = (self.own, Stamp::committed(csn), &self.system.versions.slots);
            self.writes.changes.iter().for_each(|change| versions.change_stamp(change.version, own, stamp));
            self.writes.values.iter().for_each(|value| versions.change_stamp(value.owner, own, stamp));
            self.end();
        } else {
            self.system.descriptors.set_active_again(self.id);
        }
    }
}

/// Restores an entry to its state before its newest change. Needs no room: entries keep theirs
/// until they are settled.
pub(super) fn put_back(leaf: &mut LeafWrite<'_>, undo: &Undo<'_>) {
    match &undo.before {
        Before::Absent => leaf.remove(),
        Before::Tombstone => leaf.put(undo.prior, true, &[]),
        Before::Value(value) => leaf.put(undo.prior, false, value),
        Before::Reference(reference) => leaf.put_reference(undo.prior, reference),
        Before::Unchanged => leaf.set_stamp(undo.prior),
    }
}

impl Drop for ActiveTransaction {
    fn drop(&mut self) {
        if self.inside.get() {
            return self.system.committed.panicked(USER);
        }
        if self.open {
            match self.system.descriptors.progress(self.id) {
                Progress::Active => {
                    let system = self.system.clone();
                    let _inside = system.commit().failure().guard("a thread that took a transaction back");
                    self.abort_open();
                }
                stopped => self.end_after_panic(stopped),
            }
        }
    }
}
