//! How does a waiter cause the writes it needs? Leader/follower, or by asking the flusher.
//!
//! A waiter needs two things, in this order: its own record durable, and W above what the dependency rule says.
//!
//! ```text
//!   own log:      durable? -- no -- lead free? -- yes: write what there is, look again
//!                                       \-- no: sleep until the leader is done, look again
//!   other logs:   W there? -- no -- one log behind: lead it        \
//!                                   several: the flusher, at once   } look again
//! ```
//!
//! A leader takes everything that was appended until it seals the block; who comes later finds the lead taken, sleeps,
//! and is woken with all others by one system call. Whoever is then not covered races for the lead. A batch is whoever arrived during
//! the previous write and, where that pays, whoever that write released and comes back (`cohort`). The other logs a waiter depends on are started before its own write,
//! so that the writes run side by side.
//!
//! Where committers do not write, each of these questions ends with the log being due, the flusher awake, and the waiter asleep. So it is
//! with `auto` while more than [`LEADER_WAITERS_MAX`] threads for each processor wait: a leader has work of its own when its write is done, and gets to
//! the next one late.
//!
//! Nobody is stranded: a waiter takes its event ticket before it looks, and a leader gives up the lead before it
//! notifies (see `writer.rs`).

use super::levels::{self, NOW};
use super::precommit::Pending;
use super::presets::Axes;
use super::threads::PoisonOnPanic;
use super::writer::{Leader, LeaderObserver, LogWriter};
use super::{Core, Ticket};
use crate::base::clock::Nanos;
use crate::base::metrics::Counter;
use crate::base::planted::{self, Bug};
use crate::base::settings::{Durability, Writer};
use crate::base::{Csn, Error, ErrorKind, Result};
use crate::device::File;
use crate::log::SealedBlock;
use crate::sync::{Event, event, thread};

/// Threads that wait, for each processor, from which on a thread that does nothing but write does better. Measured, see `docs/performance.md`.
const LEADER_WAITERS_MAX: usize = if cfg!(feature = "simulation") { 1 } else { 16 };

/// How many may wait for a log of these axes before they leave writing to its flusher.
pub(super) fn max_leader_waiters(axes: &Axes) -> usize {
    if axes.delegates_when_crowded { LEADER_WAITERS_MAX * thread::processors() } else { usize::MAX }
}

impl Core {
    pub(super) fn finish(&self, ticket: Ticket, pending: Pending) -> Result<()> {
        self.await_own(ticket, self.axes.await_company, None)?;
        self.count_rule_wait(ticket, &pending);
        self.await_others(ticket, None)?;
        self.count_one(self.writer(ticket.log), pending, true);
        Ok(())
    }

    pub(super) fn finish_read_only(&self, pending: Pending) -> Result<()> {
        if pending.durability == Durability::Durable {
            match pending.predecessors.all() {
                _ if planted::is(Bug::ReaderNotAwaited) => {}
                Some(read) if self.axes.lists_predecessors() => {
                    read.iter().try_for_each(|csn| self.await_version(*csn))?;
                }
                _ => self.await_settled(pending.dsn, ErrorKind::Poisoned, None)?,
            }
        }
        // Its caller knows what it read: whoever begins after that has to see it, too, though its own committer may not have been told.
        self.acknowledged_up_to(pending.dsn);
        if pending.durability == Durability::Durable {
            self.count_one(&self.writers[0], pending, false);
        }
        Ok(())
    }

    pub(super) fn is_committed_ticket(&self, ticket: Ticket) -> bool {
        let committed = self.is_hardened(ticket) && self.are_ticket_dependencies_satisfied(ticket);
        if committed {
            // Before anybody is told, because whoever begins after that has to find it acknowledged (rule 10).
            self.mark_committed(ticket.csn);
            self.acknowledged_up_to(ticket.csn);
        }
        committed
    }

    fn is_hardened(&self, ticket: Ticket) -> bool {
        ticket.csn <= self.writer(ticket.log).log.durable_csn() || planted::is(Bug::AcknowledgedBeforeFlush)
    }

    pub(super) fn await_committed(&self, ticket: Ticket, deadline: Option<Nanos>) -> Result<()> {
        self.await_own(ticket, false, deadline)?;
        self.await_others(ticket, deadline)
    }

    /// Waits until its own record is durable; with `cohort` others may come before it is written.
    fn await_own(&self, ticket: Ticket, cohort: bool, deadline: Option<Nanos>) -> Result<()> {
        self.demand_others(ticket);
        self.await_durable(ticket, cohort, deadline)
    }

    /// Waits until the dependency rule is content.
    fn await_others(&self, ticket: Ticket, deadline: Option<Nanos>) -> Result<()> {
        if !self.is_committed_ticket(ticket) {
            let done = || self.is_committed_ticket(ticket);
            self.await_progress(ErrorKind::OutcomeUnknown, deadline, &done, &|| self.advance_others(ticket))?;
        }
        Ok(())
    }

