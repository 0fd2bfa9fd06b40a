//! An active transaction: begin, savepoints, commit, abort.

use super::catalog::TableState;
use super::descriptor::{DescriptorId, Descriptors, Stamp};
use super::system::TransactionSystem;
use super::versions::{Before, VersionHandle};
use super::view::View;
use crate::base::clock::Nanos;
use crate::base::settings::Durability;
use crate::base::{Csn, Error, ErrorKind, Location, Result};
use crate::commit::{Pending, Ticket};
use crate::log::RedoBuffer;
use crate::sync::atomic::Ordering;
use crate::sync::epoch::pin;
use crate::tree::LeafHint;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// What a transaction sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub enum Isolation {
    /// Everything as of the beginning; a row changed since then is a conflict when written.
    #[default]
    Snapshot,
    /// Each statement sees the newest committed values; writes never conflict, they wait.
    ReadCommitted,
}

/// One change, for taking it back and for stamping.
#[derive(Debug)]
pub(super) struct Change {
    /// Index in the transaction's tables.
    pub(super) table: u32,
    /// Where the key is in the transaction's key bytes.
    pub(super) key: (u32, u32),
    pub(super) version: VersionHandle,
    pub(super) deleted: bool,
    /// Only a lock: nothing was changed.
    pub(super) lock: bool,
}

/// Buffers that go from transaction to transaction of a thread.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    pub(super) redo: RedoBuffer,
    pub(super) changes: Vec<Change>,
    pub(super) keys: Vec<u8>,
    pub(super) value: Vec<u8>,
    pub(super) tables: Vec<Arc<TableState>>,
    /// The leaf of the last write, and its table's root.
    pub(super) hint: (crate::base::PageId, LeafHint),
}

thread_local! {
    static SCRATCH: RefCell<Option<Box<Scratch>>> = const { RefCell::new(None) };
}

/// Redo buffers above this are not kept for the next transaction.
const KEEP_BYTES: usize = 1 << 20;

impl Scratch {
    fn take() -> Box<Scratch> {
        SCRATCH.try_with(|cell| cell.borrow_mut().take()).ok().flatten().unwrap_or_default()
    }

    fn put_back(mut self: Box<Self>) {
        if self.redo.capacity() > KEEP_BYTES || self.keys.capacity() > KEEP_BYTES {
            return;
        }
        self.redo.clear();
        self.changes.clear();
        self.keys.clear();
        self.tables.clear();
        let _ = SCRATCH.try_with(|cell| *cell.borrow_mut() = Some(self));
    }
}

/// A point to roll back to. Belongs to the transaction that made it.
#[derive(Clone, Copy, Debug)]
pub struct Savepoint {
    owner: DescriptorId,
    changes: usize,
    redo: crate::log::RedoMark,
}

/// How a transaction ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// It wrote: its record is in a log buffer.
    Written(Ticket, Pending),
    /// It wrote nothing; what it read is its DSN.
    ReadOnly(Pending),
}

/// A transaction in progress. Dropping it aborts it.
#[derive(Debug)]
pub struct ActiveTransaction {
    pub(super) system: Arc<TransactionSystem>,
    pub(super) id: DescriptorId,
    pub(super) own: Stamp,
    pub(super) isolation: Isolation,
    pub(super) snapshot: Cell<Csn>,
    /// Highest CSN among the direct predecessors.
    pub(super) dsn: Cell<Csn>,
    pub(super) scratch: Box<Scratch>,
    /// Tables used, by reads too, counted once each.
    pub(super) used: RefCell<Vec<Arc<TableState>>>,
    /// Changes below this index belong to an earlier savepoint: they are not overwritten in place.
    pub(super) savepoint_changes: usize,
    begun: Nanos,
    durability: Durability,
    open: bool,
}

