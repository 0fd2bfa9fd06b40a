//! Functions that several test modules share.
#![allow(dead_code, unused_imports, reason = "no test module uses all of them")]

#[path = "../../../engine/tests/support/skipped.rs"]
mod skipped;
pub mod terminal;

use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

pub use skipped::skip;

/// Returns a command for the program with these arguments and no input.
pub fn quench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quench"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs the program to its end.
pub fn run(arguments: &[&str]) -> Output {
    quench(arguments).output().expect("the program starts")
}

/// Runs the program to its end with an input.
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
            // The write fails if the program stops reading.
            let _ = stdin.write_all(input);
        });
        child.wait_with_output().expect("the program ends")
    })
}

/// Asserts an exit code; codes 2 and 3 require exactly one line on the standard error.
#[track_caller]
pub fn expect_code(output: &Output, code: i32) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(code), "stderr: {stderr} stdout: {stdout}");
    if code == 2 || code == 3 {
        assert_eq!(stderr.trim_end().lines().count(), 1, "one line, not: {stderr}");
        assert!(!stderr.contains("panicked") && !stderr.contains("internal error"), "{stderr}");
    }
}

/// Parses the standard output as JSON.
#[track_caller]
pub fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stdout)))
}

/// Creates a directory that is removed with the result.
pub fn directory() -> tempfile::TempDir {
    // Beside the build, not in /tmp, which may be memory.
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary directory")
}

/// Returns a path as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("our own path")
}

/// Runs `quench bench` with these arguments to its end.
pub fn run_bench(arguments: &[&str]) -> Output {
    let arguments = [&["bench"], arguments].concat();
    // Files that remain after a failure lie beside the build.
    let output = quench(&arguments).current_dir(env!("CARGO_TARGET_TMPDIR")).output();
    output.expect("the program starts")
}

/// Repeats `run` with more seconds until its report `shows` the effect under test, because a busy
/// machine or a slow disk takes longer. Returns the last report.
///
/// `run` checks what must hold in every report. The caller checks that the last report shows the
/// effect.
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

/// Returns a number of a report.
#[track_caller]
pub fn number(object: &Value, field: &str) -> f64 {
    object[field].as_f64().unwrap_or_else(|| panic!("{field} of {object}"))
}
