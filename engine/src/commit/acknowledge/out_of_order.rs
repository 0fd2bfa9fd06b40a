//! Transactions that left their queue because they wait for another log, so that those behind them pass.
//!
//! Only the exact rule uses this: by the other rules W passes nearly all of a queue at once. A log has at most
//! [`ENTRIES_MAX`] of them; with more the queue waits as it is. An acknowledger looks at all of them each time.

use super::queue::Entry;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicUsize, Ordering};

/// Most transactions of a log that are out of order.
const ENTRIES_MAX: usize = 64;

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct OutOfOrder {
    entries: Mutex<Vec<Entry>>,
    /// Length of `entries`: keeps others away from the mutex when there is none.
    count: AtomicUsize,
}

impl OutOfOrder {
    /// Returns whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    /// Adds an entry; false if there are too many.
    pub(super) fn put(&self, entry: Entry) -> bool {
        let mut entries = self.entries.lock();
        if entries.len() == ENTRIES_MAX {
            return false;
        }
        entries.push(entry);
        self.count.store(entries.len(), Ordering::SeqCst);
        true
    }

    /// Removes the entries that `accept` takes. Without `wait` it does nothing if another thread is looking.
    pub(super) fn take(&self, wait: bool, mut accept: impl FnMut(&Entry) -> bool) {
        if self.is_empty() {
            return;
        }
        let entries = if wait { Some(self.entries.lock()) } else { self.entries.try_lock() };
        if let Some(mut entries) = entries {
            entries.retain(|entry| !accept(entry));
            self.count.store(entries.len(), Ordering::SeqCst);
        }
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests {
    use super::super::super::predecessors::Predecessors;
    use super::*;
    use crate::base::Csn;
    use crate::base::clock::Nanos;

    #[test]
    fn there_are_at_most_so_many_and_each_is_taken_once() {
        let entry = |csn| {
            let (begun, ready, predecessors) = (Nanos(csn), Nanos(csn), Predecessors::default());
            Entry { csn: Csn(csn), dsn: Csn::ZERO, begun, ready, predecessors }
        };
        let out_of_order = OutOfOrder::default();
        let put = (0..100).take_while(|csn| out_of_order.put(entry(*csn))).count();
        assert_eq!(put, ENTRIES_MAX);
        let mut taken = Vec::new();
        for round in [3, 1] {
            out_of_order.take(true, |entry| {
                let accepted = entry.csn.0.is_multiple_of(round);
                taken.extend(accepted.then_some(entry.csn.0));
                accepted
            });
        }
        assert!(out_of_order.is_empty() && taken.len() == ENTRIES_MAX);
        taken.sort_unstable();
        assert_eq!(taken, (0..ENTRIES_MAX as u64).collect::<Vec<_>>());
    }
}
