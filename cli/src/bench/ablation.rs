//! `bench ablation`: one workload with several protocols, each with one technique more than the one
//! before.
//!
//! Each row is a run of this program of its own, so that none inherits the memory, threads or files
//! of another.

use super::child;
use super::options::BenchArgs;
use crate::output::{Outcome, Progress, print_json, print_text};
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use quench_bench::report::Report;
use serde_json::json;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// A name and the flags that make it.
struct Row {
    name: &'static str,
    flags: Vec<String>,
}

/// Most logs of a row with a log for each thread: the default length of the log has segments for
/// this many.
const LOGS_MOST: u64 = 32;

/// Logs whose workers steal from each other, as in the paper.
const STEALING_GROUP: u64 = 8;

fn rows(threads: u64) -> Vec<Row> {
    let logs = threads.min(LOGS_MOST).to_string();
    // With one log there is no other log to steal from.
    let group = threads.min(STEALING_GROUP).to_string();
    let logs = ["--preset", "pipelined", "--layout", "per-thread", "--logs", &logs];
    let own_logs = [&logs[..], &["--writer", "worker"]].concat();
    let workers = ["--acknowledger", "workers"];
    let one_flush: &[&str] = if threads > 1 { &["--shared-flush", "true"] } else { &[] };
    let shared = [&logs[..], &["--writer", "background"], one_flush, &workers].concat();
    let row =
        |name, flags: &[&[&str]]| Row { name, flags: flags.concat().into_iter().map(String::from).collect() };
    let (one, two) = (["--in-flight", "1"], ["--in-flight", "2"]);
    let (off, on) = (["--steal-group", "1"], ["--steal-group", &group]);
    let [csn, dsn, exact] = ["csn", "dsn", "exact"].map(|rule| ["--dependency", rule]);
    vec![
        row("pipelined, latched queue", &[&["--preset", "pipelined", "--queue", "latched"]]),
        row("+ lock-free queue", &[&["--preset", "pipelined", "--queue", "lock-free"]]),
        row("+ autonomous flush", &[&own_logs, &one, &off, &csn]),
        row("+ autonomous acknowledgment", &[&own_logs, &one, &off, &csn, &workers]),
        row("+ stealing", &[&own_logs, &one, &on, &csn, &workers]),
        row("+ two writes in flight", &[&own_logs, &two, &on, &csn, &workers]),
        // The thread that writes for all takes what waits in all logs: there is nothing left to
        // steal.
        row("+ shared flush, one flusher", &[&shared, &csn]),
        row("+ record-level dependencies", &[&shared, &dsn]),
        row("+ exact dependencies", &[&shared, &exact]),
    ]
}

/// Returns the rows of the paper on autonomous commit: a log for each worker and GSN with RFA in
/// every row, units of 4 KiB, and no timer. Workers of a closed loop are never idle, so no row
/// forces commits of idle ones.
fn published_rows(threads: u64) -> Vec<Row> {
    let logs = threads.clamp(2, LOGS_MOST).to_string();
    let group = threads.clamp(2, STEALING_GROUP).to_string();
    let common = ["--preset", "pipelined", "--layout", "per-thread", "--logs", &logs];
    let rule = ["--dependency", "gsn-rfa", "--flush-unit", "4k", "--flush-interval-us", INTERVAL_MOST_US];
    let common = [&common[..], &rule].concat();
    let (latched, lock_free) = (["--queue", "latched"], ["--queue", "lock-free"]);
    let alone = ["--writer", "worker", "--steal-group", "1", "--idle-us", "0"];
    let stealing = ["--writer", "worker", "--steal-group", &group, "--idle-us", "0"];
    let workers = ["--acknowledger", "workers", "--ack-group", "2"];
    let row = |name, flags: &[&[&str]]| {
        let flags = [&[&common[..]], flags].concat().concat();
        Row { name, flags: flags.into_iter().map(String::from).collect() }
    };
    vec![
        row("Flush", &[&latched]),
        row("+ queue", &[&lock_free]),
        row("+ autonomous flush", &[&lock_free, &alone]),
        row("+ autonomous acknowledgment", &[&lock_free, &alone, &workers]),
        row("+ stealing", &[&lock_free, &stealing, &workers]),
    ]
}

/// The longest interval between two writes that the engine takes, in microseconds.
const INTERVAL_MOST_US: &str = "1000000";

/// Flags that the published rows decide besides.
const VARIED_AS_PUBLISHED: [&str; 4] = ["--flush-unit", "--flush-interval-us", "--idle-us", "--ack-group"];

/// Flags that the rows decide.
const VARIED: [&str; 11] = [
    "--preset",
    "--logs",
    "--layout",
    "--threads-per-log",
    "--writer",
    "--in-flight",
    "--shared-flush",
    "--steal-group",
    "--acknowledger",
    "--dependency",
    "--queue",
];

