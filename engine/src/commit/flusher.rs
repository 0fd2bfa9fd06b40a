//! Who writes when nobody waits, and where committers only sleep? One thread for all logs, or one for each, asleep whenever nothing is due.
//!
//! ```text
//!   running --- nothing due ---> plan: wakes_at := never; look at all logs; wakes_at := earliest due time
//!      ^                                        |
//!      |                                        v
//!      +---- due time, or an earlier one ---- asleep until wakes_at
//! ```
//!
//! While it runs `wakes_at` is zero and handing over costs a committer one load. While it sleeps a committer wakes it
//! only if it made some log due before `wakes_at`; only the first to see that pays the system call.
//!
//! No due time is missed. A committer lowers `due`, then loads `wakes_at`; the flusher stores `wakes_at`, then loads all
//! `due`. All four are sequentially consistent, so one of the two sees the other. A log that somebody leads is
//! left out of the plan: whoever gives up the lead looks at what is left and wakes the flusher (`Leader`).
//!
//! One round seals every log that is due, or due within a pace, writes the blocks side by side through one queue,
//! and acknowledges as completions arrive. Where acknowledging is left to it, or by workers that went idle, the first flusher does that
//! too, at `acknowledge_due`: the same two steps apply. An idle database has nothing due: the thread sleeps without a timeout.

use super::leader::UnderWay;
use super::levels::{self, NEVER, NOW, PACE};
use super::threads::PoisonOnPanic;
use super::writer::{Leader, LogWriter};
use super::{Core, Csn};
use crate::base::clock::Nanos;
use crate::base::settings::Writer;
use crate::base::{Error, ErrorKind, Result};
use crate::device::{Completion, File, WriteQueue, WriteRequest};
use crate::log::SealedBlock;
use crate::sync::Event;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// Where workers write for themselves: how long after its due time a log counts as left by its worker.
pub(super) const GRACE: Duration = Duration::from_millis(1);
/// Writes in flight at a time.
const WRITES: usize = 64;
const RUNNING: u64 = 0;

/// What others know of a flusher thread.
#[derive(Debug)]
pub(super) struct Flusher {
    event: Event,
    /// When it will look again; zero while it runs. Stored by the thread, and zeroed by whoever wakes it.
    wakes_at: AtomicU64,
    stop: AtomicBool,
    alive: AtomicBool,
}

impl Flusher {
    pub(super) fn new() -> Flusher {
        let (wakes_at, stop) = (AtomicU64::new(RUNNING), AtomicBool::new(false));
        Flusher { event: Event::new(), wakes_at, stop, alive: AtomicBool::new(false) }
    }

    /// Wakes the thread if it would sleep past `due`.
    pub(super) fn wake_for(&self, due: Nanos) {
        if self.wakes_at.load(Ordering::SeqCst) > due.0
            && self.wakes_at.swap(RUNNING, Ordering::SeqCst) != RUNNING
        {
            self.event.notify_all();
        }
    }

    /// Ends the thread after its round.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.event.notify_all();
    }

    /// Its thread is about to be started.
    pub(super) fn begins(&self) {
        self.alive.store(true, Ordering::SeqCst);
    }

    /// Its thread ends, or could not be started.
    pub(super) fn ends(&self) {
        self.alive.store(false, Ordering::SeqCst);
    }

    /// Its thread has ended, or there is none.
    pub(super) fn has_ended(&self) -> bool {
        !self.alive.load(Ordering::SeqCst)
    }

    /// False once it was told to stop: waiters then write for themselves.
    pub(super) fn is_running(&self) -> bool {
        !self.stop.load(Ordering::SeqCst)
    }
}

/// Says when the thread of a flusher has ended, however it does.
struct Running<'a>(&'a Core, usize);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.flushers[self.1].ends();
        self.0.deadline.over().notify_all();
    }
}

/// A block on its way, and the right to write it.
struct Flight<'a> {
    // Before the lead is let go, which wakes others.
    under_way: UnderWay<'a>,
    lead: Leader<'a>,
    sequence: u64,
    file: Arc<dyn File>,
}

