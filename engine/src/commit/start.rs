//! The input of [`super::Commit::start`], and the components that all protocols use.

use super::core::acknowledge::Acknowledgments;
use super::core::acknowledge::queue::ENTRY_BYTES;
use super::core::by_watermark::{Dsn, LogOrder, OwnCsn};
use super::core::deadline::WriteDeadline;
use super::core::durability::{Durability, Judge};
use super::core::environment::{Environment, Hooks};
use super::core::failure::Failure;
use super::core::flushers::Flushers;
use super::core::levels::Waits;
use super::core::log_writer::LogWriter;
use super::core::medium::{Files, Medium};
use super::core::metrics::CommitMetrics;
use super::core::poison::Poison;
use super::core::rule::{Above, Rule};
use super::core::schedule::Schedule;
use super::core::waiters::Wakers;
use super::core::watermark::RingSize;
use super::core::writes::{NoQueues, QueuedWrites, Writes};
use super::layout::Shares;
use super::papers::autonomous::Workers;
use super::papers::autonomous::idle::IdleTimes;
use super::papers::autonomous::worker_queue::WorkerQueues;
use super::papers::clocks::ByClocks;
use super::papers::exact::Exact;
use super::papers::exact::undecided::Undecided;
use super::papers::passive::mapped::MappedLogs;
use crate::base::clock::Clock;
use crate::base::scale::SCALE;
use crate::base::settings::{Axes, Dependency, QUEUE_ENTRIES_DEFAULT, Settings, WriterOptions};
use crate::base::{Csn, Epoch, LogId};
use crate::device::Storage;
use crate::device::topology::NumaNodes;
use crate::log::memory::LogMemory;
use crate::log::{Log, SegmentPool};
use crate::sync::atomic::AtomicBool;
use crate::sync::{Event, Process};
use std::sync::Arc;

/// Most queue entries of all logs together, by default.
pub const QUEUE_ENTRIES: usize = SCALE.queue_entries;
/// All queues of this size or less together take at most this part of all memory.
const QUEUE_PART: u64 = 128;
/// Queue entries of one log, at least.
pub const QUEUE_ENTRIES_PER_LOG_MIN: usize = SCALE.queue_entries_per_log_min;

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

/// The components of a commit layer, before there is a protocol.
pub(super) struct Components {
    pub writes: Arc<Writes>,
    pub medium: Arc<dyn Medium>,
    /// Where workers write.
    pub workers: Option<Arc<Workers>>,
    /// Where the rule goes by clocks.
    pub clocks: Option<Arc<ByClocks>>,
}

/// Makes the components.
pub(super) fn components(settings: &Settings, start: Start, axes: &Axes) -> Components {
    let Start { storage, logs, memory, segments, first_csn, epoch, clock, hooks } = start;
    let count = logs.len();
    let affordable = (settings.memory_bytes / QUEUE_PART / ENTRY_BYTES) as usize;
    let most = match settings.lab.queue_entries {
        // `Settings::validate` has compared a larger queue with the memory.
        more if more > QUEUE_ENTRIES_DEFAULT => more,
        entries => QUEUE_ENTRIES.min(entries).min(affordable),
    };
    let entries = (most / count).max(QUEUE_ENTRIES_PER_LOG_MIN);
    let ring = RingSize::for_queued(most);
    if let Some(memory) = &memory {
        place_buffers(memory, count, NumaNodes::of_machine());
        logs.iter().for_each(|log| memory.buffers_of(log.id(), count, epoch).attach_to(log));
    }
    let environment = Arc::new(Environment {
        epoch,
        clock: clock.clone(),
        hooks,
        storage,
        segments,
        metrics: Arc::new(CommitMetrics::reporting(settings.slow_commit_log)),
        poison: Poison::new(),
        progress: Event::new(),
        space: Event::new(),
        closing: AtomicBool::new(false),
        process: Process::current(),
    });
    let logs = logs.into_iter().map(LogWriter::new).collect();
    let (judge, clocks) = judge(axes, count, ring, settings.lab.count_false_waits);
    let durability = Arc::new(Durability::new(logs, judge, first_csn, ring));
    let (flushers, wakers) = (Arc::new(Flushers::new(axes.flushers(count))), Arc::new(Wakers::default()));
    let failure = Arc::new(Failure {
        environment: environment.clone(),
        durability: durability.clone(),
        flushers: flushers.clone(),
        wakers: wakers.clone(),
    });
    let acknowledgments = Arc::new(Acknowledgments::new(&failure, axes, entries));
    let workers = workers(axes, count, &clock);
    let queued: Arc<dyn QueuedWrites> = match &workers {
        Some(workers) => workers.queues.clone(),
        None => Arc::new(NoQueues),
    };
    let medium: Arc<dyn Medium> = match memory {
        Some(memory) => {
            let waits = Waits::new(axes, settings);
            let (environment, durability) = (environment.clone(), durability.clone());
            Arc::new(MappedLogs::new(environment, durability, acknowledgments.clone(), memory, axes, waits))
        }
        None => Arc::new(Files),
    };
    let writes = Arc::new(Writes {
        failure,
        schedule: Arc::new(Schedule::new(axes, clock, durability.clone())),
        deadline: Arc::new(WriteDeadline::new(settings.write_deadline)),
        acknowledgments,
        queued,
        environment,
        durability,
        flushers,
        wakers,
    });
    Components { writes, medium, workers, clocks }
}

/// Returns what workers write with, if they write.
fn workers(axes: &Axes, logs: usize, clock: &Clock) -> Option<Arc<Workers>> {
    let WriterOptions::Worker(options) = &axes.writer else { return None };
    let queues = Arc::new(WorkerQueues::new(options, axes.flush_unit_bytes(), logs));
    Some(Arc::new(Workers { queues, idle: IdleTimes::new(clock.clone(), options.idle_max) }))
}

/// Returns what decides whether a transaction is committed; and the clocks, if it goes by clocks.
fn judge(
    axes: &Axes,
    logs: usize,
    ring: RingSize,
    counts_false_waits: bool,
) -> (Judge, Option<Arc<ByClocks>>) {
    let above = || Arc::new(Undecided::new(logs, ring));
    let asked = (axes.is_by_page() || counts_false_waits).then(above);
    let (rule, above, clocks): (Arc<dyn Rule>, _, _) = match axes.rule() {
        Dependency::LogOrder => (Arc::new(LogOrder), None, None),
        Dependency::Csn => (Arc::new(OwnCsn), asked, None),
        Dependency::Dsn => (Arc::new(Dsn), asked, None),
        Dependency::Exact => {
            let above = asked.unwrap_or_else(above);
            (Arc::new(Exact(above.clone())), Some(above), None)
        }
        Dependency::Gsn | Dependency::GsnRfa => {
            let above = asked.unwrap_or_else(above);
            let avoids_remote_flushes = axes.rule() == Dependency::GsnRfa;
            let rule = ByClocks::new(logs, ring, above.clone(), axes.idle_logs, avoids_remote_flushes);
            let clocks = Arc::new(rule);
            (clocks.clone(), Some(above), Some(clocks))
        }
    };
    let judge = Judge {
        rule,
        above: above.map(|above| above as Arc<dyn Above>),
        has_fragments: axes.is_by_page(),
        leaves_writes_to_owners: axes.leaves_writes_to_owners(),
    };
    (judge, clocks)
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
