//! The flags of `quench bench` that choose the commit protocol, or single axes of it.

use crate::parse::{said, value_bytes};
use clap::ValueEnum;
use quenchdb::{Acknowledger, Builder, Dependency, Layout, MemoryCache, MemoryStore, Preset, Queue, Writer};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What an ablation may be of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum AblationOf {
    Ycsb,
    Tpcc,
    Tpcb,
    Tatp,
    Put,
}

#[derive(clap::Args, Clone)]
#[command(next_help_heading = "Commit protocol, where it is not to be as the preset says")]
pub struct ProtocolArgs {
    /// How many logs, and what goes where: one, per-thread, threads-per-log, by-page
    #[arg(long, value_parser = |name: &str| Layout::from_name(name).map_err(said))]
    layout: Option<Layout>,
    /// Threads that share a log, with --layout threads-per-log
    #[arg(long, value_name = "THREADS")]
    threads_per_log: Option<usize>,
    /// Who writes a log: committer, leader, flusher-per-log, background, worker, memory
    #[arg(long, value_parser = |name: &str| Writer::from_name(name).map_err(said))]
    writer: Option<Writer>,
    /// A log that nobody waits for is written about so often; with --preset queued any
    #[arg(long, value_name = "US")]
    flush_interval_us: Option<u64>,
    /// Writes of one log that a worker may have in flight
    #[arg(long, value_name = "WRITES")]
    in_flight: Option<usize>,
    /// Whether a thread that writes several logs at once has them flushed together; default: as it measures
    #[arg(long, value_name = "BOOL")]
    shared_flush: Option<bool>,
    /// Who acknowledges what nobody waits with: leader, background, workers
    #[arg(long, value_parser = |name: &str| Acknowledger::from_name(name).map_err(said))]
    acknowledger: Option<Acknowledger>,
    /// Logs that workers acknowledge for each other
    #[arg(long, value_name = "LOGS")]
    ack_group: Option<usize>,
    /// Workers acknowledge after one transaction in so many, at random; 0: log2 of the logs
    #[arg(long, value_name = "TRANSACTIONS")]
    ack_odds: Option<u32>,
    /// Logs whose waiting bytes a worker writes with its own; 1: only its own
    #[arg(long, value_name = "LOGS")]
    steal_group: Option<usize>,
    /// A worker idle for so long between its transactions has each written at once; 0: never
    #[arg(long, value_name = "US")]
    idle_us: Option<u64>,
    /// What a durable transaction still waits for: log-order, csn, dsn, exact, gsn, gsn-rfa
    #[arg(long, value_parser = |name: &str| Dependency::from_name(name).map_err(said))]
    dependency: Option<Dependency>,
    /// Where transactions wait that nobody waits with: latched, lock-free
    #[arg(long, value_parser = |name: &str| Queue::from_name(name).map_err(said))]
    queue: Option<Queue>,
    /// Transactions that may wait there
    #[arg(long, value_name = "TRANSACTIONS")]
    queue_entries: Option<usize>,
    /// Whether committers let those join their write that the last one released; default true
    #[arg(long, value_name = "BOOL")]
    company: Option<bool>,
    /// The file of the memory-mapped log, with --preset passive or auto; default with passive: `log-memory` in the database's directory. Made if it is
    /// missing, and then removed at the end
    #[arg(long, value_name = "FILE")]
    log_memory: Option<PathBuf>,
    /// Its length
    #[arg(long, value_name = "BYTES")]
    log_memory_bytes: Option<u64>,
    /// What a power cut leaves of the processor's caches: volatile (nothing), durable (eADR)
    #[arg(long, value_parser = |name: &str| MemoryCache::from_name(name).map_err(said))]
    memory_cache: Option<MemoryCache>,
    /// How cache lines reach mapped memory: clwb, clflushopt, clflush, non-temporal; default: as the processor does it best
    #[arg(long, value_parser = |name: &str| MemoryStore::from_name(name).map_err(said))]
    memory_store: Option<MemoryStore>,
    /// Each insertion into mapped memory takes at least so long
    #[arg(long, value_name = "NS")]
    insertion_ns: Option<u64>,
    /// How long a leader gathers followers
    #[arg(long, value_name = "US")]
    window_us: Option<u64>,
    /// It does if at least so many other transactions are in progress
    #[arg(long, value_name = "TRANSACTIONS")]
    siblings: Option<usize>,
    /// Transactions in one flush at most; 0: no limit
    #[arg(long, value_name = "TRANSACTIONS")]
    gather_max: Option<usize>,
    /// Largest buffer of a log; default: 1m, with --preset restricted more
    #[arg(long, value_name = "BYTES", value_parser = value_bytes)]
    log_buffer: Option<usize>,
    /// Commits of --level bounded that a crash may lose, as time
    #[arg(long, value_name = "MS")]
    loss_window: Option<u64>,
}

