//! The write set of a transaction: its redo, its changes for taking them back and for stamping, and
//! the memory these take.
//!
//! Which log a change belongs to, where changes are divided by page: the log of the leaf in which
//! the change found its row. Splits and merges move rows to leaves of other logs, which does no
//! harm, because redo is applied in the order of CSNs and not of logs. Only operations of one
//! transaction on one row must stay together: a second change of a row is noted, and its redo goes
//! to the log of the first (`log::fragment`). A transaction whose redo is long goes to one log, in
//! chunks.

use super::catalog::{TableState, TableUse};
use super::deferred_free::DeferredFree;
use super::descriptor::Stamp;
use super::garbage::Delete;
use super::large_values::OwnValue;
use super::lock_set::LockSet;
use super::read_set::ReadSet;
use super::share::ShareCharge;
use super::system::TransactionSystem;
use super::versions::VersionHandle;
use crate::base::{Csn, LogId, PageId, Result, TableId};
use crate::log::RedoBuffer;
use crate::tree::{LargeReference, LeafHint};
use std::cell::{Cell, RefCell};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// One change, for taking it back and for stamping.
#[derive(Debug)]
pub(super) struct Change {
    /// Index in the transaction's tables.
    pub(super) table: u32,
    /// Where the key is in the transaction's key bytes.
    pub(super) key: (u32, u32),
    pub(super) version: VersionHandle,
    /// The entry is that of a deleted key, which this transaction deleted or only locked.
    pub(super) deleted: bool,
    /// Only a lock: the value did not change.
    pub(super) lock: bool,
}

impl Change {
    /// Returns the key, one of the transaction's `keys`.
    pub(super) fn key_in<'k>(&self, keys: &'k [u8]) -> &'k [u8] {
        &keys[self.key.0 as usize..self.key.1 as usize]
    }
}

/// A large value whose reference a change of this transaction removed from an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replaced {
    /// Index of the change.
    pub change: usize,
    /// CSN of the transaction that created the value, 0 if it is not known.
    pub created: Csn,
    pub reference: LargeReference,
}

/// The tables in which a transaction owns dead ranges.
#[derive(Debug, Default)]
pub(super) struct OwnedRanges {
    tables: Vec<Arc<TableState>>,
}

impl OwnedRanges {
    pub(super) fn add(&mut self, table: &Arc<TableState>) {
        if !self.tables.iter().any(|known| Arc::ptr_eq(known, table)) {
            self.tables.push(table.clone());
        }
    }

    /// Gives the ranges to everyone, or drops them: see `DeadRanges::end_owner`.
    pub(super) fn end(&mut self, owner: Stamp, csn: Option<Csn>) {
        if self.tables.is_empty() {
            return; // an empty drain costs as much as one of a table
        }
        self.tables.drain(..).for_each(|table| table.dead_ranges.end_owner(owner, csn));
    }
}

/// What a transaction changes, reads and locks. The buffers pass from transaction to transaction of
/// a thread.
#[derive(Debug, Default)]
pub(super) struct WriteSet {
    pub(super) redo: RedoBuffer,
    pub(super) changes: Vec<Change>,
    pub(super) keys: Vec<u8>,
    /// A buffer for values.
    pub(super) value: Vec<u8>,
    /// Large values written, oldest first.
    pub(super) values: Vec<OwnValue>,
    /// Large values that changes replaced, in the order of the changes.
    pub(super) replaced: Vec<Replaced>,
    pub(super) tables: Vec<Arc<TableState>>,
    /// The index of the table whose row is being changed.
    pub(super) table: u32,
    /// Tables used, by reads too, counted once each.
    pub(super) used: RefCell<Vec<TableUse>>,
    /// What a serializable optimistic transaction has read.
    pub(super) reads: RefCell<ReadSet>,
    /// The locks besides the stamps of changed rows.
    pub(super) locks: RefCell<LockSet>,
    /// The tables in which the transaction owns dead ranges.
    pub(super) dead_ranges: RefCell<OwnedRanges>,
    /// Bytes that the deletions count as versions ([`Delete::bytes_for`]).
    deletions: u64,
    /// The leaf of the last write or read of a row, of some tables, and the numbers of its system
    /// and of its table. These numbers are never reused, in contrast to page ids: another database
    /// uses the same ones, and a new table may get the root of a dropped one.
    hints: [Cell<((u64, TableId), LeafHint)>; HINTS],
    /// The savepoints that can be rolled back to, oldest first.
    pub(super) savepoints: Vec<u64>,
    /// Serial of the newest savepoint.
    pub(super) last_savepoint: u64,
    /// Changes below this index belong to an earlier savepoint: they are not overwritten in place.
    pub(super) savepoint_changes: usize,
    /// The memory of these buffers that is charged to the database, once it is much.
    charge: Option<ShareCharge>,
}

