//! How much memory recovery takes for itself, besides the pages that it changes.
//!
//! | share | for | bound |
//! |---|---|---|
//! | 1/2 | segments kept from the scan until their records are replayed | `keep_bytes` |
//! | 1/8 | blocks that are read again: as many in a window as ahead of it | 2 * `window.bytes` |
//! | 3/16 | records of a window: found, and to be redone | [`RECORD_BYTES`] * `window.records` |
//! | 3/16 | steps of a batch, one copied range a thread | [`STEP_BYTES`] * 2 * `redo.steps_max` |
//!
//! The whole is half of `memory_bytes`. It is charged to the account of the pool, less what was
//! kept and is replayed, until recovery ends. While the log is scanned, the threads that do it have
//! the other half for the pieces that they read, and for as much that is read ahead.
//!
//! Beyond it there are 140 bytes for each block of the log above the checkpoint (a block is 4 KiB
//! or more), the longest block for each log or thread, and the records to be appended again, which
//! had not left the log buffers or were among the last 65,536.

use super::redo::{Effort, Redo, STEP_BYTES};
use super::select::FoundRecord;
use super::threads;
use super::window::WindowLimits;
use crate::base::settings::Settings;
use crate::checkpoint::ReplayLimits;

/// Bytes of a record of a window: twice as it is found, while parts are put together; later once,
/// and as it is redone.
const RECORD_BYTES: u64 = 2 * size_of::<FoundRecord>() as u64;
const _: () = assert!(size_of::<Redo<'_>>() <= size_of::<FoundRecord>());
/// Larger reads are not faster.
const PIECE_BYTES_MAX: u64 = 4 << 20;
/// Threads that scan, at least: they wait for the device most of the time.
const SCAN_THREADS: usize = 4;

/// Returns the limits of a recovery with these settings.
#[must_use]
pub fn replay_limits(settings: &Settings) -> ReplayLimits {
    RecoveryMemory::of(settings, threads::count()).replay_limits(settings)
}

/// The memory of each part of recovery.
#[derive(Clone, Copy, Debug)]
pub struct RecoveryMemory {
    /// Threads that scan the log.
    pub scan_threads: usize,
    /// Bytes that each of them reads at a time, and ahead.
    pub piece_bytes: usize,
    /// Segments that stay in memory after the scan.
    pub keep_bytes: u64,
    /// A window of records.
    pub window: WindowLimits,
    /// Redo.
    pub redo: Effort,
}

impl RecoveryMemory {
    /// Returns the limits for the model of recovery's time.
    pub fn replay_limits(&self, settings: &Settings) -> ReplayLimits {
        ReplayLimits {
            threads: self.redo.threads as u64,
            keep_bytes: self.keep_bytes,
            window_operations: self.window.records.min(self.redo.steps_max) as u64,
            // The share of recovery is not for pages.
            page_memory_bytes: settings.memory_bytes - self.bytes(0),
        }
    }

    /// Returns the total while segments of `kept_bytes` are kept.
    pub fn bytes(&self, kept_bytes: u64) -> u64 {
        // The parts that are not for keeping have as much as the part that is.
        self.keep_bytes + kept_bytes.min(self.keep_bytes)
    }

    /// The parts for a database with these settings.
    pub fn of(settings: &Settings, threads: usize) -> RecoveryMemory {
        let all = settings.memory_bytes / 2;
        let records = all / 16 * 3 / RECORD_BYTES;
        let steps = all / 16 * 3 / (2 * STEP_BYTES as u64);
        let scan_threads = threads.max(SCAN_THREADS);
        let piece_bytes = (all / 4 / scan_threads as u64).min(PIECE_BYTES_MAX) as usize;
        RecoveryMemory {
            scan_threads,
            piece_bytes,
            keep_bytes: all / 2,
            window: WindowLimits { bytes: (all / 16) as usize, records: records as usize, threads },
            redo: Effort { threads, steps_max: steps as usize },
        }
    }
}
