//! `autonomous`: autonomous commit. Each worker writes its own log and acknowledges.
//!
//! **After**: *Moving on From Group Commit: Autonomous Commit...*, SIGMOD 2025.
//!
//! **Here**, between two transactions a worker
//! 1. reaps the writes that its log's queue has completed;
//! 2. submits the next block if a flush unit waits, alone or with its neighbours' bytes
//!    ([`super::super::stealing`]), or if the log is due by time. It never blocks on either;
//! 3. acknowledges the queued transactions of its group of logs, always or at random
//!    (`acknowledgment_group`, `acknowledgment_odds`);
//! 4. if it is idle between its transactions, has the flusher write its log and acknowledge, at
//!    once (force commit), with the probability average idle time / `idle_max`. A fixed bound
//!    instead would starve a worker just below it.
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

use super::super::acknowledge::GRACE;
use super::super::axes::{Axes, Gather};
use super::super::dice::dice;
use super::super::levels::{self, NEVER, NOW};
use super::super::log_writer::LogWriter;
use super::super::pending::Ticket;
use super::super::writes::Writes;
use super::group::gather_followers;
use super::page::{Choices, Page, Parts, Protocol};
use crate::base::clock::Nanos;

use crate::base::settings::{Acknowledger, Layout, Writer};
use crate::base::{Csn, LogId, Result};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

pub(super) const PAGE: Page = Page {
    choices: Choices {
        layout: Layout::PerThread,
        writer: Writer::Worker,
        acknowledger: Acknowledger::Workers,
    },
    start: |parts: Parts<'_>| {
        let Axes { gather, gather_max, await_cohort, idle_max, .. } = *parts.axes;
        Arc::new(Autonomous { writes: parts.writes, gather, gather_max, await_cohort, idle_max })
    },
};

/// Time between two looks for completions by a worker that has nothing to submit.
const POLL_EVERY: Duration = Duration::from_micros(10);
/// The newest idle time of a thread counts for one part in so many in its average.
const IDLE_WEIGHT: u64 = 8;

thread_local! {
    static IDLE: Cell<Idle> = const { Cell::new(Idle { ended: 0, average: 0 }) };
}

struct Autonomous {
    writes: Arc<Writes>,
    gather: Option<Gather>,
    gather_max: Option<u32>,
    await_cohort: bool,
    idle_max: Duration,
}

impl Protocol for Autonomous {
    /// The worker itself writes soon: the flusher gives it a little time.
    fn appended(&self, log: &LogWriter, due: Nanos, ready: Nanos) {
        self.writes.flushers.of(log).wake_for(levels::after(due.max(ready), GRACE));
    }

    fn wait(&self, ticket: Ticket, is_committer: bool, deadline: Option<Nanos>) -> Result<()> {
        let Writes { environment, durability, schedule, .. } = &*self.writes;
        let log = durability.log(ticket.log);
        loop {
            let woken = log.event.ticket();
            if self.writes.is_durable(ticket)? {
                return Ok(());
            }
            if self.writes.await_helper(log, ticket.csn, deadline)? {
                continue;
            }
            if is_committer
                && self.await_cohort
                && let Some(is_timekeeper) = log.cohort.is_timekeeper(ticket.csn)
                && let Some(until) = schedule.cohort_expected_until(log)
            {
                log.event.wait(woken, is_timekeeper.then(|| until.since(environment.clock.now())));
                environment.metrics.sleeps.add(1);
                continue;
            }
            // A log whose bytes are in a helper's write has no leader to wait for: look for the
            // helper.
            if !self.advance(log, ticket.csn, NOW) && !log.is_only_piggybacked() {
                environment.sleep(&log.event, woken, deadline)?;
            }
        }
    }

    fn advance(&self, log: &LogWriter, csn: Csn, _by: Nanos) -> bool {
        if log.is_only_piggybacked() {
            return self.writes.complete_helper_write_of(log);
        }
        let Some(leader) = self.writes.try_become_leader(log) else { return false };
        if csn <= log.log.durable_csn() {
            return true;
        }
        if let Some(gather) = self.gather {
            gather_followers(&self.writes, log, gather, self.gather_max);
        }
        self.writes.write_as_leader(&leader, &self.writes.environment.metrics.leader_flushes)
    }

    fn end_of_transaction(&self, log: LogId, begun: Nanos, now: Nanos) {
        let log = self.writes.durability.log(log);
        self.work(log, now);
        self.delegate_if_idle(log, begun, now);
    }
}

impl Autonomous {
    /// Reaps, steals and submits.
    fn work(&self, log: &LogWriter, now: Nanos) {
        let Writes { environment, durability, neighbours, .. } = &*self.writes;
        let logs = &durability.logs;
        let due = log.flush_request.due() <= now || neighbours.reach_unit_together(logs, log);
        if (!due && log.in_flight() == 0) || environment.poison.is_raised() {
            return;
        }
        let may_submit = due && log.worker_queue.has_room();
        if !may_submit && !log.worker_queue.poll_is_due(now, POLL_EVERY) {
            return;
        }
        let Some(_leader) = self.writes.try_become_leader(log) else { return };
        if log.in_flight() > 0 && self.writes.reap(log, false) {
            self.writes.acknowledgments.publish();
        }
        if due
            && log.worker_queue.has_room()
            && let Some((block, stolen)) =
                log.take_block_and(|latch, block| neighbours.steal(logs, log, latch, block))
            && let Err(error) = self.writes.submit(log, block, stolen, now)
        {
            self.writes.failure.fail(error);
        }
    }

    /// Leaves what waits in the log to the flusher if this worker is idle between its transactions.
    fn delegate_if_idle(&self, log: &LogWriter, begun: Nanos, now: Nanos) {
        let most = self.idle_max.as_nanos() as u64;
        if most == 0 {
            return;
        }
        let mut idle = IDLE.get();
        idle.note(begun, now, most);
        IDLE.set(idle);
        let environment = &self.writes.environment;
        let is_wanted = log.flush_request.due() != NEVER || log.in_flight() > 0;
        if is_wanted && !log.has_leader() && idle.forces(most, dice()) && !environment.poison.is_raised() {
            environment.metrics.idle_flushes.add(1);
            self.writes.acknowledgments.force();
            self.writes.flushers.delegate(log, NOW);
        }
    }
}

/// Idle time of a thread between its transactions, in ns.
#[derive(Clone, Copy, Debug, Default)]
struct Idle {
    /// When its last transaction asked to commit; 0 before the first.
    ended: u64,
    average: u64,
}

impl Idle {
    /// Notes a transaction that began at `begun` and asked to commit at `ended`. An idle time above
    /// twice `most` counts as that, and a small part of `most` as nothing: a thread that does
    /// nothing else needs that long between two.
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

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
