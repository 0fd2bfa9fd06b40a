//! `bench figures`: the figures of the papers, each point a run of this program of its own.
//!
//! ```text
//!   DIR/points/HASH.json     a command and its reports so far; a run that was stopped continues here
//!   DIR/figures.json, figures.csv, README.md, headlines.md, report.html      after each figure
//!   DIR/pictures/ID-N.svg      at the end
//! ```
//!
//! The points of a figure are measured in rotation: a slow moment of the machine does not meet all
//! runs of one point. Figures that share points measure them once.

mod store;
mod measuring;

use super::options::BenchArgs;
use crate::errors::complain;
use crate::output::{Outcome, Progress, print_json, print_text};
use anyhow::{Context, Result, bail};
use measuring::{Measuring, expected_seconds, write_whole};
use quench_bench::figures::claim::Verdict;
use quench_bench::figures::entry::{Comparison, Entry, Report, State};
use quench_bench::figures::spec::{Content, Depth, Figure, Point};
use quench_bench::figures::{catalogue, csv, headlines, page, pictures, summary};
use serde_json::json;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn points(figure: &Figure, depth: Depth) -> Vec<Point> {
    match &figure.content {
        Content::Regenerated { parts, .. } => {
            let mut points: Vec<Point> = Vec::new();
            for point in parts.iter().flat_map(|part| part.points(depth)) {
                if !points.iter().any(|known| known.command == point.command) {
                    points.push(point);
                }
            }
            points
        }
        Content::Absent(_) => Vec::new(),
    }
}

/// Returns the figures that the names choose: ids, or the beginning of ids.
fn chosen(names: &[String]) -> Result<Vec<Figure>> {
    let all = catalogue::all()?;
    // AC-F1 is not the beginning of AC-F10.
    let fits = |id: &str, name: &str| {
        let (id, name) = (id.to_lowercase(), name.to_lowercase());
        let is_number = |text: Option<char>| text.is_some_and(|char| char.is_ascii_digit());
        id.strip_prefix(&name)
            .is_some_and(|rest| !(is_number(name.chars().next_back()) && is_number(rest.chars().next())))
    };
    for name in names {
        if !all.iter().any(|figure| fits(&figure.id, name)) {
            bail!("{name} is no figure; `quench bench figures --list` prints all");
        }
    }
    let wanted = |figure: &Figure| names.is_empty() || names.iter().any(|name| fits(&figure.id, name));
    Ok(all.into_iter().filter(wanted).collect())
}

fn list(figures: &[Figure], depth: Depth, json: bool) -> Result<Outcome> {
    if json {
        let line = |figure: &Figure| {
            let commands: Vec<String> =
                points(figure, depth).iter().map(|point| point.command.join(" ")).collect();
            json!({"id": figure.id, "title": figure.title, "points": commands})
        };
        print_json(&figures.iter().map(line).collect::<Vec<_>>())?;
        return Ok(Outcome::Done);
    }
    let mut text = String::new();
    for figure in figures {
        // Writing to a string cannot fail.
        let _ = match &figure.content {
            Content::Absent(reason) => {
                writeln!(text, "{:<8} -           {}: {reason}", figure.id, figure.title)
            }
            Content::Regenerated { .. } => {
                let points = points(figure, depth);
                let seconds: f64 = points.iter().map(expected_seconds).sum();
                writeln!(
                    text,
                    "{:<8} {:>3} points {:>4.0} s  {}",
                    figure.id,
                    points.len(),
                    seconds,
                    figure.title
                )
            }
        };
    }
    print_text(&text)?;
    Ok(Outcome::Done)
}

/// Returns the processors, memory and kernel of this machine.
fn machine() -> String {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let info = rustix::system::sysinfo();
    let memory = info.totalram.saturating_mul(info.mem_unit.into()) as f64 / f64::from(1 << 30);
    let names = rustix::system::uname();
    let (system, release) = (names.sysname().to_string_lossy(), names.release().to_string_lossy());
    format!("{processors} processors, {memory:.0} GiB of memory, {system} {release}.")
}

