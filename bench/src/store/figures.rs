//! The figures of a store.

use super::concurrency::Names;
use crate::coordination::Waits;
use crate::latencies::Latency;

/// Checkpoints of a store.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checkpoints {
    /// Number of checkpoints since the open.
    pub count: u64,
    /// Time of the newest checkpoint in seconds.
    pub newest_seconds: f64,
    /// Bytes of images that the newest checkpoint wrote.
    pub newest_bytes: u64,
}

/// A number of events and their total time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Total {
    /// Number of events.
    pub count: u64,
    /// Total time in microseconds.
    pub us: f64,
}

impl Total {
    /// Returns the mean time of events since `earlier`; 0 without events.
    #[must_use]
    pub fn mean_since(self, earlier: Total) -> f64 {
        match self.count.saturating_sub(earlier.count) {
            0 => 0.0,
            count => ((self.us - earlier.us) / count as f64).max(0.0),
        }
    }
}

/// Gauges that `--live` reads many times a second. Times count since `Store::reset`, the rest since
/// the open.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gauges {
    /// Total time of waits for row locks.
    pub row_wait_seconds: f64,
    /// Insertions of records into a log's buffer.
    pub log_inserts: Total,
    /// Commits: ready to committed.
    pub commits: Total,
    /// Acknowledgments: end of the write to committed.
    pub acknowledges: Total,
    /// Writes of the log.
    pub log_writes: u64,
    /// Bytes of these writes, padding included.
    pub log_write_bytes: u64,
    /// Flushes of the log's device.
    pub device_flushes: u64,
    /// Bytes of log that recovery would read.
    pub log_bytes_in_use: u64,
    /// Pages in memory.
    pub pages: u64,
    /// Largest number of pages in memory now.
    pub pages_max: u64,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Memory limit of the engine in bytes.
    pub memory_bytes: u64,
    /// Bytes of versions.
    pub version_bytes: u64,
    /// Pages that left memory.
    pub pages_evicted: u64,
    /// Reads of pages from the device.
    pub reads: u64,
    /// Number of checkpoints.
    pub checkpoints: u64,
    /// Time of the newest checkpoint in seconds.
    pub checkpoint_seconds: f64,
    /// Share of the pages that the checkpoint in progress has visited.
    pub checkpoint_running: Option<f64>,
    /// Time that recovery would take now, in seconds.
    pub recovery_seconds: f64,
}

/// Waits for rows and locks, and transactions that failed because of others.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LockFigures {
    /// Times of the waits.
    pub wait: Latency,
    /// How long pessimistic transactions held their locks.
    pub hold: Latency,
    /// Number of waits.
    pub waits: u64,
    /// Total time of the waits in seconds.
    pub wait_seconds: f64,
    /// Transactions that failed, for any reason.
    pub failed: u64,
    /// Of these, the victims of deadlocks.
    pub deadlocks: u64,
    /// Of these, waits that took too long.
    pub timeouts: u64,
    /// Of these, validations that found a changed key.
    pub changed_keys: u64,
    /// Of these, validations that found a changed range.
    pub changed_ranges: u64,
    /// Locks on a table that replaced locks on keys.
    pub escalations: u64,
}

/// Figures of an engine. Counters count since the open, latencies since `Store::reset`.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Commit protocol.
    pub preset: String,
    /// Axes of the commit protocol.
    pub protocol: String,
    /// Isolation and locks of the workers' transactions, if the store has a choice.
    pub concurrency: Names,
    /// Sleeps, wake-ups and waits of the protocol.
    pub waits: Waits,
    /// Logs of the database.
    pub logs: usize,
    /// How writes become durable.
    pub durability: String,
    /// Bytes of log records.
    pub log_bytes: u64,
    /// Bytes written to the log's device, padding included.
    pub device_bytes: u64,
    /// Writes of the log.
    pub device_writes: u64,
    /// Flushes of the log's device.
    pub device_flushes: u64,
    /// Reads of pages.
    pub reads: u64,
    /// Bytes of these reads.
    pub read_bytes: u64,
    /// Bytes written to the file of pages.
    pub written_bytes: u64,
    /// Requests to a store of objects; none if the database lies on a disk.
    pub requests: Option<quenchdb::ObjectRequests>,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Total time of the checkpoints in seconds.
    pub checkpoint_seconds: f64,
    /// Total time of waits for row locks, since `Store::reset`.
    pub row_wait_seconds: f64,
    /// Mean time from the commit call to the record in the log's buffer, since `Store::reset`.
    pub log_insert_us: f64,
    /// Begun to ready.
    pub execute: Latency,
    /// Ready to committed, of transactions that wrote.
    pub commit: Latency,
    /// Begun to committed.
    pub total: Latency,
    /// A durable write of the log.
    pub flush: Latency,
    /// Waits for locks, and failures because of other transactions, since `Store::reset`; none if
    /// the engine does not count them.
    pub locks: Option<LockFigures>,
    /// Ready to the begin of the write, of transactions that wrote.
    pub write_wait: Latency,
    /// End of the write to committed.
    pub acknowledge: Latency,
    /// Bytes written to each log.
    pub log_written_bytes: Vec<u64>,
}
