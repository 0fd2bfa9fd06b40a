//! Scans under locks: the interval is locked before its rows are read.

use super::active::ActiveTransaction;
use super::catalog::TableState;
use super::descriptor::{DescriptorId, RowHolder};
use super::lock_set::LockedInterval;
use super::locks::{Interval, Request};
use super::range::{LockingReader, Observed, RangeCursor};
use crate::base::{Csn, Result};
use std::sync::Arc;

struct ScanningTransaction<'a> {
    active: &'a ActiveTransaction,
    table: Arc<TableState>,
    seen: Option<(u64, RowHolder)>,
    request: Request,
}

impl LockingReader for ScanningTransaction<'_> {
    fn lock(&mut self, interval: &Interval, locked: &mut Option<LockedInterval>) -> Result<()> {
        self.active.lock_interval(&self.table, interval, locked)
    }

    fn await_row(&mut self, key: &[u8], stamp: u64, holder: DescriptorId) -> Result<()> {
        self.active.await_row(&self.table, key, stamp, holder, &mut self.seen, &mut self.request)?;
        if self.seen.is_none() {
            // The wait is over. The next one may be for another row.
            self.active.end_request(&self.table, &self.request, true);
            self.request = Request::default();
        }
        Ok(())
    }

    fn await_late_release(&mut self, csn: Csn) -> Result<bool> {
        self.active.await_late_release(csn)
    }

    fn may_skip(&self, newest: Csn) -> bool {
        !self.active.system.locks.late.holds_any() || newest < self.active.system.committed.watermark()
    }

    fn observe(&mut self, observed: Observed) {
        self.active.observe(observed);
    }
}

impl ActiveTransaction {
    /// Moves a cursor to its next row, and locks the interval up to this row, or a few more.
    pub(super) fn step_locked(&self, cursor: &mut RangeCursor, back: bool) -> Result<bool> {
        let (table, view) = (cursor.table().clone(), self.view());
        let mut reader = ScanningTransaction { active: self, table, seen: None, request: Request::default() };
        let stepped = cursor.step_locked(&self.system, view, &mut reader, back);
        self.end_request(&reader.table, &reader.request, false);
        self.note_dead_range(cursor);
        stepped
    }
}
