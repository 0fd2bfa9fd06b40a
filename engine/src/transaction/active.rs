//! An active transaction: begin, commit, abort.

use super::catalog::TableState;
use super::clocks::TransactionClock;
use super::counters::LOG_INSERTS_TIMED_ONE_IN;
use super::descriptor::{DescriptorId, Descriptors, Progress, Stamp};
use super::garbage::{Delete, ToCollect, purge};
use super::large::{OwnValue, Replaced};
use super::retired::Retired;
use super::system::TransactionSystem;
use super::versions::{Before, Undo, VersionHandle};
use super::view::View;
use crate::base::clock::Nanos;
use crate::base::planted::{self, Bug};
use crate::base::settings::Durability;
use crate::base::{Charge, Csn, Error, ErrorKind, Location, Result, TableId, allocation_failure};
use crate::buffer::EmergencyReserve;
use crate::commit::{Chunks, Pending, Predecessors, Record, Ticket};
use crate::log::RedoBuffer;
use crate::sync::atomic::Ordering;
use crate::sync::epoch::pin;
use crate::tree::{EntryMeta, LeafHint, LeafWrite};
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// What a transaction sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub enum Isolation {
    /// Everything as of the beginning; a row changed since then is a conflict when written.
    #[default]
    Snapshot,
    /// Each statement sees the newest committed values. That a row has changed since is no conflict; a writer waits for a row that another has
    /// changed, and gets `Conflict` only after `lock_wait`, or in a cycle of waits.
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
    /// The entry is one of a deleted key, which this transaction deleted or only locked.
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
    /// Large values written, oldest first.
    pub(super) values: Vec<OwnValue>,
    /// Large values that changes replaced, in the order of the changes.
    pub(super) replaced: Vec<Replaced>,
    pub(super) tables: Vec<Arc<TableState>>,
    /// Bytes that its deletions count as versions ([`Delete::bytes_for`]).
    pub(super) deletions: u64,
    /// The leaf of the last write, and the table whose leaf it is: the system's number, and the table's. Those are never used again, as
    /// pages are: by another database, and by another table, perhaps before all pages of a dropped one are free.
    pub(super) hint: ((u64, TableId), LeafHint),
    /// The savepoints that can be rolled back to, oldest first.
    pub(super) savepoints: Vec<u64>,
    /// What these buffers take of the memory of the transaction's database, once that is much.
    charge: Option<WriteSetCharge>,
}

/// What a large transaction takes besides pages and versions.
#[derive(Debug)]
struct WriteSetCharge {
    /// Of `memory_bytes`: twice, since a buffer that grows is there twice for a moment, and so is a record that is committed.
    memory: Charge,
    /// Of what all transactions may have.
    share: Charge,
}

thread_local! {
    static SCRATCH: RefCell<Option<Box<Scratch>>> = const { RefCell::new(None) };
}

/// Buffers above this are not kept for the next transaction, and are charged, in steps of as much.
const KEEP_BYTES: usize = 64 << 10;
/// All transactions' buffers together take at most this part of all memory, as far as they are charged.
const WRITE_SETS_PART: u64 = 4;

impl Scratch {
    fn take() -> Box<Scratch> {
        SCRATCH.try_with(|cell| cell.borrow_mut().take()).ok().flatten().unwrap_or_default()
    }

    /// Bytes allocated besides the redo.
    fn list_bytes(&self) -> usize {
        let values =
            self.values.capacity() * size_of::<OwnValue>() + self.replaced.capacity() * size_of::<Replaced>();
        let savepoints = self.savepoints.capacity() * size_of::<u64>();
        self.keys.capacity() + self.changes.capacity() * size_of::<Change>() + values + savepoints
    }

    fn put_back(mut self: Box<Self>) {
        self.charge = None;
        if self.redo.capacity() > KEEP_BYTES || self.list_bytes() > KEEP_BYTES {
            return;
        }
        self.redo.clear();
        self.changes.clear();
        self.keys.clear();
        self.values.clear();
        self.replaced.clear();
        self.tables.clear();
        self.savepoints.clear();
        let _ = SCRATCH.try_with(|cell| *cell.borrow_mut() = Some(self));
    }
}

