//! Pages of large values that left memory before the transaction that wrote the value had committed.
//!
//! A page image holds committed content only, with this exception: a large value may be longer than memory, and nothing refers to its
//! pages before its transaction commits. So its pages may leave memory, and the mapping of a checkpoint may have their images. Such a
//! checkpoint lists them: after a crash they are free. If the transaction is replayed it writes the value to new pages.
//!
//! ```text
//!   page written out ── noted ──┬── transaction commits ── first checkpoint that contains it: forgotten
//!                               ├── checkpoint before that: listed in it
//!                               └── value given up: pages freed, then forgotten; no checkpoint lists in between
//! ```
//!
//! 1. A page is noted behind the imager's gate, together with its image; a checkpoint lists behind the gate, when it has chosen C. So a
//!    page whose image is in the checkpoint is in its list, unless the value was there at C.
//! 2. A page that was freed may be somebody else's soon, and must not be listed then: whoever frees pages of a value that is not committed holds
//!    [`UnfinishedPages::freeing`] until they are forgotten, and a checkpoint from before it chooses C until it has its list.
//! 3. Once the value is there at some C it is there for every later one: its pages are forgotten before anybody can free them.

use crate::base::PageId;
use crate::sync::{Mutex, MutexGuard};
use std::collections::{BTreeSet, HashMap};

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct UnfinishedPages {
    /// By owner, as it stands in the pages.
    pages: Mutex<HashMap<u64, BTreeSet<PageId>>>,
    freeing: Mutex<()>,
}

/// While it lives no page of a value in progress is freed.
#[derive(Debug)]
pub struct UnfinishedHeld<'a> {
    pages: &'a UnfinishedPages,
    _freeing: MutexGuard<'a, ()>,
}

impl UnfinishedPages {
    /// An image of `page` was recorded while the value of `owner` was not committed.
    pub fn note(&self, owner: u64, page: PageId) {
        self.pages.lock().entry(owner).or_default().insert(page);
    }

    /// Has `free` free the pages of a value that is not committed.
    pub fn give_up<T>(&self, owner: u64, free: impl FnOnce() -> T) -> T {
        let _freeing = self.freeing.lock();
        let done = free();
        // Whatever could not be freed is lost to the next crash; to list it would risk somebody else's page.
        self.pages.lock().remove(&owner);
        done
    }

    pub fn hold(&self) -> UnfinishedHeld<'_> {
        UnfinishedHeld { pages: self, _freeing: self.freeing.lock() }
    }
}

impl UnfinishedHeld<'_> {
    /// The pages of all values of which `is_there` does not say that the checkpoint contains them; the others are forgotten.
    pub fn list(&self, mut is_there: impl FnMut(u64) -> bool) -> Vec<PageId> {
        let mut pages = self.pages.pages.lock();
        pages.retain(|owner, _| !is_there(*owner));
        let mut all: Vec<PageId> = pages.values().flatten().copied().collect();
        all.sort_unstable();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_listed_until_their_value_is_there_or_given_up() {
        let unfinished = UnfinishedPages::default();
        unfinished.note(1, PageId(7));
        unfinished.note(2, PageId(5));
        unfinished.note(1, PageId(7));
        unfinished.note(1, PageId(3));
        let list = |there: u64| {
            unfinished.hold().list(|owner| owner == there).iter().map(|p| p.0).collect::<Vec<_>>()
        };
        assert_eq!(list(9), [3, 5, 7]);
        assert_eq!(list(2), [3, 7]);
        assert_eq!(list(9), [3, 7], "what was there once is forgotten");
        unfinished.give_up(1, || assert!(unfinished.freeing.try_lock().is_none()));
        assert_eq!(list(9), []);
    }
}
