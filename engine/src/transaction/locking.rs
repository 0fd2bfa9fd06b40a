//! Locking reads: lock what is read, then read the newest version.
//!
//! A serializable pessimistic transaction locks each key and each interval that it reads, and keeps
//! the locks until it has drawn its CSN (strict two-phase locking). Its reads have no snapshot: a
//! transaction that waited for a row continues with the row's new value.
//!
//! Source: J. Gray and A. Reuter, *Transaction Processing*, chapters 7 and 8. Different there: a
//! range is locked by locks on the keys next to its rows; here by the interval itself, which needs
//! no entry to exist.

use super::active::ActiveTransaction;
use super::catalog::TableState;
use super::descriptor::{DescriptorId, RowHolder};
use super::lock_set::{LockSet, LockedInterval};
use super::locks::{Access, Held as HeldLock, InTable, Interval, LockMode, Look, Request, Waiter};
use super::options::{Interrupt, Isolation, Locking, ReadMode};
use super::view::{Outcome, View, Visibility};
use crate::base::planted::{self, Bug};
use crate::base::{Csn, Error, ErrorKind, Location, Result};
use crate::sync::epoch::pin;
use crate::tree::{Held, ReadLeaf};
use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;

/// A lock that a transaction wants.
struct Wanted<'a> {
    access: Access<'a>,
    /// Publishes the lock. Returns false if the transaction has it already.
    publish: &'a dyn Fn(&mut LockSet) -> bool,
    /// Ends the lock that was just published.
    withdraw: &'a dyn Fn(&mut LockSet),
    /// Adds the transactions whose locks forbid it.
    forbid: &'a dyn Fn(&mut Vec<DescriptorId>),
}

impl ActiveTransaction {
    fn held(&self, mode: LockMode) -> HeldLock {
        HeldLock { id: self.id, mode, since: self.system.clock.now() }
    }

    fn waiter(&self) -> Waiter {
        let limit = self.options.lock_timeout.unwrap_or(self.system.limits.lock_wait);
        let limit = (!self.options.no_wait).then_some(limit);
        Waiter { id: self.id, begun: self.begun, priority: self.options.priority, limit }
    }

    /// Returns whether the transaction holds what another one wants, so that the other one waits
    /// for it.
    pub(super) fn holds(&self, table: &Arc<TableState>, wanted: &Access<'_>) -> bool {
        match wanted {
            Access::Change(key) | Access::Key(key, _) => {
                table.locks.is_held_by(key, self.id) || self.writes.has_changed(table, key)
            }
            Access::Interval(_) => false,
            Access::Table(_) => self.writes.locks.borrow().has_any_in(table) || self.writes.has_table(table),
        }
    }

    /// Returns the transactions that the request has to queue behind.
    fn ahead_of(&self, table: &Arc<TableState>, access: &Access<'_>, request: &Request) -> Vec<DescriptorId> {
        let holds = |wanted: &Access<'_>| self.holds(table, wanted);
        self.system.locks.waiters.ahead_of(self.id, table.id, access, request.place, &holds)
    }

    /// Waits until `access` may be possible. `blockers` adds the transactions that hold it now.
    pub(super) fn await_access(
        &self,
        table: &Arc<TableState>,
        access: &Access<'_>,
        request: &mut Request,
        blockers: &dyn Fn(&mut Vec<DescriptorId>),
    ) -> Result<()> {
        let (system, counters) = (&self.system, &self.system.counters);
        let began = system.clock.now();
        let is_upgrade = match access {
            Access::Change(key) => table.locks.is_held_by(key, self.id),
            _ => false,
        };
        let has_slept = Cell::new(false);
        let look = Look {
            blockers: &|| {
                let mut found = Vec::new();
                blockers(&mut found);
                found
            },
            holds: &|wanted| self.holds(table, wanted),
            is_upgrade,
            // After a failed write the locks that last until a commit is durable never end.
            check_commits: &|| {
                system.committed.check_commits()?;
                // Not before the first sleep: most waits are short.
                let interrupt = self.interrupt.as_ref().filter(|_| has_slept.replace(true));
                interrupt.map_or(Ok(()), Interrupt::check)
            },
        };
        let in_table = InTable { id: table.id, name: &table.name, locks: &table.locks };
        let ended = system.locks.waiters.wait(&self.waiter(), in_table, access, &mut request.place, &look);
        system.committed.check_whole()?;
        let waited = system.clock.now().0.saturating_sub(began.0);
        counters.row_waits.add(1);
        counters.row_wait_ns.add(waited);
        counters.lock_waits.record_ns(waited);
        ended.inspect_err(|error| {
            counters.conflicts.add(u64::from(error.kind() != ErrorKind::Interrupted));
            match error.kind() {
                ErrorKind::Deadlock => counters.deadlocks.add(1),
                ErrorKind::LockTimeout => counters.lock_timeouts.add(1),
                _ => {}
            }
        })
    }

