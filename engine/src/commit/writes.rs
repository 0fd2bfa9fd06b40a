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
use super::idle::IdleTimes;
use super::levels::{self, NOW};
use super::log_writer::{Leader, LeaderObserver, LogWriter, Piggybacked};
use super::pending::Ticket;
use super::schedule::Schedule;
use super::stealing::{Neighbours, attach_stolen};
use super::unflushed::WrittenBlock;
use super::waiters::Wakers;
use crate::base::clock::Nanos;
use crate::base::metrics::Counter;
use crate::base::planted::{self, Bug};
use crate::base::{Csn, Result};
use crate::device::{AlignedBuffer, Completion, File, WriteQueue, WriteRequest};
use crate::log::SealedBlock;
use std::sync::Arc;

/// See the module's text.
pub(super) struct Writes {
    pub environment: Arc<Environment>,
    pub durability: Arc<Durability>,
    pub acknowledgments: Arc<Acknowledgments>,
    pub flushers: Arc<Flushers>,
    pub failure: Arc<Failure>,
    pub wakers: Arc<Wakers>,
    pub schedule: Arc<Schedule>,
    pub deadline: Arc<WriteDeadline>,
    pub neighbours: Neighbours,
    pub idle: IdleTimes,
}

/// A write of a log in flight. It ends when this is dropped: whether it completed, failed, or
/// panicked, no thread need wait for it any more.
pub(super) struct UnderWay<'a> {
    writes: &'a Writes,
    log: &'a LogWriter,
    begun: Nanos,
}

