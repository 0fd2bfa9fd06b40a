//! A run over time: the transactions of each interval, and the checkpoints.

use crate::activity::{Activity, Sums};
use crate::latencies::Counted;
use crate::process::cpu_seconds;
use crate::store::Store;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// One interval of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Begin in seconds since the begin of the measurement.
    pub second: f64,
    /// Length in seconds; the last one may be shorter, and one is longer if the sampler was late.
    pub seconds: f64,
    /// Transactions that ended in it.
    pub committed: u64,
    /// Processor time of the process for each of them, in microseconds.
    #[serde(default)]
    pub cpu_us: f64,
    /// 99th percentile of their latency: from the end of the previous transaction of the worker.
    pub p99_us: f64,
    /// The slowest of them.
    pub max_us: f64,
    /// Number of transactions by latency: the element `i` counts those of more than `2^(i - 1)` us
    /// and at most `2^i` us, the last one all slower ones.
    #[serde(default)]
    pub counts: [u64; OCTAVES],
    /// Memory of the pages at the end of the interval, in bytes.
    #[serde(default)]
    pub page_bytes: u64,
    /// Memory of old versions of rows at the end of the interval, in bytes.
    #[serde(default)]
    pub version_bytes: u64,
    /// Bytes of log that a recovery would read at the end of the interval.
    #[serde(default)]
    pub log_bytes_in_use: u64,
    /// Time that a recovery would take at the end of the interval, estimated, in seconds.
    #[serde(default)]
    pub recovery_seconds: f64,
}

/// Number of octaves of a latency in an interval: the last one begins at 67 s.
pub const OCTAVES: usize = 28;

/// A checkpoint, in seconds since the measurement began; one that began before has a negative
/// `from`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CheckpointMark {
    /// When it began.
    pub from: f64,
    /// When it was published.
    pub to: f64,
    /// Bytes of images that it wrote.
    pub bytes: u64,
}

/// Records intervals and checkpoints. The driver calls it often.
pub(crate) struct Sampler<'a, S> {
    store: &'a S,
    activity: &'a Activity,
    began: Instant,
    interval: Duration,
    checkpoints: u64,
    begun: f64,
    cpu: f64,
    sums: Sums,
    latencies: Counted,
    pub(crate) series: Vec<Interval>,
    pub(crate) marks: Vec<CheckpointMark>,
}

impl<'a, S: Store> Sampler<'a, S> {
    /// Begins the measurement.
    pub(crate) fn begin(store: &'a S, activity: &'a Activity, interval: Duration) -> Sampler<'a, S> {
        Sampler {
            store,
            activity,
            began: Instant::now(),
            interval,
            checkpoints: store.checkpoints().count,
            begun: 0.0,
            cpu: cpu_seconds(),
            sums: activity.sums(),
            latencies: activity.latencies(),
            series: Vec::new(),
            marks: Vec::new(),
        }
    }

    /// Returns the time until the end of the interval.
    pub(crate) fn left(&self) -> Duration {
        let end = self.begun + self.interval.as_secs_f64();
        Duration::from_secs_f64((end - self.began.elapsed().as_secs_f64()).max(0.0))
    }

    /// Records a checkpoint published since the last call (of several, the last), and ends the
    /// interval if its time is over.
    pub(crate) fn look(&mut self) {
        let totals = self.store.checkpoints();
        if totals.count != self.checkpoints {
            self.checkpoints = totals.count;
            let to = self.began.elapsed().as_secs_f64();
            let (from, bytes) = (to - totals.newest_seconds, totals.newest_bytes);
            self.marks.push(CheckpointMark { from, to, bytes });
        }
        if self.left().is_zero() {
            self.end_interval();
        }
    }

    /// Ends the measurement. The rest becomes the last interval, unless it is very short.
    pub(crate) fn end(&mut self) {
        self.look();
        let left = self.began.elapsed().as_secs_f64() - self.begun;
        if self.series.is_empty() || left > self.interval.as_secs_f64() / 4.0 {
            self.end_interval();
        }
    }

    fn end_interval(&mut self) {
        let (sums, latencies) = (self.activity.sums(), self.activity.latencies());
        let now = self.began.elapsed().as_secs_f64();
        let between = latencies.since(&self.latencies);
        let (gauges, cpu) = (self.store.gauges(), cpu_seconds());
        let committed = sums.committed - self.sums.committed;
        self.series.push(Interval {
            second: self.begun,
            seconds: now - self.begun,
            committed,
            cpu_us: (cpu - self.cpu) * 1e6 / committed.max(1) as f64,
            p99_us: between.quantile_us(0.99),
            max_us: between.quantile_us(1.0),
            counts: between.octaves(),
            page_bytes: gauges.pages * gauges.page_bytes,
            version_bytes: gauges.version_bytes,
            log_bytes_in_use: gauges.log_bytes_in_use,
            recovery_seconds: gauges.recovery_seconds,
        });
        (self.begun, self.cpu, self.sums, self.latencies) = (now, cpu, sums, latencies);
    }
}