    /// Ends a request, which was granted or given up.
    #[inline]
    pub(super) fn end_request(&self, table: &TableState, request: &Request, granted: bool) {
        if let Some(place) = request.place {
            self.system.locks.waiters.leave(&table.locks, place, granted);
        }
    }

    /// Waits until `csn`, whose row is held until it is durable, is committed. Returns false if the
    /// row is free.
    pub(super) fn await_late_release(&self, csn: Csn) -> Result<bool> {
        let is_held = self.options.locking == Locking::Pessimistic && self.is_held_late(csn);
        if is_held {
            let (system, began) = (&self.system, self.system.clock.now());
            system.committed.wait(csn)?;
            system.counters.lock_waits.record_ns(system.clock.now().0.saturating_sub(began.0));
        }
        Ok(is_held)
    }

    /// Returns whether rows of `csn` are held until they are durable.
    #[inline]
    pub(super) fn is_held_late(&self, csn: Csn) -> bool {
        csn != Csn::ZERO
            && self.system.locks.late.may_hold(csn)
            && !self.system.committed.is_committed(csn)
            && !planted::is(Bug::LateReleaseIgnored)
    }

    /// Runs one request, which keeps its place in the queue until it is granted or given up.
    fn in_line<T>(&self, table: &Arc<TableState>, run: impl FnOnce(&mut Request) -> Result<T>) -> Result<T> {
        let mut request = Request::default();
        let done = run(&mut request);
        self.end_request(table, &request, done.is_ok());
        done
    }

    /// Locks what `wanted` says, waiting for it. Returns false if the transaction has the lock
    /// already.
    ///
    /// # Errors
    /// `Deadlock`, `LockTimeout`, `Poisoned`.
    fn acquire(&self, table: &Arc<TableState>, wanted: &Wanted<'_>) -> Result<bool> {
        self.in_line(table, |request| {
            loop {
                let mut found = self.ahead_of(table, &wanted.access, request);
                if found.is_empty() {
                    let mut locks = self.writes.locks.borrow_mut();
                    if !(wanted.publish)(&mut locks) {
                        return Ok(false);
                    }
                    (wanted.forbid)(&mut found);
                    if found.is_empty() {
                        self.note_lock();
                        return Ok(true);
                    }
                    (wanted.withdraw)(&mut locks);
                    self.system.locks.waiters.released(self.id);
                }
                self.await_access(table, &wanted.access, request, wanted.forbid)?;
            }
        })
    }

    /// Notes that a pessimistic transaction holds a lock or has changed a row.
    #[inline]
    pub(super) fn note_lock(&self) {
        if self.options.locking == Locking::Pessimistic && self.locked_since.get().is_none() {
            self.locked_since.set(Some(self.system.clock.now()));
        }
    }

    /// Locks `key` for a read. Returns whether the lock is new.
    ///
    /// # Errors
    /// `Deadlock`, `LockTimeout`, `OutOfMemory`, `Poisoned`.
    fn lock_key(&self, table: &Arc<TableState>, key: &[u8], mode: LockMode) -> Result<bool> {
        let is_new = self.acquire(
            table,
            &Wanted {
                access: Access::Key(Cow::Borrowed(key), mode),
                publish: &|locks| {
                    let is_covered = mode == LockMode::Shared && locks.has_whole(table, LockMode::Shared);
                    !is_covered && locks.lock_key(table, key, self.held(mode))
                },
                withdraw: &|locks| locks.withdraw_key(self.id),
                forbid: &|found| table.locks.forbid_key(key, mode, self.id, found),
            },
        )?;
        if is_new {
            let mut locks = self.writes.locks.borrow_mut();
            locks.escalate(&self.system, table, self.held(LockMode::Shared));
            locks.charge(&self.system)?;
        }
        Ok(is_new)
    }

