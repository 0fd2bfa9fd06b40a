//! The threads that may be between what they asked a store for and what they do with it.
//!
//! Nobody says when he is done, so a thread to which something was promised counts until it ends. (The simulation lets a thread end before it goes on, so the
//! count is the same whenever a seed is run.)

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Of one store: the living threads to which it has promised something. Changed under the store's lock, but for threads that end.
#[derive(Debug, Default)]
pub(super) struct Askers(Arc<AtomicU64>);

/// A thread that counts.
struct Asker(Weak<AtomicU64>);

thread_local! {
    /// The calling thread, for each store in which it counts.
    static ASKED: RefCell<Vec<Asker>> = const { RefCell::new(Vec::new()) };
}

impl Askers {
    /// The calling thread counts from now on; true if it did not. One that asks while it ends is not counted.
    pub(super) fn note(&self) -> bool {
        let noted = ASKED.try_with(|asked| {
            let mut asked = asked.borrow_mut();
            let is_new = !asked.iter().any(|asker| self.is_of(asker));
            if is_new {
                asked.retain(|asker| asker.0.strong_count() > 0);
                self.0.fetch_add(1, Ordering::Relaxed);
                asked.push(Asker(Arc::downgrade(&self.0)));
            }
            is_new
        });
        noted.unwrap_or(false)
    }

    /// The calling thread counts no more: it was refused.
    pub(super) fn forget(&self) {
        let _ = ASKED.try_with(|asked| asked.borrow_mut().retain(|asker| !self.is_of(asker)));
    }

    fn is_of(&self, asker: &Asker) -> bool {
        asker.0.as_ptr() == Arc::as_ptr(&self.0)
    }

    /// How many.
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        if let Some(count) = self.0.upgrade() {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
