//! The queues through which workers write their logs without waiting, and what these writes carry
//! of other logs.

use super::stealing::{Carried, Neighbours, attach_stolen};
use crate::base::clock::Nanos;
use crate::base::planted::{self, Bug};
use crate::base::settings::WorkerOptions;
use crate::base::{Csn, Result};
use crate::commit::core::environment::Environment;
use crate::commit::core::levels::NOW;
use crate::commit::core::log_writer::LogWriter;
use crate::commit::core::writes::{QueuedWrites, UnderWay, Writes};
use crate::device::{Completion, WriteQueue, WriteRequest};
use crate::log::SealedBlock;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The queue of each log, and which logs carry blocks of each other.
pub struct WorkerQueues {
    /// By log.
    queues: Box<[WorkerQueue]>,
    pub neighbours: Neighbours,
    /// Writes of a log that may be in flight.
    depth: usize,
}

struct WorkerQueue {
    queue: Mutex<Option<Box<dyn WriteQueue>>>,
    /// When each write in flight began, by token. Only the leader uses this.
    begun: Mutex<Vec<(u64, Nanos)>>,
    /// When a worker last looked for completions.
    polled: AtomicU64,
    /// The blocks of other logs that writes in the queue carry, by token. Only the leader uses
    /// this.
    carried: Mutex<Vec<(u64, Vec<Carried>)>>,
    /// The lowest CSN in `carried` or about to be: lowered before the owner's latch is released,
    /// raised when the write has completed.
    lowest: AtomicU64,
}

/// A queue that panicked is gone, and no thread reaps its writes.
struct LostQueue<'a>(&'a WorkerQueue, &'a LogWriter);

impl Drop for LostQueue<'_> {
    fn drop(&mut self) {
        self.0.begun.lock().clear();
        self.1.lose_writes_in_flight();
    }
}

impl WorkerQueue {
    fn new() -> WorkerQueue {
        WorkerQueue {
            queue: Mutex::new(None),
            begun: Mutex::new(Vec::new()),
            polled: AtomicU64::new(0),
            carried: Mutex::new(Vec::new()),
            lowest: AtomicU64::new(Csn::MAX.0),
        }
    }

    /// Returns when the write called `token` began, and forgets it.
    fn take_begun(&self, token: u64) -> Option<Nanos> {
        let mut begun = self.begun.lock();
        let at = begun.iter().position(|(of, _)| *of == token)?;
        Some(begun.swap_remove(at).1)
    }

    /// Returns the lowest CSN of other logs in the writes; the highest there is if they carry
    /// nothing.
    fn lowest_carried(&self) -> Csn {
        Csn(self.lowest.load(Ordering::SeqCst))
    }

    /// Returns what the write called `token` carries, and forgets it.
    fn unload(&self, token: u64) -> Vec<Carried> {
        let mut all = self.carried.lock();
        let at = all.iter().position(|(of, _)| *of == token);
        at.map(|at| all.swap_remove(at).1).unwrap_or_default()
    }

    /// Everything that was unloaded is complete. The caller leads.
    fn unloaded(&self) {
        let all = self.carried.lock();
        let left = all.iter().flat_map(|(_, blocks)| blocks).map(|block| block.first_csn).min();
        self.lowest.store(left.unwrap_or(Csn::MAX).0, Ordering::SeqCst);
    }

    /// Runs `f` on the queue, which is made at first use, for `depth` writes.
    ///
    /// # Errors
    /// The errors of the device and of `f`.
    fn with<R>(
        &self,
        log: &LogWriter,
        environment: &Environment,
        depth: usize,
        f: impl FnOnce(&mut dyn WriteQueue) -> Result<R>,
    ) -> Result<R> {
        let mut place = self.queue.lock();
        // Declared before the queue, so that it is dropped after it: dropping the queue waits for
        // its writes.
        let lost = LostQueue(self, log);
        let mut queue = match place.take() {
            Some(queue) => queue,
            None => environment.storage.durable_queue(depth)?,
        };
        let result = f(&mut *queue);
        std::mem::forget(lost);
        log.set_in_flight(queue.in_flight());
        *place = Some(queue);
        result
    }
}