    /// Locks an interval that one end of a cursor is about to read: the first one, or more of it.
    ///
    /// # Errors
    /// As [`ActiveTransaction::lock_key`].
    pub(super) fn lock_interval(
        &self,
        table: &Arc<TableState>,
        interval: &Interval,
        locked: &mut Option<LockedInterval>,
    ) -> Result<()> {
        if planted::is(Bug::RangeLocksRows) {
            return Ok(());
        }
        let newest = Cell::new(None);
        let is_new = self.acquire(
            table,
            &Wanted {
                access: Access::Interval(Cow::Borrowed(interval)),
                publish: &|locks| {
                    let is_covered = locks.has_whole(table, LockMode::Shared);
                    if !is_covered {
                        let held = self.held(LockMode::Shared);
                        newest.set(Some(locks.lock_interval(table, interval.clone(), held)));
                    }
                    !is_covered
                },
                withdraw: &LockSet::withdraw_interval,
                forbid: &|found| table.locks.forbid_interval(self.id, found),
            },
        )?;
        if !is_new {
            return Ok(());
        }
        let mut locks = self.writes.locks.borrow_mut();
        match *locked {
            None => *locked = newest.get(),
            Some(earlier) => {
                locks.extend_interval(table, earlier, interval);
                locks.withdraw_interval();
            }
        }
        locks.charge(&self.system)
    }

    /// Reads the newest entry of `key`, waiting for a transaction that holds the row. The caller
    /// has locked the key. Of a large value `value` gets the reference.
    ///
    /// # Errors
    /// As [`ActiveTransaction::lock_key`]; I/O, `Corruption`.
    fn read_newest(&self, table: &Arc<TableState>, key: &[u8], value: &mut Vec<u8>) -> Result<Held> {
        self.in_line(table, |request| {
            let mut seen = None;
            loop {
                if let Some(held) = self.try_read_newest(table, key, value, &mut seen, request)? {
                    return Ok(held);
                }
            }
        })
    }

    /// Makes one attempt of [`ActiveTransaction::read_newest`]. Returns none after a wait.
    fn try_read_newest(
        &self,
        table: &Arc<TableState>,
        key: &[u8],
        value: &mut Vec<u8>,
        seen: &mut Option<(u64, RowHolder)>,
        request: &mut Request,
    ) -> Result<Option<Held>> {
        let (system, view) = (&self.system, self.view());
        let guard = pin();
        let (ReadLeaf { page: leaf, .. }, entry) = table.tree.lookup_in_leaf(key, value)?;
        let Some(entry) = entry else {
            value.clear();
            self.dependencies.observe_leaf(system, leaf);
            return Ok(Some(Held::Nothing));
        };
        let (visibility, _) =
            view.visibility(entry.stamp, &system.versions.slots, &system.descriptors, &guard);
        if let Visibility::InProgress(other) = visibility
            && !planted::is(Bug::LockedReadPasses)
        {
            drop(guard);
            self.await_row(table, key, entry.stamp, other, seen, request)?;
            return Ok(None);
        }
        let outcome = system.resolve(view, entry.stamp, entry.held(), value, &guard);
        drop(guard);
        let (held, csn) = match outcome {
            Outcome::Value(csn) => (Held::Value, csn),
            Outcome::Reference(csn) => (Held::Reference, csn),
            Outcome::Absent(csn) => (Held::Nothing, csn),
            Outcome::Retry => {
                system.committed.check_whole()?;
                return Ok(None);
            }
        };
        if self.await_late_release(csn)? {
            return Ok(None);
        }
        self.dependencies.observe_leaf(system, leaf);
        self.depend_on(csn);
        if held == Held::Nothing {
            value.clear();
        }
        Ok(Some(held))
    }

