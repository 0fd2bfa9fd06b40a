//! `writer = collector`: group commit over several logs, in the foreground. A baseline.
//!
//! **After**: the group commit with which *Moving on From Group Commit* (SIGMOD 2025) compares.
//!
//! **Here**, a worker whose transaction has ended looks whether a log is due: a flush unit waits,
//! or the interval has passed. If so, and no other worker is at it, the worker is the group
//! committer for one round. It
//! 1. takes a block of every log that has something to write;
//! 2. submits all of them to one queue, so that the device has them at the same time;
//! 3. waits until all are durable;
//! 4. acknowledges the queued transactions of all logs.
//!
//! Then it continues with its own transactions. A committer that waits leads or follows, as with
//! `group`. If no worker comes by, the flusher writes a millisecond later.
//!
//! ```text
//!   worker 0    append, queue | due: collect, submit all --- wait --- durable: acknowledge all | next transaction
//!   worker 1    append, queue | append, queue | append, queue | append, queue | ...
//! ```
//!
//! **Different from it**: a worker looks for due logs between its transactions only, so an idle
//! worker commits no group.

use crate::base::clock::Nanos;
use crate::base::{Csn, LogId, Result};
use crate::commit::core::acknowledge::GRACE;
use crate::commit::core::levels::{self, NOW};
use crate::commit::core::log_writer::LogWriter;
use crate::commit::core::pending::Ticket;
use crate::commit::core::protocol::{Parts, Protocol};
use crate::commit::core::sharing::Sharing;
use crate::commit::core::side_by_side::SideBySide;
use crate::commit::core::writes::Writes;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// See the module's text.
pub struct Collector {
    writes: Arc<Writes>,
    sharing: Arc<Sharing>,
    /// Used by the worker that collects.
    queue: Mutex<SideBySide>,
    /// A worker collects.
    collects: AtomicBool,
}

impl Collector {
    pub fn new(parts: &Parts<'_>) -> Collector {
        let (writes, sharing) = (parts.writes.clone(), parts.sharing.clone());
        let (queue, collects) = (Mutex::new(SideBySide::default()), AtomicBool::new(false));
        Collector { writes, sharing, queue, collects }
    }
}

/// The right to collect.
struct Round<'a>(&'a AtomicBool);

impl Drop for Round<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

impl Protocol for Collector {
    /// A worker writes soon: the flusher gives it a little time.
    fn appended(&self, log: &LogWriter, due: Nanos, ready: Nanos) {
        self.writes.flushers.of(log).wake_for(levels::after(due.max(ready), GRACE));
    }

    fn wait(&self, ticket: Ticket, _is_committer: bool, deadline: Option<Nanos>) -> Result<()> {
        self.writes.wait(ticket, deadline, |log| self.advance(log, ticket.csn, NOW))
    }

    fn advance(&self, log: &LogWriter, csn: Csn, _by: Nanos) -> bool {
        self.writes.lead(log, csn)
    }

    fn end_of_transaction(&self, _log: LogId, _begun: Nanos, now: Nanos) {
        let logs = &self.writes.durability.logs;
        let is_due = logs.iter().any(|log| log.flush_request.due() <= now);
        if is_due
            && !self.writes.environment.poison.is_raised()
            && !self.collects.swap(true, Ordering::SeqCst)
        {
            let _round = Round(&self.collects);
            self.collect();
        }
    }
}

impl Collector {
    /// Writes all logs, waits, and acknowledges.
    fn collect(&self) {
        let mut blocks = Vec::new();
        for log in self.writes.durability.logs.iter().filter(|log| log.has_unwritten()) {
            let Some(leader) = self.writes.try_become_leader(log) else { continue };
            if log.unflushed.count() > 0 {
                // What is written here would count only behind a flush.
                drop(leader);
                self.writes.flushers.delegate(log, NOW);
            } else if let Some(block) = log.take_block() {
                blocks.push((leader, block));
            }
        }
        self.queue.lock().write(&self.writes, &self.sharing, blocks);
        self.writes.acknowledgments.publish();
    }
}
