//! Counters of transactions, and of their waits before the commit.

use crate::base::metrics::{Counter, LatencyHistogram};

/// Counters of transactions since open, or since a reset.
#[derive(Debug, Default)]
pub struct TransactionCounters {
    /// Transactions aborted by the caller, by drop or by a failed commit.
    pub aborted: Counter,
    /// Transactions that failed because of others: conflicts, deadlocks, timeouts.
    pub conflicts: Counter,
    /// Waits for a row or a lock, those that ended in an error included.
    pub row_waits: Counter,
    /// Total time of these waits, in nanoseconds.
    pub row_wait_ns: Counter,
    /// The times of these waits.
    pub lock_waits: LatencyHistogram,
    /// How long pessimistic transactions held locks and changed rows, from the first to the
    /// release.
    pub lock_holds: LatencyHistogram,
    /// Transactions that were chosen to abort because of a deadlock.
    pub deadlocks: Counter,
    /// Waits that ended with a timeout, and requests of transactions that do not wait.
    pub lock_timeouts: Counter,
    /// Times that a transaction replaced its locks on keys by one on the table.
    pub lock_escalations: Counter,
    /// Validations that failed because of a key.
    pub changed_keys: Counter,
    /// Validations that failed because of a range.
    pub changed_ranges: Counter,
    /// Transactions that waited before they began, because versions filled most of their memory.
    pub version_waits: Counter,
    /// Deleted rows that scans visited: see `dead_ranges`.
    pub tombstones_visited: Counter,
    /// Records whose insertion into a log was timed, one in sixteen.
    pub log_inserts_timed: Counter,
    /// Total time of these insertions, from the call to the record in the log buffer, in
    /// nanoseconds.
    pub log_insert_ns: Counter,
}

impl TransactionCounters {
    /// Returns the mean of the timed insertions, in microseconds.
    #[must_use]
    pub fn log_insert_us_mean(&self) -> f64 {
        self.log_insert_ns.get() as f64 / 1e3 / self.log_inserts_timed.get().max(1) as f64
    }

    /// Resets all counters, between a warm-up and a measurement.
    pub fn reset(&self) {
        let since_reset = [
            &self.aborted,
            &self.conflicts,
            &self.row_waits,
            &self.row_wait_ns,
            &self.deadlocks,
            &self.lock_timeouts,
            &self.lock_escalations,
            &self.changed_keys,
            &self.changed_ranges,
            &self.version_waits,
            &self.tombstones_visited,
            &self.log_inserts_timed,
            &self.log_insert_ns,
        ];
        since_reset.into_iter().for_each(Counter::reset);
        self.lock_waits.reset();
        self.lock_holds.reset();
    }
}

/// A clock read costs as much as appending a small record, so not all are timed.
pub(super) const LOG_INSERTS_TIMED_ONE_IN: u64 = 16;
