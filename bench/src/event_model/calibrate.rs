//! Costs measured on this machine: of the engine on a device that takes no time, and of wake-ups by
//! the kernel.
//!
//! | cost | how |
//! |---|---|
//! | execution, commit call | stages of one asynchronous worker |
//! | submission | time of a blocking commit, beyond that of the asynchronous one |
//! | acknowledgment | processor time beside the worker's and that of writes, half of it remote |
//! | look of a worker | one worker with a log of its own, beyond the one with a flusher |
//! | fence | one worker whose log is in mapped memory |
//! | cores beside each other | a worker for each core, each with its own log |
//! | transfer of a latch | a worker for each core, with one log |
//! | another log on a core | four workers for each core, each with its own log |
//! | wake-ups, timers, switches | threads that park, sleep, or yield |
//!
//! The five costs before the last are fitted: the model runs the same case, and the cost is the one
//! with which it has the engine's throughput. Nothing is fitted to a case of `--against`.

use super::costs::Costs;
use super::engine_run::{EngineRun, fastest_of, input_of};
use super::input::ModelInput;
use super::simulate::run;
use crate::device;
use crate::modelled::Figures;
use crate::place::Place;
use crate::report::{Floor, Report};
use anyhow::{Context, Result, anyhow};
use quenchdb::{DeviceTrust, Preset};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// The costs.
    pub costs: Costs,
    /// Bytes of a log record of the workload.
    pub log_bytes: u64,
    /// A durable 4 KiB write of the disk, in microseconds.
    pub disk_us: Floor,
    /// A device with the disk's median, and as many writes at a time as 16 threads get, for
    /// `--device`.
    pub disk: String,
}

/// Time of a measurement of wake-ups.
const ROUNDS: usize = 2000;

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(0.0)
}

/// Returns the nanoseconds that waking a thread costs the waker, and those until it runs.
fn wake_up_ns() -> Result<(f64, f64)> {
    let (clock, woken_at, stops) = (Instant::now(), AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            while !stops.load(Ordering::Acquire) {
                std::thread::park();
                woken_at.store(clock.elapsed().as_nanos() as u64, Ordering::Release);
            }
        });
        let (mut calls, mut delays) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            std::thread::sleep(Duration::from_micros(100));
            woken_at.store(0, Ordering::Release);
            let begun = clock.elapsed().as_nanos() as u64;
            sleeper.thread().unpark();
            calls.push(clock.elapsed().as_nanos() as f64 - begun as f64);
            let woken = loop {
                match woken_at.load(Ordering::Acquire) {
                    0 => std::hint::spin_loop(),
                    at => break at,
                }
            };
            delays.push(woken.saturating_sub(begun) as f64);
        }
        stops.store(true, Ordering::Release);
        sleeper.thread().unpark();
        sleeper.join().map_err(|_| anyhow!("the thread that is woken panicked"))?;
        Ok((median(calls), median(delays)))
    })
}

/// Returns the nanoseconds by which a sleep is too long.
fn timer_late_ns() -> f64 {
    let wanted = Duration::from_micros(200);
    let late = |_| {
        let begun = Instant::now();
        std::thread::sleep(wanted);
        (begun.elapsed() - wanted).as_nanos() as f64
    };
    median((0..ROUNDS / 2).map(late).collect())
}

/// Runs the calling thread on the processor `number` modulo those that the process may use.
fn pin(number: usize) -> Result<()> {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let allowed = sched_getaffinity(None).context("cannot read the processors of this thread")?;
    let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    let mut only = CpuSet::new();
    only.set(all[number % all.len().max(1)]);
    sched_setaffinity(None, &only).context("cannot pin a thread to a processor")
}

/// Returns the nanoseconds of a switch between two threads of one core.
fn switch_ns() -> Result<f64> {
    let yields = 20_000_u32;
    let one_core = || -> Result<Duration> {
        pin(0)?;
        let begun = Instant::now();
        (0..yields).for_each(|_| std::thread::yield_now());
        Ok(begun.elapsed())
    };
    let took = std::thread::scope(|scope| {
        let threads = [scope.spawn(one_core), scope.spawn(one_core)];
        threads.map(|thread| thread.join().map_err(|_| anyhow!("a thread that yields panicked")))
    });
    let [first, second] = took;
    let took = first??.max(second??);
    Ok(took.as_nanos() as f64 / f64::from(2 * yields))
}

