//! A commit protocol as a value: a choice on each axis, with the numbers of that choice.
//!
//! A number is in the variant that it belongs to, so there is none for a choice that was not made.
//! Each preset's page has its value (`commit::protocols`); an experiment takes one and changes
//! parts of it.

use super::super::error::Result;
use super::{
    Acknowledger, Append, Dependency, IdleLogs, LOG_BUFFER_BYTES, LOG_BUFFER_BYTES_MAX, Layout, MemoryFence,
    Queue, Writer, microseconds, milliseconds, within,
};
use std::time::Duration;

/// How many logs there are, and which threads share one. The choices are those of [`Layout`].
#[allow(missing_docs)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LayoutOptions {
    One,
    PerThread,
    ThreadsPerLog {
        /// Threads that share a log, 1 to 64.
        threads: usize,
        /// Threads that begin one after the other share a log, of at least two logs; and its
        /// buffers grow with their number. Otherwise threads are spread over the logs.
        in_a_row: bool,
    },
    ByPage,
}

/// Which thread writes a log. The choices are those of [`Writer`].
#[allow(missing_docs)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriterOptions {
    Committer,
    Leader {
        gather: Gather,
        /// Where very many threads wait, they leave writing to the flusher; while processors are
        /// idle, `flush_interval` does not delay a write: see `pages::auto`.
        adapts_to_load: bool,
    },
    FlusherPerLog,
    Background {
        /// Committers that wait take a place in the queue, too, and `flush_interval` is a window
        /// that the first record after a write opens: see `papers::floor::queued`.
        queues_waiters: bool,
    },
    Worker(WorkerOptions),
    Collector,
    Memory {
        /// When a committer fences its record, if the processor's caches are volatile.
        fence: MemoryFence,
    },
}

/// How workers write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkerOptions {
    /// Writes of one log in flight, 1 to 3. Default 2.
    pub writes_in_flight: usize,
    /// Logs whose waiting bytes a worker writes with its own, including its own, 0 to 64; 0 and 1
    /// mean only its own. `None` is the number of CPUs that share a cache, at most 8. Default
    /// `None`.
    pub stealing_group: Option<usize>,
    /// Idle time between transactions from which on a worker has each transaction written at once,
    /// on average; a shorter idle time does so with proportional probability. Up to 10 ms; 0 is
    /// off. Default 50 us.
    pub idle_max: Duration,
    /// For workers that lead.
    pub gather: Gather,
}

/// How a leader gathers followers before it writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gather {
    /// Longest wait, up to 1 s; 0: none. Default 0.
    pub window: Duration,
    /// The window opens only if at least this many other transactions are in progress. Default 5.
    pub siblings: usize,
    /// With so many commits a leader waits for no more. Default `None`: no limit.
    pub most: Option<u32>,
}

/// Which thread acknowledges commits without a waiter. The choices are those of [`Acknowledger`].
#[allow(missing_docs)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AcknowledgerOptions {
    Leader,
    Background,
    Workers(AcknowledgmentOptions),
}

/// How workers acknowledge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AcknowledgmentOptions {
    /// Logs that they acknowledge for each other, 1 to 64. Default 2.
    pub group: usize,
    /// A worker acknowledges after one transaction in this many, at random, 1 to 64; 0 is log2 of
    /// the threads that commit, at least 1. Default 1.
    pub odds: u32,
}