/// Returns today's date (UTC).
fn today() -> String {
    jiff::Timestamp::now().to_string().chars().take_while(|char| *char != 'T').collect()
}

/// Writes the report of the figures so far.
fn write_report(out: &Path, report: &Report) -> Result<()> {
    write_whole(&out.join("figures.json"), &serde_json::to_vec_pretty(report)?)?;
    write_whole(&out.join("figures.csv"), csv(report)?.as_bytes())?;
    write_whole(&out.join("README.md"), summary(report).as_bytes())?;
    write_whole(&out.join("headlines.md"), headlines(report).as_bytes())?;
    write_whole(&out.join("report.html"), page(report)?.as_bytes())
}

/// Writes each picture of a report as a file.
fn write_pictures(out: &Path, report: &Report) -> Result<()> {
    let directory = out.join("pictures");
    std::fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
    pictures(report).iter().try_for_each(|(name, drawn)| write_whole(&directory.join(name), drawn.as_bytes()))
}

fn line(entry: &Entry) -> String {
    let mut text = format!("{:<8} {}", entry.id, entry.title);
    let number = |value: Option<f64>| value.map_or_else(|| "-".into(), |value| format!("{value:.4}"));
    let add = |text: &mut String, kind: &str, one: &Comparison| {
        let direction = one.direction.clone().unwrap_or_else(|| number(one.published));
        let ours = number(one.ours.as_ref().map(|ours| ours.median));
        let verdict = one.verdict.map_or("", Verdict::words);
        // Writing to a string cannot fail.
        let _ = write!(text, "\n  {kind:<15}{}: published {direction}, ours {ours} {}", one.text, one.unit);
        if !verdict.is_empty() {
            let _ = write!(text, ": {verdict}");
        }
    };
    entry.claims.iter().for_each(|one| add(&mut text, "claim", one));
    entry.shown.iter().for_each(|one| add(&mut text, "shown", one));
    entry.modelled.iter().for_each(|one| add(&mut text, "model", one));
    for error in &entry.errors {
        let _ = write!(text, "\n  failed         {error}");
    }
    text
}

/// Measures the chosen figures, and writes the report.
pub(super) fn run(args: &BenchArgs, json: bool) -> Result<Outcome> {
    let options = &args.figures;
    let (figures, depth) = (chosen(&args.engines.names)?, options.depth(args.given_seconds()));
    if options.list {
        return list(&figures, depth, json);
    }
    let out = options.out.clone().unwrap_or_else(|| PathBuf::from("figures"));
    std::fs::create_dir_all(&out).with_context(|| format!("cannot create {}", out.display()))?;
    let (out, bar) = (out.canonicalize()?, Progress::new());
    let mut measuring = Measuring::new(&out, options.any_build, options.runs(), &bar)?;
    measuring.plan(figures.iter().flat_map(|figure| points(figure, depth)))?;
    let mut report = Report {
        version: env!("CARGO_PKG_VERSION").into(),
        depth: depth.name().into(),
        date: today(),
        machine: machine(),
        figures: Vec::new(),
    };
    let is_chosen = |figure: &Figure| figures.iter().any(|chosen| chosen.id == figure.id);
    for figure in catalogue::all()? {
        let points = points(&figure, depth);
        if !is_chosen(&figure) && !measuring.is_known(&points)? {
            continue;
        }
        let errors = if is_chosen(&figure) { measuring.figure(&figure.id, &points) } else { Vec::new() };
        report.figures.push(Entry::of(&figure, depth, measuring.results(), errors));
        write_report(&out, &report)?;
    }
    write_pictures(&out, &report)?;
    bar.finish();
    if json {
        print_json(&report)?;
    } else {
        let chosen = |entry: &&Entry| figures.iter().any(|figure| figure.id == entry.id);
        let lines: Vec<String> = report.figures.iter().filter(chosen).map(line).collect();
        print_text(&lines.join("\n"))?;
    }
    complain(&format!("the report is {}", out.join("report.html").display()));
    let failed = report.figures.iter().any(|entry| entry.state == State::Incomplete);
    Ok(if failed { Outcome::Wrong } else { Outcome::Done })
}

#[cfg(test)]
mod tests;
