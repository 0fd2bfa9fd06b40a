//! Modelled devices through the program: each has the latency of its model, and every workload runs
//! on them.

use crate::support::*;
use quenchdb::internals::base::depth::some;
use serde_json::Value;
use std::collections::BTreeSet;

#[track_caller]
fn bench(arguments: &[&str]) -> Value {
    let output = run_bench(&[arguments, &["--memory-bytes", "256m", "--json"]].concat());
    expect_code(&output, 0);
    json(&output)
}

/// Every model, and the median of its durable 4 KiB write in microseconds.
const FLOORS: [(&str, f64); 10] = [
    ("sim:nvme-enterprise", 11.0),
    ("sim:nvme-consumer", 333.0),
    ("sim:disk-170iops", 5_882.0),
    ("sim:disk-10ms", 10_000.0),
    ("sim:ebs-gp3", 1_000.0),
    ("sim:ebs-io2", 500.0),
    ("sim:s3-express", 8_000.0),
    ("sim:s3-standard", 77_000.0),
    ("sim:memory-0us", 0.0),
    ("sim:memory-1.2us", 1.2),
];

/// Runs of one model.
const RUNS_MAX: usize = 30;

#[test]
fn the_floor_of_every_model_is_about_its_figure() {
    for (name, figure) in some(&FLOORS, 3) {
        let mut seen: Vec<f64> = Vec::new();
        // Few measurements vary by a quarter. A busy machine only adds latency, so the first run
        // near the figure is enough.
        while seen.last().is_none_or(|p50| *p50 > 1.5 * figure + 300.0) {
            assert!(seen.len() < RUNS_MAX, "{name}: {seen:?} instead of {figure}");
            let report = bench(&["device", "--device", name, "--threads", "2", "--seconds", "0.4"]);
            assert_eq!(report["device"], name);
            assert_eq!(report["volatile_cache"], name == "sim:nvme-consumer");
            let p50 = number(&report["writes"][0], "p50_us");
            assert!(p50 >= 0.7 * figure, "{name}: {p50} instead of {figure}");
            seen.push(p50);
        }
    }
}

#[test]
fn a_directory_has_the_model_speed_and_recovers_after_a_kill() {
    let run = |seconds: &str| {
        let directory = directory();
        let path = directory.path().join("db");
        let small = ["tpcb", "--branches", "2", "--accounts", "300", "--threads", "2"];
        let device = ["--device", "sim:ebs-gp3", "--path", text(&path)];
        let report =
            bench(&[&small[..], &device, &["--seconds", seconds, "--reopen", "kill", "--check"]].concat());
        assert_eq!(report["check"]["problems"].as_array().map(Vec::len), Some(0), "{report}");
        report
    };
    let report = long_enough(0.4, run, |report| number(report, "committed") > 0.0);
    assert_eq!((&report["device"], &report["reopened"]["after"]), (&"sim:ebs-gp3".into(), &"killed".into()));
    assert!(number(&report["floor_us"], "p50") >= 800.0, "{report}");
    assert!(number(&report["commit_latency_us"], "p50") >= 800.0, "{report}");
}

#[test]
fn a_log_on_its_own_device_is_slow_and_recovered() {
    let run = |seconds: &str| {
        let directory = directory();
        let path = directory.path().join("db");
        let small = ["tpcb", "--branches", "2", "--accounts", "300", "--threads", "2"];
        let device = ["--log-device", "sim:disk-170iops", "--path", text(&path)];
        let report =
            bench(&[&small[..], &device, &["--seconds", seconds, "--reopen", "kill", "--check"]].concat());
        assert_eq!(report["check"]["problems"].as_array().map(Vec::len), Some(0), "{report}");
        report
    };
    let report = long_enough(0.4, run, |report| number(report, "committed") > 0.0);
    let device = report["device"].as_str().expect("a name");
    assert!(device.ends_with(", log on sim:disk-170iops") && !device.starts_with("sim:"), "{device}");
    for field in ["floor_us", "commit_latency_us"] {
        assert!(number(&report[field], "p50") >= 4_000.0, "{report}");
    }
}

