//! `queued`: a dedicated writer drains a bounded queue every so often.
//!
//! **After**: the bounded-queue writer of commit logs with a periodic flush.
//!
//! **Here**: every commit, blocking or not, takes a place in a bounded queue (`queue_entries`); a
//! committer that finds the queue full waits. The first to arrive opens a window of
//! `flush_interval` (1 ms by default). When it ends, one background thread writes everything that
//! has arrived with one durable write, and empties the queue. Readers, checkpoints and others that
//! need the log do not wait for the window.
//!
//! ```text
//!   committer 1    append, queue | sleep ................................... | committed
//!   committer 2         append, queue | sleep .............................. | committed
//!   background     |----- window ------| seal  write ====== durable | pop the queue, wake all
//! ```

use super::super::levels;
use super::super::log_writer::LogWriter;
use super::super::pending::Ticket;
use super::super::writes::Writes;
use super::page::{Choices, Page, Parts, Protocol};
use crate::base::clock::Nanos;
use crate::base::settings::{Acknowledger, Layout, Writer};
use crate::base::{Csn, Result};
use std::sync::Arc;
use std::time::Duration;

pub(super) const PAGE: Page = Page {
    choices: Choices {
        layout: Layout::One,
        writer: Writer::Background,
        acknowledger: Acknowledger::Background,
    },
    start: |parts: Parts<'_>| Arc::new(Queued { writes: parts.writes, window: parts.axes.flush_interval }),
};

struct Queued {
    writes: Arc<Writes>,
    window: Duration,
}

impl Protocol for Queued {
    fn appended(&self, log: &LogWriter, due: Nanos, _ready: Nanos) {
        self.writes.flushers.of(log).wake_for(due);
    }

    fn wait(&self, ticket: Ticket, is_committer: bool, deadline: Option<Nanos>) -> Result<()> {
        // The window of the first to arrive ends first, and its write takes the others along.
        let by = levels::after(self.writes.environment.clock.now(), self.window);
        self.writes.wait(ticket, deadline, |log| self.advance(log, ticket.csn, by))?;
        if is_committer {
            // Its place in the queue is free before it returns.
            self.writes.acknowledgments.acknowledge_all(true);
        }
        Ok(())
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
