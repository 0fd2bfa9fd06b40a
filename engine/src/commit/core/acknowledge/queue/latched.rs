//! A list behind one lock: the producer's push and a whole batch of the acknowledger exclude each
//! other. To compare with.

use super::entry::{ENTRY_LINES_MAX, Entry, Popped};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use std::collections::VecDeque;

/// See the module's text.
#[derive(Debug)]
pub struct List {
    lines: u64,
    /// Lines in use. Written under the lock.
    used: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    entries: VecDeque<Entry>,
    /// So many from the front have been shown as held up.
    shown: usize,
}

impl List {
    pub(super) fn new(lines: usize) -> List {
        let state = State { entries: VecDeque::with_capacity(lines), shown: 0 };
        List { lines: lines as u64, used: AtomicU64::new(0), state: Mutex::new(state) }
    }

    pub(super) fn has_room(&self) -> bool {
        self.used.load(Ordering::SeqCst) + ENTRY_LINES_MAX as u64 <= self.lines
    }

    pub(super) fn is_empty(&self) -> bool {
        self.used.load(Ordering::SeqCst) == 0
    }

    pub(super) fn push(&self, entry: Entry) {
        let mut state = self.state.lock();
        // As many as there are lines have room: it does not grow.
        state.entries.push_back(entry);
        debug_assert!(state.entries.len() as u64 <= self.lines, "the list does not grow");
        self.used.fetch_add(entry.lines(), Ordering::SeqCst);
    }

    pub(super) fn pop_while(
        &self,
        wait: bool,
        mut accept: impl FnMut(Entry) -> bool,
        mut held_up: impl FnMut(Entry) -> bool,
    ) -> Option<Popped> {
        let mut state = if wait { self.state.lock() } else { self.state.try_lock()? };
        let mut count = 0;
        while let Some(entry) = state.entries.front().copied()
            && accept(entry)
        {
            state.entries.pop_front();
            state.shown = state.shown.saturating_sub(1);
            let used = self.used.fetch_sub(entry.lines(), Ordering::SeqCst);
            debug_assert!(used >= entry.lines(), "each entry is counted once");
            count += 1;
        }
        while let Some(entry) = state.entries.get(state.shown).copied()
            && held_up(entry)
        {
            state.shown += 1;
        }
        debug_assert!(state.shown <= state.entries.len(), "only what is queued was shown");
        Some(Popped { count, refused: !state.entries.is_empty() })
    }
}
