//! What does a worker do between two transactions?
//!
//! Where workers write for themselves it reaps what its log's queue has completed and submits the next block if
//! one is due; it never blocks on either. If the worker goes idle, the flusher thread finds the log overdue, or with writes in
//! flight, and takes over; a waiter does the same at once.
//!
//! It takes what its neighbours have waiting along (see `stealing`).
//!
//! Where workers acknowledge it does that for the logs of its group, after each transaction or at random after one in so many.
//!
//! A worker that is idle between its transactions cannot reap what it submits, and its next transaction comes too late to share a write. So with
//! probability (idle time, on average) / `idle_most` it does not wait for the interval or the unit: it leaves its log to the flusher, at
//! once, which sleeps until the write is durable and acknowledges. With a fixed bound instead, a worker just below it would starve.
//!
//! And it gives up the CPU now and then. With more threads than cores a thread that is preempted while it holds the
//! latch of a shared log stalls everybody for a scheduler's tick or more; one that has just yielded at a transaction's
//! end has a fresh time slice for the next latch. Measured: without, half of the time at 16 threads on 2 cores is stall. One that waits for its
//! commits sleeps often enough; to yield as well would only let other processes keep it waiting.

use super::Core;
use super::leader::UnderWay;
use super::levels::{NEVER, NOW};
use super::writer::LogWriter;
use crate::base::clock::Nanos;
use crate::base::planted::{self, Bug};
use crate::base::random::Random;
use crate::base::settings::{Acknowledger, Writer};
use crate::base::{LogId, Result};
use crate::device::{Completion, WriteQueue, WriteRequest};
use crate::log::SealedBlock;
use crate::sync::thread;
use std::cell::{Cell, RefCell};
use std::time::Duration;

/// How often a worker looks for completions while it has nothing to submit.
const POLL_EVERY: Duration = Duration::from_micros(10);
/// Who waited so long for its commit has slept.
pub(super) const SLEPT: Duration = Duration::from_micros(20);
/// How long a thread computes before it offers its CPU to others. Measured with 64 threads on 2 cores: with 200 us the flusher comes too late, and
/// commits take twice as long; with less than 50 switching costs more than it saves.
const YIELD_EVERY_NS: u64 = 50_000;

/// Of what a thread sees of its idle times, the newest counts for so much.
const IDLE_WEIGHT: u64 = 8;

thread_local! {
    static YIELDED_AT: Cell<u64> = const { Cell::new(0) };
    static IDLE: Cell<Idle> = const { Cell::new(Idle { ended: 0, average: 0 }) };
    static DICE: RefCell<Random> = RefCell::new(Random::from_seed(0x5eed));
}

/// How long a thread is idle between its transactions, ns.
#[derive(Clone, Copy, Debug, Default)]
struct Idle {
    /// When its last transaction asked to commit; 0 before the first.
    ended: u64,
    average: u64,
}

impl Idle {
    /// A transaction that began at `begun` asked to commit at `ended`. What is longer than twice `most` counts as that, and what is a small
    /// part of it as nothing: that much passes between two transactions of a thread that does nothing else.
    fn note(&mut self, begun: Nanos, ended: Nanos, most: u64) {
        if self.ended != 0 {
            let idle = begun.0.saturating_sub(self.ended);
            let idle = if idle < most / 8 { 0 } else { idle.min(2 * most) };
            self.average = (self.average * (IDLE_WEIGHT - 1) + idle) / IDLE_WEIGHT;
        }
        self.ended = ended.0.max(1);
    }

    fn forces(self, most: u64, dice: u64) -> bool {
        self.average > 0 && self.average >= dice % most
    }
}

fn dice() -> u64 {
    DICE.with_borrow_mut(Random::next_u64)
}

impl Core {
    pub(super) fn end_of_transaction(&self, log: LogId, begun: Nanos, now: Nanos) {
        if self.axes.writer == Writer::Worker {
            self.work(self.writer(log), now);
            self.delegate_if_idle(self.writer(log), begun, now);
        }
        if self.is_passive() {
            self.acknowledge_passively(log);
        } else if self.axes.acknowledger == Acknowledger::Workers
            && self.is_to_acknowledge()
            && self.acknowledge_group(log)
        {
            self.wakers.wake(|ticket| self.is_committed_ticket(ticket));
        }
    }

    /// The thread has not slept for its commit: it offers its CPU to others now and then.
    pub(super) fn yield_now_and_then(&self, log: LogId, now: Nanos) {
        let yielded_at = YIELDED_AT.get();
        if now.0.wrapping_sub(yielded_at) >= YIELD_EVERY_NS {
            self.neighbours.seen(log);
            // The first call of a thread only starts its clock.
            if yielded_at != 0 {
                thread::yield_now();
            }
            // Not the time before: among many threads it would be past by then, and every transaction would yield.
            YIELDED_AT.set(self.clock.now().0);
        }
    }

    /// Whether the dice say that it is this transaction after which its worker acknowledges.
    fn is_to_acknowledge(&self) -> bool {
        let odds = match self.axes.acknowledgment_odds {
            0 => self.writers.len().ilog2().max(1),
            said => said,
        };
        odds == 1 || dice().is_multiple_of(odds.into())
    }

