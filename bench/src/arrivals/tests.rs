//! Tests of `arrivals`.

use super::*;

fn gaps_of(gaps: Gaps, count: usize) -> Vec<f64> {
    let mut arrivals =
        Arrivals::new(Rate { per_second: 10_000.0, gaps, clients: Clients::default() }, 1, 2, 7, 1000);
    let moments: Vec<u64> = (0..=count).map(|_| arrivals.take()).collect();
    moments.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect()
}

#[test]
fn fixed_arrivals_are_evenly_spread_over_the_threads() {
    assert!(gaps_of(Gaps::Fixed, 1000).iter().all(|gap| (gap - 200_000.0).abs() <= 1.0));
    let rate = Rate { per_second: 1000.0, gaps: Gaps::Fixed, clients: Clients::default() };
    let first: Vec<u64> = (0..4).map(|index| Arrivals::new(rate, index, 4, 1, 0).take()).collect();
    assert_eq!(first, [0, 1_000_000, 2_000_000, 3_000_000]);
}

#[test]
fn poisson_gaps_are_exponential() {
    // Chi-square over ten bins of equal probability: 9 degrees of freedom, 27.9 is the 99.9th
    // percentile.
    let (count, mean) = (100_000, 200_000.0);
    let mut bins = [0u32; 10];
    for gap in gaps_of(Gaps::Poisson, count) {
        bins[((1.0 - (-gap / mean).exp()) * 10.0).min(9.0) as usize] += 1;
    }
    let expected = count as f64 / 10.0;
    let chi: f64 = bins.iter().map(|&seen| (f64::from(seen) - expected).powi(2) / expected).sum();
    assert!(chi < 27.9, "{chi} {bins:?}");
}
