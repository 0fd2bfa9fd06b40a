//! `group`: leader/follower group commit.
//!
//! **After**: group commit as PostgreSQL does it (`commit_delay`, `commit_siblings`; DeWitt et al.,
//! SIGMOD 1984).
//!
//! **Here**:
//! 1. A committer appends its record and looks whether its log has a leader.
//! 2. If not, it becomes the leader: it seals everything appended so far into one block and writes
//!    that, durably.
//! 3. If there is a leader, the committer is a follower: it sleeps. The leader wakes all followers
//!    with one system call when its write has completed. Those that the write did not cover race to
//!    lead the next one.
//! 4. Before it writes, a leader may gather followers for `gather_window`, if enough other
//!    transactions are in progress (`gather_siblings`), and until there are `gather_max`. Without a
//!    window a batch is what arrived during the previous write, and its cohort (`cohort`):
//!    committers let those return first that the previous write released. One committer keeps the
//!    time.
//! 5. Where no thread waits, the background thread writes, every interval.
//!
//! ```text
//!   leader      append | become leader (gather) seal  write ========= durable | wake all | committed
//!   follower      append | sleep ........................................... | committed
//!   late              append after the seal | sleep ........................ | become leader, write ...
//! ```
//!
//! **Different from PostgreSQL**: the cohort, which replaces guessing a window; and a batch has no
//! object of its own. A follower looks for its CSN, so none is stranded between two leaders.

use super::super::axes::Gather;
use super::super::levels::{self, NOW};
use super::super::log_writer::LogWriter;
use super::super::pending::Ticket;
use super::super::writes::Writes;
use super::page::{Choices, Page, Parts, Protocol};
use crate::base::clock::Nanos;
use crate::base::settings::{Acknowledger, Layout, Writer};
use crate::base::{Csn, Result};
use std::sync::Arc;

pub(super) const PAGE: Page = Page {
    choices: Choices { layout: Layout::One, writer: Writer::Leader, acknowledger: Acknowledger::Leader },
    start: |parts: Parts<'_>| {
        Arc::new(Group {
            writes: parts.writes,
            gather: parts.axes.gather,
            gather_max: parts.axes.gather_max,
            await_cohort: parts.axes.await_cohort,
        })
    },
};

struct Group {
    writes: Arc<Writes>,
    gather: Option<Gather>,
    gather_max: Option<u32>,
    await_cohort: bool,
}

impl Protocol for Group {
    fn appended(&self, log: &LogWriter, due: Nanos, _ready: Nanos) {
        self.writes.flushers.of(log).wake_for(due);
    }

    fn wait(&self, ticket: Ticket, is_committer: bool, deadline: Option<Nanos>) -> Result<()> {
        let Writes { environment, durability, schedule, .. } = &*self.writes;
        let log = durability.log(ticket.log);
        loop {
            // The ticket first: a leader resigns before it notifies.
            let woken = log.event.ticket();
            if self.writes.is_durable(ticket)? {
                return Ok(());
            }
            if is_committer
                && self.await_cohort
                && let Some(is_timekeeper) = log.cohort.is_timekeeper(ticket.csn)
                && let Some(until) = schedule.cohort_expected_until(log)
            {
                // The last of the cohort to arrive leads, and wakes the others when all is written.
                log.event.wait(woken, is_timekeeper.then(|| until.since(environment.clock.now())));
                environment.metrics.sleeps.add(1);
                continue;
            }
            if !self.advance(log, ticket.csn, NOW) {
                environment.sleep(&log.event, woken, deadline)?;
            }
        }
    }

    fn advance(&self, log: &LogWriter, csn: Csn, _by: Nanos) -> bool {
        let Some(leader) = self.writes.try_become_leader(log) else { return false };
        if csn <= log.log.durable_csn() {
            return true;
        }
        if let Some(gather) = self.gather {
            gather_followers(&self.writes, log, gather, self.gather_max);
        }
        self.writes.write_as_leader(&leader, &self.writes.environment.metrics.leader_flushes)
    }
}

/// Gives followers time to arrive, if there are any.
pub(super) fn gather_followers(writes: &Writes, log: &LogWriter, gather: Gather, most: Option<u32>) {
    let environment = &writes.environment;
    // Threads that commit as well, or were just released, are not in progress, but they count.
    let others = (environment.hooks.in_progress)().saturating_add(log.cohort.others());
    if others < gather.siblings {
        return;
    }
    let until = levels::after(environment.clock.now(), gather.window);
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
