//! Watching a run: samples of all counters, and the difference between two samples.
//!
//! ```text
//!   driver ── Sample, ten a second ──▶ Watch ──▶ History ──▶ Between: last interval, whole time
//! ```
//! A sample reads counters that the workers write alone, and asks the engine for cheap figures
//! ([`Store::gauges`]): no thread waits for the watch.
//!
//! [`Store::gauges`]: crate::store::Store::gauges

use crate::activity::{StageSums, Sums};
use crate::latencies::Counted;
use crate::store::Gauges;
use std::collections::VecDeque;
use std::time::Duration;

/// Interval of the samples of a run.
pub const SAMPLE_EVERY: Duration = Duration::from_millis(100);

/// An observer of a run.
pub trait Watch: Sync {
    /// Receives a sample every [`SAMPLE_EVERY`], from the thread that drives the run.
    fn sampled(&self, sample: Sample);

    /// Returns true if the run must end now. The measurement until then counts.
    fn ends(&self) -> bool;
}

/// All counters at one moment.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Time since the begin of the warm-up or the measurement.
    pub at: Duration,
    /// True during the measurement, false during the warm-up. The engine resets some counters
    /// between them.
    pub measuring: bool,
    /// Sums of transactions.
    pub sums: Sums,
    /// Latencies from the begin or the arrival to the acknowledgment.
    pub latencies: Counted,
    /// Times of the stages, measured by the workers.
    pub stages: StageSums,
    /// Rows read and written, including those of scans.
    pub rows: u64,
    /// Gauges of the engine.
    pub gauges: Gauges,
}

/// Means of the stages of a transaction, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StageTimes {
    /// Begin and operations, without waits for rows.
    pub execute: f64,
    /// Waits for row locks.
    pub lock_wait: f64,
    /// From the call that commits to the record in the log's buffer.
    pub log_insert: f64,
    /// Ready until the log is written.
    pub flush_wait: f64,
    /// Log written until acknowledged.
    pub acknowledge: f64,
}

/// The difference of two samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Between {
    /// Time between the samples.
    pub seconds: f64,
    /// Transactions per second that committed or rolled back as specified.
    pub throughput_tps: f64,
    /// Conflicts per second.
    pub conflicts_per_second: f64,
    /// Median latency in microseconds; like the next three 0 without acknowledgments.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// The slowest.
    pub max_us: f64,
    /// Means of the stages.
    pub stages: StageTimes,
    /// Share of rows whose page was in memory, from 0 to 1; `None` without rows.
    pub hit_share: Option<f64>,
    /// Reads of pages per second.
    pub reads_per_second: f64,
    /// Pages per second that left memory.
    pub evictions_per_second: f64,
    /// Writes of the log per second.
    pub log_writes_per_second: f64,
    /// Mean bytes of such a write, padding included.
    pub log_write_bytes: f64,
    /// Device flushes per second.
    pub device_flushes_per_second: f64,
}

impl Between {
    /// Returns the difference of two samples.
    #[must_use]
    pub fn of(earlier: &Sample, later: &Sample) -> Between {
        let seconds = later.at.saturating_sub(earlier.at).as_secs_f64().max(1e-9);
        let (now, then) = (&later.gauges, &earlier.gauges);
        let per_second = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
        let ended = |sums: &Sums| sums.committed + sums.rolled_back;
        let (ended_now, ended_then) = (ended(&later.sums), ended(&earlier.sums));
        let latencies = later.latencies.since(&earlier.latencies);
        let (rows, reads) = (later.rows.saturating_sub(earlier.rows), now.reads.saturating_sub(then.reads));
        let (writes, bytes) = (
            now.log_writes.saturating_sub(then.log_writes),
            now.log_write_bytes.saturating_sub(then.log_write_bytes),
        );
        Between {
            seconds,
            throughput_tps: per_second(ended_now, ended_then),
            conflicts_per_second: per_second(later.sums.aborted, earlier.sums.aborted),
            p50_us: latencies.quantile_us(0.5),
            p99_us: latencies.quantile_us(0.99),
            p999_us: latencies.quantile_us(0.999),
            max_us: latencies.quantile_us(1.0),
            stages: stages(earlier, later, ended_now.saturating_sub(ended_then)),
            hit_share: (rows > 0).then(|| (1.0 - reads as f64 / rows as f64).max(0.0)),
            reads_per_second: per_second(now.reads, then.reads),
            evictions_per_second: per_second(now.pages_evicted, then.pages_evicted),
            log_writes_per_second: per_second(now.log_writes, then.log_writes),
            log_write_bytes: bytes as f64 / writes.max(1) as f64,
            device_flushes_per_second: per_second(now.device_flushes, then.device_flushes),
        }
    }
}

