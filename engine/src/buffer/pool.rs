//! The pool: finding, latching, allocating and freeing pages. Composes the frame table, the memory,
//! and the ways in.

use super::eviction::Eviction;
use super::frames::{DIRTY, FrameTable, NEW, STAMPED};
use super::guard::{ExclusiveGuard, Interrupt, OptimisticGuard, SharedGuard};
use super::latch::{Latch, LatchWait, Obstacle, Restart, Version};
use super::loader::{self, Loader};
use super::memory::PageMemory;
use super::read_ahead::{ReadAhead, Work};
use super::scan_buffer::{self, ScanBuffer, ScanBuffers};
use super::source::PageSource;
use crate::base::{Account, Error, PageId, Result};
use crate::store::ReservedFor;
use std::sync::Arc;

/// All pages of a database that are in memory, and the state of all that are not.
pub struct Pool {
    pub(super) memory: PageMemory,
    pub(super) loader: Loader,
    pub(super) read_ahead: ReadAhead,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({} pages of {} bytes)", self.page_count(), self.page_bytes())
    }
}

impl Pool {
    /// As [`Pool::with_scan_buffers`], with the ordinary use of scan buffers.
    ///
    /// # Errors
    /// As [`Pool::with_scan_buffers`].
    #[cfg(feature = "internals")]
    pub fn new(page_bytes: usize, memory_bytes: u64, source: Arc<dyn PageSource>) -> Result<Arc<Pool>> {
        Pool::with_scan_buffers(page_bytes, memory_bytes, None, source)
    }

    /// Makes a pool of pages of `page_bytes` (a power of two) that keeps at most `memory_bytes` of
    /// them in memory. With `scan_buffer_from`, a scan uses a [`ScanBuffer`] after this many
    /// leaves, however much memory is free.
    ///
    /// # Errors
    /// A setting is wrong, or the address space is limited to less than `memory_bytes`.
    pub fn with_scan_buffers(
        page_bytes: usize,
        memory_bytes: u64,
        scan_buffer_from: Option<u64>,
        source: Arc<dyn PageSource>,
    ) -> Result<Arc<Pool>> {
        Ok(Arc::new(Pool {
            memory: PageMemory::new(FrameTable::new(page_bytes, memory_bytes)?),
            loader: Loader::new(source),
            read_ahead: ReadAhead::new(Arc::new(ScanBuffers::new(scan_buffer_from))),
        }))
    }

    /// Makes the pages known that the store has, before anything else is done with the pool. They
    /// are read when first used.
    ///
    /// # Errors
    /// An id is listed twice or is 0 (`Corruption`), or there are more pages than can be addressed.
    pub fn restore(&self, allocated: impl Iterator<Item = PageId>) -> Result<()> {
        self.frames().restore(allocated)
    }

    /// The frame table.
    #[inline]
    #[must_use]
    pub fn frames(&self) -> &FrameTable {
        &self.memory.frames
    }

    /// Memory for pages.
    #[inline]
    #[must_use]
    pub fn memory(&self) -> &PageMemory {
        &self.memory
    }

    /// The signals between threads that need memory and the evictor.
    #[must_use]
    pub fn eviction(&self) -> &Eviction {
        &self.memory.eviction
    }

    /// Bytes per page.
    #[inline]
    #[must_use]
    pub fn page_bytes(&self) -> usize {
        self.frames().page_bytes()
    }

    /// An upper bound of page ids: every allocated id is at least 1 and below this.
    #[must_use]
    pub fn page_count(&self) -> u64 {
        self.frames().page_count()
    }

    /// The account to which all other memory of the same budget is charged.
    #[must_use]
    pub fn account(&self) -> &Arc<Account> {
        self.memory.account()
    }

    /// Pages that the calling thread has brought in so far because it needed them, into any pool.
    #[must_use]
    pub fn faults_of_thread() -> u64 {
        loader::faults_of_thread()
    }

