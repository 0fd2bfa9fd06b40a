//! How often a database makes something durable that does not have to be: at its creation, at an
//! open, at a close. Other tests show that what is left out is not needed: they cut the power at
//! every operation.

use crate::support::processes::one_test;
use crate::support::skipped::skip;
use quenchdb::Database;
use std::path::Path;
use std::process::Command;

fn mark(directory: &Path, name: &str) {
    // A call that strace shows.
    let _ = std::fs::metadata(directory.join(name));
}

/// Not a test: the code that strace watches.
#[test]
fn child() {
    let Some(directory) = std::env::var_os("QUENCH_FLUSHES") else { return };
    let directory = Path::new(&directory);
    mark(directory, "mark-create");
    let db = Database::open(directory.join("db")).expect("opens");
    mark(directory, "mark-row");
    let table = db.create_table("t").expect("new");
    db.transact(|tx| tx.insert(&table, "a", "1")).expect("commits");
    mark(directory, "mark-close");
    db.close().expect("closes");
    for name in ["mark-open", "mark-again"] {
        mark(directory, name);
        let db = Database::open(directory.join("db")).expect("opens");
        mark(directory, "mark-opened");
        let table = db.table("t").expect("there");
        db.transact(|tx| tx.insert(&table, "b", "2")).expect("commits");
        mark(directory, "mark-close");
        db.close().expect("closes");
    }
    mark(directory, "mark-end");
}

/// Returns each mark of a trace with the number of flushes until the next one.
fn flushes_by_mark(trace: &str) -> Vec<(String, usize)> {
    let mut counts: Vec<(String, usize)> = Vec::new();
    for line in trace.lines() {
        if let Some((_, name)) = line.split_once("/mark-") {
            counts.push((name.split('"').next().unwrap_or_default().to_string(), 0));
        }
        // A call that is interrupted in the trace has a second line.
        let is_flush =
            ["fsync(", "fdatasync(", "RWF_DSYNC", "sync_file_range("].iter().any(|call| line.contains(call));
        if let (true, Some(last)) = (is_flush, counts.last_mut()) {
            last.1 += 1;
        }
    }
    counts
}

/// Runs the child under strace in a new directory.
fn trace_child() -> Vec<(String, usize)> {
    // Not in memory, where nothing is flushed.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("space");
    let trace = directory.path().join("trace");
    let test = one_test(module_path!(), "child");
    let mut command = Command::new("strace");
    let calls = "trace=fsync,fdatasync,pwritev2,sync_file_range,stat,statx,newfstatat";
    command.args(["-f", "-e", calls, "-o"]).arg(&trace);
    command.arg(test.get_program()).args(test.get_args()).env("QUENCH_FLUSHES", directory.path());
    let ended = command.output().expect("starts");
    assert!(ended.status.success(), "{ended:?}");
    flushes_by_mark(&std::fs::read_to_string(&trace).expect("written"))
}

/// The most flushes that a part of a session needs.
fn most(name: &str) -> usize {
    match name {
        "create" => 9,
        // The definition of the table and the row.
        "row" => 2,
        "close" => 3,
        "open" | "again" => 2,
        "opened" => 1,
        "end" => 0,
        other => panic!("no such mark: {other}"),
    }
}

#[test]
fn short_sessions_make_few_flushes() {
    if Command::new("strace").arg("-V").output().is_err() {
        skip(&"there is no strace");
        return;
    }
    // On a busy machine a thread in the background may flush beside them.
    let mut seen = Vec::new();
    for _ in 0..5 {
        let counts = trace_child();
        assert_eq!(counts.len(), 10, "{counts:?}");
        if counts.iter().all(|(name, count)| *count <= most(name)) {
            return;
        }
        seen.push(counts);
    }
    panic!("too many flushes: {seen:?}");
}
