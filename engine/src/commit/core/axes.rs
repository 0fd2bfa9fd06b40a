//! The point that runs on the axes of commit protocols: plain data, derived from the settings once,
//! at open.
//!
//! `presets` fills it; the protocol pages and the components read it.

use crate::base::settings::{Acknowledger, Append, Dependency, IdleLogs, Layout, MemoryFence, Queue, Writer};
use std::time::Duration;

/// The window in which a leader gathers followers before it writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gather {
    pub window: Duration,
    /// The window opens only if at least this many other transactions are in progress.
    pub siblings: usize,
}

/// A point on the axes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Axes {
    /// Which transactions share a log.
    pub layout: Layout,
    /// Threads that begin one after the other and share a log; 1: they are spread over the logs.
    pub threads_in_a_row: usize,
    /// Which thread writes.
    pub writer: Writer,
    /// Which thread acknowledges queued transactions.
    pub acknowledger: Acknowledger,
    /// Logs that workers acknowledge for each other.
    pub acknowledgment_group: usize,
    /// Workers acknowledge after one transaction in so many; 0: log2 of the threads that commit.
    pub acknowledgment_odds: u32,
    /// Logs that workers write for each other; none: as the machine's caches say.
    pub stealing_group: Option<usize>,
    /// A worker that is idle for so long between transactions has each of them written at once.
    pub idle_max: Duration,
    /// The rule by which a transaction whose record is durable waits for others.
    pub dependency: Dependency,
    /// What an idle log does to queued commits of other logs.
    pub idle_logs: IdleLogs,
    /// Transactions that the rule makes wait without need are counted.
    pub counts_false_waits: bool,
    /// What a committer does that finds the latch of the log taken.
    pub append: Append,
    /// When a committer fences its record in mapped memory.
    pub memory_fence: MemoryFence,
    /// The kind of queue for transactions without a waiting thread.
    pub queue: Queue,
    /// Time between two writes of a log that no thread waits for.
    pub flush_interval: Duration,
    /// `flush_interval` is a window that the first record after a write opens, for committers that
    /// wait, too.
    pub window_after_arrival: bool,
    /// Committers that wait take a place in the queue, too.
    pub queues_waiters: bool,
    /// Each record is a block of its own.
    pub one_record_a_block: bool,
    /// With so many commits a leader waits for no more.
    pub gather_max: Option<u32>,
    pub(in crate::commit) gather: Option<Gather>,
    /// Committers wait for the others of their cohort, see `cohort`.
    pub await_cohort: bool,
    /// Bytes in a log at which it is written although no thread waits.
    pub flush_unit_bytes: usize,
    pub(in crate::commit) writes_in_flight: usize,
    /// A thread that writes several logs flushes once; none: as it is measured.
    pub shared_flush: Option<bool>,
    pub(in crate::commit) loss_window: Duration,
    /// See `pages::auto`.
    pub delegates_when_crowded: bool,
}

impl Axes {
    /// Returns whether a thread that waits writes.
    pub fn waiters_write(&self) -> bool {
        !matches!(self.writer, Writer::Background | Writer::FlusherPerLog)
    }

    /// Returns whether flushers write a full buffer at once, that a committer has sealed.
    pub fn flushers_write_sealed(&self) -> bool {
        matches!(self.writer, Writer::Leader | Writer::Background | Writer::FlusherPerLog)
    }

    /// Returns whether queued commits leave the logs that hold W back to the writers of these.
    pub fn leaves_writes_to_owners(&self) -> bool {
        matches!(self.idle_logs, IdleLogs::Worker | IdleLogs::Flusher)
    }

    /// Returns whether a transaction may have a record in several logs.
    #[inline]
    pub fn is_by_page(&self) -> bool {
        self.layout == Layout::ByPage
    }

    /// Returns how many threads write for `logs` logs besides those that commit.
    pub fn flushers(&self, logs: usize) -> usize {
        match self.writer {
            Writer::FlusherPerLog => logs,
            _ => 1,
        }
    }
}
