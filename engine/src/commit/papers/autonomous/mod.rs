//! `autonomous`: autonomous commit. Each worker writes its own log and acknowledges.
//!
//! **After**: *Moving on From Group Commit: Autonomous Commit...*, SIGMOD 2025.
//!
//! **Here**, between two transactions a worker
//! 1. reaps the writes that its log's queue has completed;
//! 2. submits the next block if a flush unit waits, alone or with its neighbours' bytes
//!    ([`stealing`]), or if the log is due by time. It never blocks on either;
//! 3. acknowledges the queued transactions of its group of logs, always or at random
//!    (`acknowledgment_group`, `acknowledgment_odds`);
//! 4. if it is idle between its transactions ([`idle`]), has the flusher write its
//!    log and acknowledge, at once (force commit), with the probability average idle time /
//!    `idle_max`.
//!
//! A committer that waits leads or follows, as with `group`. A worker that goes away leaves its log
//! overdue, or with writes in flight: then the flusher takes over.
//!
//! ```text
//!   worker 0    append, queue | unit reached: steal, submit | next transaction | reap: durable | acknowledge its group
//!   worker 1    append, queue | (bytes taken by worker 0)   | next transaction ...             | committed
//! ```
//!
//! **Different from the paper**: stealing takes the owner's latch, if it is free, instead of a
//! compare-and-swap on a cursor; an idle worker cannot reap what it submits, so a flusher thread
//! writes for it; there are no barrier transactions, because an idle log does not hold W back; the
//! rule is DSN unless `dependency` says otherwise.

pub mod idle;
pub mod stealing;
pub mod worker_queue;

use crate::base::clock::Nanos;
use crate::base::settings::{
    AcknowledgerOptions, AcknowledgmentOptions, Axes, LayoutOptions, WorkerOptions, WriterOptions,
};
use crate::base::{Csn, LogId, Result};
use crate::commit::core::acknowledge::GRACE;
use crate::commit::core::levels::{self, NEVER, NOW};
use crate::commit::core::log_writer::LogWriter;
use crate::commit::core::pending::Ticket;
use crate::commit::core::protocol::{Parts, Protocol};
use crate::commit::core::writes::Writes;
use crate::commit::pages::Lead;
use idle::IdleTimes;
use std::sync::Arc;
use std::time::Duration;
use worker_queue::WorkerQueues;

pub const AXES: Axes = Axes {
    layout: LayoutOptions::PerThread,
    writer: WriterOptions::Worker(WorkerOptions::DEFAULT),
    acknowledger: AcknowledgerOptions::Workers(AcknowledgmentOptions::DEFAULT),
    ..Axes::COMMON
};

/// Time between two looks for completions by a worker that has nothing to submit.
pub const POLL_EVERY: Duration = Duration::from_micros(10);

/// The state of all workers.
pub struct Workers {
    pub queues: Arc<WorkerQueues>,
    pub idle: IdleTimes,
}

/// See the module's text.
pub struct Autonomous {
    writes: Arc<Writes>,
    workers: Arc<Workers>,
    lead: Lead,
}

impl Autonomous {
    pub fn new(parts: &Parts<'_>, workers: Arc<Workers>) -> Autonomous {
        Autonomous {
            writes: parts.writes.clone(),
            workers,
            lead: Lead::new(parts.writes.clone(), parts.axes),
        }
    }
}

impl Protocol for Autonomous {
    /// The worker itself writes soon: the flusher gives it a little time.
    fn appended(&self, log: &LogWriter, due: Nanos, ready: Nanos) {
        self.writes.flushers.of(log).wake_for(levels::after(due.max(ready), GRACE));
    }

    fn wait(&self, ticket: Ticket, is_committer: bool, deadline: Option<Nanos>) -> Result<()> {
        self.lead.wait(ticket, is_committer, deadline, |log| self.advance(log, ticket.csn, NOW))
    }

    fn advance(&self, log: &LogWriter, csn: Csn, _by: Nanos) -> bool {
        if log.is_only_carried() {
            return self.workers.queues.complete_carrier_of(&self.writes, log);
        }
        self.lead.lead(log, csn)
    }

    fn end_of_transaction(&self, log: LogId, begun: Nanos, now: Nanos) {
        let log = self.writes.durability.log(log);
        self.work(log, now);
        self.delegate_if_idle(log, begun);
    }

    fn yields(&self, log: LogId) {
        self.workers.queues.neighbours.seen(log);
    }
}

impl Autonomous {
    /// Reaps, steals and submits.
    fn work(&self, log: &LogWriter, now: Nanos) {
        let Writes { environment, durability, .. } = &*self.writes;
        let (logs, queues) = (&durability.logs, &self.workers.queues);
        let neighbours = &queues.neighbours;
        let due = log.flush_request.due() <= now || neighbours.reach_unit_together(logs, log);
        if (!due && log.in_flight() == 0) || environment.poison.is_raised() {
            return;
        }
        let may_submit = due && queues.has_room(log);
        if !may_submit && !queues.poll_is_due(log, now, POLL_EVERY) {
            return;
        }
        let Some(leader) = self.writes.try_become_leader(log) else { return };
        if log.unflushed.count() > 0 {
            // What a worker submits would count only behind a flush, for which it does not wait.
            drop(leader);
            return self.writes.flushers.delegate(log, NOW);
        }
        if log.in_flight() > 0 && self.writes.reap(log, false) {
            self.writes.acknowledgments.publish();
        }
        if due
            && queues.has_room(log)
            && let Some((block, stolen)) = log.take_block_and(|latch, block| {
                neighbours.steal(logs, log, latch, block, |first_csn| queues.will_carry(log, first_csn))
            })
            && let Err(error) = queues.submit(&self.writes, log, block, stolen, now)
        {
            self.writes.failure.fail(error);
        }
    }

    /// Leaves what waits in the log to the flusher if this worker is likely to be idle next.
    fn delegate_if_idle(&self, log: &LogWriter, begun: Nanos) {
        let Writes { environment, acknowledgments, flushers, .. } = &*self.writes;
        if !self.workers.idle.force(begun) {
            return;
        }
        let is_wanted = log.flush_request.due() != NEVER || log.in_flight() > 0;
        if is_wanted && !log.has_leader() && !environment.poison.is_raised() {
            environment.metrics.idle_flushes.add(1);
            acknowledgments.force();
            flushers.delegate(log, NOW);
        }
    }
}
