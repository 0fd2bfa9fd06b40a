//! The standard workloads through the program, checked after a run, after a kill, and after a
//! close, with every preset.

use crate::support::*;
use quenchdb::internals::base::depth::some;
use serde_json::Value;

/// Runs a benchmark in a new directory. Returns its report.
#[track_caller]
fn bench(arguments: &[&str]) -> Value {
    let directory = directory();
    let path = directory.path().join("db");
    let path = text(&path);
    let common = ["--path", path, "--threads", "2", "--memory-bytes", "256m", "--json"];
    let output = run_bench(&[arguments, &common].concat());
    expect_code(&output, 0);
    json(&output)
}

#[track_caller]
fn expect_sound(report: &Value) {
    let check = &report["check"];
    assert_eq!(check["problems"].as_array().map(Vec::len), Some(0), "{check}");
    assert!(number(check, "rows") > 100.0, "{check}");
}

/// Runs a benchmark with `--check` and asserts that it finds nothing.
#[track_caller]
fn sound_bench(arguments: &[&str], seconds: &str) -> Value {
    let report = bench(&[arguments, &["--seconds", seconds, "--check"]].concat());
    expect_sound(&report);
    report
}

const TPCC: [&str; 4] = ["tpcc", "--small", "--warehouses", "2"];

#[test]
fn tpcc_is_consistent_after_kills_with_every_preset() {
    for preset in some(&quenchdb::Preset::ALL.map(quenchdb::Preset::name), 2) {
        for commit in ["blocking", "async"] {
            let options = ["--preset", preset, "--commit", commit, "--reopen", "kill"];
            let run = |seconds: &str| sound_bench(&[&TPCC[..], &options].concat(), seconds);
            let report = long_enough(0.5, run, |report| number(report, "replayed") > 0.0);
            assert!(number(&report, "replayed") > 0.0, "{preset} {commit}: {report}");
            assert_eq!(report["reopened"]["after"], "killed");
        }
    }
}

#[test]
fn tpcc_is_consistent_after_a_run_and_reports_every_type() {
    let options = ["--deck", "--home", "random", "--snapshots", "--commit", "async"];
    let every = |report: &Value| {
        let kinds = report["kinds"].as_array().expect("a list");
        kinds.iter().all(|kind| number(&kind["latency_us"], "p50") > 0.0)
    };
    let report = long_enough(
        0.5,
        |seconds| sound_bench(&[&TPCC[..], &options].concat(), seconds),
        |report| every(report) && number(report, "committed") > 500.0,
    );
    let kinds = report["kinds"].as_array().expect("a list");
    let names: Vec<_> = kinds.iter().filter_map(|kind| kind["kind"].as_str()).collect();
    assert_eq!(names, ["new-order", "payment", "order-status", "delivery", "stock-level"]);
    let all: f64 = kinds.iter().map(|kind| number(kind, "committed") + number(kind, "rolled_back")).sum();
    assert_eq!(all, number(&report, "committed") + number(&report, "rolled_back"), "{report}");
    assert!(every(&report), "{report}");
    let new_orders = number(&kinds[0], "committed") / number(&report, "committed");
    assert!((0.3..0.6).contains(&new_orders), "{new_orders}");
    let conflicts: f64 = kinds.iter().map(|kind| number(kind, "conflicts")).sum();
    assert_eq!(conflicts, number(&report, "aborted"));
    let parameters = &report["parameters"];
    assert_eq!((&parameters["mix"], &parameters["home"]), (&"deck".into(), &"random".into()));
    assert!(number(&report, "log_bytes_per_transaction") > 100.0, "{report}");
    let stages = &report["stages"];
    for stage in ["execute_us", "commit_call_us", "log_insert_us", "flush_wait_us", "acknowledge_us"] {
        assert!(number(stages, stage) > 0.0, "{stage}: {stages}");
    }
    assert!(number(stages, "row_wait_us") >= 0.0, "{stages}");
}

