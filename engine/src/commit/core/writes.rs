//! Writing blocks of logs, and what follows when a write has completed.
//!
//! ```text
//!   complete   (latch) the log's durable CSN advances over the gap-free prefix of blocks; its slot rises     per block
//!   publish    W is scanned, committed transactions are acknowledged: see `acknowledge`                       per batch
//!   wake       one system call for all sleepers of a log, one for those that wait for W                       per leader
//! ```

use super::acknowledge::Acknowledgments;
use super::deadline::WriteDeadline;
use super::durability::Durability;
use super::environment::Environment;
use super::failure::Failure;
use super::flushers::Flushers;
use super::levels;
use super::log_writer::{Leader, LeaderObserver, LogWriter};
use super::pending::Ticket;
use super::schedule::Schedule;
use super::unflushed::WrittenBlock;
use super::waiters::Wakers;
use crate::base::clock::Nanos;
use crate::base::metrics::Counter;
use crate::base::planted::{self, Bug};
use crate::base::{Csn, Result};
use crate::device::{AlignedBuffer, Completion, File};
use crate::log::SealedBlock;
use std::sync::Arc;

/// See the module's text.
pub struct Writes {
    pub environment: Arc<Environment>,
    pub durability: Arc<Durability>,
    pub acknowledgments: Arc<Acknowledgments>,
    pub flushers: Arc<Flushers>,
    pub failure: Arc<Failure>,
    pub wakers: Arc<Wakers>,
    pub schedule: Arc<Schedule>,
    pub deadline: Arc<WriteDeadline>,
    pub queued: Arc<dyn QueuedWrites>,
}

/// Queues in which a thread leaves writes in flight, for whichever thread needs them to complete.
/// [`LogWriter::in_flight`] counts the writes in the queue of a log. [`LogWriter::is_only_carried`]
/// says that a log has blocks in flight, and all of them in writes of other logs. Each method has
/// the answer of a database without queues.
pub trait QueuedWrites: Send + Sync {
    /// Completes what the queue of `log` has finished; with `wait`, at least one write. The caller
    /// leads. Returns whether there was any.
    fn reap(&self, _writes: &Writes, _log: &LogWriter, _wait: bool) -> bool {
        false
    }

    /// If all that `log` has in flight is carried by others: completes a write of theirs, or sleeps
    /// until a thread that is at it resigns. Returns false if the log has something of its own to
    /// be written or reaped. The caller looks again whether `csn` is durable.
    ///
    /// # Errors
    /// `Timeout` at `deadline`.
    fn await_carrier(
        &self,
        _writes: &Writes,
        _log: &LogWriter,
        _csn: Csn,
        _deadline: Option<Nanos>,
    ) -> Result<bool> {
        Ok(false)
    }

    /// Completes a write that carries a CSN of another log at or below `csn`. Returns false if
    /// there is none, or another thread is at it.
    fn complete_carried_below(&self, _writes: &Writes, _csn: Csn) -> bool {
        false
    }

    /// Makes every log due that carries a CSN at or below `csn`. Returns whether there is one.
    fn hasten_carriers(&self, _writes: &Writes, _csn: Csn) -> bool {
        false
    }
}

/// No thread leaves a write in flight.
pub struct NoQueues;

impl QueuedWrites for NoQueues {}

/// A write of a log in flight. It ends when this is dropped: whether it completed, failed, or
/// panicked, no thread need wait for it any more.
pub struct UnderWay<'a> {
    writes: &'a Writes,
    log: &'a LogWriter,
    begun: Nanos,
}

impl<'a> UnderWay<'a> {
    pub fn begin(writes: &'a Writes, log: &'a LogWriter, now: Nanos) -> UnderWay<'a> {
        log.write_begins(now);
        writes.schedule.write_begins(now);
        UnderWay { writes, log, begun: now }
    }

    /// The write continues without the caller.
    pub fn leave(self) {
        std::mem::forget(self);
    }

    /// The write ended at `now`.
    pub fn end(self, now: Nanos) {
        self.log.write_ends(self.begun, now);
        std::mem::forget(self);
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.log.write_ends(self.begun, self.writes.environment.clock.now());
    }
}

