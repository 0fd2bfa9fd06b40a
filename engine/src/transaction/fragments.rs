//! Which log a change belongs to, where changes are divided by page.
//!
//! A change goes to the log of the leaf that it found its row in. Splits and merges move rows to leaves of other logs; that does no harm, since
//! redo is in the order of CSNs and not of logs. Only operations of one transaction on one row must not be torn apart: a second change of
//! a row is noted, and its redo goes where the row's first went (`log::fragment`).
//!
//! A transaction whose redo is long goes to one log, in chunks.

use super::active::ActiveTransaction;
use super::system::TransactionSystem;
use crate::base::{Gsn, LogId, PageId, Result};
use crate::commit::{Pending, Record, Ticket};
use crate::log::{Fragments, RecordKind};

impl ActiveTransaction {
    /// The redo that comes next is of a row in `page`.
    #[inline]
    pub(super) fn redo_of_leaf(&mut self, page: PageId) {
        if let Some(log) = self.system.commit().log_of_page(page) {
            self.scratch.redo.in_log(log);
        }
    }

    /// The log of the whole transaction, if it is not divided.
    pub(super) fn log_if_whole(&self) -> LogId {
        let of_pages = if self.chunks.is_none() { self.scratch.redo.first_log() } else { None };
        of_pages.unwrap_or_else(|| self.system.log_of_thread())
    }

    /// Appends all fragments and draws the CSN.
    pub(super) fn precommit_fragments(
        &self,
        fragments: &Fragments,
        gsn: Gsn,
        pending: Pending,
    ) -> Result<Ticket> {
        let system: &TransactionSystem = &self.system;
        let record = |(log, body, body_crc, operations)| {
            (log, Record { body, body_crc, operations, gsn, kind: RecordKind::Fragment })
        };
        let records: Vec<(LogId, Record<'_>)> = fragments.bodies().map(record).collect();
        system.commit().precommit_fragments(&records, pending, || system.descriptors.set_preparing(self.id))
    }
}
