//! Commands whose reader closes the pipe, as `head` does.

use crate::support::*;
use quenchdb::Database;
use std::io::{BufRead, BufReader};
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

/// Reads the first line of a command, and closes its output.
fn first_line(arguments: &[&str]) -> (String, Child) {
    let mut child =
        quench(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    (line, child)
}

/// Waits for the end of a command whose output has no reader any more.
#[track_caller]
fn expect_quiet_end(mut child: Child) {
    let closed = Instant::now();
    while child.try_wait().expect("our child").is_none() {
        if closed.elapsed() > Duration::from_secs(20) {
            child.kill().expect("our child");
            panic!("it continues without a reader");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let Output { status, stderr, .. } = child.wait_with_output().expect("it ended");
    assert_eq!((status.code(), &*String::from_utf8_lossy(&stderr)), (Some(0), ""));
}

/// Regression: `stat --watch` ignored the closed pipe, and continued forever.
#[test]
fn repeated_reports_end_when_their_reader_has_gone() {
    let dir = directory();
    let path = dir.path().join("db");
    let db = Database::open(&path).expect("new");
    let path = text(&path);
    for arguments in [
        &["stat", path, "--checkpoint", "--watch", "3600", "--json"][..],
        &["stat", path, "--checkpoint", "--watch", "0.01"],
        &["top", path, "--interval", "0.05"],
        &["top", path, "--interval", "0.05", "--json"],
    ] {
        let (line, child) = first_line(arguments);
        assert!(!line.is_empty(), "{arguments:?}");
        expect_quiet_end(child);
    }
    db.close().expect("closes");
}

#[test]
fn every_printing_command_ends_quietly_without_a_reader() {
    let dir = directory();
    let path = dir.path().join("db");
    let rows: String = (0..20_000).map(|n| format!("{n:08}\tvalue {n}\n")).collect();
    let db = text(&path);
    expect_code(&run_with_input(&["load", db, "t"], rows.as_bytes()), 0);
    let printing: &[&[&str]] = &[
        &["--help"],
        &["bench", "--help"],
        &["completions", "bash"],
        &["man", "load"],
        &["get", db, "t", "00000001"],
        &["get", db, "t", "00000001", "--raw"],
        &["scan", db, "t"],
        &["scan", db, "t", "--format", "csv"],
        &["dump", db, "t", "--format", "jsonl"],
        &["dump", db, "--all"],
        &["tables", db, "--count"],
        &["count", db],
        &["stat", db, "--all"],
        &["verify", db],
        &["log", db],
        &["log", db, "--json"],
        &["shell", db, "-c", "scan t", "-c", "tables", "-c", ".help"],
    ];
    for arguments in printing {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let ended = quench(arguments).stdout(writer).stderr(Stdio::piped()).output().expect("it starts");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!((ended.status.code(), &*said), (Some(0), ""), "{arguments:?}");
    }
}

/// Regression: a closed pipe ended the script with exit code 0, before the statements that follow.
#[test]
fn script_goes_on_writing_when_its_reader_has_gone() {
    let dir = directory();
    let path = dir.path().join("db");
    let rows: String = (0..20_000).map(|n| format!("{n:08}\tvalue {n}\n")).collect();
    let db = text(&path);
    expect_code(&run_with_input(&["load", db, "t"], rows.as_bytes()), 0);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let statements = ["begin", "scan t", "put t a 1", "scan t", "commit"];
    let arguments = statements.iter().flat_map(|statement| ["-c", statement]);
    let arguments: Vec<&str> = ["shell", db].into_iter().chain(arguments).collect();
    let status = quench(&arguments).stdout(writer).stderr(Stdio::null()).status().expect("it starts");
    assert_eq!(status.code(), Some(0));
    assert_eq!(run(&["get", db, "t", "a"]).stdout, b"1\n");
}
