//! The input of [`super::Commit::start`], and the components that all protocols use.

use super::acknowledge::Acknowledgments;
use super::acknowledge::queue::ENTRY_BYTES;
use super::axes::Axes;
use super::deadline::WriteDeadline;
use super::durability::Durability;
use super::environment::{Environment, Hooks};
use super::failure::Failure;
use super::flushers::Flushers;
use super::idle::IdleTimes;
use super::layout::Shares;
use super::log_writer::LogWriter;
use super::metrics::CommitMetrics;
use super::poison::Poison;
use super::schedule::Schedule;
use super::stealing::Neighbours;
use super::waiters::Wakers;
use super::watermark::RingSize;
use super::writes::Writes;
use crate::base::clock::Clock;
use crate::base::settings::{QUEUE_ENTRIES_DEFAULT, Settings};
use crate::base::{Csn, Epoch, LogId};
use crate::device::Storage;
use crate::device::topology::NumaNodes;
use crate::log::memory::LogMemory;
use crate::log::{Log, SegmentPool};
use crate::sync::atomic::AtomicBool;
use crate::sync::{Event, Process};
use std::sync::Arc;

/// Most queue entries of all logs together, by default. A model checker pays for every word.
pub(super) const QUEUE_ENTRIES: usize = if cfg!(feature = "shuttle") { 64 } else { QUEUE_ENTRIES_DEFAULT };
/// All queues of this size or less together take at most this part of all memory.
const QUEUE_PART: u64 = 128;
const QUEUE_ENTRIES_PER_LOG_MIN: usize = if cfg!(feature = "shuttle") { 16 } else { 1024 };

/// The input of [`super::Commit::start`].
pub struct Start {
    /// The storage of the logs.
    pub storage: Arc<dyn Storage>,
    /// The logs, in the order of their ids, which are 0, 1, 2...
    pub logs: Vec<Arc<Log>>,
    /// Mapped memory for their buffers, if they have it.
    pub memory: Option<Arc<LogMemory>>,
    /// Their segments.
    pub segments: Arc<SegmentPool>,
    /// The next CSN to be drawn; everything below is durable.
    pub first_csn: Csn,
    /// The epoch of the records.
    pub epoch: Epoch,
    /// Time.
    pub clock: Clock,
    /// Callbacks into the layers above.
    pub hooks: Hooks,
}

/// Makes the components that all protocols use.
pub(super) fn components(settings: &Settings, start: Start, axes: &Axes) -> Writes {
    let Start { storage, logs, memory, segments, first_csn, epoch, clock, hooks } = start;
    let count = logs.len();
    let affordable = (settings.memory_bytes / QUEUE_PART / ENTRY_BYTES) as usize;
    let most = match settings.queue_entries {
        // `Settings::validate` has compared a larger queue with the memory.
        more if more > QUEUE_ENTRIES_DEFAULT => more,
        entries => QUEUE_ENTRIES.min(entries).min(affordable),
    };
    let entries = (most / count).max(QUEUE_ENTRIES_PER_LOG_MIN);
    let ring = RingSize::for_queued(most);
    if let Some(memory) = &memory {
        place_buffers(memory, count, NumaNodes::of_machine());
        logs.iter().for_each(|log| log.attach(memory.buffers_of(log.id(), count, epoch)));
    }
    let environment = Arc::new(Environment {
        epoch,
        clock: clock.clone(),
        hooks,
        storage,
        segments,
        memory,
        metrics: Arc::new(CommitMetrics::reporting(settings.slow_commit_log)),
        poison: Poison::new(),
        progress: Event::new(),
        space: Event::new(),
        closing: AtomicBool::new(false),
        process: Process::current(),
    });
    let logs = logs.into_iter().map(|log| LogWriter::new(log, axes)).collect();
    let durability = Arc::new(Durability::new(logs, axes, first_csn, ring));
    let (flushers, wakers) = (Arc::new(Flushers::new(axes.flushers(count))), Arc::new(Wakers::default()));
    let (all, of) = ((environment.clone(), durability.clone()), (flushers.clone(), wakers.clone()));
    Writes {
        failure: Arc::new(Failure::new(all.0.clone(), all.1.clone(), of.0.clone(), of.1.clone())),
        acknowledgments: Arc::new(Acknowledgments::new(all.0, all.1, of.0, of.1, axes, entries)),
        schedule: Arc::new(Schedule::new(axes, clock.clone(), durability.clone())),
        deadline: Arc::new(WriteDeadline::new(settings.write_deadline)),
        neighbours: Neighbours::new(axes, count),
        idle: IdleTimes::new(clock, axes.measured_idle_max()),
        environment,
        durability,
        flushers,
        wakers,
    }
}

/// Has the mapped buffers of each log on the NUMA node of the log, if there are several nodes.
pub(super) fn place_buffers(memory: &LogMemory, logs: usize, nodes: &NumaNodes) {
    let shares = Shares::new(logs, 1, nodes);
    for log in (0..logs as u32).map(LogId) {
        if let Some(node) = shares.node_of(log) {
            memory.place(log, logs, node);
        }
    }
}
