//! What happens when a write has completed?
//!
//! ```text
//!   complete   (latch) the log's durable CSN advances over the gap-free prefix of blocks; its slot rises    per block
//!   publish    W is scanned once                                                                            per batch
//!   tell       queues are popped as far as records are durable and the dependency rule is content           see below
//!   wake       one system call for all sleepers of a log, one for those who wait for W                      per lead
//! ```
//!
//! Who tells: whoever completed the write (leader); the first flusher, woken for it (background); or workers at the end of a
//! transaction, each for the logs of its group (workers), and the first flusher after a grace period for those that went idle. Threads and futures
//! that wait look for themselves. A committer that finds a queue full tells, whoever should.
//!
//! **False waits.** A transaction is *held up* if its record is durable and the rule makes it wait. It waits *falsely* if, at that moment,
//! all its direct predecessors that were open when it met them are committed by the same rule, and so their predecessors
//! too: exact dependencies would let it go. Not counted as false: one with more predecessors than are told apart, and one whose
//! predecessor itself waits falsely. So the count is a lower bound.
//!
//! Nothing is popped here once the room is poisoned: what was durable before stays acknowledged, also if W is only then looked at that says so;
//! the rest is unknown.

use super::flusher::GRACE;
use super::metrics::Moments;
use super::precommit::Pending;
use super::queue::{Entry, Predecessors};
use super::writer::LogWriter;
use super::{Core, Ticket, levels};
use crate::base::clock::Nanos;
use crate::base::metrics::Counter;
use crate::base::planted::{self, Bug};
use crate::base::settings::{Acknowledger, Dependency};
use crate::base::{Csn, Error, LogId};
use crate::device::AlignedBuffer;
use crate::sync::atomic::Ordering;

/// Entries popped and counted at a time: bounds the memory of one acknowledgment.
const BATCH: usize = 256;

/// What [`Core::acknowledge`] did.
struct Acknowledgment {
    any: bool,
    /// A transaction is left whose record is durable and that needs a higher W.
    blocked: bool,
}

impl Core {
    /// Block `sequence` of `writer` is durable.
    pub(super) fn complete(&self, writer: &LogWriter, sequence: u64, buffer: AlignedBuffer, begun: Nanos) {
        let now = self.clock.now();
        if self.poison.is_raised() {
            return;
        }
        self.complete_block(writer, sequence, Some(buffer), begun, now);
        self.metrics.flushes.add(1);
        self.metrics.flush.record_ns(now.0.saturating_sub(begun.0));
    }

    /// The log's durable CSN and its slot follow.
    pub(super) fn complete_block(
        &self,
        writer: &LogWriter,
        sequence: u64,
        buffer: Option<AlignedBuffer>,
        begun: Nanos,
        now: Nanos,
    ) {
        let mut latch = writer.log.lock();
        buffer.into_iter().for_each(|buffer| latch.give_back(buffer));
        if self.poison.is_raised() {
            // Who had the latch may have left a record half in the log.
            return;
        }
        latch.complete(sequence);
        self.settle(writer, &latch);
        writer.cohort.released(begun, now, &latch);
        drop(latch);
        self.completions.fetch_add(1, Ordering::SeqCst);
    }

    /// A write is on its way to the device.
    pub(super) fn count_submitted(&self, bytes: usize, counter: &Counter) {
        self.deadline.write_begins();
        counter.add(1);
        self.metrics.device_writes.add(1);
        self.metrics.device_bytes.add(bytes as u64);
    }

    /// After completions: scans W, and sees to it that whoever is committed by now is acknowledged.
    pub(super) fn publish(&self) {
        if self.poison.is_raised() {
            return;
        }
        let w = self.rescan();
        self.acknowledged_up_to(Csn(w.0 - 1));
        match self.axes.acknowledger {
            Acknowledger::Leader => {
                self.acknowledge_all(true);
            }
            Acknowledger::Background => self.schedule_acknowledgment(levels::NOW),
            Acknowledger::Workers => self.schedule_acknowledgment(levels::after(self.clock.now(), GRACE)),
        }
        self.wakers.wake(|ticket| self.is_committed_ticket(ticket));
    }

    /// Has the first flusher acknowledge at `due` what is left by then.
    pub(super) fn schedule_acknowledgment(&self, due: Nanos) {
        if self.writers.iter().any(LogWriter::has_pending) {
            self.acknowledge_due.fetch_min(due.0, Ordering::SeqCst);
            self.flushers[0].wake_for(due);
        }
    }

    pub(super) fn acknowledge_due(&self) -> Nanos {
        Nanos(self.acknowledge_due.load(Ordering::SeqCst))
    }