/// A protocol: a point on the axes in which protocols differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Axes {
    /// How many logs there are, and which threads share one.
    pub layout: LayoutOptions,
    /// Which thread writes a log.
    pub writer: WriterOptions,
    /// Which thread acknowledges commits without a waiter.
    pub acknowledger: AcknowledgerOptions,
    /// What a transaction with a durable record still waits for. `None`: log order with one log,
    /// DSN with several.
    pub dependency: Option<Dependency>,
    /// What a log without recent commits does to queued commits of other logs, with `gsn` and
    /// `gsn-rfa`; and, with any rule, whether only its own flusher writes it (`flusher`).
    pub idle_logs: IdleLogs,
    /// What a committer does that finds the latch of the log taken.
    pub append: Append,
    /// The queue of commits without a waiter.
    pub queue: Queue,
    /// Delays a group commit briefly, so that threads released by the previous write can join, if
    /// that has paid off recently. Not where leaders gather, committers are queued, or each writes
    /// for itself.
    pub await_cohort: bool,
    /// Whether a thread that writes several logs makes them durable with one flush, where the file
    /// system allows that; `None` measures.
    pub shared_flush: Option<bool>,
    /// Time between two writes of a log without waiting commits, up to 1 s.
    pub flush_interval: Duration,
    /// Waiting bytes at which a log without waiting commits is written; `None`: a whole buffer.
    pub flush_unit_bytes: Option<usize>,
}

/// Threads that share a log.
pub(crate) const THREADS_PER_LOG: usize = 2;
/// What a thread adds to the buffers of its log, where threads in a row share one.
const LOG_BUFFER_BYTES_EACH: usize = 512 << 10;

impl Gather {
    /// A leader does not gather.
    pub const NONE: Gather = Gather { window: Duration::ZERO, siblings: 5, most: None };
}

impl WorkerOptions {
    /// The numbers of `autonomous`.
    pub const DEFAULT: WorkerOptions = WorkerOptions {
        writes_in_flight: 2,
        stealing_group: None,
        idle_max: Duration::from_micros(50),
        gather: Gather::NONE,
    };
}

impl AcknowledgmentOptions {
    /// The numbers of `autonomous`.
    pub const DEFAULT: AcknowledgmentOptions = AcknowledgmentOptions { group: 2, odds: 1 };
}

impl From<Layout> for LayoutOptions {
    fn from(layout: Layout) -> LayoutOptions {
        match layout {
            Layout::One => LayoutOptions::One,
            Layout::PerThread => LayoutOptions::PerThread,
            Layout::ThreadsPerLog => {
                LayoutOptions::ThreadsPerLog { threads: THREADS_PER_LOG, in_a_row: false }
            }
            Layout::ByPage => LayoutOptions::ByPage,
        }
    }
}

impl From<Writer> for WriterOptions {
    fn from(writer: Writer) -> WriterOptions {
        match writer {
            Writer::Committer => WriterOptions::Committer,
            Writer::Leader => WriterOptions::Leader { gather: Gather::NONE, adapts_to_load: false },
            Writer::FlusherPerLog => WriterOptions::FlusherPerLog,
            Writer::Background => WriterOptions::Background { queues_waiters: false },
            Writer::Worker => WriterOptions::Worker(WorkerOptions::DEFAULT),
            Writer::Collector => WriterOptions::Collector,
            Writer::Memory => WriterOptions::Memory { fence: MemoryFence::Beside },
        }
    }
}

impl From<Acknowledger> for AcknowledgerOptions {
    fn from(acknowledger: Acknowledger) -> AcknowledgerOptions {
        match acknowledger {
            Acknowledger::Leader => AcknowledgerOptions::Leader,
            Acknowledger::Background => AcknowledgerOptions::Background,
            Acknowledger::Workers => AcknowledgerOptions::Workers(AcknowledgmentOptions::DEFAULT),
        }
    }
}

impl LayoutOptions {
    /// Returns the choice without its numbers.
    #[must_use]
    pub fn kind(self) -> Layout {
        match self {
            LayoutOptions::One => Layout::One,
            LayoutOptions::PerThread => Layout::PerThread,
            LayoutOptions::ThreadsPerLog { .. } => Layout::ThreadsPerLog,
            LayoutOptions::ByPage => Layout::ByPage,
        }
    }
}

impl WriterOptions {
    /// Returns the choice without its numbers.
    #[must_use]
    #[inline]
    pub fn kind(self) -> Writer {
        match self {
            WriterOptions::Committer => Writer::Committer,
            WriterOptions::Leader { .. } => Writer::Leader,
            WriterOptions::FlusherPerLog => Writer::FlusherPerLog,
            WriterOptions::Background { .. } => Writer::Background,
            WriterOptions::Worker(_) => Writer::Worker,
            WriterOptions::Collector => Writer::Collector,
            WriterOptions::Memory { .. } => Writer::Memory,
        }
    }
}

