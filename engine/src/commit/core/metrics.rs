//! What did commits cost, and where did their time go?
//!
//! ```text
//!   begun ---- execute ---- ready ---- wait ---- write begins - flush - write ends - acknowledge - committed
//!                           |<---------------------- commit latency ------------------------------->|
//!   |<--------------------------------------- total latency --------------------------------------->|
//! ```
//!
//! Commit latency is counted for transactions that wrote; total latency for all that came through
//! here. `wait` and `acknowledge` are measured against the last write of the transaction's log, so
//! for a transaction that waited for another log they are approximate; the sums are not.

use crate::base::Csn;
use crate::base::clock::Nanos;
use crate::base::metrics::{Counter, LatencyHistogram, LatencyHistograms};
use hdrhistogram::Histogram;
use std::time::Duration;

/// Counters and latencies of the commit layer. All values are totals since open (or the last
/// [`CommitMetrics::reset`], for the histograms).
#[derive(Debug, Default)]
pub struct CommitMetrics {
    /// Transactions committed: durable with all they depend on. Read-only ones that had to wait are
    /// included.
    pub committed: Counter,
    /// Committed transactions that wrote.
    pub committed_writers: Counter,
    /// Durable writes of log blocks.
    pub flushes: Counter,
    /// Writes submitted to the device for log blocks, failed ones included.
    pub device_writes: Counter,
    /// Bytes of these writes, padding included.
    pub device_bytes: Counter,
    /// Row operations in records appended to the logs.
    pub operations: Counter,
    /// Bytes of records appended to the logs.
    pub log_bytes: Counter,
    /// Writes of log blocks without a flush, for commits of level written.
    pub unflushed_writes: Counter,
    /// Commits of level written that returned when their records were written.
    pub written_commits: Counter,
    /// Flushes that a blocking committer or another waiter made.
    pub leader_flushes: Counter,
    /// Flushes that the flusher thread made.
    pub flusher_flushes: Counter,
    /// Flushes that a worker submitted at the end of a transaction.
    pub worker_flushes: Counter,
    /// Blocks of other logs that workers wrote with their own.
    pub stolen_blocks: Counter,
    /// Bytes of these blocks, padding included.
    pub stolen_bytes: Counter,
    /// Times a worker that is idle between its transactions left its log to the flusher.
    pub idle_flushes: Counter,
    /// Flushes that made blocks of several logs durable.
    pub shared_flushes: Counter,
    /// System calls that woke sleeping waiters (one wakes all of them).
    pub wake_ups: Counter,
    /// Times a waiter slept. More than one per waiter means that it was woken too early and looked
    /// again.
    pub sleeps: Counter,
    /// Times the flusher thread woke.
    pub flusher_wake_ups: Counter,
    /// Transactions that the dependency rule held up when their record was durable.
    pub rule_waits: Counter,
    /// Transactions of `rule_waits` that exact dependencies would have committed. A lower bound,
    /// see `acknowledge`.
    pub false_waits: Counter,
    /// Barrier transactions pushed in idle logs.
    pub barriers: Counter,
    /// Records that the holder of the latch appended for another thread.
    pub consolidated: Counter,
    /// Fences in mapped memory by committers.
    pub fences: Counter,
    /// Barriers in all threads, for logs in mapped memory that were left dirty.
    pub drained: Counter,
    /// Waits for log space, buffers or queue room before a CSN could be drawn.
    pub backpressure_waits: Counter,
    /// Duration of each durable write.
    pub flush: LatencyHistogram,
    /// By [`Stage`].
    stages: LatencyHistograms<5>,
    /// Commits that take at least so many nanoseconds are reported.
    slow_ns: Option<u64>,
}

/// A part of the time of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Begun to committed; also without a record.
    Total,
    /// Begun to ready; also without a record.
    Execute,
    /// Ready to committed.
    Commit,
    /// Ready to the beginning of the write.
    Wait,
    /// End of the write to committed.
    Acknowledge,
}

/// The moments of one transaction.
#[derive(Clone, Copy, Debug)]
pub struct Moments {
    /// When it began.
    pub begun: Nanos,
    /// When it asked to commit.
    pub ready: Nanos,
    /// When the last write of its log began and ended.
    pub write: (Nanos, Nanos),
    /// When it was found committed.
    pub committed: Nanos,
    /// 0 without a record.
    pub csn: Csn,
}

impl Moments {
    fn wrote(&self) -> bool {
        self.csn != Csn::ZERO
    }

    /// Returns the time of each [`Stage`], in their order.
    fn by_stage(&self) -> [Option<u64>; 5] {
        let of_writer = |ns| self.wrote().then_some(ns);
        [
            Some(span(self.begun, self.committed)),
            Some(span(self.begun, self.ready)),
            of_writer(span(self.ready, self.committed)),
            of_writer(self.wait()),
            of_writer(self.acknowledge()),
        ]
    }

    /// From ready to the beginning of the write.
    fn wait(&self) -> u64 {
        span(self.ready, self.write.0)
    }

    /// The write, as far as it came after ready.
    fn flush(&self) -> u64 {
        span(self.write.0.max(self.ready), self.write.1)
    }

    /// From the end of the write to the acknowledgment.
    fn acknowledge(&self) -> u64 {
        span(self.write.1.max(self.ready), self.committed)
    }

    /// Reports a commit that took long. The stages are approximate for a transaction that waited
    /// for another log.
    fn report(&self) {
        tracing::warn!(
            csn = self.csn.0,
            commit_us = span(self.ready, self.committed) / 1000,
            execute_us = span(self.begun, self.ready) / 1000,
            wait_us = self.wait() / 1000,
            flush_us = self.flush() / 1000,
            acknowledge_us = self.acknowledge() / 1000,
            "slow commit"
        );
    }
}

/// Returns the nanoseconds between two moments, or 0 if they are the other way round.
fn span(from: Nanos, to: Nanos) -> u64 {
    to.0.saturating_sub(from.0)
}

impl CommitMetrics {
    /// Reports commits that take at least `slow`; see `slow_commit_log`.
    #[must_use]
    pub fn reporting(slow: Option<Duration>) -> CommitMetrics {
        let slow_ns = slow.map(|slow| u64::try_from(slow.as_nanos()).unwrap_or(u64::MAX));
        CommitMetrics { slow_ns, ..CommitMetrics::default() }
    }

    /// Transactions per flush, on average.
    #[must_use]
    pub fn group_size(&self) -> f64 {
        self.committed_writers.get() as f64 / self.flushes.get().max(1) as f64
    }

    /// Clears the latencies, between a warm-up and a measurement. Counters keep their values.
    pub fn reset(&self) {
        self.flush.reset();
        self.stages.reset();
    }

    /// Returns the times of a stage.
    #[must_use]
    pub fn of_stage(&self, stage: Stage) -> Histogram<u64> {
        self.stages.merged_of(stage as usize)
    }

    /// Counts committed transactions.
    pub fn count_committed(&self, transactions: &[Moments]) {
        if transactions.is_empty() {
            return;
        }
        let writers = transactions.iter().filter(|t| t.wrote()).count();
        self.committed.add(transactions.len() as u64);
        self.committed_writers.add(writers as u64);
        self.stages.record_all(transactions.iter().map(Moments::by_stage));
        if let Some(slow) = self.slow_ns {
            let is_slow = |t: &&Moments| t.wrote() && span(t.ready, t.committed) >= slow;
            transactions.iter().filter(is_slow).for_each(Moments::report);
        }
    }
}