#[test]
fn workloads_run_on_a_device_in_memory_without_a_directory() {
    let small: [&[&str]; 7] = [
        &["ycsb", "--rows", "2000", "--mix", "a", "--check"],
        &["tpcc", "--small", "--warehouses", "2", "--check", "--commit", "async", "--preset", "autonomous"],
        &["tpcb", "--branches", "2", "--accounts", "300", "--check", "--reopen", "close"],
        &["tatp", "--subscribers", "2000", "--check"],
        &["mixed", "--small", "--rows", "2000", "--mix", "a", "--check"],
        &["put", "--reopen", "close"],
        &["scan", "--rows", "20000"],
    ];
    for workload in some(&small, 3) {
        let options = ["--seconds", "0.3", "--threads", "2", "--device", "sim:nvme-consumer"];
        let report = bench(&[workload, &options].concat());
        assert_eq!(report["device"], "sim:nvme-consumer", "{workload:?}");
        if workload.contains(&"--check") {
            assert_eq!(report["check"]["problems"].as_array().map(Vec::len), Some(0), "{report}");
        }
    }
    let soak = ["soak", "--rows", "3000", "--seconds", "0.5", "--device", "sim:memory-1.2us"];
    let report = bench(&soak);
    assert_eq!(report["problems"].as_array().map(Vec::len), Some(0), "{report}");
    assert!(number(&report, "store_bytes_on_disk") > 0.0 && report["write_amplification_total"].is_null());
}

#[test]
fn a_device_of_chosen_figures_is_as_slow_as_they_say() {
    let name = "sim:custom:write=3ms,slots=1";
    let report = bench(&["put", "--device", name, "--preset", "group", "--threads", "2", "--seconds", "0.5"]);
    assert_eq!(report["device"], name);
    let model = &report["group_model"];
    let (flush, latency) = (number(model, "flush_us"), number(model, "latency_us"));
    assert!(flush >= 2_900.0 && latency == flush, "{model}");
    assert!(number(&report["commit_latency_us"], "mean") >= latency * 0.9, "{report}");
    let output = run_bench(&["device", "--device", "sim:ebs-gp3:iops=many"]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("iops=many") && error.contains("the keys are"), "{error}");
}

#[test]
fn a_sweep_measures_random_writes_of_a_device_only() {
    let arguments = ["device", "--sweep", "--device", "sim:memory-1.2us", "--seconds", "0.1"];
    let report = bench(&arguments);
    let writes = report["writes"].as_array().expect("a list");
    let sizes: BTreeSet<u64> = writes.iter().map(|line| number(line, "bytes") as u64).collect();
    assert!(sizes.contains(&4096) && sizes.contains(&(16 << 20)), "{sizes:?}");
    let text = run_bench(&arguments);
    expect_code(&text, 0);
    assert!(String::from_utf8_lossy(&text.stdout).contains("one commit per flush"));
    let output = run_bench(&["put", "--sweep"]);
    expect_code(&output, 2);
    assert!(String::from_utf8_lossy(&output.stderr).contains("--sweep goes with device"));
}

#[test]
fn an_unknown_device_is_refused_with_all_known_names() {
    let output = run_bench(&["device", "--device", "sim:floppy"]);
    let (error, code) = (String::from_utf8_lossy(&output.stderr), output.status.code());
    assert_ne!(code, Some(0));
    let help = run_bench(&["put", "--help"]);
    let help = String::from_utf8_lossy(&help.stdout);
    for (name, _) in FLOORS {
        assert!(error.contains(name) && help.contains(name), "{name}: {error}");
    }
}

#[test]
fn a_device_in_memory_is_not_reopened_or_kept() {
    for flags in [&["--reopen", "kill"][..], &["--keep"]] {
        let output = run_bench(&[&["tpcb", "--device", "sim:ebs-io2"], flags].concat());
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() != Some(0) && error.contains("needs --path"), "{error}");
    }
}
