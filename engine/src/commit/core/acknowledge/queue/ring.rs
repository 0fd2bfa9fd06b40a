//! A ring of cache lines that one producer and one consumer use at the same time, without waiting
//! for each other.
//!
//! ```text
//!   lines     ... | entry | entry         | entry |  free  ...        an entry takes as many whole lines as it needs
//!                 ^ head                          ^ tail              positions only rise: line = position mod lines
//! ```
//!
//! * The producer is the holder of the log's latch, the consumer that of `consumer`.
//! * **Full is not empty.** Positions are 64 bits and never wrap: empty is `head = tail`, full is
//!   `tail - head = lines`.
//! * **Wrap-around.** A position is reduced only to find a line, so an entry may begin in the last
//!   line and continue in the first.
//! * **Backpressure.** [`Ring::has_room`] looks whether the longest entry fits. It keeps what it
//!   read of `head` (`head_seen`) and reads it again only if that looks full, so that the producer
//!   seldom touches the consumer's line.
//! * **No cursor is read again after a write.** A push takes `tail` once, writes the words, and
//!   stores `tail` (release): nothing that others may change in between decides where it writes. A
//!   batch takes `tail` once (acquire), and stores `head` (release) after it has read the words, so
//!   the producer overwrites nothing that is still to be read.

use super::entry::{ENTRY_LINES_MAX, Entry, LINE_WORDS, Popped, Words};
use crate::commit::core::watermark::Latched;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use crossbeam_utils::CachePadded;

/// A batch publishes its free lines to the producer after so many entries.
const PUBLISH_EVERY: u64 = 64;

/// See the module's text.
#[derive(Debug)]
pub struct Ring {
    producer: CachePadded<Producer>,
    /// End of what was popped. Written under `consumer`, read by the producer.
    head: CachePadded<AtomicU64>,
    lines: Box<[Line]>,
    /// Position up to which entries have been reported as held up.
    consumer: Mutex<u64>,
}

#[derive(Debug)]
#[repr(align(64))]
struct Line([AtomicU64; LINE_WORDS]);

#[derive(Debug)]
struct Producer {
    /// End of what was pushed. Written under the latch, read by the consumer.
    tail: AtomicU64,
    /// A value that `head` had. Read and written under the latch.
    head_seen: AtomicU64,
}

/// An entry's words, from a line on.
struct At<'a>(&'a Ring, u64);

impl At<'_> {
    fn word(&self, at: usize) -> &AtomicU64 {
        let line = self.1 + (at / LINE_WORDS) as u64;
        &self.0.lines[line as usize & (self.0.lines.len() - 1)].0[at % LINE_WORDS]
    }
}

impl Words for At<'_> {
    fn put(&mut self, at: usize, word: u64) {
        self.word(at).store(word, Ordering::Relaxed);
    }

    fn get(&self, at: usize) -> u64 {
        self.word(at).load(Ordering::Relaxed)
    }
}

impl Ring {
    /// An empty ring of `lines` lines, a power of two.
    pub(super) fn new(lines: usize) -> Ring {
        debug_assert!(lines.is_power_of_two() && lines >= ENTRY_LINES_MAX);
        let line = || Line(std::array::from_fn(|_| AtomicU64::new(0)));
        Ring {
            producer: CachePadded::new(Producer { tail: AtomicU64::new(0), head_seen: AtomicU64::new(0) }),
            head: CachePadded::new(AtomicU64::new(0)),
            lines: (0..lines).map(|_| line()).collect(),
            consumer: Mutex::new(0),
        }
    }

    pub(super) fn has_room(&self, _latch: &impl Latched) -> bool {
        let (tail, most) = (self.producer.tail.load(Ordering::Relaxed), self.lines.len() as u64);
        let fits = |head| tail + ENTRY_LINES_MAX as u64 - head <= most;
        if fits(self.producer.head_seen.load(Ordering::Relaxed)) {
            return true;
        }
        let head = self.head.load(Ordering::Acquire);
        self.producer.head_seen.store(head, Ordering::Relaxed);
        fits(head)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.head.load(Ordering::SeqCst) == self.producer.tail.load(Ordering::SeqCst)
    }