impl Core {
    /// The thread.
    pub(super) fn run_flusher(&self, number: usize) {
        let _running = Running(self, number);
        // Nobody would keep its promises.
        let _alive = PoisonOnPanic::new(self, "the flusher thread");
        let mut queue = None;
        while self.flushers[number].is_running() {
            let now = self.clock.now();
            if self.poison.is_raised() {
                self.sleep_until_due(number, now);
            } else if number == 0 && self.acknowledge_due() <= now {
                self.acknowledge_overdue();
            } else if self.earliest_due(number) <= now {
                self.write_round(number, &mut queue, now);
            } else {
                self.sleep_until_due(number, now);
            }
        }
    }

    fn sleep_until_due(&self, number: usize, now: Nanos) {
        let flusher = &self.flushers[number];
        let woken = flusher.event.ticket();
        flusher.wakes_at.store(NEVER.0, Ordering::SeqCst);
        let due = match self.poison.is_raised() {
            true => NEVER,
            false => self.earliest_due(number),
        };
        if due > now && flusher.is_running() {
            flusher.wakes_at.store(due.0, Ordering::SeqCst);
            flusher.event.wait(woken, (due != NEVER).then(|| due.since(now)));
            self.metrics.flusher_wake_ups.add(1);
        }
        flusher.wakes_at.store(RUNNING, Ordering::SeqCst);
    }

    /// The logs that flusher `number` writes.
    pub(super) fn served_by(&self, number: usize) -> impl Iterator<Item = &LogWriter> {
        self.writers.iter().skip(number).step_by(self.flushers.len())
    }

    fn earliest_due(&self, number: usize) -> Nanos {
        let needed = self.needed();
        let due = |writer: &LogWriter| {
            self.effective_due(writer, needed).min(writer.flush_request.requirement_due())
        };
        let write = self.served_by(number).map(due).min().unwrap_or(NEVER);
        if number == 0 { write.min(self.acknowledge_due()) } else { write }
    }

    /// When the flusher has to write `writer`'s log, by what was handed over and by what other logs wait for (`needed`).
    pub(super) fn effective_due(&self, writer: &LogWriter, needed: Option<Csn>) -> Nanos {
        let in_flight = writer.in_flight() > 0;
        if writer.has_leader() || !(in_flight || writer.has_unwritten()) {
            return NEVER;
        }
        let began = writer.last_write().0;
        let mut due = writer.flush_request.due();
        if self.axes.writer == Writer::Worker && due != NOW && due != NEVER {
            due = levels::after(due, GRACE);
        }
        if in_flight {
            due = due.min(levels::after(began, GRACE));
        }
        if needed.is_some_and(|csn| self.watermark.holds_back(writer.id, csn)) {
            due = due.min(levels::after(began, self.interval(writer).min(PACE)));
        }
        // Where committers only sleep it is the flusher that lets others come.
        if due != NEVER && self.axes.await_company && self.delegates_to_flusher(writer) {
            due = due.max(self.cohort_expected_until(writer).unwrap_or(NOW));
        }
        due
    }

    /// The highest CSN at or above W that an asynchronous transaction waits for.
    pub(super) fn needed(&self) -> Option<Csn> {
        let w = self.watermark.get();
        let waiting = self.writers.iter().filter(|writer| writer.has_pending());
        waiting.map(|writer| writer.flush_request.required_watermark()).max().filter(|csn| *csn >= w)
    }

    /// Writes every log of flusher `number` that is due.
    fn write_round(&self, number: usize, queue: &mut Option<Box<dyn WriteQueue>>, now: Nanos) {
        let horizon = levels::after(now, PACE);
        let begin_to_need = self
            .served_by(number)
            .filter(|writer| writer.flush_request.take_due_requirement(horizon))
            .count();
        let (mut blocks, needed) = (Vec::new(), self.needed());
        if begin_to_need > 0
            && let Some(needed) = needed
        {
            // Logs of other flushers, too.
            self.wake_flushers_behind(needed);
        }
        if self.is_passive() {
            self.drain_due(number, horizon, needed);
        }
        for writer in self.served_by(number).filter(|w| self.effective_due(w, needed) <= horizon) {
            let Some(lead) = writer.try_become_leader(self) else { continue };
            match writer.take_block() {
                Some(block) => blocks.push((lead, block)),
                None if writer.in_flight() > 0 && self.reap(writer, true) => self.publish(),
                None => {}
            }
        }
        if blocks.len() == 1 {
            for (lead, block) in blocks {
                self.write_inline(lead.writer(), block, &self.metrics.flusher_flushes);
                self.publish();
            }
        } else if !blocks.is_empty() {
            self.write_in_parallel(queue, blocks);
        }
    }

