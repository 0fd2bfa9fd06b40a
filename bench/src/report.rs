//! The figures of one run, and how they are printed.

use crate::reopen::Reopened;
use crate::series::{CheckpointMark, Interval};
use quenchdb::LatencySummary;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A latency distribution in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Arithmetic mean.
    pub mean: f64,
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
            p50: s.p50_us,
            p90: s.p90_us,
            p99: s.p99_us,
            p999: s.p999_us,
            p9999: s.p9999_us,
            max: s.max_us,
        }
    }
}

/// A raw durable write in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Floor {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
}

/// What one run of a workload gave.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// `ycsb`, `put` or `soak`.
    pub workload: String,
    /// Commit protocol.
    pub preset: String,
    /// Worker threads.
    pub threads: usize,
    /// Logs of the database.
    pub logs: usize,
    /// `blocking` or `async`.
    pub commit: String,
    /// How writes became durable.
    pub durability: String,
    /// Durability level of the transactions: `durable`, `bounded`, `lazy`.
    pub level: String,
    /// Rows at the start.
    pub rows: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Operations in a transaction.
    pub operations: usize,
    /// Percentage of operations that read.
    pub read_percent: u32,
    /// Skew; 0 is uniform.
    pub zipf: f64,
    /// Memory for pages that the database was opened with.
    pub memory_bytes: u64,
    /// Time before the measurement in which nothing was counted.
    pub warm_up_seconds: f64,
    /// Measured time, the warm-up not included.
    pub seconds: f64,
    /// Transactions committed in it.
    pub committed: u64,
    /// Conflicts in it; each was retried.
    pub aborted: u64,
    /// Committed per second.
    pub throughput_tps: f64,
    /// READY to COMMITTED, over transactions that wrote something.
    pub commit_latency_us: Latency,
    /// Begin to COMMITTED, over all that the engine knows the end of: not read-only snapshots, and not read-only
    /// transactions at a lower level.
    pub total_latency_us: Latency,
    /// Transactions and snapshots that only read, as the worker saw them: from the end of its previous transaction to the
    /// end of this one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub read_latency_us: Option<Latency>,
    /// The longest span of the measured time in which no transaction of any thread ended; asynchronous ones end when they
    /// are handed over. Precision: see [`crate::activity`].
    pub stall_us_max: f64,
    /// Most memory of the process that ran the engine, from open on: [`crate::process::MemoryWatch`] says what is counted.
    pub rss_bytes_max: u64,
    /// Bytes of log records.
    pub log_bytes: u64,
    /// Bytes written to the log's device, padding included.
    pub device_bytes: u64,
    /// Writes of the log.
    pub device_writes: u64,
    /// Flushes of the log's device.
    pub device_flushes: u64,
    /// Reads of pages from the device.
    pub device_reads: u64,
    /// Bytes of these.
    pub device_read_bytes: u64,
    /// Bytes written to the file of pages, by checkpoints and evictions.
    pub store_bytes_written: u64,
    /// Bytes of keys and values that committed transactions wrote.
    pub logical_bytes_written: u64,
    /// Checkpoints that ended in the measured time.
    pub checkpoints: u64,
    /// Time they took, together.
    pub checkpoint_seconds: f64,
    /// Processor time, user and system.
    pub cpu_seconds: f64,
    /// A durable 4 KiB write, measured on the same directory just before.
    pub floor_us: Floor,
    /// Random 4 KiB reads per second of the same file by as many threads, measured just after, if pages were read.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub read_floor: Option<f64>,
    /// With `--reopen`: how long the open took.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub recovery_seconds: Option<f64>,
    /// With `--reopen`: transactions replayed by it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub replayed: Option<u64>,
    /// With `--reopen`: the rest that is known of it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reopened: Option<Reopened>,
    /// The measured time, interval by interval.
    pub series: Vec<Interval>,
    /// Checkpoints that ended in the measured time, as far as they were seen one by one.
    pub checkpoint_marks: Vec<CheckpointMark>,
}

impl Report {
    /// Notes what became of the database after the run.
    pub fn add_reopened(&mut self, reopened: Reopened) {
        self.recovery_seconds = Some(reopened.open_seconds);
        self.replayed = Some(reopened.replayed);
        self.reopened = Some(reopened);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {} threads, {} commits, level {}, preset {}, {} logs, {}",
            self.workload, self.threads, self.commit, self.level, self.preset, self.logs, self.durability
        )?;
        writeln!(
            f,
            "  {:.0} transactions/s  ({} committed, {} conflicts in {:.2} s; {:.2} s of processor time)",
            self.throughput_tps, self.committed, self.aborted, self.seconds, self.cpu_seconds
        )?;
        writeln!(f, "  {:<10}{}", "us", Latency::HEADER)?;
        writeln!(f, "  {:<10}{}", "commit", self.commit_latency_us)?;
        writeln!(f, "  {:<10}{}", "total", self.total_latency_us)?;
        writeln!(
            f,
            "  {:<10}{:>10} {:>10.1} {:>10} {:>10.1}   raw durable 4 KiB write",
            "floor", "", self.floor_us.p50, "", self.floor_us.p99
        )?;
        if let Some(reads) = &self.read_latency_us {
            writeln!(f, "  {:<10}{reads}", "read only")?;
        }
        let mb = |bytes: u64| bytes as f64 / 1e6;
        writeln!(
            f,
            "  log {:.1} MB; device {:.1} MB in {} writes, {} flushes",
            mb(self.log_bytes),
            mb(self.device_bytes),
            self.device_writes,
            self.device_flushes
        )?;
        write!(
            f,
            "  pages: {} reads ({:.1} MB), {:.1} MB written",
            self.device_reads,
            mb(self.device_read_bytes),
            mb(self.store_bytes_written)
        )?;
        match self.read_floor {
            Some(floor) => writeln!(f, "; floor {floor:.0} random reads/s")?,
            None => writeln!(f)?,
        }
        writeln!(
            f,
            "  longest stall {:.1} ms; {} checkpoints in {:.2} s; memory {:.0} MB (pages: {:.0} MB allowed)",
            self.stall_us_max / 1e3,
            self.checkpoints,
            self.checkpoint_seconds,
            mb(self.rss_bytes_max),
            mb(self.memory_bytes)
        )?;
        if let Some(reopened) = &self.reopened {
            write!(f, "{reopened}")?;
        }
        Ok(())
    }
}

impl Latency {
    const HEADER: &'static str =
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
