//! Read-only snapshots: a pinned CSN, owned, usable from several threads. A snapshot waits for what
//! it reads to be committed, so that nothing it returns can be lost in a crash.

use super::catalog::{TableState, TableUse};
use super::committed::Committed;
use super::descriptor::{DescriptorId, Stamp};
use super::range::{Observed, RangeCursor};
use super::system::TransactionSystem;
use super::view::View;
use crate::base::clock::Nanos;
use crate::base::planted::{self, Bug};
use crate::base::{Csn, Result};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::tree::{Held, LargeReader, LargeReference};
use std::cell::Cell;
use std::sync::{Arc, OnceLock};

/// Systems of which a thread remembers its newest commit.
const REMEMBERED: usize = 8;

/// The newest CSN that a thread committed in each system, by the systems' numbers. Its snapshots
/// are never older.
struct LastCommits {
    /// The system of the newest commit first; 0 for none.
    newest: [Cell<(u64, Csn)>; REMEMBERED],
    /// The highest number that was forgotten.
    forgotten: Cell<u64>,
}

thread_local! {
    static LAST_COMMITS: LastCommits = const {
        LastCommits {
            newest: [const { Cell::new((0, Csn::ZERO)) }; REMEMBERED],
            forgotten: Cell::new(0),
        }
    };
}

impl LastCommits {
    #[inline]
    fn remember(&self, system: u64, csn: Csn) {
        if self.newest[0].get().0 != system {
            self.bring_forward(system);
        }
        self.newest[0].set((system, csn));
    }

    /// Moves `system` to the first place.
    #[cold]
    fn bring_forward(&self, system: u64) {
        let mut before = (system, Csn::ZERO);
        for place in &self.newest {
            before = place.replace(before);
            if before.0 == system || before.0 == 0 {
                return;
            }
        }
        self.forgotten.set(self.forgotten.get().max(before.0));
    }

    /// Returns the newest commit of the thread in `system`; `None` if it is forgotten.
    fn of(&self, system: u64) -> Option<Csn> {
        let known = self.newest.iter().map(Cell::get).find(|(number, _)| *number == system);
        match known {
            None if system <= self.forgotten.get() => None,
            known => Some(known.map_or(Csn::ZERO, |(_, csn)| csn)),
        }
    }
}

/// Remembers the newest commit of this thread, so that the thread reads its own writes.
pub(super) fn remember_commit(system: &TransactionSystem, csn: Csn) {
    let _ = LAST_COMMITS.try_with(|commits| commits.remember(system.number, csn));
}

fn last_commit(system: &TransactionSystem) -> Csn {
    let last = LAST_COMMITS.try_with(|commits| commits.of(system.number)).unwrap_or(Some(Csn::ZERO));
    // If it is forgotten, the newest CSN covers it.
    last.unwrap_or_else(|| system.committed.newest_drawn())
}

/// The tables that a snapshot has used. Most use one, which is found without a lock.
#[derive(Debug, Default)]
struct Uses {
    first: OnceLock<FirstUse>,
    others: Mutex<Vec<TableUse>>,
}

#[derive(Debug)]
struct FirstUse {
    table: Arc<TableState>,
    rows_read: AtomicU64,
}

impl Uses {
    /// Counts rows of the table that was used first. Returns false if `table` is another one.
    #[inline]
    fn count_first(&self, table: &Arc<TableState>, rows: u64) -> bool {
        match self.first.get() {
            Some(first) if Arc::ptr_eq(&first.table, table) => {
                first.rows_read.fetch_add(rows, Ordering::Relaxed);
                true
            }
            _ => false,
        }
    }

    /// Counts rows. Returns false if the table was not used before.
    fn count(&self, table: &Arc<TableState>, rows: u64) -> bool {
        self.count_first(table, rows) || count_known(&mut self.others.lock(), table, rows)
    }

    /// Adds a use. Returns false if another thread did, so that the rows are counted there.
    fn add(&self, table: &Arc<TableState>, rows: u64) -> bool {
        let mut others = self.others.lock();
        if self.count_first(table, rows) || count_known(&mut others, table, rows) {
            return false;
        }
        // Under the lock: no other thread sets it at the same time.
        let first = FirstUse { table: table.clone(), rows_read: AtomicU64::new(rows) };
        if self.first.set(first).is_err() {
            others.push(TableUse { rows_read: rows, ..TableUse::new(table) });
        }
        true
    }

    fn end(&mut self) {
        if let Some(FirstUse { table, rows_read }) = self.first.take() {
            let rows_read = rows_read.load(Ordering::Relaxed);
            TableUse { rows_read, ..TableUse::new(&table) }.end();
        }
        self.others.lock().drain(..).for_each(TableUse::end);
    }
}

