//! Pages of large values that left memory before the transaction that wrote the value had committed.
//!
//! A page image holds committed content only, with this exception: a large value may be longer than memory, and nothing
//! refers to its pages before its transaction commits. So its pages may leave memory, and the mapping of a checkpoint may have their
//! images. Such a checkpoint lists them: opening it takes them as free. If the transaction is replayed it writes the value to new pages.
//!
//! ```text
//!   page written out ── noted ──┬── transaction commits ── first checkpoint that contains it: forgotten
//!                               ├── checkpoint before that: listed in it
//!                               └── value given up: forgotten and freed in one step
//! ```
//!
//! 1. A page is noted behind the imager's gate, together with its image; a checkpoint lists behind the gate, when it has chosen C. So a
//!    page whose image is in the checkpoint is in its list, unless the value was there at C.
//! 2. A page that was freed may be somebody else's at once, and must not be listed then. A checkpoint holds the lock from before it
//!    chooses C until its round has begun; a page is forgotten and freed under it. So a listed page that is freed later, and used again, has no
//!    image of its new content in that round: the page is born in it.
//! 3. Once the value is there at some C it is there for every later one, so its pages are forgotten at the first such C. They may be freed as
//!    those of a retired value before that, and be somebody else's: but what retired it is durable then, so the value is there at every C
//!    that is chosen later, and none of them lists these pages.
//! 4. Pages that are left of a retired value and could not be read to be freed are noted, too, for an owner that there never is
//!    ([`LEFT`]), under the lock that a checkpoint holds from before it chooses C: so they are in its list if they have images in it.
//! 5. What cannot be freed because it cannot be read stays noted, and is free after the next open.

use super::descriptor::{Stamp, Status};
use super::system::{CheckpointView, TransactionSystem};
use super::versions::VersionHandle;
use crate::base::planted::{self, Bug};
use crate::base::{PageId, PooledCharge};
use crate::buffer::{ExclusiveGuard, Pool};
use crate::sync::atomic::Ordering;
use crate::sync::epoch::pin;
use crate::sync::{Mutex, MutexGuard};
use std::collections::{BTreeSet, HashMap};

#[derive(Debug, Default)]
struct Pages {
    /// By owner, as it stands in the pages.
    by_owner: HashMap<u64, BTreeSet<PageId>>,
    count: u64,
}

impl Pages {
    fn list(&mut self, is_there: &mut dyn FnMut(u64) -> bool) -> Vec<PageId> {
        self.by_owner.retain(|owner, _| !is_there(*owner));
        let mut all: Vec<PageId> = self.by_owner.values().flatten().copied().collect();
        all.sort_unstable();
        self.count = all.len() as u64;
        all
    }
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct UnfinishedPages {
    pages: Mutex<Pages>,
    pieces: PooledCharge,
}

/// While it lives no page of a value in progress is noted or freed.
pub struct UnfinishedHeld<'a>(MutexGuard<'a, Pages>);

/// Stands for the owner of pages that are left of retired values.
const LEFT: u64 = 0;

/// What a page takes in a set that grows in order.
const BYTES_A_PAGE: u64 = 24;

impl UnfinishedPages {
    pub(super) fn new(pieces: PooledCharge) -> UnfinishedPages {
        UnfinishedPages { pages: Mutex::default(), pieces }
    }

    fn counted(&self, pool: &Pool, pages: &Pages) {
        self.pieces.note_use(pages.count * BYTES_A_PAGE);
        pool.frames().demand().listed.store(pages.count, Ordering::Relaxed);
    }

    /// An image of `page` is recorded while the value of `owner` is not known to be committed. Behind the imager's gate.
    fn note(&self, pool: &Pool, owner: u64, page: PageId) {
        let mut pages = self.pages.lock();
        pages.count += u64::from(pages.by_owner.entry(owner).or_default().insert(page));
        self.counted(pool, &pages);
    }

    /// Bytes that are charged and free, and all that are charged.
    pub(super) fn surplus(&self) -> (u64, u64) {
        let charged = self.pieces.charged();
        (charged.saturating_sub(self.pages.lock().count * BYTES_A_PAGE), charged)
    }

    /// The charge is about to fall: see [`PooledCharge`].
    pub(super) fn begin_charge_anew(&self) {
        let pages = self.pages.lock();
        self.pieces.restart_peak();
        self.pieces.note_use(pages.count * BYTES_A_PAGE);
    }

