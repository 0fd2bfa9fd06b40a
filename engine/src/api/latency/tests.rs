//! Buckets, and differences of distributions.

use super::{BUCKETS, LatencySummary, bucket_of};
use crate::base::metrics::LatencyHistogram;

fn summary(values_us: &[u64]) -> LatencySummary {
    let histogram = LatencyHistogram::default();
    values_us.iter().for_each(|us| histogram.record_ns(us * 1000));
    LatencySummary::of(&histogram.merged())
}

#[test]
fn a_value_is_in_the_bucket_of_the_bound_above_it() {
    let bounds: Vec<f64> = LatencySummary::bounds_us().collect();
    assert_eq!((bounds.len(), bounds[0], bounds[43]), (BUCKETS - 1, 0.625, 1024.0));
    assert_eq!(bounds[3..8], [1.0, 1.25, 1.5, 1.75, 2.0]);
    assert_eq!([0, 1, 500, 625, 626, u64::MAX].map(bucket_of), [0, 0, 0, 0, 1, BUCKETS - 1]);
    for (bucket, bound) in bounds.iter().enumerate() {
        let ns = (bound * 1000.0) as u64;
        assert_eq!([ns, ns + 1].map(bucket_of), [bucket, bucket + 1], "{bound} us");
    }
}

#[test]
fn buckets_hold_every_value() {
    let all = summary(&[1, 3, 100, 100, 5_000, 99_000_000]);
    let buckets = all.buckets.as_flattened();
    assert_eq!(buckets.iter().sum::<u64>(), all.count);
    // Two digits of 100 us, between 96 and 112.
    assert_eq!(buckets[30], 2, "{buckets:?}");
    assert_eq!(buckets[BUCKETS - 1], 1, "{buckets:?}");
}

#[test]
fn the_difference_has_only_later_values() {
    let histogram = LatencyHistogram::default();
    (0..1000).for_each(|_| histogram.record_ns(10_000));
    let before = LatencySummary::of(&histogram.merged());
    (0..1000).for_each(|_| histogram.record_ns(1_000_000));
    let after = LatencySummary::of(&histogram.merged());
    let later = after.since(&before);
    assert_eq!(later.count, 1000);
    assert!((later.mean_us - 1000.0).abs() < 20.0, "{later:?}");
    assert!((896.0..=1024.0).contains(&later.p50_us) && later.p50_us <= later.p99_us, "{later:?}");
    assert!(later.stdev_us < 50.0, "{later:?}");
    assert_eq!(after.since(&after), LatencySummary::default());
    assert_eq!(after.since(&LatencySummary::default()), after);
}
