//! `pipelined` and `restricted`: flushers write, committers sleep. One program, other constants.
//!
//! # `pipelined`: flush pipelining
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
//! they form a group in a consolidation array, as in Aether (`papers::consolidated`). There the
//! first of a group reserves space for all, and each copies its own record. Here the holder of the
//! latch appends the records of the group. Threads do not fill a buffer side by side, and inherit
//! no locks: see `docs/internals/decisions/0027-no-parallel-fill-and-no-inherited-locks.md`.
//!
//! # `restricted`: restricted decentralized logging
//!
//! **After**: *Milliscale: Fast Commit on Low-Latency Object Storage*, 2026.
//!
//! **Here**: *k* threads share one log (2 by default), whose buffers grow with *k*
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

use crate::base::clock::Nanos;
use crate::base::settings::{AcknowledgerOptions, Axes, LayoutOptions, THREADS_PER_LOG, WriterOptions};
use crate::base::{Csn, Result};
use crate::commit::core::levels::NOW;
use crate::commit::core::log_writer::LogWriter;
use crate::commit::core::pending::Ticket;
use crate::commit::core::protocol::Protocol;
use crate::commit::core::writes::Writes;
use std::sync::Arc;
use std::time::Duration;

/// Of `pipelined`.
pub const PIPELINED: Axes = Axes {
    writer: WriterOptions::Background { queues_waiters: false },
    acknowledger: AcknowledgerOptions::Background,
    ..Axes::COMMON
};

/// Of `restricted`.
pub const RESTRICTED: Axes = Axes {
    layout: LayoutOptions::ThreadsPerLog { threads: THREADS_PER_LOG, in_a_row: true },
    writer: WriterOptions::FlusherPerLog,
    flush_interval: Duration::from_millis(1),
    flush_unit_bytes: None,
    ..Axes::COMMON
};

/// See the module's text.
pub struct Flushed(pub Arc<Writes>);

impl Protocol for Flushed {
    fn appended(&self, log: &LogWriter, due: Nanos, _ready: Nanos) {
        self.0.flushers.of(log).wake_for(due);
    }

    fn wait(&self, ticket: Ticket, _is_committer: bool, deadline: Option<Nanos>) -> Result<()> {
        self.0.wait(ticket, deadline, |log| self.advance(log, ticket.csn, NOW))
    }

    /// Asks the log's flusher to write at `by`.
    fn advance(&self, log: &LogWriter, csn: Csn, by: Nanos) -> bool {
        self.0.delegate_or_lead(log, csn, by)
    }
}
