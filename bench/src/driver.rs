//! Runs a workload: N threads until the time is up, then everything is made durable, then the figures are read.
//!
//! The loop of a worker allocates nothing, looks at one relaxed flag per transaction and counts in a cache line of its
//! own. Asynchronous workers drop their handles: the engine must finish the commits without them.

use crate::report::{Floor, Report};
use crate::{Progress, device};
use anyhow::{Context, Result, anyhow};
use quenchdb::base::random::Random;
use quenchdb::{Database, DeviceTrust, Durability, Isolation, Table, Transaction};
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How a worker ends its transactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommitMode {
    /// Waits for each commit.
    Blocking,
    /// Hands the commit over and goes on.
    Async,
}

impl CommitMode {
    fn name(self) -> &'static str {
        match self {
            CommitMode::Blocking => "blocking",
            CommitMode::Async => "async",
        }
    }
}

/// What to run, for all workloads.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Worker threads, at least 1.
    pub threads: usize,
    /// Measured time; a warm-up of a tenth of it, at most a second, comes before.
    pub duration: Duration,
    /// How transactions end.
    pub commit: CommitMode,
    /// Durability level of each transaction.
    pub level: Durability,
    /// Rows loaded before the run.
    pub rows: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Operations in one transaction.
    pub operations: usize,
    /// Percentage of operations that read.
    pub read_percent: u32,
    /// Skew of row choice; 0 is uniform.
    pub zipf: f64,
    /// Seed of every random choice.
    pub seed: u64,
}

/// The name of a durability level in reports.
#[must_use]
pub fn level_name(level: Durability) -> &'static str {
    match level {
        Durability::Durable => "durable",
        Durability::BoundedLoss => "bounded",
        Durability::Lazy => "lazy",
    }
}

/// One thread of a workload.
pub trait Worker: Send {
    /// Chooses what the next transaction does. A retry after a conflict does the same again.
    fn prepare(&mut self);

    /// Does it.
    ///
    /// # Errors
    /// Those of the engine; a retryable one is retried.
    fn run(&mut self, transaction: &mut Transaction) -> quenchdb::Result<()>;
}

/// Counters of one worker, alone on their cache lines; written by it, read by the driver.
#[repr(align(128))]
#[derive(Default)]
struct Counters {
    committed: AtomicU64,
    aborted: AtomicU64,
}

