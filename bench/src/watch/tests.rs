//! Tests of `watch`.

use super::*;
use crate::latencies::Latencies;
use crate::store::Total;

/// After `tenths` of a second with 100 transactions in each, 1 ms each, half of them reading a
/// page.
fn sample(tenths: u64, measuring: bool) -> Sample {
    let latencies = Latencies::default();
    (0..tenths * 100).for_each(|_| latencies.record_ns(1_000_000));
    let count = tenths * 100;
    Sample {
        at: Duration::from_millis(100 * tenths),
        measuring,
        sums: Sums { committed: count, aborted: tenths, ..Sums::default() },
        latencies: Counted::of([&latencies].into_iter()),
        stages: StageSums { sampled: count, execute: count * 9_000, ..StageSums::default() },
        rows: 2 * count,
        gauges: Gauges {
            reads: count,
            pages_evicted: 3 * tenths,
            log_writes: 10 * tenths,
            log_write_bytes: 40_960 * tenths,
            row_wait_seconds: count as f64 * 4e-6,
            log_inserts: Total { count, us: count as f64 * 2.0 },
            commits: Total { count, us: count as f64 * 300.0 },
            acknowledges: Total { count, us: count as f64 * 100.0 },
            ..Gauges::default()
        },
    }
}

#[test]
fn interval_is_the_difference_of_two_samples() {
    let between = Between::of(&sample(5, true), &sample(25, true));
    assert_eq!((between.seconds, between.throughput_tps, between.conflicts_per_second), (2.0, 1000.0, 10.0));
    assert!((between.p50_us - 1000.0).abs() < 16.0 && between.max_us >= 1000.0, "{between:?}");
    let stages =
        StageTimes { execute: 5.0, lock_wait: 4.0, log_insert: 2.0, flush_wait: 200.0, acknowledge: 100.0 };
    let seen = between.stages;
    for (seen, expected) in [
        (seen.execute, stages.execute),
        (seen.lock_wait, stages.lock_wait),
        (seen.log_insert, stages.log_insert),
        (seen.flush_wait, stages.flush_wait),
        (seen.acknowledge, stages.acknowledge),
    ] {
        assert!((seen - expected).abs() < 1e-6, "{:?}", between.stages);
    }
    assert_eq!((between.hit_share, between.evictions_per_second), (Some(0.5), 30.0));
    assert_eq!((between.log_writes_per_second, between.log_write_bytes), (100.0, 4096.0));
    // A counter that was set back gives nothing, and no negative number.
    let back = Between::of(&sample(25, true), &sample(5, true));
    assert_eq!((back.throughput_tps, back.hit_share, back.p99_us), (0.0, None, 0.0));
}

#[test]
fn history_separates_the_last_interval_and_drops_the_warm_up() {
    let mut history = History::new(Duration::from_secs(1));
    assert!(history.last_interval().is_none() && history.whole().is_none());
    (0..10).for_each(|tenth| history.push(sample(tenth, false)));
    (0..=50).for_each(|tenth| history.push(sample(tenth, true)));
    // A second in which nothing happened.
    (51..=60).for_each(|tenth| {
        history.push(Sample { at: Duration::from_millis(100 * tenth), ..sample(50, true) });
    });
    let (last, whole) = (history.last_interval().expect("samples"), history.whole().expect("samples"));
    assert_eq!((last.seconds, last.throughput_tps, last.p99_us), (1.0, 0.0, 0.0));
    assert!((whole.seconds - 6.0).abs() < 1e-9 && (whole.throughput_tps - 5000.0 / 6.0).abs() < 1e-6);
    let (points, each) = history.throughput(1000);
    assert_eq!((points.len(), each), (20, Duration::from_millis(250)));
    assert!((points[0] - 1000.0).abs() < 1e-6 && points[19] == 0.0, "{points:?}");
    let (few, each) = history.throughput(7);
    assert_eq!((few.len(), each), (7, Duration::from_millis(750)));
}

#[test]
fn the_points_of_a_long_run_take_bounded_memory() {
    let mut history = History::new(Duration::from_secs(1));
    for quarter in 0..5000u64 {
        let at = Duration::from_millis(250 * quarter);
        history.push(Sample {
            at,
            sums: Sums { committed: 250 * quarter, ..Sums::default() },
            ..sample(0, true)
        });
    }
    assert!(history.points.len() < POINTS_MAX && history.recent.len() < 10);
    assert!(history.points.iter().all(|point| (point - 1000.0).abs() < 1e-6));
}