impl ActiveTransaction {
    /// Begins a transaction that sees everything pre-committed so far.
    ///
    /// # Errors
    /// `Busy` at the limit of open transactions.
    pub fn begin(
        system: &Arc<TransactionSystem>,
        isolation: Isolation,
        durability: Durability,
    ) -> Result<ActiveTransaction> {
        let id = system.descriptors.take()?;
        let snapshot = system.descriptors.pin(id, || system.commit().newest_drawn());
        system.in_progress.fetch_add(1, Ordering::Relaxed);
        Ok(ActiveTransaction {
            own: system.descriptors.stamp(id),
            id,
            isolation,
            snapshot: Cell::new(snapshot),
            dsn: Cell::new(Csn::ZERO),
            scratch: Scratch::take(),
            used: RefCell::new(Vec::new()),
            savepoint_changes: 0,
            begun: system.clock.now(),
            durability,
            open: true,
            system: system.clone(),
        })
    }

    pub(super) fn view(&self) -> View {
        if self.isolation == Isolation::ReadCommitted {
            let newest = self.system.descriptors.pin(self.id, || self.system.commit().newest_drawn());
            self.snapshot.set(newest);
        }
        View { snapshot: self.snapshot.get(), own: self.own }
    }

    pub(super) fn depend_on(&self, csn: Csn) {
        self.dsn.set(self.dsn.get().max(csn));
    }

    /// Counts the table as used, once.
    pub(super) fn touch(&self, table: &Arc<TableState>) -> Result<()> {
        let mut used = self.used.borrow_mut();
        if used.iter().any(|known| Arc::ptr_eq(known, table)) {
            return Ok(());
        }
        self.system.begin_use(table)?;
        self.depend_on(table.create_csn());
        used.push(table.clone());
        Ok(())
    }

    /// Reads `key`; true if it is there, with its value in `value`.
    ///
    /// # Errors
    /// `InvalidArgument`, `NotFound` (dropped table), I/O, `Corruption`.
    pub fn get(&self, table: &Arc<TableState>, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.system.check_key(table, key)?;
        self.touch(table)?;
        let (found, csn) = self.system.read(&table.tree, key, self.view(), value)?;
        self.depend_on(csn);
        Ok(found)
    }

    /// A point to roll back to.
    pub fn savepoint(&mut self) -> Savepoint {
        self.savepoint_changes = self.scratch.changes.len();
        Savepoint { owner: self.id, changes: self.scratch.changes.len(), redo: self.scratch.redo.mark() }
    }

    /// Takes back everything since `savepoint`. What was read since stays a dependency.
    ///
    /// # Errors
    /// `InvalidArgument` for a savepoint of another transaction or one that was rolled over.
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()> {
        if savepoint.owner != self.id || savepoint.changes > self.scratch.changes.len() {
            return Err(Error::invalid("the savepoint does not belong to this state of this transaction"));
        }
        self.take_back(savepoint.changes)?;
        self.scratch.redo.truncate(savepoint.redo);
        self.savepoint_changes = savepoint.changes;
        Ok(())
    }

    /// Restores the entries of all changes from `first` on, newest first.
    fn take_back(&mut self, first: usize) -> Result<()> {
        let guard = pin();
        let shard = Descriptors::slot(self.id);
        while self.scratch.changes.len() > first {
            let change = self.scratch.changes.pop().expect("longer than `first`");
            self.restore(&change, &guard)?;
            self.system.versions.set_stamp(change.version, Stamp::ABORTED);
            self.system.versions.give_back_later(shard, change.version, &guard);
            self.scratch.keys.truncate(change.key.0 as usize);
        }
        Ok(())
    }

    /// Puts an entry back to what it was before `change`. Needs no room: entries keep theirs while unsettled.
    fn restore(&mut self, change: &Change, guard: &crate::sync::epoch::Guard) -> Result<()> {
        let scratch = &mut *self.scratch;
        let table = &scratch.tables[change.table as usize];
        let key = &scratch.keys[change.key.0 as usize..change.key.1 as usize];
        let Some(version) = self.system.versions.read(change.version, guard) else {
            return Err(Error::corruption("a version of an open transaction was collected")
                .at(Location::Table(table.name.clone())));
        };
        let mut hint = LeafHint::default();
        let mut leaf = table.tree.write(key, 0, &mut hint)?;
        debug_assert_eq!(leaf.entry().map(|e| e.stamp), Some(change.version.word()));
        match &version.undo.before {
            Before::Absent => leaf.remove(),
            Before::Tombstone => leaf.put(version.undo.prior, true, &[]),
            Before::Value(value) => leaf.put(version.undo.prior, false, value),
            Before::Unchanged => leaf.set_stamp(version.undo.prior),
        }
        Ok(())
    }

