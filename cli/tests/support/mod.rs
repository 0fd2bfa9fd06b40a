//! What several of these tests need.
#![allow(dead_code, unused_imports, reason = "no test needs everything")]

#[path = "../../../engine/tests/support/skipped.rs"]
mod skipped;

use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

pub use skipped::skip;

/// The program with these arguments, and no input.
pub fn quench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quench"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs the program to its end.
pub fn run(arguments: &[&str]) -> Output {
    quench(arguments).output().expect("the program starts")
}

/// The same with an input.
pub fn run_with_input(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = quench(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("piped");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // A program that refuses the input closes the pipe: fine.
            let _ = stdin.write_all(input);
        });
        child.wait_with_output().expect("the program ends")
    })
}

/// Expects an exit code, and of a failure one clear line.
#[track_caller]
pub fn expect_code(output: &Output, code: i32) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(code), "stderr: {stderr} stdout: {stdout}");
    if code == 2 {
        assert_eq!(stderr.trim_end().lines().count(), 1, "one line, not: {stderr}");
        assert!(!stderr.contains("panicked") && !stderr.contains("internal error"), "{stderr}");
    }
}

/// What was printed.
#[track_caller]
pub fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stdout)))
}

/// A directory that goes with the result.
pub fn directory() -> tempfile::TempDir {
    // Beside the build, not in /tmp, which may be memory.
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary directory")
}

/// A path as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("our own path")
}

/// `quench bench` with these arguments, run to its end.
pub fn run_bench(arguments: &[&str]) -> Output {
    let arguments = [&["bench"], arguments].concat();
    // Whatever it leaves behind is beside the build.
    let output = quench(&arguments).current_dir(env!("CARGO_TARGET_TMPDIR")).output();
    output.expect("the program starts")
}

/// The report of a run that is long enough to show something: what takes a moment here takes a busy
/// machine, or a slow disk, longer.
///
/// What a run must not do, `run` itself has to judge; what it must show, whoever gets the last
/// report.
#[track_caller]
pub fn long_enough(seconds: f64, run: impl Fn(&str) -> Value, shows: impl Fn(&Value) -> bool) -> Value {
    for longer in [1.0, 5.0, 25.0] {
        let report = run(&(seconds * longer).to_string());
        if shows(&report) {
            return report;
        }
    }
    run(&(seconds * 100.0).to_string())
}

/// A number in a report.
#[track_caller]
pub fn number(object: &Value, field: &str) -> f64 {
    object[field].as_f64().unwrap_or_else(|| panic!("{field} of {object}"))
}