#[test]
fn every_workload_is_sound_after_a_close_and_after_a_kill() {
    let workloads: [&[&str]; 5] = [
        &["tpcb", "--branches", "3", "--accounts", "500", "--skew", "0.2"],
        &["tatp", "--subscribers", "2000"],
        &["mixed", "--small", "--rows", "2000", "--mix", "a"],
        &["ycsb", "--rows", "2000", "--mix", "d"],
        &[
            "ycsb",
            "--rows",
            "2000",
            "--mix",
            "rmw",
            "--value-bytes",
            "80",
            "--field-bytes",
            "8",
            "--ops",
            "10",
        ],
    ];
    for workload in workloads {
        for reopen in some(&["kill", "close"], 1) {
            let run = |seconds: &str| sound_bench(&[workload, &["--reopen", reopen]].concat(), seconds);
            let report = long_enough(0.3, run, |report| number(report, "committed") > 0.0);
            assert!(number(&report, "committed") > 0.0, "{workload:?}: {report}");
        }
    }
}

#[test]
fn acknowledged_changes_survive_a_kill_at_every_level() {
    for workload in [&["ycsb", "--rows", "2000", "--zipf", "0.9"][..], &["tatp", "--subscribers", "1000"]] {
        let levels =
            [("blocking", "durable"), ("async", "durable"), ("blocking", "bounded"), ("async", "bounded")];
        for (commit, level) in some(&levels, 2) {
            for preset in some(&["group", "autonomous"], 1) {
                let options = ["--commit", commit, "--level", level, "--preset", preset];
                let arguments = [workload, &options, &["--reopen", "kill"]].concat();
                let looked_for = |report: &Value| number(&report["check"], "acknowledged_writes");
                let run = |seconds: &str| sound_bench(&arguments, seconds);
                let report = long_enough(0.3, run, |report| looked_for(report) > 10.0);
                assert!(looked_for(&report) > 10.0, "{workload:?} {options:?}: {report}");
            }
        }
    }
    // Only a run with a kill looks up each acknowledged write.
    let report = bench(&["ycsb", "--rows", "2000", "--seconds", "0.2", "--reopen", "close", "--check"]);
    assert_eq!(report["check"]["acknowledged_writes"], 0);
}

#[test]
fn loading_is_durable_complete_and_reported() {
    for order in ["key", "random"] {
        let report = bench(&["load", "--rows", "30000", "--order", order, "--batch", "100", "--check"]);
        expect_sound(&report);
        assert_eq!((number(&report, "rows"), &report["order"]), (30_000.0, &order.into()));
        let seconds = number(&report, "seconds");
        assert!((number(&report, "rows_per_second") * seconds - 30_000.0).abs() < 1.0, "{report}");
        assert!(seconds > 0.0 && number(&report, "with_checkpoint_seconds") >= seconds, "{report}");
        // Every row was written to the log, and then to the page file.
        assert!(number(&report, "device_bytes") >= 30_000.0 * 108.0, "{report}");
        assert!(number(&report, "store_bytes_written") >= 30_000.0 * 108.0, "{report}");
    }
}

#[test]
fn every_ycsb_mix_has_its_operation_shares() {
    let share = |report: &Value, name: &str| -> f64 {
        let kinds = report["kinds"].as_array().expect("a list");
        let of = |kind: &&Value| kind["kind"] == name;
        number(kinds.iter().find(of).expect("the type"), "committed") / number(report, "committed")
    };
    for (mix, expected) in [
        ("a", [("read", 0.5), ("update", 0.5)]),
        ("b", [("read", 0.95), ("update", 0.05)]),
        ("d", [("read", 0.95), ("insert", 0.05)]),
        ("e", [("scan", 0.95), ("insert", 0.05)]),
        ("f", [("read", 0.5), ("modify", 0.5)]),
    ] {
        let options = ["ycsb", "--rows", "3000", "--mix", mix, "--commit", "async"];
        let run = |seconds: &str| sound_bench(&options, seconds);
        let report = long_enough(0.3, run, |report| number(report, "committed") > 1000.0);
        for (kind, expected) in expected {
            let seen = share(&report, kind);
            assert!((seen - expected).abs() < 0.1, "{mix}: {seen} of {kind}");
        }
    }
    let report = bench(&["ycsb", "--rows", "3000", "--mix", "c", "--seconds", "0.2"]);
    assert_eq!((share(&report, "read"), number(&report, "log_bytes")), (1.0, 0.0));
    assert_eq!(report["parameters"]["distribution"], "zipfian");
}

