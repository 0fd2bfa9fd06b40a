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
use super::log_writer::LogWriter;
use super::medium::Medium;
use super::sharing::Sharing;
use super::side_by_side::SideBySide;
use super::writes::Writes;
use crate::base::clock::Nanos;
use crate::sync::thread::ask_for_short_slices;
use std::sync::Arc;

/// See the module's text.
pub struct FlusherThread {
    pub number: usize,
    pub writes: Arc<Writes>,
    pub medium: Arc<dyn Medium>,
    pub sharing: Arc<Sharing>,
    pub queue: SideBySide,
}

/// Notes that the thread has ended, however it does.
struct Running<'a>(&'a Writes, &'a Flusher);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.1.ends();
        self.0.deadline.over().notify_all();
    }
}

/// Runs the thread.
pub fn run(mut thread: FlusherThread) {
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
        if self.medium.is_durable_memory() {
            let due: Vec<&LogWriter> = logs().filter(is_due).collect();
            self.medium.drain_and_acknowledge(&mut due.iter().copied());
        }
        let mut blocks = Vec::new();
        for log in logs().filter(is_due).filter(|log| log.unflushed.count() > 0) {
            writes.write_rest_and_flush(log);
        }
        for log in logs().filter(is_due) {
            let write_is_due = schedule.write_due(log, required) <= horizon;
            let Some(leader) = writes.try_become_leader(log) else { continue };
            // Its worker cannot reap them while this thread leads, and what this thread writes
            // counts only behind them.
            if log.in_flight() > 0 && writes.reap(log, false) {
                acknowledgments.publish();
            }
            if log.unflushed.count() > 0 {
                // Another thread has written without a flush meanwhile: in the next pass.
                continue;
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
            self.queue.write(&writes, &self.sharing, blocks);
        }
    }
}

/// Returns the logs that flusher `number` writes.
fn logs_of(writes: &Writes, number: usize) -> impl Iterator<Item = &LogWriter> {
    let (durability, flushers): (&Durability, &Flushers) = (&writes.durability, &writes.flushers);
    durability.logs.iter().skip(number).step_by(flushers.len())
}
