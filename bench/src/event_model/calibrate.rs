//! Costs measured on this machine: of the engine with one worker, and of the kernel's wake-ups.
//!
//! | cost | how |
//! |---|---|
//! | execution, commit call | stages of one asynchronous worker whose log takes no time |
//! | submission | time of a blocking commit on the same device, beyond that of the asynchronous one |
//! | acknowledgment | processor time that is neither the worker's nor that of writes |
//! | wake-ups, timers, switches | two threads that park, sleep, or yield |

use super::costs::Costs;
use super::engine_run::{EngineRun, run_engine};
use crate::device;
use crate::modelled::Figures;
use crate::place::Place;
use crate::report::{Floor, Report};
use anyhow::{Context, Result, anyhow};
use quenchdb::{DeviceTrust, Preset};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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
    /// A device with the disk's median, for `--device`.
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

/// Returns the nanoseconds of a switch between two threads of one core.
fn switch_ns() -> Result<f64> {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let allowed = sched_getaffinity(None).context("cannot read the processors of this thread")?;
    let first = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).unwrap_or(0);
    let yields = 20_000_u32;
    let one_core = || -> Result<Duration> {
        let mut only = CpuSet::new();
        only.set(first);
        sched_setaffinity(None, &only).context("cannot pin a thread to a processor")?;
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

/// Measurements of each set-up; the fastest counts, because other processes only take time.
const REPEATS: usize = 3;

fn one_worker(preset: Preset, blocking: bool, seconds: f64) -> Result<Report> {
    let run = EngineRun { preset, blocking, threads: 1, device: "sim:memory-0us".into(), seconds };
    let mut best = run_engine(&run)?;
    for _ in 1..REPEATS {
        let again = run_engine(&run)?;
        if again.throughput_tps > best.throughput_tps {
            best = again;
        }
    }
    Ok(best)
}

/// Measures the costs, for `seconds` each, and the disk of `directory`.
///
/// # Errors
/// Those of the engine and of the device.
pub fn calibrate(directory: &Path, seconds: f64) -> Result<Calibration> {
    let seconds = seconds / (2 * REPEATS + 1) as f64;
    let queued = one_worker(Preset::Pipelined, false, seconds)?;
    let waiting = one_worker(Preset::Group, true, seconds)?;
    let stages = queued.stages.unwrap_or_default();
    let worker_us = 1e6 / queued.throughput_tps.max(1.0);
    let write_us = (1e6 / waiting.throughput_tps.max(1.0) - worker_us).max(0.5);
    let writing_us = queued.device_writes_per_transaction * write_us;
    let acknowledge_us = queued.cpu_us_per_transaction - worker_us - writing_us;
    let transfers_ns = 2.0 * Costs::default().transfer_ns;
    let (wake_ns, wake_late_ns) = wake_up_ns()?;
    let latch_ns = (stages.log_insert_us * 500.0).max(50.0);
    let costs = Costs {
        execute_ns: (worker_us - stages.commit_call_us).max(0.1) * 1e3,
        append_ns: (stages.commit_call_us * 1e3 - latch_ns).max(0.0),
        latch_ns,
        submit_ns: write_us * 600.0,
        complete_ns: write_us * 400.0,
        acknowledge_ns: (acknowledge_us * 1e3 - transfers_ns).clamp(30.0, 2000.0),
        wake_ns,
        wake_late_ns,
        timer_late_ns: timer_late_ns(),
        switch_ns: switch_ns()?,
        ..Costs::default()
    };
    let place = Place::directory(directory, DeviceTrust::Auto);
    let disk_us = device::floor(&place, Duration::from_secs_f64(seconds))?;
    let disk = format!("sim:custom:write={:.0}us", disk_us.p50);
    Figures::parse(&disk).map_err(|error| anyhow!(error))?;
    Ok(Calibration { costs, log_bytes: queued.log_bytes_per_transaction.round() as u64, disk_us, disk })
}
