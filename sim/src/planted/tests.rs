//! Tests of the engine as detectors: cargo builds them, and they run in processes of their own.

use super::detectors::{Detector, detectors};
use super::{Caught, Outcome, PATIENCE, must_be_sound};
use crate::cargo;
use crate::processes::wait_at_most;
use anyhow::{Context, Result, bail};
use quenchdb::internals::base::planted::Bug;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Most attempts with tests. Some notice only if threads meet at a moment, which is rare on a busy
/// machine.
const TRIES: u64 = 3;

/// Paths of test binaries by name.
pub struct Binaries(BTreeMap<String, PathBuf>);

impl Detector {
    /// For people.
    pub fn name(&self) -> String {
        match self {
            Detector::Tests { binary, filter } => format!("{binary} {filter}").trim_end().into(),
            Detector::Seeds(last) => format!("seeds 1 to {last}"),
            Detector::ObjectsSeeds(last) => format!("{last} seeds on a store of objects"),
            Detector::StreamedSeeds(last) => format!("{last} seeds over streams"),
        }
    }
}

/// Builds the tests that detect `bugs`. All packages are selected, so that the features are those
/// of `cargo test --workspace`, and nothing is built again after it. But for the simulated engine,
/// whose unit tests `--lib` would build.
pub fn build(bugs: &[Bug]) -> Result<Binaries> {
    let of_tests = |detector: &Detector| match detector {
        Detector::Tests { binary, .. } => Some(*binary),
        Detector::Seeds(_) | Detector::ObjectsSeeds(_) | Detector::StreamedSeeds(_) => None,
    };
    let names: BTreeSet<&str> = bugs.iter().flat_map(|bug| detectors(*bug)).filter_map(of_tests).collect();
    if names.is_empty() {
        return Ok(Binaries(BTreeMap::new()));
    }
    let mut command = cargo::command("test")?;
    command.args(["--no-run", "--message-format=json-render-diagnostics"]);
    command.args(["--workspace", "--exclude", "quenchdb-simulated"]);
    for name in &names {
        match *name {
            "lib" => command.arg("--lib"),
            test => command.args(["--test", test]),
        };
    }
    let child = cargo::spawn(command.stdout(Stdio::piped()))?;
    let output = child.wait_with_output().context("waiting for cargo")?;
    if !output.status.success() {
        bail!("the engine's tests do not build: see what cargo said above");
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let messages = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let binaries: BTreeMap<String, PathBuf> =
        messages.filter_map(|message| test_of_engine(&message)).collect();
    match names.iter().find(|name| !binaries.contains_key(**name)) {
        Some(missing) => bail!("the engine has no test binary {missing}, which is to notice planted bugs"),
        None => Ok(Binaries(binaries)),
    }
}

/// Returns name and path of a test program of the engine from a message of cargo.
fn test_of_engine(message: &serde_json::Value) -> Option<(String, PathBuf)> {
    let executable = PathBuf::from(message["executable"].as_str()?);
    let target = &message["target"];
    let source = target["src_path"].as_str()?;
    let name = match target["kind"][0].as_str()? {
        "lib" if source.ends_with("engine/src/lib.rs") => "lib",
        "test" if source.contains("engine/tests/") => target["name"].as_str()?,
        _ => return None,
    };
    Some((name.into(), executable))
}

impl Binaries {
    /// Runs the tests of `binary` whose names contain `filter` with `bug` planted, and again if all
    /// pass. A failing test must pass without the bug; after a killed process all tests must.
    pub fn ask(&self, binary: &str, filter: &str, bug: Bug) -> Result<Outcome> {
        let begun = Instant::now();
        for tries in 1..=TRIES {
            let (caught, test) = match self.run(binary, &[filter], Some(bug))? {
                (Outcome::Noticed(caught), test) => (caught, test),
                (Outcome::Nothing(""), _) => continue,
                (hangs, _) => return Ok(hangs),
            };
            let (runs, seconds) = (tries * caught.runs, begun.elapsed().as_secs_f64());
            let again = if test.is_empty() { vec![filter] } else { vec![test.as_str(), "--exact"] };
            let (sound, _) = self.run(binary, &again, None)?;
            must_be_sound(&caught.by, &sound)?;
            return Ok(Outcome::Noticed(Caught { runs, tries, seconds, ..caught }));
        }
        Ok(Outcome::Nothing(""))
    }

    /// Returns the finding and the test that noticed.
    fn run(&self, binary: &str, arguments: &[&str], bug: Option<Bug>) -> Result<(Outcome, String)> {
        let begun = Instant::now();
        let program = &self.0[binary];
        let child = Command::new(program)
            .args(arguments.iter().filter(|argument| !argument.is_empty()))
            // The directory in which `cargo test` runs tests.
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../engine"))
            .env("QUENCH_PLANTED", bug.map_or("", Bug::name))
            .env("QUENCH_DEEP", "1")
            .env("RUST_BACKTRACE", "0")
            // One test at a time: other tests would take processors or log numbers from the
            // detector.
            .env("RUST_TEST_THREADS", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let Some(output) = wait_at_most(child, PATIENCE)? else {
            return Ok((Outcome::Nothing(" (hangs)"), String::new()));
        };
        let said =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        let tests = said.split_once("running ").and_then(|(_, rest)| rest.split_once(' ')?.0.parse().ok());
        match tests.unwrap_or(0) {
            0 => bail!("{binary} has no test {}", arguments.join(" ")),
            _ if output.status.success() => Ok((Outcome::Nothing(""), String::new())),
            tests => {
                let (test, said) = failed_test_and_output(&said);
                let by = format!("{binary} {test}");
                let seconds = begun.elapsed().as_secs_f64();
                let caught = Caught { by, runs: tests, tries: 1, seconds, said };
                Ok((Outcome::Noticed(caught), test))
            }
        }
    }
}

/// Returns the first failed test and its output; without a name if the process was killed.
fn failed_test_and_output(text: &str) -> (String, String) {
    let failed = text.lines().find_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
    let mut lines = text.lines().skip_while(|line| !line.contains("panicked at")).skip(1);
    let said = lines.next().unwrap_or("the process was ended");
    (failed.unwrap_or_default().into(), said.chars().take(super::table::SAID_LENGTH).collect())
}
