//! Counts and latencies of the workers, and the longest span in which no worker finished a
//! transaction.
//!
//! # Stalls
//! ```text
//!   thread 1   ──F───F──────────────────────────F──F──
//!   thread 2   ─F──F────────────────────────F─F───F───
//!                    │◀────── a stall ──────▶│
//! ```
//! Every worker reads the clock once a transaction and publishes the time of its newest finish. A
//! worker whose own previous finish is older than the longest known stall reads the finishes of all
//! workers: the span from the newest of them to now is a stall. The worker reads **before** it
//! publishes its own finish, so that of two threads that end a stall together at least one sees its
//! beginning.
//!
//! Precision: no stall is missed, or measured too short by more than a clock read. A stall may be
//! measured too long by the time that a thread is preempted between reading the clock and
//! publishing. Cost per transaction: one clock read, two loads, and stores to the worker's own
//! cache lines.

use crate::latencies::{Counted, Latencies, add_alone};
use crate::workload::{Ending, Intent};
use crossbeam_utils::CachePadded;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// One type of transaction.
#[derive(Debug, Default)]
struct KindSlot {
    committed: AtomicU64,
    rolled_back: AtomicU64,
    conflicts: AtomicU64,
    /// Latency from the begin or the arrival to the acknowledgment, or to the rollback.
    latency: Latencies,
    /// Committed and acknowledged.
    acknowledged: AtomicU64,
}

/// Where the time of the sampled transactions went, in nanoseconds.
#[derive(Debug, Default)]
struct StageSlot {
    sampled: AtomicU64,
    execute: AtomicU64,
    commit_call: AtomicU64,
    /// Of all attempts with a conflict, not of a sample.
    conflicts: AtomicU64,
}

/// Counters of one worker, written by it alone.
#[derive(Debug, Default)]
struct Slot {
    written_bytes: AtomicU64,
    /// Rows read, written and shown by scans, of attempts without a conflict.
    rows: AtomicU64,
    /// Nanoseconds since `Activity::began`.
    last_finish: AtomicU64,
    all: Latencies,
    reads: Latencies,
    /// Durable blocking commits of transactions that wrote: the call that commits.
    log_waits: Latencies,
    kinds: Vec<KindSlot>,
    stages: StageSlot,
}

/// Counters of all workers of a run.
#[derive(Debug)]
pub struct Activity {
    began: Instant,
    slots: Vec<CachePadded<Slot>>,
    longest_stall: CachePadded<AtomicU64>,
    /// Stalls count from this time on.
    window: AtomicU64,
}

/// Sums over all workers at some moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sums {
    /// Transactions that committed.
    pub committed: u64,
    /// Transactions that rolled back as specified.
    pub rolled_back: u64,
    /// Conflicts.
    pub aborted: u64,
    /// Bytes of keys and values that committed transactions wrote.
    pub written_bytes: u64,
}

/// One type of transaction, over all workers at some moment.
#[derive(Clone, Debug)]
pub struct KindSums {
    /// Committed.
    pub committed: u64,
    /// Rolled back as specified.
    pub rolled_back: u64,
    /// Conflicts.
    pub conflicts: u64,
    /// Committed and acknowledged.
    pub acknowledged: u64,
    /// Latency from the begin or the arrival to the acknowledgment.
    pub latency: Counted,
}

/// Where time went, over all workers, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct StageSums {
    /// Transactions whose stages were timed.
    pub sampled: u64,
    /// Of these: begin and operations.
    pub execute: u64,
    /// Of these: the call that commits.
    pub commit_call: u64,
    /// Of all transactions: attempts with a conflict.
    pub conflicts: u64,
}

/// One in this many transactions is timed stage by stage: a clock read costs as much as a small
/// operation.
pub const STAGES_OF_ONE_IN: u64 = 16;

impl Activity {
    /// Creates counters for `workers` workers and `kinds` types of transactions.
    #[must_use]
    pub fn of(workers: usize, kinds: usize) -> Activity {
        let slot = || Slot { kinds: (0..kinds).map(|_| KindSlot::default()).collect(), ..Slot::default() };
        Activity {
            began: Instant::now(),
            slots: (0..workers).map(|_| CachePadded::new(slot())).collect(),
            longest_stall: CachePadded::default(),
            window: AtomicU64::new(0),
        }
    }

    /// Returns the nanoseconds since the creation.
    #[inline]
    #[must_use]
    pub fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Counts a transaction that worker `index` began at `begun`. Returns the current time.
    #[inline]
    pub fn finished(&self, index: usize, begun: u64, intent: Intent, ending: Ending) -> u64 {
        let (slot, now) = (&self.slots[index], self.now());
        slot.all.record_ns(now.saturating_sub(begun));
        if intent.reads_only {
            slot.reads.record_ns(now.saturating_sub(begun));
        }
        let kind = &slot.kinds[intent.kind];
        match ending {
            Ending::Commit { written_bytes } => {
                add_alone(&kind.committed, 1);
                add_alone(&slot.written_bytes, written_bytes);
            }
            Ending::RollBack => {
                add_alone(&kind.rolled_back, 1);
                kind.latency.record_ns(now.saturating_sub(begun));
            }
        }
        let last = slot.last_finish.load(Ordering::Relaxed);
        if now.saturating_sub(last) > self.longest_stall.load(Ordering::Relaxed) {
            self.look_for_stall(now);
        }
        slot.last_finish.store(now, Ordering::Release);
        now
    }

    #[cold]
    fn look_for_stall(&self, now: u64) {
        self.longest_stall.fetch_max(now.saturating_sub(self.newest_finish()), Ordering::Relaxed);
    }

