//! What does a worker do between two transactions?
//!
//! Where workers write for themselves it reaps what its log's queue has completed and submits the next block if
//! one is due; it never blocks on either. If the worker goes idle, the flusher thread finds the log overdue, or with writes in
//! flight, and takes over; a waiter does the same at once.
//!
//! Where workers acknowledge it does that for the logs of its group.
//!
//! And it gives up the CPU now and then. With more threads than cores a thread that is preempted while it holds the
//! latch of a shared log stalls everybody for a scheduler's tick or more; one that has just yielded at a transaction's
//! end has a fresh time slice for the next latch. Measured: without, half of the time at 16 threads on 2 cores is stall. One that waits for its
//! commits sleeps often enough; to yield as well would only let other processes keep it waiting.

use super::Core;
use super::writer::LogWriter;
use crate::base::clock::Nanos;
use crate::base::settings::{Acknowledger, Writer};
use crate::base::{LogId, Result};
use crate::device::{Completion, WriteRequest};
use crate::log::SealedBlock;
use crate::sync::thread;
use std::cell::Cell;
use std::time::Duration;

/// How often a worker looks for completions while it has nothing to submit.
const POLL_EVERY: Duration = Duration::from_micros(10);
/// Who waited so long for its commit has slept.
pub(super) const SLEPT: Duration = Duration::from_micros(20);
/// How often a thread offers its CPU to others.
const YIELD_EVERY_NS: u64 = 200_000;

thread_local! {
    static YIELDED_AT: Cell<u64> = const { Cell::new(0) };
}

impl Core {
    pub(super) fn end_of_transaction(&self, log: LogId, now: Nanos) {
        if self.axes.writer == Writer::Worker {
            self.work(self.writer(log), now);
        }
        if self.is_passive() {
            self.acknowledge_passively(log);
        } else if self.axes.acknowledger == Acknowledger::Workers {
            self.acknowledge_group(log);
        }
    }

    /// The thread has not slept for its commit: it offers its CPU to others now and then.
    pub(super) fn yield_now_and_then(&self, now: Nanos) {
        let yielded_at = YIELDED_AT.get();
        if now.0.wrapping_sub(yielded_at) >= YIELD_EVERY_NS {
            YIELDED_AT.set(now.0);
            // The first call of a thread only starts its clock.
            if yielded_at != 0 {
                thread::yield_now();
            }
        }
    }

    fn work(&self, writer: &LogWriter, now: Nanos) {
        let due = writer.duty.due() <= now;
        if (!due && writer.in_flight() == 0) || self.poison.is_raised() {
            return;
        }
        let may_submit = due && writer.worker_may_submit();
        if !may_submit && !writer.poll_is_due(now, POLL_EVERY) {
            return;
        }
        let Some(_lead) = writer.try_lead(self) else { return };
        if writer.in_flight() > 0 && self.reap(writer, false) {
            self.publish();
        }
        if due
            && writer.worker_may_submit()
            && let Some(block) = writer.take_block()
            && let Err(error) = self.submit(writer, block, now)
        {
            self.fail(error);
        }
    }

    pub(super) fn submit(&self, writer: &LogWriter, block: SealedBlock, now: Nanos) -> Result<()> {
        writer.write_begins(now);
        self.count_submitted(block.len, &self.metrics.worker_flushes);
        let SealedBlock { file, offset, buffer, len, sequence, .. } = block.finish();
        let request = WriteRequest { file, offset, buffer, len, durable: true, token: sequence };
        writer.with_worker_queue(|depth| self.storage.write_queue(depth), |queue| queue.submit(request))
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
        for Completion { token, buffer, result } in done {
            match result {
                Ok(()) => self.complete(writer, token, buffer, begun),
                Err(error) => self.fail(error),
            }
        }
        any
    }
}
