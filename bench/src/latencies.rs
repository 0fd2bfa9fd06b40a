//! A histogram that one thread writes with plain stores and any thread reads meanwhile.
//!
//! A series of percentiles needs reads while the workers write. Workers and sampler must not wait
//! for each other: a lock would add the sampler's preemption to the stalls to be measured, and
//! `hdrhistogram` has no histogram of atomics for a single writer. The buckets double in width
//! after every 64 (an error of at most 1.6 %), from 1 ns to 274 s; longer counts as that.

use quenchdb::LatencySummary;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of buckets of one width.
const GROUP: usize = 64;
const GROUP_BITS: u32 = GROUP.trailing_zeros();
const LONGEST_BITS: u32 = 38;
const BUCKETS: usize = (LONGEST_BITS - GROUP_BITS + 1) as usize * GROUP;

fn bucket(ns: u64) -> usize {
    let ns = ns.min((1 << LONGEST_BITS) - 1);
    let Some(shift) = (63 - (ns | 1).leading_zeros()).checked_sub(GROUP_BITS) else { return ns as usize };
    (shift as usize + 1) * GROUP + (ns >> shift) as usize - GROUP
}

/// Returns the longest latency of a bucket, in nanoseconds.
fn upper_ns(bucket: usize) -> u64 {
    let (group, place) = (bucket / GROUP, (bucket % GROUP) as u64);
    match group.checked_sub(1) {
        None => place,
        Some(shift) => ((GROUP as u64 + place + 1) << shift) - 1,
    }
}

/// A histogram of 17 KB, written by one thread and read by any.
#[derive(Debug)]
pub struct Latencies {
    buckets: Box<[AtomicU64]>,
    sum_ns: AtomicU64,
}

impl Default for Latencies {
    fn default() -> Self {
        Latencies { buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(), sum_ns: AtomicU64::new(0) }
    }
}

/// Adds without a locked instruction: the number has a single writer.
pub(crate) fn add_alone(number: &AtomicU64, amount: u64) {
    number.store(number.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
}

impl Latencies {
    /// Counts one latency. Only one thread may call it; two threads would lose counts.
    #[inline]
    pub fn record_ns(&self, ns: u64) {
        add_alone(&self.buckets[bucket(ns)], 1);
        add_alone(&self.sum_ns, ns);
    }
}

/// The content of several [`Latencies`] at some moment, or the difference of two moments.
#[derive(Clone, Debug)]
pub struct Counted {
    buckets: Vec<u64>,
    sum_ns: u64,
}

impl Counted {
    /// Returns the sum of `all`. It is no snapshot of one moment while threads write.
    pub fn of<'a>(all: impl Iterator<Item = &'a Latencies>) -> Counted {
        let mut counted = Counted { buckets: vec![0; BUCKETS], sum_ns: 0 };
        for latencies in all {
            for (sum, bucket) in counted.buckets.iter_mut().zip(&latencies.buckets) {
                *sum += bucket.load(Ordering::Relaxed);
            }
            counted.sum_ns += latencies.sum_ns.load(Ordering::Relaxed);
        }
        counted
    }

    /// Returns the difference to `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Counted) -> Counted {
        let buckets = self.buckets.iter().zip(&earlier.buckets).map(|(now, then)| now.saturating_sub(*then));
        Counted { buckets: buckets.collect(), sum_ns: self.sum_ns.saturating_sub(earlier.sum_ns) }
    }

    /// Returns the number of latencies.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the quantile in microseconds; 0 without latencies.
    #[must_use]
    pub fn quantile_us(&self, quantile: f64) -> f64 {
        let wanted = ((self.count() as f64 * quantile).ceil() as u64).max(1);
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return upper_ns(index) as f64 / 1e3;
            }
        }
        0.0
    }

    /// Returns the number of latencies by octave: the element `i` counts those of more than
    /// `2^(i - 1)` us and at most `2^i` us; the last one all longer ones.
    #[must_use]
    pub fn octaves<const N: usize>(&self) -> [u64; N] {
        let mut octaves = [0; N];
        for (index, count) in self.buckets.iter().enumerate().filter(|(_, count)| **count > 0) {
            let us = upper_ns(index).div_ceil(1000).max(1);
            let octave = us.next_power_of_two().trailing_zeros() as usize;
            octaves[octave.min(N - 1)] += count;
        }
        octaves
    }

    /// Returns the standard deviation in microseconds, as exact as the buckets; 0 without
    /// latencies.
    fn stdev_us(&self) -> f64 {
        let middle = |bucket: usize| {
            let lower = bucket.checked_sub(1).map_or(0, |before| upper_ns(before) + 1);
            (lower + upper_ns(bucket)) as f64 / 2e3
        };
        let sum = |each: &dyn Fn(f64) -> f64| -> f64 {
            let counted = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
            counted.map(|(bucket, count)| *count as f64 * each(middle(bucket))).sum()
        };
        let count = self.count().max(1) as f64;
        let mean = sum(&|us| us) / count;
        (sum(&|us| (us - mean).powi(2)) / count).sqrt()
    }

    /// Returns the figures for a report, with the standard deviation.
    #[must_use]
    pub fn summary_with_stdev(&self) -> Latency {
        Latency { stdev: Some(self.stdev_us()), ..self.summary() }
    }

    /// Returns the figures for a report.
    #[must_use]
    pub fn summary(&self) -> Latency {
        let count = self.count();
        Latency {
            stdev: None,
            mean: if count == 0 { 0.0 } else { self.sum_ns as f64 / count as f64 / 1e3 },
            p50: self.quantile_us(0.5),
            p90: self.quantile_us(0.9),
            p99: self.quantile_us(0.99),
            p999: self.quantile_us(0.999),
            p9999: self.quantile_us(0.9999),
            max: self.quantile_us(1.0),
        }
    }
}

/// A latency distribution in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation, where it is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stdev: Option<f64>,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// 99.99th percentile.
    pub p9999: f64,
    /// The slowest.
    pub max: f64,
}

impl From<LatencySummary> for Latency {
    fn from(s: LatencySummary) -> Latency {
        Latency {
            mean: s.mean_us,
            stdev: Some(s.stdev_us),
            p50: s.p50_us,
            p90: s.p90_us,
            p99: s.p99_us,
            p999: s.p999_us,
            p9999: s.p9999_us,
            max: s.max_us,
        }
    }
}

impl Latency {
    /// The header of the columns that `Display` prints.
    pub(crate) const HEADER: &'static str =
        "      mean        p50        p90        p99      p99.9     p99.99        max";
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [self.mean, self.p50, self.p90, self.p99, self.p999, self.p9999, self.max];
        for (i, figure) in all.iter().enumerate() {
            write!(f, "{}{figure:>10.1}", if i == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