    /// Returns the newest finish of all workers, or the beginning of the window.
    fn newest_finish(&self) -> u64 {
        let newest = self.slots.iter().map(|slot| slot.last_finish.load(Ordering::Acquire)).max();
        newest.unwrap_or(0).max(self.window.load(Ordering::Acquire))
    }

    /// Counts the acknowledgment at `now` of a transaction of type `kind` that worker `index` began
    /// at `begun`.
    #[inline]
    pub fn acknowledged(&self, index: usize, kind: usize, begun: u64, now: u64) {
        let kind = &self.slots[index].kinds[kind];
        add_alone(&kind.acknowledged, 1);
        kind.latency.record_ns(now.saturating_sub(begun));
    }

    /// Counts a conflict of worker `index` in a transaction of type `kind`, begun at `begun`.
    /// Returns the current time.
    pub fn conflicted(&self, index: usize, kind: usize, begun: u64) -> u64 {
        let (slot, now) = (&self.slots[index], self.now());
        add_alone(&slot.kinds[kind].conflicts, 1);
        add_alone(&slot.stages.conflicts, now.saturating_sub(begun));
        now
    }

    /// Counts a commit of worker `index` that it called at `called`, and that is durable now.
    #[inline]
    pub fn waited_for_log(&self, index: usize, called: u64) {
        self.slots[index].log_waits.record_ns(self.now().saturating_sub(called));
    }

    /// Counts rows that worker `index` read or wrote.
    #[inline]
    pub fn touched(&self, index: usize, rows: u64) {
        add_alone(&self.slots[index].rows, rows);
    }

    /// Adds the stages of a transaction of worker `index`, in nanoseconds.
    pub fn sampled(&self, index: usize, execute: u64, commit_call: u64) {
        let stages = &self.slots[index].stages;
        add_alone(&stages.sampled, 1);
        add_alone(&stages.execute, execute);
        add_alone(&stages.commit_call, commit_call);
    }

    /// Starts to measure stalls.
    pub fn open_window(&self) {
        self.window.store(self.now(), Ordering::Release);
        self.longest_stall.store(0, Ordering::Relaxed);
    }

    /// Returns the longest stall since [`Activity::open_window`] in microseconds, including one in
    /// progress.
    #[must_use]
    pub fn longest_stall_us(&self) -> f64 {
        let open = self.now().saturating_sub(self.newest_finish());
        self.longest_stall.load(Ordering::Relaxed).max(open) as f64 / 1e3
    }

    /// Returns the sums so far.
    #[must_use]
    pub fn sums(&self) -> Sums {
        let sum = |field: fn(&KindSlot) -> &AtomicU64| {
            self.slots
                .iter()
                .flat_map(|slot| &slot.kinds)
                .map(|kind| field(kind).load(Ordering::Relaxed))
                .sum()
        };
        Sums {
            committed: sum(|kind| &kind.committed),
            rolled_back: sum(|kind| &kind.rolled_back),
            aborted: sum(|kind| &kind.conflicts),
            written_bytes: self.slots.iter().map(|slot| slot.written_bytes.load(Ordering::Relaxed)).sum(),
        }
    }

    /// Returns the sums of each type of transaction so far.
    #[must_use]
    pub fn kinds(&self) -> Vec<KindSums> {
        let kinds = self.slots.first().map_or(0, |slot| slot.kinds.len());
        let of = |index: usize| {
            let sum = |field: fn(&KindSlot) -> &AtomicU64| {
                self.slots.iter().map(|slot| field(&slot.kinds[index]).load(Ordering::Relaxed)).sum()
            };
            KindSums {
                committed: sum(|kind| &kind.committed),
                rolled_back: sum(|kind| &kind.rolled_back),
                conflicts: sum(|kind| &kind.conflicts),
                acknowledged: sum(|kind| &kind.acknowledged),
                latency: Counted::of(self.slots.iter().map(|slot| &slot.kinds[index].latency)),
            }
        };
        (0..kinds).map(of).collect()
    }

    /// Returns the times of the stages so far.
    #[must_use]
    pub fn stages(&self) -> StageSums {
        let sum = |field: fn(&StageSlot) -> &AtomicU64| {
            self.slots.iter().map(|slot| field(&slot.stages).load(Ordering::Relaxed)).sum()
        };
        StageSums {
            sampled: sum(|stages| &stages.sampled),
            execute: sum(|stages| &stages.execute),
            commit_call: sum(|stages| &stages.commit_call),
            conflicts: sum(|stages| &stages.conflicts),
        }
    }

    /// Returns the number of transactions that each worker has committed.
    #[must_use]
    pub fn committed_by_worker(&self) -> Vec<u64> {
        let of = |slot: &CachePadded<Slot>| {
            slot.kinds.iter().map(|kind| kind.committed.load(Ordering::Acquire)).sum()
        };
        self.slots.iter().map(of).collect()
    }

    /// Returns the number of rows read and written so far.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.slots.iter().map(|slot| slot.rows.load(Ordering::Relaxed)).sum()
    }

    /// Returns the latencies to the acknowledgment, of all types together.
    #[must_use]
    pub fn acknowledged_latencies(&self) -> Counted {
        Counted::of(self.slots.iter().flat_map(|slot| &slot.kinds).map(|kind| &kind.latency))
    }

    /// Returns the latencies of all transactions so far.
    #[must_use]
    pub fn latencies(&self) -> Counted {
        Counted::of(self.slots.iter().map(|slot| &slot.all))
    }

    /// Returns the waits for the log so far.
    #[must_use]
    pub fn log_waits(&self) -> Counted {
        Counted::of(self.slots.iter().map(|slot| &slot.log_waits))
    }

    /// Returns the latencies of transactions that only read.
    #[must_use]
    pub fn read_latencies(&self) -> Counted {
        Counted::of(self.slots.iter().map(|slot| &slot.reads))
    }
}

#[cfg(test)]
mod tests;
