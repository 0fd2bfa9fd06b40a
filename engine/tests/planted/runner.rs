//! Plants bugs in child processes, one at a time, and finds out who notices.

use super::detectors::{Detector, detectors};
use quenchdb::base::planted::Bug;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Seek};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A detector that takes longer has noticed nothing.
const BOUND: Duration = Duration::from_secs(60);

/// What became of one bug.
pub struct Row {
    pub bug: Bug,
    /// Who caught it; none if nobody did.
    pub caught: Option<Caught>,
    /// Of those who did not.
    pub missed_by: Vec<String>,
    /// All detectors together.
    pub seconds: f64,
}

pub struct Caught {
    /// Test binary and test.
    pub by: String,
    /// The seed that was needed, of tests that go through seeds from 1.
    pub seed: Option<u64>,
    /// What it said.
    pub said: String,
}

enum Outcome {
    Passed,
    Failed(Caught),
    Hung,
}

/// Runs the detectors of each bug until one notices; `each` hears of every row at once.
pub fn run(bugs: &[Bug], each: &mut dyn FnMut(&Row)) -> Result<Vec<Row>, String> {
    let names: BTreeSet<&str> =
        bugs.iter().flat_map(|bug| detectors(*bug)).map(|detector| detector.binary).collect();
    let binaries = build(&names)?;
    let (mut rows, mut sound) = (Vec::new(), BTreeSet::new());
    for bug in bugs {
        let (begun, mut caught, mut missed_by) = (Instant::now(), None, Vec::new());
        for detector in detectors(*bug) {
            match ask(&binaries, detector, Some(*bug))? {
                Outcome::Failed(by) => caught = Some((detector, by)),
                Outcome::Passed => missed_by.push(format!("{} {}", detector.binary, detector.filter)),
                Outcome::Hung => missed_by.push(format!("{} {} (hung)", detector.binary, detector.filter)),
            }
            if caught.is_some() {
                break;
            }
        }
        let seconds = begun.elapsed().as_secs_f64();
        let caught = caught.map(|(detector, by)| match sound.contains(&detector) {
            true => Ok(by),
            false => match ask(&binaries, detector, None)? {
                Outcome::Passed => {
                    sound.insert(detector);
                    Ok(by)
                }
                _ => Err(format!("{} {} fails without a bug, too", detector.binary, detector.filter)),
            },
        });
        let row = Row { bug: *bug, caught: caught.transpose()?, missed_by, seconds };
        each(&row);
        rows.push(row);
    }
    Ok(rows)
}

/// Test binaries by name.
fn build(names: &BTreeSet<&str>) -> Result<BTreeMap<String, PathBuf>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["test", "-p", "quenchdb", "--features", "planted", "--no-run", "--message-format=json"]);
    for name in names {
        match *name {
            "lib" => command.arg("--lib"),
            test => command.args(["--test", test]),
        };
    }
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| format!("cargo: {error}"))?;
    if !output.status.success() {
        return Err("the tests do not compile".into());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let executables = text.lines().filter_map(|line| {
        let path = PathBuf::from(line.split_once("\"executable\":\"")?.1.split_once('"')?.0);
        let name = path.file_name()?.to_str()?.rsplit_once('-')?.0.to_string();
        Some((if name == "quenchdb" { "lib".to_string() } else { name }, path))
    });
    let binaries: BTreeMap<String, PathBuf> = executables.collect();
    match names.iter().find(|name| !binaries.contains_key(**name)) {
        Some(missing) => Err(format!("there is no test binary {missing}")),
        None => Ok(binaries),
    }
}

fn ask(
    binaries: &BTreeMap<String, PathBuf>,
    detector: &Detector,
    bug: Option<Bug>,
) -> Result<Outcome, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", detector.binary);
    let mut output = tempfile::tempfile().map_err(failed)?;
    let mut command = Command::new(&binaries[detector.binary]);
    command.args(detector.filter.split_whitespace());
    command.env("QUENCH_PLANTED", bug.map_or("", Bug::name)).env("RUST_BACKTRACE", "0");
    if detector.crashes > 0 {
        command.env("QUENCH_CRASHES", detector.crashes.to_string());
    }
    command.stdin(Stdio::null());
    command.stdout(output.try_clone().map_err(failed)?).stderr(output.try_clone().map_err(failed)?);
    let (begun, mut child) = (Instant::now(), command.spawn().map_err(failed)?);
    let status = loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            break status;
        }
        if begun.elapsed() > BOUND {
            child.kill().map_err(failed)?;
            child.wait().map_err(failed)?;
            return Ok(Outcome::Hung);
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut bytes = Vec::new();
    output.rewind().and_then(|()| output.read_to_end(&mut bytes)).map_err(failed)?;
    let text = String::from_utf8_lossy(&bytes);
    if text.contains("running 0 tests") {
        return Err(format!("{} has no test {}", detector.binary, detector.filter));
    }
    Ok(if status.success() { Outcome::Passed } else { Outcome::Failed(caught(detector, &text)) })
}

fn caught(detector: &Detector, text: &str) -> Caught {
    let mut lines = text.lines().skip_while(|line| !line.contains("panicked at"));
    let thread = lines.next().and_then(|line| line.split('\'').nth(1)).unwrap_or_default();
    let said: String = lines.next().unwrap_or("the process was ended").chars().take(120).collect();
    let failed = text.lines().find_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
    let test = failed.unwrap_or(if thread.contains("::") { thread } else { detector.filter });
    let seed =
        text.split_once("seed ").and_then(|(_, rest)| rest.split(|c: char| !c.is_ascii_digit()).next());
    let seed = seed.filter(|_| detector.crashes > 0).and_then(|seed| seed.parse().ok());
    Caught { by: format!("{} {test}", detector.binary), seed, said }
}
