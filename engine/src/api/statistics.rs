//! The numbers of a database at one moment, each declared once: meaning, unit, source.

use super::engine::Engine;
use super::health::{Health, health};
use super::latency::LatencySummary;
use super::sample::{Change, Figure, Sample};
use super::table_counts::TableCounts;
use crate::base::Csn;
use crate::base::settings::{Acknowledger, Axes, Dependency, IdleLogs, Layout, Preset, Queue, Writer};
use crate::checkpoint::{CheckpointTotals, ReplayEstimate};
use crate::commit::metrics::Stage;
use crate::commit::{Commit, CommitMetrics};
use crate::device::mapped::MemoryFacts;
use crate::device::{BucketStatistics, DeviceFacts, ObjectRequests};
use crate::store::{PackUsage, StoreUsage};
use crate::transaction::TransactionCounters;
use std::sync::Arc;

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
    packs: PackUsage,
}

/// The kinds of numbers: a `count` only grows, a `level` is that of the moment, `times` are a
/// distribution that grows, a `fact` is no number.
macro_rules! statistics {
    ($($(#[doc = $doc:literal])* $kind:ident $name:ident: $type:ty = $value:expr;)*) => {
        /// What a database is and did. Counters count since open. Aborts, conflicts, waits for rows
        /// and for versions, and latencies count since open or
        /// [`reset_statistics`](crate::Database::reset_statistics).
        ///
        /// With the feature `serde` it can be serialized. [`Statistics::prometheus`] writes it for
        /// a monitoring system.
        #[derive(Clone, Debug)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize))]
        #[non_exhaustive]
        pub struct Statistics {
            $($(#[doc = $doc])* pub $name: $type,)*
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

            /// Returns only facts, without taking a lock: all numbers are 0.
            fn read_facts(sources: &Sources<'_>) -> Statistics {
                Statistics { $($name: statistics!(@facts $kind sources $type, $value),)* }
            }

            /// Returns what happened since `earlier`, which the same open database returned:
            /// counters and latencies are differences; all else, means included, is that of this
            /// moment. A counter that was reset in between is 0.
            #[must_use]
            pub fn since(&self, earlier: &Statistics) -> Statistics {
                Statistics { $($name: statistics!(@since $kind self earlier $name),)* }
            }

            /// Returns every number with its name and meaning, in the order of the fields.
            pub(super) fn samples(&self) -> Vec<Sample<'_>> {
                let mut samples = Vec::new();
                $(statistics!(@sample $kind self samples $name concat!($($doc),*));)*
                samples
            }
        }
    };
    (@since count $self:ident $earlier:ident $name:ident) => { Change::since(&$self.$name, &$earlier.$name) };
    (@since times $self:ident $earlier:ident $name:ident) => { Change::since(&$self.$name, &$earlier.$name) };
    (@since $kind:ident $self:ident $earlier:ident $name:ident) => { $self.$name.clone() };
    (@facts fact $sources:ident $type:ty, $value:expr) => {{
        let value: fn(&Sources<'_>) -> $type = $value;
        value($sources)
    }};
    (@facts $kind:ident $sources:ident $type:ty, $value:expr) => { Default::default() };
    (@sample fact $self:ident $samples:ident $name:ident $help:expr) => {};
    (@sample count $self:ident $samples:ident $name:ident $help:expr) => {
        $self.$name.count(stringify!($name), $help, &mut $samples)
    };
    (@sample $kind:ident $self:ident $samples:ident $name:ident $help:expr) => {
        $self.$name.level(stringify!($name), $help, &mut $samples)
    };
}

statistics! {
    /// Commit protocol.
    fact preset: Preset = |s| s.engine.settings.preset;
    /// Requests to the store of objects that holds the database; `None` if none does.
    count object_requests: Option<ObjectRequests> = |s| s.engine.storage.requests();
    /// The buckets of a database in several; none of any other.
    level buckets: Vec<BucketStatistics> = |s| s.engine.storage.buckets();
    /// Number of logs; 0 in a database that is open read-only.
    level logs: usize = |s| s.engine.opened.logs;
    /// The rule by which the number of logs is chosen, if it is not set.
    fact layout: Layout = |s| s.axes.layout.kind();
    /// The threads that write a log.
    fact writer: Writer = |s| s.axes.writer.kind();
    /// Time between two writes of a log without waiting committers, in microseconds.
    level flush_interval_us: u64 = |s| s.axes.flush_interval.as_micros() as u64;
    /// Duration of a recent durable write of the log, in microseconds; 0 before the first. With
    /// several logs, of the log whose writes take longest.
    level mean_write_us: f64 = |s| s.commit.map_or(0.0, |commit| commit.inspect().mean_write().as_nanos() as f64 / 1e3);
    /// Whether a thread that writes several logs at once flushes them together, as set or measured;
    /// none before it is measured.
    fact shares_flush: Option<bool> = |s| s.commit.and_then(|commit| commit.inspect().shares_flush());
    /// Flushes that made blocks of several logs durable.
    count shared_flushes: u64 = |s| s.metrics.shared_flushes.get();
    /// Length of a log's next buffer, in bytes; of the log with the longest.
    level log_buffer_bytes: u64 = |s| s.commit.map_or(0, |commit| commit.inspect().log_buffer_bytes() as u64);
    /// The threads that acknowledge transactions that no thread waits for.
    fact acknowledger: Acknowledger = |s| s.axes.acknowledger.kind();
    /// Logs that workers acknowledge for each other, where workers acknowledge.
    fact acknowledgment_group: usize = |s| s.axes.acknowledgment().group;
    /// Logs that workers write for each other, where workers write; 1 otherwise.
    fact stealing_group: usize = |s| s.commit.map_or(1, |commit| commit.inspect().stealing_group());
    /// What a transaction waits for besides its own durable record.
    fact dependency: Dependency = |s| s.axes.rule();
    /// What an idle log does to queued commits of other logs, where the rule goes by clocks.
    fact idle_logs: IdleLogs = |s| s.axes.idle_logs;
    /// The queue of transactions that no thread waits for.
    fact queue: Queue = |s| s.axes.queue;
    /// The device.
    fact device: DeviceFacts = |s| s.engine.storage.facts();
    /// The mapped memory in which commits become durable, and what they survive there; `None` if
    /// commits become durable on the device.
    fact log_memory: Option<MemoryFacts> = |s| s.engine.log_memory();
    /// How writes are made durable, and why this way.
    fact durability_method: String = |s| durability_method(s.engine);
    /// Newest commit sequence number drawn.
    level newest_csn: Csn = |s| s.engine.system.committed.newest_drawn();
    /// Every CSN below this one is durable.
    level watermark: Csn = |s| s.engine.system.committed.watermark();
    /// The newest durable checkpoint.
    level checkpoint_csn: Csn = |s| s.engine.checkpoint_csn();
    /// Tables.
    level tables: u64 = |s| s.engine.system.catalog.names().len() as u64;
    /// Rows read and changed, by table. One that was dropped is missing.
    count table_counts: Vec<TableCounts> = |s| TableCounts::of(s.engine);
    /// Transactions committed, read-only ones included.
    count committed: u64 = |s| s.metrics.committed.get();
    /// Transactions aborted.
    count aborted: u64 = |s| s.counters.aborted.get();
    /// Transactions that failed because of others: conflicts, deadlocks and timeouts.
    count conflicts: u64 = |s| s.counters.conflicts.get();
    /// Transactions that waited before they began, because old versions took more than three
    /// quarters of `version_bytes`.
    count version_waits: u64 = |s| s.counters.version_waits.get();
    /// Deleted rows that ranges visited: those kept for a snapshot, or until their deletion is
    /// durable. Many such rows side by side are visited once and skipped from then on.
    count deleted_rows_visited: u64 = |s| s.counters.tombstones_visited.get();
    /// Waits for a transaction that held a row, those that ended in a conflict included.
    count row_waits: u64 = |s| s.counters.row_waits.get();
    /// Total time of these waits, in seconds.
    count row_wait_seconds: f64 = |s| s.counters.row_wait_ns.get() as f64 / 1e9;
    /// The times of these waits.
    times lock_waits: LatencySummary = |s| LatencySummary::of(&s.counters.lock_waits.merged());
    /// How long pessimistic transactions held locks and changed rows, from the first to the
    /// release.
    times lock_holds: LatencySummary = |s| LatencySummary::of(&s.counters.lock_holds.merged());
    /// Transactions that were chosen to abort because of a deadlock.
    count deadlocks: u64 = |s| s.counters.deadlocks.get();
    /// Waits that ended with a timeout, and requests of transactions that do not wait.
    count lock_timeouts: u64 = |s| s.counters.lock_timeouts.get();
    /// Times that a transaction replaced its locks on keys by one on the table.
    count lock_escalations: u64 = |s| s.counters.lock_escalations.get();
    /// Serializable commits that failed because a key that they had read was changed.
    count validation_key_failures: u64 = |s| s.counters.changed_keys.get();
    /// Serializable commits that failed because a range that they had read was changed.
    count validation_range_failures: u64 = |s| s.counters.changed_ranges.get();
    /// Mean time from the commit call to the record in the log buffer, waits for room included, in
    /// microseconds; of one commit in sixteen.
    level log_insert_us_mean: f64 = |s| s.counters.log_insert_us_mean();
    /// Commits that were timed for this mean.
    count log_inserts_timed: u64 = |s| s.counters.log_inserts_timed.get();
    /// Pages in memory.
    level pages: u64 = |s| s.engine.pool.memory().resident_pages();
    /// Pages that lookups and changes have visited, estimated from one descent of a tree in 64.
    count page_visits: u64 = |s| s.engine.pool.page_visits();
    /// Pages among these that were not in memory, so that a thread had to wait for a read.
    count page_faults: u64 = |s| s.engine.pool.page_faults();
    /// Pages that left memory.
    count pages_evicted: u64 = |s| s.engine.pool.eviction().pages_evicted();
    /// Passes over all pages that evicted none although memory was short: transactions in progress
    /// hold the pages, or the disk refuses their images.
    count evictions_in_vain: u64 = |s| s.engine.pool.eviction().failed_passes();
    /// Pages that long scans read into memory of their own, so that no other page had to leave.
    count pages_copied: u64 = |s| s.engine.pool.pages_copied();
    /// Size of a page in bytes.
    level page_bytes: u64 = |s| s.engine.pool.page_bytes() as u64;
    /// Pages that may be in memory now: what everything else leaves of `memory_bytes`.
    level pages_max: u64 = |s| s.engine.pool.memory().resident_pages_max();
    /// The memory budget for everything, in bytes, as set.
    level memory_bytes: u64 = |s| s.engine.settings.memory_bytes;
    /// Versions in memory.
    level versions: u64 = |s| s.engine.system.versions.count();
    /// Bytes of these versions, and of the keys of deleted rows until they can be purged.
    level version_bytes: u64 = |s| s.engine.system.versions.bytes().0;
    /// Open snapshots and transactions.
    level open_snapshots: u64 = |s| s.snapshots.0;
    /// The oldest CSN that one of these needs.
    level oldest_snapshot: Csn = |s| s.snapshots.1;
    /// Bytes of log records written.
    count log_bytes: u64 = |s| s.metrics.log_bytes.get();
    /// Bytes of log segments that recovery would read.
    level log_bytes_in_use: u64 = |s| s.commit.map_or(0, |commit| commit.space().segments().bytes_in_use());
    /// Bytes of log segments that are retained only for change feeds.
    level log_history_bytes: u64 = |s| s.commit.map_or(0, |commit| commit.feed_source().log_history_bytes());
    /// Estimated time of recovery if the process ended now, in seconds; 0 in a database that is
    /// open read-only.
    level replay_seconds_estimate: f64 = |s| s.replay.seconds;
    /// The parts of this estimate.
    fact replay: ReplayEstimate = |s| s.replay;
    /// Bytes written to the log device, padding included.
    count device_bytes: u64 = |s| s.metrics.device_bytes.get();
    /// Bytes written to the segments of each log, padding and blocks of other logs included.
    count log_written_bytes: Vec<u64> = |s| s.commit.map_or_else(Vec::new, |commit| commit.inspect().written_bytes());
    /// Writes to the log device.
    count device_writes: u64 = |s| s.metrics.device_writes.get();
    /// Device flushes asked for by commits.
    count device_flushes: u64 = |s| s.metrics.flushes.get();
    /// Writes to the log device without a flush, for commits of level written.
    count unflushed_writes: u64 = |s| s.metrics.unflushed_writes.get();
    /// Commits of level written that returned when their records were written.
    count written_commits: u64 = |s| s.metrics.written_commits.get();
    /// Checkpoints made.
    count checkpoints: u64 = |s| s.checkpoints.count;
    /// Total time of these checkpoints, in seconds.
    count checkpoint_seconds: f64 = |s| s.checkpoints.seconds;
    /// Reads of the file of pages: faults, the mapping at open, the catalog.
    count store_reads: u64 = |s| s.engine.store.traffic().reads.get();
    /// Bytes of these reads.
    count store_read_bytes: u64 = |s| s.engine.store.traffic().read_bytes.get();
    /// Writes of the file of pages: images, mapping, catalog.
    count store_writes: u64 = |s| s.engine.store.traffic().writes.get();
    /// Bytes of these writes.
    count store_bytes_written: u64 = |s| s.engine.store.traffic().written_bytes.get();
    /// Length of the file of pages in bytes; free blocks included.
    level store_bytes: u64 = |s| s.usage.blocks * s.usage.block_bytes as u64;
    /// Bytes of free blocks in this file.
    level store_free_bytes: u64 = |s| s.usage.free_blocks * s.usage.block_bytes as u64;
    /// Bytes of these free blocks that are kept so that everything acknowledged can be written when
    /// the disk is full.
    level store_reserved_bytes: u64 = |s| s.engine.store.disk_space().reserved_bytes();
    /// Bytes of blocks that only older checkpoints use, which are being read or copied; they become
    /// free afterwards.
    level store_held_bytes: u64 = |s| s.usage.held_blocks * s.usage.block_bytes as u64;
    /// Packs: images that share a block, compressed.
    fact packs: PackUsage = |s| s.packs;
    /// Whether the database works: 0 healthy, 1 degraded, 2 failed; with the reasons.
    level health: Health = |s| health(s.engine);
    /// Whether the last request for space, for the log or for pages, was refused. While requests
    /// are refused the disk is asked again every second.
    level disk_full: bool = |s| is_disk_full(s.engine);
    /// Times a sleeping thread was woken by the commit layer.
    count wakeups: u64 = |s| s.metrics.wake_ups.get();
    /// Times a thread slept until a record was durable or a transaction committed.
    count commit_sleeps: u64 = |s| s.metrics.sleeps.get();
    /// Times a flusher thread woke.
    count flusher_wakeups: u64 = |s| s.metrics.flusher_wake_ups.get();
    /// Blocks of other logs that workers wrote with their own.
    count stolen_blocks: u64 = |s| s.metrics.stolen_blocks.get();
    /// Bytes of these blocks, padding included.
    count stolen_bytes: u64 = |s| s.metrics.stolen_bytes.get();
    /// Times a worker that is idle between its transactions left its log to the flusher.
    count idle_flushes: u64 = |s| s.metrics.idle_flushes.get();
    /// Transactions that waited for the dependency rule when their record was durable.
    count rule_waits: u64 = |s| s.metrics.rule_waits.get();
    /// Transactions among these that exact dependencies would have released; a lower bound.
    count false_waits: u64 = |s| s.metrics.false_waits.get();
    /// Barrier transactions that were pushed in idle logs.
    count barriers: u64 = |s| s.metrics.barriers.get();
    /// Records that were appended by another thread than the committer's: `append = consolidated`.
    count consolidated_appends: u64 = |s| s.metrics.consolidated.get();
    /// Commits that became durable by a fence in mapped memory.
    count fences: u64 = |s| s.metrics.fences.get();
    /// Times logs in mapped memory that stayed dirty were drained by a barrier in all threads.
    count stragglers_drained: u64 = |s| s.metrics.drained.get();
    /// Transactions per device write.
    level group_size_mean: f64 = |s| s.metrics.group_size();
    /// From begin to ready.
    times execute: LatencySummary = |s| LatencySummary::of(&s.metrics.of_stage(Stage::Execute));
    /// From ready to committed, of transactions that wrote.
    times commit: LatencySummary = |s| LatencySummary::of(&s.metrics.of_stage(Stage::Commit));
    /// From ready to the begin of the write, of transactions that wrote.
    times write_wait: LatencySummary = |s| LatencySummary::of(&s.metrics.of_stage(Stage::Wait));
    /// From begin to committed, of all.
    times total: LatencySummary = |s| LatencySummary::of(&s.metrics.of_stage(Stage::Total));
    /// One durable log write.
    times flush: LatencySummary = |s| LatencySummary::of(&s.metrics.flush.merged());
    /// One round of acknowledgment.
    times acknowledge: LatencySummary = |s| LatencySummary::of(&s.metrics.of_stage(Stage::Acknowledge));
}

impl Statistics {
    /// Returns the part of visited pages that were in memory, 0 to 1; none before the first visits.
    /// Of a difference ([`Statistics::since`]): of the time in between.
    #[must_use]
    pub fn cache_hit_ratio(&self) -> Option<f64> {
        let misses = self.page_faults as f64 / self.page_visits as f64;
        (self.page_visits > 0).then(|| (1.0 - misses).max(0.0))
    }

    /// Returns the numbers of this moment.
    pub(super) fn of(engine: &Engine) -> Statistics {
        let commit = engine.system.committed.running();
        let mut sources = Sources {
            engine,
            commit,
            axes: commit.map_or_else(|| Axes::of(&engine.settings), |commit| *commit.inspect().axes()),
            metrics: commit.map_or_else(Arc::default, |commit| commit.inspect().metrics().clone()),
            counters: &engine.system.counters,
            snapshots: Default::default(),
            replay: Default::default(),
            checkpoints: Default::default(),
            usage: Default::default(),
            packs: Default::default(),
        };
        if engine.is_forked() {
            return Statistics { health: health(engine), ..Statistics::read_facts(&sources) };
        }
        if let Some(writing) = &engine.writing {
            sources.replay = writing.replay.estimate();
        }
        sources.snapshots = engine.system.versions.snapshots();
        (sources.checkpoints, sources.usage) = (engine.checkpoints(), engine.store.usage());
        sources.packs = engine.store.packs();
        Statistics::read(&sources)
    }
}

fn is_disk_full(engine: &Engine) -> bool {
    engine.store.disk_space().is_disk_full()
        || engine.writing.as_ref().is_some_and(|writing| writing.segments.is_disk_full())
}

fn durability_method(engine: &Engine) -> String {
    let method = engine.storage.durability().name();
    let Some(commit) = engine.system.committed.running() else { return method.to_string() };
    if let Some(memory) = commit.inspect().memory_facts() {
        return format!(
            "{} in mapped memory ({}), survives {}",
            memory.primitive, memory.reason, memory.survives
        );
    }
    match commit.inspect().axes().writer.kind() {
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
