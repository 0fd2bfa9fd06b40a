//! Transactions that left their queue because they wait for another log, so that those behind them
//! pass.
//!
//! Only the exact rule uses this: by the other rules W passes nearly all of a queue at once. A log
//! has at most [`ENTRIES_MAX`] of them; with more the queue waits as it is. An acknowledger looks
//! at all of them each time.

use super::queue::Entry;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicUsize, Ordering};

/// Most transactions of a log that are out of order.
const ENTRIES_MAX: usize = 64;

/// See the module's text.
#[derive(Debug, Default)]
pub struct OutOfOrder {
    entries: Mutex<Vec<Entry>>,
    /// Length of `entries`: keeps others away from the mutex when there is none.
    count: AtomicUsize,
}

impl OutOfOrder {
    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    /// Adds an entry; false if there are too many.
    pub fn put(&self, entry: Entry) -> bool {
        let mut entries = self.entries.lock();
        if entries.len() == ENTRIES_MAX {
            return false;
        }
        entries.push(entry);
        debug_assert!(entries.len() <= ENTRIES_MAX, "a log has no more of them");
        self.count.store(entries.len(), Ordering::SeqCst);
        true
    }

    /// Removes the entries that `accept` takes. Without `wait` it does nothing if another thread is
    /// looking.
    pub fn take(&self, wait: bool, mut accept: impl FnMut(&Entry) -> bool) {
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
mod tests;
