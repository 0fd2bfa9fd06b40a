//! `restricted`: restricted decentralized logging.
//!
//! **After**: *Milliscale: Fast Commit on Low-Latency Object Storage*, 2026.
//!
//! **Here**: *k* threads share one log (`threads_per_log`, default 2), whose buffers grow with *k*
//! (512 KiB a thread). So there are fewer and fuller writes than with a log for each thread. Each
//! log has a flusher thread of its own, which writes when a buffer is full, `flush_interval` (1 ms)
//! after its last write, or when a committer waits. Committers sleep. There are at least two logs,
//! and dependencies are tracked for each record: the rule is `dsn`.
//!
//! ```text
//!   thread 0    append to log 0 | sleep ..................................... | DSN below W: committed
//!   thread 1        append to log 0 | sleep ................................. | DSN below W: committed
//!   flusher 0          due: seal  write ========================== durable | W := min over logs | wake all
//!   thread 2    append to log 1 | sleep ........ | flusher 1 ...
//! ```
//!
//! **Different from Milliscale**: segments are files, not objects; the 1 ms are ours; a waiting
//! committer has its log written at once instead of after the timeout; recovery exists and replays
//! by the same rule.

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
        layout: Layout::ThreadsPerLog,
        writer: Writer::FlusherPerLog,
        acknowledger: Acknowledger::Leader,
    },
    start: |parts: Parts<'_>| Arc::new(Restricted { writes: parts.writes }),
};

struct Restricted {
    writes: Arc<Writes>,
}

impl Protocol for Restricted {
    fn appended(&self, log: &LogWriter, due: Nanos, _ready: Nanos) {
        self.writes.flushers.of(log).wake_for(due);
    }

    fn wait(&self, ticket: Ticket, _is_committer: bool, deadline: Option<Nanos>) -> Result<()> {
        self.writes.wait(ticket, deadline, |log| self.advance(log, ticket.csn, NOW))
    }

    /// Asks the log's flusher to write at `by`. Once the flusher was asked to end, the waiter
    /// writes.
    fn advance(&self, log: &LogWriter, csn: Csn, by: Nanos) -> bool {
        if self.writes.flushers.are_running() {
            self.writes.flushers.delegate(log, by);
            return false;
        }
        self.writes.lead(log, csn)
    }
}
