//! How long would recovery take now?
//!
//! ```text
//!   seconds = fixed
//!           + log files [bytes] (and again what does not fit in memory)   / scan rate
//!           + (operations above the checkpoint * cost of one + their bytes * cost of one)     / threads
//!           + pages that redo has to read           * cost of one, many being read at a time
//! ```
//!
//! **Inputs.** All files of the log count, since all are read, READY ones too. Operations and bytes are what was appended
//! since the newest durable checkpoint was begun, and the chunks of transactions that were in progress then. The pages that redo changes are those that changed since the checkpoint:
//! the dirty ones, found by a sample, and those that left memory since. Redo begins with an empty pool, so it reads each
//! of them once that the checkpoint has; and again in each window if all of them do not fit in memory.
//!
//! **Rates.** What the last recovery of this open measured, if it was long enough to tell. Before that constants, which are
//! measured on two busy cores of a small machine, so that the estimate errs upwards. The cost of reading a page is a running
//! average over reads of many pages at a time, as redo does them; open begins it with a sample of what is stored. Without such,
//! a part of what one page alone costs. Left out on purpose: the cost of executing transactions, which has the caller's time in it; and
//! keeping rates in the manifest, since an open that recovers measures them anew.

use crate::buffer::Pool;
use crate::store::PageStore;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::transaction::TransactionSystem;
use std::sync::Arc;
use std::time::Duration;

/// What recovery would have to do.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ReplayWork {
    /// Bytes of all files of the log.
    pub log_bytes: u64,
    /// Row operations above the checkpoint.
    pub operations: u64,
    /// Bytes of the records that they are in.
    pub record_bytes: u64,
    /// Pages that changed since the checkpoint, about.
    pub pages: u64,
    /// Of these, pages of which the checkpoint has an image, about.
    pub stored_pages: u64,
}

/// What each part of the work costs.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ReplayRates {
    /// Log bytes read and checked in a second.
    pub scan_bytes_per_second: f64,
    /// One operation, on one thread, in nanoseconds.
    pub operation_ns: f64,
    /// One byte of a record, on one thread, in nanoseconds.
    pub byte_ns: f64,
    /// Reading a page among many at a time, in nanoseconds.
    pub page_read_ns: f64,
    /// The first three were measured by a recovery of this open; otherwise they are constants.
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

/// What recovery may use; it is the same at the next open with the same settings.
#[derive(Clone, Copy, Debug)]
pub struct ReplayLimits {
    /// Threads that redo.
    pub threads: u64,
    /// Bytes of the log that need not be read twice.
    pub keep_bytes: u64,
    /// Operations that are sorted and applied together.
    pub window_operations: u64,
    /// Bytes of pages that stay in memory.
    pub page_memory_bytes: u64,
}

/// How long recovery would take, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ReplayEstimate {
    /// All of it.
    pub seconds: f64,
    /// Reading and checking the log.
    pub scan_seconds: f64,
    /// Applying operations, without reading pages.
    pub redo_seconds: f64,
    /// Reading pages.
    pub read_seconds: f64,
    /// From which work this comes.
    pub work: ReplayWork,
    /// From which rates.
    pub rates: ReplayRates,
}

/// What a recovery did and how long it took.
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
    /// Pages that were read meanwhile.
    pub pages_read: u64,
    /// Time to replay, without the scan.
    pub replay_seconds: f64,
}

/// Opening, publishing, the first segment: what recovery takes if there is nothing to do.
const FIXED_SECONDS: f64 = 0.05;
/// A phase that was shorter tells nothing.
const MEASURABLE_SECONDS: f64 = 0.02;
/// How far a measurement may move the constants.
const FACTOR: std::ops::RangeInclusive<f64> = 0.125..=8.0;
/// Pages looked at for an estimate.
const SAMPLE: u64 = 1024;
/// A new read is one part in so many of the running average.
const AVERAGED: u64 = 64;

impl ReplayRates {
    /// What `work` costs.
    #[must_use]
    pub fn estimate(self, work: ReplayWork, limits: ReplayLimits, page_bytes: u64) -> ReplayEstimate {
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

    /// The rates that a recovery showed.
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

/// So many pages read together tell what many at a time cost.
const MANY: usize = 8;
/// What a page costs among many, as a part of what it costs alone: no device that was looked at gains less.
const AMONG_MANY: f64 = 0.25;

/// The running averages of what reading a page costs, alone and among many.
#[derive(Debug, Default)]
pub struct ReadCost {
    alone: Average,
    among_many: Average,
}

impl ReadCost {
    /// A page was read in this time.
    pub fn note(&self, time: Duration) {
        self.alone.note(time);
    }

    /// So many pages were read at a time in this time.
    pub fn note_many(&self, pages: usize, time: Duration) {
        if pages >= MANY {
            self.among_many.note(time / pages as u32);
        }
    }

    /// Of a page among many.
    fn nanos(&self) -> Option<f64> {
        self.among_many.nanos().or_else(|| self.alone.nanos().map(|nanos| nanos * AMONG_MANY))
    }
}

#[derive(Debug, Default)]
struct Average {
    /// Nanoseconds; 0 before the first. Written without regard for others: a lost update is one read less.
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
    /// When the newest durable checkpoint was begun.
    covered: Committed,
    /// What the recovery of this open replayed; nothing after the first checkpoint.
    recovered: MeasuredReplay,
    rates: ReplayRates,
}

/// Knows what a recovery would have to do, and what that costs. Any thread, at any time.
pub struct ReplayModel {
    system: Arc<TransactionSystem>,
    pool: Arc<Pool>,
    store: Arc<PageStore>,
    reads: Arc<ReadCost>,
    limits: ReplayLimits,
    /// Held for a few instructions, with nothing else taken meanwhile.
    state: Mutex<State>,
}

impl std::fmt::Debug for ReplayModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplayModel").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl ReplayModel {
    /// A model that begins with what the recovery of this open did.
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

    /// What was committed so far: to be taken before a checkpoint chooses its CSN. It does not contain what is in progress, so
    /// the log keeps the chunks of that.
    #[must_use]
    pub fn committed(&self) -> Committed {
        let (operations, record_bytes) = self.system.commit().chunks_in_progress();
        let Committed { operations: all, record_bytes: all_bytes } = self.appended();
        Committed {
            operations: all.saturating_sub(operations),
            record_bytes: all_bytes.saturating_sub(record_bytes),
        }
    }

    fn appended(&self) -> Committed {
        let metrics = self.system.commit().metrics();
        Committed { operations: metrics.operations.get(), record_bytes: metrics.log_bytes.get() }
    }

    /// A checkpoint is durable that was begun at `covered`.
    pub fn checkpointed(&self, covered: Committed) {
        let mut state = self.state.lock();
        (state.covered, state.recovered) = (covered, MeasuredReplay::default());
    }

    /// How long recovery would take if the process ended now. Costs some tens of microseconds.
    #[must_use]
    pub fn estimate(&self) -> ReplayEstimate {
        let now = self.appended();
        let log_bytes = self.system.commit().log_file_bytes();
        let (pages, stored_pages) = self.changed_pages();
        let (work, mut rates) = {
            let state = self.state.lock();
            let since = |now: u64, covered: u64| now.saturating_sub(covered);
            let work = ReplayWork {
                // A read-only database has no log of its own: the one that it recovered from.
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

    /// About how many pages changed since the checkpoint, and how many of them have an image.
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
        // Those whose newest image is of no durable checkpoint yet: they left memory, or one is being made.
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
    fn a_log_that_does_not_fit_is_read_twice_and_pages_that_do_not_fit_in_each_window() {
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
