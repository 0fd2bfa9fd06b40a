//! `bench model`: the discrete-event model of the commit path; its calibration, and its comparison
//! with the engine.

use super::model_options::ModelArgs;
use super::options::BenchArgs;
use super::work::print;
use crate::output::{Outcome, Progress, print_json, print_text};
use crate::scratch::Scratch;
use anyhow::{Context, Result, bail};
use quench_bench::event_model::{
    self, Calibration, Costs, DEVICES, Devices, Limits, ModelInput, ModelReport, Protocol, series,
};
use quench_bench::report::Floor;
use quenchdb::Preset;
use serde::Serialize;
use std::fmt;
use std::path::Path;

/// Returns the calibration of `--costs`, or the default.
fn calibration(args: &ModelArgs) -> Result<Calibration> {
    match &args.costs {
        Some(path) => read_json(path, "the costs"),
        None => Ok(Calibration {
            costs: Costs::default(),
            log_bytes: ModelInput::default().log_bytes,
            disk_us: Floor::default(),
            disk: String::new(),
        }),
    }
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path, what: &str) -> Result<T> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {what} in {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} does not contain {what}", path.display()))
}

/// The result of one protocol.
#[derive(Serialize)]
struct Modelled {
    report: ModelReport,
    limits: Limits,
}

impl fmt::Display for Modelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.report, self.limits)
    }
}

/// Least part of the simulated time of a figure: less has too few writes.
const SHORTEST: f64 = 0.1;

/// Runs the model as the flags say.
pub fn run(args: &BenchArgs, json: bool) -> Result<Outcome> {
    let (model, bar) = (&args.model, Progress::new());
    let progress = |what: &str, done: u64, total: u64| bar.at(what, done, total);
    let seconds = args.plan().duration.as_secs_f64();
    if model.calibrate {
        let directory = Scratch::new("model")?;
        let calibration = event_model::calibrate(directory.path(), seconds)?;
        bar.finish();
        print_json(&calibration)?;
        return Ok(Outcome::Done);
    }
    if model.against {
        let modelled: Vec<&str> = args.device.as_deref().map_or(DEVICES.to_vec(), |device| vec![device]);
        let scratch = Scratch::new("model")?;
        let directory = args.device.is_none().then_some(scratch.path());
        let devices = Devices { modelled: &modelled, directory };
        let compared = event_model::against(&calibration(model)?, devices, seconds.min(3.0), &progress)?;
        bar.finish();
        print(&compared, json)?;
        return Ok(Outcome::Done);
    }
    let outcome = match &model.figure {
        Some(id) => {
            let time = args.given_seconds().unwrap_or(1.0).clamp(SHORTEST, 1.0);
            print_figure(id, &calibration(model)?.costs, time, json)
        }
        None => print_protocols(args, json, &bar),
    };
    bar.finish();
    outcome
}

fn print_figure(id: &str, costs: &Costs, time: f64, json: bool) -> Result<Outcome> {
    let Some(all) = series::figure(id, costs, time)? else {
        bail!("the model has no figure `{id}`; it has {}", series::FIGURES.join(", "));
    };
    if json {
        print_json(&all)?;
        return Ok(Outcome::Done);
    }
    let mut text = String::new();
    for series in &all {
        use fmt::Write as _;
        let _ = writeln!(text, "{}: {}", series.figure, series.name);
        let _ = writeln!(
            text,
            "{:>12}{:>14}{:>12}{:>12}{:>12}",
            series.x_axis, "tx/s", "mean us", "p90 us", "p99 us"
        );
        for point in &series.points {
            let (report, latency) = (&point.report, &point.report.commit_latency_us);
            let _ = writeln!(
                text,
                "{:>12}{:>14.0}{:>12.1}{:>12.1}{:>12.1}",
                point.x, report.throughput_tps, latency.mean, latency.p90, latency.p99
            );
        }
    }
    if let Some(first) = all.first() {
        text.push_str(&format!("assumed: {}\n", first.note));
    }
    print_text(&text)?;
    Ok(Outcome::Done)
}

/// Returns the inputs that the flags describe.
fn inputs(args: &BenchArgs) -> Result<Vec<ModelInput>> {
    let model = &args.model;
    if let Some(path) = &model.input {
        return Ok(vec![read_json(path, "an input of the model")?]);
    }
    let (calibration, workers) = (calibration(model)?, args.threads() as usize);
    let names: Vec<&str> = match &model.protocol {
        Some(name) => vec![name],
        None => Preset::ALL.map(Preset::name).into_iter().filter(|name| *name != "auto").collect(),
    };
    let input = |name: &str| ModelInput {
        workers,
        cores: model.cores.unwrap_or(0) as usize,
        rate_tps: args.plan().rate.map(|rate| rate.per_second),
        protocol: Protocol::named(name, workers).unwrap_or_default(),
        device: args.device.clone().unwrap_or_else(|| ModelInput::default().device),
        log_bytes: calibration.log_bytes,
        costs: calibration.costs,
        seed: args.seed,
        ..ModelInput::default()
    };
    Ok(names.into_iter().map(input).collect())
}

fn print_protocols(args: &BenchArgs, json: bool, bar: &Progress) -> Result<Outcome> {
    let (inputs, mut all) = (inputs(args)?, Vec::new());
    for (number, input) in inputs.iter().enumerate() {
        bar.at(&input.protocol.name, number as u64, inputs.len() as u64);
        let report = event_model::run(input)?;
        let limits = event_model::limits(input, &report)?;
        all.push(Modelled { report, limits });
    }
    if json {
        print_json(&all)?;
    } else {
        print_text(&all.iter().map(ToString::to_string).collect::<String>())?;
    }
    Ok(Outcome::Done)
}