impl AcknowledgerOptions {
    /// Returns the choice without its numbers.
    #[must_use]
    pub fn kind(self) -> Acknowledger {
        match self {
            AcknowledgerOptions::Leader => Acknowledger::Leader,
            AcknowledgerOptions::Background => Acknowledger::Background,
            AcknowledgerOptions::Workers(_) => Acknowledger::Workers,
        }
    }
}

/// Questions that the components ask.
impl Axes {
    /// What protocols have in common, except where their pages say otherwise.
    pub const COMMON: Axes = Axes {
        layout: LayoutOptions::One,
        writer: WriterOptions::Leader { gather: Gather::NONE, adapts_to_load: false },
        acknowledger: AcknowledgerOptions::Leader,
        dependency: None,
        idle_logs: IdleLogs::Raise,
        append: Append::Latched,
        queue: Queue::LockFree,
        await_cohort: true,
        shared_flush: None,
        flush_interval: Duration::from_micros(200),
        flush_unit_bytes: Some(16 << 10),
    };

    /// Returns the rule by which a transaction with a durable record waits for others.
    #[must_use]
    pub fn rule(&self) -> Dependency {
        self.dependency.unwrap_or(Dependency::Dsn)
    }

    /// Returns whether a thread that waits writes.
    #[must_use]
    pub fn waiters_write(&self) -> bool {
        !matches!(self.writer, WriterOptions::Background { .. } | WriterOptions::FlusherPerLog)
    }

    /// Returns whether flushers write a full buffer at once, that a committer has sealed.
    #[must_use]
    pub fn flushers_write_sealed(&self) -> bool {
        matches!(self.writer.kind(), Writer::Leader | Writer::Background | Writer::FlusherPerLog)
    }

    /// Returns whether queued commits leave the logs that hold W back to the writers of these.
    #[must_use]
    pub fn leaves_writes_to_owners(&self) -> bool {
        matches!(self.idle_logs, IdleLogs::Worker | IdleLogs::Flusher)
    }

    /// Returns whether a transaction may have a record in several logs.
    #[must_use]
    #[inline]
    pub fn is_by_page(&self) -> bool {
        self.layout == LayoutOptions::ByPage
    }

    /// Returns whether committers that wait take a place in the queue, too.
    #[must_use]
    #[inline]
    pub fn queues_waiters(&self) -> bool {
        matches!(self.writer, WriterOptions::Background { queues_waiters: true })
    }

    /// Returns whether committers wait for the others of their cohort, see `commit::core::cohort`.
    #[must_use]
    pub fn awaits_cohort(&self) -> bool {
        use Writer::{Collector, Committer, Memory};
        let alone = matches!(self.writer.kind(), Committer | Collector | Memory) || self.queues_waiters();
        self.await_cohort && !alone && self.gather().window.is_zero()
    }

    /// Returns how many threads write for `logs` logs besides those that commit.
    #[must_use]
    pub fn flushers(&self, logs: usize) -> usize {
        match self.writer {
            WriterOptions::FlusherPerLog => logs,
            _ => 1,
        }
    }

    /// Returns how leaders gather.
    #[must_use]
    #[inline]
    pub fn gather(&self) -> Gather {
        match self.writer {
            WriterOptions::Leader { gather, .. } => gather,
            WriterOptions::Worker(options) => options.gather,
            _ => Gather::NONE,
        }
    }

    /// Returns how workers acknowledge, if they do.
    #[must_use]
    pub fn acknowledgment(&self) -> AcknowledgmentOptions {
        match self.acknowledger {
            AcknowledgerOptions::Workers(options) => options,
            _ => AcknowledgmentOptions::DEFAULT,
        }
    }

    /// Returns the waiting bytes at which a log without waiting commits is written.
    #[must_use]
    #[inline]
    pub fn flush_unit_bytes(&self) -> usize {
        self.flush_unit_bytes.unwrap_or_else(|| self.log_buffer_bytes())
    }

