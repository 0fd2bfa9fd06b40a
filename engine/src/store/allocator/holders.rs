//! Reservation holders: threads between a reservation and the change that uses it.
//!
//! A thread does not say when it has used a reservation, so it counts until it ends. (The
//! simulation ends a thread before it continues, so the count is the same whenever a seed is
//! repeated.)

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// The living threads with a reservation in one store. Changed under the store's lock, except when
/// a thread ends.
#[derive(Debug, Default)]
pub struct ReservationHolders(Arc<AtomicU64>);

/// A thread that counts.
struct Holder(Weak<AtomicU64>);

thread_local! {
    /// The calling thread, for each store in which it counts.
    static HOLDS: RefCell<Vec<Holder>> = const { RefCell::new(Vec::new()) };
}

impl ReservationHolders {
    /// Counts the calling thread from now on; true if it did not count before. A thread that
    /// reserves while it ends is not counted.
    pub fn add_current(&self) -> bool {
        let added = HOLDS.try_with(|holds| {
            let mut holds = holds.borrow_mut();
            let is_new = !holds.iter().any(|holder| self.is_of(holder));
            if is_new {
                holds.retain(|holder| holder.0.strong_count() > 0);
                self.0.fetch_add(1, Ordering::Relaxed);
                holds.push(Holder(Arc::downgrade(&self.0)));
            }
            is_new
        });
        added.unwrap_or(false)
    }

    /// Stops counting the calling thread: its reservation was refused.
    pub fn remove_current(&self) {
        let _ = HOLDS.try_with(|holds| holds.borrow_mut().retain(|holder| !self.is_of(holder)));
    }

    fn is_of(&self, holder: &Holder) -> bool {
        holder.0.as_ptr() == Arc::as_ptr(&self.0)
    }

    /// Number of reservation holders.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        if let Some(count) = self.0.upgrade() {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
