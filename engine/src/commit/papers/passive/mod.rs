//! `passive`: passive group commit. Log buffers are in memory that keeps what is in it.
//!
//! **After**: Wang and Johnson, *Scalable Logging through Emerging Non-Volatile Memory*, VLDB 2014.
//!
//! **Here**: a committer stores its record, fences it, and is hardened: no device, and no thread to
//! wait for. What is left of group commit is to know that everything it depends on is fenced, too:
//!
//! ```text
//!   latch                                          unlatch          latch
//!   | draw: slot := CSN     store record     queue |       fence    | slot := infinity     W := min(slots)     DSN < W: committed
//!     | the thread is dirty ----------------------------------------| clean              | any worker of the group acknowledges
//! ```
//!
//! The log's slot of the watermark (`core::watermark`) is both numbers that the paper keeps for
//! each thread: the dirty bit (a CSN: dirty since that; infinity: clean) and how far the log is
//! durable. It is set before the record is stored and cleared after the fence, so the minimum over
//! slots passes nothing that a crash could take away.
//!
//! **A slot per thread.** As in the paper a thread fences after it has released the log, so threads
//! that share a log do not wait for each other's fences. The log keeps a slot for each of the
//! threads that share it ([`crate::log::memory`]): dirty since a CSN, or clean. An append makes the
//! slot of its thread dirty. The thread's own fence makes it clean, or a barrier for all threads.
//! The log's slot of the watermark is the minimum over its threads. If more than 16 threads of a
//! log are dirty, the others share one slot, which only a barrier cleans. A transaction with
//! records in several logs fences once for all.
//!
//! With `memory_fence = latched` a committer fences while it holds the latch, and takes it once.
//! See `docs/internals/decisions/0026-passive-fences-beside-the-latch.md`.
//!
//! One difference is left: a thread that has fenced takes the latch again to clear its slot. In the
//! paper it stores to the slot without a latch. That was considered and not built, because it would
//! replace one rule by four:
//! * each look at how far a log is durable would read the slots of all its threads;
//! * a drain would change slots of other threads, by compare-and-swap, while these change them;
//! * a full buffer could only be sealed once such a drain has succeeded;
//! * clocks (GSN) are settled under the latch, and would need slots of their own.
//!
//! What it would save is the second turn at the latch, of a thread that has just had it.
//!
//! **Stragglers.** A transaction that need not be durable when its commit returns does not fence,
//! and leaves its log dirty, as does a thread that was preempted before its fence. A waiter drains
//! such logs if they stay dirty for a microsecond ([`mapped`]); for queued
//! transactions the first flusher does the same after 1 ms, or when the loss window is about to
//! end.
//!
//! **Durable caches** (`memory_cache = durable`) need none of this: a stored record is durable, the
//! slot rises at once, and no log is dirty. As in the paper that is logging without passive group
//! commit, except that W has to pass the DSN of a commit, because recovery asks for that.
//!
//! **De-staging.** A full buffer is sealed like any block, and the flusher writes it. If all
//! buffers of a log are full, committers write one themselves. A record longer than a buffer is not
//! in mapped memory: it is durable when its block is written. Each record is copied to an ordinary
//! buffer, too, from which its block is written; the paper writes from the mapped memory.
//!
//! **Different from the paper**, besides:
//! * A transaction has one record, written at commit, so it is dirty for its commit only. In the
//!   paper it inserts a record for each change, and is dirty from the first one on.
//! * CSN and DSN do what the GSN does there. With `dependency = gsn` there are clocks, too: they
//!   belong to leaves and not to all pages, and are not stored, because recovery has no use for
//!   them. Each scan raises the clocks of idle logs.
//! * Workers acknowledge instead of a daemon (`acknowledger = background` is the daemon).
//! * `membarrier(2)` drains threads instead of signals.
//! * Each NUMA node has an equal share of the logs, and the mapped buffers of a log are placed on
//!   its node when the database opens (`layout`). In the paper a driver allocates
//!   them there.
//! * Logs by page (`layout = by-page`): see `papers::by_page`.

pub mod mapped;

use crate::base::clock::Nanos;
use crate::base::settings::{
    AcknowledgerOptions, AcknowledgmentOptions, Axes, LayoutOptions, MemoryFence, WriterOptions,
};
use crate::base::{Csn, LogId, Result};
use crate::commit::core::acknowledge::{Acknowledgments, GRACE};
use crate::commit::core::levels::{self, NOW};
use crate::commit::core::log_writer::LogWriter;
use crate::commit::core::medium::Medium;
use crate::commit::core::pending::Ticket;
use crate::commit::core::protocol::{Parts, Protocol};
use crate::commit::core::writes::Writes;
use std::sync::Arc;

pub const AXES: Axes = Axes {
    layout: LayoutOptions::PerThread,
    writer: WriterOptions::Memory { fence: MemoryFence::Beside },
    acknowledger: AcknowledgerOptions::Workers(AcknowledgmentOptions::DEFAULT),
    ..Axes::COMMON
};

/// See the module's text.
pub struct Passive {
    writes: Arc<Writes>,
    medium: Arc<dyn Medium>,
}

impl Passive {
    pub fn new(parts: &Parts<'_>) -> Passive {
        Passive { writes: parts.writes.clone(), medium: parts.medium.clone() }
    }
}

impl Protocol for Passive {
    fn appended(&self, log: &LogWriter, due: Nanos, _ready: Nanos) {
        self.writes.flushers.of(log).wake_for(due);
    }

    /// Only a record that is longer than a buffer, or was not fenced, is not durable yet.
    fn wait(&self, ticket: Ticket, _is_committer: bool, deadline: Option<Nanos>) -> Result<()> {
        self.writes.wait(ticket, deadline, |log| self.advance(log, ticket.csn, NOW))
    }

    fn advance(&self, log: &LogWriter, csn: Csn, _by: Nanos) -> bool {
        if csn > log.log.durable_csn() {
            self.medium.drain(&mut std::iter::once(log));
            if csn <= log.log.durable_csn() {
                return true;
            }
        }
        self.writes.lead(log, csn)
    }

    fn end_of_transaction(&self, log: LogId, _begun: Nanos, _now: Nanos) {
        let acknowledgments: &Acknowledgments = &self.writes.acknowledgments;
        if !acknowledgments.has_queued(log) || !acknowledgments.acknowledge_as_worker(log) {
            return;
        }
        acknowledgments.wake_futures();
        if acknowledgments.has_queued(log) {
            // Held up by a straggler, or another thread is acknowledging.
            acknowledgments.schedule(levels::after(self.writes.environment.clock.now(), GRACE));
        }
    }
}
