//! Pages of large values that left memory before the transaction that wrote the value had
//! committed.
//!
//! A page image holds committed content only, with this exception: a large value may be longer than
//! memory, and nothing refers to its pages before its transaction commits. So its pages may leave
//! memory, and the mapping of a checkpoint may have their images. Such a checkpoint lists these
//! pages, and opening it takes them as free. If the transaction is replayed, replay writes the
//! value to new pages.
//!
//! ```text
//!   page written ── noted ──┬── transaction commits ── first checkpoint with it: forgotten
//!                            ├── checkpoint before that: listed in it
//!                            └── value discarded: forgotten and freed in one step
//! ```
//!
//! 1. A page is noted behind the imager's gate, together with its image. A checkpoint lists pages
//!    behind the gate after it has chosen C. So each page whose image is in the checkpoint is
//!    listed, unless the value was committed at C.
//! 2. A freed page may be allocated again at once, and must not be listed then. A checkpoint holds
//!    the lock from before it chooses C until its epoch has begun; a page is forgotten and freed
//!    under this lock. So a listed page that is freed and reused later has no image of its new
//!    content in that epoch, because the reused page is created in that epoch.
//! 3. A value that is committed at some C is committed at every later one, so its pages are
//!    forgotten at the first such C. Before that its pages may be freed as those of a replaced
//!    value, and be reused. The replacing transaction is durable then, so every later checkpoint
//!    finds the value committed and lists none of these pages.
//! 4. Pages of a replaced value that could not be read to be freed are noted, too, for the
//!    pseudo-owner [`ORPHANED`], under the lock that a checkpoint holds from before it chooses C.
//!    So they are in its list if they have images in it.
//! 5. A page that cannot be freed because it cannot be read stays noted, and is free after the next
//!    open.

use crate::base::{PageId, PooledCharge};
use crate::buffer::{ExclusiveGuard, Pool};
use crate::sync::atomic::Ordering;
use crate::sync::{Mutex, MutexGuard};
use std::collections::{BTreeSet, HashMap};

#[derive(Debug, Default)]
struct Pages {
    /// By owner, as the pages name it.
    by_owner: HashMap<u64, BTreeSet<PageId>>,
    count: u64,
}

impl Pages {
    fn list(&mut self, is_committed: &mut dyn FnMut(u64) -> bool) -> Vec<PageId> {
        self.by_owner.retain(|owner, _| !is_committed(*owner));
        let mut all: Vec<PageId> = self.by_owner.values().flatten().copied().collect();
        all.sort_unstable();
        self.count = all.len() as u64;
        all
    }
}

/// The pages that are noted. See the module's text.
#[derive(Debug)]
pub(super) struct UncommittedPages {
    pages: Mutex<Pages>,
    pieces: PooledCharge,
}

/// While it lives no page of an uncommitted value is noted or freed.
pub struct UncommittedLocked<'a>(MutexGuard<'a, Pages>);

/// Stands for the owner of the pages of replaced values that could not be freed.
pub(super) const ORPHANED: u64 = 0;

/// Bytes of a page in a set that grows in order.
const BYTES_A_PAGE: u64 = 24;

impl UncommittedPages {
    pub(super) fn new(pieces: PooledCharge) -> UncommittedPages {
        UncommittedPages { pages: Mutex::default(), pieces }
    }

    fn counted(&self, pool: &Pool, pages: &Pages) {
        self.pieces.note_use(pages.count * BYTES_A_PAGE);
        pool.frames().demand().listed.store(pages.count, Ordering::Relaxed);
    }

    /// Notes `page`, of which an image is about to be recorded while the value of `owner` is not
    /// known to be committed. The caller is behind the imager's gate.
    pub(super) fn note(&self, pool: &Pool, owner: u64, page: PageId) {
        let mut pages = self.pages.lock();
        pages.count += u64::from(pages.by_owner.entry(owner).or_default().insert(page));
        self.counted(pool, &pages);
    }

    /// Returns the bytes that are charged and free, and all that are charged.
    pub(super) fn surplus(&self) -> (u64, u64) {
        let charged = self.pieces.charged();
        (charged.saturating_sub(self.pages.lock().count * BYTES_A_PAGE), charged)
    }

    /// Prepares to lower the charge: see [`PooledCharge`].
    pub(super) fn begin_lowering_charge(&self) {
        let pages = self.pages.lock();
        self.pieces.restart_peak();
        self.pieces.note_use(pages.count * BYTES_A_PAGE);
    }

    /// Lowers the charge, after the allocator has given back what was free.
    pub(super) fn lower_charge(&self, returned: u64) {
        self.pieces.lower_to_peak(returned);
    }

    /// Notes pages of replaced values, which have images and could not be freed.
    pub(super) fn note_orphaned(&self, pool: &Pool, pages: &[PageId]) {
        pages.iter().for_each(|page| self.note(pool, ORPHANED, *page));
    }

    pub(super) fn has_orphaned(&self) -> bool {
        self.has(ORPHANED)
    }

    /// Frees the orphaned pages that can be read now.
    pub(super) fn free_orphaned(&self, pool: &Pool) {
        let orphaned = self.pages.lock().by_owner.get(&ORPHANED).cloned().unwrap_or_default();
        for page in orphaned {
            match pool.exclusive(page) {
                Ok(guard) => self.free(pool, ORPHANED, guard),
                Err(error) => tracing::debug!(%error, "a page of a replaced value is freed later"),
            }
        }
    }

    /// Frees a page of an uncommitted value.
    pub(super) fn free(&self, pool: &Pool, owner: u64, guard: ExclusiveGuard<'_>) {
        let mut all = self.pages.lock();
        if let Some(pages) = all.by_owner.get_mut(&owner) {
            let removed = pages.remove(&guard.page_id());
            if pages.is_empty() {
                all.by_owner.remove(&owner);
            }
            debug_assert!(all.count >= u64::from(removed), "each page that is listed is counted");
            all.count -= u64::from(removed);
            self.counted(pool, &all);
        }
        pool.free(guard);
    }

    /// Returns whether pages of the value of `owner` are noted.
    pub(super) fn has(&self, owner: u64) -> bool {
        self.pages.lock().by_owner.contains_key(&owner)
    }

    pub(super) fn all(&self) -> BTreeSet<PageId> {
        self.pages.lock().by_owner.values().flatten().copied().collect()
    }

    /// Keeps pages from being noted or freed, for a checkpoint that is about to choose its CSN.
    pub(super) fn lock(&self) -> UncommittedLocked<'_> {
        UncommittedLocked(self.pages.lock())
    }

    /// Returns the pages, ascending, whose values are not committed, and forgets the others.
    pub(super) fn list(
        &self,
        pool: &Pool,
        locked: &mut UncommittedLocked<'_>,
        is_committed: &mut dyn FnMut(u64) -> bool,
    ) -> Vec<PageId> {
        let listed = locked.0.list(is_committed);
        self.counted(pool, &locked.0);
        listed
    }
}

#[cfg(test)]
mod tests;
