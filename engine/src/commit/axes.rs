//! The point that runs on the axes of commit protocols: plain data, derived from the settings once,
//! at open.
//!
//! [`super::presets`] fills it; the protocol pages and the components read it.

use crate::base::settings::{Acknowledger, Append, Dependency, IdleLogs, Layout, MemoryFence, Queue, Writer};
use std::time::Duration;

/// The window in which a leader gathers followers before it writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Gather {
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
    pub(super) acknowledgment_odds: u32,
    /// Logs that workers write for each other; none: as the machine's caches say.
    pub(super) stealing_group: Option<usize>,
    /// A worker that is idle for so long between transactions has each of them written at once.
    pub(super) idle_max: Duration,
    /// The rule by which a transaction whose record is durable waits for others.
    pub dependency: Dependency,
    /// What an idle log does to queued commits of other logs.
    pub idle_logs: IdleLogs,
    /// What a committer does that finds the latch of the log taken.
    pub(super) append: Append,
    /// When a committer fences its record in mapped memory.
    pub(super) memory_fence: MemoryFence,
    /// The kind of queue for transactions without a waiting thread.
    pub queue: Queue,
    /// Time between two writes of a log that no thread waits for.
    pub flush_interval: Duration,
    /// `flush_interval` is a window that the first record after a write opens, for committers that
    /// wait, too.
    pub(super) window_after_arrival: bool,
    /// Committers that wait take a place in the queue, too.
    pub(super) queues_waiters: bool,
    /// Each record is a block of its own.
    pub(super) one_record_a_block: bool,
    /// With so many commits a leader waits for no more.
    pub(super) gather_max: Option<u32>,
    pub(super) gather: Option<Gather>,
    /// Committers wait for the others of their cohort, see `cohort`.
    pub(super) await_cohort: bool,
    /// Bytes in a log at which it is written although no thread waits.
    pub(super) flush_unit_bytes: usize,
    pub(super) writes_in_flight: usize,
    /// A thread that writes several logs flushes once; none: as it is measured.
    pub(super) shared_flush: Option<bool>,
    pub(super) loss_window: Duration,
    /// See `protocol::auto`.
    pub(super) delegates_when_crowded: bool,
}

impl Axes {
    /// Returns whether a thread that waits writes.
    pub(super) fn waiters_write(&self) -> bool {
        !matches!(self.writer, Writer::Background | Writer::FlusherPerLog)
    }

    /// Returns whether flushers write a full buffer at once, that a committer has sealed.
    pub(super) fn flushers_write_sealed(&self) -> bool {
        matches!(self.writer, Writer::Leader | Writer::Background | Writer::FlusherPerLog)
    }

    /// Returns `idle_max` if idle workers have their transactions written, and otherwise zero.
    pub(super) fn measured_idle_max(&self) -> Duration {
        if self.writer == Writer::Worker { self.idle_max } else { Duration::ZERO }
    }

    /// Returns whether a transaction may have a record in several logs.
    #[inline]
    pub(super) fn is_by_page(&self) -> bool {
        self.layout == Layout::ByPage
    }

    /// Returns how many threads write for `logs` logs besides those that commit.
    pub(super) fn flushers(&self, logs: usize) -> usize {
        match self.writer {
            Writer::FlusherPerLog => logs,
            _ => 1,
        }
    }
}
