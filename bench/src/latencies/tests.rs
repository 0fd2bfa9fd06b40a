//! Tests of `latencies`.

use super::*;

#[test]
fn every_latency_falls_into_a_bucket_that_is_close_to_it() {
    for bits in 0..64 {
        for ns in [1u64 << bits, (1 << bits) + (1 << bits) / 3, (1u64 << bits).saturating_mul(2) - 1] {
            let upper = upper_ns(bucket(ns));
            let ns = ns.min((1 << LONGEST_BITS) - 1);
            assert!(upper >= ns && upper as f64 <= ns as f64 * (1.0 + 1.0 / 64.0), "{ns} in {upper}");
        }
    }
    assert!((1..BUCKETS).all(|b| bucket(upper_ns(b)) == b && bucket(upper_ns(b - 1) + 1) == b));
}

#[test]
fn difference_of_two_samples_gives_its_percentiles() {
    let latencies = Latencies::default();
    (0..1000).for_each(|_| latencies.record_ns(1_000_000));
    let earlier = Counted::of([&latencies].into_iter());
    (1..=1000).for_each(|us| latencies.record_ns(us * 1000));
    let between = Counted::of([&latencies].into_iter()).since(&earlier);
    assert_eq!(between.count(), 1000);
    let summary = between.summary();
    assert!((summary.p50 - 500.0).abs() < 9.0 && (summary.p99 - 990.0).abs() < 17.0, "{summary:?}");
    assert!((summary.mean - 500.5).abs() < 0.1 && summary.max >= 1000.0, "{summary:?}");
}

#[test]
fn standard_deviation_is_that_of_the_latencies() {
    let latencies = Latencies::default();
    (0..1000).for_each(|n| latencies.record_ns(if n % 4 == 0 { 9_000_000 } else { 1_000_000 }));
    let summary = Counted::of([&latencies].into_iter()).summary_with_stdev();
    // 8 ms * sqrt(1/4 * 3/4)
    let stdev = summary.stdev.expect("counted");
    assert!((stdev - 3464.1).abs() < 40.0 && (summary.mean - 3000.0).abs() < 0.1, "{summary:?}");
}

#[test]
fn nothing_counted_is_zero() {
    assert_eq!(Counted::of(std::iter::empty()).quantile_us(0.99), 0.0);
}
