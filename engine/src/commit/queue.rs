//! Which transactions of a log wait to be acknowledged without a thread that waits with them?
//!
//! A bounded ring per log. Pushed under the log's latch, so that it is in CSN order; popped from the front by whoever
//! acknowledges, one at a time. A blocking committer needs no entry: it looks for itself.
//!
//! Entries leave in order. A transaction whose DSN is not yet below W holds up those behind it: they were committed by the
//! same session or by one that shares its log, and W passes them all within the same flush or two. That
//! is cheaper than a structure that lets them overtake.
//!
//! Invariants:
//! 1. `tail - head <= capacity`; a producer asks [`PendingQueue::has_room`] before the draw, under the latch, so that
//!    the push after the draw cannot fail (rule 2). It allocates nothing.
//! 2. An entry's words are written before `tail` is raised (release) and read after `tail` is read (acquire); they are
//!    overwritten only after `head` passed them.

use super::watermark::Latched;
use crate::base::Csn;
use crate::base::clock::Nanos;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use crossbeam_utils::CachePadded;

/// Memory for an entry of the queue.
pub(super) const ENTRY_BYTES: u64 = size_of::<[AtomicU64; 4]>() as u64;

/// A pre-committed transaction that nobody waits with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    /// Its own CSN; zero for a read-only transaction, which has no record.
    pub csn: Csn,
    /// What it depends on.
    pub dsn: Csn,
    /// When it began.
    pub begun: Nanos,
    /// When it asked to commit.
    pub ready: Nanos,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct PendingQueue {
    /// Entries pushed so far. Written under the log's latch.
    tail: CachePadded<AtomicU64>,
    /// Entries popped so far. Written under `consumer`.
    head: CachePadded<AtomicU64>,
    words: Box<[[AtomicU64; 4]]>,
    consumer: Mutex<()>,
}

impl PendingQueue {
    /// An empty queue for `capacity` entries, rounded up to a power of two.
    pub(super) fn new(capacity: usize) -> PendingQueue {
        let capacity = capacity.next_power_of_two();
        PendingQueue {
            tail: CachePadded::new(AtomicU64::new(0)),
            head: CachePadded::new(AtomicU64::new(0)),
            words: (0..capacity).map(|_| std::array::from_fn(|_| AtomicU64::new(0))).collect(),
            consumer: Mutex::new(()),
        }
    }

    /// True if a push would succeed, and go on to until the latch is released.
    pub(super) fn has_room(&self, _latch: &impl Latched) -> bool {
        let used = self.tail.load(Ordering::Relaxed) - self.head.load(Ordering::Acquire);
        used < self.words.len() as u64
    }

    /// True if nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.head.load(Ordering::SeqCst) == self.tail.load(Ordering::SeqCst)
    }

    /// Appends an entry. The caller has asked for room.
    pub(super) fn push(&self, entry: Entry, latch: &impl Latched) {
        debug_assert!(self.has_room(latch), "room is asked for before the draw");
        let tail = self.tail.load(Ordering::Relaxed);
        let words = &self.words[tail as usize & (self.words.len() - 1)];
        let values = [entry.csn.0, entry.dsn.0, entry.begun.0, entry.ready.0];
        for (word, value) in words.iter().zip(values) {
            word.store(value, Ordering::Relaxed);
        }
        self.tail.store(tail + 1, Ordering::SeqCst);
    }

    /// Pops entries from the front as long as `accept` takes them. Returns how many it took, and whether one was
    /// refused.
    pub(super) fn pop_while(&self, mut accept: impl FnMut(Entry) -> bool) -> Popped {
        let _consumer = self.consumer.lock();
        let mut head = self.head.load(Ordering::Relaxed);
        let first = head;
        let tail = self.tail.load(Ordering::SeqCst);
        while head < tail && accept(self.entry(head)) {
            head += 1;
            // Once per entry, so that a producer at the bound goes on while a long queue is drained.
            self.head.store(head, Ordering::Release);
        }
        Popped { count: head - first, refused: head < tail }
    }

    fn entry(&self, position: u64) -> Entry {
        let words = &self.words[position as usize & (self.words.len() - 1)];
        let [csn, dsn, begun, ready] = std::array::from_fn(|i| words[i].load(Ordering::Relaxed));
        Entry { csn: Csn(csn), dsn: Csn(dsn), begun: Nanos(begun), ready: Nanos(ready) }
    }
}

/// What [`PendingQueue::pop_while`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Popped {
    pub count: u64,
    /// An entry is left at the front that was not accepted.
    pub refused: bool,
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests {
    use super::super::watermark::tests::Held;
    use super::*;

    fn entry(csn: u64) -> Entry {
        Entry { csn: Csn(csn), dsn: Csn(csn - 1), begun: Nanos(csn), ready: Nanos(csn + 1) }
    }

    #[test]
    fn entries_leave_in_order_up_to_the_first_refused() {
        let queue = PendingQueue::new(4);
        for csn in 1..=4 {
            assert!(queue.has_room(&Held));
            queue.push(entry(csn), &Held);
        }
        assert!(!queue.has_room(&Held));
        let mut seen = Vec::new();
        let popped = queue.pop_while(|e| {
            e.csn < Csn(3) && {
                seen.push(e);
                true
            }
        });
        assert_eq!(popped, Popped { count: 2, refused: true });
        assert_eq!(seen, [entry(1), entry(2)]);
        assert!(queue.has_room(&Held) && !queue.is_empty());
        assert_eq!(queue.pop_while(|_| true), Popped { count: 2, refused: false });
        assert!(queue.is_empty());
    }

    #[test]
    fn a_consumer_beside_the_producer_sees_every_entry_once_and_whole() {
        let queue = PendingQueue::new(8);
        let total = if cfg!(miri) { 100 } else { 100_000 };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for csn in 1..=total {
                    while !queue.has_room(&Held) {
                        std::thread::yield_now();
                    }
                    queue.push(entry(csn), &Held);
                }
            });
            let mut next = 1;
            while next <= total {
                queue.pop_while(|e| {
                    assert_eq!(e, entry(next));
                    next += 1;
                    true
                });
            }
        });
    }
}
