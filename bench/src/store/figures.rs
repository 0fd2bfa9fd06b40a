//! What a store counts.

use crate::coordination::Waits;
use crate::latencies::Latency;

/// Checkpoints of a store.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checkpoints {
    /// How many since it was opened.
    pub count: u64,
    /// How long the newest took.
    pub newest_seconds: f64,
    /// Bytes of images that it wrote.
    pub newest_bytes: u64,
}

/// A number of things, and the microseconds that they took together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Total {
    /// How many.
    pub count: u64,
    /// Microseconds.
    pub us: f64,
}

impl Total {
    /// Mean of those that came after `earlier`, 0 if there were none.
    #[must_use]
    pub fn mean_since(self, earlier: Total) -> f64 {
        match self.count.saturating_sub(earlier.count) {
            0 => 0.0,
            count => ((self.us - earlier.us) / count as f64).max(0.0),
        }
    }
}

/// What an engine shows many times a second. Times count since [`Store::reset`], everything else since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gauges {
    /// Waits for rows that others hold, together.
    pub row_wait_seconds: f64,
    /// Records on their way into a log's buffer.
    pub log_inserts: Total,
    /// From ready to committed.
    pub commits: Total,
    /// From the end of the write to committed.
    pub acknowledges: Total,
    /// Writes of the log.
    pub log_writes: u64,
    /// Bytes of these, padding included.
    pub log_write_bytes: u64,
    /// Flushes of the log's device.
    pub device_flushes: u64,
    /// Bytes of log that recovery would read.
    pub log_bytes_in_use: u64,
    /// Pages in memory.
    pub pages: u64,
    /// Pages that may be in memory now.
    pub pages_max: u64,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// The budget of the whole engine.
    pub memory_bytes: u64,
    /// Bytes of versions.
    pub version_bytes: u64,
    /// Pages that left memory.
    pub pages_evicted: u64,
    /// Reads of pages from the device.
    pub reads: u64,
    /// Checkpoints that were made.
    pub checkpoints: u64,
    /// The time that the newest took.
    pub checkpoint_seconds: f64,
    /// The share of the pages that the one being made has looked at.
    pub checkpoint_running: Option<f64>,
    /// How long recovery would take now.
    pub recovery_seconds: f64,
}

/// What an engine says of itself. Counters count since it was opened, latencies since [`Store::reset`].
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Commit protocol.
    pub preset: String,
    /// Its axes.
    pub protocol: String,
    /// What it made threads do.
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
    /// Bytes of these.
    pub read_bytes: u64,
    /// Bytes written to the file of pages.
    pub written_bytes: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Time they took, together.
    pub checkpoint_seconds: f64,
    /// Waits for rows that others hold, together; since [`Store::reset`].
    pub row_wait_seconds: f64,
    /// Mean time from the call that commits to the record in the log's buffer; since [`Store::reset`].
    pub log_insert_us: f64,
    /// Begun to ready, of the transactions whose end the engine knows.
    pub execute: Latency,
    /// Ready to committed, of those that wrote.
    pub commit: Latency,
    /// Begun to committed.
    pub total: Latency,
    /// A durable write of the log.
    pub flush: Latency,
    /// End of the write to committed.
    pub acknowledge: Latency,
}