fn name_of(flag: &str) -> &str {
    flag.split('=').next().unwrap_or(flag)
}

/// The flags that this program was called with, less those that are not for the rows.
fn flags_for_rows(as_published: bool) -> Result<Vec<String>> {
    let mut given = std::env::args().skip_while(|arg| arg != "ablation").skip(1);
    let mut kept = Vec::new();
    while let Some(flag) = given.next() {
        match name_of(&flag) {
            "--json" | "--as-published" => {}
            name @ ("--of" | "--path") => {
                if flag == name {
                    given.next();
                }
            }
            name if VARIED.contains(&name) || as_published && VARIED_AS_PUBLISHED.contains(&name) => {
                bail!("{name} is what the ablation varies")
            }
            _ => kept.push(flag),
        }
    }
    if !kept.iter().any(|flag| name_of(flag) == "--commit") {
        kept.extend(["--commit".to_string(), "async".to_string()]);
    }
    Ok(kept)
}

fn run_row(of: &str, path: Option<&Path>, kept: &[String], row: &Row) -> Result<Report> {
    let mut command = child::program("ablation")?;
    command.args([of, "--json"]).args(kept).args(&row.flags);
    if let Some(path) = path {
        command.arg("--path").arg(path);
    }
    let output = command.output().context("cannot start the run of a row")?;
    if !output.status.success() {
        bail!("row `{}`: {}", row.name, String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("row `{}`: the report is no JSON", row.name))
}

/// Where the row's database is: in a directory of its own in `parent`.
fn directory_of(parent: &Path, number: usize) -> Result<PathBuf> {
    let directory = parent.join(format!("row-{number}"));
    if directory.exists() {
        bail!("{} exists; give a new directory", directory.display());
    }
    Ok(directory)
}

/// Runs all rows and prints the table.
pub fn run(args: &BenchArgs, json: bool) -> Result<Outcome> {
    let of =
        args.ablation_of.to_possible_value().map(|value| value.get_name().to_string()).unwrap_or_default();
    let rows = if args.as_published { published_rows(args.threads()) } else { rows(args.threads()) };
    let (kept, bar) = (flags_for_rows(args.as_published)?, Progress::new());
    let mut reports = Vec::new();
    for (number, row) in rows.iter().enumerate() {
        bar.at(row.name, number as u64, rows.len() as u64);
        let directory = args.path.as_deref().map(|parent| directory_of(parent, number)).transpose()?;
        let report = run_row(&of, directory.as_deref(), &kept, row);
        if let Some(directory) = directory.filter(|directory| !args.keep && directory.exists()) {
            std::fs::remove_dir_all(&directory)
                .with_context(|| format!("cannot remove {}", directory.display()))?;
        }
        reports.push(report?);
    }
    bar.finish();
    if json {
        let rows: Vec<_> = rows
            .iter()
            .zip(&reports)
            .map(|(row, report)| json!({"row": row.name, "flags": row.flags.join(" "), "report": report}))
            .collect();
        print_json(&json!({"ablation_of": of, "rows": rows}))?;
    } else {
        print_text(&table(&of, &rows, &reports))?;
    }
    Ok(Outcome::Done)
}

fn table(of: &str, rows: &[Row], reports: &[Report]) -> String {
    let mut text = String::new();
    if let Some(first) = reports.first() {
        let (threads, device) = (first.threads, &first.device);
        let _ = writeln!(text, "{of}, {threads} threads, {} commits, device {device}", first.commit);
    }
    let _ = writeln!(
        text,
        "{:<30}{:>10}{:>10}{:>10}{:>10}{:>10}{:>9}{:>10}{:>10}{:>10}{:>9}",
        "",
        "tx/s",
        "p50 us",
        "p90 us",
        "p99 us",
        "p99.9 us",
        "cpu us",
        "writes/tx",
        "wakes/tx",
        "switch/tx",
        "false %"
    );
    for (row, report) in rows.iter().zip(reports) {
        let coordination = report.coordination.clone().unwrap_or_default();
        let latency = &report.commit_latency_us;
        let _ = writeln!(
            text,
            "{:<30}{:>10.0}{:>10.0}{:>10.0}{:>10.0}{:>10.0}{:>9.2}{:>10.4}{:>10.4}{:>10.4}{:>9.2}",
            row.name,
            report.throughput_tps,
            latency.p50,
            latency.p90,
            latency.p99,
            latency.p999,
            report.cpu_us_per_transaction,
            report.device_writes_per_transaction,
            coordination.wakeups_per_transaction,
            coordination.context_switches_per_transaction,
            coordination.false_waits_percent
        );
    }
    text
}