    fn write_in_parallel<'a>(
        &'a self,
        queue: &mut Option<Box<dyn WriteQueue>>,
        blocks: Vec<(Leader<'a>, SealedBlock)>,
    ) {
        let queue = match queue {
            Some(queue) => queue,
            None => match self.storage.write_queue(WRITES) {
                Ok(new) => queue.insert(new),
                Err(error) => return self.fail(error),
            },
        };
        let mut flights = Vec::with_capacity(blocks.len());
        if let Err(error) = self.fly(&mut **queue, blocks, &mut flights) {
            self.fail(error);
            let mut done = Vec::new();
            while queue.in_flight() > 0 && queue.reap(true, &mut done).is_ok() {}
            if queue.in_flight() > 0 {
                // They may hang.
                flights.into_iter().flatten().for_each(|flight| flight.under_way.leave());
            }
        }
    }

    fn fly<'a>(
        &'a self,
        queue: &mut dyn WriteQueue,
        blocks: Vec<(Leader<'a>, SealedBlock)>,
        flights: &mut Vec<Option<Flight<'a>>>,
    ) -> Result<()> {
        let (begun, count) = (self.clock.now(), blocks.len());
        let shared = self.sharing.decide(count);
        for (lead, block) in blocks {
            let under_way = UnderWay::begin(self, lead.writer(), begun);
            self.count_submitted(block.len, &self.metrics.flusher_flushes);
            let SealedBlock { file, offset, buffer, len, sequence, .. } = block.finish();
            let token = flights.len() as u64;
            flights.push(Some(Flight { under_way, lead, sequence, file: file.clone() }));
            queue.submit(WriteRequest { file, offset, buffer, len, durable: !shared, token })?;
        }
        let (mut done, mut took) = (Vec::with_capacity(count), Duration::ZERO);
        while queue.in_flight() > 0 {
            queue.reap(true, &mut done)?;
            if !shared {
                took += self.clock.now().since(begun) * done.len() as u32;
                self.land(flights, &mut done, begun);
            }
        }
        if shared {
            self.flush_together(flights, &done)?;
            took = self.clock.now().since(begun) * count as u32;
            self.land(flights, &mut done, begun);
        }
        self.sharing.note(count, shared, took / count as u32);
        Ok(())
    }

    /// Makes what has completed durable with one flush. After an error nothing of it may be believed.
    fn flush_together(&self, flights: &[Option<Flight<'_>>], done: &[Completion]) -> Result<()> {
        if let Some(error) = done.iter().find_map(|completion| completion.result.as_ref().err()) {
            return Err(error.duplicate());
        }
        let files: Vec<_> = flights.iter().flatten().map(|flight| flight.file.clone()).collect();
        self.storage.flush_together(&files)?;
        self.metrics.shared_flushes.add(1);
        Ok(())
    }

    /// Completes what was reaped, acknowledges, and then lets the leads go, which wakes the waiters.
    fn land(&self, flights: &mut [Option<Flight<'_>>], done: &mut Vec<Completion>, begun: Nanos) {
        let mut leads = Vec::with_capacity(done.len());
        self.fail_if_any_failed(done);
        for Completion { token, buffer, .. } in done.drain(..) {
            match flights.get_mut(token as usize).and_then(Option::take) {
                Some(Flight { under_way, lead, sequence, .. }) => {
                    self.complete(lead.writer(), sequence, buffer, begun);
                    drop(under_way);
                    leads.push(lead);
                }
                None => {
                    self.fail(Error::new(
                        ErrorKind::Io,
                        "the device completed a write that nobody asked for",
                    ));
                }
            }
        }
        self.publish();
    }
}