/// Threads that one call wakes, in the measurement of that.
const SLEEPERS: usize = 8;

/// Returns the nanoseconds that waking one of several threads costs the waker, while the processor
/// on which they wait computes.
fn wake_busy_ns() -> Result<f64> {
    let (round, waiting, woken) = (Mutex::new(0_usize), AtomicU64::new(0), Condvar::new());
    let lock = || round.lock().unwrap_or_else(PoisonError::into_inner);
    let stops = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let computes = scope.spawn(|| -> Result<()> {
            pin(1)?;
            while !stops.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
            Ok(())
        });
        for _ in 0..SLEEPERS {
            scope.spawn(|| {
                // Where that is refused, the waker reports it.
                let _ = pin(1);
                let mut seen = 0;
                while !stops.load(Ordering::Acquire) {
                    let mut now = lock();
                    waiting.fetch_add(1, Ordering::AcqRel);
                    while *now == seen {
                        now = woken.wait(now).unwrap_or_else(PoisonError::into_inner);
                    }
                    seen = *now;
                }
            });
        }
        let measure = || -> Result<Vec<f64>> {
            pin(0)?;
            let mut calls = Vec::new();
            for _ in 0..ROUNDS / 20 {
                while waiting.load(Ordering::Acquire) < SLEEPERS as u64 {
                    std::thread::sleep(Duration::from_micros(100));
                }
                // The last of them counted itself before it slept.
                std::thread::sleep(Duration::from_micros(100));
                waiting.store(0, Ordering::Release);
                *lock() += 1;
                let begun = Instant::now();
                woken.notify_all();
                calls.push(begun.elapsed().as_nanos() as f64 / SLEEPERS as f64);
            }
            Ok(calls)
        };
        let measured = scope.spawn(measure).join();
        stops.store(true, Ordering::Release);
        *lock() += 1;
        woken.notify_all();
        computes.join().map_err(|_| anyhow!("a thread that computes panicked"))??;
        Ok(median(measured.map_err(|_| anyhow!("the thread that wakes others panicked"))??))
    })
}

/// Measurements of each set-up; the fastest counts, because other processes only take time.
const REPEATS: usize = 3;
/// Set-ups of the engine and the disk that share the time.
const SET_UPS: usize = 9;
/// Threads that write the disk at a time.
const DISK_WRITERS: usize = 16;

/// The set-ups of the engine.
struct Engine {
    seconds: f64,
}

impl Engine {
    fn case(&self, preset: Preset, blocking: bool, threads: usize) -> EngineRun {
        let device = "sim:memory-0us".into();
        EngineRun { preset, blocking, threads, device, directory: None, seconds: self.seconds }
    }

    fn measure(&self, case: &EngineRun) -> Result<Report> {
        fastest_of(REPEATS, case)
    }
}

/// Costs under way: each is fitted with the others as they are.
struct Fit {
    costs: Costs,
    log_bytes: u64,
}

/// A cost to fit.
type Cost = fn(&mut Costs) -> &mut f64;

/// Halvings of the range in which a cost is looked for.
const STEPS: usize = 12;

impl Fit {
    /// Returns the model's throughput of `case`.
    fn throughput(&self, case: &EngineRun) -> Result<f64> {
        let input = input_of(case, &self.costs, self.log_bytes);
        Ok(run(&ModelInput { seconds: 0.03, warm_up_seconds: 0.01, ..input })?.throughput_tps)
    }

    /// Sets `cost`, between `least` and `most`, so that the model has the throughput `wanted` of
    /// `case`, or comes closest to it.
    fn fit(&mut self, case: &EngineRun, wanted: f64, cost: Cost, least: f64, most: f64) -> Result<()> {
        let (mut low, mut high, mut raised) = (least, most, false);
        for _ in 0..STEPS {
            let middle = f64::midpoint(low, high);
            *cost(&mut self.costs) = middle;
            if self.throughput(case)? > wanted {
                (low, raised) = (middle, true);
            } else {
                high = middle;
            }
        }
        *cost(&mut self.costs) = if raised { f64::midpoint(low, high) } else { least };
        Ok(())
    }
}