    fn await_durable(&self, ticket: Ticket, cohort: bool, deadline: Option<Nanos>) -> Result<()> {
        let writer = self.writer(ticket.log);
        loop {
            let woken = writer.event.ticket();
            if self.is_hardened(ticket) {
                return Ok(());
            }
            if self.poison.is_raised() {
                return Err(self.poison.error(ErrorKind::OutcomeUnknown));
            }
            if self.await_helper(writer, ticket.csn, deadline)? {
                continue;
            }
            if cohort
                && !self.delegates_to_flusher(writer)
                && let Some(is_timekeeper) = writer.cohort.is_timekeeper(ticket.csn)
                && let Some(until) = self.cohort_expected_until(writer)
            {
                // One keeps the time; the last to arrive leads, and wakes the others when all is written.
                writer.event.wait(woken, is_timekeeper.then(|| until.since(self.clock.now())));
                self.metrics.sleeps.add(1);
                continue;
            }
            let by = if self.axes.waiters_keep_interval {
                levels::after(writer.last_write().0, self.axes.flush_interval)
            } else {
                NOW
            };
            // A log that others carry has no lead to wait for: look who has.
            if !self.advance(writer, ticket.csn, by) && !writer.is_only_piggybacked() {
                self.sleep(&writer.event, woken, deadline)?;
            }
        }
    }

    /// Until when a committer lets others come. It is about the next block: while somebody writes there is nothing to decide,
    /// and a block that is full waits for nobody.
    pub(super) fn cohort_expected_until(&self, writer: &LogWriter) -> Option<Nanos> {
        if writer.has_leader() || writer.has_sealed() {
            return None;
        }
        writer.cohort.expected_until(self.clock.now())
    }

    /// Waits until W is above `csn`, and causes the writes this needs.
    pub(super) fn await_settled(&self, csn: Csn, kind: ErrorKind, deadline: Option<Nanos>) -> Result<()> {
        self.await_progress(kind, deadline, &|| csn < self.watermark.get(), &|| self.advance_logs(csn))
    }

    pub(super) fn flush_all(&self) -> Result<()> {
        self.await_settled(self.watermark.newest_drawn(), ErrorKind::Poisoned, None)?;
        self.poison.check()
    }

    /// Waits until `csn`, whose version somebody read, is committed.
    pub(super) fn await_version(&self, csn: Csn) -> Result<()> {
        if self.is_committed(csn) {
            return Ok(());
        }
        if csn > self.watermark.newest_drawn() {
            return Err(Error::invalid("waits for a transaction that does not exist"));
        }
        let done = || self.is_committed(csn);
        self.await_progress(ErrorKind::Poisoned, None, &done, &|| self.advance_commit(csn))
    }

    fn await_progress(
        &self,
        kind: ErrorKind,
        deadline: Option<Nanos>,
        done: &dyn Fn() -> bool,
        advance: &dyn Fn() -> bool,
    ) -> Result<()> {
        loop {
            let woken = self.progress.ticket();
            if done() {
                return Ok(());
            }
            // W may be out of date: it is computed once per write, by whoever wrote, and not after a failure.
            self.rescan();
            if done() {
                return Ok(());
            }
            if self.poison.is_raised() {
                return Err(self.poison.error(kind));
            }
            if !advance() {
                self.sleep(&self.progress, woken, deadline)?;
            }
        }
    }

    pub(super) fn sleep(&self, event: &Event, woken: event::Ticket, deadline: Option<Nanos>) -> Result<()> {
        let timeout = match deadline.map(|d| d.since(self.clock.now())) {
            Some(left) if left.is_zero() => {
                return Err(Error::new(ErrorKind::Timeout, "the commit is not durable yet"));
            }
            timeout => timeout,
        };
        event.wait(woken, timeout);
        self.metrics.sleeps.add(1);
        Ok(())
    }

    /// Does something to make `csn` of `writer` durable; has it done at `by` where others write. False if others are at it.
    pub(super) fn advance(&self, writer: &LogWriter, csn: Csn, by: Nanos) -> bool {
        if self.is_passive() && csn > writer.log.durable_csn() {
            self.drain(std::iter::once(writer));
            if csn <= writer.log.durable_csn() {
                return true;
            }
        }
        if self.delegates_to_flusher(writer) && self.flushers_run() {
            self.have_written(writer, by);
            return false;
        }
        if self.axes.writer == Writer::Committer {
            let Some(block) = writer.take_block_for(csn) else { return false };
            self.write_inline(writer, block, &self.metrics.leader_flushes);
            self.publish();
            self.wake_waiters(writer);
            return true;
        }
        if writer.is_only_piggybacked() {
            return self.complete_helper_write_of(writer);
        }
        let Some(lead) = writer.try_become_leader(self) else { return false };
        if csn <= writer.log.durable_csn() {
            return true;
        }
        self.gather(writer);
        self.write_as_leader(&lead, &self.metrics.leader_flushes)
    }

    /// Whether those who wait for `writer` leave writing it to its flusher.
    pub(super) fn delegates_to_flusher(&self, writer: &LogWriter) -> bool {
        !self.axes.waiters_write() || writer.cohort.size() > self.max_leader_waiters
    }

