//! What limits a protocol: the constant with the largest effect when it is halved.

use super::input::ModelInput;
use super::report::ModelReport;
use super::simulate::run;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The effect of a constant that is half as large.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// Name of the constant.
    pub constant: String,
    /// Change of the throughput in percent.
    pub throughput_percent: f64,
    /// Change of the mean commit latency in percent; negative is better.
    pub latency_percent: f64,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// The constant that gains most throughput (closed loop) or latency (open loop).
    pub by: String,
    /// All constants, the largest gain first.
    pub gains: Vec<Gain>,
}

type Halve = fn(&mut ModelInput);

/// The constants, and how each is halved.
const CONSTANTS: [(&str, Halve); 14] = [
    ("execution", |input| input.costs.execute_ns /= 2.0),
    ("commit call", |input| input.costs.append_ns /= 2.0),
    ("log latch", |input| {
        input.costs.latch_ns /= 2.0;
        input.costs.transfer_ns /= 2.0;
    }),
    ("CSN counter", |input| input.costs.draw_ns /= 2.0),
    ("submission", |input| {
        input.costs.submit_ns /= 2.0;
        input.costs.submit_kib_ns /= 2.0;
        input.costs.complete_ns /= 2.0;
    }),
    ("acknowledgment", |input| {
        input.costs.acknowledge_ns /= 2.0;
        input.costs.remote_ns /= 2.0;
        input.costs.look_ns /= 2.0;
        input.costs.pass_ns /= 2.0;
        input.costs.scan_ns /= 2.0;
        input.costs.enqueue_ns /= 2.0;
    }),
    ("wake-ups", |input| {
        input.costs.wake_ns /= 2.0;
        input.costs.wake_busy_ns /= 2.0;
        input.costs.wake_late_ns /= 2.0;
        input.costs.timer_late_ns /= 2.0;
    }),
    ("context switches", |input| {
        input.costs.switch_ns /= 2.0;
        input.costs.cold_ns /= 2.0;
    }),
    ("cores beside each other", |input| {
        input.costs.beside_slowdown = 1.0 + (input.costs.beside_slowdown - 1.0) / 2.0;
    }),
    ("fence and insertion", |input| {
        input.costs.fence_ns /= 2.0;
        input.costs.insertion_ns /= 2.0;
    }),
    ("device write", |input| input.write_factor /= 2.0),
    ("device flush", |input| input.flush_factor /= 2.0),
    ("device rate", |input| input.rate_factor *= 2.0),
    ("intervals and units", |input| {
        input.protocol.interval_us /= 2.0;
        input.protocol.window_us /= 2.0;
        input.protocol.unit_bytes = (input.protocol.unit_bytes / 2).max(1);
    }),
];

/// Runs the model once for each constant, and compares with `report`, the result of `input`.
///
/// # Errors
/// As [`run`].
pub fn limits(input: &ModelInput, report: &ModelReport) -> Result<Limits> {
    let percent = |now: f64, before: f64| (now / before.max(f64::MIN_POSITIVE) - 1.0) * 100.0;
    let mut gains = Vec::with_capacity(CONSTANTS.len());
    for (constant, halve) in CONSTANTS {
        let mut changed = input.clone();
        halve(&mut changed);
        let halved = run(&changed)?;
        gains.push(Gain {
            constant: constant.into(),
            throughput_percent: percent(halved.throughput_tps, report.throughput_tps),
            latency_percent: percent(halved.commit_latency_us.mean, report.commit_latency_us.mean),
        });
    }
    let gain = |gain: &Gain| match input.rate_tps {
        Some(_) => -gain.latency_percent,
        None => gain.throughput_percent,
    };
    gains.sort_by(|a, b| gain(b).total_cmp(&gain(a)));
    let by = gains.first().map_or_else(String::new, |gain| gain.constant.clone());
    Ok(Limits { by, gains })
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  what limits next: {}", self.by)?;
        writeln!(f, "  {:<24}{:>14}{:>14}", "half as large", "throughput %", "latency %")?;
        self.gains.iter().try_for_each(|gain| {
            let Gain { constant, throughput_percent, latency_percent } = gain;
            writeln!(f, "  {constant:<24}{throughput_percent:>14.1}{latency_percent:>14.1}")
        })
    }
}
