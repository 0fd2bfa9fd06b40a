//! A transaction in progress: begin, reads, and the guard around each call.
//!
//! # Panics
//! 1. A panic of the user's code, between two calls or in code that the engine calls, drops the
//!    transaction, which takes it back.
//! 2. A panic inside a call is a bug of the engine, or of a device of the user. The call is half
//!    done, in an unknown way. The database is poisoned: nothing is acknowledged or written to a
//!    checkpoint any more, and waiters get the error. The transaction is not taken back, because
//!    its changes are not known. It stays in progress, so that others see the values before it,
//!    also if the caller catches the panic and commits or aborts. The next open finds what was
//!    durable.
//! 3. The same holds for a panic between the draw of the CSN and the end of the commit: the record
//!    may be durable, so the outcome is unknown.

use super::catalog::{TableState, TableUse};
use super::committed::USER;
use super::dependencies::Dependencies;
use super::descriptor::{DescriptorId, Stamp};
use super::locks::{Interval, LockMode};
use super::options::{Interrupt, Isolation, Locking, ReadMode, TransactionOptions};
use super::range::{Observed, RangeCursor};
use super::snapshot::{OpenValue, Pinned, open_value};
use super::system::TransactionSystem;
use super::view::{View, Visibility};
use super::write_set::Writes;
use crate::base::clock::Nanos;
use crate::base::planted::{self, Bug};
use crate::base::{Csn, Error, Result};
use crate::commit::Chunks;
use crate::sync::atomic::Ordering;
use crate::sync::epoch::pin;
use crate::tree::Held;
use std::cell::Cell;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// The snapshot of a transaction that has none (yet): everything is visible.
pub(super) const NO_SNAPSHOT: Csn = Csn(u64::MAX >> 2);

/// A transaction in progress. Dropping it aborts it.
#[derive(Debug)]
pub struct ActiveTransaction {
    pub(super) system: Arc<TransactionSystem>,
    pub(super) id: DescriptorId,
    pub(super) own: Stamp,
    pub(super) options: TransactionOptions,
    pub(super) snapshot: Cell<Csn>,
    pub(super) dependencies: Dependencies,
    pub(super) writes: Writes,
    pub(super) begun: Nanos,
    /// The part of a long redo that is in the log already.
    pub(super) chunks: Option<Box<Chunks>>,
    /// Why the transaction can only abort: a rollback to a savepoint failed half-way, or a change
    /// of a row and its index entries.
    pub(super) broken: Option<Error>,
    pub(super) open: bool,
    /// When a pessimistic transaction got its first lock or changed its first row.
    pub(super) locked_since: Cell<Option<Nanos>>,
    /// Inside a call; stays true after a call that panicked.
    pub(super) inside: Cell<bool>,
    /// Ends waits for rows and locks.
    pub(super) interrupt: Option<Interrupt>,
}

