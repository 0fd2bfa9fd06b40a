//! Estimates how long recovery would take now.
//!
//! ```text
//!   seconds = fixed
//!           + log files [bytes] (and again what does not fit in memory)   / scan rate
//!           + (operations above the checkpoint * cost of one + their bytes * cost of one)     / threads
//!           + pages that redo has to read           * cost of one, many being read at a time
//! ```
//!
//! **Inputs.** All files of the log count, because recovery reads all of them, READY ones too.
//! Operations and bytes are those appended since the newest durable checkpoint began, and the
//! chunks of transactions in progress at that time. Redo changes the pages that changed since the
//! checkpoint: dirty pages, estimated by a sample, and pages evicted since. Redo begins with an
//! empty pool, so it reads each of these pages that the checkpoint has once; and again in each
//! window if they exceed the memory.
//!
//! **Rates.** Measured by the last recovery of this open, if it was long enough. Otherwise
//! constants, measured on two busy cores of a small machine, so that the estimate errs upwards. The
//! cost of reading a page is a running average over reads of many pages at a time, as in redo; open
//! starts it with a sample of stored pages. Without such reads it is a part of the cost of a single
//! page. Left out on purpose: the cost of executing transactions, which contains the caller's time;
//! and rates in the manifest, because an open that recovers measures them again.

use crate::buffer::Pool;
use crate::store::PageStore;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::transaction::TransactionSystem;
use std::sync::Arc;
use std::time::Duration;

/// The work of a recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ReplayWork {
    /// Bytes of all files of the log.
    pub log_bytes: u64,
    /// Row operations above the checkpoint.
    pub operations: u64,
    /// Bytes of their records.
    pub record_bytes: u64,
    /// Estimated pages that changed since the checkpoint.
    pub pages: u64,
    /// Estimated changed pages with an image in the checkpoint.
    pub stored_pages: u64,
}

/// The cost of each part of the work.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ReplayRates {
    /// Log bytes read and checked per second.
    pub scan_bytes_per_second: f64,
    /// One operation, on one thread, in nanoseconds.
    pub operation_ns: f64,
    /// One byte of a record, on one thread, in nanoseconds.
    pub byte_ns: f64,
    /// Reading a page among many at a time, in nanoseconds.
    pub page_read_ns: f64,
    /// A recovery of this open measured the first three; otherwise they are constants.
    pub measured: bool,
}

impl Default for ReplayRates {
    fn default() -> ReplayRates {
        ReplayRates {
            scan_bytes_per_second: 600e6,
            operation_ns: 400.0,
            byte_ns: 1.5,
            page_read_ns: 12_000.0,
            measured: false,
        }
    }
}

/// The resources of recovery; the same at the next open with the same settings.
#[derive(Clone, Copy, Debug)]
pub struct ReplayLimits {
    /// Threads that redo.
    pub threads: u64,
    /// Bytes of the log that are kept in memory after the scan.
    pub keep_bytes: u64,
    /// Operations that are sorted and applied together.
    pub window_operations: u64,
    /// Bytes of pages that stay in memory.
    pub page_memory_bytes: u64,
}

/// The estimated time of recovery and its parts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ReplayEstimate {
    /// The whole recovery.
    pub seconds: f64,
    /// Reading and checking the log.
    pub scan_seconds: f64,
    /// Applying operations, without reading pages.
    pub redo_seconds: f64,
    /// Reading pages.
    pub read_seconds: f64,
    /// The work.
    pub work: ReplayWork,
    /// The rates.
    pub rates: ReplayRates,
}

/// The work and time of a finished recovery.
#[derive(Clone, Copy, Debug, Default)]
pub struct MeasuredReplay {
    /// Bytes of all files of the log.
    pub log_bytes: u64,
    /// Time to read and check them.
    pub scan_seconds: f64,
    /// Operations that were replayed.
    pub operations: u64,
    /// Bytes of their records.
    pub record_bytes: u64,
    /// Pages read meanwhile.
    pub pages_read: u64,
    /// Time to replay, without the scan.
    pub replay_seconds: f64,
}

