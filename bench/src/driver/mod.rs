//! Runs a workload: N threads work until the end of the time; then the driver makes everything
//! durable and reads the figures.
//!
//! ```text
//!   workers    ├─ warm-up ─┼────────────── measured ──────────────┼─ end, or a kill
//!   sampler    │           │ every 20 ms: checkpoints; every interval: counts, percentiles
//!   checkpoints│ beside the workers, if the plan asks for them    │
//! ```
//!
//! The loop of a worker is in `work.rs`, and the commits that it has handed over are in
//! `pending.rs`.

mod notes;
mod pending;
mod run;
#[cfg(test)]
mod tests;
mod work;

pub use run::{Finished, Run, WhileWorking};

use crate::activity::{Activity, KindSums, StageSums, Sums};
use crate::contention::Contention;
use crate::coordination::{Coordination, Switches};
use crate::device;
use crate::latencies::Counted;
use crate::place::Place;
use crate::plan::{Checkpoints, CommitMode, Plan};
use crate::process::{cpu_seconds, pin};
use crate::progress::Progress;
use crate::report::{Floor, KindReport, Report, Stages};
use crate::requests::RequestReport;
use crate::series::Sampler;
use crate::store::{Error, Figures, Store};
use crate::time_shares::TimeShares;
use crate::traffic::BlockDevice;
use crate::watch::{SAMPLE_EVERY, Sample, Watch};
use crate::workload::Worker;
use anyhow::{Context, Result, anyhow};
use quenchdb::Durability;
use run::Shared;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use work::Work;

/// Interval of the sampler, and of a waiting thread that checks whether the run has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Counters at the begin of the measurement.
struct Before {
    began: Instant,
    cpu: f64,
    sums: Sums,
    figures: Figures,
    switches: Switches,
    all: Counted,
    reads: Counted,
    log_waits: Counted,
    kinds: Vec<KindSums>,
    stages: StageSums,
}

/// A measurement whose figures have not been read yet.
struct Measured<'a, S> {
    before: Before,
    sampler: Sampler<'a, S>,
    /// Read while the workers lived.
    switches: Switches,
    stall_us_max: f64,
    committed_by_worker: Vec<u64>,
}

