//! What a worker writes into the [`ledger`](crate::ledger), if there is one.
//!
//! A commit that is waited for is acknowledged when the call returns. Of one that is not the handle is asked after each transaction,
//! and never waited for, so that a level below `durable` stays what it is: only what turned out to be durable is required.

use crate::ledger::{Entry, LedgerWriter};
use crate::store::{Error, Handle, Result};
use std::collections::VecDeque;

/// Handles that are asked. Beyond that the oldest is not asked any more, and its writes are not required.
const ASKED_MAX: usize = 1 << 16;

/// See the module.
pub(super) struct Notes<'l, H> {
    writer: LedgerWriter<'l>,
    /// Of the attempt in progress.
    pub(super) entry: Entry,
    asked: VecDeque<(H, u64)>,
}

impl<'l, H: Handle> Notes<'l, H> {
    pub(super) fn new(writer: LedgerWriter<'l>) -> Notes<'l, H> {
        Notes { writer, entry: Entry::default(), asked: VecDeque::new() }
    }

    /// The entry's transaction is about to be committed; its number if it wrote something.
    pub(super) fn about_to_commit(&mut self) -> Result<Option<u64>> {
        if self.entry.is_empty() {
            return Ok(None);
        }
        self.writer.about_to_commit(&self.entry).map(Some).map_err(Error::Failed)
    }

    /// It is committed.
    pub(super) fn acknowledged(&mut self, number: Option<u64>) {
        if let Some(number) = number {
            self.writer.acknowledged(number);
        }
    }

    /// It may be committed one day.
    pub(super) fn ask(&mut self, handle: H, number: Option<u64>) {
        let Some(number) = number else { return };
        if self.asked.len() == ASKED_MAX {
            self.asked.pop_front();
        }
        self.asked.push_back((handle, number));
    }

    /// Asks, the oldest first.
    pub(super) fn collect(&mut self) {
        while let Some((_, number)) = self.asked.pop_front_if(|(handle, _)| handle.is_done()) {
            self.writer.acknowledged(number);
        }
    }

    /// The worker ends.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.collect();
        self.writer.write().map_err(Error::Failed)
    }
}