/// The write set of a transaction. Its buffers pass to the next transaction of the thread that
/// drops it, if they were cleared.
#[derive(Debug)]
pub(super) struct Writes {
    /// None only while this is dropped.
    set: Option<Box<WriteSet>>,
    /// Nothing of the transaction is in the buffers, and they are not large.
    is_clear: bool,
}

impl Writes {
    pub(super) fn take() -> Writes {
        let unused = UNUSED.try_with(Cell::take).ok().flatten();
        Writes { set: Some(unused.unwrap_or_default()), is_clear: false }
    }

    /// Ends the use of the buffers.
    pub(super) fn clear(&mut self, system: &TransactionSystem) {
        self.is_clear = WriteSet::clear(self, system);
    }
}

impl Deref for Writes {
    type Target = WriteSet;

    #[inline]
    fn deref(&self) -> &WriteSet {
        self.set.as_deref().expect("only a drop takes it")
    }
}

impl DerefMut for Writes {
    #[inline]
    fn deref_mut(&mut self) -> &mut WriteSet {
        self.set.as_deref_mut().expect("only a drop takes it")
    }
}

impl Drop for Writes {
    fn drop(&mut self) {
        if self.is_clear {
            let _ = UNUSED.try_with(|unused| unused.set(self.set.take()));
        }
    }
}

thread_local! {
    static UNUSED: Cell<Option<Box<WriteSet>>> = const { Cell::new(None) };
}

/// Tables of which the leaf of the last write or read is remembered.
const HINTS: usize = 16;

/// Own changes searched for one that can be overwritten in place.
const RECENT_CHANGES: usize = 16;

/// Buffers above this are not kept for the next transaction, and are charged, in steps of as much.
const KEEP_BYTES: usize = 64 << 10;

impl WriteSet {
    /// Returns the bytes allocated besides the redo.
    fn list_bytes(&self) -> usize {
        let values =
            self.values.capacity() * size_of::<OwnValue>() + self.replaced.capacity() * size_of::<Replaced>();
        let savepoints = self.savepoints.capacity() * size_of::<u64>();
        self.keys.capacity() + self.changes.capacity() * size_of::<Change>() + values + savepoints
    }

    /// Empties the buffers, unless they are too large to be kept: then returns false.
    fn clear(&mut self, system: &TransactionSystem) -> bool {
        if self.deletions > 0 {
            system.versions.slots.subtract_bytes(std::mem::take(&mut self.deletions));
        }
        self.charge = None;
        if self.redo.capacity() > KEEP_BYTES || self.list_bytes() > KEEP_BYTES {
            return false;
        }
        self.redo.clear();
        self.changes.clear();
        self.keys.clear();
        self.values.clear();
        self.replaced.clear();
        self.tables.clear();
        self.reads.get_mut().clear();
        self.savepoints.clear();
        (self.last_savepoint, self.savepoint_changes) = (0, 0);
        true
    }

    /// Counts the changes at the uses of their tables, before the transaction ends.
    pub(super) fn count_changes(&mut self) {
        for changes in self.changes.chunk_by(|one, next| one.table == next.table) {
            let table = &self.tables[changes[0].table as usize];
            if let Some(known) = self.used.get_mut().iter_mut().find(|known| known.is_of(table)) {
                known.rows_changed += changes.iter().filter(|change| !change.lock).count() as u64;
            }
        }
    }

    /// Returns whether no change changed a value.
    pub(super) fn only_locks(&self) -> bool {
        self.changes.iter().all(|change| change.lock)
    }

    pub(super) fn key(&self, change: &Change) -> &[u8] {
        change.key_in(&self.keys)
    }

    /// Returns whether `more` bytes of redo may be added without writing a chunk.
    #[inline]
    pub(super) fn has_room(&self, system: &TransactionSystem, more: usize) -> bool {
        self.redo.unwritten_len() + more <= system.limits.chunk_bytes
            && self.redo.len() + more as u64 <= system.limits.transaction_bytes_max as u64
    }

    /// Directs the following redo to the log of `page`, if changes are divided by page.
    #[inline]
    pub(super) fn redo_of_leaf(&mut self, system: &TransactionSystem, page: PageId) {
        if let Some(log) = system.commit().listing().log_of_page(page) {
            self.redo.in_log(log);
        }
    }

    /// Returns the log of the whole transaction, if it is not divided.
    pub(super) fn whole_log(&self, system: &TransactionSystem, in_chunks: bool) -> LogId {
        let of_pages = if in_chunks { None } else { self.redo.first_log() };
        of_pages.unwrap_or_else(|| system.log_of_thread())
    }

