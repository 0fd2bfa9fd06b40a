//! Tests of `comparison`.

use super::*;
use crate::latencies::Latency;
use crate::traffic::Traffic;

fn report(tier: &str, tps: f64) -> Report {
    Report {
        workload: "put".into(),
        tier: tier.into(),
        throughput_tps: tps,
        committed: 100,
        aborted: 10,
        write_latency_us: Some(Latency { p50: 100.0, p99: tps, ..Latency::default() }),
        traffic: Some(Traffic { bytes_per_transaction: 4096.0, ..Traffic::default() }),
        ..Report::default()
    }
}

fn all() -> Vec<(Engine, Vec<Report>)> {
    let rounds = |tier: &str, tps: [f64; 3]| tps.map(|tps| report(tier, tps)).to_vec();
    vec![
        (Engine::QuenchDb, rounds("power cut", [300.0, 100.0, 200.0])),
        (Engine::RocksDb, rounds("power cut", [100.0, 100.0, 90.0])),
        (Engine::Redb, rounds("nothing", [9000.0, 9000.0, 9000.0])),
    ]
}

#[test]
fn comparison_has_medians_with_spread_and_marks_other_tiers() {
    let comparison = Comparison::of(&all(), true).expect("measured");
    let quenchdb = &comparison.engines[0];
    assert_eq!(quenchdb.throughput_tps, Spread { median: 200.0, min: 100.0, max: 300.0 });
    assert_eq!((quenchdb.p50_us.median, quenchdb.p99_us.median), (100.0, 200.0));
    assert_eq!(quenchdb.conflicts_per_transaction, 0.1);
    assert_eq!(quenchdb.device_bytes_per_transaction.expect("counted").median, 4096.0);
    let differ: Vec<bool> = comparison.engines.iter().map(|line| line.tier_differs).collect();
    assert_eq!(differ, [false, false, true]);
    assert_eq!(comparison.best_peer().expect("two").1.engine, "rocksdb");
    let text = comparison.to_string();
    assert!(text.contains("2.00 x the best peer of its tier (rocksdb)"), "{text}");
    assert!(text.contains("nothing *") && text.contains("(100..300)") && text.contains("volatile"), "{text}");
}

#[test]
fn an_even_number_of_rounds_has_its_median_between_two() {
    let reports = [report("", 4.0), report("", 1.0), report("", 2.0), report("", 9.0)];
    assert_eq!(Spread::of(&reports, |report| report.throughput_tps).median, 3.0);
    assert!(Comparison::of(&[], false).is_err());
}

#[test]
fn uncounted_traffic_is_not_shown_as_zero() {
    let mut all = all();
    all[1].1[2].traffic = None;
    let comparison = Comparison::of(&all, false).expect("measured");
    assert_eq!(comparison.engines[1].device_bytes_per_transaction, None);
    assert!(comparison.to_string().lines().any(|line| line.contains("rocksdb") && line.ends_with('-')));
}
