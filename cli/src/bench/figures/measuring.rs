//! Runs points, each in a process of its own, and keeps their reports in files.

use super::store::Emulated;
use crate::bench::child::{self, Ended};
use crate::output::Progress;
use crate::scratch::Scratch;
use anyhow::{Context, Result, bail};
use quench_bench::figures::results::Results;
use quench_bench::figures::spec::Point;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time of a point beside its measured time, until points have shown theirs: load, floor, close.
const OVERHEAD_SECONDS: f64 = 1.5;
/// A point that takes longer than this many times its measured time, and a minute, has failed.
const PATIENCE: f64 = 20.0;
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A point as it is kept in a file.
#[derive(Serialize, Deserialize)]
struct Kept {
    command: String,
    /// The build of the program that measured it.
    build: String,
    reports: Vec<Value>,
}

/// Returns what distinguishes this build of the program from another one.
fn build() -> Result<String> {
    let program = std::fs::metadata(std::env::current_exe()?)?;
    let modified = program.modified()?.duration_since(std::time::UNIX_EPOCH)?.as_secs();
    Ok(format!("{} {} {modified}", env!("CARGO_PKG_VERSION"), program.len()))
}

/// Measures points, and keeps their reports.
pub(super) struct Measuring<'a> {
    out: &'a Path,
    build: String,
    any_build: bool,
    runs: usize,
    bar: &'a Progress,
    results: Results,
    /// Time of the points measured by this process: expected and actual.
    time: (f64, f64),
    /// Expected seconds of all points that are left.
    left: f64,
    done: u64,
    total: u64,
}

/// Returns a name for the file of a command: FNV-1a of 64 bits.
fn file_name(command: &str) -> String {
    let hash = command
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    format!("{hash:016x}.json")
}

/// Returns what a point complained of: the message of its JSON, or its last line.
fn complaint(errors: &str) -> String {
    let line = errors.trim().lines().last().unwrap_or("ended without a message");
    let Ok(object) = serde_json::from_str::<Value>(line) else { return line.to_string() };
    let text = |name: &str| object["error"][name].as_str().map(String::from);
    let message = text("message").unwrap_or_else(|| line.to_string());
    text("place").map_or(message.clone(), |place| format!("{place}: {message}"))
}

/// Returns how long a point is expected to take.
pub(super) fn expected_seconds(point: &Point) -> f64 {
    point.seconds * 1.1 + OVERHEAD_SECONDS
}

impl<'a> Measuring<'a> {
    /// Returns a measuring of each point `runs` times.
    pub(super) fn new(out: &'a Path, any_build: bool, runs: usize, bar: &'a Progress) -> Result<Self> {
        let points = out.join("points");
        std::fs::create_dir_all(&points).with_context(|| format!("cannot create {}", points.display()))?;
        Ok(Measuring {
            out,
            build: build()?,
            any_build,
            runs,
            bar,
            results: Results::default(),
            time: (0.0, 0.0),
            left: 0.0,
            done: 0,
            total: 0,
        })
    }

    /// Reads what is known of the points, and counts what is missing.
    pub(super) fn plan(&mut self, points: impl Iterator<Item = Point>) -> Result<()> {
        let mut counted = HashSet::new();
        for point in points.filter(|point| counted.insert(point.command.join(" "))) {
            self.recall(&point.command)?;
            let missing = self.runs_of(&point).saturating_sub(self.results.runs(&point.command));
            self.total += missing as u64;
            self.left += missing as f64 * expected_seconds(&point);
        }
        Ok(())
    }

    /// Returns how often a point is measured.
    fn runs_of(&self, point: &Point) -> usize {
        if point.modelled { 1 } else { self.runs }
    }

    /// Returns whether an earlier run measured all of these points; false without points.
    pub(super) fn is_known(&mut self, points: &[Point]) -> Result<bool> {
        for point in points {
            self.recall(&point.command)?;
        }
        Ok(!points.is_empty() && points.iter().all(|point| self.results.runs(&point.command) > 0))
    }

    /// Returns the reports so far.
    pub(super) fn results(&self) -> &Results {
        &self.results
    }

    fn file(&self, command: &[String]) -> PathBuf {
        self.out.join("points").join(file_name(&command.join(" ")))
    }

