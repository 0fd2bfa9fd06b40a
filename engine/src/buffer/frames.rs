//! The frame table: page memory, one entry per page id, and the free ids.
//!
//! Invariants:
//! 1. The memory of a page is where [`PageSpace`] says, whatever is in it. Page 0 is never used.
//! 2. A free id below `page_count` is in [`FreeIds`] exactly once. Only the thread that took an id
//!    from there claims its latch.
//! 3. The lock of the free ids is held only for list work: no latch is waited for and no device is
//!    used under it.
//! 4. A page in state Evicted has an image in the store. A page whose fault failed returns to
//!    Evicted.
//! 5. A page without [`DIRTY`] equals its newest image. With [`STAMPED_IMAGE`] the image has the
//!    page's stamps, too; otherwise the image shows settled entries without stamps.

use super::latch::{Latch, State};
use super::page_ids::FreeIds;
use super::page_space::PageSpace;
use super::region::ZeroIsDefault;
use crate::base::{Error, ErrorKind, Location, PageId, Result};
use crate::store::Demand;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

/// Below this a pool gains little from huge pages, and would take 2 MiB for its first page.
pub(super) const HUGE_PAGES_FROM_BYTES: u64 = 64 << 20;

/// Bytes that the store keeps in memory for a page, at most: a reference in each of three tables,
/// and a block's fill.
const STORE_TABLE_BYTES: u64 = 3 * 8 + 3;
/// A place in a list of free ids, which grows by doubling.
const FREE_ID_BYTES: u64 = 2 * size_of::<PageId>() as u64;

/// Checkpoint epoch of a page that is not to have an image yet: as if it had one in every epoch.
pub const HIDDEN_EPOCH: u32 = u32::MAX;

/// The page differs from its newest image.
pub(super) const DIRTY: u32 = 1;
/// The page in memory may have stamps that are not settled.
pub(super) const STAMPED: u32 = 2;
/// The newest image has the page's stamps, and was written by this run.
pub(super) const STAMPED_IMAGE: u32 = 4;
/// The page is dirty and has no image yet.
pub(super) const NEW: u32 = 8;
/// All flags. The rest of the word counts how often the page's id was freed.
const FLAGS: u32 = DIRTY | STAMPED | STAMPED_IMAGE | NEW;

// The bits above the flags are a count of their own.
const _: () = assert!((FLAGS + 1).is_power_of_two());

/// Lines fetched ahead: a leaf of 4 KiB has most of its slots in them.
#[cfg(all(target_arch = "x86_64", not(any(miri, loom, feature = "shuttle"))))]
const PREFETCH_LINES: usize = 5;
#[cfg(all(target_arch = "x86_64", not(any(miri, loom, feature = "shuttle"))))]
const WORDS_PER_LINE: usize = 8;

/// The state and the memory of one page id.
#[derive(Clone, Copy)]
pub(super) struct Frame<'p> {
    pub(super) entry: &'p Entry,
    pub(super) words: &'p [AtomicU64],
}

impl Frame<'_> {
    /// Makes the processor fetch the first lines of the page (header and slots of a node) while its
    /// latch is looked at. A search in a page that is in no cache would otherwise wait for each
    /// line in turn.
    #[inline]
    pub(super) fn prefetch_head(self) {
        #[cfg(all(target_arch = "x86_64", not(any(miri, loom, feature = "shuttle"))))]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            for line in 0..PREFETCH_LINES {
                let address = self.words.as_ptr().wrapping_add(line * WORDS_PER_LINE);
                // SAFETY: a prefetch has no effect on the program's state, at whatever address.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
            }
        }
    }
}

/// The state of one page id.
#[derive(Default)]
pub(super) struct Entry {
    pub(super) latch: Latch,
    /// Checkpoint epoch in which the page was last imaged or created. Written under a latch, read
    /// by the checkpoint.
    epoch: AtomicU32,
    /// [`FLAGS`], and above them a count. Written under an exclusive latch, by
    /// [`FrameTable::set_flags`] and [`FrameTable::count_free`].
    flags: AtomicU32,
}

// SAFETY: three atomic integers; zero is a free latch (checked by `const` assertion in `latch`),
// epoch 0, no flag.
unsafe impl ZeroIsDefault for Entry {}

impl Entry {
    #[inline]
    pub(super) fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Acquire)
    }

    pub(super) fn set_epoch(&self, epoch: u32) {
        self.epoch.store(epoch, Ordering::Release);
    }

    pub(super) fn is_dirty(&self) -> bool {
        self.flags() & DIRTY != 0
    }

    pub(super) fn flags(&self) -> u32 {
        self.flags.load(Ordering::Acquire) & FLAGS
    }
}