fn count_known(used: &mut [TableUse], table: &Arc<TableState>, rows: u64) -> bool {
    let known = used.iter_mut().find(|known| known.is_of(table));
    known.map(|known| known.rows_read += rows).is_some()
}

/// A consistent, durable view of the database at one CSN.
#[derive(Debug)]
pub struct ReadSnapshot {
    pub(super) system: Arc<TransactionSystem>,
    id: DescriptorId,
    csn: Csn,
    /// The newest acknowledged CSN when the snapshot began. Later snapshots see at least that much.
    acknowledged: Csn,
    used: Uses,
    /// When it began, if idle time is measured.
    begun: Option<Nanos>,
}

impl ReadSnapshot {
    /// Returns the shared state.
    #[must_use]
    pub fn system(&self) -> &Arc<TransactionSystem> {
        &self.system
    }

    /// Pins the newest acknowledged CSN, or this thread's own newest one.
    ///
    /// # Errors
    /// `Busy` at the limit of open snapshots.
    pub fn begin(system: &Arc<TransactionSystem>) -> Result<ReadSnapshot> {
        let begun = system.committed.running().and_then(|commit| commit.work_begins());
        let id = system.descriptors.take()?;
        let mut acknowledged = Csn::ZERO;
        let csn = system.descriptors.pin(id, || {
            acknowledged = system.committed.newest_acknowledged();
            acknowledged.max(last_commit(system))
        });
        Ok(ReadSnapshot { system: system.clone(), id, csn, acknowledged, used: Uses::default(), begun })
    }

    /// Returns the CSN of the snapshot.
    #[must_use]
    pub fn csn(&self) -> Csn {
        self.csn
    }

    pub(super) fn view(&self) -> View {
        View { snapshot: self.csn, own: Stamp(0) }
    }

    pub(super) fn touch(&self, table: &Arc<TableState>) -> Result<()> {
        self.touch_to_read(table, 0)
    }

    /// As [`ReadSnapshot::touch`]. Counts rows that are read by their keys.
    #[inline]
    fn touch_to_read(&self, table: &Arc<TableState>, rows: u64) -> Result<()> {
        if self.used.count_first(table, rows) { Ok(()) } else { self.touch_other(table, rows) }
    }

    fn touch_other(&self, table: &Arc<TableState>, rows: u64) -> Result<()> {
        if self.used.count(table, rows) {
            return Ok(());
        }
        // The answer depends on the drop, whether the snapshot sees the drop or not.
        self.system.begin_use(table, |dropped| self.system.committed.wait(dropped))?;
        // Before the creation is durable it may be lost, and no thread may get an answer about the
        // table.
        let committed = self.wait_committed(table.create_csn());
        if committed.is_err() || !self.used.add(table, rows) {
            table.end_use();
        }
        committed
    }

    #[inline]
    pub(super) fn wait_committed(&self, csn: Csn) -> Result<()> {
        // The snapshot has not seen what is newer.
        if csn == Csn::ZERO
            || csn > self.csn
            || planted::is(Bug::SnapshotReturnsVolatile)
            || csn <= self.acknowledged && self.system.committed.is_committed(csn)
        {
            return Ok(());
        }
        self.system.committed.wait(csn)
    }

    /// Reads `key` into `value`. Returns whether the key exists.
    ///
    /// # Errors
    /// `InvalidArgument`, `NotFound` (dropped table), `Poisoned` for what can no longer become
    /// durable, I/O, `Corruption`.
    pub fn get(&self, table: &Arc<TableState>, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.system.check_key(table, key)?;
        self.touch_to_read(table, 1)?;
        let (found, csn, _) = self.system.read(&table.tree, key, self.view(), value)?;
        self.wait_committed(csn)?;
        Ok(found)
    }

    /// Opens the value of `key` to be read piece by piece.
    ///
    /// # Errors
    /// As [`ReadSnapshot::get`].
    pub fn open_value(&self, table: &Arc<TableState>, key: &[u8]) -> Result<Option<OpenValue>> {
        self.system.check_key(table, key)?;
        self.touch_to_read(table, 1)?;
        let (open, csn) = open_value(&self.system, table, key, self.view())?;
        self.wait_committed(csn)?;
        Ok(open)
    }