    /// Returns the hint to the leaf of the last write or read of a row in `table`.
    #[inline]
    pub(super) fn hint(&self, system: &TransactionSystem, table: TableId) -> LeafHint {
        let (of, hint) = self.hints[table.0 as usize % HINTS].get();
        if of == (system.number, table) { hint } else { LeafHint::default() }
    }

    #[inline]
    pub(super) fn set_hint(&self, system: &TransactionSystem, table: TableId, hint: LeafHint) {
        self.hints[table.0 as usize % HINTS].set(((system.number, table), hint));
    }

    /// Makes `table` the one whose row is changed next. Returns whether it is new to the
    /// transaction.
    #[inline]
    pub(super) fn set_table(&mut self, table: &Arc<TableState>) -> bool {
        let known = self.tables.iter().rposition(|known| Arc::ptr_eq(known, table));
        self.table = known.unwrap_or(self.tables.len()) as u32;
        if known.is_none() {
            self.tables.push(table.clone());
        }
        known.is_none()
    }

    /// Returns whether the transaction has changed rows of `table`, or tried to.
    #[inline]
    pub(super) fn has_table(&self, table: &Arc<TableState>) -> bool {
        self.tables.iter().any(|known| Arc::ptr_eq(known, table))
    }

    /// Returns whether the transaction has changed or locked the row. Looks at all changes.
    pub(super) fn has_changed(&self, table: &Arc<TableState>, key: &[u8]) -> bool {
        let Some(at) = self.tables.iter().position(|known| Arc::ptr_eq(known, table)) else { return false };
        self.changes.iter().any(|change| change.table as usize == at && self.key(change) == key)
    }

    /// Returns the change that created a version, if it is a recent one since the last savepoint
    /// and no lock.
    pub(super) fn recent_change(&mut self, version: VersionHandle) -> Option<&mut Change> {
        let recent = self.savepoint_changes.max(self.changes.len().saturating_sub(RECENT_CHANGES));
        self.changes[recent..].iter_mut().rev().find(|change| change.version == version && !change.lock)
    }

    /// Removes a large value that the transaction itself had written from the list, after an entry
    /// dropped its reference.
    pub(super) fn take_own_value(&mut self, reference: &LargeReference) -> Option<OwnValue> {
        let at = self.values.iter().rposition(|value| value.reference == *reference)?;
        // Values from before the last savepoint are not overwritten in place, so their order stays.
        Some(self.values.remove(at))
    }

    /// Counts that a change of a key of `key_len` bytes is a deletion now, or is none any more.
    pub(super) fn count_deletion(
        &mut self,
        system: &TransactionSystem,
        key_len: usize,
        before: bool,
        after: bool,
    ) {
        let bytes = Delete::bytes_for(key_len);
        match (before, after) {
            (false, true) => {
                system.versions.slots.add_bytes(bytes);
                self.deletions += bytes;
            }
            (true, false) => {
                system.versions.slots.subtract_bytes(bytes);
                self.deletions -= bytes;
            }
            _ => {}
        }
    }

    /// Passes the versions, deletions and replaced values of a committed transaction to the
    /// collectors. Returns whether the shard is worth collecting.
    pub(super) fn queue_garbage(&mut self, system: &TransactionSystem, shard: usize, csn: Csn) -> bool {
        let deletes = self.changes.iter().filter(|change| change.deleted).map(|change| Delete {
            version: change.version,
            table: self.tables[change.table as usize].clone(),
            key: self.key(change).into(),
        });
        if !self.replaced.is_empty() {
            system.large_values.defer_frees(self.replaced.iter().map(|replaced| DeferredFree {
                created: replaced.created,
                removed: csn,
                reference: replaced.reference,
            }));
        }
        let owners = self.values.iter().map(|value| value.owner);
        let versions = self.changes.iter().map(|change| change.version).chain(owners);
        let worth_collecting = system.versions.garbage.push(shard, csn, versions, deletes);
        // The collector subtracts them.
        self.deletions = 0;
        worth_collecting
    }

    /// Charges what `more` bytes of redo, or of a key without redo, need beyond what is charged
    /// already.
    ///
    /// # Errors
    /// `OutOfMemory` at the bound of all transactions together.
    #[inline]
    pub(super) fn charge(&mut self, system: &TransactionSystem, more: usize) -> Result<()> {
        let bytes = (self.redo.unwritten_len() + more + self.list_bytes()) as u64;
        match &self.charge {
            None if bytes <= KEEP_BYTES as u64 => Ok(()),
            Some(charge) if bytes <= charge.bytes() => Ok(()),
            _ => system.write_sets.raise(
                &mut self.charge,
                &system.pool,
                bytes.next_multiple_of(KEEP_BYTES as u64),
            ),
        }
    }
}