/// The memory and the state of every page id of a database.
pub struct FrameTable {
    space: PageSpace<Entry>,
    /// log2 of the words per page.
    word_shift: u32,
    /// Memory for pages and everything else, in bytes.
    memory_bytes: u64,
    /// True once memory below the highest page in use has gaps: see [`FrameTable::use_sparsely`].
    is_sparse: AtomicBool,
    /// Every id ever given out is below. Written under the lock of `free`; read by any thread.
    page_count: AtomicU64,
    free: Mutex<FreeIds>,
    /// The current checkpoint epoch.
    epoch: AtomicU32,
    demand: Arc<Demand>,
}

impl FrameTable {
    /// Reserves a table for pages of `page_bytes`, for a pool that keeps at most `memory_bytes` of
    /// them in memory.
    pub(super) fn new(page_bytes: usize, memory_bytes: u64) -> Result<FrameTable> {
        if !page_bytes.is_power_of_two() || page_bytes < 2 * super::bytes::PAGE_HEADER_BYTES {
            return Err(Error::invalid(format!("{page_bytes} cannot be the size of a page"))
                .at(Location::Setting("page_bytes")));
        }
        let space = PageSpace::reserve(page_bytes, memory_bytes)
            .map_err(|error| error.at(Location::Setting("memory_bytes")))?;
        let frames = FrameTable {
            space,
            word_shift: page_bytes.trailing_zeros() - size_of::<u64>().trailing_zeros(),
            memory_bytes,
            is_sparse: AtomicBool::new(false),
            page_count: AtomicU64::new(1),
            free: Mutex::new(FreeIds::default()),
            epoch: AtomicU32::new(0),
            demand: Arc::default(),
        };
        frames.advise_huge();
        Ok(frames)
    }

    /// Makes the pages that the store has known; see [`super::Pool::restore`].
    pub(super) fn restore(&self, allocated: impl Iterator<Item = PageId>) -> Result<()> {
        let mut free = self.free.lock();
        debug_assert_eq!(free.count(), 0, "restored before a page was freed");
        let mut page_count = self.page_count();
        for page in allocated {
            self.grow_to(page)?;
            let entry = self.entry(page);
            if page.0 == 0 || !entry.latch.set_evicted() {
                return Err(Error::corruption(format!("{page} is listed twice, or cannot exist")));
            }
            page_count = page_count.max(page.0 + 1);
        }
        // Lowest ids at the end: they are given out first, which keeps memory dense.
        free.cold = (1..page_count).rev().map(PageId).filter(|page| !self.is_allocated(*page)).collect();
        if page_count > self.frames_max() {
            self.use_sparsely();
        }
        self.set_page_count(page_count);
        Ok(())
    }

    /// Stores the number of page ids. The caller holds the lock of `free`.
    fn set_page_count(&self, page_count: u64) {
        debug_assert!(page_count >= self.page_count.load(Ordering::Relaxed), "page ids never become fewer");
        debug_assert!(page_count <= self.space.end(), "each page id has an entry");
        self.page_count.store(page_count, Ordering::Release);
        self.demand.page_ids.store(page_count, Ordering::Relaxed);
    }

    /// Bytes per page.
    #[inline]
    #[must_use]
    pub fn page_bytes(&self) -> usize {
        size_of::<u64>() << self.word_shift
    }

    /// The budget that pages share with everything else, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// Pages that fit in the budget if pages alone use it.
    pub(super) fn frames_max(&self) -> u64 {
        self.memory_bytes / self.page_bytes() as u64
    }

    /// An upper bound of page ids: every allocated id is at least 1 and below this.
    #[must_use]
    pub fn page_count(&self) -> u64 {
        self.page_count.load(Ordering::Acquire)
    }

    /// Returns the number of allocated pages: ids that are neither free nor set aside.
    #[must_use]
    pub fn pages_in_use(&self) -> u64 {
        self.page_count().saturating_sub(1 + self.free.lock().count())
    }

    /// Bytes that the tables with an entry for every page id take, whether the page is in memory or
    /// not.
    pub(super) fn table_bytes(&self) -> u64 {
        self.page_count() * (size_of::<Entry>() as u64 + FREE_ID_BYTES + STORE_TABLE_BYTES)
    }

    /// Returns the entry of a page that is known to have one: a guard holds the page, or is about
    /// to, or [`FrameTable::entry_of`] has found its entry.
    #[inline]
    pub(super) fn entry(&self, page: PageId) -> &Entry {
        self.space.entry(page)
    }