    /// The allocator has given back what was free: the charge falls.
    pub(super) fn settle_charge(&self) {
        self.pieces.lower_to_peak();
    }

    /// `pages` are left of retired values, belong to nobody, and have images.
    pub(super) fn note_left(&self, pool: &Pool, pages: &[PageId]) {
        pages.iter().for_each(|page| self.note(pool, LEFT, *page));
    }

    pub(super) fn has_left(&self) -> bool {
        self.pages.lock().by_owner.contains_key(&LEFT)
    }

    /// Frees those that can be read now.
    pub(super) fn free_left(&self, pool: &Pool) {
        let left = self.pages.lock().by_owner.get(&LEFT).cloned().unwrap_or_default();
        for page in left {
            match pool.exclusive(page) {
                Ok(guard) => self.free(pool, LEFT, guard),
                Err(error) => tracing::debug!(%error, "a page of a retired value is freed later"),
            }
        }
    }

    /// Frees a page of a value that is not committed.
    fn free(&self, pool: &Pool, owner: u64, guard: ExclusiveGuard<'_>) {
        let mut all = self.pages.lock();
        if let Some(pages) = all.by_owner.get_mut(&owner) {
            let removed = pages.remove(&guard.page_id());
            if pages.is_empty() {
                all.by_owner.remove(&owner);
            }
            all.count -= u64::from(removed);
            self.counted(pool, &all);
        }
        pool.free(guard);
    }
}

impl TransactionSystem {
    /// Keeps the pages of large values in progress that have images: for a checkpoint that is about to choose its CSN.
    pub fn hold_unfinished(&self) -> UnfinishedHeld<'_> {
        UnfinishedHeld(self.unfinished.pages.lock())
    }

    /// An image of `page` is about to be recorded, which belongs to the large value of `owner` and is not known to be committed.
    pub fn note_unfinished(&self, owner: u64, page: PageId) {
        self.unfinished.note(&self.pool, owner, page);
    }

    /// Pages that have images although they belong to values that may be in progress.
    pub fn unfinished_pages(&self) -> BTreeSet<PageId> {
        self.unfinished.pages.lock().by_owner.values().flatten().copied().collect()
    }

    pub(super) fn free_unfinished(&self, owner: u64, guard: ExclusiveGuard<'_>) {
        self.unfinished.free(&self.pool, owner, guard);
    }

    /// Some of the value's pages have images and could not be freed.
    pub(super) fn is_unfinished(&self, owner: u64) -> bool {
        self.unfinished.pages.lock().by_owner.contains_key(&owner)
    }
}

impl CheckpointView {
    /// The pages, ascending, that have images and belong to values that were not there at the chosen CSN. Others are forgotten.
    pub fn list_unfinished(&self, held: &mut UnfinishedHeld<'_>) -> Vec<PageId> {
        let listed =
            held.0.list(&mut |owner| self.contains_value(owner) || planted::is(Bug::UnfinishedNotListed));
        self.system().unfinished.counted(&self.system().pool, &held.0);
        listed
    }

    /// Whether the large value of `owner` was there at the CSN.
    fn contains_value(&self, owner: u64) -> bool {
        if owner == LEFT {
            return false;
        }
        let (system, guard) = (self.system(), pin());
        loop {
            let version =
                VersionHandle::from_word(owner).and_then(|handle| system.versions.read(handle, &guard));
            // Its owner was given back: everybody sees it.
            let Some(version) = version else { return true };
            match system.descriptors.status(version.stamp) {
                Status::Committed(csn) => return csn <= self.csn(),
                Status::InProgress(_) | Status::LeftBehind => return false,
                Status::Finished if version.stamp == Stamp::ABORTED => return false,
                // Between two steps of its transaction's commit.
                Status::Finished => crate::sync::thread::yield_now(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_listed_until_their_value_is_there() {
        let mut pages = Pages::default();
        for (owner, page) in [(1, 7), (2, 5), (1, 3)] {
            pages.by_owner.entry(owner).or_default().insert(PageId(page));
        }
        let mut list = |there: u64| -> Vec<u64> {
            pages.list(&mut |owner| owner == there).iter().map(|page| page.0).collect()
        };
        assert_eq!(list(9), [3, 5, 7]);
        assert_eq!(list(2), [3, 7]);
        assert_eq!(list(9), [3, 7], "what was there once is forgotten");
    }
}
