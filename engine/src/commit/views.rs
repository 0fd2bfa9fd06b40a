//! What other layers see of commits besides committing: four groups of questions.

use super::core::acknowledge::Acknowledgments;
use super::core::append::Appending;
use super::core::durability::Durability;
use super::core::environment::Environment;
use super::core::log_writer::LogWriter;
use super::core::medium::Medium;
use super::core::metrics::CommitMetrics;
use super::core::pending::{Pending, Ticket};
use super::core::sharing::Sharing;
use super::core::waiting::Waiting;
use super::papers::autonomous::Workers;
use super::papers::clocks::ByClocks;
use crate::base::clock::Nanos;
use crate::base::settings::Axes;
use crate::base::{Csn, Epoch, Gsn, LogId, PageId, Result};
use crate::device::mapped::MemoryFacts;
use crate::log::{ChainEnd, SegmentPool};
use std::sync::Arc;
use std::time::Duration;

/// How far commits have come: which CSNs are drawn, durable, committed, acknowledged.
#[derive(Clone, Copy)]
pub struct Progress<'a> {
    pub(super) durability: &'a Durability,
    pub(super) acknowledgments: &'a Acknowledgments,
    pub(super) waiting: &'a Waiting,
    pub(super) epoch: Epoch,
}

/// What a transaction has to note of those that it depends on.
#[derive(Clone, Copy)]
pub struct Listing<'a> {
    pub(super) durability: &'a Durability,
    pub(super) clocks: Option<&'a ByClocks>,
}

/// The space of the log.
#[derive(Clone, Copy)]
pub struct LogSpace<'a> {
    pub(super) appending: &'a Appending,
}

/// Facts and figures, for people and monitoring.
#[derive(Clone, Copy)]
pub struct Inspection<'a> {
    pub(super) environment: &'a Environment,
    pub(super) durability: &'a Durability,
    pub(super) medium: &'a dyn Medium,
    pub(super) sharing: &'a Sharing,
    pub(super) axes: &'a Axes,
    pub(super) workers: Option<&'a Workers>,
}

impl Progress<'_> {
    /// Returns true if the transaction of `ticket` is committed.
    #[must_use]
    pub fn is_committed_ticket(&self, ticket: Ticket) -> bool {
        self.acknowledgments.is_committed(ticket)
    }

    /// Returns true if `csn` is committed (rule 7).
    #[must_use]
    pub fn is_committed(&self, csn: Csn) -> bool {
        self.durability.is_committed(csn)
    }

    /// The newest CSN that was drawn.
    #[must_use]
    pub fn newest_drawn(&self) -> Csn {
        self.durability.watermark.newest_drawn()
    }

    /// Returns a CSN at or above every acknowledged one, early returns included (rule 10).
    #[must_use]
    pub fn newest_acknowledged(&self) -> Csn {
        self.acknowledgments.newest_acknowledged()
    }

    /// W: every CSN strictly below is durable.
    #[must_use]
    pub fn watermark(&self) -> Csn {
        self.durability.watermark.get()
    }

    /// The newest CSN below W, in one order with the pins of snapshots. None that is taken from now
    /// on is older.
    #[must_use]
    pub fn newest_settled(&self) -> Csn {
        self.durability.watermark.newest_settled()
    }

    /// Every CSN strictly below is durable in a segment: W, unless log buffers are mapped.
    #[must_use]
    pub fn watermark_in_segments(&self) -> Csn {
        self.waiting.watermark_in_segments()
    }

    /// Returns how far each log is durable in segments, for a check of what they hold.
    #[must_use]
    pub fn durable_ends(&self) -> Vec<ChainEnd> {
        let ends = self.durability.logs.iter().map(|log: &LogWriter| {
            let (sequence, last_csn) = log.log.lock().durable_end();
            ChainEnd { log: log.id, epoch: self.epoch, sequence, last_csn, dense: true }
        });
        ends.collect()
    }
}

