//! The flags of `quench bench` that choose the commit protocol, or single axes of it.

use crate::parse::{said, value_bytes};
use anyhow::{Result as AnyResult, bail};
use clap::ValueEnum;
use quenchdb::{
    Acknowledger, Append, Axes, Database, Dependency, IdleLogs, Layout, MemoryCache, MemoryFence,
    MemoryStore, Preset, Queue, Settings, Writer,
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
    gather_max: Option<u32>,
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

    /// Changes `settings`, whose preset, number of logs and mapped log are chosen.
    ///
    /// # Errors
    /// A flag that does not fit the protocol.
    pub fn apply(&self, settings: &mut Settings) -> AnyResult<()> {
        self.change(settings.logs, settings.protocol_mut())?;
        set(&mut settings.loss_window, self.loss_window.map(Duration::from_millis));
        let lab = &mut settings.lab;
        set(&mut lab.count_false_waits, self.count_false_waits);
        set(&mut lab.queue_entries, self.queue_entries);
        set(&mut lab.queue_entries, self.queue_bytes.map(|bytes| bytes / QUEUE_ENTRY_BYTES));
        set(&mut lab.log_memory_bytes, self.log_memory_bytes);
        set(&mut lab.memory_cache, self.memory_cache);
        set(&mut lab.memory_store, self.memory_store.map(Some));
        set(&mut lab.insertion_latency, self.insertion_ns.map(Duration::from_nanos));
        set(&mut lab.log_buffer_bytes, self.log_buffer);
        set(&mut lab.durable_every, self.durable_every);
        set(&mut lab.delta_logging, self.delta);
        Ok(())
    }

    /// Changes a protocol: first the choices, then their numbers.
    fn change(&self, logs: usize, axes: &mut Axes) -> AnyResult<()> {
        let us = Duration::from_micros;
        if self.layout == Some(Layout::One) && logs > 1 {
            bail!("--layout one has one log, not the {logs} of --logs. Leave one of the two flags out");
        }
        self.layout.into_iter().for_each(|layout| axes.set_layout(layout));
        self.writer.into_iter().for_each(|writer| axes.set_writer(writer));
        self.acknowledger.into_iter().for_each(|acknowledger| axes.set_acknowledger(acknowledger));
        set(&mut axes.dependency, self.dependency.map(Some));
        set(&mut axes.idle_logs, self.idle_logs);
        set(&mut axes.append, self.append);
        set(&mut axes.queue, self.queue);
        set(&mut axes.await_cohort, self.await_cohort);
        set(&mut axes.shared_flush, self.shared_flush.map(Some));
        fit("--threads-per-log", self.threads_per_log, axes.threads_mut(), "--layout threads-per-log")?;
        let worker = "--writer worker";
        fit("--in-flight", self.in_flight, axes.worker_mut().map(|w| &mut w.writes_in_flight), worker)?;
        fit(
            "--steal-group",
            self.steal_group.map(Some),
            axes.worker_mut().map(|w| &mut w.stealing_group),
            worker,
        )?;
        fit("--idle-us", self.idle_us.map(us), axes.worker_mut().map(|w| &mut w.idle_max), worker)?;
        let leads = "--writer leader or worker";
        let most = self.gather_max.map(|most| (most > 0).then_some(most));
        fit("--window-us", self.window_us.map(us), axes.gather_mut().map(|g| &mut g.window), leads)?;
        fit("--siblings", self.siblings, axes.gather_mut().map(|g| &mut g.siblings), leads)?;
        fit("--gather-max", most, axes.gather_mut().map(|g| &mut g.most), leads)?;
        let workers = "--acknowledger workers";
        fit("--ack-group", self.ack_group, axes.acknowledgment_mut().map(|a| &mut a.group), workers)?;
        fit("--ack-odds", self.ack_odds, axes.acknowledgment_mut().map(|a| &mut a.odds), workers)?;
        let is_file = axes.writer.kind() != Writer::Memory;
        let interval = is_file.then_some(&mut axes.flush_interval);
        fit("--flush-interval-us", self.flush_interval_us.map(us), interval, "another writer than memory")?;
        let is_volatile = self.memory_cache != Some(MemoryCache::Durable);
        let fence = axes.fence_mut().filter(|_| is_volatile);
        fit("--memory-fence", self.memory_fence, fence, "--writer memory and --memory-cache volatile")
    }
}

fn set<T>(place: &mut T, given: Option<T>) {
    if let Some(value) = given {
        *place = value;
    }
}

/// Sets what a flag gives, if the protocol has a place for it.
fn fit<T>(flag: &str, given: Option<T>, place: Option<&mut T>, with: &str) -> AnyResult<()> {
    match (given, place) {
        (Some(_), None) => {
            bail!("{flag} would have no effect: it goes with {with}. Choose that, or leave {flag} out")
        }
        (given, Some(place)) => set(place, given),
        (None, None) => {}
    }
    Ok(())
}