/// Uses a simulated device, whose flushes take the same time on every machine.
#[test]
fn an_open_loop_keeps_its_rate_and_counts_from_the_arrival() {
    const RUNS_MAX: usize = 10;
    let open = |rate: &str, more: &[&str]| {
        let device = ["--device", "sim:nvme-consumer", "--threads", "2", "--memory-bytes", "256m", "--json"];
        let output = run_bench(&[&["ycsb", "--rows", "1000", "--rate", rate], more, &device[..]].concat());
        expect_code(&output, 0);
        json(&output)
    };
    for (arrivals, commit) in some(&[("poisson", "blocking"), ("fixed", "async")], 1) {
        let options = ["--mix", "a", "--arrivals", arrivals, "--commit", commit, "--seconds", "2"];
        let mut seen: Vec<f64> = Vec::new();
        // A machine that stalls commits fewer, or more if requests from before the measurement are
        // left.
        while seen.last().is_none_or(|rate| !(300.0..500.0).contains(rate)) {
            assert!(seen.len() < RUNS_MAX, "{arrivals}: {seen:?}");
            let report = open("400", &options);
            assert_eq!((&report["arrivals"], number(&report, "rate_tps")), (&arrivals.into(), 400.0));
            seen.push(number(&report, "throughput_tps"));
        }
    }
    // Above the possible rate, the time in the queue counts.
    let report = open("50000000", &["--mix", "f", "--seconds", "1"]);
    let kinds = report["kinds"].as_array().expect("a list");
    let modify = kinds.iter().find(|kind| kind["kind"] == "modify").expect("the type");
    let (p50, flush) = (number(&modify["latency_us"], "p50"), number(&report["commit_latency_us"], "p50"));
    assert!(p50 > 100_000.0 && p50 > 5.0 * flush, "{p50} us from arrival, {flush} us to commit");
}

#[test]
fn a_population_is_kept_and_reused_and_another_one_is_refused() {
    let directory = directory();
    let path = directory.path().join("db");
    let path = text(&path);
    let with = |arguments: &[&str]| {
        let common = ["--path", path, "--threads", "2", "--memory-bytes", "256m", "--seconds", "0.3"];
        run_bench(&[arguments, &common].concat())
    };
    let small = ["tpcc", "--small", "--warehouses", "1", "--check", "--json"];
    for _ in 0..2 {
        let output = with(&[&small[..], &["--reuse", "--runs", "3"]].concat());
        expect_code(&output, 0);
        let report = json(&output);
        expect_sound(&report);
        let runs = report["runs"]["throughput_tps"].as_array().expect("a list").clone();
        assert_eq!(runs.len(), 3);
        assert!(runs.contains(&report["throughput_tps"]), "{report}");
    }
    for refused in [
        &["tpcc", "--small", "--warehouses", "2", "--reuse"][..],
        &["tatp", "--subscribers", "100", "--reuse"],
        &small,
    ] {
        let output = with(refused);
        assert_eq!(output.status.code(), Some(2), "{refused:?}");
    }
}

