//! Runs a workload: N threads until the time is up, then everything is made durable, then the figures are read.
//!
//! ```text
//!   workers    ├─ warm-up ─┼────────────── measured ──────────────┼─ they end, or go on until a kill
//!   sampler    │           │ every 20 ms: checkpoints; every interval: counts, percentiles
//!   checkpoints│ beside the workers, if the plan asks for them    │
//! ```
//!
//! The loop of a worker allocates nothing, looks at one relaxed flag and at the clock once per transaction, and counts in
//! cache lines of its own. Asynchronous workers drop their handles: the engine must finish the commits without them.

use crate::activity::{Activity, Intent, Sums};
use crate::plan::{Checkpoints, CommitMode, Plan};
use crate::process::cpu_seconds;
use crate::report::{Floor, Report};
use crate::series::Sampler;
use crate::{Progress, device};
use anyhow::{Context, Result, anyhow};
use quenchdb::{Database, DeviceTrust, Durability, Isolation, Snapshot, Statistics, Transaction};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often the sampler looks for checkpoints, and whoever waits looks whether to stop.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// One thread of a workload.
pub trait Worker: Send {
    /// Chooses what the next transaction does. A retry after a conflict does the same again.
    fn prepare(&mut self) -> Intent;

    /// Does it.
    ///
    /// # Errors
    /// Those of the engine; a retryable one is retried.
    fn run(&mut self, transaction: &mut Transaction) -> quenchdb::Result<()>;

    /// Does it in a read-only snapshot. Called only for an intent that only reads.
    ///
    /// # Errors
    /// Those of the engine.
    fn read(&mut self, snapshot: &Snapshot) -> quenchdb::Result<()>;
}

/// What a run gave.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Finished {
    /// For people and programs.
    pub report: Report,
    /// Transactions that each worker had committed, from its start on, when the measured time was over.
    pub committed_by_worker: Vec<u64>,
    /// Bytes of keys and values that they had written, from their start on.
    pub written_bytes: u64,
}

/// Called when the measured time is over and the workers still work.
pub type WhileWorking<'a> = &'a (dyn Fn(&Finished) -> Result<()> + Sync);

/// What a run needs.
pub struct Run<'a> {
    /// Name of the workload.
    pub workload: &'a str,
    /// Where.
    pub database: &'a Database,
    /// What.
    pub plan: &'a Plan,
    /// Told how it goes.
    pub progress: Progress<'a>,
    /// If there is one the workers do not stop before it returns.
    pub while_working: Option<WhileWorking<'a>>,
}

/// What the threads of a run share.
struct Shared {
    stop: AtomicBool,
    failed: AtomicBool,
    activity: Activity,
    start: Barrier,
}

impl Shared {
    fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// What counters said when the measurement began.
struct Before {
    began: Instant,
    cpu: f64,
    sums: Sums,
    statistics: Statistics,
    reads: crate::latencies::Counted,
}

/// A measurement whose figures have not been read yet.
struct Measured<'a> {
    before: Before,
    sampler: Sampler<'a>,
    stall_us_max: f64,
    committed_by_worker: Vec<u64>,
}

