//! `auto`: the default. Group commit that adapts to the number of waiting threads.
//!
//! **After**: [`super::group`], with three differences:
//! 1. *k* threads share a log (one log on two cores).
//! 2. Where more than 4 threads for each processor wait, they leave writing to the flusher. A
//!    leader has work of its own when its write is done, and gets to the next one late; a thread
//!    that only writes does not.
//! 3. While the process leaves half of the processors idle, a record that no thread waits for is
//!    written at once. An interval between two writes would save processor time that is worth
//!    nothing then.
//!
//! ```text
//!   few waiters     append | cohort complete? lead: seal  write ==== durable | wake all | committed
//!   very many       append | wake the flusher, sleep .............................. | committed
//!   none            append, queue | flusher, now or an interval later: seal  write ==== | committed
//! ```
//!
//! With a log in mapped memory `auto` runs `papers::passive` instead.

use super::Lead;
use crate::base::clock::Nanos;
use crate::base::settings::{Axes, Gather, LayoutOptions, THREADS_PER_LOG, WriterOptions};
use crate::base::{Csn, Result};
use crate::commit::core::levels::NOW;
use crate::commit::core::log_writer::LogWriter;
use crate::commit::core::pending::Ticket;
use crate::commit::core::protocol::{Parts, Protocol};
use crate::commit::core::writes::Writes;
use std::sync::Arc;
use std::time::Duration;

pub const AXES: Axes = Axes {
    layout: LayoutOptions::ThreadsPerLog { threads: THREADS_PER_LOG, in_a_row: false },
    writer: WriterOptions::Leader { gather: Gather::NONE, adapts_to_load: true },
    flush_interval: Duration::from_micros(300),
    ..Axes::COMMON
};

/// See the module's text.
pub struct Auto {
    writes: Arc<Writes>,
    lead: Lead,
}

impl Auto {
    pub fn new(parts: &Parts<'_>) -> Auto {
        Auto { writes: parts.writes.clone(), lead: Lead::new(parts.writes.clone(), parts.axes) }
    }
}

impl Protocol for Auto {
    fn appended(&self, log: &LogWriter, due: Nanos, _ready: Nanos) {
        self.writes.flushers.of(log).wake_for(due);
    }

    fn wait(&self, ticket: Ticket, is_committer: bool, deadline: Option<Nanos>) -> Result<()> {
        self.lead.wait(ticket, is_committer, deadline, |log| self.advance(log, ticket.csn, NOW))
    }

    fn advance(&self, log: &LogWriter, csn: Csn, by: Nanos) -> bool {
        let writes = &self.writes;
        if writes.schedule.delegates_to_flusher(log) && writes.flushers.are_running() {
            writes.flushers.delegate(log, by);
            return false;
        }
        self.lead.lead(log, csn)
    }
}