/// Processor time of this process so far, user and system.
#[must_use]
pub fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Fills `bytes` with random bits.
pub fn fill(random: &mut Random, bytes: &mut [u8]) {
    for chunk in bytes.chunks_mut(8) {
        let word = random.next_u64().to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
}

fn work(
    database: &Database,
    plan: &Plan,
    worker: &mut dyn Worker,
    stop: &AtomicBool,
    counters: &Counters,
) -> quenchdb::Result<()> {
    let (mut committed, mut aborted) = (0u64, 0u64);
    while !stop.load(Ordering::Relaxed) {
        worker.prepare();
        loop {
            let outcome = attempt(database, plan, worker);
            match outcome {
                Ok(()) => {
                    committed += 1;
                    counters.committed.store(committed, Ordering::Relaxed);
                    break;
                }
                Err(error) if error.is_retryable() => {
                    aborted += 1;
                    counters.aborted.store(aborted, Ordering::Relaxed);
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

#[inline]
fn attempt(database: &Database, plan: &Plan, worker: &mut dyn Worker) -> quenchdb::Result<()> {
    let mut transaction = database.begin_with(Isolation::Snapshot, plan.level)?;
    worker.run(&mut transaction)?;
    match plan.commit {
        CommitMode::Blocking => transaction.commit().map(drop),
        CommitMode::Async => transaction.commit_async().map(drop),
    }
}

/// Measures the device, then runs `workers` (one a thread) on `database` and reports.
///
/// # Errors
/// The first error of a worker that is not a conflict; those of the device.
pub fn run(
    workload: &str,
    database: &Database,
    plan: &Plan,
    floor_us: Floor,
    workers: Vec<Box<dyn Worker>>,
    progress: Progress<'_>,
) -> Result<Report> {
    let stop = AtomicBool::new(false);
    let counters: Vec<Counters> = workers.iter().map(|_| Counters::default()).collect();
    let start = Barrier::new(workers.len() + 1);
    let total = |field: fn(&Counters) -> &AtomicU64| -> u64 {
        counters.iter().map(|c| field(c).load(Ordering::Relaxed)).sum()
    };
    let failed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (mut worker, counters) in workers.into_iter().zip(&counters) {
            let (start, stop, failed) = (&start, &stop, &failed);
            threads.push(scope.spawn(move || {
                start.wait();
                let result = work(database, plan, worker.as_mut(), stop, counters);
                if result.is_err() {
                    failed.store(true, Ordering::Relaxed);
                }
                result
            }));
        }
        start.wait();
        let warm_up = (plan.duration / 10).min(Duration::from_secs(1));
        pause(warm_up, "warming up", &failed, progress);
        database.reset_statistics();
        let (committed, aborted) = (total(|c| &c.committed), total(|c| &c.aborted));
        let (began, cpu) = (Instant::now(), cpu_seconds());
        pause(plan.duration, "measuring", &failed, progress);
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().map_err(|_| anyhow!("a worker panicked"))?.context("a worker failed")?;
        }
        if plan.level != Durability::Lazy {
            database.flush()?;
        }
        let seconds = began.elapsed().as_secs_f64();
        let cpu_seconds = cpu_seconds() - cpu;
        let committed = total(|c| &c.committed) - committed;
        let s = database.statistics();
        Ok(Report {
            workload: workload.to_string(),
            preset: s.preset.name().to_string(),
            threads: plan.threads,
            logs: s.logs,
            commit: plan.commit.name().to_string(),
            durability: s.durability_method.clone(),
            level: level_name(plan.level).to_string(),
            rows: plan.rows,
            value_bytes: plan.value_bytes,
            operations: plan.operations,
            read_percent: plan.read_percent,
            zipf: plan.zipf,
            seconds,
            committed,
            aborted: total(|c| &c.aborted) - aborted,
            throughput_tps: committed as f64 / seconds,
            commit_latency_us: s.commit.into(),
            total_latency_us: s.total.into(),
            log_bytes: s.log_bytes,
            device_bytes: s.device_bytes,
            device_writes: s.device_writes,
            device_flushes: s.device_flushes,
            cpu_seconds,
            floor_us,
            recovery_seconds: None,
            replayed: None,
        })
    })
}

/// Sleeps for `duration`, in steps that show progress, or until a worker failed.
fn pause(duration: Duration, what: &str, failed: &AtomicBool, progress: Progress<'_>) {
    let began = Instant::now();
    while !failed.load(Ordering::Relaxed) {
        let passed = began.elapsed();
        if passed >= duration {
            return;
        }
        progress(what, passed.as_millis() as u64, duration.as_millis() as u64);
        std::thread::sleep((duration - passed).min(Duration::from_millis(100)));
    }
}

/// Loads `rows` rows with big-endian row numbers as keys, `threads` threads, and makes them durable.
///
/// # Errors
/// Those of the engine.
pub fn load(database: &Database, table: &Table, plan: &Plan, progress: Progress<'_>) -> Result<()> {
    const BATCH: u64 = 500;
    let done = AtomicU64::new(0);
    let share = plan.rows.div_ceil(plan.threads as u64).max(1);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for index in 0..plan.threads as u64 {
            let done = &done;
            threads.push(scope.spawn(move || -> quenchdb::Result<()> {
                let mut random = Random::from_seed(plan.seed ^ ((index + 1) << 32));
                let mut value = vec![0; plan.value_bytes];
                let mut next = (index * share).min(plan.rows);
                let end = (next + share).min(plan.rows);
                while next < end {
                    let batch = BATCH.min(end - next);
                    let mut transaction = database.begin_with(Isolation::Snapshot, Durability::Lazy)?;
                    for row in next..next + batch {
                        fill(&mut random, &mut value);
                        transaction.insert(table, row.to_be_bytes(), &value)?;
                    }
                    transaction.commit()?;
                    next += batch;
                    let done = done.fetch_add(batch, Ordering::Relaxed) + batch;
                    if index == 0 {
                        progress("loading rows", done, plan.rows);
                    }
                }
                Ok(())
            }));
        }
        for thread in threads {
            thread.join().map_err(|_| anyhow!("a loader panicked"))?.context("loading failed")?;
        }
        database.flush()?;
        Ok(())
    })
}

/// How long the floor is measured before a run.
#[must_use]
pub fn floor_time(plan: &Plan) -> Duration {
    (plan.duration / 10).clamp(Duration::from_millis(200), Duration::from_secs(1))
}

/// Measures the floor of `directory` for a run of `plan`.
///
/// # Errors
/// Those of the device.
pub fn floor(directory: &Path, trust: DeviceTrust, plan: &Plan, progress: Progress<'_>) -> Result<Floor> {
    progress("measuring the device", 0, 1);
    device::floor(directory, trust, floor_time(plan))
}
