//! The stages of a transaction.

use crate::latencies::Latency;
use serde::{Deserialize, Serialize};

/// Means of the stages of a transaction, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stages {
    /// Begin and operations of the attempt that succeeded, one transaction in sixteen timed; waits
    /// for rows included.
    pub execute_us: f64,
    /// The call that commits: record into the log buffer, and with blocking commits everything
    /// below as well.
    pub commit_call_us: f64,
    /// Attempts with a conflict, their waits for rows included.
    pub conflicts_us: f64,
    /// Waits for row locks; part of the times above.
    #[serde(default)]
    pub row_wait_us: f64,
    /// From the call that commits to the record in the log's buffer, waits for the log's latch and
    /// for buffer space included; of those that wrote, one in sixteen timed; part of
    /// `commit_call_us`.
    #[serde(default)]
    pub log_insert_us: f64,
    /// Ready until the log is written, of transactions that wrote.
    pub flush_wait_us: f64,
    /// The first part of `flush_wait_us`: ready until the write begins.
    #[serde(default)]
    pub queuing_us: f64,
    /// The rest of `flush_wait_us`: the write, as far as it came after ready.
    #[serde(default)]
    pub writing_us: f64,
    /// Log written until acknowledged: waits for dependencies.
    pub acknowledge_us: f64,
    /// One durable write of the log.
    pub flush_us: Latency,
}
