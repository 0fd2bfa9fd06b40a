//! The page: what the runs have in common in one picture each, then each run over its time.

use super::over_time::{Line, heat_map, lines};
use crate::figures::drawing::svg;
use crate::figures::entry::{Form, Picture, Series};
use crate::figures::runs::Summary;
use crate::html::{document, number};
use crate::latencies::Latency;
use crate::report::Report;
use anyhow::{Result, bail};
use maud::{Markup, PreEscaped, html};
use quenchdb::Settings;

/// A run and its name on the page.
#[derive(Clone, Debug)]
pub struct Named {
    /// Such as the name of its file.
    pub name: String,
    /// The run.
    pub report: Report,
}

/// A number of a run, and its name.
type Of = (&'static str, fn(&Report) -> f64);

const PERCENTILES: [&str; 6] = ["p50", "p90", "p99", "p99.9", "p99.99", "max"];
const MB: f64 = 1e6;

fn value(number: f64) -> Option<Summary> {
    Summary::of(vec![number]).filter(|_| number > 0.0)
}

fn percentiles(latency: &Latency) -> Vec<Option<Summary>> {
    let Latency { p50, p90, p99, p999, p9999, max, .. } = *latency;
    [p50, p90, p99, p999, p9999, max].map(value).to_vec()
}

/// Returns the latency of commits, or of transactions for engines that do not count commits.
fn latency(report: &Report) -> Latency {
    let known = report.commit_latency_us.max > 0.0;
    if known { report.commit_latency_us } else { report.write_latency_us.unwrap_or_default() }
}

fn curve(runs: &[Named]) -> Picture {
    let mut series: Vec<Series> = runs
        .iter()
        .map(|run| Series { name: run.name.clone(), values: percentiles(&latency(&run.report)) })
        .collect();
    for run in runs {
        let floor = run.report.floor_us;
        let values = [floor.p50, floor.p90, floor.p99, floor.p999, floor.p9999, 0.0].map(value).to_vec();
        let known = series.iter().any(|known| known.values == values);
        if values.iter().any(Option::is_some) && !known {
            let device = &run.report.device;
            let of = if runs.len() == 1 { String::new() } else { format!(" before {}", run.name) };
            series.push(Series { name: format!("raw durable 4 KiB write, {device}{of}"), values });
        }
    }
    Picture {
        title: "latency of a commit beside a raw write of the device".into(),
        x_name: String::new(),
        y_name: "us".into(),
        labels: PERCENTILES.map(String::from).to_vec(),
        form: Form::Lines,
        log: true,
        series,
    }
}

fn stacked(title: &str, unit: &str, runs: &[Named], parts: &[Of]) -> Picture {
    let series = |(name, part): &Of| Series {
        name: (*name).to_string(),
        values: runs.iter().map(|run| value(part(&run.report))).collect(),
    };
    Picture {
        title: title.into(),
        x_name: String::new(),
        y_name: unit.into(),
        labels: runs.iter().map(|run| run.name.clone()).collect(),
        form: Form::Stacked,
        log: false,
        series: parts.iter().map(series).collect(),
    }
}

fn stages(runs: &[Named]) -> Picture {
    stacked(
        "stages of a transaction, means",
        "us",
        runs,
        &[
            ("execution", |run| run.stages.map_or(0.0, |stages| stages.execute_us)),
            ("repeated attempts", |run| run.stages.map_or(0.0, |stages| stages.conflicts_us)),
            ("insertion into the log", |run| run.stages.map_or(0.0, |stages| stages.log_insert_us)),
            ("queuing", |run| run.stages.map_or(0.0, |stages| stages.queuing_us)),
            ("write and flush", |run| run.stages.map_or(0.0, |stages| stages.writing_us)),
            ("until acknowledged", |run| run.stages.map_or(0.0, |stages| stages.acknowledge_us)),
        ],
    )
}

/// Returns bytes for each byte that the transactions wrote; 0 without any.
fn amplified(report: &Report, bytes: u64) -> f64 {
    if report.logical_bytes_written == 0 { 0.0 } else { bytes as f64 / report.logical_bytes_written as f64 }
}

fn amplification(runs: &[Named]) -> Picture {
    stacked(
        "bytes written for each byte of keys and values",
        "x",
        runs,
        &[
            ("records of the log", |run| amplified(run, run.log_bytes)),
            ("padding of the log", |run| amplified(run, run.device_bytes.saturating_sub(run.log_bytes))),
            ("file of pages", |run| amplified(run, run.store_bytes_written)),
        ],
    )
}

fn throughput(runs: &[Named]) -> Picture {
    let mut picture =
        stacked("throughput", "transactions/s", runs, &[("transactions/s", |run| run.throughput_tps)]);
    picture.form = Form::Bars;
    picture
}

fn drawing(title: &str, drawn: &str) -> Markup {
    html! { figure { figcaption { (title) } (PreEscaped(drawn)) } }
}

fn pictures(pictures: &[Picture]) -> Markup {
    // A picture without numbers is left out: another engine does not know its stages.
    let drawn: Vec<_> = pictures.iter().filter_map(|one| Some((one, svg(one).ok()?))).collect();
    html! { div.pictures { @for (picture, drawn) in &drawn { (drawing(&picture.title, drawn)) } } }
}

/// Returns the drawings of one run over its time.
fn over_time(report: &Report) -> Result<Markup> {
    let heights = |of: fn(&crate::series::Interval) -> f64| report.series.iter().map(of).collect();
    let line = |name, of| Line { name, heights: heights(of) };
    let budget = vec![report.memory_bytes as f64 / MB; report.series.len()];
    let memory = [
        line("pages", |interval| interval.page_bytes as f64 / MB),
        line("old versions", |interval| interval.version_bytes as f64 / MB),
        Line { name: "budget", heights: budget },
    ];
    let log = [line("log to read", |interval| interval.log_bytes_in_use as f64 / MB)];
    // Runs of a benchmark are opened with the default.
    let allowed = vec![f64::from(Settings::default().recovery_seconds); report.series.len()];
    let recovery = [
        line("estimate", |interval| interval.recovery_seconds),
        Line { name: "recovery_seconds", heights: allowed },
    ];
    let rate = [line("transactions/s", |interval| interval.committed as f64 / interval.seconds.max(1e-9))];
    let cost = [line("processor time", |interval| interval.cpu_us)];
    let knows_cost = report.series.iter().any(|interval| interval.cpu_us > 0.0);
    let knows = report.series.iter().any(|interval| interval.page_bytes > 0);
    Ok(html! {
        div.pictures {
            (drawing("transactions per second; bands are checkpoints", &lines(report, "transactions/s", &rate)?))
            @if knows_cost {
                (drawing("processor time of a transaction", &lines(report, "us", &cost)?))
            }
            @if let Some(map) = heat_map(report)? {
                (drawing("latency of transactions: darker is more of an interval", &map))
            }
            @if knows {
                (drawing("memory against its budget", &lines(report, "MB", &memory)?))
                (drawing("log that a recovery would read", &lines(report, "MB", &log)?))
                (drawing("time of a recovery against its limit", &lines(report, "seconds", &recovery)?))
            }
        }
    })
}

/// Returns the facts of a run in a few lines.
fn facts(report: &Report) -> Markup {
    let skew = if report.zipf == 0.0 { "uniform".to_string() } else { format!("zipf {}", report.zipf) };
    let parameters = report.parameters.iter().map(|(name, value)| format!("{name} {value}"));
    let parameters = parameters.collect::<Vec<_>>().join(", ");
    html! {
        p.setting {
            (report.workload) ", " (report.engine) ", preset " (report.preset) ", " (report.threads) " threads, "
            (report.logs) " logs, " (report.commit) " commits, level " (report.level) ", device " (report.device)
            @if report.rows > 0 { ", " (number(report.rows as f64)) " rows, " (report.read_percent) " % reads, " (skew) }
            @if !parameters.is_empty() { ", " (parameters) }
            "."
        }
        p {
            b { (number(report.throughput_tps)) } " transactions/s; longest stall "
            (number(report.stall_us_max / 1e3)) " ms; " (report.checkpoints) " checkpoints in "
            (number(report.checkpoint_seconds)) " s; memory " (number(report.rss_bytes_max as f64 / MB))
            " MB with " (number(report.memory_bytes as f64 / MB)) " MB allowed for pages, versions and logs."
        }
    }
}

fn numbers(runs: &[Named]) -> Markup {
    let rows: [Of; 12] = [
        ("transactions/s", |run| run.throughput_tps),
        ("commit p50, us", |run| latency(run).p50),
        ("commit p90, us", |run| latency(run).p90),
        ("commit p99, us", |run| latency(run).p99),
        ("commit p99.9, us", |run| latency(run).p999),
        ("commit p99.99, us", |run| latency(run).p9999),
        ("raw write p50, us", |run| run.floor_us.p50),
        ("processor, us a transaction", |run| run.cpu_us_per_transaction),
        ("log, bytes a transaction", |run| run.log_bytes_per_transaction),
        ("writes a transaction", |run| run.device_writes_per_transaction),
        ("flushes a transaction", |run| run.device_flushes_per_transaction),
        ("longest stall, ms", |run| run.stall_us_max / 1e3),
    ];
    html! {
        div.wide { table {
            thead { tr { th { "" } @for run in runs { th { (run.name) } } } }
            tbody {
                @for (name, of) in &rows {
                    tr { td { (name) } @for run in runs { td.number { (number(of(&run.report))) } } }
                }
            }
        } }
    }
}

/// Returns the page.
///
/// # Errors
/// There is no run, or one without a series.
pub fn page(runs: &[Named]) -> Result<String> {
    if runs.is_empty() {
        bail!("there is nothing to show: no run was given");
    }
    if let Some(run) = runs.iter().find(|run| run.report.series.is_empty()) {
        bail!("there is nothing to show of {}: the run has no series", run.name);
    }
    let mut shared = vec![curve(runs), stages(runs), amplification(runs)];
    if runs.len() > 1 {
        shared.insert(0, throughput(runs));
    }
    let mut sections = Vec::new();
    for run in runs {
        sections.push((&run.name, facts(&run.report), over_time(&run.report)?));
    }
    let title = match runs {
        [run] => format!("quench bench {}", run.report.workload),
        _ => format!("{} runs of quench bench", runs.len()),
    };
    let body = html! {
        header { h1 { (title) } }
        main {
            section.figure { (pictures(&shared)) (numbers(runs)) }
            @for (name, facts, over_time) in &sections {
                section.figure { h3 { (name) } (facts) (over_time) }
            }
        }
    };
    Ok(document(&title, &body))
}

#[cfg(test)]
mod tests;