    pub(super) fn push(&self, entry: &Entry, _latch: &impl Latched) {
        let tail = self.producer.tail.load(Ordering::Relaxed);
        entry.write(&mut At(self, tail));
        self.producer.tail.store(tail + entry.lines(), Ordering::SeqCst);
    }

    pub(super) fn pop_while(
        &self,
        wait: bool,
        mut accept: impl FnMut(Entry) -> bool,
        mut held_up: impl FnMut(Entry) -> bool,
    ) -> Option<Popped> {
        let mut shown = if wait { self.consumer.lock() } else { self.consumer.try_lock()? };
        let mut head = self.head.load(Ordering::Relaxed);
        let tail = self.producer.tail.load(Ordering::SeqCst);
        let mut count = 0;
        while head < tail {
            let entry = Entry::read(&At(self, head));
            if !accept(entry) {
                break;
            }
            head += entry.lines();
            count += 1;
            // Now and then, so that a producer at the bound can continue while a long queue is
            // drained.
            if count % PUBLISH_EVERY == 0 {
                self.head.store(head, Ordering::SeqCst);
            }
        }
        debug_assert!(head <= tail, "the batch ends with an entry");
        if count > 0 {
            self.head.store(head, Ordering::SeqCst);
        }
        *shown = head.max(*shown);
        while *shown < tail {
            let entry = Entry::read(&At(self, *shown));
            if !held_up(entry) {
                break;
            }
            *shown += entry.lines();
        }
        debug_assert!((head..=tail).contains(&*shown), "only what is queued was shown");
        Some(Popped { count, refused: head < tail })
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::base::Csn;
    use crate::base::clock::Nanos;
    use crate::commit::core::predecessors::Predecessors;
    use crate::commit::core::watermark::tests::Held;
    use loom::sync::Arc;

    /// Returns entries of one and of two lines in turn.
    fn entry(csn: u64) -> Entry {
        let mut predecessors = Predecessors::default();
        (0..4 * (csn % 2)).for_each(|n| predecessors.add(Csn(10 * csn + n)));
        Entry { csn: Csn(csn), dsn: Csn(csn + 1), begun: Nanos(csn + 2), ready: Nanos(csn + 3), predecessors }
    }

    /// Four entries, six lines, go through two lines: each is written over what was read before,
    /// wherever the consumer is.
    #[test]
    fn a_ring_that_is_always_full_or_empty_loses_and_tears_nothing() {
        loom::model(|| {
            let ring = Arc::new(Ring::new(2));
            let theirs = ring.clone();
            let producer = loom::thread::spawn(move || {
                for csn in 1..=3 {
                    while !theirs.has_room(&Held) {
                        loom::thread::yield_now();
                    }
                    theirs.push(&entry(csn), &Held);
                }
            });
            let mut next = 1;
            while next <= 3 {
                let popped = ring.pop_while(
                    true,
                    |e| {
                        assert_eq!(e, entry(next));
                        next += 1;
                        true
                    },
                    |_| true,
                );
                if popped.is_none_or(|popped| popped.count == 0) {
                    loom::thread::yield_now();
                }
            }
            producer.join().expect("no panic");
            assert!(ring.is_empty());
        });
    }

    /// Two acknowledgers, of which one does not wait for the other.
    #[test]
    fn two_acknowledgers_see_each_entry_once() {
        loom::model(|| {
            let ring = Arc::new(Ring::new(4));
            ring.push(&entry(1), &Held);
            let theirs = ring.clone();
            let other = loom::thread::spawn(move || {
                let mut seen = Vec::new();
                theirs.pop_while(
                    false,
                    |e| {
                        seen.push(e.csn.0);
                        true
                    },
                    |_| true,
                );
                seen
            });
            ring.push(&entry(2), &Held);
            let mut seen = Vec::new();
            ring.pop_while(
                true,
                |e| {
                    seen.push(e.csn.0);
                    true
                },
                |_| true,
            );
            let mut all = other.join().expect("no panic");
            all.extend(&seen);
            all.sort_unstable();
            assert_eq!(all, [1, 2], "each once; the second was pushed before the last look");
        });
    }
}
