//! The flags of `quench bench` that choose the commit protocol, or single axes of it.

use crate::parse::{said, value_bytes};
use anyhow::{Result as AnyResult, bail};
use clap::ValueEnum;
use quenchdb::{
    Acknowledger, Append, Builder, Database, Dependency, IdleLogs, Layout, MemoryCache, MemoryFence,
    MemoryStore, Preset, Queue, Writer,
};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The workloads of an ablation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum AblationOf {
    Ycsb,
    Tpcc,
    Tpcb,
    Tatp,
    Put,
}

/// Bytes of a transaction in a queue.
const QUEUE_ENTRY_BYTES: usize = 64;

fn queue_bytes(text: &str) -> Result<usize, String> {
    let bytes = value_bytes(text)?;
    match bytes {
        0x1_0000..=0x640_0000 => Ok(bytes),
        _ => Err("the queues have 64k to 100m".into()),
    }
}

#[derive(clap::Args, Clone)]
#[command(next_help_heading = "Commit protocol: each flag overrides the preset")]
pub struct ProtocolArgs {
    /// How records are distributed to logs: one, per-thread, threads-per-log, by-page
    #[arg(long, value_parser = |name: &str| Layout::from_name(name).map_err(said))]
    layout: Option<Layout>,
    /// Threads that share a log, with --layout threads-per-log
    #[arg(long, value_name = "THREADS")]
    threads_per_log: Option<usize>,
    /// Which thread writes a log: committer, leader, flusher-per-log, background, worker,
    /// collector, memory
    #[arg(long, value_parser = |name: &str| Writer::from_name(name).map_err(said))]
    writer: Option<Writer>,
    /// Interval of writes of a log without waiting threads; with --preset queued of every log
    #[arg(long, value_name = "US")]
    flush_interval_us: Option<u64>,
    /// Most writes of one log that a worker has in flight
    #[arg(long, value_name = "WRITES")]
    in_flight: Option<usize>,
    /// Flush several logs together when one thread has written them; default: if measured to be
    /// faster
    #[arg(long, value_name = "BOOL")]
    shared_flush: Option<bool>,
    /// Which thread acknowledges asynchronous commits: leader, background, workers
    #[arg(long, value_parser = |name: &str| Acknowledger::from_name(name).map_err(said))]
    acknowledger: Option<Acknowledger>,
    /// Number of logs whose commits a worker acknowledges
    #[arg(long, value_name = "LOGS")]
    ack_group: Option<usize>,
    /// A worker acknowledges after one in this many transactions, at random; 0: log2 of the number
    /// of logs
    #[arg(long, value_name = "TRANSACTIONS")]
    ack_odds: Option<u32>,
    /// Number of logs that a worker may write together with its own; 1: only its own
    #[arg(long, value_name = "LOGS")]
    steal_group: Option<usize>,
    /// A worker that is idle this long between transactions has each written at once; 0: never
    #[arg(long, value_name = "US")]
    idle_us: Option<u64>,
    /// The dependencies that a durable transaction waits for: log-order, csn, dsn, exact, gsn,
    /// gsn-rfa
    #[arg(long, value_parser = |name: &str| Dependency::from_name(name).map_err(said))]
    dependency: Option<Dependency>,
    /// What a log without recent commits does to asynchronous commits of others, with --dependency
    /// gsn or gsn-rfa: raise (nothing), barrier, hold, worker (as barrier, and no flusher writes it
    /// for them)
    #[arg(long, value_parser = |name: &str| IdleLogs::from_name(name).map_err(said))]
    idle_logs: Option<IdleLogs>,
    /// Count waits for dependencies that a transaction does not have; default false
    #[arg(long, value_name = "BOOL")]
    count_false_waits: Option<bool>,
    /// What a committer does that finds the latch of the one log taken: latched (it waits),
    /// consolidated (it joins a group)
    #[arg(long, value_parser = |name: &str| Append::from_name(name).map_err(said))]
    append: Option<Append>,
    /// The queue of asynchronous commits: latched, lock-free
    #[arg(long, value_parser = |name: &str| Queue::from_name(name).map_err(said))]
    queue: Option<Queue>,
    /// Most transactions in the queue
    #[arg(long, value_name = "TRANSACTIONS")]
    queue_entries: Option<usize>,
    /// Bytes of the queues of all logs together, 64k to 100m, instead of --queue-entries
    #[arg(long, value_name = "BYTES", conflicts_with = "queue_entries", value_parser = queue_bytes)]
    queue_bytes: Option<usize>,
    /// Delay a group commit briefly, so that the threads that the previous one released can join;
    /// default true
    #[arg(long, value_name = "BOOL")]
    await_cohort: Option<bool>,
    /// The file of the memory-mapped log, with --preset passive or auto; default with passive:
    /// `log-memory` in the database's directory. A missing file is created, and removed at the end
    #[arg(long, value_name = "FILE")]
    log_memory: Option<PathBuf>,
    /// Length of the memory-mapped log
    #[arg(long, value_name = "BYTES")]
    log_memory_bytes: Option<u64>,
    /// Whether the processor's caches survive a power cut: volatile (no), durable (eADR)
    #[arg(long, value_parser = |name: &str| MemoryCache::from_name(name).map_err(said))]
    memory_cache: Option<MemoryCache>,
    /// When a committer fences its record in mapped memory: latched (under the log's latch),
    /// beside; default: beside
    #[arg(long, value_parser = |name: &str| MemoryFence::from_name(name).map_err(said))]
    memory_fence: Option<MemoryFence>,
    /// How cache lines reach mapped memory: clwb, clflushopt, clflush, non-temporal; default: the
    /// best of the processor
    #[arg(long, value_parser = |name: &str| MemoryStore::from_name(name).map_err(said))]
    memory_store: Option<MemoryStore>,
    /// Time added to each insertion into mapped memory
    #[arg(long, value_name = "NS")]
    insertion_ns: Option<u64>,
    /// How long a leader waits for followers
    #[arg(long, value_name = "US")]
    window_us: Option<u64>,
    /// The leader waits only if at least this many other transactions are in progress
    #[arg(long, value_name = "TRANSACTIONS")]
    siblings: Option<usize>,
    /// With so many commits a leader waits for no more; 0: no limit
    #[arg(long, value_name = "TRANSACTIONS")]
    gather_max: Option<usize>,
    /// Largest buffer of a log; default: 1m, with --preset restricted more
    #[arg(long, value_name = "BYTES", value_parser = value_bytes)]
    log_buffer: Option<usize>,
    /// Commits that a crash may lose with --level bounded, and a power cut with --level written,
    /// as time
    #[arg(long, value_name = "MS")]
    loss_window: Option<u64>,
    /// With --level written, one commit in so many is durable when it returns; 0: none
    #[arg(long, value_name = "COMMITS")]
    durable_every: Option<u64>,
    /// Log only the changed range of a value that keeps its length; default true
    #[arg(long, value_name = "BOOL")]
    delta: Option<bool>,
}