fn stages(earlier: &Sample, later: &Sample, ended: u64) -> StageTimes {
    let (now, then) = (&later.gauges, &earlier.gauges);
    let sampled = later.stages.sampled.saturating_sub(earlier.stages.sampled).max(1) as f64 * 1e3;
    let executed = later.stages.execute.saturating_sub(earlier.stages.execute) as f64 / sampled;
    let waited = (now.row_wait_seconds - then.row_wait_seconds).max(0.0) * 1e6 / ended.max(1) as f64;
    let acknowledge = now.acknowledges.mean_since(then.acknowledges);
    StageTimes {
        execute: (executed - waited).max(0.0),
        lock_wait: waited,
        log_insert: now.log_inserts.mean_since(then.log_inserts),
        flush_wait: (now.commits.mean_since(then.commits) - acknowledge).max(0.0),
        acknowledge,
    }
}

/// Most points of throughput; then two are merged into one.
const POINTS_MAX: usize = 2048;

/// The samples of a run.
#[derive(Clone, Debug)]
pub struct History {
    interval: Duration,
    measuring: bool,
    first: Option<Sample>,
    /// Samples of the last interval.
    recent: VecDeque<Sample>,
    /// Transactions per second of each `point` since the begin.
    points: Vec<f64>,
    point: Duration,
    point_begins: Option<Sample>,
}

/// Length of a point at the begin of a run.
const FIRST_POINT: Duration = Duration::from_millis(250);

impl History {
    /// Creates an empty history. `interval`: the length of the last interval.
    #[must_use]
    pub fn new(interval: Duration) -> History {
        History {
            interval,
            measuring: false,
            first: None,
            recent: VecDeque::new(),
            points: Vec::new(),
            point: FIRST_POINT,
            point_begins: None,
        }
    }

    /// Adds a sample. The first sample of the measurement removes those of the warm-up.
    pub fn push(&mut self, sample: Sample) {
        let began_again = self.recent.back().is_some_and(|last| sample.at < last.at);
        if sample.measuring != self.measuring || began_again {
            *self = History { measuring: sample.measuring, ..History::new(self.interval) };
        }
        let begins = self.point_begins.get_or_insert_with(|| sample.clone());
        if sample.at.saturating_sub(begins.at) >= self.point {
            self.points.push(Between::of(begins, &sample).throughput_tps);
            *begins = sample.clone();
            if self.points.len() == POINTS_MAX {
                self.points = self.points.chunks(2).map(|two| (two[0] + two[1]) / 2.0).collect();
                self.point *= 2;
            }
        }
        self.first.get_or_insert_with(|| sample.clone());
        self.recent.push_back(sample);
        let newest = self.recent.back().map_or(Duration::ZERO, |last| last.at);
        // The one before the interval stays, as its beginning.
        while self.recent.get(1).is_some_and(|second| newest.saturating_sub(second.at) >= self.interval) {
            self.recent.pop_front();
        }
    }

    /// Returns the last sample.
    #[must_use]
    pub fn newest(&self) -> Option<&Sample> {
        self.recent.back()
    }

    /// Returns the difference over the last interval, or over the samples so far.
    #[must_use]
    pub fn last_interval(&self) -> Option<Between> {
        (self.recent.len() > 1).then(|| Between::of(&self.recent[0], &self.recent[self.recent.len() - 1]))
    }

    /// Returns the difference since the begin of the warm-up or measurement.
    #[must_use]
    pub fn whole(&self) -> Option<Between> {
        let (first, last) = (self.first.as_ref()?, self.recent.back()?);
        (last.at > first.at).then(|| Between::of(first, last))
    }

    /// Returns the transactions per second since the begin in at most `width` points, and the
    /// length of a point.
    #[must_use]
    pub fn throughput(&self, width: usize) -> (Vec<f64>, Duration) {
        let together = self.points.len().div_ceil(width.max(1)).max(1);
        let mean = |points: &[f64]| points.iter().sum::<f64>() / points.len() as f64;
        (self.points.chunks(together).map(mean).collect(), self.point * together as u32)
    }
}

#[cfg(test)]
mod tests;