impl Run<'_> {
    fn work(&self, index: usize, worker: &mut dyn Worker, shared: &Shared) -> quenchdb::Result<()> {
        let activity = &shared.activity;
        let mut begun = activity.now();
        while !shared.stops() {
            let intent = worker.prepare();
            loop {
                match self.attempt(worker, intent) {
                    Ok(()) => {
                        begun = activity.finished(index, begun, intent);
                        break;
                    }
                    Err(error) if error.is_retryable() => {
                        activity.conflicted(index);
                        if shared.stops() {
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
    fn attempt(&self, worker: &mut dyn Worker, intent: Intent) -> quenchdb::Result<()> {
        if intent.reads_only && self.plan.snapshots {
            return worker.read(&self.database.begin_read()?);
        }
        let mut transaction = self.database.begin_with(Isolation::Snapshot, self.plan.level)?;
        worker.run(&mut transaction)?;
        match self.plan.commit {
            CommitMode::Blocking => transaction.commit().map(drop),
            CommitMode::Async => transaction.commit_async().map(drop),
        }
    }

    /// Makes checkpoints until the run stops.
    fn checkpoint(&self, every: Duration, shared: &Shared) -> quenchdb::Result<()> {
        let mut began = Instant::now();
        loop {
            while let Some(left) = every.checked_sub(began.elapsed())
                && !left.is_zero()
                && !shared.stops()
            {
                std::thread::sleep(left.min(LOOK_EVERY));
            }
            if shared.stops() {
                return Ok(());
            }
            began = Instant::now();
            self.database.checkpoint_paced()?;
        }
    }

    /// Sleeps for `duration`, in steps that show progress, or until a thread failed.
    fn pause(&self, duration: Duration, what: &str, shared: &Shared, mut step: impl FnMut() -> Duration) {
        let began = Instant::now();
        while !shared.failed.load(Ordering::Relaxed) {
            let wanted = step();
            let passed = began.elapsed();
            if passed >= duration {
                return;
            }
            (self.progress)(what, passed.as_millis() as u64, duration.as_millis() as u64);
            std::thread::sleep((duration - passed).min(LOOK_EVERY).min(wanted));
        }
    }

    fn begin_measurement(&self, shared: &Shared) -> Before {
        self.database.reset_statistics();
        shared.activity.open_window();
        Before {
            began: Instant::now(),
            cpu: cpu_seconds(),
            sums: shared.activity.sums(),
            statistics: self.database.statistics(),
            reads: shared.activity.read_latencies(),
        }
    }

    /// The figures since `before`; what the sampler saw is added by the caller.
    fn report(&self, shared: &Shared, before: &Before) -> Report {
        let plan = self.plan;
        let seconds = before.began.elapsed().as_secs_f64();
        let cpu_seconds = cpu_seconds() - before.cpu;
        let (sums, s, b) = (shared.activity.sums(), self.database.statistics(), &before.statistics);
        let committed = sums.committed - before.sums.committed;
        let reads = shared.activity.read_latencies().since(&before.reads);
        Report {
            workload: self.workload.to_string(),
            preset: s.preset.name().to_string(),
            threads: plan.threads,
            logs: s.logs,
            commit: plan.commit.name().to_string(),
            durability: s.durability_method.clone(),
            level: plan.level_name().to_string(),
            rows: plan.rows,
            value_bytes: plan.value_bytes,
            operations: plan.operations,
            read_percent: plan.read_percent,
            zipf: plan.zipf,
            memory_bytes: plan.memory_bytes,
            warm_up_seconds: plan.warm_up().as_secs_f64(),
            seconds,
            committed,
            aborted: sums.aborted - before.sums.aborted,
            throughput_tps: committed as f64 / seconds,
            commit_latency_us: s.commit.into(),
            total_latency_us: s.total.into(),
            read_latency_us: (reads.count() > 0).then(|| reads.summary()),
            log_bytes: s.log_bytes - b.log_bytes,
            device_bytes: s.device_bytes - b.device_bytes,
            device_writes: s.device_writes - b.device_writes,
            device_flushes: s.device_flushes - b.device_flushes,
            device_reads: s.store_reads - b.store_reads,
            device_read_bytes: s.store_read_bytes - b.store_read_bytes,
            store_bytes_written: s.store_bytes_written - b.store_bytes_written,
            logical_bytes_written: sums.written_bytes - before.sums.written_bytes,
            checkpoints: s.checkpoints - b.checkpoints,
            checkpoint_seconds: s.checkpoint_seconds - b.checkpoint_seconds,
            cpu_seconds,
            ..Report::default()
        }
    }

    /// Warm-up and measurement; the workers go on.
    fn measure<'r>(&'r self, shared: &'r Shared) -> Measured<'r> {
        self.pause(self.plan.warm_up(), "warming up", shared, || LOOK_EVERY);
        let before = self.begin_measurement(shared);
        let mut sampler = Sampler::begin(self.database, &shared.activity, self.plan.interval);
        self.pause(self.plan.duration, "measuring", shared, || {
            sampler.look();
            sampler.left()
        });
        sampler.end();
        let stall_us_max = shared.activity.longest_stall_us();
        let committed_by_worker = shared.activity.committed_by_worker();
        Measured { before, sampler, stall_us_max, committed_by_worker }
    }

    fn finish(&self, shared: &Shared, measured: Measured<'_>) -> Finished {
        let report = Report {
            stall_us_max: measured.stall_us_max,
            series: measured.sampler.series,
            checkpoint_marks: measured.sampler.marks,
            ..self.report(shared, &measured.before)
        };
        let written_bytes = shared.activity.sums().written_bytes;
        Finished { report, committed_by_worker: measured.committed_by_worker, written_bytes }
    }

    /// Runs `workers`, one a thread, and reports.
    ///
    /// # Errors
    /// The first error of a worker that is not a conflict; that of a checkpoint; what `while_working` returns.
    pub fn drive(&self, workers: Vec<Box<dyn Worker>>) -> Result<Finished> {
        let shared = Shared {
            stop: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            activity: Activity::of(workers.len()),
            start: Barrier::new(workers.len() + 1),
        };
        let shared = &shared;
        std::thread::scope(|scope| {
            let guarded = |result: quenchdb::Result<()>| {
                if result.is_err() {
                    shared.failed.store(true, Ordering::Relaxed);
                }
                result
            };
            let mut threads = Vec::new();
            for (index, mut worker) in workers.into_iter().enumerate() {
                threads.push(scope.spawn(move || {
                    shared.start.wait();
                    guarded(self.work(index, worker.as_mut(), shared))
                }));
            }
            if let Checkpoints::Every(every) = self.plan.checkpoints {
                threads.push(scope.spawn(move || guarded(self.checkpoint(every, shared))));
            }
            shared.start.wait();
            let measured = self.measure(shared);
            let mut early = None;
            let mut result = Ok(());
            let measured = match self.while_working {
                Some(while_working) if !shared.failed.load(Ordering::Relaxed) => {
                    let finished = early.insert(self.finish(shared, measured));
                    result = while_working(finished);
                    None
                }
                _ => Some(measured),
            };
            shared.stop.store(true, Ordering::Relaxed);
            if matches!(self.plan.checkpoints, Checkpoints::Every(_)) {
                // One that is being made at its pace hurries then.
                result = result.and(self.database.checkpoint().map(drop).context("a checkpoint failed"));
            }
            for thread in threads {
                let ended = thread.join().map_err(|_| anyhow!("a worker panicked"));
                result = result.and(ended.and_then(|ended| ended.context("a worker failed")));
            }
            result?;
            match (early, measured) {
                (Some(finished), _) => Ok(finished),
                (None, Some(measured)) => {
                    if self.plan.level != Durability::Lazy {
                        self.database.flush()?;
                    }
                    Ok(self.finish(shared, measured))
                }
                (None, None) => Err(anyhow!("nothing was measured")),
            }
        })
    }
}

/// Measures the floor of `directory` for a run of `plan`.
///
/// # Errors
/// Those of the device.
pub fn floor(directory: &Path, trust: DeviceTrust, plan: &Plan, progress: Progress<'_>) -> Result<Floor> {
    progress("measuring the device", 0, 1);
    device::floor(directory, trust, plan.floor_time())
}
