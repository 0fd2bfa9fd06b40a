//! What a recovery did, and how it reports its progress.

use crate::checkpoint::MeasuredReplay;

/// Called with the name of the step, the amount done and the total amount.
pub type ProgressFn<'a> = &'a mut (dyn FnMut(&str, u64, u64) + Send);

/// The work of recovery at open.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// The database had been closed: there was nothing to do.
    pub clean: bool,
    /// Transactions replayed.
    pub replayed: u64,
    /// Whole records that were discarded because something they depend on is lost, none of them
    /// acknowledged.
    pub discarded: u64,
    /// Row operations in those that were replayed.
    pub operations: u64,
    /// Chunks of those that are older than the checkpoint: the log was kept for a transaction that
    /// was in progress then.
    pub chunks_before_checkpoint: u64,
    /// Pages of a standby that were taken over when it was promoted, so that what it had applied
    /// was not replayed.
    pub adopted_pages: u64,
    /// Bytes of the records of those that were replayed.
    pub record_bytes: u64,
    /// Log bytes read, those that were read twice counted twice.
    pub log_bytes: u64,
    /// Bytes of the log's files.
    pub log_file_bytes: u64,
    /// Page images read while transactions were replayed.
    pub pages_read: u64,
    /// Seconds of reading and checking the log, part of the total.
    pub scan_seconds: f64,
    /// Seconds of replaying, part of the total.
    pub replay_seconds: f64,
    /// Time taken.
    pub seconds: f64,
}

impl RecoveryReport {
    /// Returns the measurements for the model of the next recovery.
    #[must_use]
    pub(crate) fn measured(&self) -> MeasuredReplay {
        MeasuredReplay {
            log_bytes: self.log_file_bytes,
            scan_seconds: self.scan_seconds,
            operations: self.operations,
            record_bytes: self.record_bytes,
            pages_read: self.pages_read,
            replay_seconds: self.replay_seconds,
        }
    }
}
