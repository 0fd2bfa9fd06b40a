//! The transactions of one log that wait to be acknowledged without a thread.
//!
//! A bounded queue. A committer pushes under the log's latch, so entries are in CSN order; an
//! acknowledger, one at a time, pops many from the front. A blocking committer needs no entry: it
//! looks for itself.
//!
//! Entries leave in order. A transaction that waits for W holds up those behind it, which are of
//! the same session or share its log, and W passes them all within the same flush or two. By the
//! exact rule that can take longer, so there the acknowledger moves such entries to
//! [`super::out_of_order`].
//!
//! Two kinds, to be compared: a [`ring`] that both ends use at the same time, and a list behind one
//! lock ([`latched`]). Invariants of both:
//! 1. The queue has a fixed number of lines. A producer asks [`PendingQueue::has_room`] before the
//!    draw, under the latch, so that the push after the draw cannot fail (rule 2). The push
//!    allocates nothing.
//! 2. An entry is seen whole, once, after those that were pushed before it.

mod entry;
mod ring;
mod latched;

pub use entry::{ENTRY_BYTES, Entry, Popped};

use crate::base::settings::Queue;
use crate::commit::core::watermark::Latched;
use entry::ENTRY_LINES_MAX;
use latched::List;
use ring::Ring;

/// See the module's text.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "one for each log, and the ring is not to be behind a pointer")]
pub enum PendingQueue {
    Ring(Ring),
    List(List),
}

impl PendingQueue {
    /// An empty queue for `entries` entries of one line, rounded up to a power of two.
    pub fn new(kind: Queue, entries: usize) -> PendingQueue {
        let lines = entries.next_power_of_two().max(2 * ENTRY_LINES_MAX);
        match kind {
            Queue::LockFree => PendingQueue::Ring(Ring::new(lines)),
            Queue::Latched => PendingQueue::List(List::new(lines)),
        }
    }

    /// Returns true if a push would succeed, now and until the latch is released.
    pub fn has_room(&self, latch: &impl Latched) -> bool {
        match self {
            PendingQueue::Ring(ring) => ring.has_room(latch),
            PendingQueue::List(list) => list.has_room(),
        }
    }

    /// Returns true if the queue is empty.
    pub fn is_empty(&self) -> bool {
        match self {
            PendingQueue::Ring(ring) => ring.is_empty(),
            PendingQueue::List(list) => list.is_empty(),
        }
    }

    /// Appends an entry. The caller has asked for room.
    pub fn push(&self, entry: Entry, latch: &impl Latched) {
        debug_assert!(self.has_room(latch), "room is asked for before the draw");
        match self {
            PendingQueue::Ring(ring) => ring.push(&entry, latch),
            PendingQueue::List(list) => list.push(entry),
        }
    }

    /// Pops entries from the front as long as `accept` takes them. Then shows `held_up` each entry
    /// that is left, once in its life, as long as it says that it has seen it. `None` if `wait` is
    /// false and another thread is popping.
    pub fn pop_while(
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
mod tests;
