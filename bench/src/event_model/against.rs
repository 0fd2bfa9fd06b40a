//! The model against the engine: the same protocol, workers and device, on this machine.

use super::calibrate::Calibration;
use super::engine_run::{EngineRun, input_of, run_engine};
use super::report::ModelReport;
use super::simulate::run;
use crate::progress::Progress;
use crate::report::Report;
use anyhow::Result;
use quenchdb::Preset;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

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

/// The protocols, and whether their commits wait.
const PROTOCOLS: [(Preset, bool); 6] = [
    (Preset::PerTransaction, true),
    (Preset::Group, true),
    (Preset::Queued, true),
    (Preset::Pipelined, false),
    (Preset::Autonomous, false),
    (Preset::Restricted, false),
];

/// The modelled devices on which both run.
pub const DEVICES: [&str; 2] = ["sim:nvme-enterprise", "sim:custom:write=500us"];
/// The device under a log in mapped memory.
const MEMORY: &str = "sim:memory-0us";
/// Numbers of workers.
const WORKERS: [usize; 4] = [1, 2, 8, 16];
/// Runs of the engine in each case, of which the one with the median throughput counts: on a
/// machine with few processors a run now and then has them to share.
const RUNS: usize = 3;

/// Where both run.
#[derive(Clone, Copy, Debug)]
pub struct Devices<'a> {
    /// Modelled devices.
    pub modelled: &'a [&'a str],
    /// A directory on the disk that was calibrated.
    pub directory: Option<&'a Path>,
}

/// Returns all cases, each with the name of its device.
fn cases(calibration: &Calibration, devices: Devices<'_>, seconds: f64) -> Vec<(String, EngineRun)> {
    let mut all = Vec::new();
    let mut add = |shown: &str, device: &str, directory: Option<PathBuf>, (preset, blocking)| {
        let (device, seconds) = (device.to_string(), seconds / RUNS as f64);
        all.extend(WORKERS.map(|threads| {
            let (device, directory) = (device.clone(), directory.clone());
            (shown.to_string(), EngineRun { preset, blocking, threads, device, directory, seconds })
        }));
    };
    for device in devices.modelled {
        PROTOCOLS.iter().for_each(|protocol| add(device, device, None, *protocol));
    }
    if devices.modelled == DEVICES.as_slice() {
        add(MEMORY, MEMORY, None, (Preset::Passive, false));
    }
    if let Some(directory) = devices.directory
        && !calibration.disk.is_empty()
    {
        let shown = format!("disk ({})", calibration.disk.trim_start_matches("sim:custom:"));
        for (number, protocol) in PROTOCOLS.iter().enumerate() {
            let directory = directory.join(number.to_string());
            add(&shown, &calibration.disk, Some(directory), *protocol);
        }
    }
    all
}

/// Runs a case on the engine, and returns the report with the median throughput.
fn median_run(case: &EngineRun) -> Result<Report> {
    let mut reports = Vec::with_capacity(RUNS);
    for number in 0..RUNS {
        // Each run makes a database of its own.
        let own = |directory: &PathBuf| directory.join(format!("{}-{number}", case.threads));
        let directory = case.directory.as_ref().map(own);
        if let Some(directory) = &directory {
            std::fs::create_dir_all(directory)?;
        }
        reports.push(run_engine(&EngineRun { directory: directory.clone(), ..case.clone() })?);
        if let Some(directory) = &directory {
            std::fs::remove_dir_all(directory)?;
        }
    }
    reports.sort_by(|one, other| one.throughput_tps.total_cmp(&other.throughput_tps));
    Ok(reports.swap_remove(RUNS / 2))
}

