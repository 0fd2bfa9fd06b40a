//! What the pages in memory will need of the store: counted where a page's flags change, asked for before one becomes dirty.

use super::pool::{DIRTY, Entry, FLAGS, NEW, Pool};
use crate::base::{PageId, Result};
use crate::store::{Demand, ReservedFor};
use crate::sync::atomic::Ordering;
use std::sync::Arc;

impl Pool {
    /// What the pages in memory need of the store, always up to date.
    #[must_use]
    pub fn demand(&self) -> Arc<Demand> {
        self.demand.clone()
    }

    /// Asks the source for space for one more dirty page.
    ///
    /// # Errors
    /// Those of [`super::PageSource::reserve`].
    pub fn reserve(&self, page: ReservedFor) -> Result<()> {
        self.source.reserve(page)
    }

    /// Whether the page differs from its image in the store.
    #[must_use]
    pub fn is_dirty(&self, page: PageId) -> bool {
        self.entry_of(page).is_some_and(Entry::is_dirty)
    }

    /// Changes the flags of a page that the caller holds exclusively, and counts.
    #[inline]
    pub(super) fn set_flags(&self, entry: &Entry, flags: u32) {
        let before = entry.flags.load(Ordering::Relaxed);
        if (before ^ flags) & (DIRTY | NEW) != 0 {
            self.count_flags(before, flags);
        }
        entry.flags.store(before & !FLAGS | flags, Ordering::Release);
    }

    #[cold]
    fn count_flags(&self, before: u32, now: u32) {
        for (flag, count) in [(DIRTY, &self.demand.dirty), (NEW, &self.demand.new)] {
            match (before & flag != 0, now & flag != 0) {
                (false, true) => drop(count.fetch_add(1, Ordering::Relaxed)),
                (true, false) => drop(count.fetch_sub(1, Ordering::Relaxed)),
                _ => {}
            }
        }
    }
}