    /// Makes sure, before a change that can still be refused, that the page can be written again:
    /// asks the source for space if the page is clean.
    ///
    /// # Errors
    /// `OutOfSpace`; the device's.
    #[inline]
    pub fn reserve_change(&self, page: &ExclusiveGuard<'_>) -> Result<()> {
        if page.is_dirty() { Ok(()) } else { self.loader.source.reserve(ReservedFor::Change) }
    }

    /// Reads a page without holding it, if that takes one load: the page is in memory, was used
    /// lately, and no writer holds it.
    #[inline(always)]
    pub fn optimistic_now(&self, page: PageId) -> Result<OptimisticGuard<'_>, Restart> {
        let frame = self.frames().frame_of(page).ok_or(Restart)?;
        frame.prefetch_head();
        let version = frame.entry.latch.begin_read().ok_or(Restart)?;
        Ok(OptimisticGuard::new(self.frames(), page, frame, version))
    }

    /// Reads a page without holding it. If the page is in memory: one load and no store.
    ///
    /// # Errors
    /// `Corruption` if there is no such page. A caller that read the id optimistically uses
    /// [`Pool::child`], which recognizes a torn id. Otherwise see [`Pool::exclusive`].
    #[inline]
    pub fn optimistic(&self, page: PageId) -> Result<OptimisticGuard<'_>> {
        self.optimistic_now(page).or_else(|Restart| self.optimistic_slow(page))
    }

    #[cold]
    fn optimistic_slow(&self, page: PageId) -> Result<OptimisticGuard<'_>> {
        self.memory.fairness.reach(page);
        let version = self.wait_for(page, Latch::begin_read_slow)?;
        Ok(OptimisticGuard::new(self.frames(), page, self.frames().frame(page), version))
    }

    /// Reads a page whose id was read from `parent` (optimistic latch coupling): begins to read the
    /// child first and then validates the parent. So the child was the right one at the moment from
    /// which its guard counts.
    ///
    /// # Errors
    /// [`Interrupt::Restart`] if the parent was changed, also if the child cannot be read: then its
    /// id was wrong.
    #[inline]
    pub fn child(
        &self,
        parent: &OptimisticGuard<'_>,
        child: PageId,
    ) -> Result<OptimisticGuard<'_>, Interrupt> {
        let guard = self.optimistic(child);
        parent.validate()?;
        Ok(guard?)
    }

    /// Reads a page again if it still has `version`. Never waits and never faults.
    ///
    /// # Errors
    /// The page has changed, is being changed, or is not in memory.
    #[inline]
    pub fn optimistic_at(&self, page: PageId, version: Version) -> Result<OptimisticGuard<'_>, Restart> {
        match self.frames().frame_of(page) {
            Some(frame) if frame.entry.latch.begin_read() == Some(version) => {
                Ok(OptimisticGuard::new(self.frames(), page, frame, version))
            }
            _ => Err(Restart),
        }
    }

    /// Waits until no writer holds the page, and keeps writers out.
    ///
    /// # Errors
    /// As [`Pool::exclusive`].
    pub fn shared(&self, page: PageId) -> Result<SharedGuard<'_>> {
        self.wait_for(page, Latch::try_shared)?;
        Ok(SharedGuard::new(self.frames(), page))
    }

    /// As [`Pool::shared`], for a page that may be freed or leave memory at any moment; `None` if
    /// it did.
    ///
    /// # Errors
    /// `Corruption` if there was never such a page.
    pub fn shared_if_resident(&self, page: PageId) -> Result<Option<SharedGuard<'_>>> {
        let latched = self.wait_for(page, |latch| match latch.try_shared() {
            Ok(_) => Ok(true),
            Err(Obstacle::Free | Obstacle::Evicted) => Ok(false),
            Err(obstacle) => Err(obstacle),
        })?;
        Ok(latched.then(|| SharedGuard::new(self.frames(), page)))
    }

    /// Returns whether the page is in memory, not latched exclusively, and has the bytes of
    /// `version`.
    #[inline]
    #[must_use]
    pub fn has_version(&self, page: PageId, version: Version) -> bool {
        self.frames().entry_of(page).and_then(|entry| entry.latch.begin_read()) == Some(version)
    }

    /// Waits until the page is not latched, and latches it exclusively. A caller that holds other
    /// latches takes them top-down and left to right.
    ///
    /// # Errors
    /// `Corruption` if there is no such page, `OutOfMemory` if it does not fit in memory, or the
    /// [`PageSource`]'s.
    pub fn exclusive(&self, page: PageId) -> Result<ExclusiveGuard<'_>> {
        self.wait_for(page, Latch::try_exclusive)?;
        Ok(ExclusiveGuard::new(self.frames(), page))
    }

    /// Latches the page exclusively if it is not latched. Does not wait for a latch, but may read
    /// the page from the store.
    #[cfg(test)]
    pub(super) fn try_exclusive(&self, page: PageId) -> Result<ExclusiveGuard<'_>, Interrupt> {
        let entered = self.attempt(page, Latch::try_exclusive)?;
        entered.map(|_| ExclusiveGuard::new(self.frames(), page)).ok_or(Interrupt::Restart)
    }

    /// Repeats `attempt` on the page's latch until it succeeds, and brings the page in if
    /// necessary.
    fn wait_for<T>(&self, page: PageId, attempt: impl Fn(&Latch) -> Result<T, Obstacle>) -> Result<T> {
        let mut wait = LatchWait::default();
        loop {
            match self.attempt(page, &attempt)? {
                Some(got) => return Ok(got),
                None => wait.pause(),
            }
        }
    }

    /// Makes one attempt, and another if the page had to be brought in. Returns `None` if another
    /// thread has the latch.
    fn attempt<T>(&self, page: PageId, attempt: impl Fn(&Latch) -> Result<T, Obstacle>) -> Result<Option<T>> {
        let Some(entry) = self.frames().entry_of(page) else { return Err(no_such_page(page)) };
        for _ in 0..2 {
            match attempt(&entry.latch) {
                Ok(got) => return Ok(Some(got)),
                Err(Obstacle::Busy) => return Ok(None),
                Err(Obstacle::Free) => return Err(no_such_page(page)),
                Err(Obstacle::Evicted) => self.loader.fault(&self.memory, page, entry)?,
            }
        }
        Ok(None)
    }

    /// Allocates a page of zeros, dirty, created in the current epoch, and latches it exclusively.
    ///
    /// # Errors
    /// `OutOfMemory` if the budget is used up; those of [`PageSource::reserve`].
    pub fn allocate(&self) -> Result<ExclusiveGuard<'_>> {
        self.allocate_behind(None)
    }

    /// As [`Pool::allocate`]. A page that continues the key order of the page `before` gets, if
    /// possible, the id after it, so that both lie side by side in the store.
    ///
    /// # Errors
    /// As [`Pool::allocate`].
    pub fn allocate_behind(&self, before: Option<PageId>) -> Result<ExclusiveGuard<'_>> {
        self.loader.source.reserve(ReservedFor::NewPage)?;
        let frames = self.frames();
        let page = match frames.take_recycled(before) {
            Some(page) => page,
            None => {
                self.memory.take()?;
                frames.take_cold(before).inspect_err(|_| self.memory.give(1))?
            }
        };
        let entry = frames.entry(page);
        let claimed = entry.latch.claim_free();
        assert!(claimed, "{page} was on the free list but is in use");
        debug_assert!(page.0 > 0 && page.0 < frames.page_count(), "page 0 is never used, nor one beyond");
        let mut guard = ExclusiveGuard::new(frames, page);
        // Cold pages need it too where memory is not given back (see `Region::discard`).
        guard.bytes_mut().fill(0, self.page_bytes(), 0);
        frames.set_flags(entry, DIRTY | STAMPED | NEW);
        guard.set_imaged(frames.epoch());
        Ok(guard)
    }

    /// Frees a page, and lets the source forget its image. The id can be used again at once.
    pub fn free(&self, guard: ExclusiveGuard<'_>) {
        let frames = self.frames();
        assert!(std::ptr::eq(guard.frames(), frames), "the page is of another pool");
        self.loader.source.freed(guard.page_id(), guard.epoch());
        let entry = frames.entry(guard.page_id());
        frames.set_flags(entry, 0);
        FrameTable::count_free(entry);
        frames.recycle(guard.release_free());
        // A thread that waits for memory can take the page's.
        self.memory.eviction.budget_grew();
    }

    /// Frees a page that is not in memory, to which nothing refers, without reading it. Returns
    /// false if there is no such page: it may be in memory.
    #[must_use]
    pub fn free_evicted(&self, page: PageId) -> bool {
        let frames = self.frames();
        let Some(entry) = frames.entry_of(page).filter(|entry| entry.latch.claim_evicted()) else {
            return false;
        };
        let guard = ExclusiveGuard::new(frames, page);
        debug_assert!(!entry.is_dirty(), "an evicted page equals its newest image");
        self.loader.source.freed(page, guard.epoch());
        frames.set_flags(entry, 0);
        FrameTable::count_free(entry);
        frames.add_cold(guard.release_free());
        true
    }

    /// Has the evicted ones of `pages` brought in, in the background if possible. The caller holds
    /// no latch.
    pub fn read_ahead(&self, pages: impl Iterator<Item = PageId>) {
        self.read_ahead.load(&self.memory, &self.loader, pages);
    }

    /// Brings in the evicted ones of `pages`, many at once, before this returns. The caller holds
    /// no latch.
    pub fn prefetch(&self, mut pages: Vec<PageId>) {
        pages.retain(|page| self.frames().is_evicted(*page));
        pages.sort_unstable();
        pages.dedup();
        if pages.len() >= 2 {
            self.loader.load_all(&self.memory, &pages);
        }
    }

    /// Pages that one call of [`Pool::fill_scan_buffer`] copies, at most.
    #[must_use]
    pub fn window_pages(&self) -> usize {
        scan_buffer::window_pages(self.frames())
    }

    /// Returns whether a scan that has had this many pages brought in should use a scan buffer from
    /// now on: the scan is long, and each page that it brings in pushes out another.
    #[must_use]
    pub fn needs_scan_buffer(&self, pages: u64) -> bool {
        self.read_ahead.scan_buffers.are_needed(&self.memory, pages)
    }

    /// Has copies made of the evicted ones of `pages`, in the background if possible, at most
    /// [`Pool::window_pages`]. Waits for the copies requested by the previous call, and drops those
    /// requested before. Returns false if there is no memory for copies. The caller holds no latch.
    pub fn fill_scan_buffer(&self, buffer: &mut ScanBuffer, pages: &[PageId]) -> bool {
        let all = &self.read_ahead.scan_buffers;
        let Some(reading) = buffer.begin(&self.memory, all, pages) else { return false };
        if let Err(Work::Fill(mut reading)) = self.read_ahead.ask(Work::Fill(reading)) {
            // The thread is busy with another request.
            reading.read(&*self.loader.source);
        }
        true
    }

    /// Counts a descent that visited so many pages.
    #[inline]
    pub fn visited(&self, pages: u64) {
        self.loader.visited(pages);
    }

    /// Pages that descents have visited since open, estimated from one descent in 64.
    #[must_use]
    pub fn page_visits(&self) -> u64 {
        self.loader.visits.get()
    }

    /// Pages that were brought into memory one at a time, because a thread needed them.
    #[must_use]
    pub fn page_faults(&self) -> u64 {
        self.loader.faults.get()
    }

    /// Pages of which scans have used copies, instead of bringing them in.
    #[must_use]
    pub fn pages_copied(&self) -> u64 {
        self.read_ahead.scan_buffers.pages_used()
    }
}

#[cold]
fn no_such_page(page: PageId) -> Error {
    Error::corruption(format!("{page} is referred to but does not exist"))
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