    /// Acknowledges what was left to the first flusher. What completes from now on is left to it anew.
    pub(super) fn acknowledge_overdue(&self) {
        self.acknowledge_due.store(levels::NEVER.0, Ordering::SeqCst);
        // Not everybody who makes W rise has it computed.
        self.rescan();
        if self.acknowledge_all(true) {
            // A committer may have waited for room.
            self.progress.notify_all();
        }
        self.wakers.wake(|ticket| self.is_committed_ticket(ticket));
    }

    /// Acknowledges whoever is committed, in all logs. True if there was anybody. Without `wait` queues are left out from which somebody
    /// else pops.
    pub(super) fn acknowledge_all(&self, wait: bool) -> bool {
        self.acknowledge_logs(&self.writers, wait)
    }

    /// The same for the logs of `log`'s acknowledgment group.
    pub(super) fn acknowledge_group(&self, log: LogId) -> bool {
        let group = self.axes.acknowledgment_group;
        let first = log.0 as usize / group * group;
        let last = self.writers.len().min(first + group);
        // Whoever is committed now and was not the last time became so because one of the two has risen.
        let (completions, w) = (self.completions.load(Ordering::SeqCst), self.watermark.get().0);
        let others = match self.axes.lists_predecessors() {
            true => completions,
            // A fragment in another log.
            false if self.is_by_page() => w.wrapping_add(completions),
            false => w,
        };
        let has_news = |writer: &LogWriter| writer.has_pending() && writer.has_changed(others);
        self.writers[first..last].iter().any(has_news)
            && self.acknowledge_logs(&self.writers[first..last], false)
    }

    fn acknowledge_logs(&self, writers: &[LogWriter], wait: bool) -> bool {
        let mut any = false;
        loop {
            let w = self.watermark.get();
            let mut blocked = false;
            for writer in writers.iter().filter(|writer| writer.has_pending()) {
                let told = self.acknowledge(writer, w, wait);
                any |= told.any;
                blocked |= told.blocked;
            }
            if blocked && self.clocks.is_some() {
                // A record with a higher CSN can have a lower GSN.
                self.writers[0].flush_request.require_watermark(self.watermark.newest_drawn());
            }
            if !blocked {
                return any;
            }
            match self.needed() {
                // Somebody asynchronous waits for another log's CSN: the flushers know how to get it.
                Some(needed) => self.wake_flushers_behind(needed),
                // W has risen meanwhile, and nobody may have reason to look again.
                None if self.watermark.get() != w => continue,
                None => {}
            }
            return any;
        }
    }

    /// Pops committed transactions of `writer`'s queue.
    fn acknowledge(&self, writer: &LogWriter, w: Csn, wait: bool) -> Acknowledgment {
        let mut told = Acknowledgment { any: false, blocked: false };
        self.acknowledge_out_of_order(writer, w, wait, &mut told);
        let mut moments = Vec::with_capacity(BATCH);
        loop {
            let durable = writer.log.durable_csn();
            let durable = if planted::is(Bug::QueueTellsEarly) { durable.next() } else { durable };
            let (write, committed) = (writer.last_write(), self.clock.now());
            let mut newest = Csn::ZERO;
            let popped = writer.queue.pop_while(
                wait,
                |entry| {
                    let hardened = entry.csn <= durable;
                    if moments.len() == BATCH || !hardened || self.poison.is_raised() {
                        return false;
                    }
                    if !self.are_dependencies_satisfied(&entry, w) {
                        told.blocked = true;
                        return self.put_aside(writer, entry);
                    }
                    self.mark_committed(entry.csn);
                    newest = newest.max(entry.csn);
                    let Entry { begun, ready, .. } = entry;
                    moments.push(Moments { begun, ready, write, committed, wrote: entry.csn != Csn::ZERO });
                    true
                },
                |entry| {
                    let hardened = entry.csn <= durable;
                    if hardened && !self.are_dependencies_satisfied(&entry, w) {
                        self.count_held_up_entry(&entry);
                    }
                    // W never falls: one that is not held up now, but only behind others, never will be.
                    hardened
                },
            );
            self.acknowledged_up_to(newest);
            self.metrics.count_committed(&moments);
            told.any |= popped.is_some_and(|popped| popped.count > 0);
            if moments.len() < BATCH {
                return told;
            }
            moments.clear();
        }
    }

    /// Lets those behind `entry` pass, which is held up, if that is worth it.
    fn put_aside(&self, writer: &LogWriter, entry: Entry) -> bool {
        let passed = self.axes.dependency == Dependency::Exact && writer.out_of_order.put(entry);
        if passed {
            self.count_held_up_entry(&entry);
        }
        passed
    }

