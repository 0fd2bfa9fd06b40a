//! The locks that a transaction holds in lock tables, for releasing them.

use super::catalog::TableState;
use super::descriptor::DescriptorId;
use super::locks::{Held, Interval, LockMode};
use super::share::ShareCharge;
use super::system::TransactionSystem;
use crate::base::Result;
use std::sync::Arc;

/// Locks on keys of one table, above which a transaction tries to lock the whole table instead.
const ESCALATE_AT: usize = 2048;
/// Bytes of a lock besides its key: its places in the lock table and in this list.
const LOCK_BYTES: usize = 128;
/// Locks are charged in steps of this many bytes; fewer are not charged.
const CHARGE_STEP: usize = 64 << 10;

#[derive(Debug)]
struct KeyLock {
    table: usize,
    key: Box<[u8]>,
    mode: LockMode,
}

#[derive(Debug)]
struct IntervalLock {
    table: usize,
    number: u64,
    /// [`LockedTable::whole`] before.
    before: Option<LockMode>,
    bytes: usize,
}

/// The locks in one table.
#[derive(Debug)]
struct LockedTable {
    table: Arc<TableState>,
    keys: usize,
    /// The whole table is locked, shared or exclusively.
    whole: Option<LockMode>,
    /// Another attempt to lock the whole table is worth it at so many locks on keys.
    escalate_at: usize,
}

/// The locks of a transaction.
#[derive(Debug, Default)]
pub(super) struct LockSet {
    tables: Vec<LockedTable>,
    keys: Vec<KeyLock>,
    intervals: Vec<IntervalLock>,
    bytes: usize,
    charge: Option<ShareCharge>,
}

/// The lock on an interval that one end of a cursor extends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockedInterval(u64);

impl LockSet {
    fn of(&mut self, table: &Arc<TableState>) -> usize {
        let known = self.tables.iter().position(|locked| Arc::ptr_eq(&locked.table, table));
        known.unwrap_or_else(|| {
            let locked = LockedTable { table: table.clone(), keys: 0, whole: None, escalate_at: ESCALATE_AT };
            self.tables.push(locked);
            self.tables.len() - 1
        })
    }

    /// Returns whether the whole table is locked in `mode` or a stronger one.
    pub(super) fn has_whole(&self, table: &Arc<TableState>, mode: LockMode) -> bool {
        self.tables.iter().any(|locked| Arc::ptr_eq(&locked.table, table) && locked.whole >= Some(mode))
    }

    /// Returns whether there is a lock in the table.
    pub(super) fn has_any_in(&self, table: &Arc<TableState>) -> bool {
        self.tables.iter().any(|locked| Arc::ptr_eq(&locked.table, table))
    }

    /// Publishes a lock on `key`. Returns whether it is new.
    pub(super) fn lock_key(&mut self, table: &Arc<TableState>, key: &[u8], held: Held) -> bool {
        if !table.locks.lock_key(key, held) {
            return false;
        }
        let at = self.of(table);
        self.tables[at].keys += 1;
        self.keys.push(KeyLock { table: at, key: key.into(), mode: held.mode });
        self.bytes += LOCK_BYTES + 2 * key.len();
        true
    }

    /// Ends the lock on a key that was published last.
    pub(super) fn withdraw_key(&mut self, id: DescriptorId) {
        let Some(lock) = self.keys.pop() else { return };
        self.bytes -= LOCK_BYTES + 2 * lock.key.len();
        self.tables[lock.table].keys -= 1;
        self.tables[lock.table].table.locks.unlock_key(&lock.key, id, lock.mode);
    }

    /// Publishes a lock on an interval.
    pub(super) fn lock_interval(
        &mut self,
        table: &Arc<TableState>,
        interval: Interval,
        held: Held,
    ) -> LockedInterval {
        let at = self.of(table);
        let bytes = LOCK_BYTES + interval.bytes();
        self.bytes += bytes;
        let before = self.tables[at].whole;
        if interval == Interval::ALL {
            self.tables[at].whole = before.max(Some(held.mode));
        }
        let number = table.locks.lock_interval(interval, held);
        self.intervals.push(IntervalLock { table: at, number, before, bytes });
        LockedInterval(number)
    }

    /// Extends a lock on an interval over `more`.
    pub(super) fn extend_interval(&mut self, table: &TableState, at: LockedInterval, more: &Interval) {
        table.locks.extend_interval(at.0, more);
    }

    /// Ends the lock on an interval that was published last.
    pub(super) fn withdraw_interval(&mut self) {
        let Some(lock) = self.intervals.pop() else { return };
        debug_assert!(self.bytes >= lock.bytes, "an interval's bytes were counted");
        self.bytes -= lock.bytes;
        let locked = &mut self.tables[lock.table];
        locked.whole = lock.before;
        locked.table.locks.unlock_interval(lock.number);
    }

    /// Locks the whole table, shared, if the transaction has many locks on keys of the table and
    /// nothing forbids it. Never waits.
    pub(super) fn escalate(&mut self, system: &TransactionSystem, table: &Arc<TableState>, held: Held) {
        let at = self.of(table);
        let locked = &mut self.tables[at];
        if locked.keys < locked.escalate_at || locked.whole.is_some() {
            return;
        }
        locked.escalate_at *= 2;
        self.lock_interval(table, Interval::ALL, held);
        let mut others = system.descriptors.changers_of(table.id, held.id);
        table.locks.forbid_interval(held.id, &mut others);
        if !others.is_empty() {
            self.withdraw_interval();
            return;
        }
        system.counters.lock_escalations.add(1);
        let is_covered = |lock: &KeyLock| lock.table == at && lock.mode == LockMode::Shared;
        for lock in self.keys.extract_if(.., |lock| is_covered(lock)) {
            self.bytes -= LOCK_BYTES + 2 * lock.key.len();
            self.tables[at].keys -= 1;
            table.locks.unlock_key(&lock.key, held.id, lock.mode);
        }
    }

    /// Charges what the locks take.
    ///
    /// # Errors
    /// `OutOfMemory` at the bound of all transactions together.
    pub(super) fn charge(&mut self, system: &TransactionSystem) -> Result<()> {
        let bytes = self.bytes.next_multiple_of(CHARGE_STEP) as u64;
        let charged = self.charge.as_ref().map_or(0, ShareCharge::bytes);
        if self.bytes < CHARGE_STEP || bytes <= charged {
            return Ok(());
        }
        system.lock_memory.raise(&mut self.charge, &system.pool, bytes)
    }

    /// Returns whether the transaction has never had a lock.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// Ends all locks of transaction `id`.
    pub(super) fn release(&mut self, id: DescriptorId) {
        debug_assert!(
            self.bytes
                == self.keys.iter().map(|lock| LOCK_BYTES + 2 * lock.key.len()).sum::<usize>()
                    + self.intervals.iter().map(|lock| lock.bytes).sum::<usize>(),
            "the bytes of locks are those of the keys and intervals"
        );
        debug_assert!(
            self.tables.iter().map(|table| table.keys).sum::<usize>() == self.keys.len(),
            "each lock of a key is counted in its table"
        );
        for lock in self.keys.drain(..) {
            self.tables[lock.table].table.locks.unlock_key(&lock.key, id, lock.mode);
        }
        for lock in self.intervals.drain(..) {
            self.tables[lock.table].table.locks.unlock_interval(lock.number);
        }
        self.tables.clear();
        self.bytes = 0;
        self.charge = None;
    }
}