/// Runs both with 1, 2, 8 and 16 workers, the engine for `seconds` in each case.
///
/// # Errors
/// Those of the engine and of the model.
pub fn against(
    calibration: &Calibration,
    devices: Devices<'_>,
    seconds: f64,
    progress: Progress<'_>,
) -> Result<Against> {
    let cases = cases(calibration, devices, seconds);
    let mut lines = Vec::with_capacity(cases.len());
    for (device, case) in &cases {
        progress(case.preset.name(), lines.len() as u64, cases.len() as u64);
        let engine = median_run(case)?;
        let model: ModelReport = run(&input_of(case, &calibration.costs, calibration.log_bytes))?;
        let (of_engine, of_model) = (engine.commit_latency_us, model.commit_latency_us);
        let how = if case.blocking { "blocking" } else { "async" };
        lines.push(Line {
            protocol: format!("{}, {how}", case.preset.name()),
            device: device.clone(),
            workers: case.threads,
            throughput_tps: Pair { model: model.throughput_tps, engine: engine.throughput_tps },
            p50_us: Pair { model: of_model.p50, engine: of_engine.p50 },
            p99_us: Pair { model: of_model.p99, engine: of_engine.p99 },
        });
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(Against { cores, lines })
}

impl Against {
    /// Returns how many lines agree in throughput, in the median, and in the 99th percentile, of
    /// how many, by protocol.
    #[must_use]
    pub fn agreeing(&self) -> BTreeMap<&str, [usize; 4]> {
        let mut counts = BTreeMap::<&str, [usize; 4]>::new();
        for line in &self.lines {
            let within = |pair: Pair, most: f64| usize::from(pair.off_percent().abs() <= most);
            let one = [
                within(line.throughput_tps, GOALS.0),
                within(line.p50_us, GOALS.1),
                within(line.p99_us, GOALS.1),
                1,
            ];
            let all = counts.entry(&line.protocol).or_default();
            all.iter_mut().zip(one).for_each(|(all, one)| *all += one);
        }
        counts
    }
}

impl fmt::Display for Against {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "model and engine on {} cores; off: the model above the engine", self.cores)?;
        writeln!(
            f,
            "{:<26}{:<30}{:>4}{:>10}{:>10}{:>7}{:>9}{:>9}{:>7}{:>9}{:>9}{:>7}",
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
            write!(f, "{protocol:<26}{device:<30}{workers:>4}")?;
            write!(f, "{:>10.0}{:>10.0}{:>7.0}", tps.model, tps.engine, tps.off_percent())?;
            write!(f, "{:>9.1}{:>9.1}{:>7.0}", p50.model, p50.engine, p50.off_percent())?;
            writeln!(f, "{:>9.1}{:>9.1}{:>7.0}", p99.model, p99.engine, p99.off_percent())?;
        }
        let counts = self.agreeing();
        let mut all = [0; 4];
        let (tps, latency) = GOALS;
        let heads = [format!("tx/s {tps} %"), format!("p50 {latency} %"), format!("p99 {latency} %")];
        writeln!(f, "{:<26}{:>12}{:>12}{:>12}{:>8}", "cases within", heads[0], heads[1], heads[2], "of")?;
        for (protocol, counts) in &counts {
            all.iter_mut().zip(counts).for_each(|(all, one)| *all += one);
            writeln!(f, "{}", row(protocol, counts))?;
        }
        writeln!(f, "{}", row("all", &all))
    }
}

fn row(name: &str, [tps, p50, p99, of]: &[usize; 4]) -> String {
    format!("{name:<26}{tps:>12}{p50:>12}{p99:>12}{of:>8}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(protocol: &str, model: f64) -> Line {
        let pair = Pair { model, engine: 100.0 };
        Line {
            protocol: protocol.into(),
            throughput_tps: pair,
            p50_us: pair,
            p99_us: pair,
            ..Line::default()
        }
    }

    #[test]
    fn cases_are_counted_by_protocol() {
        let lines = [line("group", 114.0), line("group", 80.0), line("queued", 69.0)].to_vec();
        let against = Against { cores: 2, lines };
        let counts = against.agreeing();
        assert_eq!(counts["group"], [1, 2, 2, 2]);
        assert_eq!(counts["queued"], [0, 0, 0, 1]);
        let text = against.to_string();
        assert!(text.ends_with(&format!("{}\n", row("all", &[1, 2, 2, 3]))), "{text}");
    }

    #[test]
    fn the_disk_is_compared_only_after_a_calibration() {
        let mut calibration = Calibration {
            costs: super::super::costs::Costs::default(),
            log_bytes: 150,
            disk_us: crate::report::Floor::default(),
            disk: String::new(),
        };
        let all = |calibration: &Calibration, directory| {
            let devices = Devices { modelled: &DEVICES, directory };
            cases(calibration, devices, 1.0)
        };
        let (modelled, here) = ((2 * PROTOCOLS.len() + 1) * WORKERS.len(), Some(Path::new("here")));
        assert_eq!(all(&calibration, here).len(), modelled);
        calibration.disk = "sim:custom:write=90us,slots=3".into();
        assert_eq!(all(&calibration, None).len(), modelled);
        let with_disk = all(&calibration, here);
        assert_eq!(with_disk.len(), modelled + PROTOCOLS.len() * WORKERS.len());
        let (shown, last) = with_disk.last().expect("cases");
        assert_eq!((shown.as_str(), last.device.as_str()), ("disk (write=90us,slots=3)", &*calibration.disk));
        assert!(last.directory.as_ref().is_some_and(|directory| directory.starts_with("here")));
    }
}