impl WorkerQueues {
    /// `unit` is a flush unit in bytes.
    pub fn new(options: &WorkerOptions, unit: usize, logs: usize) -> WorkerQueues {
        WorkerQueues {
            queues: (0..logs).map(|_| WorkerQueue::new()).collect(),
            neighbours: Neighbours::new(options.stealing_group, unit, logs),
            depth: options.writes_in_flight,
        }
    }

    fn of(&self, log: &LogWriter) -> &WorkerQueue {
        &self.queues[log.id.0 as usize]
    }

    /// Returns whether another write of `log` may be submitted.
    pub fn has_room(&self, log: &LogWriter) -> bool {
        log.in_flight() < self.depth
    }

    /// Returns whether no worker has looked for completions for `every`; if so, counts the caller
    /// as looking now.
    pub fn poll_is_due(&self, log: &LogWriter, now: Nanos, every: Duration) -> bool {
        let polled = &self.of(log).polled;
        let due = now.since(Nanos(polled.load(Ordering::Relaxed))) >= every;
        if due {
            polled.store(now.0, Ordering::Relaxed);
        }
        due
    }

    /// A block of another log with this CSN is going to be carried by writes of `log`. To be called
    /// under the latch of its owner.
    pub fn will_carry(&self, log: &LogWriter, first_csn: Csn) {
        debug_assert!(first_csn > Csn::ZERO, "a carried block has a record");
        self.of(log).lowest.fetch_min(first_csn.0, Ordering::SeqCst);
    }

    /// Submits `block`, with the blocks stolen for it, to the queue of `log`'s worker. The caller
    /// leads.
    ///
    /// # Errors
    /// The device's errors.
    pub fn submit(
        &self,
        writes: &Writes,
        log: &LogWriter,
        block: SealedBlock,
        stolen: Vec<SealedBlock>,
        now: Nanos,
    ) -> Result<()> {
        let (environment, queue) = (&*writes.environment, self.of(log));
        let under_way = UnderWay::begin(writes, log, now);
        debug_assert!(log.has_leader(), "only a leader submits");
        debug_assert!(
            queue.begun.lock().iter().all(|(token, _)| *token != block.sequence),
            "a block is submitted once"
        );
        queue.begun.lock().push((block.sequence, now));
        let mut block = block.finish();
        let carried = attach_stolen(environment, &writes.durability.logs, &mut block, stolen, now);
        writes.count_submitted(log, block.len, &environment.metrics.worker_flushes);
        let SealedBlock { file, offset, buffer, len, sequence, .. } = block;
        if !carried.is_empty() {
            queue.carried.lock().push((sequence, carried));
        }
        let durable = !planted::is(Bug::LogWriteNotDurable);
        let request = WriteRequest { file, offset, buffer, len, durable, token: sequence };
        let mut is_in_flight = false;
        let submitted = queue.with(log, environment, self.depth, |queue| {
            let before = queue.in_flight();
            let submitted = queue.submit(request);
            is_in_flight = queue.in_flight() > before;
            submitted
        });
        if submitted.is_ok() || is_in_flight {
            // It ends where it is reaped.
            under_way.leave();
        }
        submitted
    }

    /// Completes a write that carries blocks of `log`. Returns false if another thread is at it.
    pub fn complete_carrier_of(&self, writes: &Writes, log: &LogWriter) -> bool {
        self.carrier_of(writes, log).is_some_and(|carrier| self.complete_write_of(writes, carrier))
    }

    /// Completes what the write of `carrier` called `token`, which is durable, carried for others,
    /// and wakes their waiters. The caller leads.
    fn complete_carried(&self, writes: &Writes, carrier: &LogWriter, token: u64, begun: Nanos) {
        let queue = self.of(carrier);
        if queue.lowest_carried() == Csn::MAX {
            return;
        }
        for Carried { log, sequence, buffer, .. } in queue.unload(token) {
            let owner = writes.durability.log(log);
            if !writes.environment.poison.is_raised() {
                let now = writes.environment.clock.now();
                writes.complete_block(owner, sequence, buffer, begun, now);
                owner.carrier_ends(begun, now);
            }
            owner.carried_ended();
            owner.event.notify_all();
        }
        queue.unloaded();
    }