    /// Returns the entry of any page id; `None` if the id is outside the table.
    #[inline]
    pub(super) fn entry_of(&self, page: PageId) -> Option<&Entry> {
        self.space.entry_of(page)
    }

    /// Returns the frame of any page id; `None` if the id is outside the table.
    #[inline]
    pub(super) fn frame_of(&self, page: PageId) -> Option<Frame<'_>> {
        self.space.find(page).map(|(entry, words)| Frame { entry, words })
    }

    /// Returns the frame of a page that is known to have one, as in [`FrameTable::entry`].
    #[inline]
    pub(super) fn frame(&self, page: PageId) -> Frame<'_> {
        self.frame_of(page).expect("the caller has the page from a guard, or from `entry_of`")
    }

    /// Returns the memory of a page that is known to have a frame.
    #[inline]
    pub(super) fn words(&self, page: PageId) -> &[AtomicU64] {
        self.frame(page).words
    }

    /// Makes sure that `page` has an entry. The caller holds the lock of `free`.
    fn grow_to(&self, page: PageId) -> Result<()> {
        self.space.grow_to(page).map_err(|error| {
            let why = error.without_advice();
            self.out_of_memory(&format!(
                "the process has no address space for more pages (`ulimit -v`; {why})"
            ))
        })
    }

    /// Returns whether the id is a page. Can change at once unless the caller holds a latch.
    #[must_use]
    pub fn is_allocated(&self, page: PageId) -> bool {
        self.entry_of(page).is_some_and(|entry| entry.latch.state() != State::Free)
    }

    /// Returns whether the page is in memory now.
    #[must_use]
    pub fn is_resident(&self, page: PageId) -> bool {
        self.entry_of(page).is_some_and(|entry| {
            let state = entry.latch.state();
            state != State::Free && state != State::Evicted
        })
    }

    /// Returns whether the page exists and is not in memory.
    pub(super) fn is_evicted(&self, page: PageId) -> bool {
        self.entry_of(page).is_some_and(|entry| entry.latch.state() == State::Evicted)
    }

    /// Returns whether the page differs from its image in the store.
    #[must_use]
    pub fn is_dirty(&self, page: PageId) -> bool {
        self.entry_of(page).is_some_and(Entry::is_dirty)
    }

    /// How often the id was freed, in 28 bits. While that number is unchanged and the id is
    /// allocated, it is the same page.
    #[must_use]
    pub fn times_freed(&self, page: PageId) -> u32 {
        self.entry_of(page).map_or(0, |entry| entry.flags.load(Ordering::Acquire) / (FLAGS + 1))
    }

    /// Changes the flags of a page that the caller holds exclusively, and keeps [`Demand`] up to
    /// date.
    #[inline]
    pub(super) fn set_flags(&self, entry: &Entry, flags: u32) {
        debug_assert_eq!(flags & !FLAGS, 0, "the rest of the word is a count");
        debug_assert!(flags & NEW == 0 || flags & DIRTY != 0, "a page without an image is dirty");
        debug_assert!(
            flags & STAMPED_IMAGE == 0 || flags & (DIRTY | STAMPED) == STAMPED,
            "a stamped image equals a page that may have stamps"
        );
        debug_assert_eq!(entry.latch.state(), State::Exclusive, "flags are the holder's");
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
                (true, false) => {
                    let counted = count.fetch_sub(1, Ordering::Relaxed);
                    debug_assert!(counted > 0, "each page is counted once");
                }
                _ => {}
            }
        }
    }

    /// What the pages in memory need of the store, always up to date.
    #[must_use]
    pub fn demand(&self) -> Arc<Demand> {
        self.demand.clone()
    }

    /// The current checkpoint epoch; 0 before the first.
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::SeqCst)
    }

    /// Begins the next checkpoint epoch. Calls `begun` with its number before any thread can see
    /// the number.
    ///
    /// A page is created in the current epoch. A structure change gives a new page the epoch of the
    /// page that it was split from ([`super::ExclusiveGuard::set_imaged`]), because the epoch may
    /// change between the two.
    ///
    /// # Errors
    /// The errors of `begun`: then no epoch begins.
    pub fn begin_epoch<T>(&self, begun: impl FnOnce(u32) -> Result<T>) -> Result<T> {
        let next = self.epoch.load(Ordering::SeqCst) + 1;
        debug_assert!(next < HIDDEN_EPOCH, "the last epoch is none");
        let result = begun(next)?;
        let before = self.epoch.fetch_add(1, Ordering::SeqCst);
        debug_assert_eq!(before + 1, next, "one thread at a time begins an epoch");
        Ok(result)
    }

    /// Checkpoint epoch in which the page was last imaged or created; 0 if neither happened since
    /// the database was opened.
    #[must_use]
    pub fn epoch_of(&self, page: PageId) -> u32 {
        self.entry_of(page).map_or(0, Entry::epoch)
    }

    /// Notes that the page was imaged in `epoch`. The caller holds its latch.
    pub fn set_imaged(&self, page: PageId, epoch: u32) {
        debug_assert!(
            epoch == HIDDEN_EPOCH || epoch <= self.epoch() + 1,
            "an image is of an epoch that has begun, or just begins"
        );
        if let Some(entry) = self.entry_of(page) {
            entry.set_epoch(epoch);
        }
    }

    /// Takes a free id that still has memory, unless another id is set aside for the page after
    /// `before`.
    pub(super) fn take_recycled(&self, before: Option<PageId>) -> Option<PageId> {
        self.free.lock().take_recycled(before)
    }

    /// Takes an id without memory, after `before` if possible.
    pub(super) fn take_cold(&self, before: Option<PageId>) -> Result<PageId> {
        let mut free = self.free.lock();
        if let Some(page) = free.take_cold(before) {
            return Ok(page);
        }
        let first = self.page_count.load(Ordering::Relaxed);
        self.grow_to(PageId(first))?;
        let end = (first + free.wanted(before)).min(self.space.end());
        self.set_page_count(end);
        if (first..end).contains(&self.frames_max()) {
            self.use_sparsely();
        }
        Ok(free.add(before, first, end))
    }

    /// Counts that the page of `entry`, which the caller holds exclusively, is being freed.
    pub(super) fn count_free(entry: &Entry) {
        let word = entry.flags.load(Ordering::Relaxed);
        entry.flags.store(word.wrapping_add(FLAGS + 1), Ordering::Release);
    }

    /// Lists the id of a page that is free now and still has memory.
    pub(super) fn recycle(&self, page: PageId) {
        debug_assert!(!self.is_allocated(page), "{page} is listed as free, and a page");
        self.free.lock().recycled.push(page);
    }

    /// Lists the id of a page that is free now and has no memory.
    pub(super) fn add_cold(&self, page: PageId) {
        debug_assert!(!self.is_allocated(page), "{page} is listed as free, and a page");
        self.free.lock().cold.push(page);
    }

    /// Gives back the memory of at most `most` free pages. Returns of how many.
    pub(super) fn discard_free(&self, most: u64) -> u64 {
        let mut ids = {
            let recycled = &mut self.free.lock().recycled;
            recycled.split_off(recycled.len() - recycled.len().min(most as usize))
        };
        if ids.is_empty() {
            return 0;
        }
        self.discard(ids.iter().copied());
        let count = ids.len() as u64;
        self.free.lock().cold.append(&mut ids);
        count
    }

    /// Gives the memory of pages back to the system. The caller holds the pages exclusively, or
    /// their ids.
    pub(super) fn discard(&self, pages: impl Iterator<Item = PageId>) {
        self.use_sparsely();
        self.space.discard(pages);
    }

    /// Asks for huge pages for the ids that fit in memory. As long as all ids fit, and no page has
    /// given its memory back, pages alone exceed the budget by at most one huge page. (A huge page
    /// of which few pages are used is not counted, so versions beside it may then take too much.)
    fn advise_huge(&self) {
        if self.memory_bytes >= HUGE_PAGES_FROM_BYTES {
            self.space.advise_huge(Some(self.frames_max() as usize + 1));
        }
    }

    /// Asks for no huge pages any more, because memory is used with gaps from now on. The system
    /// (`khugepaged`) would put a huge page where a few pages are in use, and so fill the gaps with
    /// memory that the budget does not count.
    fn use_sparsely(&self) {
        if !self.is_sparse.swap(true, Ordering::Relaxed) {
            self.space.advise_huge(None);
        }
    }

    /// Returns the error that says that `what` exceeds `memory_bytes`.
    pub(super) fn out_of_memory(&self, what: &str) -> Error {
        let limit = self.memory_bytes;
        Error::new(ErrorKind::OutOfMemory, format!("{what}: `memory_bytes` is {limit}"))
            .at(Location::Setting("memory_bytes"))
    }

    /// The address of page memory.
    #[cfg(test)]
    pub(super) fn address(&self) -> usize {
        self.words(PageId(0)).as_ptr().addr()
    }
}
