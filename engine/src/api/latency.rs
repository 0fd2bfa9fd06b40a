//! A latency distribution: figures for people, buckets for monitoring systems.

use hdrhistogram::Histogram;

/// Parts of each power of two.
const PARTS: usize = 4;
/// Powers of two, from the one that ends at 1 us.
const POWERS: usize = 27;
/// Buckets: values up to 0.625 us, 0.75 us, 0.875 us, 1 us, 1.25 us, ... 59 s, and all others.
const BUCKETS: usize = POWERS * PARTS;

/// A latency distribution in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LatencySummary {
    /// Values counted.
    pub count: u64,
    /// Mean.
    pub mean_us: f64,
    /// Standard deviation.
    pub stdev_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// 99.99th percentile.
    pub p9999_us: f64,
    /// Largest.
    pub max_us: f64,
    /// Values in each bucket: above the bound of the bucket before and at or below its own of
    /// [`LatencySummary::bounds_us`], four buckets for each power of two. Flattened (with
    /// `as_flattened`) they are in the order of the bounds. The last bucket has no bound.
    pub buckets: [[u64; PARTS]; POWERS],
}

impl LatencySummary {
    /// The summary of what a histogram of nanoseconds has counted.
    #[must_use]
    pub(crate) fn of(all: &Histogram<u64>) -> LatencySummary {
        let at = |quantile| all.value_at_quantile(quantile) as f64 / 1000.0;
        if all.is_empty() {
            return LatencySummary::default();
        }
        let mut buckets = [[0; PARTS]; POWERS];
        for value in all.iter_recorded() {
            buckets.as_flattened_mut()[bucket_of(value.value_iterated_to())] += value.count_at_value();
        }
        LatencySummary {
            count: all.len(),
            mean_us: all.mean() / 1000.0,
            stdev_us: all.stdev() / 1000.0,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            p9999_us: at(0.9999),
            max_us: all.max() as f64 / 1000.0,
            buckets,
        }
    }

    /// Returns the upper bound of each bucket but the last, in microseconds, ascending.
    pub fn bounds_us() -> impl Iterator<Item = f64> {
        (0..BUCKETS - 1).map(bound_us)
    }

    /// Returns the sum of all values, in microseconds.
    #[must_use]
    pub fn sum_us(&self) -> f64 {
        self.mean_us * self.count as f64
    }

    /// Returns the distribution of the values since `earlier`, which is of the same histogram.
    /// Quantiles and the largest value are estimated from the buckets.
    #[must_use]
    pub fn since(&self, earlier: &LatencySummary) -> LatencySummary {
        let count = self.count.saturating_sub(earlier.count);
        if count == 0 {
            return LatencySummary::default();
        }
        if earlier.count == 0 {
            return *self;
        }
        let mut buckets = self.buckets;
        let (now, then) = (buckets.as_flattened_mut(), earlier.buckets.as_flattened());
        now.iter_mut().zip(then).for_each(|(now, then)| *now = now.saturating_sub(*then));
        let mean_us = ((self.sum_us() - earlier.sum_us()) / count as f64).max(0.0);
        let squares = |all: &LatencySummary| {
            all.count as f64 * (all.stdev_us * all.stdev_us + all.mean_us * all.mean_us)
        };
        let variance = (squares(self) - squares(earlier)) / count as f64 - mean_us * mean_us;
        let highest = buckets.as_flattened().iter().rposition(|values| *values > 0).unwrap_or(BUCKETS - 1);
        let max_us = if highest == BUCKETS - 1 { self.max_us } else { self.max_us.min(bound_us(highest)) };
        let stdev_us = variance.max(0.0).sqrt();
        let part = LatencySummary { count, mean_us, stdev_us, max_us, buckets, ..LatencySummary::default() };
        LatencySummary {
            p50_us: part.quantile_us(0.5),
            p90_us: part.quantile_us(0.9),
            p99_us: part.quantile_us(0.99),
            p999_us: part.quantile_us(0.999),
            p9999_us: part.quantile_us(0.9999),
            ..part
        }
    }

    /// Returns the value at or below which this part of the values lies, as far as the buckets
    /// show it: exact to a quarter.
    fn quantile_us(&self, part: f64) -> f64 {
        let mut left = part * self.count as f64;
        for (at, values) in self.buckets.as_flattened().iter().enumerate() {
            let values = *values as f64;
            if values > 0.0 && left <= values {
                let low = if at == 0 { 0.0 } else { bound_us(at - 1) };
                let high = if at == BUCKETS - 1 { self.max_us.max(low) } else { bound_us(at) };
                return (low + (high - low) * left / values).min(self.max_us);
            }
            left -= values;
        }
        self.max_us
    }
}

/// Bounds are multiples of this: `2^power * (PARTS + part)` with parts from 1 to [`PARTS`].
const UNIT_NS: u64 = 500 / PARTS as u64;

fn bound_us(bucket: usize) -> f64 {
    let units = (1u64 << (bucket / PARTS)) * (PARTS + bucket % PARTS + 1) as u64;
    (units * UNIT_NS) as f64 / 1000.0
}

fn bucket_of(ns: u64) -> usize {
    let units = ns.div_ceil(UNIT_NS);
    let Some(power) = (units.saturating_sub(1) / PARTS as u64).checked_ilog2() else { return 0 };
    let part = units.div_ceil(1 << power) as usize - PARTS;
    (power as usize * PARTS + part - 1).min(BUCKETS - 1)
}

#[cfg(test)]
mod tests;
