//! Unit tests of `metrics`.

use super::*;

#[test]
fn counters_and_histograms_merge_over_threads() {
    let (counter, histogram) = (Counter::default(), LatencyHistogram::default());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for i in 1..=1000 {
                    counter.add(1);
                    histogram.record_ns(i * 1000);
                }
            });
        }
    });
    assert_eq!(counter.get(), 4000);
    let (merged, all_cells) = (histogram.merged(), HISTOGRAM_CELLS);
    assert_eq!(merged.len(), 4000);
    let bytes = (all_cells * merged.distinct_values() * size_of::<u64>()) as u64;
    let bytes_max = HISTOGRAM_CELLS as u64 * (31 << 10);
    assert!(bytes <= bytes_max && bytes > bytes_max * 3 / 4, "{bytes}");
    assert!((495_000..=505_000).contains(&merged.value_at_quantile(0.5)));
}
