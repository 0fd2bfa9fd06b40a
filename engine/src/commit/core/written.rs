//! The level *written*: a commit returns when the log is written, without a flush.
//!
//! The device has the bytes then, or without direct I/O the page cache of the operating system. So
//! the commit survives the end of the process, however it ends. A power cut takes at most about
//! `loss_window` of such commits, as with bounded loss.
//!
//! ```text
//!   committer   append | lead: write, no flush    | returns | append | lead: write | returns
//!   flusher                                                   once in a loss window: write the rest, flush
//!   the log     volatile                          written                            durable
//! ```
//!
//! 1. **Written counts for nothing else.** A block that is written without a flush stays in flight
//!    for its log: W does not pass it, no commit of another level is acknowledged, no checkpoint
//!    covers it, and snapshots wait, until it is durable (I1, I5).
//! 2. **A flush covers what was written before it.** Blocks are added to the list when their write
//!    has completed, and a flush takes the list before it is issued. If it fails, commits stop
//!    (I11).
//! 3. **What a commit depends on is written, too.** Recovery takes a transaction only with every
//!    CSN up to its DSN. So a committer waits until each log that holds W back at or below its DSN
//!    has written everything appended so far. A draw and its append happen under one latch: with
//!    the latch of that log taken once, no CSN that was drawn before is missing in it.
//! 4. **A thread that needs more flushes.** A leader that finds written blocks writes its own
//!    without a flush, too, and flushes once for all. One flush at a time runs for a log; a leader
//!    that needs another one waits for it.
//! 5. **Not more than [`UNFLUSHED_MAX`] blocks** of a log are written and not durable: a committer
//!    at that bound flushes.
//!
//! The level is durable where a write without a flush would save nothing:
//! for a log in mapped memory, whose fence is cheaper than a write, and in a store of objects,
//! where each append is durable. A block in the queue of a worker is written durably, too; a
//! committer that finds one waits for it.
//!
//! A committer with `durable_every` waits once in so many commits until its commit is durable.

use super::durability::Durability;
use super::environment::Environment;
use super::log_writer::LogWriter;
use super::medium::Medium;
use super::pending::Ticket;
use super::unflushed::{UNFLUSHED_MAX, WrittenBlock};
use super::writes::{UnderWay, Writes};
use crate::base::planted::{self, Bug};
use crate::base::settings::Durability as Level;
use crate::base::{Csn, LogId, Result};
use crate::log::SealedBlock;
use crate::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// Waits of commits of level written. See the module's text.
pub struct Written {
    writes: Arc<Writes>,
    /// The level is durable here.
    is_durable: bool,
    /// One commit in so many waits until it is durable; 0: none.
    durable_every: u64,
    commits: AtomicU64,
}

impl Written {
    pub fn new(writes: Arc<Writes>, medium: &dyn Medium, durable_every: u64) -> Written {
        let is_durable = medium.is_durable_memory() || writes.environment.storage.facts().append_only;
        Written { writes, is_durable, durable_every, commits: AtomicU64::new(0) }
    }

    /// Returns the level that a transaction of `level` has.
    pub fn effective(&self, level: Level) -> Level {
        if level == Level::Written && self.is_durable { Level::Durable } else { level }
    }

