//! What the model says.

use crate::latencies::Latency;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How busy each part is, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Utilization {
    /// All processors.
    pub processors: f64,
    /// The busiest thread that writes or acknowledges for others.
    pub busiest_flusher: f64,
    /// The latch of the busiest log.
    pub log_latch: f64,
    /// The counter of CSNs.
    pub csn_counter: f64,
    /// The slots of the device, or its bytes or requests per second, or its flushes: the busiest.
    pub device: f64,
    /// The row that was locked longest.
    pub hottest_row: f64,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelReport {
    /// Name of the protocol.
    pub protocol: String,
    /// Worker threads.
    pub workers: usize,
    /// Transactions acknowledged in the measured time.
    pub committed: u64,
    /// The same per second.
    pub throughput_tps: f64,
    /// From the commit request to the commit.
    pub commit_latency_us: Latency,
    /// From the begin or the arrival to the commit.
    pub total_latency_us: Latency,
    /// Transactions in a write; none without writes.
    pub commits_per_write: Option<f64>,
    /// Transactions in a flush; none without flushes.
    pub commits_per_flush: Option<f64>,
    /// Writes of the log per second.
    pub writes_per_second: f64,
    /// Mean number of writes in flight.
    pub writes_in_flight: f64,
    /// Bytes written per second.
    pub device_bytes_per_second: f64,
    /// Blocks of other logs that workers wrote with their own.
    pub stolen_blocks: u64,
    /// Wake-ups per transaction.
    pub wakeups_per_transaction: f64,
    /// Switches to another thread on a core, per transaction.
    #[serde(default)]
    pub switches_per_transaction: f64,
    /// Mean wait for a row lock, per transaction, in microseconds.
    pub row_wait_us: f64,
    /// Mean number of transactions that have begun and are not committed.
    pub in_system: f64,
    /// How busy each part is.
    pub utilization: Utilization,
}

impl fmt::Display for ModelReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ModelReport { protocol, workers, throughput_tps, utilization, .. } = self;
        writeln!(f, "model of {protocol}, {workers} workers: {throughput_tps:.0} transactions/s")?;
        writeln!(f, "  {:<22}{}", "us", Latency::HEADER)?;
        writeln!(f, "  {:<22}{}", "commit", self.commit_latency_us)?;
        writeln!(f, "  {:<22}{}", "total", self.total_latency_us)?;
        let per_write = self.commits_per_write.unwrap_or(0.0);
        writeln!(
            f,
            "  {per_write:.1} commits a write, {:.0} writes/s, {:.2} in flight, {:.1} MB/s",
            self.writes_per_second,
            self.writes_in_flight,
            self.device_bytes_per_second / 1e6
        )?;
        let percent = |share: f64| share * 100.0;
        writeln!(
            f,
            "  busy: processors {:.0} %, busiest flusher {:.0} %, log latch {:.0} %, CSN counter {:.0} %, device {:.0} %, hottest row {:.0} %",
            percent(utilization.processors),
            percent(utilization.busiest_flusher),
            percent(utilization.log_latch),
            percent(utilization.csn_counter),
            percent(utilization.device),
            percent(utilization.hottest_row)
        )
    }
}