/// Time of a recovery without work: opening, publishing, the first segment.
const FIXED_SECONDS: f64 = 0.05;
/// A shorter phase is not used as a measurement.
const MEASURABLE_SECONDS: f64 = 0.02;
/// How far a measurement may change the constants.
const FACTOR: std::ops::RangeInclusive<f64> = 0.125..=8.0;
/// Pages sampled for an estimate.
const SAMPLE: u64 = 1024;
/// Weight of the running average: one new read counts as one part in so many.
const AVERAGED: u64 = 64;

impl ReplayRates {
    /// Returns the time of `work`.
    #[must_use]
    pub(crate) fn estimate(self, work: ReplayWork, limits: ReplayLimits, page_bytes: u64) -> ReplayEstimate {
        let read_bytes = work.log_bytes + work.log_bytes.saturating_sub(limits.keep_bytes);
        let scan_seconds = read_bytes as f64 / self.scan_bytes_per_second;
        let threads = limits.threads.max(1) as f64;
        let redo_ns = work.operations as f64 * self.operation_ns + work.record_bytes as f64 * self.byte_ns;
        let redo_seconds = redo_ns * 1e-9 / threads;
        let reads = pages_to_read(work, limits, page_bytes);
        let read_seconds = reads as f64 * self.page_read_ns * 1e-9;
        let seconds = FIXED_SECONDS + scan_seconds + redo_seconds + read_seconds;
        ReplayEstimate { seconds, scan_seconds, redo_seconds, read_seconds, work, rates: self }
    }

    /// Returns the rates that a recovery measured.
    fn measured(self, seen: MeasuredReplay, limits: ReplayLimits) -> ReplayRates {
        let mut rates = self;
        if seen.scan_seconds >= MEASURABLE_SECONDS {
            rates.scan_bytes_per_second = seen.log_bytes as f64 / seen.scan_seconds;
            rates.measured = true;
        }
        let work = ReplayWork {
            log_bytes: 0,
            operations: seen.operations,
            record_bytes: seen.record_bytes,
            ..ReplayWork::default()
        };
        let reading = seen.pages_read as f64 * self.page_read_ns * 1e-9;
        let expected = ReplayRates::default().estimate(work, limits, 1).redo_seconds;
        let redo_seconds = seen.replay_seconds - reading;
        if redo_seconds >= MEASURABLE_SECONDS && expected >= MEASURABLE_SECONDS / 4.0 {
            let factor = (redo_seconds / expected).clamp(*FACTOR.start(), *FACTOR.end());
            rates.operation_ns = ReplayRates::default().operation_ns * factor;
            rates.byte_ns = ReplayRates::default().byte_ns * factor;
            rates.measured = true;
        }
        rates
    }
}

fn pages_to_read(work: ReplayWork, limits: ReplayLimits, page_bytes: u64) -> u64 {
    let once = work.stored_pages.min(work.operations);
    if work.pages * page_bytes <= limits.page_memory_bytes {
        return once;
    }
    let windows = work.operations.div_ceil(limits.window_operations.max(1)).max(1);
    (once + work.pages * (windows - 1)).min(work.operations)
}

/// Pages read together from which on a read measures the cost among many.
const MANY: usize = 8;
/// Cost of a page among many as a part of its cost alone: no measured device saves less.
const AMONG_MANY: f64 = 0.25;

/// The running averages of what reading a page costs, alone and among many.
#[derive(Debug, Default)]
pub struct ReadCost {
    alone: Average,
    among_many: Average,
}

impl ReadCost {
    /// Records the time of reading one page.
    pub fn note(&self, time: Duration) {
        self.alone.note(time);
    }

    /// Records the time of reading `pages` pages at once.
    pub fn note_many(&self, pages: usize, time: Duration) {
        if pages >= MANY {
            self.among_many.note(time / pages as u32);
        }
    }

    /// Returns the cost of a page among many.
    fn nanos(&self) -> Option<f64> {
        self.among_many.nanos().or_else(|| self.alone.nanos().map(|nanos| nanos * AMONG_MANY))
    }
}

#[derive(Debug, Default)]
struct Average {
    /// Nanoseconds; 0 before the first read. Updates may be lost: that is one read less.
    nanos: AtomicU64,
}

impl Average {
    fn note(&self, time: Duration) {
        let now = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
        let average = match self.nanos.load(Ordering::Relaxed) {
            0 => now,
            before => before - before / AVERAGED + now / AVERAGED,
        };
        self.nanos.store(average.max(1), Ordering::Relaxed);
    }

