//! `queued`: a dedicated writer drains a bounded queue every so often.
//!
//! **After**: the bounded-queue writer of commit logs with a periodic flush.
//!
//! **Here**: one background thread writes the log at most once every `flush_interval` (1 ms by default), for committers
//! that wait, too. It acknowledges the transactions of a bounded queue (`queue_entries`); a committer that finds the
//! queue full waits. Readers, checkpoints and others that need the log do not wait for the interval.
//!
//! ```text
//!   committer    append | sleep ................................ | committed
//!   background          interval since the last write | seal  write == durable | pop the queue, wake all
//! ```

use super::super::levels::{self, NOW};
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
    start: |parts: Parts<'_>| {
        let interval = parts.axes.waiters_keep_interval.then_some(parts.axes.flush_interval);
        Arc::new(Queued { writes: parts.writes, interval })
    },
};

struct Queued {
    writes: Arc<Writes>,
    interval: Option<Duration>,
}

impl Protocol for Queued {
    fn appended(&self, log: &LogWriter, due: Nanos, _ready: Nanos) {
        self.writes.flushers.of(log).wake_for(due);
    }

    fn wait(&self, ticket: Ticket, _is_committer: bool, deadline: Option<Nanos>) -> Result<()> {
        let log = self.writes.durability.log(ticket.log);
        loop {
            let woken = log.event.ticket();
            if self.writes.is_durable(ticket)? {
                return Ok(());
            }
            let by = self.interval.map_or(NOW, |interval| levels::after(log.last_write().0, interval));
            if !self.advance(log, ticket.csn, by) {
                self.writes.environment.sleep(&log.event, woken, deadline)?;
            }
        }
    }

    /// Has the background thread write at `by`. Once it was told to end, the waiter writes.
    fn advance(&self, log: &LogWriter, csn: Csn, by: Nanos) -> bool {
        if self.writes.flushers.are_running() {
            self.writes.flushers.delegate(log, by);
            return false;
        }
        self.writes.lead(log, csn)
    }
}
