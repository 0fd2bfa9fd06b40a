//! What transactions count, and where they waited before their commit.

use crate::base::metrics::Counter;

/// What transactions count.
#[derive(Debug, Default)]
pub struct TransactionCounters {
    /// Aborted by the caller, by drop or by a failed commit.
    pub aborted: Counter,
    /// Write conflicts.
    pub conflicts: Counter,
    /// Waits for a transaction that holds a row, those that ended in a conflict included.
    pub row_waits: Counter,
    /// How long they took, in nanoseconds.
    pub row_wait_ns: Counter,
    /// Transactions that waited before they began, because versions filled most of their memory.
    pub version_waits: Counter,
    /// Records whose way into a log was timed, one in sixteen.
    pub log_inserts_timed: Counter,
    /// How long these took, from the call to the record in the log's buffer, in nanoseconds.
    pub log_insert_ns: Counter,
}

impl TransactionCounters {
    /// Mean of the timed ones, in microseconds.
    #[must_use]
    pub fn log_insert_us_mean(&self) -> f64 {
        self.log_insert_ns.get() as f64 / 1e3 / self.log_inserts_timed.get().max(1) as f64
    }

    /// Forgets what a measurement must not take over from its warm-up.
    pub fn reset(&self) {
        let since_reset = [
            &self.aborted,
            &self.conflicts,
            &self.row_waits,
            &self.row_wait_ns,
            &self.version_waits,
            &self.log_inserts_timed,
            &self.log_insert_ns,
        ];
        since_reset.into_iter().for_each(Counter::reset);
    }
}

/// A clock read costs as much as appending a small record, so not all are timed.
pub(super) const LOG_INSERTS_TIMED_ONE_IN: u64 = 16;
