//! `auto`: the default. Group commit that adapts to the number of waiting threads.
//!
//! **After**: [`super::group`], with two differences:
//! 1. *k* threads share a log (one log on two cores).
//! 2. Where more than 4 threads for each processor wait, they leave writing to the flusher. A
//!    leader has work of its own when its write is done, and gets to the next one late; a thread
//!    that only writes does not.
//!
//! ```text
//!   few waiters     append | cohort complete? lead: seal  write ==== durable | wake all | committed
//!   very many       append | wake the flusher, sleep .............................. | committed
//!   none            append, queue | flusher, an interval after the last write: seal  write ==== | committed
//! ```
//!
//! With a log in mapped memory `auto` runs [`super::passive`] instead.

use super::super::axes::Gather;
use super::super::levels::NOW;
use super::super::log_writer::LogWriter;
use super::super::pending::Ticket;
use super::super::writes::Writes;
use super::group::gather_followers;
use super::page::{Choices, Page, Parts, Protocol};
use crate::base::clock::Nanos;
use crate::base::settings::{Acknowledger, Layout, Writer};
use crate::base::{Csn, Result};
use std::sync::Arc;

pub(super) const PAGE: Page = Page {
    choices: Choices {
        layout: Layout::ThreadsPerLog,
        writer: Writer::Leader,
        acknowledger: Acknowledger::Leader,
    },
    start: |parts: Parts<'_>| {
        Arc::new(Auto {
            writes: parts.writes,
            gather: parts.axes.gather,
            gather_max: parts.axes.gather_max,
            await_cohort: parts.axes.await_cohort,
        })
    },
};

struct Auto {
    writes: Arc<Writes>,
    gather: Option<Gather>,
    gather_max: Option<u32>,
    await_cohort: bool,
}

impl Protocol for Auto {
    fn appended(&self, log: &LogWriter, due: Nanos, _ready: Nanos) {
        self.writes.flushers.of(log).wake_for(due);
    }

    fn wait(&self, ticket: Ticket, is_committer: bool, deadline: Option<Nanos>) -> Result<()> {
        let Writes { environment, durability, schedule, .. } = &*self.writes;
        let log = durability.log(ticket.log);
        loop {
            let woken = log.event.ticket();
            if self.writes.is_durable(ticket)? {
                return Ok(());
            }
            // Where the flusher writes, it is the flusher that waits for the cohort.
            if is_committer
                && self.await_cohort
                && !schedule.delegates_to_flusher(log)
                && let Some(is_timekeeper) = log.cohort.is_timekeeper(ticket.csn)
                && let Some(until) = schedule.cohort_expected_until(log)
            {
                log.event.wait(woken, is_timekeeper.then(|| until.since(environment.clock.now())));
                environment.metrics.sleeps.add(1);
                continue;
            }
            if !self.advance(log, ticket.csn, NOW) {
                environment.sleep(&log.event, woken, deadline)?;
            }
        }
    }

    fn advance(&self, log: &LogWriter, csn: Csn, by: Nanos) -> bool {
        let writes = &self.writes;
        if writes.schedule.delegates_to_flusher(log) && writes.flushers.are_running() {
            writes.flushers.delegate(log, by);
            return false;
        }
        let Some(leader) = writes.try_become_leader(log) else { return false };
        if csn <= log.log.durable_csn() {
            return true;
        }
        if let Some(gather) = self.gather {
            gather_followers(writes, log, gather, self.gather_max);
        }
        writes.write_as_leader(&leader, &writes.environment.metrics.leader_flushes)
    }
}