impl<S: Store> Run<'_, S> {
    /// Makes checkpoints until the run stops.
    fn checkpoint(&self, every: Duration, shared: &Shared) -> Result<()> {
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
            self.store.checkpoint(true)?;
        }
    }

    fn is_ended_early(&self) -> bool {
        self.watch.is_some_and(Watch::ends)
    }

    /// Sends a sample to the watch. `at` is the time since the warm-up or the measurement began.
    fn show(&self, shared: &Shared, at: Duration, measuring: bool) {
        let Some(watch) = self.watch else { return };
        let activity = &shared.activity;
        watch.sampled(Sample {
            at,
            measuring,
            sums: activity.sums(),
            latencies: activity.acknowledged_latencies(),
            stages: activity.stages(),
            rows: activity.rows(),
            gauges: self.store.gauges(),
        });
    }

    /// Sleeps for `duration`, in steps that show progress, or until a thread fails or the watch
    /// ends the run.
    fn pause(
        &self,
        duration: Duration,
        measuring: bool,
        shared: &Shared,
        mut step: impl FnMut() -> Duration,
    ) {
        let what = if measuring { "measuring" } else { "warming up" };
        let (began, mut next_sample) = (Instant::now(), Duration::ZERO);
        while !shared.failed.load(Ordering::Relaxed) {
            let wanted = step();
            let passed = began.elapsed();
            if passed >= next_sample {
                self.show(shared, passed, measuring);
                next_sample = passed + SAMPLE_EVERY;
            }
            if passed >= duration || self.is_ended_early() {
                return;
            }
            (self.progress)(what, passed.as_millis() as u64, duration.as_millis() as u64);
            std::thread::sleep((duration - passed).min(LOOK_EVERY).min(wanted));
        }
    }

    fn begin_measurement(&self, shared: &Shared) -> Before {
        self.store.reset();
        shared.activity.open_window();
        Before {
            began: Instant::now(),
            cpu: cpu_seconds(),
            sums: shared.activity.sums(),
            figures: self.store.figures(),
            switches: Switches::now(),
            all: shared.activity.latencies(),
            reads: shared.activity.read_latencies(),
            log_waits: shared.activity.log_waits(),
            kinds: shared.activity.kinds(),
            stages: shared.activity.stages(),
        }
    }

    /// Returns the figures since `before`. The caller adds those of the sampler.
    fn report(&self, shared: &Shared, before: &Before, switches: Switches) -> Report {
        let plan = self.plan;
        let (seconds, cpu_seconds) = (before.began.elapsed().as_secs_f64(), cpu_seconds() - before.cpu);
        let (sums, f, b) = (shared.activity.sums(), self.store.figures(), &before.figures);
        // One reading of the counters, so that the sums agree with the types.
        let kinds = self.kind_reports(shared, before);
        let sum = |field: fn(&KindReport) -> u64| kinds.iter().map(field).sum::<u64>();
        let (committed, rolled_back) = (sum(|kind| kind.committed), sum(|kind| kind.rolled_back));
        let reads = shared.activity.read_latencies().since(&before.reads);
        let writes = shared.activity.latencies().since(&before.all).since(&reads);
        let requests = f.requests.zip(b.requests).map(|(now, then)| now.since(&then));
        // An asynchronous transaction is not acknowledged when the worker counts its end.
        let waits = plan.commit == CommitMode::Blocking;
        let stages = stages(shared, before, &f, committed + rolled_back);
        Report {
            workload: self.workload.to_string(),
            preset: f.preset.clone(),
            threads: plan.threads,
            pinned: plan.pins,
            logs: f.logs,
            commit: plan.commit.name().to_string(),
            durability: f.durability.clone(),
            level: plan.level_name().to_string(),
            isolation: f.concurrency.isolation.to_string(),
            locking: f.concurrency.locking.to_string(),
            lock_release: f.concurrency.lock_release.to_string(),
            lock_granularity: f.concurrency.lock_granularity.to_string(),
            rate_tps: plan.rate.map(|rate| rate.per_second),
            arrivals: plan.rate.map(|rate| rate.gaps.name().to_string()),
            open_loop: plan.rate.map(|rate| rate.clients.name().to_string()),
            parameters: self.parameters.clone(),
            rows: plan.rows,
            value_bytes: plan.value_bytes,
            operations: plan.operations,
            read_percent: plan.read_percent,
            zipf: plan.zipf,
            memory_bytes: plan.memory_bytes,
            warm_up_seconds: plan.warm_up().as_secs_f64(),
            seconds,
            committed,
            rolled_back,
            aborted: sum(|kind| kind.conflicts),
            throughput_tps: (committed + rolled_back) as f64 / seconds,
            stages: Some(stages),
            time_by_category: self.time_shares(&stages, reads.count(), committed + rolled_back, seconds),
            commit_latency_us: f.commit,
            total_latency_us: f.total,
            read_latency_us: (reads.count() > 0).then(|| reads.summary()),
            write_latency_us: (waits && writes.count() > 0).then(|| writes.summary()),
            kinds,
            contention: Some(self.contention(shared, before, &f, seconds)),
            log_bytes: f.log_bytes - b.log_bytes,
            device_bytes: f.device_bytes - b.device_bytes,
            device_bytes_by_log: bytes_by_log(&f, b),
            device_writes: f.device_writes - b.device_writes,
            device_flushes: f.device_flushes - b.device_flushes,
            device_reads: f.reads - b.reads,
            device_read_bytes: f.read_bytes - b.read_bytes,
            store_bytes_written: f.written_bytes - b.written_bytes,
            requests: requests.map(|made| RequestReport::of(&made, &plan.prices, committed + rolled_back)),
            logical_bytes_written: sums.written_bytes - before.sums.written_bytes,
            checkpoints: f.checkpoints - b.checkpoints,
            checkpoint_seconds: f.checkpoint_seconds - b.checkpoint_seconds,
            coordination: (!f.protocol.is_empty())
                .then(|| Coordination::of(&f.protocol, b.waits, f.waits, switches, committed + rolled_back)),
            cpu_seconds,
            ..Report::default()
        }
        .with_costs()
    }

    fn time_shares(&self, stages: &Stages, reads: u64, ended: u64, seconds: f64) -> Option<TimeShares> {
        let worker_us = self.plan.threads as f64 * seconds * 1e6 / ended as f64;
        TimeShares::of(stages, 1.0 - reads as f64 / ended as f64, worker_us)
    }

    fn contention(&self, shared: &Shared, before: &Before, f: &Figures, seconds: f64) -> Contention {
        let log_waits = shared.activity.log_waits().since(&before.log_waits);
        let log_wait_us = (log_waits.count() > 0).then(|| log_waits.summary_with_stdev());
        let repeated = shared.activity.stages().conflicts - before.stages.conflicts;
        Contention::of(log_wait_us, f.locks, repeated as f64 / 1e9, seconds * self.plan.threads as f64)
    }

    fn kind_reports(&self, shared: &Shared, before: &Before) -> Vec<KindReport> {
        let now = shared.activity.kinds();
        let of = |((name, now), then): ((&&str, &KindSums), &KindSums)| KindReport {
            kind: (*name).to_string(),
            committed: now.committed - then.committed,
            rolled_back: now.rolled_back - then.rolled_back,
            conflicts: now.conflicts - then.conflicts,
            latency_us: now.latency.since(&then.latency).summary(),
        };
        self.kinds.iter().zip(&now).zip(&before.kinds).map(of).collect()
    }

    /// Runs warm-up and measurement. The workers continue.
    fn measure<'r>(&'r self, shared: &'r Shared) -> Measured<'r, S> {
        self.pause(self.plan.warm_up(), false, shared, || LOOK_EVERY);
        let before = self.begin_measurement(shared);
        let mut sampler = Sampler::begin(self.store, &shared.activity, self.plan.interval);
        self.pause(self.plan.duration, true, shared, || {
            sampler.look();
            sampler.left()
        });
        sampler.end();
        let switches = Switches::now().since(before.switches);
        let stall_us_max = shared.activity.longest_stall_us();
        let committed_by_worker = shared.activity.committed_by_worker();
        Measured { before, sampler, switches, stall_us_max, committed_by_worker }
    }

    fn finish(&self, shared: &Shared, measured: Measured<'_, S>) -> Finished {
        let report = Report {
            stall_us_max: measured.stall_us_max,
            series: measured.sampler.series,
            checkpoint_marks: measured.sampler.marks,
            ..self.report(shared, &measured.before, measured.switches)
        };
        let kinds = shared.activity.kinds();
        let acknowledged = |(name, kind): (&&str, &KindSums)| ((*name).to_string(), kind.acknowledged);
        let durable = self.plan.level == Durability::Durable;
        Finished {
            report,
            committed_by_worker: measured.committed_by_worker,
            written_bytes: shared.activity.sums().written_bytes,
            acknowledged: self.kinds.iter().zip(&kinds).filter(|_| durable).map(acknowledged).collect(),
        }
    }

    /// Runs a worker in its thread.
    fn work(&self, index: usize, worker: impl Worker<S::Table>, shared: &Shared) -> Result<()> {
        let session = self.store.worker_session(self.plan.level);
        // Waits also after an error: the other workers wait at the barrier.
        shared.start.wait();
        if self.plan.pins {
            pin(index)?;
        }
        Work::new(self, shared, index, session?)
            .and_then(|mut work| work.work(worker))
            .map_err(Error::into_failure)
    }

    /// Runs `workers`, one a thread, and reports.
    ///
    /// # Errors
    /// The first error of a worker that is not a conflict; that of a checkpoint; what
    /// `while_working` returns.
    pub fn drive<W: Worker<S::Table>>(&self, workers: Vec<W>) -> Result<Finished> {
        let shared = Shared {
            stop: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            activity: Activity::of(workers.len(), self.kinds.len()),
            start: Barrier::new(workers.len() + 1),
        };
        let shared = &shared;
        let before = self.block_device.map(BlockDevice::synced).transpose()?;
        let mut finished = self.drive_workers(workers, shared)?;
        if let (Some(device), Some(before)) = (self.block_device, before) {
            finished.report.traffic = Some(device.since(before, shared.activity.sums().committed)?);
        }
        Ok(finished)
    }

    fn drive_workers<W: Worker<S::Table>>(&self, workers: Vec<W>, shared: &Shared) -> Result<Finished> {
        std::thread::scope(|scope| {
            let guarded = |result: Result<()>| {
                if result.is_err() {
                    shared.failed.store(true, Ordering::Relaxed);
                }
                result
            };
            let mut threads = Vec::new();
            for (index, worker) in workers.into_iter().enumerate() {
                threads.push(scope.spawn(move || guarded(self.work(index, worker, shared))));
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
                // This makes a paced checkpoint in progress hurry.
                result = result.and(self.store.checkpoint(false).context("a checkpoint failed"));
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
                        self.store.make_durable()?;
                    }
                    Ok(self.finish(shared, measured))
                }
                (None, None) => Err(anyhow!("nothing was measured")),
            }
        })
    }
}