/// Returns the costs that one worker shows, and the bytes of a record.
fn of_one_worker(engine: &Engine) -> Result<Fit> {
    let queued = engine.measure(&engine.case(Preset::Pipelined, false, 1))?;
    let waiting = engine.measure(&engine.case(Preset::Group, true, 1))?;
    let stages = queued.stages.unwrap_or_default();
    let worker_us = 1e6 / queued.throughput_tps.max(1.0);
    let write_us = (1e6 / waiting.throughput_tps.max(1.0) - worker_us).max(0.5);
    let writing_us = queued.device_writes_per_transaction * write_us;
    let acknowledge_us = queued.cpu_us_per_transaction - worker_us - writing_us;
    let latch_ns = (stages.log_insert_us * 500.0).max(50.0);
    let costs = Costs {
        execute_ns: (worker_us - stages.commit_call_us).max(0.1) * 1e3,
        append_ns: (stages.commit_call_us * 1e3 - latch_ns).max(0.0),
        latch_ns,
        submit_ns: write_us * 600.0,
        complete_ns: write_us * 400.0,
        acknowledge_ns: (acknowledge_us * 500.0).clamp(30.0, 2000.0),
        remote_ns: (acknowledge_us * 500.0).clamp(30.0, 2000.0),
        ..Costs::default()
    };
    Ok(Fit { costs, log_bytes: queued.log_bytes_per_transaction.round() as u64 })
}

/// Fits the costs that several workers, or other protocols, show.
fn fit_all(engine: &Engine, fit: &mut Fit) -> Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let measured = |preset, threads| -> Result<(EngineRun, f64)> {
        let case = engine.case(preset, false, threads);
        let throughput = engine.measure(&case)?.throughput_tps;
        Ok((case, throughput))
    };
    let (own_log, memory) = (measured(Preset::Autonomous, 1)?, measured(Preset::Passive, 1)?);
    let beside = (measured(Preset::Autonomous, cores)?, measured(Preset::Pipelined, cores)?);
    let crowded = measured(Preset::Autonomous, 4 * cores)?;
    // Each depends a little on the others.
    for _ in 0..2 {
        fit.fit(&own_log.0, own_log.1, |costs| &mut costs.look_ns, 0.0, 5000.0)?;
        fit.fit(&memory.0, memory.1, |costs| &mut costs.fence_ns, 0.0, 5000.0)?;
        if cores > 1 {
            fit.fit(&beside.0.0, beside.0.1, |costs| &mut costs.beside_slowdown, 1.0, 4.0)?;
            fit.fit(&beside.1.0, beside.1.1, |costs| &mut costs.transfer_ns, 0.0, 2000.0)?;
        }
        fit.fit(&crowded.0, crowded.1, |costs| &mut costs.cold_ns, 0.0, 20_000.0)?;
    }
    Ok(())
}

/// Measures the costs, for `seconds`, and the disk of `directory`.
///
/// # Errors
/// Those of the engine and of the device.
pub fn calibrate(directory: &Path, seconds: f64) -> Result<Calibration> {
    let engine = Engine { seconds: seconds / (SET_UPS * REPEATS) as f64 };
    let mut fit = of_one_worker(&engine)?;
    let (wake_ns, wake_late_ns) = wake_up_ns()?;
    fit.costs = Costs {
        wake_ns,
        wake_late_ns,
        wake_busy_ns: wake_busy_ns()?,
        timer_late_ns: timer_late_ns(),
        switch_ns: switch_ns()?,
        ..fit.costs
    };
    fit_all(&engine, &mut fit)?;
    let place = Place::directory(directory, DeviceTrust::Auto);
    let share = Duration::from_secs_f64(seconds / SET_UPS as f64);
    let disk_us = device::floor(&place, 1, share)?;
    let crowd = device::measure_one(&place, 4096, DISK_WRITERS, share)?;
    let at_a_time = (crowd.writes_per_second * disk_us.p50 / 1e6).round().clamp(1.0, DISK_WRITERS as f64);
    let disk = format!("sim:custom:write={:.0}us,slots={at_a_time}", disk_us.p50);
    Figures::parse(&disk).map_err(|error| anyhow!(error))?;
    Ok(Calibration { costs: fit.costs, log_bytes: fit.log_bytes, disk_us, disk })
}