impl<'a> UnderWay<'a> {
    pub(super) fn begin(writes: &'a Writes, log: &'a LogWriter, now: Nanos) -> UnderWay<'a> {
        log.write_begins(now);
        UnderWay { writes, log, begun: now }
    }

    /// The write continues without the caller.
    pub(super) fn leave(self) {
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
    pub(super) fn try_become_leader<'a>(&'a self, log: &'a LogWriter) -> Option<Leader<'a>> {
        log.try_become_leader(self)
    }

    /// Returns whether the record of `ticket` is durable.
    ///
    /// # Errors
    /// If it is not, and commits have stopped: `OutcomeUnknown`, or `Io` if it never will be.
    pub(super) fn is_durable(&self, ticket: Ticket) -> Result<bool> {
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
    pub(super) fn wait(
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
    pub(super) fn lead(&self, log: &LogWriter, csn: Csn) -> bool {
        let Some(leader) = self.try_become_leader(log) else { return false };
        csn <= log.log.durable_csn()
            || self.write_as_leader(&leader, &self.environment.metrics.leader_flushes)
    }

    /// Writes one block of the log that the caller leads, or waits for those in the worker's queue.
    /// Returns false if there was nothing to do.
    pub(super) fn write_as_leader(&self, leader: &Leader<'_>, counter: &Counter) -> bool {
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
    pub(super) fn write_durably(&self, log: &LogWriter, block: SealedBlock, counter: &Counter) {
        if log.unflushed.count() == 0 {
            return self.write_inline(log, block, counter);
        }
        self.write_unflushed(log, block);
        self.flush_written(log);
    }

    /// Writes `block` durably and completes it; a failure poisons.
    pub(super) fn write_inline(&self, log: &LogWriter, block: SealedBlock, counter: &Counter) {
        let _guard = self.failure.guard("a thread writing a log");
        let block = block.finish();
        let begun = self.environment.clock.now();
        let _under_way = UnderWay::begin(self, log, begun);
        self.count_submitted(log, block.len, counter);
        let write = match planted::is(Bug::LogWriteNotDurable) {
            true => File::write_at,
            false => File::write_durable_at,
        };
        let written = write(&*block.file, block.offset, &block.buffer[..block.len]);
        let retry =
            |error| if planted::is(Bug::FailedWriteRetried) { block.file.flush() } else { Err(error) };
        match written.or_else(retry) {
            Ok(()) => self.complete(log, block.sequence, block.buffer, begun),
            Err(error) => self.failure.fail_write(&*block.file, (log.id, block.first_csn), error),
        }
    }

    /// Submits `block`, with the blocks stolen for it, to the queue of `log`'s worker. The caller
    /// leads.
    ///
    /// # Errors
    /// The device's errors.
    pub(super) fn submit(
        &self,
        log: &LogWriter,
        block: SealedBlock,
        stolen: Vec<SealedBlock>,
        now: Nanos,
    ) -> Result<()> {
        let (environment, logs) = (&*self.environment, &self.durability.logs);
        let under_way = UnderWay::begin(self, log, now);
        log.worker_queue.write_begins(block.sequence, now);
        let mut block = block.finish();
        let piggybacked = attach_stolen(environment, logs, &mut block, stolen, now);
        self.count_submitted(log, block.len, &environment.metrics.worker_flushes);
        let SealedBlock { file, offset, buffer, len, sequence, .. } = block;
        if !piggybacked.is_empty() {
            log.piggyback.load(sequence, piggybacked);
        }
        let durable = !planted::is(Bug::LogWriteNotDurable);
        let request = WriteRequest { file, offset, buffer, len, durable, token: sequence };
        let mut is_in_flight = false;
        let submit = |queue: &mut dyn WriteQueue| {
            let before = queue.in_flight();
            let submitted = queue.submit(request);
            is_in_flight = queue.in_flight() > before;
            submitted
        };
        let submitted = log.with_worker_queue(|depth| environment.storage.durable_queue(depth), submit);
        if submitted.is_ok() || is_in_flight {
            // It ends where it is reaped.
            under_way.leave();
        }
        submitted
    }

    /// Completes what the worker's queue has finished; with `wait`, at least one write. The caller
    /// leads. Returns whether there was any.
    pub(super) fn reap(&self, log: &LogWriter, wait: bool) -> bool {
        let mut done = Vec::new();
        let make = |depth| self.environment.storage.durable_queue(depth);
        let reaped = log.with_worker_queue(make, |queue| queue.reap(wait, &mut done));
        if let Err(error) = reaped {
            self.failure.fail(error);
        }
        let any = !done.is_empty();
        self.fail_if_any_failed(&done);
        let now = self.environment.clock.now();
        let begun = |done: &Completion| log.worker_queue.take_begun(done.token).unwrap_or(now);
        let begun: Vec<Nanos> = done.iter().map(begun).collect();
        // First: if one of these panics, the others have ended all the same.
        begun.iter().for_each(|begun| log.write_ends(*begun, now));
        for (Completion { token, buffer, .. }, begun) in done.into_iter().zip(begun) {
            self.complete(log, token, buffer, begun);
            self.complete_piggybacked(log, token, begun);
        }
        any
    }

    /// Poisons if one of these failed, before any of them counts: without direct I/O, the error of
    /// one write may have been reported to another's flush of the same file.
    pub(super) fn fail_if_any_failed(&self, done: &[Completion]) {
        if let Some(error) = done.iter().find_map(|completion| completion.result.as_ref().err()) {
            self.failure.fail(error.duplicate());
        }
    }

    /// Counts a write of `log` that is about to reach the device.
    pub(super) fn count_submitted(&self, log: &LogWriter, bytes: usize, counter: &Counter) {
        self.deadline.write_begins();
        counter.add(1);
        log.count_written(bytes);
        self.environment.metrics.device_writes.add(1);
        self.environment.metrics.device_bytes.add(bytes as u64);
    }

    /// Notes that block `sequence` of `log` is durable.
    pub(super) fn complete(&self, log: &LogWriter, sequence: u64, buffer: AlignedBuffer, begun: Nanos) {
        let now = self.environment.clock.now();
        if self.environment.poison.is_raised() {
            return;
        }
        self.complete_block(log, sequence, Some(buffer), begun, now);
        self.environment.metrics.flushes.add(1);
        self.environment.metrics.flush.record_ns(now.0.saturating_sub(begun.0));
    }

    /// Advances the log's durable CSN and its slot.
    fn complete_block(
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
    pub(super) fn complete_flushed(&self, log: &LogWriter, blocks: &[WrittenBlock], begun: Nanos) {
        let now = self.environment.clock.now();
        let mut latch = log.log.lock();
        if self.environment.poison.is_raised() {
            return;
        }
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

    /// Completes what the write of `helper` called `token`, which is durable, carried for others,
    /// and wakes their waiters. The caller leads.
    fn complete_piggybacked(&self, helper: &LogWriter, token: u64, begun: Nanos) {
        if helper.piggyback.lowest() == Csn::MAX {
            return;
        }
        for Piggybacked { log, sequence, buffer, .. } in helper.piggyback.unload(token) {
            let owner = self.durability.log(log);
            if !self.environment.poison.is_raised() {
                let now = self.environment.clock.now();
                self.complete_block(owner, sequence, buffer, begun, now);
                owner.piggyback_ends(begun, now);
            }
            owner.piggyback.stolen_ended();
            owner.event.notify_all();
        }
        helper.piggyback.completed();
    }

    /// If all that `log` has in flight is carried by others: completes a write of theirs, or sleeps
    /// until a thread that is at it resigns. Returns false if the log has something of its own to
    /// be written or reaped. The caller looks again whether `csn` is durable.
    ///
    /// # Errors
    /// `Timeout`.
    pub(super) fn await_helper(&self, log: &LogWriter, csn: Csn, deadline: Option<Nanos>) -> Result<bool> {
        let Some(helper) = self.helper_of(log) else { return Ok(false) };
        // The ticket first: if the helper's log has a leader then, that leader resigns after it.
        let woken = helper.event.ticket();
        if self.helper_of(log).is_some_and(|still| still.id == helper.id)
            && csn > log.log.durable_csn()
            && !self.environment.poison.is_raised()
            && !self.complete_write_of(helper)
        {
            self.environment.sleep(&helper.event, woken, deadline)?;
        }
        Ok(true)
    }

    /// Completes a write that carries blocks of `log`. Returns false if another thread is at it.
    pub(super) fn complete_helper_write_of(&self, log: &LogWriter) -> bool {
        self.helper_of(log).is_some_and(|helper| self.complete_write_of(helper))
    }

    /// Completes a write that carries a CSN at or below `csn`. Returns false if there is none, or
    /// another thread is at it.
    pub(super) fn complete_helper_write_below(&self, csn: Csn) -> bool {
        let helper = self.helpers().find(|helper| helper.piggyback.lowest() <= csn);
        helper.is_some_and(|helper| self.complete_write_of(helper))
    }

    /// Makes every log due that carries a CSN at or below `csn`. Returns whether there is one.
    pub(super) fn hasten_helpers(&self, csn: Csn) -> bool {
        let mut any = false;
        for helper in self.helpers().filter(|helper| helper.piggyback.lowest() <= csn) {
            helper.flush_request.lower_due(NOW);
            any = true;
        }
        any
    }

    fn helper_of(&self, log: &LogWriter) -> Option<&LogWriter> {
        if log.is_only_piggybacked() { self.helpers().find(|helper| helper.id != log.id) } else { None }
    }

    /// Returns the logs whose writes carry blocks of others at the moment.
    fn helpers(&self) -> impl Iterator<Item = &LogWriter> {
        let logs = if self.neighbours.group() == 1 { &[] } else { &self.durability.logs[..] };
        logs.iter().filter(|log| log.piggyback.lowest() < Csn::MAX)
    }

    /// Waits for a write of `helper`. Returns false if another thread leads it.
    fn complete_write_of(&self, helper: &LogWriter) -> bool {
        let Some(_leader) = self.try_become_leader(helper) else { return false };
        if helper.in_flight() > 0 && self.reap(helper, true) {
            self.acknowledgments.publish();
        }
        true
    }
}