impl Listing<'_> {
    /// Returns whether transactions keep a list of their predecessors: the rule goes by lists, or
    /// what lists would save is counted.
    #[inline]
    #[must_use]
    pub fn keeps_predecessors(&self) -> bool {
        self.durability.keeps_predecessors()
    }

    /// Returns whether a transaction that depends on `csn` is to list it.
    #[inline]
    #[must_use]
    pub fn is_to_be_listed(&self, csn: Csn) -> bool {
        self.keeps_predecessors() && !self.durability.is_committed(csn)
    }

    /// Returns whether transactions are to keep clocks.
    #[must_use]
    pub fn goes_by_clocks(&self) -> bool {
        self.clocks.is_some()
    }

    /// Returns the GSN up to which all logs are durable.
    #[must_use]
    pub fn reach(&self) -> Gsn {
        self.clocks.map_or(Gsn(0), |clocks| clocks.reach())
    }

    /// Returns the GSN of a transaction that may not be committed, and its log. None if it cannot
    /// list what it depends on: then a transaction that met it cannot either.
    #[must_use]
    pub fn clock_of(&self, csn: Csn) -> Option<(Gsn, LogId)> {
        self.clocks?.clock_of(csn)
    }

    /// Returns the predecessors that the record of a transaction is to list at the end of its body,
    /// if there are any.
    #[inline]
    #[must_use]
    pub fn listed_in<'p>(&self, pending: &'p Pending) -> Option<&'p [Csn]> {
        let lists = self.durability.lists_predecessors() && !pending.predecessors.is_empty();
        if lists { pending.predecessors.all() } else { None }
    }

    /// Returns the log of the changes of `page`, if the layout divides them by page.
    #[inline]
    #[must_use]
    pub fn log_of_page(&self, page: PageId) -> Option<LogId> {
        let logs = self.durability.logs.len() as u64;
        self.durability.has_fragments().then_some(LogId((page.0 % logs) as u32))
    }
}

impl<'a> LogSpace<'a> {
    /// Waits until a record with a body of `body_len` bytes, whose committer waits, would find
    /// room. Others may take it first.
    ///
    /// # Errors
    /// As `Commit::precommit`.
    pub fn await_room(&self, log: LogId, body_len: usize) -> Result<()> {
        self.appending
            .reserve_record(
                self.appending.durability.log(log),
                body_len,
                self.appending.axes.queues_waiters(),
            )
            .map(drop)
    }

    /// The disk is full: has a checkpoint made if it would make room for pages, and waits for it.
    /// False if there is no hope.
    #[must_use]
    pub fn await_checkpoint(&self) -> bool {
        self.appending.await_checkpoint()
    }

    /// The disk is full: gives up segments, and has logs leave long ones for the next checkpoint.
    pub fn give_up_log(&self) {
        self.appending.give_up_log();
    }

    /// Returns the segments of all logs.
    #[must_use]
    pub fn segments(&self) -> &'a SegmentPool {
        &self.appending.environment.segments
    }

    /// Recycles log space up to `covered`, which the durable checkpoint at `checkpoint` covers, and
    /// wakes committers that wait for space.
    ///
    /// # Errors
    /// I/O of the segment pool.
    pub fn recycle(&self, covered: Csn, checkpoint: Csn) -> Result<()> {
        let recycled = self.appending.environment.segments.recycle(covered, checkpoint);
        self.appending.environment.space.notify_all();
        recycled
    }
}

impl<'a> Inspection<'a> {
    /// Returns the properties of the mapped memory that holds the log buffers, if they are mapped.
    #[must_use]
    pub fn memory_facts(&self) -> Option<MemoryFacts> {
        self.medium.facts()
    }

    /// The point on the axes that runs.
    #[must_use]
    pub fn axes(&self) -> &'a Axes {
        self.axes
    }

    /// Logs that workers write for each other; 1 if they do not.
    #[must_use]
    pub fn stealing_group(&self) -> usize {
        self.workers.map_or(1, |workers| workers.queues.neighbours.group())
    }

    /// Returns the counters and latencies of commits.
    #[must_use]
    pub fn metrics(&self) -> &'a Arc<CommitMetrics> {
        &self.environment.metrics
    }

    /// Returns the bytes written to the segments of each log.
    #[must_use]
    pub fn written_bytes(&self) -> Vec<u64> {
        self.durability.logs.iter().map(LogWriter::written_bytes).collect()
    }

    /// Returns the log with a write that has not completed for `patience`, and since when.
    #[must_use]
    pub fn standing_write(&self, patience: Duration) -> Option<(LogId, Nanos)> {
        self.durability.standing_write(self.environment.clock.now(), patience)
    }

    /// Returns what a write takes lately, of the log whose writes take longest.
    #[must_use]
    pub fn mean_write(&self) -> Duration {
        self.durability.logs.iter().map(|log| log.cohort.mean_write()).max().unwrap_or_default()
    }

    /// Returns the length of a log's next buffer in bytes, the longest of all logs.
    #[must_use]
    pub fn log_buffer_bytes(&self) -> usize {
        self.durability.logs.iter().map(|log| log.log.buffer_bytes()).max().unwrap_or(0)
    }

    /// Returns whether several logs share one flush at the moment; none if that is not known yet.
    #[must_use]
    pub fn shares_flush(&self) -> Option<bool> {
        self.sharing.usual()
    }
}
