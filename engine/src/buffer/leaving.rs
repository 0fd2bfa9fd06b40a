//! Pages on their way out of memory. Whether a page may leave, and its image, are decided by the
//! layer above.

use super::bytes::PageBytes;
use super::frames::{DIRTY, STAMPED, STAMPED_IMAGE};
use super::guard::ExclusiveGuard;
use super::latch::Version;
use super::pool::Pool;
use crate::base::PageId;
use crate::base::planted::{self, Bug};

/// The state of a page besides its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageState {
    /// The version that the other fields are about.
    pub version: Version,
    /// True if the page differs from its newest image.
    pub dirty: bool,
    /// True if the page may have stamps that are not settled, and its newest image does not have
    /// them.
    pub unsaved_stamps: bool,
    /// Checkpoint epoch in which it was last imaged or created.
    pub epoch: u32,
}

/// A page that the evictor holds exclusively, unchanged since it was copied.
#[derive(Debug)]
pub struct Claimed<'p> {
    pool: &'p Pool,
    guard: ExclusiveGuard<'p>,
    untouched: bool,
}

impl Claimed<'_> {
    /// Returns whether no thread has read the page since it was marked: then it may leave.
    #[must_use]
    pub fn is_untouched(&self) -> bool {
        self.untouched
    }

    /// Returns whether the newest image equals the page. `settled` says that all its stamps, if
    /// any, are settled.
    #[must_use]
    pub fn needs_no_image(&self, settled: bool) -> bool {
        let flags = self.guard.frames().entry(self.guard.page_id()).flags();
        planted::is(Bug::DirtyPageDropped)
            || flags & DIRTY == 0 && (settled || flags & STAMPED == 0 || flags & STAMPED_IMAGE != 0)
    }

    /// Returns whether the page differs from its newest image.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.guard.is_dirty()
    }

    /// Checkpoint epoch in which the page was last imaged or created.
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.guard.epoch()
    }

    /// Notes that the page was imaged in `epoch`.
    pub fn set_imaged(&self, epoch: u32) {
        self.guard.set_imaged(epoch);
    }

    /// Notes that the page equals its newest image, just recorded; `stamped` if the image has its
    /// stamps.
    pub fn set_clean(&self, stamped: bool) {
        let image = if stamped { STAMPED_IMAGE } else { 0 };
        let frames = self.guard.frames();
        frames.set_flags(frames.entry(self.guard.page_id()), STAMPED | image);
    }
}

/// Pages that leave memory together, held exclusively until they do: taking memory away costs the
/// same for many as for one. A thread that holds such pages waits for nothing.
#[derive(Debug, Default)]
pub struct Leaving<'p> {
    pool: Option<&'p Pool>,
    pages: Vec<ExclusiveGuard<'p>>,
}

impl<'p> Leaving<'p> {
    /// Adds a page, which equals its newest image (invariant 5 of `frames`).
    pub fn push(&mut self, claimed: Claimed<'p>) {
        debug_assert!(!claimed.is_dirty(), "a page that leaves memory equals its newest image");
        debug_assert!(self.pool.is_none_or(|pool| std::ptr::eq(pool, claimed.pool)), "pages of one pool");
        self.pool = Some(claimed.pool);
        self.pages.push(claimed.guard);
    }

    /// Gives the memory of all pages back. Returns how many there were.
    pub fn evict(self) -> u64 {
        let count = self.pages.len() as u64;
        let Some(pool) = self.pool else { return 0 };
        pool.memory.frames.discard(self.pages.iter().map(ExclusiveGuard::page_id));
        self.pages.into_iter().for_each(ExclusiveGuard::release_evicted);
        pool.memory.eviction.count_evicted(count);
        pool.memory.give(count);
        count
    }
}

impl Pool {
    /// Copies a marked page's bytes without touching it; `None` if the page is not marked any more.
    /// `copy` may get torn bytes; they count only if the result is not `None`.
    pub fn look_at_marked(&self, page: PageId, copy: impl FnOnce(PageBytes<'_>)) -> Option<PageState> {
        let entry = self.memory.frames.entry_of(page)?;
        let version = entry.latch.begin_read_marked()?;
        let flags = entry.flags();
        let epoch = entry.epoch();
        copy(PageBytes::new(self.memory.frames.words(page)));
        entry.latch.validate(version).ok()?;
        let unsaved_stamps = flags & STAMPED != 0 && flags & STAMPED_IMAGE == 0;
        Some(PageState { version, dirty: flags & DIRTY != 0, unsaved_stamps, epoch })
    }

    /// Latches a page exclusively if it still has `version` and is not latched. Never waits.
    #[must_use]
    pub fn claim_unchanged(&self, page: PageId, version: Version) -> Option<Claimed<'_>> {
        let latch = &self.memory.frames.entry_of(page)?.latch;
        let untouched = latch.claim_marked(version);
        if !untouched && latch.upgrade(version).is_err() {
            return None;
        }
        let guard = ExclusiveGuard::new(&self.memory.frames, page);
        Some(Claimed { pool: self, guard, untouched })
    }
}