    /// Has `writer`'s flusher write it at `by`, unless it does so earlier.
    pub(super) fn have_written(&self, writer: &LogWriter, by: Nanos) {
        writer.flush_request.lower_due(by);
        self.flusher_of(writer).wake_for(by);
    }

    /// Does something to get W past `csn`. False if others are at it.
    pub(super) fn advance_logs(&self, csn: Csn) -> bool {
        if self.is_passive() && self.drain_behind(csn) {
            return true;
        }
        let is_behind = |w: &&LogWriter| self.watermark.holds_back(w.id, csn) && !w.is_only_piggybacked();
        let mut behind = self.writers.iter().filter(is_behind);
        // Who had announced itself below has drawn above since, or did so while its latch was waited for, and wakes nobody for that: looked at
        // again, W may have passed.
        let Some(first) = behind.next() else {
            return csn < self.rescan() || self.complete_helper_write_below(csn);
        };
        if self.flushers_run() && behind.next().is_some() {
            // Side by side instead of one after the other.
            self.demand(csn, None);
            // They may have drawn above meanwhile, too.
            return csn < self.rescan();
        }
        self.advance(first, csn, NOW) || csn < self.rescan()
    }

    /// Has the flusher write, now, every log that holds W back at or below `csn`, except the one of `own`, whose
    /// committer sees to it.
    pub(super) fn demand(&self, csn: Csn, own: Option<Ticket>) {
        let mut demanded = self.hasten_helpers(csn);
        for writer in self.writers.iter().filter(|w| own.is_none_or(|own| own.log != w.id)) {
            if self.watermark.holds_back(writer.id, csn) {
                writer.flush_request.lower_due(NOW);
                demanded = true;
            }
        }
        if demanded {
            self.wake_flushers_behind(csn);
        }
    }

    /// Gives followers time to arrive, if the settings say so and if there are any.
    fn gather(&self, writer: &LogWriter) {
        let Some(gather) = self.axes.gather else { return };
        // Those that commit as well, or have just been told, are not in progress, but they count.
        let others = (self.hooks.in_progress)().saturating_add(writer.cohort.others());
        if others < gather.siblings {
            return;
        }
        let until = levels::after(self.clock.now(), gather.window);
        loop {
            let full = writer.full.ticket();
            let left = until.since(self.clock.now());
            if left.is_zero() || writer.has_sealed() || self.poison.is_raised() {
                return;
            }
            writer.full.wait(full, Some(left));
        }
    }

    /// Writes one block of the log that the caller leads, or sees to those in the worker's queue. False if there was
    /// nothing to do.
    pub(super) fn write_as_leader(&self, lead: &Leader<'_>, counter: &Counter) -> bool {
        let writer = lead.writer();
        let wrote = match writer.take_block() {
            Some(block) => {
                self.write_inline(writer, block, counter);
                true
            }
            None => writer.in_flight() > 0 && self.reap(writer, true),
        };
        if wrote {
            self.publish();
        }
        wrote
    }

    /// Writes `block` durably and completes it; a failure poisons the room.
    pub(super) fn write_inline(&self, writer: &LogWriter, block: SealedBlock, counter: &Counter) {
        // Where there is no lead that would tell, either.
        let _inside = PoisonOnPanic::new(self, "who wrote a log");
        let block = block.finish();
        let begun = self.clock.now();
        let _under_way = UnderWay::begin(self, writer, begun);
        self.count_submitted(block.len, counter);
        let write = match planted::is(Bug::LogWriteNotDurable) {
            true => File::write_at,
            false => File::write_durable_at,
        };
        let written = write(&*block.file, block.offset, &block.buffer[..block.len]);
        let retry =
            |error| if planted::is(Bug::FailedWriteRetried) { block.file.flush() } else { Err(error) };
        match written.or_else(retry) {
            Ok(()) => self.complete(writer, block.sequence, block.buffer, begun),
            Err(error) => self.fail(error),
        }
    }
}

/// A write of a log, which ends when this is dropped: whether it came to its end, failed, or panicked, nobody need wait for it any more.
pub(super) struct UnderWay<'a>(&'a Core, &'a LogWriter);

impl<'a> UnderWay<'a> {
    pub(super) fn begin(core: &'a Core, writer: &'a LogWriter, now: Nanos) -> UnderWay<'a> {
        writer.write_begins(now);
        UnderWay(core, writer)
    }

    /// It goes on without the caller.
    pub(super) fn leave(self) {
        std::mem::forget(self);
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.1.write_ended(self.0.clock.now());
    }
}

impl LeaderObserver for Core {
    fn leader_resigned(&self, writer: &LogWriter, woke: bool, panicked: bool) {
        if panicked {
            self.panicked("a thread that wrote the log");
        }
        let woke_others = self.progress.notify_all();
        self.metrics.wake_ups.add(u64::from(woke) + u64::from(woke_others));
        // The flusher does not plan for a log that somebody else leads: what is left there is planned for now.
        let due = self.effective_due(writer, self.needed());
        if due != levels::NEVER {
            self.flusher_of(writer).wake_for(due);
        }
    }
}
