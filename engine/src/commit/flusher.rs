//! A flusher thread: writes logs that no thread waits for, or that committers only wait for.
//!
//! ```text
//!   running --- nothing due ---> look at all logs; sleep until the earliest due time
//!      ^                                        |
//!      +---- due time, or an earlier one -------+
//! ```
//!
//! One thread for all logs, or one for each. A pass seals every log that is due, or due within a
//! pace, writes the blocks side by side through one queue, and publishes as completions arrive. The
//! first flusher also acknowledges what is left to it, and drains mapped logs. An idle database has
//! nothing due: the thread sleeps without a timeout. See `flushers` for why no due time is missed.

use super::durability::Durability;
use super::environment::Environment;
use super::flushers::{Flusher, Flushers};
use super::levels::{self, NEVER, PACE};
use super::log_writer::{Leader, LogWriter};
use super::mapped::MappedLogs;
use super::sharing::Sharing;
use super::writes::{UnderWay, Writes};
use crate::base::clock::Nanos;
use crate::base::{Csn, Error, ErrorKind, Result};
use crate::device::{Completion, File, WriteQueue, WriteRequest};
use crate::log::SealedBlock;
use crate::sync::thread::ask_for_short_slices;
use std::sync::Arc;
use std::time::Duration;

/// Writes in flight at a time.
const WRITES: usize = 64;

/// See the module's text.
pub(super) struct FlusherThread {
    pub number: usize,
    pub writes: Arc<Writes>,
    pub mapped: Arc<MappedLogs>,
    pub sharing: Arc<Sharing>,
    /// Through which several blocks are written; made at first use.
    pub queue: Option<Box<dyn WriteQueue>>,
}

/// Notes that the thread has ended, however it does.
struct Running<'a>(&'a Writes, &'a Flusher);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.1.ends();
        self.0.deadline.over().notify_all();
    }
}

/// A block in flight, and the right to write it.
struct Flight<'a> {
    // Declared before the leader: dropping that wakes other threads.
    under_way: UnderWay<'a>,
    leader: Leader<'a>,
    sequence: u64,
    first_csn: Csn,
    file: Arc<dyn File>,
}

/// Runs the thread.
pub(super) fn run(mut thread: FlusherThread) {
    let writes = thread.writes.clone();
    let flushers = writes.flushers.clone();
    let (flusher, environment) = (&flushers[thread.number], &writes.environment);
    let _running = Running(&writes, flusher);
    // Otherwise its promises would be broken.
    let _guard = writes.failure.guard("the flusher thread");
    ask_for_short_slices();
    while flusher.is_running() {
        let now = environment.clock.now();
        if environment.poison.is_raised() {
            thread.sleep(now);
        } else if thread.number == 0 && writes.acknowledgments.due() <= now {
            writes.acknowledgments.acknowledge_overdue();
        } else if thread.earliest_due() <= now {
            thread.write_due(now);
        } else {
            thread.sleep(now);
        }
    }
}

impl FlusherThread {
    fn sleep(&self, now: Nanos) {
        let Environment { poison, metrics, .. } = &*self.writes.environment;
        let plan = || if poison.is_raised() { NEVER } else { self.earliest_due() };
        if self.writes.flushers[self.number].sleep(now, plan) {
            metrics.flusher_wake_ups.add(1);
        }
    }

    fn earliest_due(&self) -> Nanos {
        let Writes { acknowledgments, schedule, .. } = &*self.writes;
        let required = acknowledgments.required();
        let due = |log: &LogWriter| schedule.due(log, required).min(log.flush_request.requirement_due());
        let write = logs_of(&self.writes, self.number).map(due).min().unwrap_or(NEVER);
        if self.number == 0 { write.min(acknowledgments.due()) } else { write }
    }

    /// Writes every log of this flusher that is due.
    fn write_due(&mut self, now: Nanos) {
        let writes = self.writes.clone();
        let Writes { acknowledgments, schedule, environment, .. } = &*writes;
        let horizon = levels::after(now, PACE);
        let logs = || logs_of(&writes, self.number);
        let began = logs().filter(|log| log.flush_request.take_due_requirement(horizon)).count();
        let required = acknowledgments.required();
        if began > 0
            && let Some(required) = required
        {
            // Logs of other flushers, too.
            acknowledgments.wake_flushers_behind(required);
        }
        let is_due = |log: &&LogWriter| schedule.due(log, required) <= horizon;
        if self.mapped.is_used() {
            let due: Vec<&LogWriter> = logs().filter(is_due).collect();
            self.mapped.drain_and_acknowledge(due.iter().copied());
        }
        let mut blocks = Vec::new();
        for log in logs().filter(is_due) {
            let write_is_due = schedule.write_due(log, required) <= horizon;
            let Some(leader) = writes.try_become_leader(log) else { continue };
            // Its worker cannot reap them while this thread leads, and what this thread writes
            // counts only behind them.
            if log.in_flight() > 0 && writes.reap(log, false) {
                acknowledgments.publish();
            }
            match if write_is_due { log.take_block() } else { None } {
                Some(block) => blocks.push((leader, block)),
                None if log.in_flight() > 0 && writes.reap(log, true) => acknowledgments.publish(),
                None => {}
            }
        }
        if blocks.len() == 1 {
            for (leader, block) in blocks {
                writes.write_inline(leader.log(), block, &environment.metrics.flusher_flushes);
                acknowledgments.publish();
            }
        } else if !blocks.is_empty() {
            self.write_in_parallel(&writes, blocks);
        }
    }