    fn work(&self, writer: &LogWriter, now: Nanos) {
        let due = writer.flush_request.due() <= now || self.reach_unit_together(writer);
        if (!due && writer.in_flight() == 0) || self.poison.is_raised() {
            return;
        }
        let may_submit = due && writer.worker_may_submit();
        if !may_submit && !writer.poll_is_due(now, POLL_EVERY) {
            return;
        }
        let Some(_lead) = writer.try_become_leader(self) else { return };
        if writer.in_flight() > 0 && self.reap(writer, false) {
            self.publish();
        }
        if due
            && writer.worker_may_submit()
            && let Some((block, stolen)) =
                writer.take_block_and(|latch, block| self.steal(writer, latch, block))
            && let Err(error) = self.submit(writer, block, stolen, now)
        {
            self.fail(error);
        }
    }

    /// Leaves what waits in the log to the flusher if this worker is idle between its transactions.
    fn delegate_if_idle(&self, writer: &LogWriter, begun: Nanos, now: Nanos) {
        let most = self.axes.idle_most.as_nanos() as u64;
        if most == 0 {
            return;
        }
        let mut idle = IDLE.get();
        idle.note(begun, now, most);
        IDLE.set(idle);
        let is_wanted = writer.flush_request.due() != NEVER || writer.in_flight() > 0;
        if is_wanted && !writer.has_leader() && idle.forces(most, dice()) && !self.poison.is_raised() {
            self.metrics.idle_flushes.add(1);
            self.have_written(writer, NOW);
        }
    }

    pub(super) fn submit(
        &self,
        writer: &LogWriter,
        block: SealedBlock,
        stolen: Vec<SealedBlock>,
        now: Nanos,
    ) -> Result<()> {
        let under_way = UnderWay::begin(self, writer, now);
        let mut block = block.finish();
        let piggybacked = self.attach_stolen(&mut block, stolen, now);
        self.count_submitted(block.len, &self.metrics.worker_flushes);
        let SealedBlock { file, offset, buffer, len, sequence, .. } = block;
        if !piggybacked.is_empty() {
            writer.load(sequence, piggybacked);
        }
        let request = WriteRequest {
            file,
            offset,
            buffer,
            len,
            durable: !planted::is(Bug::LogWriteNotDurable),
            token: sequence,
        };
        let mut is_on_its_way = false;
        let submit = |queue: &mut dyn WriteQueue| {
            let before = queue.in_flight();
            let submitted = queue.submit(request);
            is_on_its_way = queue.in_flight() > before;
            submitted
        };
        let submitted = writer.with_worker_queue(|depth| self.storage.write_queue(depth), submit);
        if submitted.is_ok() || is_on_its_way {
            // It ends where it is reaped.
            under_way.leave();
        }
        submitted
    }

    /// Poisons the room if one of these failed, before any of them counts: without direct I/O the error of one write may have been told to
    /// another's flush of the same file.
    pub(super) fn fail_if_any_failed(&self, done: &[Completion]) {
        if let Some(error) = done.iter().find_map(|completion| completion.result.as_ref().err()) {
            self.fail(error.duplicate());
        }
    }

    /// Completes what the worker's queue has finished; with `wait` at least one write. The caller leads. True if there
    /// was any.
    pub(super) fn reap(&self, writer: &LogWriter, wait: bool) -> bool {
        let mut done = Vec::new();
        let reaped = writer
            .with_worker_queue(|depth| self.storage.write_queue(depth), |queue| queue.reap(wait, &mut done));
        if let Err(error) = reaped {
            self.fail(error);
        }
        let any = !done.is_empty();
        let begun = writer.last_write().0;
        self.fail_if_any_failed(&done);
        // First: if one of these panics, the others have ended all the same.
        done.iter().for_each(|_| writer.write_ended(self.clock.now()));
        for Completion { token, buffer, .. } in done {
            self.complete(writer, token, buffer, begun);
            self.complete_piggybacked(writer, token);
        }
        any
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests {
    use super::*;

    #[test]
    fn a_busy_worker_never_forces_an_idle_one_always_and_in_between_it_is_a_matter_of_odds() {
        let most = 50_000;
        let forced = |pause: u64| {
            let (mut idle, mut now, mut random, mut forced) = (Idle::default(), 1, Random::from_seed(1), 0);
            for _ in 0..1000 {
                idle.note(Nanos(now + pause), Nanos(now + pause + 2_000), most);
                now += pause + 2_000;
                forced += u32::from(idle.forces(most, random.next_u64()));
            }
            forced
        };
        assert_eq!(forced(0), 0);
        assert_eq!(forced(1_000), 0, "the time between two transactions of a loop");
        assert!((350..650).contains(&forced(25_000)), "{}", forced(25_000));
        assert!(forced(100_000) > 950);
        assert!(forced(60_000_000) > 950);
    }

    #[test]
    fn a_pause_is_forgotten() {
        let (mut idle, most) = (Idle::default(), 50_000);
        idle.note(Nanos(1), Nanos(2), most);
        idle.note(Nanos(10_000_000_000), Nanos(10_000_001_000), most);
        assert!(idle.average > 0);
        for i in 1..200 {
            idle.note(Nanos(10_000_001_000 + 2_000 * i), Nanos(10_000_002_000 + 2_000 * i), most);
        }
        assert_eq!(idle.average, 0);
    }
}