    /// Waits until the record of `ticket`, and what it depends on, is written. Returns whether the
    /// caller is to wait until it is durable, too.
    ///
    /// # Errors
    /// `OutcomeUnknown` if commits have stopped.
    pub fn wait(&self, ticket: Ticket) -> Result<bool> {
        let Durability { logs, .. } = &*self.writes.durability;
        self.await_in(self.writes.durability.log(ticket.log), ticket.csn)?;
        if logs.len() > 1 && !planted::is(Bug::WrittenAlone) {
            match self.writes.durability.has_fragments() {
                true => self.await_others(None, ticket.csn)?,
                false => self.await_others(Some(ticket.log), ticket.dsn)?,
            }
        }
        self.writes.environment.metrics.written_commits.add(1);
        let every = self.durable_every;
        Ok(every > 0 && (self.commits.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(every))
    }

    /// Waits until every record up to `csn` is written.
    ///
    /// # Errors
    /// As [`Written::wait`].
    pub fn await_up_to(&self, csn: Csn) -> Result<()> {
        self.await_others(None, csn)
    }

    /// Waits until every log but `own` has written its records up to `csn`.
    fn await_others(&self, own: Option<LogId>, csn: Csn) -> Result<()> {
        let Durability { logs, watermark, .. } = &*self.writes.durability;
        for log in logs.iter().filter(|log| Some(log.id) != own) {
            if watermark.holds_back(log.id, csn) {
                let newest = log.log.lock().newest_csn();
                self.await_in(log, newest)?;
            }
        }
        Ok(())
    }

    /// Waits until `log` has written its records up to `csn`.
    fn await_in(&self, log: &LogWriter, csn: Csn) -> Result<()> {
        let Environment { poison, .. } = &*self.writes.environment;
        loop {
            // The ticket first: a leader resigns before it notifies.
            let woken = log.event.ticket();
            if csn <= log.written_csn() || planted::is(Bug::WrittenBeforeWrite) {
                return Ok(());
            }
            if poison.is_raised() {
                return Err(poison.outcome(log.id, csn));
            }
            if self.writes.queued.await_carrier(&self.writes, log, csn, None)? {
                continue;
            }
            if !self.writes.write_for_written(log, csn) {
                self.writes.environment.sleep(&log.event, woken, None)?;
            }
        }
    }
}

impl Writes {
    /// Does one step towards writing `csn` of `log`. Returns false if another thread is at it.
    fn write_for_written(&self, log: &LogWriter, csn: Csn) -> bool {
        let Some(leader) = self.try_become_leader(log) else { return false };
        if csn <= log.written_csn() {
            return true;
        }
        if log.in_flight() > 0 {
            return self.write_as_leader(&leader, &self.environment.metrics.leader_flushes);
        }
        if log.unflushed.count() >= UNFLUSHED_MAX {
            return self.flush_written(log);
        }
        let Some(block) = log.take_block_and_keep_due() else { return false };
        self.write_unflushed(log, block);
        true
    }

    /// Writes `block` without a flush; a failure poisons. The caller leads.
    pub fn write_unflushed(&self, log: &LogWriter, block: SealedBlock) {
        let _guard = self.failure.guard("a thread writing a log");
        let block = block.finish();
        debug_assert!(log.has_leader(), "only a leader writes a block");
        let begun = self.environment.clock.now();
        let _under_way = UnderWay::begin(self, log, begun);
        self.count_submitted(log, block.len, &self.environment.metrics.unflushed_writes);
        let SealedBlock { file, offset, buffer, len, sequence, first_csn, last_csn, .. } = block;
        if let Err(error) = file.write_at(offset, &buffer[..len]) {
            return self.failure.fail_write(&*file, log.id, first_csn, error);
        }
        if planted::is(Bug::WrittenCountsAsDurable) {
            self.complete(log, sequence, buffer, begun);
            return;
        }
        let mut latch = log.log.lock();
        latch.give_back(buffer);
        if !self.environment.poison.is_raised() {
            let (durable, _) = latch.durable_end();
            log.unflushed.add(WrittenBlock { sequence, first_csn, last_csn, file }, durable, &latch);
        }
    }

    /// Makes the written blocks of `log` durable, or waits until another thread has done so.
    /// Returns false if there are none.
    pub fn flush_written(&self, log: &LogWriter) -> bool {
        if log.unflushed.count() == 0 {
            return false;
        }
        let Some(flush) = log.unflushed.begin_flush() else {
            log.unflushed.await_flush(|| self.environment.poison.is_raised());
            return true;
        };
        let _guard = self.failure.guard("a thread flushing a log");
        if !flush.blocks.is_empty() {
            let begun = self.environment.clock.now();
            self.deadline.write_begins();
            let under_way = UnderWay::begin(self, log, begun);
            match flush.run() {
                Ok(()) => self.complete_flushed(log, &flush.blocks, begun),
                Err((block, error)) => {
                    self.failure.fail_write(&*block.file, log.id, block.first_csn, error);
                }
            }
            drop(under_way);
        }
        drop(flush);
        self.acknowledgments.publish();
        log.event.notify_all();
        self.environment.progress.notify_all();
        true
    }

    /// Has everything that waits in `log` written and flushed, for a flusher. Other threads may
    /// write without a flush meanwhile.
    pub fn write_rest_and_flush(&self, log: &LogWriter) {
        // Without leadership there is nothing to do: a leader that resigns wakes the flusher.
        let Some(leader) = self.try_become_leader(log) else { return };
        if log.in_flight() > 0 {
            self.reap(log, false);
        }
        if let Some(block) = log.take_block() {
            self.write_unflushed(log, block);
        }
        drop(leader);
        self.flush_written(log);
    }
}
