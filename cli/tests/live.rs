//! The program on a pseudo-terminal: `--live` draws, ends on request, and restores the terminal;
//! long operations print their progress.

use crate::support::terminal::OnTerminal;
use crate::support::*;
use quenchdb::internals::base::depth::some;
use std::io::Write;

const SMALL: [&str; 6] = ["--threads", "2", "--memory-bytes", "64m", "--rows", "1000"];

#[test]
fn a_key_or_signal_ends_an_endless_run_with_its_result() {
    let directory = directory();
    for key in some(&[Some(b'q'), Some(0x1b), None, Some(3)], 2) {
        let mut run = OnTerminal::start(&[&["live"][..], &SMALL].concat(), directory.path());
        run.wait_for("measuring, ");
        run.wait_for(" now, ");
        assert!(run.is_raw());
        match key {
            Some(key) => run.terminal.write_all(&[key]).expect("typed"),
            None => {
                let child = rustix::process::Pid::from_child(&run.child);
                rustix::process::kill_process(child, rustix::process::Signal::TERM).expect("alive");
            }
        }
        let (status, after) = run.end();
        assert_eq!(status.code(), Some(0), "{after}");
        assert!(after.contains("transactions/s  (") && after.contains("longest stall"), "{key:?}: {after}");
    }
    assert_eq!(std::fs::read_dir(directory.path()).expect("there").count(), 0, "nothing is left behind");
}

#[test]
fn a_killed_child_leaves_the_terminal_restored() {
    let directory = directory();
    let arguments =
        ["tatp", "--subscribers", "500", "--live", "--seconds", "3", "--reopen", "kill", "--check"];
    let mut run = OnTerminal::start(&[&arguments[..], &SMALL[..4]].concat(), directory.path());
    run.wait_for(" now, ");
    let (status, after) = run.end();
    assert_eq!(status.code(), Some(0), "{after}");
    assert!(after.contains("everything holds") && after.contains("acknowledged changes"), "{after}");
}

#[test]
fn an_early_stop_restores_the_terminal_without_a_result() {
    let directory = directory();
    let load = ["live", "--threads", "1", "--rows", "100000000"];
    let mut run = OnTerminal::start(&load, directory.path());
    run.wait_for("loading rows");
    run.terminal.write_all(b"q").expect("typed");
    let (status, after) = run.end();
    assert_eq!((status.code(), after.contains("transactions")), (Some(130), false), "{after:?}");
    assert_eq!(std::fs::read_dir(directory.path()).expect("there").count(), 0, "nothing is left behind");
}

#[test]
fn without_a_terminal_live_fails_with_one_line() {
    for arguments in [&["live"][..], &["tpcb", "--live"], &["put", "--live", "--json"]] {
        let output = run_bench(arguments);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.lines().count() == 1 && said.contains("is not a terminal"), "{said}");
        assert!(!said.contains('\x1b'), "{said:?}");
    }
    for arguments in [&["scan", "--live"][..], &["device", "--live"], &["load", "--live"]] {
        let output = run_bench(arguments);
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains("--live does not go with"));
    }
}

#[test]
fn long_reads_print_progress_but_not_among_rows() {
    let directory = directory();
    let (path, file) = (directory.path().join("db"), directory.path().join("rows"));
    let db = text(&path);
    expect_code(&run_with_input(&["load", db, "t", "-"], b"a\t1\nb\t2\n"), 0);
    let written = |arguments: &[&str]| {
        let (status, written) = OnTerminal::with(quench(arguments)).wait();
        assert_eq!(status.code(), Some(0), "{written}");
        written
    };
    for arguments in [&["tables", db, "--count"][..], &["dump", db, "t", text(&file)]] {
        let written = written(arguments);
        assert!(written.contains("t: 0 rows"), "{arguments:?}: {written:?}");
    }
    assert!(written(&["log", db]).contains("log bytes scanned"));
    let rows = written(&["dump", db, "t"]);
    assert!(rows.contains("a\t1") && !rows.contains("rows"), "{rows:?}");
}
