//! The events to come, in the order of their times; at the same time in the order of insertion.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// An event and when it happens.
#[derive(Debug)]
struct Entry<E> {
    at: u64,
    sequence: u64,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    /// The earliest entry is the greatest, because the heap returns the greatest first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct EventQueue<E> {
    heap: BinaryHeap<Entry<E>>,
    sequence: u64,
}

impl<E> EventQueue<E> {
    pub(super) fn new() -> EventQueue<E> {
        EventQueue { heap: BinaryHeap::new(), sequence: 0 }
    }

    /// Adds an event at the time `at`, in nanoseconds.
    pub(super) fn push(&mut self, at: u64, event: E) {
        self.heap.push(Entry { at, sequence: self.sequence, event });
        self.sequence += 1;
    }

    /// Returns the next event and its time.
    pub(super) fn pop(&mut self) -> Option<(u64, E)> {
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_then_by_insertion() {
        let mut queue = EventQueue::new();
        for (at, name) in [(5, "late"), (1, "first"), (1, "second"), (3, "middle")] {
            queue.push(at, name);
        }
        let all: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(all, [(1, "first"), (1, "second"), (3, "middle"), (5, "late")]);
    }
}
