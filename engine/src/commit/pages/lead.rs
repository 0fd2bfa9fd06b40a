//! The part that protocols with leaders share: a committer leads, follows, or waits for its cohort.

use crate::base::clock::Nanos;
use crate::base::settings::{Axes, Gather};
use crate::base::{Csn, Result};
use crate::commit::core::levels;
use crate::commit::core::log_writer::LogWriter;
use crate::commit::core::pending::Ticket;
use crate::commit::core::writes::Writes;
use std::sync::Arc;

/// See the module's text.
pub struct Lead {
    writes: Arc<Writes>,
    gather: Gather,
    await_cohort: bool,
}

impl Lead {
    pub fn new(writes: Arc<Writes>, axes: &Axes) -> Lead {
        Lead { writes, gather: axes.gather(), await_cohort: axes.awaits_cohort() }
    }

    /// Waits until the record of `ticket` is durable. A committer that has just appended it waits
    /// for the others of its cohort first. `advance` is as `Protocol::advance`, for its log.
    ///
    /// # Errors
    /// `OutcomeUnknown` if commits have stopped; `Timeout` at `deadline`.
    pub fn wait(
        &self,
        ticket: Ticket,
        is_committer: bool,
        deadline: Option<Nanos>,
        advance: impl Fn(&LogWriter) -> bool,
    ) -> Result<()> {
        let Writes { environment, durability, schedule, queued, .. } = &*self.writes;
        let log = durability.log(ticket.log);
        loop {
            // The ticket first: a leader resigns before it notifies.
            let woken = log.event.ticket();
            if self.writes.is_durable(ticket)? {
                return Ok(());
            }
            if queued.await_carrier(&self.writes, log, ticket.csn, deadline)? {
                continue;
            }
            // Where the flusher writes, it is the flusher that waits for the cohort.
            if is_committer
                && self.await_cohort
                && !schedule.delegates_to_flusher(log)
                && let Some(is_timekeeper) = log.cohort.is_timekeeper(ticket.csn)
                && let Some(until) = schedule.cohort_expected_until(log)
            {
                // The last of the cohort to arrive leads, and wakes the others when all is written.
                log.event.wait(woken, is_timekeeper.then(|| until.since(environment.clock.now())));
                environment.metrics.sleeps.add(1);
                continue;
            }
            // A log whose bytes are in a write of another one has no leader to wait for: look for
            // that write.
            if !advance(log) && !log.is_only_carried() {
                environment.sleep(&log.event, woken, deadline)?;
            }
        }
    }

    /// Becomes the leader of `log`, gathers followers, and writes, if `csn` is not durable. Returns
    /// false if there is a leader, or nothing to write.
    pub fn lead(&self, log: &LogWriter, csn: Csn) -> bool {
        let Some(leader) = self.writes.try_become_leader(log) else { return false };
        if csn <= log.log.durable_csn() {
            return true;
        }
        if !self.gather.window.is_zero() {
            self.gather_followers(log);
        }
        self.writes.write_as_leader(&leader, &self.writes.environment.metrics.leader_flushes)
    }

    /// Gives followers time to arrive, if there are any.
    fn gather_followers(&self, log: &LogWriter) {
        let Gather { window, siblings, most } = self.gather;
        let environment = &self.writes.environment;
        // Threads that commit as well, or were just released, are not in progress, but they count.
        let others = (environment.hooks.in_progress)().saturating_add(log.cohort.others());
        if others < siblings {
            return;
        }
        let until = levels::after(environment.clock.now(), window);
        loop {
            let full = log.full.ticket();
            let left = until.since(environment.clock.now());
            let enough = most.is_some_and(|most| log.counted_records() >= most) || log.has_sealed();
            if left.is_zero() || enough || environment.poison.is_raised() {
                return;
            }
            log.full.wait(full, Some(left));
        }
    }
}
