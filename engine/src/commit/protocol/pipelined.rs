//! `pipelined`: flush pipelining.
//!
//! **After**: Johnson et al., *Aether: A Scalable Approach to Logging*, VLDB 2010.
//!
//! **Here**: a worker never blocks on a write. It hands the pre-committed transaction to a queue
//! (`commit_async`) and runs the next one. One background thread writes the log and acknowledges
//! queued transactions. It writes again as soon as it can, but at most once every interval. With a
//! blocking commit the committer sleeps until the thread has written.
//!
//! ```text
//!   worker       append, queue | next transaction ...
//!   background       due: seal  write ======= durable | pop the queue: committed
//! ```
//!
//! **Different from Aether**: the thread waits for the cohort of blocking committers, as a leader
//! would; and it is woken by due times instead of polling, so an idle database has no awake thread.
//! Threads that find the log's latch taken wait for it one by one. With `append = consolidated`
//! they form a group in a consolidation array, as in Aether ([`super::super::consolidate`]). There
//! the first of a group reserves space for all, and each copies its own record. Here the holder of
//! the latch appends the records of the group. Threads do not fill a buffer side by side, and
//! inherit no locks: see
//! `docs/internals/decisions/0027-no-parallel-fill-and-no-inherited-locks.md`.

use super::super::levels::NOW;
use super::super::log_writer::LogWriter;
use super::super::pending::Ticket;
use super::super::writes::Writes;
use super::page::{Choices, Page, Parts, Protocol};
use crate::base::clock::Nanos;
use crate::base::settings::{Acknowledger, Layout, Writer};
use crate::base::{Csn, Result};
use std::sync::Arc;

pub(super) const PAGE: Page = Page {
    choices: Choices {
        layout: Layout::One,
        writer: Writer::Background,
        acknowledger: Acknowledger::Background,
    },
    start: |parts: Parts<'_>| Arc::new(Pipelined { writes: parts.writes }),
};

struct Pipelined {
    writes: Arc<Writes>,
}

impl Protocol for Pipelined {
    fn appended(&self, log: &LogWriter, due: Nanos, _ready: Nanos) {
        self.writes.flushers.of(log).wake_for(due);
    }

    fn wait(&self, ticket: Ticket, _is_committer: bool, deadline: Option<Nanos>) -> Result<()> {
        self.writes.wait(ticket, deadline, |log| self.advance(log, ticket.csn, NOW))
    }

    /// Asks the background thread to write at `by`. Once that thread was asked to end, the waiter
    /// writes.
    fn advance(&self, log: &LogWriter, csn: Csn, by: Nanos) -> bool {
        if self.writes.flushers.are_running() {
            self.writes.flushers.delegate(log, by);
            return false;
        }
        self.writes.lead(log, csn)
    }
}
