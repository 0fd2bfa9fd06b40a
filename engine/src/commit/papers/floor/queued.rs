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

use crate::base::clock::Nanos;
use crate::base::settings::{AcknowledgerOptions, Axes, WriterOptions};
use crate::base::{Csn, Result};
use crate::commit::core::levels;
use crate::commit::core::log_writer::LogWriter;
use crate::commit::core::pending::Ticket;
use crate::commit::core::protocol::Protocol;
use crate::commit::core::writes::Writes;
use std::sync::Arc;
use std::time::Duration;

pub const AXES: Axes = Axes {
    writer: WriterOptions::Background { queues_waiters: true },
    acknowledger: AcknowledgerOptions::Background,
    flush_interval: Duration::from_millis(1),
    ..Axes::COMMON
};

/// See the module's text.
pub struct Queued {
    pub writes: Arc<Writes>,
    pub window: Duration,
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

    /// Asks the background thread to write at `by`.
    fn advance(&self, log: &LogWriter, csn: Csn, by: Nanos) -> bool {
        self.writes.delegate_or_lead(log, csn, by)
    }
}