/// How a transaction ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// It wrote: its record is in a log buffer. Whoever waits for the record does so first, and collects then.
    Written(Ticket, Pending, ToCollect),
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
    /// Of them, those that were not committed when they were met.
    predecessors: Cell<Predecessors>,
    pub(super) scratch: Box<Scratch>,
    /// Tables used, by reads too, counted once each.
    pub(super) used: RefCell<Vec<Arc<TableState>>>,
    /// Changes below this index belong to an earlier savepoint: they are not overwritten in place.
    pub(super) savepoint_changes: usize,
    /// Serial of the newest savepoint.
    pub(super) last_savepoint: u64,
    begun: Nanos,
    durability: Durability,
    /// What is in the log already of one whose redo is long.
    pub(super) chunks: Option<Box<Chunks>>,
    /// Where the dependency rule goes by clocks.
    pub(super) clock: Option<TransactionClock>,
    /// Why it can only abort: a rollback to a savepoint failed half-way.
    pub(super) broken: Option<Error>,
    open: bool,
    /// Inside a call; true for good after one that panicked.
    pub(super) inside: Cell<bool>,
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
        system.slow_down();
        let id = system.descriptors.take()?;
        let snapshot = system.descriptors.pin(id, || system.commit().newest_drawn());
        system.in_progress.fetch_add(1, Ordering::Relaxed);
        Ok(ActiveTransaction {
            own: system.descriptors.stamp(id),
            id,
            isolation,
            snapshot: Cell::new(snapshot),
            dsn: Cell::new(Csn::ZERO),
            predecessors: Cell::default(),
            scratch: Scratch::take(),
            used: RefCell::new(Vec::new()),
            savepoint_changes: 0,
            last_savepoint: 0,
            begun: system.clock.now(),
            durability,
            chunks: None,
            clock: system.commit().goes_by_clocks().then(|| TransactionClock::new(system.log_of_thread())),
            broken: None,
            open: true,
            inside: Cell::new(false),
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
        if planted::is(Bug::DependencySkipped) && csn.0.is_multiple_of(4) {
            return;
        }
        self.dsn.set(self.dsn.get().max(csn));
        if self.system.commit().may_be_waited_for(csn) {
            let mut predecessors = self.predecessors.get();
            if predecessors.is_full() {
                let commit = self.system.commit();
                predecessors.retain(|csn| commit.may_be_waited_for(csn));
            }
            if self.met_version(csn) {
                predecessors.add(csn);
            } else {
                predecessors.overflow();
            }
            self.predecessors.set(predecessors);
        }
    }

    /// Counts the table as used, once.
    pub(super) fn touch(&self, table: &Arc<TableState>) -> Result<()> {
        let mut used = self.used.borrow_mut();
        if used.iter().any(|known| Arc::ptr_eq(known, table)) {
            return Ok(());
        }
        self.system.begin_use(table, |dropped| {
            self.depend_on(dropped);
            Ok(())
        })?;
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
        let (found, csn, leaf) = self.system.read(&table.tree, key, self.view(), value)?;
        self.met_leaf(leaf);
        self.depend_on(csn);
        Ok(found)
    }

    /// Has the leaves of `keys` brought into memory.
    ///
    /// # Errors
    /// `NotFound` (dropped table), I/O, `Corruption`.
    pub fn prefetch<'k>(&self, table: &Arc<TableState>, keys: impl Iterator<Item = &'k [u8]>) -> Result<()> {
        self.touch(table)?;
        table.tree.prefetch(keys)
    }

    /// Restores the entries of all changes from `first` on, newest first, and frees large values but the first `values`. After a
    /// failure the changes that were not restored are still there, and all values.
    pub(super) fn take_back(&mut self, first: usize, values: usize) -> Result<()> {
        // It may be this transaction's changes that leave no memory for the way to them.
        let _reserve = EmergencyReserve::begin();
        let mut guard = pin();
        while self.scratch.changes.len() > first {
            // Nothing that was looked at is used again, and a long way back would keep what everybody gives back from being freed.
            guard.repin();
            let change = self.scratch.changes.last().expect("longer than `first`");
            let (handle, keys_len) = (change.version, change.key.0 as usize);
            let restored = self.restore(change, &guard)?;
            debug_assert!(restored, "nobody else changes an entry in progress");
            let deleted = change.deleted;
            self.give_up_version(handle, &guard);
            self.count_deletion(self.scratch.keys.len() - keys_len, deleted, false);
            self.scratch.changes.pop();
            self.scratch.keys.truncate(keys_len);
        }
        let kept = self.scratch.replaced.partition_point(|replaced| replaced.change < first);
        self.scratch.replaced.truncate(kept);
        self.give_up_values(values);
        Ok(())
    }

    /// Readers that still find the version look at the page again.
    pub(super) fn give_up_version(&self, version: VersionHandle, guard: &crate::sync::epoch::Guard) {
        self.system.versions.set_stamp(version, Stamp::ABORTED);
        self.system.versions.give_back_later(Descriptors::slot(self.id), version, guard);
    }

    /// Puts an entry back to what it was before `change`, unless the change is not the entry's newest.
    fn restore(&self, change: &Change, guard: &crate::sync::epoch::Guard) -> Result<bool> {
        let table = &self.scratch.tables[change.table as usize];
        let key = &self.scratch.keys[change.key.0 as usize..change.key.1 as usize];
        let Some(version) = self.system.versions.read(change.version, guard) else {
            return Err(Error::corruption("a version of an open transaction was collected")
                .at(Location::Table(table.name.clone())));
        };
        let mut hint = LeafHint::default();
        let mut leaf = table.tree.write(key, 0, &mut hint)?;
        let newest = leaf.entry().map(|entry| entry.stamp) == Some(change.version.word());
        if newest && planted::is(Bug::AbortLeavesRow) && change.key.0 == 0 {
            leaf.set_stamp(version.undo.prior);
        } else if newest {
            put_back(&mut leaf, version.undo);
            // The collector may have come for a deleted row meanwhile, and does not come again.
            let is_over = |entry: EntryMeta| entry.tombstone && self.system.versions.is_settled(entry.stamp);
            if leaf.entry().is_some_and(is_over) {
                drop(leaf);
                purge(table, key);
            }
        }
        Ok(newest)
    }

    /// Marks what cannot be taken back, so that everybody sees what was there before, and takes back the rest.
    pub(super) fn leave_behind(&mut self) {
        let _reserve = EmergencyReserve::begin();
        let mut guard = pin();
        for change in self.scratch.changes.iter().rev() {
            guard.repin();
            // Below a change that was left behind there may be an earlier one of the same row.
            match self.restore(change, &guard) {
                Ok(true) => self.give_up_version(change.version, &guard),
                Ok(false) | Err(_) => self.system.versions.set_stamp(change.version, Stamp::LEFT_BEHIND),
            }
        }
        // An entry that was left behind may refer to one of them: their pages stay until the next open, in no image.
        for value in &self.scratch.values {
            self.system.versions.set_stamp(value.owner, Stamp::LEFT_BEHIND);
        }
    }

    /// Commits as far as visibility: the caller decides whether to wait for durability.
    ///
    /// # Errors
    /// `Poisoned`, `OutOfSpace`, `OutOfMemory`, `InvalidArgument`: then the transaction is aborted, nothing was changed.
    pub fn commit(mut self, waits: bool) -> Result<Ended> {
        if self.inside.get() {
            let system = self.system.clone();
            drop(self);
            return Err(system.check_whole().expect_err("a call has panicked, and dropping says so"));
        }
        if let Some(error) = self.broken.take() {
            return Err(error);
        }
        if self.scratch.changes.iter().all(|change| change.lock) {
            return self.commit_without_changes();
        }
        let system = self.system.clone();
        let commit = system.commit();
        let mut predecessors = self.predecessors.get();
        if !predecessors.is_empty() {
            predecessors.retain(|csn| commit.may_be_waited_for(csn));
        }
        let mut divided = self.scratch.redo.divide()?;
        let log = self.log_if_whole();
        let (gsn, alone) = self.clock_now(divided.is_none().then_some(log));
        let pending = Pending {
            dsn: self.dsn.get(),
            predecessors,
            alone,
            durability: self.durability,
            begun: self.begun,
            ready: system.clock.now(),
            waits,
        };
        if let Some(predecessors) = commit.to_list(&pending) {
            match &mut divided {
                None => self.scratch.redo.list_predecessors(predecessors),
                Some(fragments) => fragments.list_predecessors(predecessors),
            }
        }
        let id = self.id;
        if planted::is(Bug::StampedBeforeRecord) {
            system.descriptors.set_ready(id, commit.newest_drawn());
        }
        let ticket = match (&self.chunks, &divided) {
            (_, Some(fragments)) => self.precommit_fragments(fragments, gsn, pending)?,
            (None, None) => {
                let record = Record { gsn, ..TransactionSystem::record_of(&self.scratch.redo) };
                let preparing = || system.descriptors.set_preparing(id);
                commit.precommit(log, record, pending, preparing)?
            }
            (Some(chunks), None) => {
                self.scratch.redo.seal_part();
                let record = Record { gsn, ..TransactionSystem::record_of(&self.scratch.redo) };
                commit.precommit_last(chunks, record, pending, || system.descriptors.set_preparing(id))?
            }
        };
        // From here on nothing can fail (invariant I2).
        self.raise_changed(ticket);
        system.descriptors.set_ready(id, ticket.csn);
        if ticket.csn.0.is_multiple_of(LOG_INSERTS_TIMED_ONE_IN) {
            let counters = system.counters();
            counters.log_inserts_timed.add(1);
            counters.log_insert_ns.add(system.clock.now().0.saturating_sub(pending.ready.0));
        }
        let stamp = Stamp::committed(ticket.csn);
        for change in &self.scratch.changes {
            system.versions.set_stamp(change.version, stamp);
        }
        for value in &self.scratch.values {
            system.versions.set_stamp(value.owner, stamp);
        }
        super::snapshot::remember_commit(&system, ticket.csn);
        let shard = Descriptors::slot(id);
        let worth_collecting = self.hand_over_garbage(shard, ticket.csn);
        let retired = !self.scratch.replaced.is_empty();
        self.end();
        let to_collect = match (worth_collecting, retired) {
            (true, _) => ToCollect::Shard(shard),
            (false, true) => ToCollect::Retired,
            (false, false) => ToCollect::Nothing,
        };
        Ok(Ended::Written(ticket, pending, to_collect))
    }

    fn hand_over_garbage(&mut self, shard: usize, csn: Csn) -> bool {
        let scratch = &*self.scratch;
        let deletes = scratch.changes.iter().filter(|change| change.deleted).map(|change| {
            let key = &scratch.keys[change.key.0 as usize..change.key.1 as usize];
            Delete {
                version: change.version,
                table: scratch.tables[change.table as usize].clone(),
                key: key.into(),
            }
        });
        if !scratch.replaced.is_empty() {
            self.system.retired.retire(scratch.replaced.iter().map(|replaced| Retired {
                birth: replaced.birth,
                death: csn,
                reference: replaced.reference,
            }));
        }
        let owners = scratch.values.iter().map(|value| value.owner);
        let versions = scratch.changes.iter().map(|change| change.version).chain(owners);
        let worth_collecting = self.system.garbage.push(shard, csn, versions, deletes);
        // They are the collector's.
        self.scratch.deletions = 0;
        worth_collecting
    }

    /// A change of a key of `key_len` bytes becomes one that deleted, or is none any more.
    pub(super) fn count_deletion(&mut self, key_len: usize, before: bool, after: bool) {
        let bytes = Delete::bytes_for(key_len);
        match (before, after) {
            (false, true) => {
                self.system.versions.keep(bytes);
                self.scratch.deletions += bytes;
            }
            (true, false) => {
                self.system.versions.keep_no_more(bytes);
                self.scratch.deletions -= bytes;
            }
            _ => {}
        }
    }

    fn commit_without_changes(mut self) -> Result<Ended> {
        self.take_back(0, 0)?;
        let ready = self.system.clock.now();
        let pending = Pending {
            dsn: self.dsn.get(),
            predecessors: self.predecessors.get(),
            alone: false,
            durability: self.durability,
            begun: self.begun,
            ready,
            waits: true,
        };
        self.end();
        Ok(Ended::ReadOnly(pending))
    }

    /// Takes everything back.
    pub fn abort(self) {
        drop(self);
    }

    pub(super) fn abort_open(&mut self) {
        // Not begun again, if it is interrupted.
        self.inside.set(true);
        self.system.counters().aborted.add(1);
        if let Err(error) = self.take_back(0, 0) {
            // A page that was evicted since cannot be read.
            tracing::error!(%error, "a change could not be taken back; nobody sees it");
            self.leave_behind();
        }
        self.inside.set(false);
        self.end();
    }

    /// Frees the descriptor and everything that was held.
    pub(super) fn end(&mut self) {
        self.open = false;
        self.system.in_progress.fetch_sub(1, Ordering::Relaxed);
        for table in self.used.get_mut().drain(..) {
            table.end_use();
        }
        if self.scratch.deletions > 0 {
            self.system.versions.keep_no_more(std::mem::take(&mut self.scratch.deletions));
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

    /// Charges what `more` bytes of redo, or of a key without, need besides what is charged already; all transactions together have a bound.
    #[inline]
    pub(super) fn check_memory(&mut self, more: usize) -> Result<()> {
        let leaves = self.clock.as_ref().map_or(0, TransactionClock::list_bytes);
        let bytes = (self.scratch.redo.unwritten_len() + more + self.scratch.list_bytes() + leaves) as u64;
        match &self.scratch.charge {
            None if bytes <= KEEP_BYTES as u64 => Ok(()),
            Some(charge) if bytes <= charge.share.bytes() => Ok(()),
            _ => self.charge(bytes.next_multiple_of(KEEP_BYTES as u64)),
        }
    }

    #[cold]
    fn charge(&mut self, bytes: u64) -> Result<()> {
        let (pool, all) = (self.system.pool(), &self.system.write_sets);
        let charge = self
            .scratch
            .charge
            .get_or_insert_with(|| WriteSetCharge { memory: pool.account().charge(0), share: all.charge(0) });
        let before = charge.share.bytes();
        charge.share.set(bytes);
        if all.bytes() > pool.frames().memory_bytes() / WRITE_SETS_PART || allocation_failure::is_injected() {
            charge.share.set(before);
            let what = format!(
                "the changes of transactions in progress would fill a quarter of the memory: `memory_bytes` is {}",
                pool.frames().memory_bytes()
            );
            return Err(Error::new(ErrorKind::OutOfMemory, what).at(Location::Setting("memory_bytes")));
        }
        charge.memory.set(2 * bytes);
        pool.memory().check_budget();
        Ok(())
    }
}

/// Makes the entry what it was before its newest change. Needs no room: entries keep theirs while unsettled.
pub(super) fn put_back(leaf: &mut LeafWrite<'_>, undo: &Undo) {
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
            return self.stay_in_progress();
        }
        if self.open {
            match self.system.descriptors.progress(self.id) {
                Progress::Active => {
                    let system = self.system.clone();
                    let _inside = system.commit().inside("a thread that took a transaction back");
                    self.abort_open();
                }
                stopped => self.end_after_panic(stopped),
            }
        }
    }
}
