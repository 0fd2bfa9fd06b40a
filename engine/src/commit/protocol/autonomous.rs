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
//! 4. if it is idle between its transactions ([`super::super::idle`]), has the flusher write its
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

use super::super::acknowledge::GRACE;
use super::super::axes::{Axes, Gather};
use super::super::levels::{self, NEVER, NOW};
use super::super::log_writer::LogWriter;
use super::super::pending::Ticket;
use super::super::writes::Writes;
use super::group::gather_followers;
use super::page::{Choices, Page, Parts, Protocol};
use crate::base::clock::Nanos;

use crate::base::settings::{Acknowledger, Layout, Writer};
use crate::base::{Csn, LogId, Result};
use std::sync::Arc;
use std::time::Duration;

pub(super) const PAGE: Page = Page {
    choices: Choices {
        layout: Layout::PerThread,
        writer: Writer::Worker,
        acknowledger: Acknowledger::Workers,
    },
    start: |parts: Parts<'_>| {
        let Axes { gather, gather_max, await_cohort, .. } = *parts.axes;
        Arc::new(Autonomous { writes: parts.writes, gather, gather_max, await_cohort })
    },
};

/// Time between two looks for completions by a worker that has nothing to submit.
const POLL_EVERY: Duration = Duration::from_micros(10);
struct Autonomous {
    writes: Arc<Writes>,
    gather: Option<Gather>,
    gather_max: Option<u32>,
    await_cohort: bool,
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
        self.delegate_if_idle(log, begun);
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
            && log.worker_queue.has_room()
            && let Some((block, stolen)) =
                log.take_block_and(|latch, block| neighbours.steal(logs, log, latch, block))
            && let Err(error) = self.writes.submit(log, block, stolen, now)
        {
            self.writes.failure.fail(error);
        }
    }

    /// Leaves what waits in the log to the flusher if this worker is likely to be idle next.
    fn delegate_if_idle(&self, log: &LogWriter, begun: Nanos) {
        let Writes { environment, idle, acknowledgments, flushers, .. } = &*self.writes;
        if !idle.force(begun) {
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
