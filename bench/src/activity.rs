//! What the workers have done so far: counts, latencies, and the longest span in which nobody finished anything.
//!
//! # Stalls
//! ```text
//!   thread 1   ──F───F──────────────────────────F──F──
//!   thread 2   ─F──F────────────────────────F─F───F───
//!                    │◀────── a stall ──────▶│
//! ```
//! Every worker reads the clock once a transaction and keeps when it finished last. Only who finds that its own last
//! finish is longer ago than the longest stall known looks at the others: the span from the newest of their finishes to
//! now is a stall. It looks **before** it publishes its own finish, so that of two threads that end a stall together at
//! least one still sees its beginning.
//!
//! Precision: no stall is missed or measured too short by more than a clock read. One that another thread ends may be
//! measured too long by the time that thread is preempted between reading the clock and publishing. Cost: one clock
//! read, two loads, and stores to the worker's own cache lines.

use crate::latencies::{Counted, Latencies, add_alone};
use crossbeam_utils::CachePadded;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// What a transaction is going to do, as far as counting it needs to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Intent {
    /// It only reads.
    pub reads_only: bool,
    /// Bytes of the keys and values it writes.
    pub written_bytes: u64,
}

/// One worker's; written by it alone.
#[derive(Debug, Default)]
struct Slot {
    committed: AtomicU64,
    aborted: AtomicU64,
    written_bytes: AtomicU64,
    /// Nanoseconds since `Activity::began`.
    last_finish: AtomicU64,
    all: Latencies,
    reads: Latencies,
}

/// Of all workers of a run.
#[derive(Debug)]
pub struct Activity {
    began: Instant,
    slots: Vec<CachePadded<Slot>>,
    longest_stall: CachePadded<AtomicU64>,
    /// Stalls are counted from here on.
    window: AtomicU64,
}

/// Sums over all workers at some moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sums {
    /// Transactions that ended well.
    pub committed: u64,
    /// Conflicts.
    pub aborted: u64,
    /// Bytes of keys and values written by the committed ones.
    pub written_bytes: u64,
}

impl Activity {
    /// For so many workers.
    #[must_use]
    pub fn of(workers: usize) -> Activity {
        Activity {
            began: Instant::now(),
            slots: (0..workers).map(|_| CachePadded::default()).collect(),
            longest_stall: CachePadded::default(),
            window: AtomicU64::new(0),
        }
    }

    /// Nanoseconds since this was made.
    #[inline]
    #[must_use]
    pub fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Worker `index` finished a transaction; `begun` is when it began it, for its latency. Returns the moment.
    #[inline]
    pub fn finished(&self, index: usize, begun: u64, intent: Intent) -> u64 {
        let (slot, now) = (&self.slots[index], self.now());
        slot.all.record_ns(now.saturating_sub(begun));
        if intent.reads_only {
            slot.reads.record_ns(now.saturating_sub(begun));
        }
        add_alone(&slot.committed, 1);
        add_alone(&slot.written_bytes, intent.written_bytes);
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

    /// The newest finish of anybody, or the beginning of the window.
    fn newest_finish(&self) -> u64 {
        let newest = self.slots.iter().map(|slot| slot.last_finish.load(Ordering::Acquire)).max();
        newest.unwrap_or(0).max(self.window.load(Ordering::Acquire))
    }

    /// Worker `index` met a conflict.
    pub fn conflicted(&self, index: usize) {
        add_alone(&self.slots[index].aborted, 1);
    }

    /// Looks for stalls from now on.
    pub fn open_window(&self) {
        self.window.store(self.now(), Ordering::Release);
        self.longest_stall.store(0, Ordering::Relaxed);
    }

    /// The longest stall since [`Activity::open_window`], one that has not ended included, in microseconds.
    #[must_use]
    pub fn longest_stall_us(&self) -> f64 {
        let open = self.now().saturating_sub(self.newest_finish());
        self.longest_stall.load(Ordering::Relaxed).max(open) as f64 / 1e3
    }

    /// Sums so far.
    #[must_use]
    pub fn sums(&self) -> Sums {
        let sum = |field: fn(&Slot) -> &AtomicU64| {
            self.slots.iter().map(|slot| field(slot).load(Ordering::Relaxed)).sum()
        };
        Sums {
            committed: sum(|slot| &slot.committed),
            aborted: sum(|slot| &slot.aborted),
            written_bytes: sum(|slot| &slot.written_bytes),
        }
    }

    /// Transactions committed by each worker so far.
    #[must_use]
    pub fn committed_by_worker(&self) -> Vec<u64> {
        self.slots.iter().map(|slot| slot.committed.load(Ordering::Acquire)).collect()
    }

    /// Latencies of all transactions so far.
    #[must_use]
    pub fn latencies(&self) -> Counted {
        Counted::of(self.slots.iter().map(|slot| &slot.all))
    }

    /// Latencies of those that only read.
    #[must_use]
    pub fn read_latencies(&self) -> Counted {
        Counted::of(self.slots.iter().map(|slot| &slot.reads))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_longest_span_without_any_finish_is_the_stall() {
        let activity = Activity::of(2);
        std::thread::sleep(Duration::from_millis(40));
        activity.open_window();
        let intent = Intent::default();
        // Thread 1 is quiet for 60 ms, but thread 0 is not: no stall longer than 30 ms.
        for _ in 0..2 {
            std::thread::sleep(Duration::from_millis(30));
            activity.finished(0, 0, intent);
        }
        activity.finished(1, 0, intent);
        let stall = activity.longest_stall_us();
        assert!((30_000.0..55_000.0).contains(&stall), "{stall}");
        std::thread::sleep(Duration::from_millis(80));
        assert!(activity.longest_stall_us() >= 80_000.0, "one that has not ended counts");
        activity.finished(1, 0, intent);
        assert!(activity.longest_stall_us() >= 80_000.0);
        activity.open_window();
        assert!(activity.longest_stall_us() < 30_000.0, "a new window forgets");
    }

    #[test]
    fn sums_and_read_latencies_are_kept_apart() {
        let activity = Activity::of(1);
        activity.finished(0, 0, Intent { reads_only: true, written_bytes: 0 });
        activity.finished(0, 0, Intent { reads_only: false, written_bytes: 108 });
        activity.conflicted(0);
        assert_eq!(activity.sums(), Sums { committed: 2, aborted: 1, written_bytes: 108 });
        assert_eq!((activity.latencies().count(), activity.read_latencies().count()), (2, 1));
    }

    #[test]
    #[ignore = "measures"]
    fn cost_of_counting_a_transaction() {
        let (activity, rounds) = (Activity::of(1), 10_000_000u64);
        let intent = Intent { reads_only: false, written_bytes: 108 };
        let mut begun = activity.now();
        let first = begun;
        for _ in 0..rounds {
            begun = activity.finished(0, begun, intent);
        }
        println!("{:.1} ns a transaction", (begun - first) as f64 / rounds as f64);
        assert_eq!(activity.sums().committed, rounds);
    }
}
