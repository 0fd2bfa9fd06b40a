//! The numbers of a database at one moment, each declared once: meaning, unit, source.

use super::engine::Engine;
use crate::base::Csn;
use crate::base::metrics::LatencyHistogram;
use crate::base::settings::{Acknowledger, Dependency, Layout, Preset, Queue, Writer};
use crate::checkpoint::{CheckpointTotals, ReplayEstimate};
use crate::commit::presets::Axes;
use crate::commit::{Commit, CommitMetrics};
use crate::device::mapped::MemoryFacts;
use crate::device::{DeviceFacts, ObjectRequests};
use crate::store::{PackUsage, StoreUsage};
use crate::transaction::TransactionCounters;
use std::sync::Arc;

/// A latency distribution in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct LatencySummary {
    /// Values counted.
    pub count: u64,
    /// Mean.
    pub mean_us: f64,
    /// Standard deviation.
    pub stdev_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// 99.99th percentile.
    pub p9999_us: f64,
    /// Largest.
    pub max_us: f64,
}

impl LatencySummary {
    /// The summary of what a histogram has counted.
    #[must_use]
    pub fn of(histogram: &LatencyHistogram) -> LatencySummary {
        let all = histogram.merged();
        let at = |quantile| all.value_at_quantile(quantile) as f64 / 1000.0;
        if all.is_empty() {
            return LatencySummary::default();
        }
        LatencySummary {
            count: all.len(),
            mean_us: all.mean() / 1000.0,
            stdev_us: all.stdev() / 1000.0,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            p9999_us: at(0.9999),
            max_us: all.max() as f64 / 1000.0,
        }
    }
}

/// Where the numbers come from.
struct Sources<'a> {
    engine: &'a Engine,
    /// None if the database is open read-only.
    commit: Option<&'a Arc<Commit>>,
    axes: Axes,
    metrics: Arc<CommitMetrics>,
    counters: &'a TransactionCounters,
    snapshots: (u64, Csn),
    replay: ReplayEstimate,
    checkpoints: CheckpointTotals,
    usage: StoreUsage,
}