impl ProtocolArgs {
    /// Returns the file of the memory-mapped log of a database in `directory`, if it has one.
    pub fn memory_of(&self, preset: Preset, directory: Option<&Path>) -> Option<PathBuf> {
        let uses = self.writer.map_or(preset == Preset::Passive, |writer| writer == Writer::Memory);
        let beside = || directory.map(|directory| directory.join("log-memory"));
        if uses { self.log_memory.clone().or_else(beside) } else { self.log_memory.clone() }
    }

    /// Returns the given file, if it does not exist.
    pub fn new_memory(&self) -> Option<&Path> {
        self.log_memory.as_deref().filter(|path| !path.exists())
    }

    /// Returns how long a leader waits for followers, in microseconds.
    pub fn window_us(&self) -> f64 {
        self.window_us.unwrap_or(0) as f64
    }

    /// Refuses a flag that does nothing on the device of `database`: a comparison would compare the
    /// same with itself.
    ///
    /// # Errors
    /// Such a flag.
    pub fn check(&self, database: &Database) -> AnyResult<()> {
        if self.shared_flush == Some(true) && database.statistics().shares_flush == Some(false) {
            bail!(
                "--shared-flush true: this device has no flush that several logs could share. \
                 Use a disk with a volatile cache, or leave the flag out"
            );
        }
        Ok(())
    }

    /// Returns the builder with the given settings.
    pub fn apply(&self, builder: Builder) -> Builder {
        fn set<T>(setting: &mut T, given: Option<T>) {
            if let Some(value) = given {
                *setting = value;
            }
        }
        let builder = match self.loss_window {
            Some(ms) => builder.loss_window(Duration::from_millis(ms)),
            None => builder,
        };
        builder.lab(|lab| {
            set(&mut lab.layout, self.layout.map(Some));
            set(&mut lab.threads_per_log, self.threads_per_log);
            set(&mut lab.writer, self.writer.map(Some));
            set(&mut lab.flush_interval, self.flush_interval_us.map(Duration::from_micros).map(Some));
            set(&mut lab.writes_in_flight, self.in_flight);
            set(&mut lab.shared_flush, self.shared_flush.map(Some));
            set(&mut lab.acknowledger, self.acknowledger.map(Some));
            set(&mut lab.acknowledgment_group, self.ack_group);
            set(&mut lab.acknowledgment_odds, self.ack_odds);
            set(&mut lab.stealing_group, self.steal_group.map(Some));
            set(&mut lab.idle_max, self.idle_us.map(Duration::from_micros));
            set(&mut lab.dependency, self.dependency.map(Some));
            set(&mut lab.idle_logs, self.idle_logs);
            set(&mut lab.count_false_waits, self.count_false_waits);
            set(&mut lab.append, self.append);
            set(&mut lab.queue, self.queue.map(Some));
            set(&mut lab.queue_entries, self.queue_entries);
            set(&mut lab.queue_entries, self.queue_bytes.map(|bytes| bytes / QUEUE_ENTRY_BYTES));
            set(&mut lab.await_cohort, self.await_cohort);
            set(&mut lab.log_memory_bytes, self.log_memory_bytes);
            set(&mut lab.memory_cache, self.memory_cache);
            set(&mut lab.memory_fence, self.memory_fence.map(Some));
            set(&mut lab.memory_store, self.memory_store.map(Some));
            set(&mut lab.insertion_latency, self.insertion_ns.map(Duration::from_nanos));
            set(&mut lab.gather_window, self.window_us.map(Duration::from_micros));
            set(&mut lab.gather_siblings, self.siblings);
            set(&mut lab.gather_max, self.gather_max);
            set(&mut lab.log_buffer_bytes, self.log_buffer);
            set(&mut lab.durable_every, self.durable_every);
            set(&mut lab.delta_logging, self.delta);
        })
    }
}