    fn carrier_of<'a>(&'a self, writes: &'a Writes, log: &LogWriter) -> Option<&'a LogWriter> {
        if log.is_only_carried() { self.carriers(writes).find(|carrier| carrier.id != log.id) } else { None }
    }

    /// Returns the logs whose writes carry blocks of others at the moment.
    fn carriers<'a>(&'a self, writes: &'a Writes) -> impl Iterator<Item = &'a LogWriter> {
        let logs = if self.neighbours.group() == 1 { &[] } else { &writes.durability.logs[..] };
        logs.iter().filter(|log| self.of(log).lowest_carried() < Csn::MAX)
    }

    /// Waits for a write of `carrier`. Returns false if another thread leads it.
    fn complete_write_of(&self, writes: &Writes, carrier: &LogWriter) -> bool {
        let Some(_leader) = writes.try_become_leader(carrier) else { return false };
        if carrier.in_flight() > 0 && self.reap(writes, carrier, true) {
            writes.acknowledgments.publish();
        }
        true
    }
}

impl QueuedWrites for WorkerQueues {
    fn reap(&self, writes: &Writes, log: &LogWriter, wait: bool) -> bool {
        let (environment, queue) = (&*writes.environment, self.of(log));
        let mut done = Vec::new();
        if let Err(error) = queue.with(log, environment, self.depth, |queue| queue.reap(wait, &mut done)) {
            writes.failure.fail(error);
        }
        let any = !done.is_empty();
        writes.fail_if_any_failed(&done);
        let now = environment.clock.now();
        let begun = |done: &Completion| queue.take_begun(done.token).unwrap_or(now);
        let begun: Vec<Nanos> = done.iter().map(begun).collect();
        // First: if one of these panics, the others have ended all the same.
        begun.iter().for_each(|begun| log.write_ends(*begun, now));
        for (Completion { token, buffer, .. }, begun) in done.into_iter().zip(begun) {
            writes.complete(log, token, buffer, begun);
            self.complete_carried(writes, log, token, begun);
        }
        any
    }

    fn await_carrier(
        &self,
        writes: &Writes,
        log: &LogWriter,
        csn: Csn,
        deadline: Option<Nanos>,
    ) -> Result<bool> {
        let Some(carrier) = self.carrier_of(writes, log) else { return Ok(false) };
        // The ticket first: if the carrier's log has a leader then, that leader resigns after it.
        let woken = carrier.event.ticket();
        if self.carrier_of(writes, log).is_some_and(|still| still.id == carrier.id)
            && csn > log.log.durable_csn()
            && !writes.environment.poison.is_raised()
            && !self.complete_write_of(writes, carrier)
        {
            writes.environment.sleep(&carrier.event, woken, deadline)?;
        }
        Ok(true)
    }

    fn complete_carried_below(&self, writes: &Writes, csn: Csn) -> bool {
        let carrier = self.carriers(writes).find(|carrier| self.of(carrier).lowest_carried() <= csn);
        carrier.is_some_and(|carrier| self.complete_write_of(writes, carrier))
    }

    fn hasten_carriers(&self, writes: &Writes, csn: Csn) -> bool {
        let mut any = false;
        for carrier in self.carriers(writes).filter(|carrier| self.of(carrier).lowest_carried() <= csn) {
            carrier.flush_request.lower_due(NOW);
            any = true;
        }
        any
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests {
    use super::*;

    #[test]
    fn each_write_in_flight_has_a_beginning_of_its_own() {
        let queue = WorkerQueue::new();
        queue.begun.lock().extend([(7, Nanos(10)), (8, Nanos(50))]);
        assert_eq!(queue.take_begun(7), Some(Nanos(10)));
        assert_eq!(queue.take_begun(7), None, "taken");
        assert_eq!(queue.take_begun(8), Some(Nanos(50)));
    }
}
