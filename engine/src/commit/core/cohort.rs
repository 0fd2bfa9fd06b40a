//! Is it worth waiting for the threads that the last write released?
//!
//! Threads that commit one transaction after the other are released together when a write has
//! completed, and return with their next commit a little later. The first to return finds the log
//! without a leader. If it wrote at once, it would write almost alone, the others would wait for
//! that write first, and from then on two groups would take turns: each commit lasts two writes,
//! and half of the time the CPU is idle. If it waits for the others, all are in the next write.
//!
//! ```text
//!   at once      |== A ==|== B ==|== A ==|== B ==|        a commit lasts two writes
//!   together     |== AB ==|..|== AB ==|..|== AB ==|       one, and the time until the last returns
//! ```
//!
//! So the **cohort** of the next write is counted: the commits that the last write released, and
//! those that had arrived by its end. Until all have arrived no thread writes, and **the last to
//! arrive leads**, so that no thread is woken only to write. The first keeps the time: when a mean
//! write's time has passed since the last write's end, it leads.
//!
//! That pays where returning takes less time than a write. Where it does not (long transactions,
//! many threads on few cores, unrelated arrivals) the wait is a miss. After two misses in a row the
//! wait is skipped for a number of writes that doubles with each further miss. So at most one write
//! in [`PAUSE_MAX`] takes up to twice its time.
//!
//! All is written under the log's latch. A committer reads it after it appended: the last to append
//! sees all that came before.

use super::levels;
use crate::base::Csn;
use crate::base::clock::Nanos;
use crate::log::LogGuard;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Misses in a row after which it is not tried for a while.
pub const MISSES: u32 = 2;
/// Writes for which it is not tried, at most.
pub const PAUSE_MAX: u32 = 1024;
/// A write that takes less is over before a thread is asleep.
pub const WRITE_MIN: Duration = Duration::from_micros(20);
/// No cohort is worth a longer wait, however slow the device is.
pub const WAIT_MAX: Duration = Duration::from_millis(100);
/// The newest write counts for one part in so many in the mean.
pub const MEAN_OF: u64 = 8;
/// A smaller cohort lowers the peak by one part in so many of the difference.
const PEAK_OF: u32 = 16;

/// The commits that are expected to join the next write of a log.
#[derive(Debug)]
pub struct Cohort {
    /// Commits that a thread waits with, appended since the last seal.
    arrived: AtomicU32,
    /// The first of them.
    first: AtomicU64,
    /// Sealed and not yet durable.
    on_their_way: AtomicU32,
    /// Commits that the last write released, plus commits already waiting when it ended.
    size: AtomicU32,
    /// About the largest of the recent sizes: a smaller one lowers it by a part of the difference.
    peak: AtomicU32,
    /// Commits expected before the next write; 0: no commit is waited for.
    expected: AtomicU32,
    /// Time until which `expected` commits are waited for.
    until: AtomicU64,
    /// Mean duration of a write.
    mean_ns: AtomicU64,
    /// A committer waited for its cohort since the last write.
    waited: AtomicBool,
    misses: AtomicU32,
    /// Writes for which it is not tried.
    pause: AtomicU32,
}

impl Cohort {
    pub fn new() -> Cohort {
        Cohort {
            arrived: AtomicU32::new(0),
            first: AtomicU64::new(0),
            on_their_way: AtomicU32::new(0),
            size: AtomicU32::new(0),
            peak: AtomicU32::new(0),
            expected: AtomicU32::new(0),
            until: AtomicU64::new(0),
            mean_ns: AtomicU64::new(0),
            waited: AtomicBool::new(false),
            misses: AtomicU32::new(0),
            pause: AtomicU32::new(0),
        }
    }

    /// A commit was appended that a thread waits with.
    pub fn joined(&self, csn: Csn, _latch: &LogGuard<'_>) {
        debug_assert!(csn.0 > self.first.load(Ordering::Relaxed), "CSNs rise within a log");
        let arrived = self.arrived.load(Ordering::Relaxed);
        if arrived == 0 {
            self.first.store(csn.0, Ordering::Relaxed);
        }
        self.arrived.store(arrived + 1, Ordering::Relaxed);
    }

