//! Which transactions of a log wait to be acknowledged without a thread that waits with them?
//!
//! A bounded queue per log. Pushed under the log's latch, so that it is in CSN order; popped from the front, many at a time, by whoever
//! acknowledges, one thread at a time. A blocking committer needs no entry: it looks for itself.
//!
//! Entries leave in order. A transaction that has to wait for W holds up those behind it: they were committed by the
//! same session or by one that shares its log, and W passes them all within the same flush or two. That
//! is cheaper than a structure that lets them overtake. By the exact rule it can take longer, so there those that have to wait are put
//! [`aside`].
//!
//! Two kinds, to be compared: a [`ring`] that both ends use at the same time, and a list behind one lock ([`latched`]).
//!
//! Invariants of both:
//! 1. At most so many lines as it was made for. A producer asks [`PendingQueue::has_room`] before the draw, under the latch, so that
//!    the push after the draw cannot fail (rule 2). The push allocates nothing.
//! 2. An entry is seen whole, once, after those that were pushed before it.

mod latched;
mod out_of_order;
mod ring;

use super::watermark::Latched;
use crate::base::Csn;
use crate::base::clock::Nanos;
use crate::base::settings::Queue;
use latched::List;
pub(super) use out_of_order::OutOfOrder;
use ring::Ring;

/// Words of a cache line.
const LINE_WORDS: usize = 8;
/// Memory for an entry of the queue, unless it names many predecessors.
pub(super) const ENTRY_BYTES: u64 = (LINE_WORDS * size_of::<u64>()) as u64;
/// Words of an entry besides its predecessors.
const FIXED_WORDS: usize = 5;
/// Lines of the longest entry.
const ENTRY_LINES_MAX: usize = (FIXED_WORDS + PREDECESSORS).div_ceil(LINE_WORDS);
/// Predecessors that are told apart.
pub(super) const PREDECESSORS: usize = 6;

/// Direct predecessors of a transaction that were not committed when it met them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Predecessors {
    csns: [Csn; PREDECESSORS],
    /// How many; one more than there is room for: too many to tell.
    count: u8,
}

impl Predecessors {
    /// Adds one.
    #[inline]
    pub fn add(&mut self, csn: Csn) {
        let known = usize::from(self.count);
        if known > PREDECESSORS || self.csns[..known].contains(&csn) {
            return;
        }
        match self.csns.get_mut(known) {
            Some(place) => *place = csn,
            None => self.csns = [Csn::ZERO; PREDECESSORS],
        }
        self.count += 1;
    }

    /// Keeps only those for which `keep` says so. If there were too many to tell it stays so.
    pub fn retain(&mut self, keep: impl Fn(Csn) -> bool) {
        let Some(all) = self.all() else { return };
        let mut kept = Predecessors::default();
        all.iter().filter(|csn| keep(**csn)).for_each(|csn| kept.add(*csn));
        *self = kept;
    }

    /// There are more than can be told apart.
    pub fn overflow(&mut self) {
        *self = Predecessors { count: PREDECESSORS as u8 + 1, ..Predecessors::default() };
    }

    /// True if one more might be one too many.
    #[must_use]
    pub fn is_full(&self) -> bool {
        usize::from(self.count) == PREDECESSORS
    }

    /// How many there are; one more than can be told if there are too many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count.into()
    }

    /// True without any.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The highest of those that are told apart; 0 without any.
    pub(super) fn highest(&self) -> Csn {
        self.csns.iter().copied().max().unwrap_or(Csn::ZERO)
    }

    /// All of them; none if there are too many to tell.
    #[must_use]
    pub fn all(&self) -> Option<&[Csn]> {
        self.csns.get(..self.count.into())
    }
}

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
    /// Those that may not be committed.
    pub predecessors: Predecessors,
}

/// What an entry is written to, word by word, and read from.
trait Words {
    fn put(&mut self, at: usize, word: u64);
    fn get(&self, at: usize) -> u64;
}

impl Entry {
    fn known(&self) -> usize {
        self.predecessors.all().map_or(0, <[Csn]>::len)
    }

    /// Cache lines that it takes.
    fn lines(&self) -> u64 {
        (FIXED_WORDS + self.known()).div_ceil(LINE_WORDS) as u64
    }

    fn write(&self, words: &mut impl Words) {
        let fixed = [self.predecessors.count.into(), self.csn.0, self.dsn.0, self.begun.0, self.ready.0];
        for (at, word) in fixed.into_iter().enumerate() {
            words.put(at, word);
        }
        for (at, csn) in self.predecessors.csns[..self.known()].iter().enumerate() {
            words.put(FIXED_WORDS + at, csn.0);
        }
    }

    fn read(words: &impl Words) -> Entry {
        let mut predecessors = Predecessors { count: words.get(0) as u8, ..Predecessors::default() };
        if usize::from(predecessors.count) <= PREDECESSORS {
            for at in 0..predecessors.count.into() {
                predecessors.csns[at] = Csn(words.get(FIXED_WORDS + at));
            }
        }
        Entry {
            csn: Csn(words.get(1)),
            dsn: Csn(words.get(2)),
            begun: Nanos(words.get(3)),
            ready: Nanos(words.get(4)),
            predecessors,
        }
    }
}

/// See the module's text.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "one for each log, and the ring is not to be behind a pointer")]
pub(super) enum PendingQueue {
    Ring(Ring),
    List(List),
}

/// What [`PendingQueue::pop_while`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Popped {
    pub count: u64,
    /// An entry is left at the front that was not accepted.
    pub refused: bool,
}

