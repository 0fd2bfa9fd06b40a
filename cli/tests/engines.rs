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
