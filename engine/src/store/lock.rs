//! The store's lock, which every fault and every page that becomes dirty takes: nobody may hold it for as long as it takes to look at
//! all there is. Tests count what is looked at in one hold.

use super::State;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, MutexGuard, thread};

/// Things that are looked at in one hold, where there may be many: a few microseconds.
pub(super) const SLICE: usize = if cfg!(test) { 64 } else { 1024 };

/// How often whoever works slice by slice looks whether those who waited have had the lock.
const LOOKS: usize = 100;

/// See the module's text.
#[derive(Debug)]
pub(super) struct StateLock {
    state: Mutex<State>,
    waiting: AtomicUsize,
}

impl StateLock {
    pub(super) fn new(state: State) -> StateLock {
        StateLock { state: Mutex::new(state), waiting: AtomicUsize::new(0) }
    }

    /// To be called between two slices. The lock is not fair: who lets go of it and takes it again is there before one that sleeps has woken up.
    pub(super) fn let_others_in(&self) {
        for _ in 0..LOOKS {
            if self.waiting.load(Ordering::Relaxed) == 0 {
                return;
            }
            thread::yield_now();
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        let state = self.state.try_lock().unwrap_or_else(|| {
            self.waiting.fetch_add(1, Ordering::Relaxed);
            let state = self.state.lock();
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            state
        });
        #[cfg(test)]
        counted::begin_hold();
        state
    }
}

/// So many things were looked at.
#[inline]
pub(super) fn looked_at(_things: usize) {
    #[cfg(test)]
    counted::add(_things);
}

#[cfg(test)]
pub(super) mod counted {
    use std::cell::Cell;

    /// Things that were looked at.
    #[derive(Clone, Copy, Default, Debug)]
    pub struct Looks {
        in_this_hold: usize,
        /// In one hold of the lock, at most.
        pub most: usize,
        /// All together.
        pub all: usize,
    }

    thread_local! {
        static LOOKS: Cell<Looks> = const { Cell::new(Looks { in_this_hold: 0, most: 0, all: 0 }) };
    }

    pub(super) fn begin_hold() {
        LOOKS.set(Looks { in_this_hold: 0, ..LOOKS.get() });
    }

    pub(super) fn add(things: usize) {
        let Looks { in_this_hold, most, all } = LOOKS.get();
        let in_this_hold = in_this_hold + things;
        LOOKS.set(Looks { in_this_hold, most: most.max(in_this_hold), all: all + things });
    }

    /// What `f` looks at, of any store.
    pub fn looks(f: impl FnOnce()) -> Looks {
        LOOKS.set(Looks::default());
        f();
        LOOKS.get()
    }
}
