//! A change feed: follows the log, and returns committed transactions in CSN order.

use super::assembler::Assembler;
use super::behind::{ADVICE, fell_behind};
use super::selection::CountedEpochs;
use super::transaction::CommittedTransaction;
use crate::base::clock::Nanos;
use crate::base::{Csn, DatabaseId, Error, ErrorKind, Location, Result, TableId};
use crate::commit::FeedSource;
use crate::log::{FeedId, Follower};
use crate::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of new blocks that are kept in memory between finding and returning them.
const KEPT_BYTES: usize = 4 << 20;

/// Where a feed begins, and the database that it is of.
pub struct FeedStart {
    /// The log of the database.
    pub source: Arc<FeedSource>,
    /// The database.
    pub database: DatabaseId,
    /// The records that count.
    pub epochs: Arc<CountedEpochs>,
    /// The tables that exist, with their names.
    pub tables: Vec<(TableId, Arc<str>)>,
    /// The number of feeds, while which is above 0 values are logged whole.
    pub feeds: Arc<AtomicUsize>,
    /// The feed returns transactions above it.
    pub after: Csn,
}

/// A feed of committed transactions in the order of their CSNs:
/// [`Database::changes`](crate::Database::changes).
///
/// The feed does not keep the database open. When the database is closed, the feed ends; a feed
/// that begins at [`Changes::csn`] after the next open continues. Dropping a feed releases the
/// log that it held.
#[derive(Debug)]
pub struct Changes {
    source: Arc<FeedSource>,
    id: FeedId,
    feeds: Arc<AtomicUsize>,
    follower: Follower,
    assembler: Assembler,
    /// Every CSN below was durable when the log was last looked at.
    durable: Csn,
    /// Chunks at or below the start have not been looked for.
    is_new: bool,
}

impl Changes {
    /// Begins a feed.
    ///
    /// # Errors
    /// `FellBehind` if the log does not retain everything above the start; `InvalidArgument` if no
    /// transaction has that CSN yet.
    pub(crate) fn begin(start: FeedStart) -> Result<Changes> {
        let newest = start.source.newest_drawn();
        if start.after > newest {
            let what = format!(
                "a change feed begins at CSN {}, and the newest transaction of the database has CSN {newest}: the CSN is of another \
                 database, or of this one before it was restored",
                start.after
            );
            return Err(Error::invalid(what));
        }
        let id = start.source.add_feed(start.after).map_err(|begins| fell_behind(start.after, begins))?;
        start.feeds.fetch_add(1, Ordering::SeqCst);
        Ok(Changes {
            source: start.source,
            id,
            feeds: start.feeds,
            follower: Follower::new(start.database),
            assembler: Assembler::new(start.epochs, start.tables, start.after),
            durable: Csn::ZERO,
            is_new: true,
        })
    }

    /// Returns the CSN from which a later feed continues: it has returned every transaction up to
    /// there. At least the CSN of the transaction that was returned last.
    #[must_use]
    pub fn csn(&self) -> Csn {
        self.assembler.csn()
    }

    /// Returns the next transaction if it is durable now; `None` if there is none yet, or if the
    /// database is closed. Reads the log. Causes no device write, except to move what is durable in
    /// mapped memory to a segment.
    ///
    /// # Errors
    /// `FellBehind` if the log no longer has the transaction; `Poisoned` if no more can become
    /// durable; `Corruption` with the place; I/O.
    pub fn try_next(&mut self) -> Result<Option<CommittedTransaction>> {
        self.source.check_process()?;
        if self.source.is_closing() {
            return Ok(None);
        }
        // The transaction that was returned last is not needed any more.
        let position = self.csn();
        self.check_history(position)?;
        let next = self.next_durable();
        if next.is_err() {
            // A segment that was recycled meanwhile looks damaged.
            self.check_history(position)?;
        }
        next
    }

    fn check_history(&self, position: Csn) -> Result<()> {
        let begins = self.source.advance_feed(self.id, position);
        begins.map_err(|begins| fell_behind(position, begins))
    }

    /// Waits at most `timeout` for the next transaction. `None` if there was none in this time, or
    /// if the database is closed.
    ///
    /// # Errors
    /// As [`Changes::try_next`].
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<CommittedTransaction>> {
        self.next_before(self.deadline(Some(timeout)))
    }

    /// Returns the moment `timeout` from now.
    pub(crate) fn deadline(&self, timeout: Option<Duration>) -> Option<Nanos> {
        self.source.deadline(timeout)
    }

    /// Waits for the next transaction until `deadline`.
    pub(crate) fn next_before(&mut self, deadline: Option<Nanos>) -> Result<Option<CommittedTransaction>> {
        loop {
            if let Some(transaction) = self.try_next()? {
                return Ok(Some(transaction));
            }
            if !self.source.await_durable(self.assembler.next_csn(), deadline)? {
                return Ok(None);
            }
        }
    }

    fn next_durable(&mut self) -> Result<Option<CommittedTransaction>> {
        if let Some(transaction) = self.next_known()? {
            return Ok(Some(transaction));
        }
        // What is durable in mapped memory is written to a segment first.
        let now = self.source.deadline(Some(Duration::ZERO));
        if !self.is_new && !self.source.await_durable(self.assembler.next_csn(), now)? {
            return Ok(None);
        }
        self.look()?;
        self.next_known()
    }

    /// Finds the blocks that are durable now.
    fn look(&mut self) -> Result<()> {
        let (view, covering) = self.source.view_log(self.csn())?;
        let durable = view.durable;
        debug_assert!(durable >= self.durable, "what is durable stays durable");
        // Before the first look, the start.
        let found = self.follower.find(view, self.csn(), self.is_new, KEPT_BYTES)?;
        self.assembler.add(found);
        (self.durable, self.is_new) = (durable, false);
        let (covered, checkpoint) = covering;
        self.assembler.forget_chunks(covered, checkpoint);
        Ok(())
    }

    /// Returns the next transaction from the blocks that are known.
    fn next_known(&mut self) -> Result<Option<CommittedTransaction>> {
        if let Some(assembled) = self.assembler.next_below(self.durable)? {
            return Ok(Some(assembled.into_transaction(Some(self.source.clone()))));
        }
        match self.assembler.missing_below(self.durable) {
            Some(found) => Err(self.missing(found)),
            None => Ok(None),
        }
    }

    /// The error for a durable record that is not in the log. A segment of history may have been
    /// dropped just before a crash, after the last manifest that says where history begins.
    fn missing(&self, found: Csn) -> Error {
        let what = format!(
            "the log no longer has the transactions from CSN {} to CSN {}",
            self.assembler.next_csn(),
            Csn(found.0 - 1)
        );
        Error::new(ErrorKind::FellBehind, what)
            .with_advice(ADVICE)
            .at(Location::Transaction(self.assembler.next_csn()))
    }
}

/// Waits for each transaction. Ends when the database is closed. After an error the next call tries
/// again.
impl Iterator for Changes {
    type Item = Result<CommittedTransaction>;

    fn next(&mut self) -> Option<Result<CommittedTransaction>> {
        self.next_before(None).transpose()
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        if self.source.check_process().is_err() {
            return;
        }
        self.source.remove_feed(self.id);
        self.feeds.fetch_sub(1, Ordering::SeqCst);
    }
}
