//! `bench --engine` and `bench compare`, with and without the other engines built in.

mod support;

use support::*;

/// Fails with one line that contains `parts`.
#[track_caller]
fn refused(arguments: &[&str], parts: &[&str]) {
    let output = run_bench(arguments);
    expect_code(&output, 2);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(parts.iter().all(|part| error.contains(part)), "{arguments:?}: {error}");
}

#[test]
#[cfg(not(feature = "peers"))]
fn other_engines_say_how_to_build_with_them() {
    for arguments in [
        &["put", "--engine", "rocksdb"][..],
        &["tpcc", "--engine", "sqlite"],
        &["compare", "put"],
        &["compare", "ycsb", "--engines", "quenchdb,lmdb"],
    ] {
        refused(arguments, &["is not part of this program", "--features peers", "docs/benchmark.md"]);
    }
}

#[test]
fn flags_that_do_not_go_together_are_refused() {
    refused(&["put", "ycsb"], &["put takes no second workload (ycsb)"]);
    refused(&["put", "--rounds", "2"], &["--rounds goes with compare"]);
    refused(&["put", "--engines", "quenchdb"], &["--engines goes with compare"]);
    refused(&["compare", "put", "--engine", "quenchdb"], &["--engine does not go with compare"]);
    refused(&["compare", "put", "--reopen", "kill"], &["--reopen does not go with compare"]);
    let output = run_bench(&["put", "--engine", "oracle"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && error.contains("quenchdb, rocksdb, sqlite"), "{error}");
}

#[test]
fn a_run_with_the_own_engine_chosen_counts_what_the_block_device_wrote() {
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

#[cfg(feature = "peers")]
mod built_in {
    use super::*;

    const ENGINES: [&str; 6] = ["quenchdb", "rocksdb", "sqlite", "lmdb", "redb", "fjall"];

    #[test]
    fn every_engine_runs_a_workload_and_is_checked() {
        for engine in &ENGINES[1..] {
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

    #[test]
    fn a_comparison_has_every_engine_with_its_tier_and_marks_another_one() {
        let directory = directory();
        let plot = directory.path().join("bars.svg");
        let arguments = ["compare", "put", "--threads", "2", "--seconds", "0.2", "--rounds", "2", "--plot"];
        let place = ["--path", text(directory.path())];
        let output = run_bench(&[&arguments[..], &[text(&plot), "--json"], &place].concat());
        expect_code(&output, 0);
        let comparison = json(&output);
        let lines = comparison["engines"].as_array().expect("a list");
        let names: Vec<_> = lines.iter().filter_map(|line| line["engine"].as_str()).collect();
        assert_eq!((names, number(&comparison, "rounds")), (ENGINES.to_vec(), 2.0));
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
    fn what_only_quenchdb_can_do_is_refused_for_others() {
        for arguments in [
            &["put", "--engine", "redb", "--commit", "async"][..],
            &["put", "--engine", "fjall", "--level", "bounded"],
            &["ycsb", "--engine", "lmdb", "--reopen", "kill"],
            &["tpcc", "--engine", "sqlite", "--checkpoint", "none"],
            &["compare", "put", "--commit", "async"],
        ] {
            refused(arguments, &["that is quenchdb's alone"]);
        }
        refused(&["scan", "--engine", "rocksdb"], &["scan runs on quenchdb only"]);
        refused(&["compare"], &["compare needs the workload"]);
        refused(&["compare", "tatp"], &["compare needs the workload"]);
        refused(&["compare", "put", "--path", "/nowhere/at/all"], &["is not a directory"]);
    }
}