/// Returns the bytes written to each of several logs since `before`.
fn bytes_by_log(now: &Figures, before: &Figures) -> Vec<u64> {
    let then = before.log_written_bytes.iter().chain(std::iter::repeat(&0));
    let logs = if now.log_written_bytes.len() > 1 { &now.log_written_bytes[..] } else { &[] };
    logs.iter().zip(then).map(|(now, then)| now.saturating_sub(*then)).collect()
}

/// Returns the mean times of the stages of `ended` transactions.
fn stages(shared: &Shared, before: &Before, figures: &Figures, ended: u64) -> Stages {
    let (now, then) = (shared.activity.stages(), &before.stages);
    let sampled = (now.sampled - then.sampled).max(1) as f64 * 1e3;
    let after_write = figures.acknowledge.mean;
    let flush_wait_us = (figures.commit.mean - after_write).max(0.0);
    let queuing_us = figures.write_wait.mean.min(flush_wait_us);
    Stages {
        execute_us: (now.execute - then.execute) as f64 / sampled,
        commit_call_us: (now.commit_call - then.commit_call) as f64 / sampled,
        conflicts_us: (now.conflicts - then.conflicts) as f64 / 1e3 / ended.max(1) as f64,
        row_wait_us: figures.row_wait_seconds * 1e6 / ended.max(1) as f64,
        log_insert_us: figures.log_insert_us,
        flush_wait_us,
        queuing_us,
        writing_us: flush_wait_us - queuing_us,
        acknowledge_us: after_write,
        flush_us: figures.flush,
    }
}

/// The floors of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Floors {
    /// Of one writer.
    pub alone: Floor,
    /// Of as many writers as the run has threads, if these are several.
    pub together: Option<Floor>,
}

/// Measures the floors of `place` for a run of `plan`.
///
/// # Errors
/// Those of the device.
pub fn floors(place: &Place, plan: &Plan, progress: Progress<'_>) -> Result<Floors> {
    progress("measuring the device", 0, 2);
    let alone = device::floor(place, 1, plan.floor_time())?;
    progress("measuring the device", 1, 2);
    let together = (plan.threads > 1).then(|| device::floor(place, plan.threads, plan.floor_time()));
    Ok(Floors { alone, together: together.transpose()? })
}
