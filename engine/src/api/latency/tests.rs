//! Buckets, and differences of distributions.

use super::{BUCKETS, LatencySummary, bucket_of};
use crate::base::metrics::LatencyHistogram;

fn summary(values_us: &[u64]) -> LatencySummary {
    let histogram = LatencyHistogram::default();
    values_us.iter().for_each(|us| histogram.record_ns(us * 1000));
    LatencySummary::of(&histogram)
}

#[test]
fn a_value_is_in_the_bucket_of_the_bound_above_it() {
    let buckets = [0, 1, 1000, 1001, 2000, 2001, 4000, u64::MAX / 2].map(bucket_of);
    assert_eq!(buckets, [0, 0, 0, 1, 1, 2, 2, BUCKETS - 1]);
    let bounds: Vec<f64> = LatencySummary::bounds_us().collect();
    assert_eq!((bounds.len(), bounds[0], bounds[10]), (BUCKETS - 1, 1.0, 1024.0));
}

#[test]
fn buckets_hold_every_value() {
    let all = summary(&[1, 3, 100, 100, 5_000, 99_000_000]);
    assert_eq!(all.buckets.iter().sum::<u64>(), all.count);
    assert_eq!(all.buckets[7], 2, "{:?}", all.buckets);
    assert_eq!(all.buckets[BUCKETS - 1], 1, "{:?}", all.buckets);
}

#[test]
fn the_difference_has_only_later_values() {
    let histogram = LatencyHistogram::default();
    (0..1000).for_each(|_| histogram.record_ns(10_000));
    let before = LatencySummary::of(&histogram);
    (0..1000).for_each(|_| histogram.record_ns(1_000_000));
    let after = LatencySummary::of(&histogram);
    let later = after.since(&before);
    assert_eq!(later.count, 1000);
    assert!((later.mean_us - 1000.0).abs() < 20.0, "{later:?}");
    assert!((512.0..=1024.0).contains(&later.p50_us) && later.p50_us <= later.p99_us, "{later:?}");
    assert!(later.stdev_us < 50.0, "{later:?}");
    assert_eq!(after.since(&after), LatencySummary::default());
    assert_eq!(after.since(&LatencySummary::default()), after);
}
