//! Read-only snapshots: a pinned CSN, owned, usable from several threads, waiting where they meet something that is
//! not yet committed, so that nothing a snapshot returns can be lost in a crash.

use super::catalog::TableState;
use super::descriptor::{DescriptorId, Stamp};
use super::range::{Met, RangeCursor};
use super::system::TransactionSystem;
use super::view::View;
use crate::base::planted::{self, Bug};
use crate::base::{Csn, Result};
use crate::sync::Mutex;
use std::cell::Cell;
use std::sync::Arc;

thread_local! {
    /// The newest CSN that this thread committed, and in which system, by its number: its snapshots are never below it.
    static LAST_COMMIT: Cell<(u64, Csn)> = const { Cell::new((0, Csn::ZERO)) };
}

/// Remembers what this thread committed, so that it reads its own writes.
pub(super) fn remember_commit(system: &Arc<TransactionSystem>, csn: Csn) {
    let _ = LAST_COMMIT.try_with(|cell| cell.set((system.number, csn)));
}

fn last_commit(system: &Arc<TransactionSystem>) -> Csn {
    LAST_COMMIT
        .try_with(Cell::get)
        .map_or(Csn::ZERO, |(owner, csn)| if owner == system.number { csn } else { Csn::ZERO })
}

/// A consistent, durable view of the database at one CSN.
#[derive(Debug)]
pub struct ReadSnapshot {
    pub(super) system: Arc<TransactionSystem>,
    id: DescriptorId,
    csn: Csn,
    used: Mutex<Vec<Arc<TableState>>>,
}

impl ReadSnapshot {
    /// The shared state.
    #[must_use]
    pub fn system(&self) -> &Arc<TransactionSystem> {
        &self.system
    }

    /// Pins the newest acknowledged CSN, or this thread's own newest one.
    ///
    /// # Errors
    /// `Busy` at the limit of open snapshots.
    pub fn begin(system: &Arc<TransactionSystem>) -> Result<ReadSnapshot> {
        let id = system.descriptors.take()?;
        let csn =
            system.descriptors.pin(id, || system.commit().newest_acknowledged().max(last_commit(system)));
        Ok(ReadSnapshot { system: system.clone(), id, csn, used: Mutex::new(Vec::new()) })
    }

    /// Its CSN.
    #[must_use]
    pub fn csn(&self) -> Csn {
        self.csn
    }

    pub(super) fn view(&self) -> View {
        View { snapshot: self.csn, own: Stamp(0) }
    }

    pub(super) fn touch(&self, table: &Arc<TableState>) -> Result<()> {
        let mut used = self.used.lock();
        if !used.iter().any(|known| Arc::ptr_eq(known, table)) {
            self.system.begin_use(table)?;
            used.push(table.clone());
            drop(used);
            self.wait_committed(table.create_csn())?;
        }
        Ok(())
    }

    pub(super) fn wait_committed(&self, csn: Csn) -> Result<()> {
        // What is newer than the snapshot was not seen.
        if csn > self.csn
            || planted::is(Bug::SnapshotReturnsVolatile)
            || self.system.commit().is_committed(csn)
        {
            return Ok(());
        }
        self.system.commit().wait_committed(csn)
    }

    /// Reads `key`; true if it is there, with its value in `value`.
    ///
    /// # Errors
    /// `InvalidArgument`, `NotFound` (dropped table), `Poisoned` for what can no longer become durable, I/O,
    /// `Corruption`.
    pub fn get(&self, table: &Arc<TableState>, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.system.check_key(table, key)?;
        self.touch(table)?;
        let (found, csn, _) = self.system.read(&table.tree, key, self.view(), value)?;
        self.wait_committed(csn)?;
        Ok(found)
    }

    /// Has the leaves of `keys` brought into memory.
    ///
    /// # Errors
    /// As [`ReadSnapshot::get`].
    pub fn prefetch<'k>(&self, table: &Arc<TableState>, keys: impl Iterator<Item = &'k [u8]>) -> Result<()> {
        self.touch(table)?;
        table.tree.prefetch(keys)
    }

    /// A step of a cursor: `back` from the upper end.
    ///
    /// # Errors
    /// As [`ReadSnapshot::get`].
    pub fn step(&self, cursor: &mut RangeCursor, back: bool) -> Result<bool> {
        if !cursor.is_ahead(back) {
            self.touch(cursor.table())?;
        }
        let mut newest = Csn::ZERO;
        let mut seen = |met| {
            if let Met::Version(csn) = met {
                newest = newest.max(csn);
            }
            Ok(())
        };
        let row = cursor.step(&self.system, self.view(), &mut seen, back)?;
        self.wait_committed_prefix(newest)?;
        Ok(row)
    }

    /// Waits until everything that a batch met is committed; the newest stands for all of them once the watermark has
    /// passed it.
    fn wait_committed_prefix(&self, newest: Csn) -> Result<()> {
        let commit = self.system.commit();
        if newest == Csn::ZERO || newest < commit.watermark() {
            return Ok(());
        }
        commit.wait_watermark(newest)
    }
}

impl Drop for ReadSnapshot {
    fn drop(&mut self) {
        for table in self.used.lock().drain(..) {
            table.end_use();
        }
        self.system.descriptors.release(self.id);
    }
}
