//! A moment's numbers.

use crate::base::Csn;
use crate::base::metrics::LatencyHistogram;
use crate::base::settings::{Acknowledger, Dependency, Layout, Preset, Queue, Writer};
use crate::checkpoint::ReplayEstimate;
use crate::device::DeviceFacts;
use crate::device::mapped::MemoryFacts;
use crate::store::PackUsage;

/// A latency distribution in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LatencySummary {
    /// Values counted.
    pub count: u64,
    /// Mean.
    pub mean_us: f64,
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
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            p9999_us: at(0.9999),
            max_us: all.max() as f64 / 1000.0,
        }
    }
}

/// What a database is and did. Counters count since open; `aborted`, `conflicts`, waits for rows and for versions and the latencies since
/// open or [`reset`](super::Database::reset_statistics).
#[derive(Clone, Debug)]
pub struct Statistics {
    /// Commit protocol.
    pub preset: Preset,
    /// Number of logs.
    pub logs: usize,
    /// By which rule that number was chosen, if it was not said.
    pub layout: Layout,
    /// Who writes a log.
    pub writer: Writer,
    /// A log that nobody waits for is written about so often at the moment, in microseconds.
    pub flush_interval_us: u64,
    /// What a durable write of the log takes lately, in microseconds; 0 before the first. With several logs, of the one that is written
    /// least often.
    pub mean_write_us: f64,
    /// Whether a thread that writes several logs at once has them flushed together, as it is set or was measured; none before it has.
    pub shares_flush: Option<bool>,
    /// Flushes that made blocks of several logs durable.
    pub shared_flushes: u64,
    /// How long the buffers of a log are at the moment, in bytes; of the log that has the longest.
    pub log_buffer_bytes: u64,
    /// Who acknowledges transactions that nobody waits with.
    pub acknowledger: Acknowledger,
    /// Logs that workers acknowledge for each other, where they do.
    pub acknowledgment_group: usize,
    /// Logs that workers write for each other, where they write; 1 if they do not.
    pub stealing_group: usize,
    /// What a transaction whose record is durable still waits for.
    pub dependency: Dependency,
    /// Where transactions wait that nobody waits with.
    pub queue: Queue,
    /// The device.
    pub device: DeviceFacts,
    /// The mapped memory in which commits become durable, and what they survive there; `None` if they do so on the device.
    pub log_memory: Option<MemoryFacts>,
    /// How writes are made durable, and why so.
    pub durability_method: String,
    /// Newest commit sequence number drawn.
    pub newest_csn: Csn,
    /// Every CSN below this one is durable.
    pub watermark: Csn,
    /// The newest durable checkpoint.
    pub checkpoint_csn: Csn,
    /// Tables.
    pub tables: u64,
    /// Transactions committed, read-only ones included.
    pub committed: u64,
    /// Transactions aborted.
    pub aborted: u64,
    /// Write conflicts.
    pub conflicts: u64,
    /// Transactions that waited before they began, because old versions took more than three quarters of `version_bytes`.
    pub version_waits: u64,
    /// Waits for a transaction that held a row, those that ended in a conflict included.
    pub row_waits: u64,
    /// How long all of them took together, in seconds.
    pub row_wait_seconds: f64,
    /// From the call that commits to the record in the log's buffer, waits for room included, in microseconds: the mean of one
    /// commit in sixteen.
    pub log_insert_us_mean: f64,
    /// So many commits were timed for it.
    pub log_inserts_timed: u64,
    /// Pages in memory.
    pub pages: u64,
    /// Pages that left memory.
    pub pages_evicted: u64,
    /// Passes over all pages after which none could leave memory, though some should have: transactions in progress hold them, or the disk
    /// refuses their images.
    pub evictions_in_vain: u64,
    /// Pages that long scans have read into memory of their own, so that no other page had to leave.
    pub pages_copied: u64,
    /// Size of a page.
    pub page_bytes: u64,
    /// Pages that may be in memory now: what everything else leaves of `memory_bytes`.
    pub pages_max: u64,
    /// The budget for everything, in bytes, as set.
    pub memory_bytes: u64,
    /// Versions in memory.
    pub versions: u64,
    /// Bytes that they hold, and the keys of deleted rows until they can be purged.
    pub version_bytes: u64,
    /// Open snapshots and transactions.
    pub open_snapshots: u64,
    /// The oldest CSN one of them needs.
    pub oldest_snapshot: Csn,
    /// Bytes of log records written.
    pub log_bytes: u64,
    /// Bytes of log segments that recovery would read.
    pub log_bytes_in_use: u64,
    /// How long recovery would take if the process ended now.
    pub replay_seconds_estimate: f64,
    /// From what that comes.
    pub replay: ReplayEstimate,
    /// Bytes written to the log device, padding included.
    pub device_bytes: u64,
    /// Writes to the log device.
    pub device_writes: u64,
    /// Device flushes asked for by commits.
    pub device_flushes: u64,
    /// Checkpoints made.
    pub checkpoints: u64,
    /// Time they took, in seconds.
    pub checkpoint_seconds: f64,
    /// Reads of the file of pages: faults, the mapping at open, the catalog.
    pub store_reads: u64,
    /// Bytes of these.
    pub store_read_bytes: u64,
    /// Writes of the file of pages: images, mapping, catalog.
    pub store_writes: u64,
    /// Bytes of these.
    pub store_bytes_written: u64,
    /// Length of the file of pages in bytes; free blocks included.
    pub store_bytes: u64,
    /// Bytes of it that are free blocks.
    pub store_free_bytes: u64,
    /// Bytes of these that are kept so that everything acknowledged can be written when the disk is full.
    pub store_reserved_bytes: u64,
    /// Bytes of the file of pages that only older checkpoints have, which somebody reads or copies: they are free when nobody does.
    pub store_held_bytes: u64,
    /// Packs: images that share a block, compressed.
    pub packs: PackUsage,
    /// The disk was full when space was needed last, for the log or for pages. While somebody is refused it is asked again every
    /// second.
    pub disk_full: bool,
    /// Times a sleeping thread was woken by the commit room.
    pub wakeups: u64,
    /// Times a thread slept until something was durable or committed.
    pub commit_sleeps: u64,
    /// Times a flusher thread woke.
    pub flusher_wakeups: u64,
    /// Blocks of other logs that workers wrote with their own.
    pub stolen_blocks: u64,
    /// Bytes of these, padding included.
    pub stolen_bytes: u64,
    /// Times a worker that is idle between its transactions left its log to the flusher.
    pub idle_flushes: u64,
    /// Transactions that the dependency rule held up when their record was durable.
    pub rule_waits: u64,
    /// Of these, those that exact dependencies would have let go; at least so many.
    pub false_waits: u64,
    /// Commits that became durable by a fence in mapped memory.
    pub fences: u64,
    /// Times logs in mapped memory that stayed dirty were drained by a barrier in all threads.
    pub stragglers_drained: u64,
    /// Transactions per device write.
    pub group_size_mean: f64,
    /// From begin to ready.
    pub execute: LatencySummary,
    /// From ready to committed, of transactions that wrote.
    pub commit: LatencySummary,
    /// From begin to committed, of all.
    pub total: LatencySummary,
    /// One durable log write.
    pub flush: LatencySummary,
    /// One round of acknowledgment.
    pub acknowledge: LatencySummary,
}