    /// Waits for the transaction that holds a row, which the caller has seen without a latch: on
    /// the first call only notes the holder. If the row still has the same stamp when the caller
    /// looks again, the holder had not released the row when it was noted.
    pub(super) fn await_row(
        &self,
        table: &Arc<TableState>,
        key: &[u8],
        stamp: u64,
        holder: DescriptorId,
        seen: &mut Option<(u64, RowHolder)>,
        request: &mut Request,
    ) -> Result<()> {
        match seen.take() {
            Some((same, holder)) if same == stamp => {
                let access = Access::Key(Cow::Borrowed(key), LockMode::Shared);
                let descriptors = &self.system.descriptors;
                let blockers = |found: &mut Vec<DescriptorId>| {
                    found.extend(descriptors.still_holds(holder).then_some(holder.id));
                };
                self.await_access(table, &access, request, &blockers)
            }
            _ => {
                *seen = Some((stamp, self.system.descriptors.holder(holder)));
                Ok(())
            }
        }
    }

    /// Locks `key`, then reads its newest version. Returns whether the key exists.
    ///
    /// # Errors
    /// As [`ActiveTransaction::get`]; `Deadlock`, `LockTimeout`, `OutOfMemory`.
    pub(super) fn get_locked(
        &self,
        table: &Arc<TableState>,
        key: &[u8],
        mode: LockMode,
        value: &mut Vec<u8>,
    ) -> Result<bool> {
        let held = self.get_entry_locked(table, key, mode, value)?;
        self.system.load_large(held, value)?;
        Ok(held != Held::Nothing)
    }

    /// Locks `key`, then reads its newest entry. Of a large value `value` gets the reference.
    ///
    /// # Errors
    /// As [`ActiveTransaction::get_locked`].
    pub(super) fn get_entry_locked(
        &self,
        table: &Arc<TableState>,
        key: &[u8],
        mode: LockMode,
        value: &mut Vec<u8>,
    ) -> Result<Held> {
        if planted::is(Bug::LockAfterRead) {
            let found = self.read_newest(table, key, value)?;
            planted::linger(Bug::LockAfterRead);
            return self.lock_key(table, key, mode).map(|_| found);
        }
        if planted::is(Bug::LockedReadIsOld) {
            self.lock_key(table, key, mode)?;
            let old = Csn(self.system.commit().progress().newest_drawn().0.saturating_sub(2));
            let view = View { snapshot: old, own: self.own };
            return Ok(self.system.read_entry(&table.tree, key, view, value)?.0);
        }
        self.lock_key(table, key, mode)?;
        self.read_newest(table, key, value)
    }

    /// Reads `key` and locks it against changes, whether it exists or not, until the transaction
    /// ends. Others may lock it in the same way.
    ///
    /// # Errors
    /// As [`ActiveTransaction::get`]; `Deadlock`, `LockTimeout`, `OutOfMemory`; `Conflict` if the
    /// row is newer than the snapshot; `InvalidArgument` if the transaction is read-only.
    pub fn get_for_share(&self, table: &Arc<TableState>, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.check_may_lock()?;
        self.system.check_key(table, key)?;
        self.touch_to_read(table)?;
        let found = self.get_locked(table, key, LockMode::Shared, value)?;
        if self.options.isolation == Isolation::ReadCommitted || self.read_mode() == ReadMode::Lock {
            return Ok(found);
        }
        // The snapshot of a pessimistic transaction is taken now at the latest, so that it contains
        // the row that was locked first.
        let view = self.view();
        if !self.is_unchanged_since(table, key, view.snapshot)? {
            return Err(self.system.newer_than_snapshot(table));
        }
        Ok(found)
    }