    /// Reads what an earlier run measured of a point.
    fn recall(&mut self, command: &[String]) -> Result<()> {
        let path = self.file(command);
        if self.results.runs(command) > 0 || !path.exists() {
            return Ok(());
        }
        let text = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let kept: Kept = serde_json::from_slice(&text)
            .with_context(|| format!("{} is no point of a figure; remove it", path.display()))?;
        if kept.command == command.join(" ") && (self.any_build || kept.build == self.build) {
            for report in kept.reports {
                self.results.add(command, report);
            }
        }
        Ok(())
    }

    fn keep(&self, command: &[String]) -> Result<()> {
        let kept = Kept {
            command: command.join(" "),
            build: self.build.clone(),
            reports: self.results.reports(command).to_vec(),
        };
        write_whole(&self.file(command), &serde_json::to_vec(&kept)?)
    }

    fn show(&self, figure: &str) {
        let (expected, actual) = self.time;
        let factor = if expected > 0.0 { actual / expected } else { 1.0 };
        let left = (self.left * factor).ceil() as u64;
        let text = format!(
            "{figure}: point {} of {}, {} min {:02} s left",
            self.done + 1,
            self.total,
            left / 60,
            left % 60
        );
        self.bar.counting(text, self.done, self.total);
    }

    /// Runs one point once.
    fn measure(&mut self, figure: &str, point: &Point) -> Result<()> {
        self.show(figure);
        let began = Instant::now();
        let report =
            self.run(figure, point).with_context(|| format!("quench bench {}", point.command.join(" ")))?;
        self.time.0 += expected_seconds(point);
        self.time.1 += began.elapsed().as_secs_f64();
        self.results.add(&point.command, report);
        self.keep(&point.command)
    }

    fn run(&self, figure: &str, point: &Point) -> Result<Value> {
        // Databases of points are on the disk of the report.
        let scratch = Scratch::within(self.out, "point")?;
        let here = scratch.path().to_string_lossy();
        let words = point.command.iter().map(|word| word.replace("{here}", &here));
        let store = Emulated::start(words.collect())?;
        let patience = Duration::from_secs_f64(point.seconds * PATIENCE + 60.0);
        let mut program = child::program("figures")?;
        store.lead(&mut program);
        program.args(["--json", "--point"]).current_dir(scratch.path());
        let Ended { status, out, errors } = child::run(&mut program, LOOK_EVERY, |passed| {
            self.show(figure);
            match passed > patience {
                true => bail!("ended after {} s without a report", patience.as_secs()),
                false => Ok(()),
            }
        })?;
        if !status.success() {
            bail!("{}", complaint(&errors));
        }
        serde_json::from_str(&out).context("the report is no JSON")
    }

    /// Measures the missing runs of all points of a figure, in rotation. Returns the errors.
    pub(super) fn figure(&mut self, figure: &str, points: &[Point]) -> Vec<String> {
        let mut errors: Vec<(String, String)> = Vec::new();
        for round in 0..self.runs {
            for at in 0..points.len() {
                // Another point is the first one in each round.
                let point = &points[(at + round) % points.len()];
                let key = point.command.join(" ");
                if self.results.runs(&point.command) > round
                    || round >= self.runs_of(point)
                    || errors.iter().any(|(failed, _)| *failed == key)
                {
                    continue;
                }
                if let Err(error) = self.measure(figure, point) {
                    errors.push((key, format!("{error:#}")));
                }
                self.done += 1;
                self.left -= expected_seconds(point);
            }
        }
        errors.into_iter().map(|(_, error)| error).collect()
    }
}

/// Replaces a file as a whole.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let new = path.with_extension("new");
    std::fs::write(&new, bytes)
        .and_then(|()| std::fs::rename(&new, path))
        .with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_is_the_message_of_the_point() {
        let object = r#"{"error":{"code":"x","message":"no log","place":"setting `logs`"}}"#;
        assert_eq!(complaint(&format!("a warning\n{object}\n")), "setting `logs`: no log");
        assert_eq!(complaint("quench: the disk is full\n"), "quench: the disk is full");
        assert_eq!(complaint(""), "ended without a message");
    }
}
