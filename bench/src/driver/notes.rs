//! The records of a worker in the [`ledger`](crate::ledger).
//!
//! A blocking commit is acknowledged when its call returns. The worker checks the handle of another
//! commit after each transaction, and never waits for it: at a level below `durable` the check
//! requires only what has become durable.

use crate::ledger::{Entry, LedgerWriter};
use crate::store::{Error, Handle, Result};
use std::collections::VecDeque;

/// Most handles. Beyond that the worker drops the oldest, whose writes are then not required.
const ASKED_MAX: usize = 1 << 16;

/// See the module.
pub(super) struct Notes<'l, H> {
    writer: LedgerWriter<'l>,
    /// Entry of the attempt in progress.
    pub(super) entry: Entry,
    asked: VecDeque<(H, u64)>,
}

impl<'l, H: Handle> Notes<'l, H> {
    pub(super) fn new(writer: LedgerWriter<'l>) -> Notes<'l, H> {
        Notes { writer, entry: Entry::default(), asked: VecDeque::new() }
    }

    /// Writes the entry before the commit. Returns its number, if the transaction wrote.
    pub(super) fn about_to_commit(&mut self) -> Result<Option<u64>> {
        if self.entry.is_empty() {
            return Ok(None);
        }
        self.writer.about_to_commit(&self.entry).map(Some).map_err(Error::Failed)
    }

    /// Records an acknowledgment.
    pub(super) fn acknowledged(&mut self, number: Option<u64>) {
        if let Some(number) = number {
            self.writer.acknowledged(number);
        }
    }

    /// Keeps the handle of a commit.
    pub(super) fn ask(&mut self, handle: H, number: Option<u64>) {
        let Some(number) = number else { return };
        if self.asked.len() == ASKED_MAX {
            self.asked.pop_front();
        }
        self.asked.push_back((handle, number));
    }

    /// Checks the handles, the oldest first.
    pub(super) fn collect(&mut self) {
        while let Some((_, number)) = self.asked.pop_front_if(|(handle, _)| handle.is_done()) {
            self.writer.acknowledged(number);
        }
    }

    /// Ends the records of the worker.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.collect();
        self.writer.write().map_err(Error::Failed)
    }
}