    /// Commits as far as visibility: the caller decides whether to wait for durability.
    ///
    /// # Errors
    /// `Poisoned`, `OutOfSpace`, `Timeout`: then the transaction is aborted, nothing was changed.
    pub fn commit(mut self, waits: bool) -> Result<Ended> {
        if self.scratch.changes.iter().all(|change| change.lock) {
            return self.commit_without_changes();
        }
        let system = self.system.clone();
        let pending = Pending {
            dsn: self.dsn.get(),
            durability: self.durability,
            begun: self.begun,
            ready: system.clock.now(),
            waits,
        };
        let commit = system.commit();
        let id = self.id;
        let record = TransactionSystem::record_of(&self.scratch.redo);
        let ticket = commit.precommit(system.log_of_thread(), record, pending, || {
            system.descriptors.set_preparing(id);
        })?;
        // From here on nothing can fail (invariant I2).
        system.descriptors.set_ready(id, ticket.csn);
        let stamp = Stamp::committed(ticket.csn);
        for change in &self.scratch.changes {
            system.versions.set_stamp(change.version, stamp);
        }
        super::snapshot::remember_commit(&system, ticket.csn);
        let shard = Descriptors::slot(id);
        let worth_collecting = self.hand_over_garbage(shard, ticket.csn);
        self.end();
        if worth_collecting {
            system.collect(shard);
        }
        Ok(Ended::Written(ticket, pending))
    }

    fn hand_over_garbage(&mut self, shard: usize, csn: Csn) -> bool {
        let scratch = &*self.scratch;
        let deletes = scratch.changes.iter().filter(|change| change.deleted).map(|change| {
            let key = &scratch.keys[change.key.0 as usize..change.key.1 as usize];
            (scratch.tables[change.table as usize].clone(), key.into())
        });
        let versions = scratch.changes.iter().map(|change| change.version);
        self.system.garbage.push(shard, csn, versions, deletes)
    }

    fn commit_without_changes(mut self) -> Result<Ended> {
        self.take_back(0)?;
        let ready = self.system.clock.now();
        let pending = Pending {
            dsn: self.dsn.get(),
            durability: self.durability,
            begun: self.begun,
            ready,
            waits: true,
        };
        self.end();
        Ok(Ended::ReadOnly(pending))
    }

    /// Takes everything back.
    pub fn abort(mut self) {
        self.abort_open();
    }

    fn abort_open(&mut self) {
        self.system.counters().aborted.add(1);
        if let Err(error) = self.take_back(0) {
            // Pages of changed entries are resident and latched reads of them do not fail; if one does, the entry keeps
            // a stamp of a transaction that never commits, which nobody ever sees as committed.
            tracing::error!(%error, "a change could not be taken back in memory; it will never become visible");
        }
        self.end();
    }

    /// Frees the descriptor and everything that was held.
    fn end(&mut self) {
        self.open = false;
        self.system.in_progress.fetch_sub(1, Ordering::Relaxed);
        for table in self.used.get_mut().drain(..) {
            table.end_use();
        }
        std::mem::take(&mut self.scratch).put_back();
        self.system.descriptors.release(self.id);
    }

    /// When the transaction began.
    #[must_use]
    pub fn begun(&self) -> Nanos {
        self.begun
    }

    /// The level it commits with.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// The shared state.
    #[must_use]
    pub fn system(&self) -> &Arc<TransactionSystem> {
        &self.system
    }

    /// Redo bytes so far; a transaction has a bound.
    pub(super) fn check_size(&self, more: usize) -> Result<()> {
        let max = self.system.limits.transaction_bytes_max;
        let size = self.scratch.redo.len() + more;
        if size <= max {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::OutOfMemory,
            format!("the transaction would log {size} bytes, more than transaction_bytes_max = {max}"),
        ))
    }
}

impl Drop for ActiveTransaction {
    fn drop(&mut self) {
        if self.open {
            self.abort_open();
        }
    }
}
