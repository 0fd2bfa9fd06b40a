//! What only experiments change: choices of the commit protocol, and sizes that the engine chooses
//! well.

use super::{
    Acknowledger, Append, Dependency, IdleLogs, Layout, MemoryCache, MemoryFence, MemoryStore,
    QUEUE_ENTRIES_DEFAULT, Queue, Writer,
};
use std::time::Duration;

/// Settings for the engine's own tools and tests. Nothing in here is stable.
#[derive(Clone, Debug)]
pub struct Lab {
    /// At level written, one commit in so many waits until it is durable, up to 1,000,000; 0: none.
    /// Default 0.
    pub durable_every: u64,
    /// How threads share logs; `None` is the choice of the preset. Default `None`.
    pub layout: Option<Layout>,
    /// Threads that share a log with `layout = threads-per-log`, 1 to 64. Default 2.
    pub threads_per_log: usize,
    /// Which thread writes a log; `None` is the choice of the preset. Default `None`.
    pub writer: Option<Writer>,
    /// Time between two writes of a log without waiting commits, up to 1 s; with `queued` the
    /// window that the first arrival opens, for waiting commits, too. `None` is 1 ms for `queued`
    /// and `restricted`, 300 us for `auto`, 200 us otherwise. Default `None`.
    pub flush_interval: Option<Duration>,
    /// Writes of one log that a worker may have in flight, 1 to 3, where workers write. Default 2.
    pub writes_in_flight: usize,
    /// Whether a thread that writes several logs makes them durable with one flush, where the file
    /// system allows that; `None` measures. Default `None`.
    pub shared_flush: Option<bool>,
    /// Which thread acknowledges commits without a waiter; `None` is the choice of the preset.
    /// Default `None`.
    pub acknowledger: Option<Acknowledger>,
    /// Logs that workers acknowledge for each other, 1 to 64, where workers acknowledge. Default 2.
    pub acknowledgment_group: usize,
    /// A worker acknowledges after one transaction in this many, at random, where workers
    /// acknowledge, 1 to 64; 0 is log2 of the threads that commit, at least 1. Default 1.
    pub acknowledgment_odds: u32,
    /// Logs whose waiting bytes a worker writes with its own, including its own, 0 to 64, where
    /// workers write; 0 and 1 mean only its own. `None` is the number of CPUs that share a cache,
    /// at most 8. Default `None`.
    pub stealing_group: Option<usize>,
    /// Idle time between transactions from which on a worker has each transaction written at once,
    /// on average, where workers write; a shorter idle time does so with proportional probability.
    /// Up to 10 ms; 0 is off. Default 50 us.
    pub idle_max: Duration,
    /// What a transaction with a durable record still waits for; `None` is the choice of the
    /// preset. Default `None`.
    pub dependency: Option<Dependency>,
    /// What a log without recent commits does to queued commits of other logs, with `dependency =
    /// gsn` or `gsn-rfa`; and, with any rule, whether only its own flusher writes it (`flusher`).
    /// Default `raise`: nothing.
    pub idle_logs: IdleLogs,
    /// Counts transactions that the dependency rule makes wait although all that they depend on is
    /// committed; with `csn` and `dsn` each commit then also lists its predecessors. Default false.
    pub count_false_waits: bool,
    /// What a committer does that finds the latch of the log taken; `consolidated` is for one log.
    /// Default `latched`: it waits.
    pub append: Append,
    /// The queue of commits without a waiter; `None` is `lock-free`. Default `None`.
    pub queue: Option<Queue>,
    /// Unacknowledged commits without a waiter, of all logs together, beyond which commits wait:
    /// 1024 to 1,638,400, which is 100 MiB. Up to 32,768, at most what fits in a 128th of the
    /// memory, but at least 1024 a log; more has to fit in a quarter of it, 128 bytes each.
    /// Default 32,768.
    pub queue_entries: usize,
    /// Waiting bytes at which a log without waiting commits is written (not for lazy commits
    /// alone), 4096 to 1 MiB; 0 is 16 KiB, and with `restricted` a log buffer. Default 0.
    pub flush_unit_bytes: usize,
    /// Largest size of a log's buffers in bytes (in mapped memory their only size), 8 KiB (there 64
    /// KiB) to 16 MiB; 0 is 1 MiB, and with `restricted` 512 KiB for each of `threads_per_log`.
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
    /// A committer delays its group commit briefly, so that threads released by the previous write
    /// can join, if that has paid off recently. Default true.
    pub await_cohort: bool,
    /// How long a leader gathers followers, up to 1 s. Default 0.
    pub gather_window: Duration,
    /// Other open transactions from which on a leader gathers. Default 5.
    pub gather_siblings: usize,
    /// With so many commits a leader waits for no more; 0 is no limit. Default 0.
    pub gather_max: usize,
    /// Length of that file in bytes, 1 MiB to 64 GiB, a multiple of 4096; 0 is the length of the
    /// file, and 16 MiB for a new file. Default 0.
    pub log_memory_bytes: u64,
    /// What a power cut does to the processor's caches. Default `volatile`.
    pub memory_cache: MemoryCache,
    /// When a committer fences its record: under the log's latch, or beside it; `None` is `beside`.
    /// Default `None`.
    pub memory_fence: Option<MemoryFence>,
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
            layout: None,
            threads_per_log: 2,
            writer: None,
            flush_interval: None,
            writes_in_flight: 2,
            shared_flush: None,
            acknowledger: None,
            acknowledgment_group: 2,
            acknowledgment_odds: 1,
            stealing_group: None,
            idle_max: Duration::from_micros(50),
            dependency: None,
            idle_logs: IdleLogs::default(),
            count_false_waits: false,
            append: Append::default(),
            queue: None,
            queue_entries: QUEUE_ENTRIES_DEFAULT,
            flush_unit_bytes: 0,
            log_buffer_bytes: 0,
            checkpoint_log_bytes: 512 << 20,
            delta_logging: true,
            transaction_bytes_max: 0,
            chunk_bytes: 0,
            await_cohort: true,
            gather_window: Duration::ZERO,
            gather_siblings: 5,
            gather_max: 0,
            durable_every: 0,
            log_memory_bytes: 0,
            memory_cache: MemoryCache::default(),
            memory_fence: None,
            memory_store: None,
            insertion_latency: Duration::ZERO,
            scan_buffer_from: None,
        }
    }
}