impl LeaderObserver for Writes {
    fn leader_resigned(&self, log: &LogWriter, woke: bool, panicked: bool) {
        if panicked {
            self.failure.panicked("a thread that wrote the log");
        }
        let woke_others = self.environment.progress.notify_all();
        self.environment.metrics.wake_ups.add(u64::from(woke) + u64::from(woke_others));
        // The flusher does not plan for a log that has a leader: it has to be woken for what is
        // left there.
        let due = self.schedule.due(log, self.acknowledgments.required());
        if due != levels::NEVER {
            self.flushers.of(log).wake_for(due);
        }
    }
}

impl Writes {
    /// Makes the caller the leader of `log` if it has none.
    pub fn try_become_leader<'a>(&'a self, log: &'a LogWriter) -> Option<Leader<'a>> {
        log.try_become_leader(self)
    }

    /// Returns whether the record of `ticket` is durable.
    ///
    /// # Errors
    /// If it is not, and commits have stopped: `OutcomeUnknown`, or `Io` if it never will be.
    pub fn is_durable(&self, ticket: Ticket) -> Result<bool> {
        if self.durability.is_hardened(ticket) {
            return Ok(true);
        }
        match self.environment.poison.is_raised() {
            true => Err(self.environment.poison.outcome(ticket.log, ticket.csn)),
            false => Ok(false),
        }
    }

    /// Waits until the record of `ticket` is durable. `advance` does one step towards that in the
    /// record's log, or returns false if another thread is at it: then this sleeps.
    ///
    /// # Errors
    /// As [`Writes::is_durable`]; `Timeout` at `deadline`.
    pub fn wait(
        &self,
        ticket: Ticket,
        deadline: Option<Nanos>,
        advance: impl Fn(&LogWriter) -> bool,
    ) -> Result<()> {
        let log = self.durability.log(ticket.log);
        loop {
            let woken = log.event.ticket();
            if self.is_durable(ticket)? {
                return Ok(());
            }
            if !advance(log) {
                self.environment.sleep(&log.event, woken, deadline)?;
            }
        }
    }

    /// Becomes leader of `log` and writes a block, if `csn` is not durable. Returns false if there
    /// is a leader, which wakes the caller when it resigns, or nothing to write.
    pub fn lead(&self, log: &LogWriter, csn: Csn) -> bool {
        let Some(leader) = self.try_become_leader(log) else { return false };
        csn <= log.log.durable_csn()
            || self.write_as_leader(&leader, &self.environment.metrics.leader_flushes)
    }

    /// Asks the flusher of `log` to write it at `by`; returns false. Once the flusher was asked to
    /// end, the caller leads instead.
    pub fn delegate_or_lead(&self, log: &LogWriter, csn: Csn, by: Nanos) -> bool {
        if self.flushers.are_running() {
            self.flushers.delegate(log, by);
            return false;
        }
        self.lead(log, csn)
    }

    /// Writes one block of the log that the caller leads, or waits for those in the worker's queue.
    /// Returns false if there was nothing to do.
    pub fn write_as_leader(&self, leader: &Leader<'_>, counter: &Counter) -> bool {
        let log = leader.log();
        let wrote = match log.take_block() {
            Some(block) => {
                self.write_durably(log, block, counter);
                true
            }
            None if log.in_flight() > 0 => self.reap(log, true),
            None => self.flush_written(log),
        };
        if wrote {
            self.acknowledgments.publish();
        }
        wrote
    }

    /// Makes `block` of the log that the caller leads durable, and what was written without a flush
    /// before it.
    pub fn write_durably(&self, log: &LogWriter, block: SealedBlock, counter: &Counter) {
        if log.unflushed.count() == 0 {
            return self.write_inline(log, block, counter);
        }
        self.write_unflushed(log, block);
        self.flush_written(log);
    }

