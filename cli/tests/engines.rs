//! `bench --engine` and `bench compare` in the program without other engines.

use crate::support::*;

/// Asserts that a benchmark fails with one line that contains `parts`.
#[track_caller]
fn refused(arguments: &[&str], parts: &[&str]) {
    let output = run_bench(arguments);
    expect_code(&output, 2);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(parts.iter().all(|part| error.contains(part)), "{arguments:?}: {error}");
}

#[test]
fn other_engines_name_the_program_that_contains_them() {
    for arguments in [
        &["put", "--engine", "rocksdb"][..],
        &["tpcc", "--engine", "sqlite"],
        &["compare", "put"],
        &["compare", "ycsb", "--engines", "quenchdb,lmdb"],
    ] {
        refused(
            arguments,
            &["is not part of this program", "--manifest-path peers/Cargo.toml", "docs/guide/benchmark.md"],
        );
    }
}

#[test]
fn flags_that_do_not_go_together_are_refused() {
    refused(&["put", "ycsb"], &["put takes no second name (ycsb)"]);
    refused(&["put", "--rounds", "2"], &["--rounds goes with compare"]);
    refused(&["put", "--engines", "quenchdb"], &["--engines goes with compare"]);
    refused(&["compare", "put", "--engine", "quenchdb"], &["--engine does not go with compare"]);
    refused(&["compare", "put", "--reopen", "kill"], &["--reopen does not go with compare"]);
    let output = run_bench(&["put", "--engine", "oracle"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && error.contains("quenchdb, rocksdb, sqlite"), "{error}");
}

#[test]
fn a_run_of_quench_counts_bytes_the_block_device_wrote() {
    let put = |seconds: &str| {
        let directory = directory();
        let path = directory.path().join("db");
        let arguments = ["put", "--engine", "quenchdb", "--threads", "2", "--json", "--path", text(&path)];
        let output = run_bench(&[&arguments[..], &["--seconds", seconds]].concat());
        expect_code(&output, 0);
        json(&output)
    };
    let report = long_enough(0.3, put, |report| number(report, "committed") > 0.0);
    assert_eq!((&report["engine"], &report["tier"]), (&"quenchdb".into(), &"power cut".into()));
    assert!(number(&report["write_latency_us"], "p50") > 0.0, "{report}");
    if report["traffic"].is_object() {
        assert!(number(&report["traffic"], "bytes_per_transaction") > 108.0, "{}", report["traffic"]);
    }
}

#[test]
fn instructions_refuse_what_they_cannot_count() {
    refused(&["put", "--time"], &["--time does not go with put"]);
    refused(&["instructions", "gett"], &["no operation is called `gett`", "open-get"]);
    refused(&["instructions", "--engines", "quenchdb,lmdb"], &["lmdb is not part of this program"]);
    refused(&["instructions", "--engine", "quenchdb"], &["--engine does not go with instructions"]);
    refused(&["instructions", "--time", "--recorded", "numbers.json"], &["build it with --release"]);
    let without = quench(&["bench", "instructions", "get"]).env("PATH", "").output().expect("starts");
    expect_code(&without, 2);
    let error = String::from_utf8_lossy(&without.stderr);
    assert!(error.contains("apt-get install valgrind") && error.contains("--time"), "{error}");
}

#[track_caller]
fn numbers(arguments: &[&str]) -> serde_json::Value {
    let output = run_bench(&[&["instructions", "--json"], arguments].concat());
    expect_code(&output, 0);
    json(&output)
}

#[test]
fn instructions_has_a_time_of_each_operation() {
    let report = numbers(&["--time", "--rows", "1000", "--small"]);
    assert_eq!((&report["unit"], number(&report, "rows")), (&"nanoseconds".into(), 1000.0));
    let lines = report["operations"].as_array().expect("a list");
    assert_eq!(lines.len(), 15, "{report}");
    assert!(lines.iter().all(|line| number(&line["engines"], "quenchdb") > 1.0), "{report}");
}

#[test]
fn valgrind_counts_instructions_of_the_operation_alone() {
    if std::process::Command::new("valgrind").arg("--version").output().is_err() {
        return skip(&"there is no valgrind");
    }
    let of = |rows: &str| {
        let report = numbers(&["get", "roll-back", "--rows", rows]);
        let of_line = |place: usize| number(&report["operations"][place]["engines"], "quenchdb");
        [of_line(0), of_line(1)]
    };
    // The fill of twice the rows is not counted.
    let ([get, roll_back], [get_of_more, _]) = (of("1000"), of("2000"));
    assert!(get > 100.0 && roll_back > 50.0, "{get}, {roll_back}");
    assert!((get - get_of_more).abs() < get * 0.1, "{get} and {get_of_more}");
}
