//! What change feeds need of the commit layer: the log while it is written, and how much of it is
//! retained.

use super::durability::Durability;
use super::environment::Environment;
use super::waiting::Waiting;
use crate::base::clock::Nanos;
use crate::base::{Csn, Result};
use crate::log::{FeedId, LogView, Readable};
use crate::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

/// See the module's text.
pub struct FeedSource {
    pub(in crate::commit) environment: Arc<Environment>,
    pub(in crate::commit) durability: Arc<Durability>,
    pub(in crate::commit) waiting: Arc<Waiting>,
}

impl std::fmt::Debug for FeedSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FeedSource").field("begins", &self.history_begins()).finish_non_exhaustive()
    }
}

impl FeedSource {
    /// Refuses a call in a forked child.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub fn check_process(&self) -> Result<()> {
        self.environment.process.check()
    }

    /// The newest CSN that was drawn.
    #[must_use]
    pub fn newest_drawn(&self) -> Csn {
        self.durability.watermark.newest_drawn()
    }

    /// Returns the checkpoints since history begins, with the one that comes now; none if no
    /// history is retained.
    #[must_use]
    pub fn history_with(&self, covered: Csn, checkpoint: Csn) -> Vec<(Csn, Csn)> {
        self.environment.segments.history_with(covered, checkpoint)
    }

    /// Registers a change feed that has read up to `position`. The log above it is retained up to
    /// a bound.
    ///
    /// # Errors
    /// The CSN where history begins, if that is later.
    pub fn add_feed(&self, position: Csn) -> std::result::Result<FeedId, Csn> {
        self.environment.segments.add_feed(position)
    }

    /// Notes that a feed has read up to `position`.
    ///
    /// # Errors
    /// The CSN where history begins, if that is later: the feed has fallen behind.
    pub fn advance_feed(&self, feed: FeedId, position: Csn) -> std::result::Result<(), Csn> {
        self.environment.segments.advance_feed(feed, position)
    }

    /// Forgets a feed.
    pub fn remove_feed(&self, feed: FeedId) {
        self.environment.segments.remove_feed(feed);
    }

    /// Returns the log for a reader that has read up to `position`, and the newest checkpoint: up
    /// to where it covers the log, and its CSN.
    ///
    /// # Errors
    /// I/O.
    pub fn view_log(&self, position: Csn) -> Result<(LogView, (Csn, Csn))> {
        let segments = &self.environment.segments;
        let covering = segments.newest_checkpoint();
        // In the order that the reader of a log needs.
        self.durability.rescan();
        let durable = self.waiting.watermark_in_segments();
        let active = self.durability.logs.iter().filter_map(|log| log.log.active_segment()).collect();
        let segments = segments.readable(active, position).into_iter().map(Readable::divide);
        let segments = segments.collect::<Result<Vec<_>>>()?.concat();
        Ok((LogView { durable, segments, newest: self.newest_drawn() }, covering))
    }

    /// Makes history up to `csn`, which is durable, survive in segments, if it is retained.
    ///
    /// # Errors
    /// `Poisoned` if a write fails.
    pub fn write_history(&self, csn: Csn) -> Result<()> {
        let is_kept = self.environment.segments.keeps_history();
        if is_kept && self.waiting.medium.is_durable_memory() {
            self.waiting.await_in_segments(csn)
        } else {
            Ok(())
        }
    }

    /// Returns the moment `timeout` from now.
    #[must_use]
    pub fn deadline(&self, timeout: Option<Duration>) -> Option<Nanos> {
        self.environment.deadline(timeout)
    }

    /// Waits until `csn` is durable in a segment. Causes no write, except of commits that only
    /// mapped memory has. Returns false at the deadline, or when the database is closed.
    ///
    /// # Errors
    /// `Poisoned` if nothing more can become durable.
    pub fn await_durable(&self, csn: Csn, deadline: Option<Nanos>) -> Result<bool> {
        self.waiting.await_durable(csn, deadline)
    }

    /// Returns whether the database is being closed.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.environment.closing.load(Ordering::SeqCst)
    }

    /// Returns the CSN above which the log has all transactions.
    #[must_use]
    pub fn history_begins(&self) -> Csn {
        self.environment.segments.history_begins()
    }

    /// Log bytes that are retained only for change feeds.
    #[must_use]
    pub fn log_history_bytes(&self) -> u64 {
        self.environment.segments.history_bytes()
    }
}