    fn write_in_parallel<'a>(&mut self, writes: &'a Writes, blocks: Vec<(Leader<'a>, SealedBlock)>) {
        let queue = match &mut self.queue {
            Some(queue) => queue,
            None => match writes.environment.storage.write_queue(WRITES) {
                Ok(new) => self.queue.insert(new),
                Err(error) => return writes.failure.fail(error),
            },
        };
        let mut flights = Vec::with_capacity(blocks.len());
        if let Err(error) = write_side_by_side(writes, &self.sharing, &mut **queue, blocks, &mut flights) {
            writes.failure.fail(error);
            let mut done = Vec::new();
            while queue.in_flight() > 0 && queue.reap(true, &mut done).is_ok() {}
            if queue.in_flight() > 0 {
                // They may hang.
                flights.into_iter().flatten().for_each(|flight| flight.under_way.leave());
            }
        }
    }
}

/// Returns the logs that flusher `number` writes.
fn logs_of(writes: &Writes, number: usize) -> impl Iterator<Item = &LogWriter> {
    let (durability, flushers): (&Durability, &Flushers) = (&writes.durability, &writes.flushers);
    durability.logs.iter().skip(number).step_by(flushers.len())
}

fn write_side_by_side<'a>(
    writes: &'a Writes,
    sharing: &Sharing,
    queue: &mut dyn WriteQueue,
    blocks: Vec<(Leader<'a>, SealedBlock)>,
    flights: &mut Vec<Option<Flight<'a>>>,
) -> Result<()> {
    let clock = &writes.environment.clock;
    let (begun, count) = (clock.now(), blocks.len());
    let shared = sharing.decide(count);
    for (leader, block) in blocks {
        let under_way = UnderWay::begin(writes, leader.log(), begun);
        writes.count_submitted(leader.log(), block.len, &writes.environment.metrics.flusher_flushes);
        let SealedBlock { file, offset, buffer, len, sequence, first_csn, .. } = block.finish();
        let token = flights.len() as u64;
        flights.push(Some(Flight { under_way, leader, sequence, first_csn, file: file.clone() }));
        queue.submit(WriteRequest { file, offset, buffer, len, durable: !shared, token })?;
    }
    let (mut done, mut took) = (Vec::with_capacity(count), Duration::ZERO);
    while queue.in_flight() > 0 {
        queue.reap(true, &mut done)?;
        if !shared {
            took += clock.now().since(begun) * done.len() as u32;
            complete(writes, flights, &mut done, begun);
        }
    }
    if shared {
        flush_together(writes, flights, &done)?;
        took = clock.now().since(begun) * count as u32;
        complete(writes, flights, &mut done, begun);
    }
    sharing.note(count, shared, took / count as u32);
    Ok(())
}

/// Makes what has completed durable with one flush. After an error nothing of it may be believed.
fn flush_together(writes: &Writes, flights: &[Option<Flight<'_>>], done: &[Completion]) -> Result<()> {
    if let Some(error) = done.iter().find_map(|completion| completion.result.as_ref().err()) {
        return Err(error.duplicate());
    }
    let files: Vec<_> = flights.iter().flatten().map(|flight| flight.file.clone()).collect();
    writes.environment.storage.flush_together(&files)?;
    writes.environment.metrics.shared_flushes.add(1);
    Ok(())
}

/// Completes what was reaped, publishes, and then resigns as leader, which wakes the waiters.
fn complete(writes: &Writes, flights: &mut [Option<Flight<'_>>], done: &mut Vec<Completion>, begun: Nanos) {
    let mut leaders = Vec::with_capacity(done.len());
    for Completion { token, result, .. } in done.iter() {
        if let (Err(error), Some(Some(flight))) = (result, flights.get(*token as usize)) {
            let begin = (flight.leader.log().id, flight.first_csn);
            writes.failure.fail_write(&*flight.file, begin, error.duplicate());
        }
    }
    writes.fail_if_any_failed(done);
    for Completion { token, buffer, .. } in done.drain(..) {
        match flights.get_mut(token as usize).and_then(Option::take) {
            Some(Flight { under_way, leader, sequence, .. }) => {
                writes.complete(leader.log(), sequence, buffer, begun);
                drop(under_way);
                leaders.push(leader);
            }
            None => {
                let what = "the device completed a write that was not submitted";
                writes.failure.fail(Error::new(ErrorKind::Io, what));
            }
        }
    }
    writes.acknowledgments.publish();
}
