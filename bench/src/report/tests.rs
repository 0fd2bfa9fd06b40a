//! Tests of `report`.

use super::*;

#[test]
fn costs_count_commits_for_each_write_and_flush() {
    let report = Report { committed: 90, rolled_back: 10, device_writes: 30, ..Report::default() };
    let costs = report.clone().with_costs();
    assert_eq!((costs.commits_per_write, costs.commits_per_flush), (Some(3.0), None));
    assert_eq!(costs.device_writes_per_transaction, 0.3);
    assert!(costs.to_string().contains("3.0 commits a write, no flushes"), "{costs}");
    let flushed = Report { device_flushes: 15, ..report }.with_costs();
    assert_eq!(flushed.commits_per_flush, Some(6.0));
    assert!(flushed.to_string().contains("3.0 commits a write, 6.0 a flush"), "{flushed}");
}

#[test]
fn model_is_that_of_group_commit_only() {
    let stages = Stages { flush_us: Latency { mean: 500.0, ..Latency::default() }, ..Stages::default() };
    let run = Report { committed: 20_000, seconds: 2.0, stages: Some(stages), ..Report::default() };
    let mut group = Report { preset: "group".into(), device_writes: 1, ..run.clone() }.with_costs();
    group.add_group_model(200.0);
    assert_eq!(
        group.group_model.map(|model| (model.commits_per_write, model.latency_us)),
        Some((7.0, 600.0))
    );
    assert!(group.to_string().contains("window 200 us, flush 500.0 us: 7.0 commits a write"), "{group}");
    let mut other = Report { preset: "pipelined".into(), ..run };
    other.add_group_model(200.0);
    assert_eq!(other.group_model, None);
}