    /// Brings the leaves of `keys` into memory.
    ///
    /// # Errors
    /// As [`ReadSnapshot::get`].
    pub fn prefetch<'k>(&self, table: &Arc<TableState>, keys: impl Iterator<Item = &'k [u8]>) -> Result<()> {
        self.touch(table)?;
        table.tree.prefetch(keys)
    }

    /// Moves a cursor to its next row, if it has copied the whole row before.
    #[inline]
    pub fn advance(&self, cursor: &mut RangeCursor, back: bool) -> bool {
        let is_row = cursor.advance(back);
        cursor.count_row(is_row);
        is_row
    }

    /// Calls `each` with rows behind the current one that the cursor has copied, as far as nothing
    /// has to be noted for reading them.
    ///
    /// # Errors
    /// Those of `each`.
    #[inline]
    pub fn visit_copied(
        &self,
        cursor: &mut RangeCursor,
        each: impl FnMut(&[u8], &[u8]) -> Result<()>,
    ) -> Result<()> {
        cursor.visit_copied(each)
    }

    /// Moves a cursor to its next row, with `back` from the upper end, after
    /// [`ReadSnapshot::advance`] has found none. Returns false at the end.
    ///
    /// # Errors
    /// As [`ReadSnapshot::get`].
    pub fn step(&self, cursor: &mut RangeCursor, back: bool) -> Result<bool> {
        self.touch(cursor.table())?;
        let mut newest = Csn::ZERO;
        let mut observe = |observed| {
            if let Observed::Version(csn) | Observed::DeadRange(csn) = observed {
                newest = newest.max(csn);
            }
            Ok(())
        };
        let row = cursor.step(&self.system, self.view(), &mut observe, back)?;
        cursor.count_row(row);
        self.wait_committed_prefix(newest)?;
        Ok(row)
    }

    /// Waits until everything that a batch observed is committed. Once the watermark has passed the
    /// newest CSN, all others are committed, too.
    fn wait_committed_prefix(&self, newest: Csn) -> Result<()> {
        let committed = &self.system.committed;
        if newest == Csn::ZERO || newest <= self.acknowledged && newest < committed.watermark() {
            return Ok(());
        }
        committed.wait_up_to(newest)
    }
}

/// A value to be read piece by piece. It does not change while the transaction or snapshot that
/// opened it lives, nor does it follow later changes of the transaction.
#[derive(Debug)]
pub enum OpenValue {
    /// A value that lies in an entry.
    Whole(Vec<u8>),
    /// A value in overflow pages.
    Large(LargeValue),
}

/// A large value to be read piece by piece.
#[derive(Debug)]
pub struct LargeValue {
    reader: LargeReader,
    /// What keeps the value, if the transaction does not.
    pub(super) pin: Option<Pinned>,
    committed: Arc<Committed>,
}

impl LargeValue {
    /// Returns the length of the value in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.reader.reference().len
    }

    /// Copies bytes from `offset` on: [`LargeReader::read_at`].
    ///
    /// # Errors
    /// As [`LargeReader::read_at`]; `InvalidArgument` if the database was closed, and in a forked
    /// child.
    pub fn read_at(&mut self, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.committed.check_usable()?;
        self.reader.read_at(offset, into)
    }

    /// Compares the checksum of the whole value.
    ///
    /// # Errors
    /// `Corruption`.
    pub fn check_crc(&self, crc: u32) -> Result<()> {
        self.reader.check_crc(crc)
    }
}

impl OpenValue {
    /// Returns what an entry held: its value, or the reference to a large one, is in `value`.
    pub(super) fn of_entry(
        system: &TransactionSystem,
        held: Held,
        value: Vec<u8>,
    ) -> Result<Option<OpenValue>> {
        Ok(match held {
            Held::Nothing => None,
            Held::Value => Some(OpenValue::Whole(value)),
            Held::Reference => {
                let reference = LargeReference::decode(&value)?;
                let reader = LargeReader::new(system.pool.clone(), reference);
                Some(OpenValue::Large(LargeValue { reader, pin: None, committed: system.committed.clone() }))
            }
        })
    }
}

/// Keeps what a snapshot sees.
#[derive(Debug)]
pub struct Pinned {
    system: Arc<TransactionSystem>,
    id: DescriptorId,
}

impl Pinned {
    /// Pins the snapshot that `original` has pinned.
    pub(super) fn like(system: &Arc<TransactionSystem>, original: DescriptorId) -> Result<Pinned> {
        let id = system.descriptors.take_pinned_like(original)?;
        Ok(Pinned { system: system.clone(), id })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.system.descriptors.release(self.id);
    }
}

/// Opens the value of `key` as `view` sees it. Returns the CSN that the value depends on, too.
pub(super) fn open_value(
    system: &TransactionSystem,
    table: &TableState,
    key: &[u8],
    view: View,
) -> Result<(Option<OpenValue>, Csn)> {
    let mut value = Vec::new();
    let (held, csn, _) = system.read_entry(&table.tree, key, view, &mut value)?;
    Ok((OpenValue::of_entry(system, held, value)?, csn))
}

impl Drop for ReadSnapshot {
    fn drop(&mut self) {
        self.used.end();
        self.system.descriptors.release(self.id);
        self.system.versions.snapshot_ended(self.csn);
        if let (Some(begun), Some(commit)) = (self.begun, self.system.committed.running()) {
            commit.worked(begun);
        }
    }
}
