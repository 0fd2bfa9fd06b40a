//! The figures of one run, and how they are printed.

use quenchdb::LatencySummary;
use serde::Serialize;
use std::fmt;

/// A latency distribution in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
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
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Floor {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
}

/// What one run of a workload gave.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// `ycsb` or `put`.
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
    /// Begin to COMMITTED, over all.
    pub total_latency_us: Latency,
    /// Bytes of log records.
    pub log_bytes: u64,
    /// Bytes written to the device.
    pub device_bytes: u64,
    /// Writes to the device.
    pub device_writes: u64,
    /// Flushes of the device.
    pub device_flushes: u64,
    /// Processor time, user and system.
    pub cpu_seconds: f64,
    /// A durable 4 KiB write, measured on the same directory just before.
    pub floor_us: Floor,
    /// With `--reopen kill`: how long the open after the kill took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery_seconds: Option<f64>,
    /// With `--reopen kill`: transactions replayed by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replayed: Option<u64>,
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
        writeln!(
            f,
            "  log {:.1} MB; device {:.1} MB in {} writes, {} flushes",
            self.log_bytes as f64 / 1e6,
            self.device_bytes as f64 / 1e6,
            self.device_writes,
            self.device_flushes
        )?;
        if let (Some(seconds), Some(replayed)) = (self.recovery_seconds, self.replayed) {
            writeln!(f, "  killed, then reopened in {seconds:.3} s, {replayed} transactions replayed")?;
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