impl ActiveTransaction {
    /// Begins a transaction that sees everything pre-committed so far.
    ///
    /// # Errors
    /// `Busy` at the limit of open transactions.
    pub fn begin(
        system: &Arc<TransactionSystem>,
        options: TransactionOptions,
    ) -> Result<Box<ActiveTransaction>> {
        let begun = system.clock.now();
        let durability = system.commit().waits().effective_level(options.durability);
        let options = TransactionOptions { durability, ..options };
        system.versions.throttle();
        let id = system.descriptors.take()?;
        // Locking reads have no snapshot. That of a pessimistic transaction is taken when it is
        // needed, so that it contains the rows that were locked before.
        let snapshot = match options.locking {
            Locking::Optimistic => system.descriptors.pin(id, || system.commit().progress().newest_drawn()),
            Locking::Pessimistic => NO_SNAPSHOT,
        };
        system.in_progress.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(ActiveTransaction {
            own: system.descriptors.stamp(id),
            id,
            options,
            snapshot: Cell::new(snapshot),
            dependencies: Dependencies::new(system),
            writes: Writes::take(),
            begun,
            chunks: None,
            broken: None,
            open: true,
            locked_since: Cell::new(None),
            inside: Cell::new(false),
            interrupt: None,
            system: system.clone(),
        }))
    }

    /// Returns the shared state.
    #[must_use]
    pub fn system(&self) -> &Arc<TransactionSystem> {
        &self.system
    }

    /// Sets what may end waits for rows and locks from now on.
    pub fn interrupt_with(&mut self, interrupt: Interrupt) {
        self.interrupt = Some(interrupt);
    }

    /// Returns the view of the next read, and takes the snapshot if it is needed now.
    pub(super) fn view(&self) -> View {
        let is_due = match self.options.isolation {
            Isolation::ReadCommitted => true,
            Isolation::Snapshot => self.snapshot.get() == NO_SNAPSHOT,
            Isolation::Serializable => false,
        };
        if is_due {
            let newest =
                self.system.descriptors.pin(self.id, || self.system.commit().progress().newest_drawn());
            debug_assert!(
                self.snapshot.get() == NO_SNAPSHOT || self.snapshot.get() <= newest,
                "the snapshot of a statement is not older than the last one's"
            );
            self.snapshot.set(newest);
        }
        View { snapshot: self.snapshot.get(), own: self.own }
    }

    #[inline]
    pub(super) fn read_mode(&self) -> ReadMode {
        self.options.read_mode()
    }

    pub(super) fn depend_on(&self, csn: Csn) {
        self.dependencies.add(&self.system, csn);
    }

    /// Counts the transaction as a user of the table, once. Returns the index of the use.
    pub(super) fn touch(&self, table: &Arc<TableState>) -> Result<usize> {
        let mut used = self.writes.used.borrow_mut();
        if let Some(known) = used.iter().position(|known| known.is_of(table)) {
            return Ok(known);
        }
        self.system.begin_use(table, |dropped| {
            self.depend_on(dropped);
            Ok(())
        })?;
        self.depend_on(table.create_csn());
        debug_assert!(self.open, "only an open transaction uses tables");
        used.push(TableUse::new(table));
        Ok(used.len() - 1)
    }

    /// As [`ActiveTransaction::touch`]. Counts a row that is read by its key.
    pub(super) fn touch_to_read(&self, table: &Arc<TableState>) -> Result<()> {
        let known = self.touch(table)?;
        self.writes.used.borrow_mut()[known].rows_read += 1;
        Ok(())
    }

    /// Reads `key` into `value`. Returns whether the key exists.
    ///
    /// # Errors
    /// `InvalidArgument`, `NotFound` (dropped table), I/O, `Corruption`.
    pub fn get(&self, table: &Arc<TableState>, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.system.check_key(table, key)?;
        self.touch_to_read(table)?;
        match self.read_mode() {
            ReadMode::Plain => {}
            ReadMode::Remember => return self.get_remembered(table, key, value),
            ReadMode::Lock => return self.get_locked(table, key, LockMode::Shared, value),
        }
        self.get_seen(table, key, value)
    }

    /// Reads `key` as the view sees it.
    #[inline]
    pub(super) fn get_seen(&self, table: &Arc<TableState>, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let (found, csn, leaf) = self.system.read(&table.tree, key, self.view(), value)?;
        self.writes.set_hint(&self.system, table.id, leaf.into());
        self.dependencies.observe_leaf(&self.system, leaf.page);
        self.depend_on(csn);
        Ok(found)
    }

    fn get_remembered(&self, table: &Arc<TableState>, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let (system, view) = (&self.system, self.view());
        let guard = pin();
        let (leaf, entry) = table.tree.lookup_in_leaf(key, value)?;
        let newest = match entry {
            None => Some((false, Csn::ZERO)),
            Some(entry) => {
                let (visibility, version) =
                    view.visibility(entry.stamp, &system.versions.slots, &system.descriptors, &guard);
                match visibility {
                    // The leaf of an own change is not what others see.
                    _ if version.is_some_and(|version| version.stamp == self.own) => None,
                    Visibility::Visible(csn) if entry.held() != Held::Reference => {
                        Some((entry.held() == Held::Value, csn))
                    }
                    _ => None,
                }
            }
        };
        drop(guard);
        let (found, leaf) = match newest {
            Some((found, csn)) => {
                self.dependencies.observe_leaf(system, leaf.page);
                self.depend_on(csn);
                if !found {
                    value.clear();
                }
                (found, Some(leaf))
            }
            None => (self.get_seen(table, key, value)?, None),
        };
        if found || !planted::is(Bug::AbsentKeyForgotten) {
            self.writes.reads.borrow_mut().add_key(table, key, leaf);
        }
        Ok(found)
    }

    /// Opens the value of `key` to be read piece by piece.
    ///
    /// # Errors
    /// As [`ActiveTransaction::get`]; `Busy` at the limit of open transactions.
    pub fn open_value(&self, table: &Arc<TableState>, key: &[u8]) -> Result<Option<OpenValue>> {
        self.system.check_key(table, key)?;
        self.touch_to_read(table)?;
        if self.read_mode() == ReadMode::Lock {
            // The lock keeps the value: nothing replaces it before the lock ends.
            let mut value = Vec::new();
            let held = self.get_entry_locked(table, key, LockMode::Shared, &mut value)?;
            return OpenValue::of_entry(&self.system, held, value);
        }
        let (mut open, csn) = open_value(&self.system, table, key, self.view())?;
        self.depend_on(csn);
        if self.read_mode() == ReadMode::Remember {
            self.remember_key(table, key);
        }
        if let (Some(OpenValue::Large(value)), Isolation::ReadCommitted) = (&mut open, self.options.isolation)
        {
            // The transaction's own pin moves with its next statement.
            value.pin = Some(Pinned::like(&self.system, self.id)?);
        }
        Ok(open)
    }

    /// Brings the leaves of `keys` into memory.
    ///
    /// # Errors
    /// `NotFound` (dropped table), I/O, `Corruption`.
    pub fn prefetch<'k>(&self, table: &Arc<TableState>, keys: impl Iterator<Item = &'k [u8]>) -> Result<()> {
        self.touch(table)?;
        table.tree.prefetch(keys)
    }

    /// Moves a cursor to its next row, with `back` from the upper end. Returns false at the end.
    /// What the cursor observes becomes a dependency.
    ///
    /// # Errors
    /// I/O, `Corruption`, `NotFound` (dropped table).
    pub fn step(&self, cursor: &mut RangeCursor, back: bool) -> Result<bool> {
        let known = self.touch(cursor.table())?;
        let is_row = match self.read_mode() {
            ReadMode::Plain => self.step_seen(cursor, back),
            ReadMode::Remember => self.step_remembered(cursor, back),
            ReadMode::Lock => self.step_locked(cursor, back),
        }?;
        self.writes.used.borrow_mut()[known].rows_read += u64::from(is_row);
        Ok(is_row)
    }

    fn step_seen(&self, cursor: &mut RangeCursor, back: bool) -> Result<bool> {
        let view = self.view();
        let mut observe = |observed| {
            self.observe(observed);
            Ok(())
        };
        let stepped = cursor.step(&self.system, view, &mut observe, back);
        self.note_dead_range(cursor);
        stepped
    }

    /// Remembers that the transaction owns a dead range of the cursor's table.
    pub(super) fn note_dead_range(&self, cursor: &RangeCursor) {
        if cursor.owns_dead_range() {
            self.writes.dead_ranges.borrow_mut().add(cursor.table());
        }
    }

    pub(super) fn observe(&self, observed: Observed) {
        match observed {
            Observed::Version(csn) => self.depend_on(csn),
            Observed::DeadRange(csn) => self.dependencies.add_up_to(&self.system, csn),
            Observed::Leaf(page) => self.dependencies.observe_leaf(&self.system, page),
        }
    }

    /// Moves a cursor, and remembers the interval up to the row that the caller gets.
    fn step_remembered(&self, cursor: &mut RangeCursor, back: bool) -> Result<bool> {
        let from = cursor.remembered(back).is_none().then(|| cursor.bound(back).map(<[u8]>::to_vec));
        let is_row = self.step_seen(cursor, back)?;
        if planted::is(Bug::RangeForgotten) {
            if is_row {
                self.remember_key(cursor.table(), cursor.row(back).0);
            }
            return Ok(is_row);
        }
        let mut reads = self.writes.reads.borrow_mut();
        let reached = if is_row { Bound::Included(cursor.row(back).0) } else { cursor.bound(!back) };
        match (cursor.remembered(back), from) {
            (Some(at), _) => reads.extend_interval(at, back, reached),
            (None, from) => {
                let (from, to) = (from.unwrap_or(Bound::Unbounded), reached.map(<[u8]>::to_vec));
                let interval = if back { Interval { from: to, to: from } } else { Interval { from, to } };
                let at = reads.add_interval(cursor.table(), interval);
                cursor.set_remembered(back, at);
            }
        }
        Ok(is_row)
    }

    /// Calls `f`. If `f` panics, poisons the database at once and remembers the panic: the caller
    /// may catch it and keep the transaction.
    #[inline]
    pub fn guarded<T>(&self, f: impl FnOnce(&ActiveTransaction) -> T) -> T {
        let before = self.inside.replace(true);
        let result = catch_unwind(AssertUnwindSafe(|| f(self)));
        leave_call(self, before, result)
    }

    /// [`ActiveTransaction::guarded`] for calls that change something.
    #[inline]
    pub fn guarded_mut<T>(&mut self, f: impl FnOnce(&mut ActiveTransaction) -> T) -> T {
        let before = self.inside.replace(true);
        let result = catch_unwind(AssertUnwindSafe(|| f(self)));
        leave_call(self, before, result)
    }

    /// To be called by each call that changes something.
    ///
    /// # Errors
    /// `InvalidArgument` if the transaction is read-only; that of a rollback that failed half-way:
    /// then the transaction can only abort.
    #[inline]
    pub(super) fn check_may_change(&self) -> Result<()> {
        if self.options.read_only {
            return Err(
                Error::invalid("the transaction was begun read-only").with_advice("begin one that may write")
            );
        }
        self.check_unbroken()
    }

    /// Refuses all further changes, and a commit, with `error`.
    pub fn can_only_abort(&mut self, error: Error) {
        self.broken.get_or_insert(error);
    }

    #[inline]
    pub(super) fn check_unbroken(&self) -> Result<()> {
        self.broken.as_ref().map_or(Ok(()), |error| Err(error.duplicate()))
    }

    /// Ends the transaction: releases the descriptor, the tables and the buffers.
    pub(super) fn end(&mut self) {
        debug_assert!(self.open, "a transaction ends once");
        self.open = false;
        let before = self.system.in_progress.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "each transaction that ends is counted");
        self.release_locks();
        if let Some(since) = self.locked_since.take() {
            self.system.count_lock_hold(since);
        }
        self.writes.dead_ranges.get_mut().end(self.own, None);
        self.writes.used.get_mut().drain(..).for_each(TableUse::end);
        self.writes.clear(&self.system);
        self.system.descriptors.release(self.id);
        self.system.locks.waiters.released(self.id);
        self.system.versions.snapshot_ended(self.snapshot.get());
    }
}

#[inline]
fn leave_call<T>(active: &ActiveTransaction, before: bool, result: std::thread::Result<T>) -> T {
    match result {
        Ok(result) => {
            active.inside.set(before);
            result
        }
        Err(panic) => {
            active.system.committed.panicked(USER);
            resume_unwind(panic)
        }
    }
}