impl ProtocolArgs {
    /// The file of the memory-mapped log of a database in `directory`, if it has one.
    pub fn memory_of(&self, preset: Preset, directory: Option<&Path>) -> Option<PathBuf> {
        let uses = self.writer.map_or(preset == Preset::Passive, |writer| writer == Writer::Memory);
        let beside = || directory.map(|directory| directory.join("log-memory"));
        if uses { self.log_memory.clone().or_else(beside) } else { self.log_memory.clone() }
    }

    /// The file that was given, if it is not there yet.
    pub fn new_memory(&self) -> Option<&Path> {
        self.log_memory.as_deref().filter(|path| !path.exists())
    }

    /// The builder with what was given.
    pub fn apply(&self, builder: Builder) -> Builder {
        fn with<T: Copy>(builder: Builder, given: Option<T>, set: impl Fn(Builder, T) -> Builder) -> Builder {
            match given {
                Some(value) => set(builder, value),
                None => builder,
            }
        }
        let builder = with(builder, self.layout, Builder::layout);
        let builder = with(builder, self.threads_per_log, Builder::threads_per_log);
        let builder = with(builder, self.writer, Builder::writer);
        let interval = self.flush_interval_us.map(Duration::from_micros);
        let builder = with(builder, interval, Builder::flush_interval);
        let builder = with(builder, self.in_flight, Builder::writes_in_flight);
        let builder = with(builder, self.shared_flush, Builder::shared_flush);
        let builder = with(builder, self.acknowledger, Builder::acknowledger);
        let builder = with(builder, self.ack_group, Builder::acknowledgment_group);
        let builder = with(builder, self.ack_odds, Builder::acknowledgment_odds);
        let builder = with(builder, self.steal_group, Builder::stealing_group);
        let builder = with(builder, self.idle_us.map(Duration::from_micros), Builder::idle_most);
        let builder = with(builder, self.dependency, Builder::dependency);
        let builder = with(builder, self.queue, Builder::queue);
        let builder = with(builder, self.queue_entries, Builder::queue_entries);
        let builder = with(builder, self.company, Builder::await_company);
        let builder = with(builder, self.log_memory_bytes, Builder::log_memory_bytes);
        let builder = with(builder, self.memory_cache, Builder::memory_cache);
        let builder = with(builder, self.memory_store, Builder::memory_store);
        let latency = self.insertion_ns.map(Duration::from_nanos);
        let builder = with(builder, latency, Builder::insertion_latency);
        let builder = with(builder, self.window_us.map(Duration::from_micros), Builder::gather_window);
        let builder = with(builder, self.siblings, Builder::gather_siblings);
        let builder = with(builder, self.gather_max, Builder::gather_max);
        let builder = with(builder, self.log_buffer, Builder::log_buffer_bytes);
        with(builder, self.loss_window.map(Duration::from_millis), Builder::loss_window)
    }
}
