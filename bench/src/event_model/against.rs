//! The model against the engine: the same protocol, workers and device, on this machine.

use super::calibrate::Calibration;
use super::costs::Costs;
use super::engine_run::{EngineRun, logs_of, run_engine};
use super::input::{ModelInput, Protocol, Rule};
use super::report::ModelReport;
use super::simulate::run;
use crate::progress::Progress;
use anyhow::Result;
use quenchdb::Preset;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One figure of both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// Of the model.
    pub model: f64,
    /// Of the engine.
    pub engine: f64,
}

impl Pair {
    /// Returns by how many percent the model is above the engine.
    #[must_use]
    pub fn off_percent(&self) -> f64 {
        (self.model / self.engine.max(f64::MIN_POSITIVE) - 1.0) * 100.0
    }
}

/// One protocol with a number of workers on a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The protocol, and how transactions commit.
    pub protocol: String,
    /// The device.
    pub device: String,
    /// Worker threads.
    pub workers: usize,
    /// Transactions per second.
    pub throughput_tps: Pair,
    /// Median of the commit latency.
    pub p50_us: Pair,
    /// Its 99th percentile.
    pub p99_us: Pair,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Against {
    /// Processors of this machine.
    pub cores: usize,
    /// All comparisons.
    pub lines: Vec<Line>,
}

/// Largest difference of throughput and of percentiles that counts as agreement, in percent.
const GOALS: (f64, f64) = (15.0, 30.0);

/// Threads that wait for a modelled device compute the last 50 us of a wait.
const MODELLED_SPIN_NS: f64 = 50_000.0;

/// The protocols, and whether their commits wait.
const PROTOCOLS: [(Preset, bool); 6] = [
    (Preset::PerTransaction, true),
    (Preset::Group, true),
    (Preset::Queued, true),
    (Preset::Pipelined, false),
    (Preset::Autonomous, false),
    (Preset::Restricted, false),
];

/// The devices on which both run.
pub const DEVICES: [&str; 2] = ["sim:nvme-enterprise", "sim:custom:write=500us"];

/// Returns the input of the model for a preset of the engine on this machine.
#[must_use]
pub fn input_of(
    preset: Preset,
    blocking: bool,
    workers: usize,
    device: &str,
    calibration: &Calibration,
) -> ModelInput {
    let mut protocol = Protocol::named(preset.name(), workers).unwrap_or_default();
    if protocol.logs > 1 || preset == Preset::Restricted {
        protocol.logs = logs_of(preset, workers);
    }
    if protocol.logs == 1 {
        protocol.rule = Rule::LogOrder;
    }
    protocol.blocking = blocking;
    protocol.cohort = blocking && !matches!(preset, Preset::PerTransaction | Preset::Queued);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    ModelInput {
        workers,
        cores,
        protocol,
        device: device.into(),
        log_bytes: calibration.log_bytes,
        costs: Costs { spin_ns: MODELLED_SPIN_NS, ..calibration.costs },
        seconds: 1.0,
        warm_up_seconds: 0.2,
        ..ModelInput::default()
    }
}

/// Runs both with 1, 2, 8 and 16 workers, the engine for `seconds` each.
///
/// # Errors
/// Those of the engine and of the model.
pub fn against(
    calibration: &Calibration,
    devices: &[&str],
    seconds: f64,
    progress: Progress<'_>,
) -> Result<Against> {
    let workers = [1, 2, 8, 16];
    let all = (devices.len() * PROTOCOLS.len() * workers.len()) as u64;
    let mut lines = Vec::new();
    for device in devices {
        for (preset, blocking) in PROTOCOLS {
            for workers in workers {
                progress(preset.name(), lines.len() as u64, all);
                let wanted =
                    EngineRun { preset, blocking, threads: workers, device: (*device).into(), seconds };
                let engine = run_engine(&wanted)?;
                let model: ModelReport = run(&input_of(preset, blocking, workers, device, calibration))?;
                let (of_engine, of_model) = (engine.commit_latency_us, model.commit_latency_us);
                lines.push(Line {
                    protocol: format!("{}, {}", preset.name(), if blocking { "blocking" } else { "async" }),
                    device: (*device).into(),
                    workers,
                    throughput_tps: Pair { model: model.throughput_tps, engine: engine.throughput_tps },
                    p50_us: Pair { model: of_model.p50, engine: of_engine.p50 },
                    p99_us: Pair { model: of_model.p99, engine: of_engine.p99 },
                });
            }
        }
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(Against { cores, lines })
}

impl Against {
    /// Returns how many lines agree in throughput, in the median, and in the 99th percentile.
    #[must_use]
    pub fn agreeing(&self) -> [usize; 3] {
        let count = |pair: fn(&Line) -> Pair, most: f64| {
            self.lines.iter().filter(|line| pair(line).off_percent().abs() <= most).count()
        };
        [
            count(|line| line.throughput_tps, GOALS.0),
            count(|line| line.p50_us, GOALS.1),
            count(|line| line.p99_us, GOALS.1),
        ]
    }
}

impl fmt::Display for Against {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "model and engine on {} cores; off: the model above the engine", self.cores)?;
        writeln!(
            f,
            "{:<26}{:<24}{:>4}{:>10}{:>10}{:>7}{:>9}{:>9}{:>7}{:>9}{:>9}{:>7}",
            "protocol",
            "device",
            "w",
            "tx/s",
            "engine",
            "off %",
            "p50 us",
            "engine",
            "off %",
            "p99 us",
            "engine",
            "off %"
        )?;
        for line in &self.lines {
            let Line { protocol, device, workers, throughput_tps: tps, p50_us: p50, p99_us: p99 } = line;
            write!(f, "{protocol:<26}{device:<24}{workers:>4}")?;
            write!(f, "{:>10.0}{:>10.0}{:>7.0}", tps.model, tps.engine, tps.off_percent())?;
            write!(f, "{:>9.1}{:>9.1}{:>7.0}", p50.model, p50.engine, p50.off_percent())?;
            writeln!(f, "{:>9.1}{:>9.1}{:>7.0}", p99.model, p99.engine, p99.off_percent())?;
        }
        let [tps, p50, p99] = self.agreeing();
        writeln!(
            f,
            "within {} %: throughput {tps} of {}; within {} %: p50 {p50}, p99 {p99}",
            GOALS.0,
            self.lines.len(),
            GOALS.1
        )
    }
}