impl PendingQueue {
    /// An empty queue for `entries` entries of one line, rounded up to a power of two.
    pub(super) fn new(kind: Queue, entries: usize) -> PendingQueue {
        let lines = entries.next_power_of_two().max(2 * ENTRY_LINES_MAX);
        match kind {
            Queue::LockFree => PendingQueue::Ring(Ring::new(lines)),
            Queue::Latched => PendingQueue::List(List::new(lines)),
        }
    }

    /// True if a push would succeed, and go on to until the latch is released.
    pub(super) fn has_room(&self, latch: &impl Latched) -> bool {
        match self {
            PendingQueue::Ring(ring) => ring.has_room(latch),
            PendingQueue::List(list) => list.has_room(),
        }
    }

    /// True if nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            PendingQueue::Ring(ring) => ring.is_empty(),
            PendingQueue::List(list) => list.is_empty(),
        }
    }

    /// Appends an entry. The caller has asked for room.
    pub(super) fn push(&self, entry: Entry, latch: &impl Latched) {
        debug_assert!(self.has_room(latch), "room is asked for before the draw");
        match self {
            PendingQueue::Ring(ring) => ring.push(&entry, latch),
            PendingQueue::List(list) => list.push(entry),
        }
    }

    /// Pops entries from the front as long as `accept` takes them. Then shows `held_up` each entry that is left, once in its life, as
    /// long as it says that it has seen it. `None` if `wait` is false and somebody else is popping.
    pub(super) fn pop_while(
        &self,
        wait: bool,
        accept: impl FnMut(Entry) -> bool,
        held_up: impl FnMut(Entry) -> bool,
    ) -> Option<Popped> {
        match self {
            PendingQueue::Ring(ring) => ring.pop_while(wait, accept, held_up),
            PendingQueue::List(list) => list.pop_while(wait, accept, held_up),
        }
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests {
    use super::super::watermark::tests::Held;
    use super::*;

    /// Every third names so many predecessors that it takes two lines, every fifth more than can be told apart.
    fn entry(csn: u64) -> Entry {
        let mut predecessors = Predecessors::default();
        let count = if csn.is_multiple_of(5) { 9 } else { 2 * (csn % 3) + 1 };
        (0..count).for_each(|n| predecessors.add(Csn(csn * 10 + n)));
        Entry { csn: Csn(csn), dsn: Csn(csn - 1), begun: Nanos(csn), ready: Nanos(csn + 1), predecessors }
    }

    fn queues(entries: usize) -> [PendingQueue; 2] {
        Queue::ALL.map(|kind| PendingQueue::new(kind, entries))
    }

    #[test]
    fn predecessors_are_told_apart_up_to_their_bound() {
        let mut predecessors = Predecessors::default();
        assert_eq!(predecessors.all(), Some(&[][..]));
        for csn in [3, 4, 3, 4, 5] {
            predecessors.add(Csn(csn));
        }
        assert_eq!(predecessors.all(), Some(&[Csn(3), Csn(4), Csn(5)][..]));
        (6..9).for_each(|csn| predecessors.add(Csn(csn)));
        assert_eq!(predecessors.all().map(<[Csn]>::len), Some(PREDECESSORS));
        predecessors.add(Csn(7));
        assert_eq!(predecessors.all().map(<[Csn]>::len), Some(PREDECESSORS), "known already");
        predecessors.add(Csn(9));
        assert_eq!(predecessors.all(), None);
        predecessors.add(Csn(3));
        assert_eq!(predecessors.all(), None, "too many once, too many for ever");
    }

    #[test]
    fn entries_leave_in_order_up_to_the_first_refused() {
        for queue in queues(4) {
            let mut pushed = 0;
            while queue.has_room(&Held) {
                pushed += 1;
                queue.push(entry(pushed), &Held);
            }
            assert!(pushed >= 2);
            let (mut seen, mut held) = (Vec::new(), Vec::new());
            let accept = |e: Entry| {
                let accepted = e.csn < Csn(3);
                seen.extend(accepted.then_some(e));
                accepted
            };
            let popped = queue.pop_while(true, accept, |e| {
                held.push(e.csn.0);
                true
            });
            assert_eq!(popped, Some(Popped { count: 2, refused: pushed > 2 }));
            assert_eq!(seen, [entry(1), entry(2)]);
            assert_eq!(held, (3..=pushed).collect::<Vec<_>>());
            assert!(queue.has_room(&Held));
            let again = queue.pop_while(true, |_| false, |_| panic!("each is shown once"));
            assert_eq!(again, Some(Popped { count: 0, refused: pushed > 2 }));
            let rest = queue.pop_while(true, |_| true, |_| true);
            assert_eq!(rest, Some(Popped { count: pushed - 2, refused: false }));
            assert!(queue.is_empty());
        }
    }

    #[test]
    fn a_full_queue_is_not_an_empty_one_wherever_it_begins() {
        for queue in queues(4) {
            for round in 0..40 {
                let mut pushed = 0;
                while queue.has_room(&Held) {
                    pushed += 1;
                    queue.push(entry(round * 100 + pushed), &Held);
                }
                assert!(pushed > 0 && !queue.is_empty());
                let mut next = round * 100;
                let popped = queue.pop_while(
                    true,
                    |e| {
                        next += 1;
                        assert_eq!(e, entry(next));
                        true
                    },
                    |_| true,
                );
                assert_eq!(popped, Some(Popped { count: pushed, refused: false }));
                assert!(queue.is_empty());
            }
        }
    }

    #[test]
    fn a_consumer_beside_the_producer_sees_every_entry_once_and_whole() {
        for queue in queues(8) {
            let total = if cfg!(miri) { 100 } else { 10_000 };
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
                    queue.pop_while(
                        true,
                        |e| {
                            assert_eq!(e, entry(next));
                            next += 1;
                            true
                        },
                        |_| true,
                    );
                }
            });
        }
    }
}