macro_rules! statistics {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $value:expr;)*) => {
        /// What a database is and did. Counters count since open. Aborts, conflicts, waits for rows
        /// and for versions, and latencies count since open or
        /// [`reset_statistics`](crate::Database::reset_statistics).
        #[derive(Clone, Debug)]
        #[non_exhaustive]
        pub struct Statistics {
            $($(#[$doc])* pub $name: $type,)*
        }

        impl Statistics {
            fn read(sources: &Sources<'_>) -> Statistics {
                Statistics {
                    $($name: {
                        let value: fn(&Sources<'_>) -> $type = $value;
                        value(sources)
                    },)*
                }
            }
        }
    };
}

statistics! {
    /// Commit protocol.
    preset: Preset = |s| s.engine.settings.preset;
    /// Requests to the store of objects that holds the database; `None` if none does.
    object_requests: Option<ObjectRequests> = |s| s.engine.storage.requests();
    /// Number of logs; 0 in a database that is open read-only.
    logs: usize = |s| s.engine.opened.logs;
    /// The rule by which the number of logs is chosen, if it is not set.
    layout: Layout = |s| s.axes.layout;
    /// The threads that write a log.
    writer: Writer = |s| s.axes.writer;
    /// Time after which a log without waiting committers is written at the moment, in microseconds.
    flush_interval_us: u64 = |s| s.commit.map_or(0, |commit| commit.rhythm().0.as_micros() as u64);
    /// Duration of a recent durable write of the log, in microseconds; 0 before the first. With
    /// several logs, of the log that is written least often.
    mean_write_us: f64 = |s| s.commit.map_or(0.0, |commit| commit.rhythm().1.as_nanos() as f64 / 1000.0);
    /// Whether a thread that writes several logs at once flushes them together, as set or measured;
    /// none before it is measured.
    shares_flush: Option<bool> = |s| s.commit.and_then(|commit| commit.shares_flush());
    /// Flushes that made blocks of several logs durable.
    shared_flushes: u64 = |s| s.metrics.shared_flushes.get();
    /// Length of a log's next buffer, in bytes; of the log with the longest.
    log_buffer_bytes: u64 = |s| s.commit.map_or(0, |commit| commit.log_buffer_bytes() as u64);
    /// The threads that acknowledge transactions that no thread waits for.
    acknowledger: Acknowledger = |s| s.axes.acknowledger;
    /// Logs that workers acknowledge for each other, where workers acknowledge.
    acknowledgment_group: usize = |s| s.axes.acknowledgment_group;
    /// Logs that workers write for each other, where workers write; 1 otherwise.
    stealing_group: usize = |s| s.commit.map_or(1, |commit| commit.stealing_group());
    /// What a transaction waits for besides its own durable record.
    dependency: Dependency = |s| s.axes.dependency;
    /// The queue of transactions that no thread waits for.
    queue: Queue = |s| s.axes.queue;
    /// The device.
    device: DeviceFacts = |s| s.engine.storage.facts();
    /// The mapped memory in which commits become durable, and what they survive there; `None` if
    /// commits become durable on the device.
    log_memory: Option<MemoryFacts> = |s| s.engine.log_memory();
    /// How writes are made durable, and why this way.
    durability_method: String = |s| durability_method(s.engine);
    /// Newest commit sequence number drawn.
    newest_csn: Csn = |s| s.engine.system.committed.newest_drawn();
    /// Every CSN below this one is durable.
    watermark: Csn = |s| s.engine.system.committed.watermark();
    /// The newest durable checkpoint.
    checkpoint_csn: Csn = |s| s.engine.checkpoint_csn();
    /// Tables.
    tables: u64 = |s| s.engine.system.catalog.names().len() as u64;
    /// Transactions committed, read-only ones included.
    committed: u64 = |s| s.metrics.committed.get();
    /// Transactions aborted.
    aborted: u64 = |s| s.counters.aborted.get();
    /// Transactions that failed because of others: conflicts, deadlocks and timeouts.
    conflicts: u64 = |s| s.counters.conflicts.get();
    /// Transactions that waited before they began, because old versions took more than three
    /// quarters of `version_bytes`.
    version_waits: u64 = |s| s.counters.version_waits.get();
    /// Waits for a transaction that held a row, those that ended in a conflict included.
    row_waits: u64 = |s| s.counters.row_waits.get();
    /// Total time of these waits, in seconds.
    row_wait_seconds: f64 = |s| s.counters.row_wait_ns.get() as f64 / 1e9;
    /// The times of these waits.
    lock_waits: LatencySummary = |s| LatencySummary::of(&s.counters.lock_waits);
    /// Transactions that were chosen to abort because of a deadlock.
    deadlocks: u64 = |s| s.counters.deadlocks.get();
    /// Waits that ended with a timeout, and requests of transactions that do not wait.
    lock_timeouts: u64 = |s| s.counters.lock_timeouts.get();
    /// Times that a transaction replaced its locks on keys by one on the table.
    lock_escalations: u64 = |s| s.counters.lock_escalations.get();
    /// Serializable commits that failed because a key that they had read was changed.
    validation_key_failures: u64 = |s| s.counters.changed_keys.get();
    /// Serializable commits that failed because a range that they had read was changed.
    validation_range_failures: u64 = |s| s.counters.changed_ranges.get();
    /// Mean time from the commit call to the record in the log buffer, waits for room included, in
    /// microseconds; of one commit in sixteen.
    log_insert_us_mean: f64 = |s| s.counters.log_insert_us_mean();
    /// Commits that were timed for this mean.
    log_inserts_timed: u64 = |s| s.counters.log_inserts_timed.get();
    /// Pages in memory.
    pages: u64 = |s| s.engine.pool.memory().resident_pages();
    /// Pages that left memory.
    pages_evicted: u64 = |s| s.engine.pool.eviction().pages_evicted();
    /// Passes over all pages that evicted none although memory was short: transactions in progress
    /// hold the pages, or the disk refuses their images.
    evictions_in_vain: u64 = |s| s.engine.pool.eviction().failed_passes();
    /// Pages that long scans read into memory of their own, so that no other page had to leave.
    pages_copied: u64 = |s| s.engine.pool.pages_copied();
    /// Size of a page in bytes.
    page_bytes: u64 = |s| s.engine.pool.page_bytes() as u64;
    /// Pages that may be in memory now: what everything else leaves of `memory_bytes`.
    pages_max: u64 = |s| s.engine.pool.memory().resident_pages_max();
    /// The memory budget for everything, in bytes, as set.
    memory_bytes: u64 = |s| s.engine.settings.memory_bytes;
    /// Versions in memory.
    versions: u64 = |s| s.engine.system.versions.count();
    /// Bytes of these versions, and of the keys of deleted rows until they can be purged.
    version_bytes: u64 = |s| s.engine.system.versions.bytes().0;
    /// Open snapshots and transactions.
    open_snapshots: u64 = |s| s.snapshots.0;
    /// The oldest CSN that one of these needs.
    oldest_snapshot: Csn = |s| s.snapshots.1;
    /// Bytes of log records written.
    log_bytes: u64 = |s| s.metrics.log_bytes.get();
    /// Bytes of log segments that recovery would read.
    log_bytes_in_use: u64 = |s| s.commit.map_or(0, |commit| commit.log_bytes());
    /// Estimated time of recovery if the process ended now, in seconds; 0 in a database that is
    /// open read-only.
    replay_seconds_estimate: f64 = |s| s.replay.seconds;
    /// The parts of this estimate.
    replay: ReplayEstimate = |s| s.replay;
    /// Bytes written to the log device, padding included.
    device_bytes: u64 = |s| s.metrics.device_bytes.get();
    /// Writes to the log device.
    device_writes: u64 = |s| s.metrics.device_writes.get();
    /// Device flushes asked for by commits.
    device_flushes: u64 = |s| s.metrics.flushes.get();
    /// Checkpoints made.
    checkpoints: u64 = |s| s.checkpoints.count;
    /// Total time of these checkpoints, in seconds.
    checkpoint_seconds: f64 = |s| s.checkpoints.seconds;
    /// Reads of the file of pages: faults, the mapping at open, the catalog.
    store_reads: u64 = |s| s.engine.store.traffic().reads.get();
    /// Bytes of these reads.
    store_read_bytes: u64 = |s| s.engine.store.traffic().read_bytes.get();
    /// Writes of the file of pages: images, mapping, catalog.
    store_writes: u64 = |s| s.engine.store.traffic().writes.get();
    /// Bytes of these writes.
    store_bytes_written: u64 = |s| s.engine.store.traffic().written_bytes.get();
    /// Length of the file of pages in bytes; free blocks included.
    store_bytes: u64 = |s| s.usage.blocks * s.usage.block_bytes as u64;
    /// Bytes of free blocks in this file.
    store_free_bytes: u64 = |s| s.usage.free_blocks * s.usage.block_bytes as u64;
    /// Bytes of these free blocks that are kept so that everything acknowledged can be written when
    /// the disk is full.
    store_reserved_bytes: u64 = |s| s.engine.store.disk_space().reserved_bytes();
    /// Bytes of blocks that only older checkpoints use, which are being read or copied; they become
    /// free afterwards.
    store_held_bytes: u64 = |s| s.usage.held_blocks * s.usage.block_bytes as u64;
    /// Packs: images that share a block, compressed.
    packs: PackUsage = |s| s.engine.store.packs();
    /// Whether the last request for space, for the log or for pages, was refused. While requests
    /// are refused the disk is asked again every second.
    disk_full: bool = |s| is_disk_full(s.engine);
    /// Times a sleeping thread was woken by the commit layer.
    wakeups: u64 = |s| s.metrics.wake_ups.get();
    /// Times a thread slept until a record was durable or a transaction committed.
    commit_sleeps: u64 = |s| s.metrics.sleeps.get();
    /// Times a flusher thread woke.
    flusher_wakeups: u64 = |s| s.metrics.flusher_wake_ups.get();
    /// Blocks of other logs that workers wrote with their own.
    stolen_blocks: u64 = |s| s.metrics.stolen_blocks.get();
    /// Bytes of these blocks, padding included.
    stolen_bytes: u64 = |s| s.metrics.stolen_bytes.get();
    /// Times a worker that is idle between its transactions left its log to the flusher.
    idle_flushes: u64 = |s| s.metrics.idle_flushes.get();
    /// Transactions that waited for the dependency rule when their record was durable.
    rule_waits: u64 = |s| s.metrics.rule_waits.get();
    /// Transactions among these that exact dependencies would have released; a lower bound.
    false_waits: u64 = |s| s.metrics.false_waits.get();
    /// Commits that became durable by a fence in mapped memory.
    fences: u64 = |s| s.metrics.fences.get();
    /// Times logs in mapped memory that stayed dirty were drained by a barrier in all threads.
    stragglers_drained: u64 = |s| s.metrics.drained.get();
    /// Transactions per device write.
    group_size_mean: f64 = |s| s.metrics.group_size();
    /// From begin to ready.
    execute: LatencySummary = |s| LatencySummary::of(&s.metrics.execute);
    /// From ready to committed, of transactions that wrote.
    commit: LatencySummary = |s| LatencySummary::of(&s.metrics.commit_latency);
    /// From begin to committed, of all.
    total: LatencySummary = |s| LatencySummary::of(&s.metrics.total_latency);
    /// One durable log write.
    flush: LatencySummary = |s| LatencySummary::of(&s.metrics.flush);
    /// One round of acknowledgment.
    acknowledge: LatencySummary = |s| LatencySummary::of(&s.metrics.acknowledge);
}

impl Statistics {
    /// Returns the numbers of this moment.
    pub(super) fn of(engine: &Engine) -> Statistics {
        let commit = engine.system.committed.running();
        Statistics::read(&Sources {
            engine,
            commit,
            axes: commit.map_or_else(|| Axes::of(&engine.settings), |commit| *commit.axes()),
            metrics: commit.map_or_else(Arc::default, |commit| commit.metrics().clone()),
            counters: &engine.system.counters,
            snapshots: engine.system.versions.snapshots(),
            replay: engine
                .writing
                .as_ref()
                .map_or_else(Default::default, |writing| writing.replay.estimate()),
            checkpoints: engine.checkpoints(),
            usage: engine.store.usage(),
        })
    }
}

fn is_disk_full(engine: &Engine) -> bool {
    engine.store.disk_space().is_disk_full()
        || engine.writing.as_ref().is_some_and(|writing| writing.segments.is_disk_full())
}

fn durability_method(engine: &Engine) -> String {
    let method = engine.storage.durability().name();
    let Some(commit) = engine.system.committed.running() else { return method.to_string() };
    if let Some(memory) = commit.memory_facts() {
        return format!(
            "{} in mapped memory ({}), survives {}",
            memory.primitive, memory.reason, memory.survives
        );
    }
    match commit.axes().writer {
        Writer::Worker => format!("{method} by the worker"),
        _ => method.to_string(),
    }
}

/// Returns one line that says what was opened: device, durability method, preset, logs.
pub(super) fn open_line(engine: &Engine) -> String {
    let facts = engine.storage.facts();
    let cache = if facts.volatile_cache { "volatile cache" } else { "durable cache" };
    let logs = engine.opened.logs;
    let mut line = format!(
        "opened {}: {}, {cache}, durable by {}, preset {}, {logs} log{}",
        engine.opened.path,
        facts.name,
        durability_method(engine),
        engine.settings.preset.name(),
        if logs == 1 { "" } else { "s" },
    );
    if let Some(memory) = engine.log_memory() {
        line.push_str(&format!(", log in mapped memory {memory}"));
    }
    for (what, state) in [("direct I/O", &facts.direct_io), ("io_uring", &facts.io_uring)] {
        if let Err(reason) = state {
            line.push_str(&format!(", no {what} ({reason})"));
        }
    }
    line
}
