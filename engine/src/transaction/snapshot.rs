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

/// Systems of which a thread remembers what it committed.
const REMEMBERED: usize = 8;

/// The newest CSN that a thread committed in each system, by the systems' numbers: its snapshots are never below it.
struct LastCommits {
    /// The one of the newest commit first; 0 for none.
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

    /// Makes the first place that of `system`.
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

    /// What the thread committed in `system`; `None` if that is forgotten.
    fn of(&self, system: u64) -> Option<Csn> {
        let known = self.newest.iter().map(Cell::get).find(|(number, _)| *number == system);
        match known {
            None if system <= self.forgotten.get() => None,
            known => Some(known.map_or(Csn::ZERO, |(_, csn)| csn)),
        }
    }
}

/// Remembers what this thread committed, so that it reads its own writes.
pub(super) fn remember_commit(system: &TransactionSystem, csn: Csn) {
    let _ = LAST_COMMITS.try_with(|commits| commits.remember(system.number, csn));
}

fn last_commit(system: &TransactionSystem) -> Csn {
    let last = LAST_COMMITS.try_with(|commits| commits.of(system.number)).unwrap_or(Some(Csn::ZERO));
    // Whatever it was.
    last.unwrap_or_else(|| system.commit().newest_drawn())
}

/// A consistent, durable view of the database at one CSN.
#[derive(Debug)]
pub struct ReadSnapshot {
    pub(super) system: Arc<TransactionSystem>,
    id: DescriptorId,
    csn: Csn,
    /// The newest acknowledged CSN when it began: snapshots that begin later see up to here in any case.
    acknowledged: Csn,
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
        let mut acknowledged = Csn::ZERO;
        let csn = system.descriptors.pin(id, || {
            acknowledged = system.commit().newest_acknowledged();
            acknowledged.max(last_commit(system))
        });
        Ok(ReadSnapshot { system: system.clone(), id, csn, acknowledged, used: Mutex::new(Vec::new()) })
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
        let is_known = |used: &[Arc<TableState>]| used.iter().any(|known| Arc::ptr_eq(known, table));
        if is_known(&self.used.lock()) {
            return Ok(());
        }
        // Whether it sees the drop or not: that is what it says.
        self.system.begin_use(table, |dropped| self.system.commit().wait_committed(dropped))?;
        // Only then it is known: before, it may be lost, and nothing is to be said of it, to other threads either.
        let committed = self.wait_committed(table.create_csn());
        let mut used = self.used.lock();
        if committed.is_ok() && !is_known(&used) {
            used.push(table.clone());
        } else {
            table.end_use();
        }
        committed
    }

    pub(super) fn wait_committed(&self, csn: Csn) -> Result<()> {
        // What is newer than the snapshot was not seen.
        if csn > self.csn
            || planted::is(Bug::SnapshotReturnsVolatile)
            || csn <= self.acknowledged && self.system.commit().is_committed(csn)
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
        if newest == Csn::ZERO || newest <= self.acknowledged && newest < commit.watermark() {
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