    /// Acknowledges those that let others pass and that are committed now.
    fn acknowledge_out_of_order(&self, writer: &LogWriter, w: Csn, wait: bool, told: &mut Acknowledgment) {
        let (write, committed) = (writer.last_write(), self.clock.now());
        let mut moments = Vec::new();
        writer.out_of_order.take(wait, |entry| {
            if self.poison.is_raised() || !self.are_dependencies_satisfied(entry, w) {
                told.blocked = true;
                return false;
            }
            self.acknowledged_up_to(entry.csn);
            let Entry { begun, ready, .. } = *entry;
            moments.push(Moments { begun, ready, write, committed, wrote: entry.csn != Csn::ZERO });
            true
        });
        self.metrics.count_committed(&moments);
        told.any |= !moments.is_empty();
    }

    /// The record of a transaction is durable, and the dependency rule has held it up: counts that, and whether it need not have been. It
    /// is counted once.
    pub(super) fn count_held_up(
        &self,
        csn: Csn,
        predecessors: &Predecessors,
        is_satisfied: impl FnOnce() -> bool,
    ) {
        if !self.has_durable_fragments(csn) {
            return;
        }
        self.metrics.rule_waits.add(1);
        // In this order: what the rule waited for may have come since it was asked.
        if self.is_exactly_committed(csn, predecessors) && !is_satisfied() {
            self.metrics.false_waits.add(1);
        }
    }

    fn count_held_up_entry(&self, entry: &Entry) {
        let is_satisfied = || self.are_dependencies_satisfied(entry, self.watermark.get());
        self.count_held_up(entry.csn, &entry.predecessors, is_satisfied);
    }

    /// The same for a transaction that a thread waits with.
    pub(super) fn count_rule_wait(&self, ticket: Ticket, pending: &Pending) {
        if !self.is_committed_ticket(ticket) {
            self.count_held_up(ticket.csn, &pending.predecessors, || {
                self.are_ticket_dependencies_satisfied(ticket)
            });
        }
    }

    /// Remembers that `csn` is committed by the rule in force, for those above W.
    pub(super) fn mark_committed(&self, csn: Csn) {
        // By the other rules whoever asked has marked what there was to find out; what else is known says enough.
        if !self.axes.lists_predecessors() {
            self.watermark.mark_committed(csn);
        }
    }

    /// Counts a transaction that its own thread acknowledges.
    pub(super) fn count_one(&self, writer: &LogWriter, pending: Pending, wrote: bool) {
        let Pending { begun, ready, .. } = pending;
        let (write, committed) = (writer.last_write(), self.clock.now());
        self.metrics.count_committed(&[Moments { begun, ready, write, committed, wrote }]);
    }

    /// Somebody was or may be told that `csn` is committed.
    pub(super) fn acknowledged_up_to(&self, csn: Csn) {
        if csn.0 > self.acknowledged.load(Ordering::Relaxed) {
            self.acknowledged.fetch_max(csn.0, Ordering::SeqCst);
        }
    }

    pub(super) fn newest_acknowledged(&self) -> Csn {
        let mut newest = Csn(self.acknowledged.load(Ordering::SeqCst));
        if !planted::is(Bug::FlushNotAcknowledged) {
            // It may have been told by whoever looked at W, though whoever wrote it has not come to acknowledging it.
            newest = newest.max(self.watermark.newest_settled());
        }
        if self.returned_early.load(Ordering::SeqCst) {
            newest = self.writers.iter().map(|w| w.flush_request.acknowledged_early()).fold(newest, Csn::max);
        }
        newest
    }

    /// Wakes whoever waits for `writer` or for W, where no lead does it.
    pub(super) fn wake_waiters(&self, writer: &LogWriter) {
        let woke = u64::from(writer.event.notify_all()) + u64::from(self.progress.notify_all());
        self.metrics.wake_ups.add(woke);
    }

    /// A write or flush failed: nothing is acknowledged from here on, and everybody is told.
    pub(super) fn fail(&self, error: Error) {
        self.poison.raise(error);
        self.wake_all();
        if self.poison.take_unreported() {
            tracing::error!(cause = %self.poison.error(crate::base::ErrorKind::Poisoned), "commits stop");
        }
    }

    pub(super) fn wake_all(&self) {
        for writer in &self.writers {
            writer.event.notify_all();
            writer.full.notify_all();
        }
        self.progress.notify_all();
        self.space.notify_all();
        self.wake_flushers();
        self.wakers.wake(|_| true);
    }
}
