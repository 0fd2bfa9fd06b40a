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