    /// Writes `block` durably and completes it; a failure poisons.
    pub fn write_inline(&self, log: &LogWriter, block: SealedBlock, counter: &Counter) {
        let _guard = self.failure.guard("a thread writing a log");
        let block = block.finish();
        debug_assert!(log.has_leader(), "only a leader writes a block");
        debug_assert_eq!(block.log(), log.id, "a leader writes blocks of its log");
        let begun = self.environment.clock.now();
        let under_way = UnderWay::begin(self, log, begun);
        self.count_submitted(log, block.len, counter);
        let write = match planted::is(Bug::LogWriteNotDurable) {
            true => File::write_at,
            false => File::write_durable_at,
        };
        let written = write(&*block.file, block.offset, &block.buffer[..block.len]);
        let retry =
            |error| if planted::is(Bug::FailedWriteRetried) { block.file.flush() } else { Err(error) };
        match written.or_else(retry) {
            Ok(()) => under_way.end(self.complete(log, block.sequence, block.buffer, begun)),
            Err(error) => self.failure.fail_write(&*block.file, log.id, block.first_csn, error),
        }
    }

    /// Completes what the queue of `log` has finished; with `wait`, at least one write. The caller
    /// leads. Returns whether there was any.
    pub fn reap(&self, log: &LogWriter, wait: bool) -> bool {
        self.queued.reap(self, log, wait)
    }

    /// Poisons if one of these failed, before any of them counts: without direct I/O, the error of
    /// one write may have been reported to another's flush of the same file.
    pub fn fail_if_any_failed(&self, done: &[Completion]) {
        if let Some(error) = done.iter().find_map(|completion| completion.result.as_ref().err()) {
            self.failure.fail(error.duplicate());
        }
    }

    /// Counts a write of `log` that is about to reach the device.
    pub fn count_submitted(&self, log: &LogWriter, bytes: usize, counter: &Counter) {
        self.deadline.write_begins();
        counter.add(1);
        log.count_written(bytes);
        self.environment.metrics.device_writes.add(1);
        self.environment.metrics.device_bytes.add(bytes as u64);
    }

    /// Notes that block `sequence` of `log` is durable. Returns the time.
    pub fn complete(&self, log: &LogWriter, sequence: u64, buffer: AlignedBuffer, begun: Nanos) -> Nanos {
        let now = self.environment.clock.now();
        if !self.environment.poison.is_raised() {
            self.complete_block(log, sequence, Some(buffer), begun, now);
            self.environment.metrics.flushes.add(1);
            self.environment.metrics.flush.record_ns(now.0.saturating_sub(begun.0));
        }
        now
    }

    /// Advances the log's durable CSN and its slot.
    pub fn complete_block(
        &self,
        log: &LogWriter,
        sequence: u64,
        buffer: Option<AlignedBuffer>,
        begun: Nanos,
        now: Nanos,
    ) {
        let mut latch = log.log.lock();
        buffer.into_iter().for_each(|buffer| latch.give_back(buffer));
        if self.environment.poison.is_raised() {
            // The last holder of the latch may have left a record half in the log.
            return;
        }
        latch.complete(sequence);
        self.durability.settle(log, &latch);
        log.cohort.write_completed(begun, now, &latch);
        drop(latch);
        self.durability.count_completion();
    }

    /// Completes `blocks`, which a flush that began at `begun` made durable.
    pub fn complete_flushed(&self, log: &LogWriter, blocks: &[WrittenBlock], begun: Nanos) {
        let now = self.environment.clock.now();
        let mut latch = log.log.lock();
        if self.environment.poison.is_raised() {
            return;
        }
        debug_assert!(
            blocks.is_sorted_by(|a, b| a.sequence < b.sequence),
            "blocks were listed in the order of their sequences"
        );
        for block in blocks {
            latch.complete(block.sequence);
        }
        log.unflushed.became_durable(blocks.len(), &latch);
        self.durability.settle(log, &latch);
        log.cohort.write_completed(begun, now, &latch);
        drop(latch);
        self.durability.count_completion();
        self.environment.metrics.flushes.add(1);
        self.environment.metrics.flush.record_ns(now.0.saturating_sub(begun.0));
    }
}
