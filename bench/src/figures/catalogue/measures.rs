//! Measures, claims and figures in few words.

use crate::figures::spec::{At, Axis, Chart, Choice, Claim, Content, Figure, Holds, Measure, Ours, Part};
use std::borrow::Cow;

const fn measure(name: &'static str, unit: &'static str, path: &'static str, factor: f64) -> Measure {
    Measure { name, unit, path, factor }
}

pub(super) const THROUGHPUT: Measure = measure("throughput", "tx/s", "/throughput_tps", 1.0);

/// Names of the percentiles of a picture.
pub(super) const TAIL: &[&str] = &["p50", "p90", "p99", "p99.9", "p99.99"];

/// Commit latency: ready to committed.
pub(super) const COMMIT_US: [Measure; 6] = [
    measure("mean", "us", "/commit_latency_us/mean", 1.0),
    measure("p50", "us", "/commit_latency_us/p50", 1.0),
    measure("p90", "us", "/commit_latency_us/p90", 1.0),
    measure("p99", "us", "/commit_latency_us/p99", 1.0),
    measure("p99.9", "us", "/commit_latency_us/p999", 1.0),
    measure("p99.99", "us", "/commit_latency_us/p9999", 1.0),
];

/// The same in milliseconds, for slow devices.
pub(super) const COMMIT_MS: [Measure; 6] = [
    measure("mean", "ms", "/commit_latency_us/mean", 1e-3),
    measure("p50", "ms", "/commit_latency_us/p50", 1e-3),
    measure("p90", "ms", "/commit_latency_us/p90", 1e-3),
    measure("p99", "ms", "/commit_latency_us/p99", 1e-3),
    measure("p99.9", "ms", "/commit_latency_us/p999", 1e-3),
    measure("p99.99", "ms", "/commit_latency_us/p9999", 1e-3),
];

/// Returns throughput, commit latency, and more.
pub(super) fn with_throughput(latency: [Measure; 6], more: &[Measure]) -> Vec<Measure> {
    let mut all = vec![THROUGHPUT];
    all.extend(latency);
    all.extend(more);
    all
}

pub(super) const fn other(
    name: &'static str,
    unit: &'static str,
    path: &'static str,
    factor: f64,
) -> Measure {
    measure(name, unit, path, factor)
}

pub(super) fn lines(measure: &'static str) -> Chart {
    Chart::Lines { measure, log: false }
}

pub(super) fn log_lines(measure: &'static str) -> Chart {
    Chart::Lines { measure, log: true }
}

pub(super) fn tail(at: &'static str) -> Chart {
    Chart::Across { measures: TAIL, at, log: true }
}

pub(super) fn bars(measure: &'static str) -> Chart {
    bars_of(measure, "")
}

/// Returns bars for one value of the axis.
pub(super) fn bars_of(measure: &'static str, at: &'static str) -> Chart {
    Chart::Bars { measure, at, log: false }
}

pub(super) fn log_bars(measure: &'static str) -> Chart {
    Chart::Bars { measure, at: "", log: true }
}

/// Returns a number of the figure's only part.
pub(super) const fn at(x: &'static str, variant: &'static str, measure: &'static str) -> At {
    At { part: "", x, variant, measure }
}

/// Returns a number of a part.
pub(super) const fn of(
    part: &'static str,
    x: &'static str,
    variant: &'static str,
    measure: &'static str,
) -> At {
    At { part, x, variant, measure }
}

/// Returns a claim with a published number.
pub(super) fn claim(
    text: impl Into<Cow<'static, str>>,
    published: f64,
    unit: &'static str,
    ours: Ours,
    holds: Holds,
    otherwise: &'static str,
) -> Claim {
    Claim { text: text.into(), published: Some(published), unit, ours, holds, otherwise }
}

/// Returns a claim of which the paper states only the direction.
pub(super) fn direction(
    text: &'static str,
    unit: &'static str,
    ours: Ours,
    holds: Holds,
    otherwise: &'static str,
) -> Claim {
    Claim { text: text.into(), published: None, unit, ours, holds, otherwise }
}

/// Returns a part without an axis.
pub(super) fn single(
    command: &str,
    variants: Vec<Choice>,
    measures: Vec<Measure>,
    charts: Vec<Chart>,
) -> Part {
    over("", command, Axis::none(), variants, measures, charts)
}

/// Name of the parts that the model of the commit path computes, for larger machines.
pub(super) const MODEL: &str = "model of a larger machine";

const MODELLED: [Measure; 4] = [
    measure("throughput", "tx/s", "/[name={v}]/points[x={x}]/report/throughput_tps", 1.0),
    measure("mean", "us", "/[name={v}]/points[x={x}]/report/commit_latency_us/mean", 1.0),
    measure("p90", "us", "/[name={v}]/points[x={x}]/report/commit_latency_us/p90", 1.0),
    measure("p99", "us", "/[name={v}]/points[x={x}]/report/commit_latency_us/p99", 1.0),
];

/// Returns the part that the model computes: `quench bench model --figure`. Its variants are the
/// names of the model's series.
pub(super) fn modelled(
    figure: &str,
    (axis, values): (&'static str, &str),
    variants: &[&str],
    charts: Vec<Chart>,
) -> Part {
    let choices = |names: &mut dyn Iterator<Item = &str>| names.map(|name| Choice::new(name, "")).collect();
    Part {
        name: MODEL,
        command: format!("model --figure {figure}"),
        axis: Axis { name: axis, values: choices(&mut values.split_whitespace()) },
        variants: choices(&mut variants.iter().copied()),
        measures: MODELLED.to_vec(),
        charts,
        seconds: (1.0, 1.0),
    }
}

/// Returns a part of one second of `--quick`, and two of `--full`.
pub(super) fn over(
    name: &'static str,
    command: &str,
    axis: Axis,
    variants: Vec<Choice>,
    measures: Vec<Measure>,
    charts: Vec<Chart>,
) -> Part {
    Part { name, command: command.into(), axis, variants, measures, charts, seconds: (1.0, 2.0) }
}

pub(super) fn figure(
    id: &'static str,
    title: &'static str,
    setting: &'static str,
    scaled: &'static str,
    parts: Vec<Part>,
    claims: Vec<Claim>,
) -> Figure {
    Figure { id, title, setting, content: Content::Regenerated { parts, claims, scaled } }
}

pub(super) fn absent(id: &'static str, title: &'static str, reason: &'static str) -> Figure {
    Figure { id, title, setting: "", content: Content::Absent(reason) }
}