    /// Returns how many threads that begin one after the other share a log; 1: they are spread over
    /// the logs.
    #[must_use]
    pub fn threads_in_a_row(&self) -> usize {
        match self.layout {
            LayoutOptions::ThreadsPerLog { threads, in_a_row: true } => threads,
            _ => 1,
        }
    }

    /// Returns the largest size of a log buffer, in bytes, where the settings give none.
    pub fn log_buffer_bytes(&self) -> usize {
        match self.layout {
            LayoutOptions::ThreadsPerLog { threads, in_a_row: true } => {
                (threads * LOG_BUFFER_BYTES_EACH).min(LOG_BUFFER_BYTES_MAX)
            }
            _ => LOG_BUFFER_BYTES,
        }
    }

    pub(super) fn validate(&self) -> Result<()> {
        if let LayoutOptions::ThreadsPerLog { threads, .. } = self.layout {
            within("threads_per_log", threads as u64, 1, 64)?;
        }
        if let WriterOptions::Worker(options) = self.writer {
            within("writes_in_flight", options.writes_in_flight as u64, 1, 3)?;
            within("stealing_group", options.stealing_group.unwrap_or(1) as u64, 0, 64)?;
            within("idle_max", microseconds(options.idle_max), 0, 10_000)?;
        }
        within("acknowledgment_group", self.acknowledgment().group as u64, 1, 64)?;
        within("acknowledgment_odds", self.acknowledgment().odds.into(), 0, 64)?;
        within("gather_window", milliseconds(self.gather().window), 0, 1_000)?;
        within("flush_interval", milliseconds(self.flush_interval), 0, 1_000)
    }
}

/// Changes for experiments.
#[cfg(any(test, feature = "internals"))]
impl Axes {
    /// Chooses a layout. Logs that belong to pages are not those of workers: then leaders write.
    pub fn set_layout(&mut self, layout: Layout) {
        if self.layout.kind() != layout {
            self.layout = layout.into();
        }
        if layout == Layout::ByPage && self.writer.kind() == Writer::Worker {
            self.writer = Writer::Leader.into();
        }
    }

    /// Chooses a writer. A leader that is chosen always writes by itself.
    pub fn set_writer(&mut self, writer: Writer) {
        if self.writer.kind() != writer || writer == Writer::Leader {
            self.writer = writer.into();
        }
    }

    /// Chooses an acknowledger.
    pub fn set_acknowledger(&mut self, acknowledger: Acknowledger) {
        if self.acknowledger.kind() != acknowledger {
            self.acknowledger = acknowledger.into();
        }
    }

    /// Returns the number of threads that share a log, where that is the choice.
    pub fn threads_mut(&mut self) -> Option<&mut usize> {
        match &mut self.layout {
            LayoutOptions::ThreadsPerLog { threads, .. } => Some(threads),
            _ => None,
        }
    }

    /// Returns how workers write, where they do.
    pub fn worker_mut(&mut self) -> Option<&mut WorkerOptions> {
        match &mut self.writer {
            WriterOptions::Worker(options) => Some(options),
            _ => None,
        }
    }

    /// Returns how leaders gather, where there are some.
    pub fn gather_mut(&mut self) -> Option<&mut Gather> {
        match &mut self.writer {
            WriterOptions::Leader { gather, .. } => Some(gather),
            WriterOptions::Worker(options) => Some(&mut options.gather),
            _ => None,
        }
    }

    /// Returns how workers acknowledge, where they do.
    pub fn acknowledgment_mut(&mut self) -> Option<&mut AcknowledgmentOptions> {
        match &mut self.acknowledger {
            AcknowledgerOptions::Workers(options) => Some(options),
            _ => None,
        }
    }
    /// Returns when a committer fences its record, where it does.
    pub fn fence_mut(&mut self) -> Option<&mut MemoryFence> {
        match &mut self.writer {
            WriterOptions::Memory { fence } => Some(fence),
            _ => None,
        }
    }
}
