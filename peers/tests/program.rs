//! The program `quench-peers`: one engine, a comparison of all, and the flags that it refuses.

use quench_bench::engine::Engine;
use quench_bench::peers::Peers;
use quench_peers::BuiltIn;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn run_bench(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quench-peers"));
    command.args(arguments).stdin(Stdio::null()).current_dir(env!("CARGO_TARGET_TMPDIR"));
    command.output().expect("the program starts")
}

#[track_caller]
fn expect_code(output: &Output, code: i32) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "stderr: {stderr}");
    if code == 2 {
        assert_eq!(stderr.trim_end().lines().count(), 1, "one line, not: {stderr}");
    }
}

#[track_caller]
fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[track_caller]
fn number(object: &Value, field: &str) -> f64 {
    object[field].as_f64().unwrap_or_else(|| panic!("{field} of {object}"))
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary directory")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("our own path")
}

/// Fails with one line that contains `parts`.
#[track_caller]
fn refused(arguments: &[&str], parts: &[&str]) {
    let output = run_bench(arguments);
    expect_code(&output, 2);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(parts.iter().all(|part| error.contains(part)), "{arguments:?}: {error}");
}

/// The engines that this build contains.
fn engines() -> Vec<&'static str> {
    let contained = |engine: &Engine| *engine == Engine::QuenchDb || BuiltIn.contains(*engine);
    Engine::ALL.into_iter().filter(contained).map(Engine::name).collect()
}

#[test]
fn every_engine_runs_a_workload_and_is_checked() {
    for engine in &engines()[1..] {
        let arguments =
            ["ycsb", "--engine", engine, "--rows", "2000", "--seconds", "0.3", "--check", "--json"];
        let output = run_bench(&arguments);
        expect_code(&output, 0);
        let report = json(&output);
        assert_eq!((&report["engine"], &report["tier"]), (&(*engine).into(), &"power cut".into()));
        assert!(number(&report, "committed") > 0.0, "{report}");
        assert_eq!(report["check"]["problems"].as_array().map(Vec::len), Some(0), "{report}");
    }
}

/// Each operation looks for its rows itself.
#[test]
fn every_engine_runs_the_operations_that_are_counted() {
    let output = run_bench(&["instructions", "--time", "--rows", "1000", "--small", "--json"]);
    expect_code(&output, 0);
    let report = json(&output);
    let lines = report["operations"].as_array().expect("a list");
    for line in lines {
        let own = ["scan-owned", "new-order", "payment"].iter().any(|name| line["operation"] == **name);
        let measured = line["engines"].as_object().expect("engines");
        assert_eq!(measured.len(), if own { 1 } else { engines().len() }, "{line}");
        assert!(measured.values().all(|number| number.as_u64() > Some(1)), "{line}");
    }
    assert_eq!(lines.len(), 15);
}

#[test]
fn comparison_has_every_engine_and_marks_another_tier() {
    let directory = directory();
    let plot = directory.path().join("bars.svg");
    let arguments = ["compare", "put", "--threads", "2", "--seconds", "0.2", "--rounds", "2", "--plot"];
    let place = ["--path", text(directory.path())];
    let output = run_bench(&[&arguments[..], &[text(&plot), "--json"], &place].concat());
    expect_code(&output, 0);
    let comparison = json(&output);
    let lines = comparison["engines"].as_array().expect("a list");
    let names: Vec<_> = lines.iter().filter_map(|line| line["engine"].as_str()).collect();
    assert_eq!((names, number(&comparison, "rounds")), (engines(), 2.0));
    for line in lines {
        assert_eq!((&line["tier"], &line["tier_differs"]), (&"power cut".into(), &false.into()));
        let throughput = &line["throughput_tps"];
        assert!(number(throughput, "min") > 0.0, "{line}");
        assert!(number(throughput, "min") <= number(throughput, "max"), "{line}");
        assert!(number(&line["p99_us"], "median") > 0.0, "{line}");
    }
    assert!(std::fs::read_to_string(&plot).expect("drawn").contains("fjall"));
    let left = std::fs::read_dir(directory.path()).expect("there").count();
    assert_eq!(left, 1, "nothing but the picture is left behind");

    let lazy = ["compare", "ycsb", "--engines", "quenchdb,lmdb", "--level", "lazy", "--rows", "1000"];
    let output = run_bench(&[&lazy[..], &["--seconds", "0.2", "--rounds", "1"], &place].concat());
    expect_code(&output, 0);
    let table = String::from_utf8_lossy(&output.stdout);
    let lmdb = table.lines().find(|line| line.trim_start().starts_with("lmdb")).expect("a line");
    assert!(lmdb.contains("power cut *"), "{table}");
    assert!(table.contains("not comparable") && !table.contains("best peer"), "{table}");
}

#[test]
fn flags_of_quenchdb_are_refused_for_peers() {
    for arguments in [
        &["put", "--engine", "redb", "--commit", "async"][..],
        &["put", "--engine", "fjall", "--level", "bounded"],
        &["ycsb", "--engine", "lmdb", "--reopen", "kill"],
        &["tpcc", "--engine", "sqlite", "--checkpoint", "none"],
        &["compare", "put", "--commit", "async"],
    ] {
        refused(arguments, &["only quenchdb does"]);
    }
    refused(&["scan", "--engine", "redb"], &["scan runs on quenchdb only"]);
    refused(&["compare"], &["compare needs the workload"]);
    refused(&["compare", "tatp"], &["compare needs the workload"]);
    refused(&["compare", "put", "--path", "/nowhere/at/all"], &["is not a directory"]);
}

/// `strace` counts one sync a write of SQLite's write-ahead log, and sees its errors reported.
#[test]
fn durability_of_an_engine_is_measured_from_outside() {
    if Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_err() {
        eprintln!("skipped: there is no strace");
        return;
    }
    let directory = directory();
    let output =
        run_bench(&["durability", "--engine", "sqlite-wal", "--dir", text(directory.path()), "--json"]);
    expect_code(&output, 0);
    let row = &json(&output)[0];
    assert_eq!(row["syncs_durable"]["fdatasync"], row["writes"], "{row}");
    assert_eq!(row["survives_kill"], true);
    assert!(row["failed_sync"]["said"]["error"].is_string(), "{row}");
    refused(&["durability", "--engine", "none"], &["there is no engine none", "sqlite"]);
    refused(&["durability", "--child", "mine"], &["NAME=COMMAND"]);
}
