//! A mutex whose holder works in slices and yields to waiting threads between two of them.
//!
//! Every page fault and every page that becomes dirty takes the store's lock, so no thread may hold
//! it while it walks a whole table. Tests count the items examined during one hold.

use crate::base::scale::SCALE;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, MutexGuard, thread};

/// Items examined during one hold, where there may be many: a few microseconds of work.
pub(super) const SLICE: usize = SCALE.lock_slice;

/// Yields between two slices, at most, until the waiting threads have had the lock.
const YIELDS_MAX: usize = 100;

/// See the module's text.
#[derive(Debug)]
pub(super) struct YieldingLock<T> {
    value: Mutex<T>,
    waiting: AtomicUsize,
}

impl<T> YieldingLock<T> {
    pub(super) fn new(value: T) -> YieldingLock<T> {
        YieldingLock { value: Mutex::new(value), waiting: AtomicUsize::new(0) }
    }

    /// Yields until no thread waits for the lock; to be called between two slices. The mutex is not
    /// fair: a thread that unlocks and locks again wins against one that still has to wake up.
    pub(super) fn yield_to_waiters(&self) {
        for _ in 0..YIELDS_MAX {
            if self.waiting.load(Ordering::Relaxed) == 0 {
                return;
            }
            thread::yield_now();
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, T> {
        let value = self.value.try_lock().unwrap_or_else(|| {
            self.waiting.fetch_add(1, Ordering::Relaxed);
            let value = self.value.lock();
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            value
        });
        #[cfg(test)]
        counted::begin_hold();
        value
    }
}

/// Counts items that were examined, in tests.
#[inline]
pub(super) fn examined(_items: usize) {
    #[cfg(test)]
    counted::add(_items);
}

#[cfg(test)]
pub(super) mod counted {
    use std::cell::Cell;

    /// Items that were examined.
    #[derive(Clone, Copy, Default, Debug)]
    pub struct Examined {
        in_this_hold: usize,
        /// The most during one hold of the lock.
        pub most: usize,
        /// All together.
        pub all: usize,
    }

    thread_local! {
        static EXAMINED: Cell<Examined> = const { Cell::new(Examined { in_this_hold: 0, most: 0, all: 0 }) };
    }

    pub(super) fn begin_hold() {
        EXAMINED.set(Examined { in_this_hold: 0, ..EXAMINED.get() });
    }

    pub(super) fn add(items: usize) {
        let Examined { in_this_hold, most, all } = EXAMINED.get();
        let in_this_hold = in_this_hold + items;
        EXAMINED.set(Examined { in_this_hold, most: most.max(in_this_hold), all: all + items });
    }

    /// Returns what `f` examines, in any store.
    pub fn examined_by(f: impl FnOnce()) -> Examined {
        EXAMINED.set(Examined::default());
        f();
        EXAMINED.get()
    }
}