#[test]
fn a_database_without_a_path_is_removed_unless_it_is_to_be_kept() {
    let directory = directory();
    let run = |arguments: &[&str]| {
        let common = [
            "bench",
            "tpcb",
            "--branches",
            "1",
            "--accounts",
            "100",
            "--seconds",
            "0.1",
            "--memory-bytes",
            "64m",
        ];
        let mut command = quench(&[&common, arguments].concat());
        let output = command.current_dir(directory.path()).output().expect("the program starts");
        expect_code(&output, 0);
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let left = || -> Vec<_> {
        let entries = std::fs::read_dir(directory.path()).expect("there");
        entries.map(|entry| entry.expect("readable").path()).collect()
    };
    run(&[]);
    assert!(left().is_empty(), "{:?}", left());
    let said = run(&["--keep"]);
    let [kept] = &left()[..] else { panic!("one directory: {:?}", left()) };
    let kept = kept.to_str().expect("UTF-8");
    assert!(said.contains(kept), "{said} names {kept}");
    run(&["--reuse", "--check", "--path", kept]);
}

#[test]
fn every_isolation_and_release_of_locks_keeps_the_balances() {
    let pessimistic = ["--locking", "pessimistic"];
    for isolation in ["read-committed", "snapshot", "serializable"] {
        for (release, order) in [("pre-commit", "last"), ("commit", "early"), ("unsafe", "first")] {
            let small = ["tpcb", "--branches", "1", "--accounts", "50", "--branch-update", order];
            let locks = ["--isolation", isolation, "--lock-release", release, "--lock-timeout-ms", "60000"];
            let run = |seconds: &str| sound_bench(&[&small[..], &pessimistic, &locks].concat(), seconds);
            let report = long_enough(0.2, run, |report| number(report, "committed") > 0.0);
            assert!(number(&report, "committed") > 0.0, "{report}");
            let said = ["isolation", "locking", "lock_release"].map(|field| report[field].as_str());
            assert_eq!(said, [isolation, "pessimistic", release].map(Some));
            let level = if release == "unsafe" { "lazy" } else { "durable" };
            assert_eq!(
                (&report["level"], &report["parameters"]["branch_update"]),
                (&level.into(), &order.into())
            );
        }
    }
}

#[test]
fn serializable_workloads_stay_sound_with_either_locking() {
    for workload in some(
        &[
            &["tpcc", "--small", "--warehouses", "1"][..],
            &["tatp", "--subscribers", "500"],
            &["ycsb", "--mix", "f", "--rows", "1000"],
        ],
        2,
    ) {
        for locking in ["optimistic", "pessimistic"] {
            let locks = ["--isolation", "serializable", "--locking", locking];
            let run = |seconds: &str| sound_bench(&[workload, &locks].concat(), seconds);
            let report = long_enough(0.3, run, |report| number(report, "committed") > 0.0);
            assert!(number(&report, "committed") > 0.0, "{report}");
        }
    }
}

#[test]
fn waits_and_aborts_are_reported_by_reason() {
    let aborts = |report: &Value| {
        let reasons = ["conflict", "deadlock", "timeout", "validation_key", "validation_range"];
        reasons.map(|reason| number(&report["contention"]["aborts"], reason))
    };
    let counter = ["counter", "--threads", "4", "--check"];
    let run = |arguments: &[&str], seconds: &str| {
        let directory = directory();
        let path = directory.path().join("db");
        let common = ["--path", text(&path), "--memory-bytes", "256m", "--json", "--seconds", seconds];
        let output = run_bench(&[&counter[..], arguments, &common].concat());
        expect_code(&output, 0);
        json(&output)
    };
    let waiting = long_enough(
        0.3,
        |seconds| run(&["--locking", "pessimistic"], seconds),
        |report| number(&report["contention"]["locks"], "count") > 0.0,
    );
    let contention = &waiting["contention"];
    assert!(number(&contention["locks"]["wait_us"], "p50") > 0.0, "{contention}");
    assert!(number(&contention["log_wait_us"], "stdev") > 0.0, "{contention}");
    assert_eq!((aborts(&waiting), number(&waiting, "aborted")), ([0.0; 5], 0.0), "{contention}");
    let failing = long_enough(
        0.3,
        |seconds| run(&["--isolation", "snapshot"], seconds),
        |report| aborts(report)[0] > 0.0,
    );
    let contention = &failing["contention"];
    assert!(aborts(&failing)[0] > 0.0 && aborts(&failing)[1..] == [0.0; 4], "{contention}");
    assert!(number(contention, "retry_seconds") > 0.0, "{contention}");
}

#[test]
fn queue_loses_no_row_and_reports_its_cost_over_time() {
    let small = ["queue", "--backlog", "3000"];
    for (options, seconds) in [
        (&["--producers", "1", "--long-snapshot", "--level", "lazy"][..], "0.5"),
        (&["--queues", "2", "--locking", "pessimistic", "--runs", "2"], "0.3"),
        (&["--queues", "3", "--reopen", "kill"], "0.5"),
    ] {
        let report = sound_bench(&[&small[..], options].concat(), seconds);
        assert!(number(&report, "committed") > 0.0, "{report}");
        let series = report["series"].as_array().expect("a list");
        assert!(series.iter().any(|interval| number(interval, "cpu_us") > 0.0), "{report}");
        assert_eq!(report["parameters"]["backlog"], "3000");
    }
}

#[test]
fn deliveries_alone_and_transactions_of_one_kind_stay_sound() {
    let small = [&TPCC[..], &["--only", "delivery"]].concat();
    let report = long_enough(0.5, |s| sound_bench(&small, s), |report| number(report, "committed") > 100.0);
    assert!(number(&report, "logical_bytes_written") > 1e3 * number(&report, "committed"), "{report}");
    let ycsb = ["ycsb", "--mix", "a", "--ops", "10", "--mix-per", "transaction", "--rows", "1000"];
    let report = long_enough(0.3, |s| sound_bench(&ycsb, s), |report| number(report, "committed") > 100.0);
    let kinds = report["kinds"].as_array().expect("kinds");
    let named: Vec<&str> = kinds.iter().filter_map(|kind| kind["kind"].as_str()).collect();
    assert!(named.starts_with(&["read", "update"]), "{named:?}");
}

#[test]
fn contradictory_or_useless_flags_are_refused() {
    for arguments in [
        &["put", "--check"][..],
        &["soak", "--runs", "2"],
        &["tpcc", "--only", "update-location"],
        &["ycsb", "--only", "read"],
        &["tpcc", "--runs", "2", "--reopen", "kill"],
        &["mixed", "--threads", "1"],
        &["ycsb", "--field-bytes", "8", "--value-bytes", "81"],
        &["ycsb", "--reuse"],
        &["ycsb", "--rate", "0"],
        &["tpcb", "--skew", "0.7"],
        &["tpcc", "--mix", "a"],
        &["tpcc", "--deck", "--only", "payment"],
        &["tpcc", "--think-times", "--rate", "10"],
        &["tatp", "--warehouses", "2"],
        &["ycsb", "--branches", "2"],
        &["put", "--uniform"],
        &["put", "--batch", "7"],
        &["load", "--reopen", "close"],
        &["load", "--runs", "2"],
        &["load", "--plot", "load.svg"],
        &["tpcb", "--order", "key"],
        &["ycsb", "--branch-update", "early"],
        &["tpcb", "--lock-release", "commit"],
        &["tpcb", "--lock-release", "unsafe", "--locking", "optimistic"],
        &["tpcb", "--locking", "pessimistic", "--lock-release", "commit", "--commit", "async"],
        &["tpcb", "--locking", "pessimistic", "--lock-release", "commit", "--level", "lazy"],
        &["tpcb", "--locking", "pessimistic", "--lock-release", "unsafe", "--level", "bounded"],
        &["tpcb", "--lock-timeout-ms", "0"],
        &["tpcb", "--counters", "2"],
        &["tpcb", "--long-snapshot"],
        &["queue", "--queues", "0"],
        &["tpcc", "--mix-per", "transaction"],
        &["counter", "--counters", "0"],
        &["load", "--isolation", "serializable"],
        &["put", "--reopen", "close", "--rows", "10", "--locking", "pessimistic"],
        &["device", "--log-device", "sim:disk-10ms"],
        &["tpcb", "--log-device", "sim:disk-10ms", "--preset", "passive"],
    ] {
        let output = run_bench(arguments);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