    /// Locks `key` so that only this transaction can change it, and reads it.
    pub(super) fn get_for_later_change(
        &self,
        table: &Arc<TableState>,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<bool> {
        self.touch_to_read(table)?;
        self.get_locked(table, key, LockMode::Update, value)
    }

    /// Makes the answer that `key` does not exist a read. Returns true if the caller has to look
    /// again.
    pub(super) fn note_absent(&self, table: &Arc<TableState>, key: &[u8]) -> Result<bool> {
        match self.read_mode() {
            ReadMode::Remember if !planted::is(Bug::RemoveIsNoRead) => self.remember_key(table, key),
            ReadMode::Lock if !planted::is(Bug::RemoveIsNoRead) => {
                return self.lock_key(table, key, LockMode::Shared);
            }
            _ => {}
        }
        Ok(false)
    }

    /// Locks all rows of the table, those that do not exist, too: shared against changes, exclusive
    /// against locking reads as well.
    ///
    /// # Errors
    /// `NotFound` (dropped table), `Deadlock`, `LockTimeout`, `Poisoned`; `InvalidArgument` if the
    /// transaction is read-only or `mode` is no mode of a table.
    pub fn lock_table(&mut self, table: &Arc<TableState>, mode: LockMode) -> Result<()> {
        self.check_may_lock()?;
        if !matches!(mode, LockMode::Shared | LockMode::Exclusive) {
            let what = format!("a table is locked `Shared` or `Exclusive`, not `{mode:?}`");
            return Err(Error::invalid(what).at(Location::Table(table.name.to_string())));
        }
        self.touch(table)?;
        let forbid = |found: &mut Vec<DescriptorId>| {
            found.extend(self.system.descriptors.changers_of(table.id, self.id));
            match mode {
                LockMode::Exclusive => table.locks.forbid_exclusive(self.id, found),
                _ => table.locks.forbid_interval(self.id, found),
            }
        };
        self.acquire(
            table,
            &Wanted {
                access: Access::Table(mode),
                publish: &|locks| {
                    let is_covered = locks.has_whole(table, mode);
                    if !is_covered {
                        locks.lock_interval(table, Interval::ALL, self.held(mode));
                    }
                    !is_covered
                },
                withdraw: &LockSet::withdraw_interval,
                forbid: &forbid,
            },
        )
        .map(drop)
    }

    /// Returns whether locks of others, or their requests, forbid to change `key` now. The leaf is
    /// latched.
    #[inline]
    pub(super) fn is_change_forbidden(&self, table: &Arc<TableState>, key: &[u8], request: &Request) -> bool {
        table.locks.is_any() && self.finds_lock_against(table, key, request)
    }

    #[cold]
    fn finds_lock_against(&self, table: &Arc<TableState>, key: &[u8], request: &Request) -> bool {
        let holds_itself = table.locks.is_held_by(key, self.id);
        if planted::is(Bug::LocksIgnored) || holds_itself && planted::is(Bug::UpgradeUnchecked) {
            return false;
        }
        let mut found = Vec::new();
        table.locks.forbid_change(key, self.id, &mut found);
        if !found.is_empty() || holds_itself {
            return !found.is_empty();
        }
        !self.ahead_of(table, &Access::Change(Cow::Borrowed(key)), request).is_empty()
    }

    /// Waits until a row may be changed: `holder` had changed it, or locks forbade the change.
    pub(super) fn await_change(
        &self,
        table: &Arc<TableState>,
        key: &[u8],
        holder: Option<RowHolder>,
        request: &mut Request,
    ) -> Result<()> {
        let descriptors = &self.system.descriptors;
        let blockers = |found: &mut Vec<DescriptorId>| {
            let holder = holder.filter(|holder| descriptors.still_holds(*holder));
            found.extend(holder.map(|holder| holder.id));
            table.locks.forbid_change(key, self.id, found);
        };
        self.await_access(table, &Access::Change(Cow::Borrowed(key)), request, &blockers)
    }

    /// Keeps the rows of changes that are about to be taken back as reads: the caller knows them.
    pub(super) fn keep_as_reads(&self, first: usize) {
        let read_mode = self.read_mode();
        if read_mode == ReadMode::Plain || planted::is(Bug::RollbackForgetsReads) {
            return;
        }
        for change in self.writes.changes.get(first..).unwrap_or_default() {
            let (table, key) = (&self.writes.tables[change.table as usize], self.writes.key(change));
            if read_mode == ReadMode::Remember {
                self.remember_key(table, key);
            } else {
                // The stamp still excludes others, so nothing has to be looked for.
                self.writes.locks.borrow_mut().lock_key(table, key, self.held(LockMode::Shared));
            }
        }
    }

    /// Ends the locks. The caller then wakes the transactions that waited for this one.
    #[inline]
    pub(super) fn release_locks(&mut self) {
        let locks = self.writes.locks.get_mut();
        if !locks.is_empty() {
            locks.release(self.id);
        }
    }

    /// Refuses locks in a read-only transaction.
    fn check_may_lock(&self) -> Result<()> {
        if self.options.read_only {
            let what = "the transaction is read-only and reads as of one CSN: it locks nothing";
            return Err(Error::invalid(what));
        }
        Ok(())
    }
}
