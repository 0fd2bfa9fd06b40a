//! Measures outside of the simulation: tests of other packages, run by `cargo test`. Each prints
//! its figures in lines `figures: {"what": 5}`, which are summed. A test that lacks something
//! prints `SKIPPED: ` and passes.

use crate::cargo;
use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

/// One or more test programs.
#[derive(Clone, Copy, Debug)]
pub struct Suite {
    pub name: &'static str,
    /// Arguments of `cargo test`.
    arguments: &'static [&'static str],
    /// Parts of test names to run; empty for all tests of the program.
    filters: &'static [&'static str],
    /// The figure that the suite is run for.
    pub figure: &'static str,
    /// Target of the figure in a long run. None for a suite that is the same each time: it runs
    /// once.
    pub long: Option<u64>,
}

/// All suites.
pub const SUITES: &[Suite] = &[
    Suite {
        name: "crashes",
        arguments: &["-p", "quenchdb", "--test", "engine"],
        filters: &["crash::"],
        figure: "power_cuts",
        long: Some(5_000_000),
    },
    Suite {
        name: "isolation",
        arguments: &["-p", "quenchdb", "--test", "engine"],
        filters: &["isolation::"],
        figure: "judged",
        long: Some(100_000_000),
    },
    Suite {
        name: "real kills",
        arguments: &["-p", "quench-cli", "--test", "cli"],
        filters: &["real_faults::", "fuse::"],
        figure: "kills",
        long: Some(10_000),
    },
    Suite {
        name: "model",
        arguments: &["-p", "quench-model"],
        filters: &[],
        figure: "model_states",
        long: None,
    },
    Suite {
        name: "planted bugs",
        arguments: &["-p", "quench-sim", "--test", "sim"],
        filters: &["planted::"],
        figure: "planted",
        long: None,
    },
];

/// The report of a suite.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub figures: BTreeMap<String, u64>,
    /// Skipped tests, and why.
    pub skipped: BTreeSet<String>,
    /// The last lines of output of a failed suite.
    pub failure: Option<String>,
}

/// Most lines of output kept.
const SAID_LINES: usize = 60;

impl Suite {
    /// Runs the suite, with seeds from `first_seed` on.
    ///
    /// # Errors
    /// Cargo or the sources are missing.
    pub fn run(&self, first_seed: u64) -> Result<Outcome> {
        let bar = ProgressBar::new_spinner();
        bar.set_style(ProgressStyle::with_template("{elapsed_precise} {spinner} {prefix}: {msg}")?);
        bar.set_prefix(self.name);
        bar.enable_steady_tick(Duration::from_millis(200));
        let mut command = cargo::command("test")?;
        command
            .args(self.arguments)
            .args(["--", "--nocapture"])
            .args(self.filters)
            .env("QUENCH_DEEP", "1")
            .env("QUENCH_SEED", first_seed.to_string());
        let mut child = cargo::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
            .context("tests of other packages; --simulation-only leaves them out")?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (mut said, mut outcome) = (Vec::new(), Outcome::default());
        let errors = std::thread::scope(|scope| {
            let errors = scope.spawn(|| {
                let mut errors = Vec::new();
                for line in stderr.into_iter().flat_map(lines) {
                    bar.set_message(line.chars().take(100).collect::<String>());
                    errors.push(line);
                }
                errors
            });
            for line in stdout.into_iter().flat_map(lines) {
                outcome.note_figures(&line);
                said.push(line);
            }
            errors.join().unwrap_or_default()
        });
        errors.iter().for_each(|line| outcome.note_skipped(line));
        let status = child.wait().context("waiting for cargo")?;
        bar.finish_and_clear();
        if !status.success() {
            said.extend(errors);
            let last = said.split_off(said.len().saturating_sub(SAID_LINES));
            outcome.failure =
                Some(format!("cargo test {}: {status}\n{}", self.arguments.join(" "), last.join("\n")));
        }
        Ok(outcome)
    }
}

impl Outcome {
    fn note_skipped(&mut self, line: &str) {
        self.skipped.extend(line.split_once("SKIPPED: ").map(|(_, what)| what.to_string()));
    }

    fn note_figures(&mut self, line: &str) {
        // The harness may have printed something before it on the same line.
        let figures = line.split_once("figures: ").map(|(_, figures)| figures);
        let figures = figures.and_then(|text| serde_json::from_str::<BTreeMap<String, u64>>(text).ok());
        for (what, count) in figures.into_iter().flatten() {
            *self.figures.entry(what).or_default() += count;
        }
    }
}

fn lines(pipe: impl std::io::Read) -> impl Iterator<Item = String> {
    BufReader::new(pipe)
        .split(b'\n')
        .map_while(Result::ok)
        .map(|line| String::from_utf8_lossy(&line).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_added_up_and_other_lines_are_passed_over() {
        let mut outcome = Outcome::default();
        for line in [
            "test a ... figures: {\"kills\": 3, \"rounds\": 1}",
            "figures: {\"kills\": 4}",
            "figures: none",
            "SKIPPED: a: there is no strace",
            "",
        ] {
            outcome.note_figures(line);
            outcome.note_skipped(line);
        }
        assert_eq!(outcome.figures, BTreeMap::from([("kills".to_string(), 7), ("rounds".to_string(), 1)]));
        assert_eq!(outcome.skipped, BTreeSet::from(["a: there is no strace".to_string()]));
    }
}
