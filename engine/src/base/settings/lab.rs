//! What only experiments change: choices of the commit protocol, and sizes that the engine chooses
//! well.

use super::{Axes, MemoryCache, MemoryStore, QUEUE_ENTRIES_DEFAULT};
use std::time::Duration;

/// Settings for the engine's own tools and tests. Nothing in here is stable.
#[derive(Clone, Debug)]
pub struct Lab {
    /// The protocol, instead of the preset's. Default `None`.
    pub protocol: Option<Axes>,
    /// At level written, one commit in so many waits until it is durable, up to 1,000,000; 0: none.
    /// Default 0.
    pub durable_every: u64,
    /// Counts transactions that the dependency rule makes wait although all that they depend on is
    /// committed; with `csn` and `dsn` each commit then also lists its predecessors. Default false.
    pub count_false_waits: bool,
    /// Unacknowledged commits without a waiter, of all logs together, beyond which commits wait:
    /// 1024 to 1,638,400, which is 100 MiB. Up to 32,768, at most what fits in a 128th of the
    /// memory, but at least 1024 a log; more has to fit in a quarter of it, 128 bytes each.
    /// Default 32,768.
    pub queue_entries: usize,
    /// Waiting bytes at which a log without waiting commits is written (not for lazy commits
    /// alone), 4096 to 1 MiB; 0 is as the protocol says. Default 0.
    pub flush_unit_bytes: usize,
    /// Largest size of a log's buffers in bytes (in mapped memory their only size), 8 KiB (there 64
    /// KiB) to 16 MiB; 0 is 1 MiB, and with `restricted` 512 KiB for each thread that shares a log.
    /// Default 0.
    pub log_buffer_bytes: usize,
    /// Log bytes after which a checkpoint starts automatically, at most half of `log_bytes_max`; 0
    /// is never. Default 512 MiB.
    pub checkpoint_log_bytes: u64,
    /// An overwrite that keeps the length of a value logs only the range of bytes that it changes.
    /// `false` logs each value whole. Recovery reads both. Default true.
    pub delta_logging: bool,
    /// Largest redo of one transaction in bytes, 4096 to 1 TiB; 0 is two thirds of what
    /// `log_bytes_max` leaves beside the segments in use. Default 0.
    pub transaction_bytes_max: usize,
    /// Redo of an open transaction that stays in memory, in bytes, 512 to half of
    /// `log_buffer_bytes`; beyond it the transaction writes chunks to its log. 0 is a quarter of
    /// `log_buffer_bytes`. Default 0.
    pub chunk_bytes: usize,
    /// Length of the file `log_memory` in bytes, 1 MiB to 64 GiB, a multiple of 4096; 0 is the
    /// length of the file, and 16 MiB for a new file. Default 0.
    pub log_memory_bytes: u64,
    /// What a power cut does to the processor's caches. Default `volatile`.
    pub memory_cache: MemoryCache,
    /// How cache lines reach the memory; `None` is the best way of the processor. Default `None`.
    pub memory_store: Option<MemoryStore>,
    /// Time added to each insertion into mapped memory, up to 1 ms, to emulate slower media.
    /// Default 0.
    pub insertion_latency: Duration,
    /// Leaves after which a scan uses a scan buffer, whatever memory is free; `None` decides by
    /// memory. For tests with small tables. Default `None`.
    pub scan_buffer_from: Option<u64>,
}

impl Default for Lab {
    fn default() -> Self {
        Lab {
            protocol: None,
            count_false_waits: false,
            queue_entries: QUEUE_ENTRIES_DEFAULT,
            flush_unit_bytes: 0,
            log_buffer_bytes: 0,
            checkpoint_log_bytes: 512 << 20,
            delta_logging: true,
            transaction_bytes_max: 0,
            chunk_bytes: 0,
            durable_every: 0,
            log_memory_bytes: 0,
            memory_cache: MemoryCache::default(),
            memory_store: None,
            insertion_latency: Duration::ZERO,
            scan_buffer_from: None,
        }
    }
}