    /// Everything appended is going to be written.
    pub fn sealed(&self, _latch: &LogGuard<'_>) {
        let arrived = self.arrived.swap(0, Ordering::Relaxed);
        self.first.store(0, Ordering::Relaxed);
        self.on_their_way.store(self.on_their_way.load(Ordering::Relaxed) + arrived, Ordering::Relaxed);
        let expected = self.expected.swap(0, Ordering::Relaxed);
        if !self.waited.swap(false, Ordering::Relaxed) {
            self.pause.store(self.pause.load(Ordering::Relaxed).saturating_sub(1), Ordering::Relaxed);
        } else if arrived >= expected {
            self.misses.store(0, Ordering::Relaxed);
        } else {
            let misses = self.misses.load(Ordering::Relaxed) + 1;
            self.misses.store(misses, Ordering::Relaxed);
            if misses >= MISSES {
                let pause = 1_u32.checked_shl(misses).unwrap_or(PAUSE_MAX).min(PAUSE_MAX);
                self.pause.store(pause, Ordering::Relaxed);
            }
        }
    }

    /// A write has completed, which took from `begun` to `now`.
    pub fn write_completed(&self, begun: Nanos, now: Nanos, _latch: &LogGuard<'_>) {
        let took = now.0.saturating_sub(begun.0);
        let mean = match self.mean_ns.load(Ordering::Relaxed) {
            0 => took,
            mean => mean - mean / MEAN_OF + took / MEAN_OF,
        };
        self.mean_ns.store(mean, Ordering::Relaxed);
        let there = self.arrived.load(Ordering::Relaxed);
        let cohort = self.on_their_way.swap(0, Ordering::Relaxed) + there;
        let wait = Duration::from_nanos(mean).min(WAIT_MAX);
        self.size.store(cohort, Ordering::Relaxed);
        let peak = self.peak.load(Ordering::Relaxed);
        let lowered = peak - peak.saturating_sub(cohort).div_ceil(PEAK_OF);
        debug_assert!(lowered <= peak, "a smaller cohort lowers the peak");
        self.peak.store(cohort.max(lowered), Ordering::Relaxed);
        let worthwhile =
            cohort > there.max(1) && wait >= WRITE_MIN && self.pause.load(Ordering::Relaxed) == 0;
        self.until.store(levels::after(now, wait).0, Ordering::Relaxed);
        self.expected.store(if worthwhile { cohort } else { 0 }, Ordering::Relaxed);
    }

    /// Until when a committer that has appended should let others come before it writes; `None`: it
    /// should write now.
    pub fn expected_until(&self, now: Nanos) -> Option<Nanos> {
        let until = Nanos(self.until.load(Ordering::Relaxed));
        let missing = self.arrived.load(Ordering::Relaxed) < self.expected.load(Ordering::Relaxed);
        let wait = missing && now < until;
        if wait {
            self.waited.store(true, Ordering::Relaxed);
        }
        wait.then_some(until)
    }

    /// Returns the mean duration of recent writes; zero before the first.
    pub fn mean_write(&self) -> Duration {
        Duration::from_nanos(self.mean_ns.load(Ordering::Relaxed))
    }

    /// Returns about how many threads wait together. On a fast device most cohorts are small even
    /// if many threads commit; one that a preempted thread holds up shows how many there are.
    pub fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed) as usize
    }

    /// Returns about how many threads commit beside the caller.
    pub fn others(&self) -> usize {
        let (size, arrived) = (&self.size, &self.arrived);
        size.load(Ordering::Relaxed).max(arrived.load(Ordering::Relaxed)).saturating_sub(1) as usize
    }

    /// Returns whether the commit of `csn` is the timekeeper of its open block; `None` if its block
    /// is sealed.
    ///
    /// One load answers both questions. With two, the block could be sealed in between: a committer
    /// that found its block open would then compare with the first CSN of the next block, and sleep
    /// without a timekeeper.
    pub fn is_timekeeper(&self, csn: Csn) -> Option<bool> {
        let first = self.first.load(Ordering::Relaxed);
        (first != 0 && csn.0 >= first).then_some(csn.0 == first)
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
