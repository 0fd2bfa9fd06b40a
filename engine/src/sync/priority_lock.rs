//! A mutex for work that some threads must do and others only do if it is not being done.
//!
//! A mutex is not fair: threads that try it again and again, and hold it long, would win for ever
//! against one that sleeps until it is free. So a thread that waits goes before all threads that
//! only try, and a holder can ask whether it should end its work early.

use super::atomic::{AtomicUsize, Ordering};
use super::{Mutex, MutexGuard};

/// See the module's text.
#[derive(Debug, Default)]
pub struct PriorityLock {
    mutex: Mutex<()>,
    waiting: AtomicUsize,
}

impl PriorityLock {
    /// Waits for the lock, before threads that only try.
    pub fn lock(&self) -> MutexGuard<'_, ()> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let held = self.mutex.lock();
        let waiting = self.waiting.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(waiting > 0, "each thread that waits is counted");
        held
    }

    /// Returns the lock if it is free and no thread waits for it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, ()>> {
        if self.is_wanted() { None } else { self.mutex.try_lock() }
    }

    /// Returns whether a thread waits for the lock: a holder that only tried should return it soon.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn waiting_thread_goes_before_threads_that_try() {
        let lock = PriorityLock::default();
        let held = lock.try_lock().expect("free");
        assert!(!lock.is_wanted() && lock.try_lock().is_none());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| drop(lock.lock()));
            let begun = Instant::now();
            while !lock.is_wanted() {
                assert!(begun.elapsed() < Duration::from_secs(60), "the thread waits");
                std::thread::yield_now();
            }
            // Still in the way of others, also once the holder has returned the lock.
            drop(held);
            while lock.is_wanted() {
                assert!(lock.try_lock().is_none() || !lock.is_wanted());
            }
            waiter.join().expect("no panic");
        });
        assert!(lock.try_lock().is_some());
    }
}
