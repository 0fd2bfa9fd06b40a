//! Tests of the page of runs.

use super::*;
use crate::report::{Floor, Stages};
use crate::series::{CheckpointMark, Interval, OCTAVES};

fn run(name: &str, throughput: f64) -> Named {
    let interval = |second: u32| {
        let mut counts = [0; OCTAVES];
        (counts[7], counts[13]) = (1000, 1);
        Interval {
            second: f64::from(second),
            seconds: 1.0,
            committed: throughput as u64,
            counts,
            page_bytes: 1 << 26,
            log_bytes_in_use: 1 << 20,
            recovery_seconds: 0.5,
            ..Interval::default()
        }
    };
    let latency =
        Latency { p50: 100.0, p90: 150.0, p99: 900.0, p999: 2e3, p9999: 5e3, max: 8e3, ..Latency::default() };
    let report = Report {
        workload: "ycsb".into(),
        engine: "quenchdb".into(),
        device: "vda".into(),
        throughput_tps: throughput,
        commit_latency_us: latency,
        floor_us: Floor { p50: 90.0, p90: 99.0, p99: 300.0, p999: 400.0, p9999: 500.0 },
        stages: Some(Stages {
            execute_us: 3.0,
            log_insert_us: 1.0,
            queuing_us: 20.0,
            writing_us: 70.0,
            ..Stages::default()
        }),
        logical_bytes_written: 1000,
        log_bytes: 2000,
        device_bytes: 4000,
        memory_bytes: 1 << 28,
        series: (0..4).map(interval).collect(),
        checkpoint_marks: vec![CheckpointMark { from: 1.0, to: 2.0, bytes: 9 }],
        ..Report::default()
    };
    Named { name: name.into(), report }
}

#[test]
fn a_run_has_all_its_pictures() {
    let page = page(&[run("a.json", 5000.0)]).expect("a page");
    // Percentiles, stages, amplification; throughput, map, memory, log, recovery.
    assert_eq!(page.matches("<svg").count(), 8);
    for text in
        ["raw durable 4 KiB write, vda", "write and flush", "padding of the log", "budget", "5,000", "4 ms"]
    {
        assert!(page.contains(text), "no {text}");
    }
    // One band in each of the four drawings of lines.
    assert_eq!(page.matches("#FFBE5A").count(), 4);
    // Two cells of the map in each of four intervals.
    assert_eq!(page.matches("#C8323C").count(), 8);
}

#[test]
fn several_runs_are_beside_each_other() {
    let page = page(&[run("a.json", 5000.0), run("b.json", 7000.0)]).expect("a page");
    assert_eq!(page.matches("<svg").count(), 4 + 2 * 5);
    assert!(page.contains("7,000") && page.contains(">a.json<") && page.contains(">b.json<"), "{page}");
}

#[test]
fn a_report_of_an_older_version_lacks_what_it_did_not_count() {
    let mut old = run("old.json", 10.0);
    for interval in &mut old.report.series {
        *interval = Interval { second: interval.second, seconds: 1.0, committed: 10, ..Interval::default() };
    }
    let page = page(&[old]).expect("a page");
    assert_eq!(page.matches("<svg").count(), 4);
}

#[test]
fn nothing_to_show_is_an_error_with_the_name() {
    assert!(page(&[]).expect_err("no run").to_string().contains("no run was given"));
    let mut empty = run("empty.json", 1.0);
    empty.report.series.clear();
    assert!(page(&[empty]).expect_err("no series").to_string().contains("empty.json"));
}
