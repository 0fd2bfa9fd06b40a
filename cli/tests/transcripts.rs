//! Golden transcripts: what a user types, and what the program answers.
//!
//! A file in `transcripts/` has comments (`# `), commands for the shell (`$ `), and after each
//! command its output on both streams. Other exit codes than 0 are in brackets. Times are `#`.
//! `QUENCH_BLESS=1` writes the output of this run into the files.

use crate::support::*;
use std::path::Path;
use std::process::{Command, Stdio};

/// Returns the text with `#` instead of numbers of seconds.
fn without_times(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((at, mark)) =
        [" in ", "\"seconds\":"].iter().filter_map(|mark| Some((rest.find(mark)?, *mark))).min()
    {
        let (before, after) = rest.split_at(at + mark.len());
        out.push_str(before);
        let number = after.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(after.len());
        let is_time = number > 0 && (mark != " in " || after[number..].starts_with(" s"));
        out.push_str(if is_time { "#" } else { &after[..number] });
        rest = &after[number..];
    }
    out + rest
}

/// Runs a command of a transcript. Returns its output, and the exit code unless that is 0.
fn answer(command: &str, directory: &Path) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_quench"));
    let folder = program.parent().and_then(Path::to_str).expect("our own path");
    let path = std::env::var("PATH").expect("a path of programs");
    let output = Command::new("sh")
        .args(["-c", &format!("exec 2>&1\n{command}")])
        .current_dir(directory)
        .env("PATH", format!("{folder}:{path}"))
        .env("HOME", directory)
        .stdin(Stdio::null())
        .output()
        .expect("a shell");
    let said = String::from_utf8(output.stdout).expect("text");
    let real = directory.canonicalize().expect("there");
    let mut said = without_times(&said.replace(text(&real), "DIR").replace(text(directory), "DIR"));
    if !said.is_empty() && !said.ends_with('\n') {
        said.push('\n');
    }
    match output.status.code() {
        Some(0) => said,
        code => said + &format!("[exit {}]\n", code.expect("it ended by itself")),
    }
}

/// Runs the commands of a transcript. Returns the transcript of this run.
fn replay(wanted: &str, directory: &Path) -> String {
    let mut now = String::new();
    for line in wanted.lines() {
        if line.starts_with("# ") {
            if !now.is_empty() {
                now.push('\n');
            }
            now.push_str(line);
            now.push('\n');
        } else if let Some(command) = line.strip_prefix("$ ") {
            now.push_str(line);
            now.push('\n');
            now.push_str(&answer(command, directory));
        }
    }
    now
}

#[track_caller]
fn check(name: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts").join(name);
    let wanted = std::fs::read_to_string(&file).expect("a transcript");
    let dir = directory();
    let now = replay(&wanted, dir.path());
    if std::env::var_os("QUENCH_BLESS").is_some() {
        return std::fs::write(&file, now).expect("our own file");
    }
    assert!(wanted.contains("$ quench "), "{name} has commands");
    for (number, (was, is)) in wanted.lines().zip(now.lines()).enumerate() {
        assert_eq!(was, is, "{name} line {} (QUENCH_BLESS=1 accepts):\n{now}", number + 1);
    }
    assert_eq!(wanted, now, "{name} (QUENCH_BLESS=1 accepts)");
}

#[test]
fn tables_are_created_counted_and_dropped() {
    check("tables.txt");
}

#[test]
fn rows_are_shown_as_they_are_and_as_json() {
    check("rows.txt");
}

#[test]
fn loads_and_dumps_in_every_format() {
    check("formats.txt");
}

#[test]
fn bad_lines_are_named_and_skipped() {
    check("bad_lines.txt");
}

#[test]
fn mistakes_create_nothing() {
    check("mistakes.txt");
}

#[test]
fn errors_are_json_objects_on_request() {
    check("json_errors.txt");
}

#[test]
fn the_shell_runs_scripts_up_to_the_first_error() {
    check("shell.txt");
}