    fn nanos(&self) -> Option<f64> {
        let nanos = self.nanos.load(Ordering::Relaxed);
        (nanos > 0).then_some(nanos as f64)
    }
}

/// Operations and bytes of records that were appended since open.
#[derive(Clone, Copy, Debug, Default)]
pub struct Committed {
    operations: u64,
    record_bytes: u64,
}

#[derive(Debug, Default)]
struct State {
    /// Totals when the newest durable checkpoint began.
    covered: Committed,
    /// The work of the recovery of this open; none after the first checkpoint.
    recovered: MeasuredReplay,
    rates: ReplayRates,
}

/// Estimates the work and the time of a recovery. Any thread, at any time.
pub struct ReplayModel {
    system: Arc<TransactionSystem>,
    pool: Arc<Pool>,
    store: Arc<PageStore>,
    reads: Arc<ReadCost>,
    limits: ReplayLimits,
    /// Held for a few instructions; no other lock is taken meanwhile.
    state: Mutex<State>,
}

impl std::fmt::Debug for ReplayModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplayModel").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl ReplayModel {
    /// A model that begins with the measurements of this open's recovery.
    #[must_use]
    pub fn new(
        system: Arc<TransactionSystem>,
        pool: Arc<Pool>,
        store: Arc<PageStore>,
        reads: Arc<ReadCost>,
        limits: ReplayLimits,
        recovered: MeasuredReplay,
    ) -> ReplayModel {
        let page_read_ns = reads.nanos().unwrap_or(ReplayRates::default().page_read_ns);
        let rates = ReplayRates { page_read_ns, ..ReplayRates::default() }.measured(recovered, limits);
        let state = Mutex::new(State { covered: Committed::default(), recovered, rates });
        ReplayModel { system, pool, store, reads, limits, state }
    }

    /// Returns the totals committed so far, for a checkpoint before it chooses its CSN.
    /// Transactions in progress are not included, because the log keeps their chunks.
    #[must_use]
    pub fn committed(&self) -> Committed {
        let (operations, record_bytes) = self.system.commit().chunks().in_progress();
        let Committed { operations: all, record_bytes: all_bytes } = self.appended();
        Committed {
            operations: all.saturating_sub(operations),
            record_bytes: all_bytes.saturating_sub(record_bytes),
        }
    }

    fn appended(&self) -> Committed {
        let metrics = self.system.commit().inspect().metrics();
        Committed { operations: metrics.operations.get(), record_bytes: metrics.log_bytes.get() }
    }

    /// Records that a checkpoint is durable that began at `covered`.
    pub fn checkpointed(&self, covered: Committed) {
        let mut state = self.state.lock();
        (state.covered, state.recovered) = (covered, MeasuredReplay::default());
    }

    /// Returns the time of recovery if the process ended now. Takes some tens of microseconds.
    #[must_use]
    pub fn estimate(&self) -> ReplayEstimate {
        let now = self.appended();
        let log_bytes = self.system.commit().space().segments().file_bytes();
        let (pages, stored_pages) = self.changed_pages();
        let (work, mut rates) = {
            let state = self.state.lock();
            let since = |now: u64, covered: u64| now.saturating_sub(covered);
            let work = ReplayWork {
                // A read-only database has no log of its own: the log that it recovered from
                // counts.
                log_bytes: log_bytes.max(state.recovered.log_bytes),
                operations: since(now.operations, state.covered.operations) + state.recovered.operations,
                record_bytes: since(now.record_bytes, state.covered.record_bytes)
                    + state.recovered.record_bytes,
                pages,
                stored_pages,
            };
            (work, state.rates)
        };
        rates.page_read_ns = self.reads.nanos().unwrap_or(rates.page_read_ns);
        rates.estimate(work, self.limits, self.pool.page_bytes() as u64)
    }

    /// Estimates how many pages changed since the checkpoint, and how many of them have an image.
    fn changed_pages(&self) -> (u64, u64) {
        let count = self.pool.page_count();
        let step = count.div_ceil(SAMPLE).max(1);
        let (mut dirty, mut stored) = (0, 0);
        for id in (1..count).step_by(step as usize).map(crate::base::PageId) {
            if self.pool.frames().is_dirty(id) {
                dirty += step;
                stored += if self.store.contains(id) { step } else { 0 };
            }
        }
        // Pages whose newest image is in no durable checkpoint yet: evicted, or imaged by a running
        // checkpoint.
        let usage = self.store.usage();
        let gone = usage.next + usage.in_checkpoint;
        (dirty + gone, stored + gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ReplayLimits = ReplayLimits {
        threads: 2,
        keep_bytes: 100 << 20,
        window_operations: 100_000,
        page_memory_bytes: 400 << 20,
    };

    fn work(operations: u64) -> ReplayWork {
        ReplayWork {
            log_bytes: 32 << 20,
            operations,
            record_bytes: operations * 160,
            pages: operations / 30,
            stored_pages: 0,
        }
    }

    #[test]
    fn the_estimate_grows_with_each_part_of_the_work() {
        let rates = ReplayRates::default();
        let seconds = |work| rates.estimate(work, LIMITS, 4096).seconds;
        let some = work(100_000);
        let growth = seconds(work(200_000)) - seconds(some);
        assert!((seconds(work(300_000)) - seconds(work(200_000)) - growth).abs() < 1e-9, "linear");
        assert!(seconds(ReplayWork { log_bytes: 64 << 20, ..some }) > seconds(some));
        assert!(seconds(ReplayWork { stored_pages: 3000, ..some }) > seconds(some));
        assert!((seconds(ReplayWork::default()) - FIXED_SECONDS).abs() < 1e-9);
    }

    #[test]
    fn log_or_pages_larger_than_memory_are_read_again() {
        let rates = ReplayRates::default();
        let scan = |mib: u64| {
            rates.estimate(ReplayWork { log_bytes: mib << 20, ..work(0) }, LIMITS, 4096).scan_seconds
        };
        assert!((scan(200) / scan(100) - 3.0).abs() < 1e-9);
        let few = ReplayWork { pages: 10_000, stored_pages: 5000, ..work(250_000) };
        assert_eq!(pages_to_read(few, LIMITS, 4096), 5000);
        let little = ReplayLimits { page_memory_bytes: 1 << 20, ..LIMITS };
        assert_eq!(pages_to_read(few, little, 4096), 5000 + 2 * 10_000, "three windows");
        assert_eq!(pages_to_read(ReplayWork { operations: 7, ..few }, little, 4096), 7, "one an operation");
    }

    #[test]
    fn a_recovery_that_was_long_enough_gives_the_rates() {
        let seen = MeasuredReplay {
            log_bytes: 200 << 20,
            scan_seconds: 0.4,
            operations: 1_000_000,
            record_bytes: 160_000_000,
            pages_read: 1000,
            replay_seconds: 1.0,
        };
        let rates = ReplayRates::default().measured(seen, LIMITS);
        assert!(rates.measured);
        let again = ReplayWork {
            log_bytes: seen.log_bytes,
            operations: seen.operations,
            record_bytes: seen.record_bytes,
            pages: 1000,
            stored_pages: 1000,
        };
        let limits = ReplayLimits { keep_bytes: 1 << 30, ..LIMITS };
        let estimate = rates.estimate(again, limits, 4096);
        assert!((estimate.seconds - FIXED_SECONDS - 1.4).abs() < 0.01, "{estimate:?}");
        let short = MeasuredReplay { scan_seconds: 0.001, replay_seconds: 0.001, ..seen };
        assert_eq!(ReplayRates::default().measured(short, LIMITS), ReplayRates::default());
    }

    #[test]
    fn the_cost_of_a_read_follows_what_is_measured() {
        let cost = ReadCost::default();
        assert_eq!(cost.nanos(), None);
        (0..1000).for_each(|_| cost.note(Duration::from_micros(100)));
        let before = cost.nanos().expect("noted");
        assert!((22_500.0..=27_500.0).contains(&before), "{before}");
        cost.note_many(MANY - 1, Duration::from_micros(1));
        assert_eq!(cost.nanos(), Some(before), "too few");
        (0..1000).for_each(|_| cost.note_many(10, Duration::from_micros(300)));
        let after = cost.nanos().expect("noted");
        assert!((27_000.0..=33_000.0).contains(&after), "{after}");
    }
}
