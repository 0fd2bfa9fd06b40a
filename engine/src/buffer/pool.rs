//! The pool: page memory, the table of latches, the free list and the budget.
//!
//! Invariants:
//! 1. The memory of page *n* is `words[n * words per page ..]`, whatever is in it. Page 0 is never used.
//! 2. Free ids below `page_count` are exactly once in [`FreeIds`]; only who took an id from there claims
//!    its latch.
//! 3. `resident` counts the pages that may have memory: those in memory and the recycled ids. It does not exceed the budget,
//!    unless the budget has just become smaller.
//! 4. The lock of the free ids is held only for list work: no latch is waited for and no device is used under it.
//! 5. A page in state Evicted has an image in the store. A page whose fault failed goes back to Evicted.
//! 6. A page without [`DIRTY`] is what its newest image shows; if it has [`STAMPED_IMAGE`] its stamps too, otherwise settled
//!    ones are taken for what stamps it has.

use super::eviction::Eviction;
use super::guard::{ExclusiveGuard, OptimisticGuard, SharedGuard};
use super::ids::FreeIds;
use super::latch::{Latch, LatchWait, Obstacle, State, Version};
use super::read_ahead::Requests;
use super::region::{Region, ZeroIsDefault};
use super::turn::Turns;
use super::{Interrupt, PageBytesMut, Restart};
use crate::base::{Account, Error, Location, PageId, Result};
use crate::device::AlignedBuffer;
use crate::store::{Demand, ReservedFor};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

/// Where images of evicted pages come from. Guarantees expected of an implementation:
/// 1. `into` is filled with the newest image of `page`, or an error says where the image is damaged;
/// 2. the image is safe to use: checksum, page id and the structure of its content are verified;
/// 3. stamps are kept if this run of the engine has written them (`own_stamps`), and settled otherwise;
/// 4. it may be called by many threads at once, and does not use the pool.
pub trait PageSource: Send + Sync {
    /// Reads the image of `page`; `into` has the size of a page.
    ///
    /// # Errors
    /// The device's, or `Corruption`.
    fn read_page(&self, page: PageId, own_stamps: bool, into: &mut [u8]) -> Result<()>;

    /// Reads the images of several pages, each with `own_stamps`, in any order; `visit` gets each one's index and image. A source
    /// that cannot do better does not say anything, and the pages are read one by one when they are needed.
    fn read_pages(&self, pages: &[(PageId, bool)], visit: &mut dyn FnMut(usize, Result<&[u8]>)) {
        let _ = (pages, visit);
    }

    /// A clean page is about to become dirty, or a new one is made: says whether its image will find space. Called with latches held;
    /// waits for no latch.
    ///
    /// # Errors
    /// `OutOfSpace`; the device's.
    fn reserve(&self, page: ReservedFor) -> Result<()> {
        let _ = page;
        Ok(())
    }

    /// The page, last imaged or born in `round`, exists no more. Called with its latch held; does not fail or wait.
    fn freed(&self, page: PageId, round: u32) {
        let _ = (page, round);
    }
}

/// Address space reserved for pages, at least; far more than the budget, so that page ids can grow beyond what fits in memory.
const RESERVATION_BYTES: u64 = 1 << 40;
const RESERVATION_FACTOR: u64 = if cfg!(any(loom, miri, feature = "shuttle")) { 2 } else { 16 };
/// Never reserve more than an eighth of a process's address space.
const RESERVATION_BYTES_MAX: u64 = 1 << 44;

/// The page differs from its newest image.
pub(super) const DIRTY: u32 = 1;
/// The page in memory may have stamps that are not settled.
pub(super) const STAMPED: u32 = 2;
/// The newest image has the page's stamps, and was written by this run.
pub(super) const STAMPED_IMAGE: u32 = 4;
/// The page is dirty and has no image yet.
pub(super) const NEW: u32 = 8;
/// All of these. The rest of the word counts how often the page's id was given back.
pub(super) const FLAGS: u32 = DIRTY | STAMPED | STAMPED_IMAGE | NEW;

/// What the pool knows of one page.
#[derive(Default)]
pub(super) struct Entry {
    pub(super) latch: Latch,
    /// The checkpoint round in which the page was last imaged or born. Written under a latch, read by the checkpoint.
    round: AtomicU32,
    /// [`FLAGS`], and above them a count. Written under an exclusive latch, by [`Pool::set_flags`] and [`Pool::free`].
    pub(super) flags: AtomicU32,
}

// SAFETY: three atomic integers; zero is a free latch (checked by `const` assertion in `latch`), round 0, no flag.
unsafe impl ZeroIsDefault for Entry {}

impl Entry {
    #[inline]
    pub(super) fn round(&self) -> u32 {
        self.round.load(Ordering::Acquire)
    }

    pub(super) fn set_round(&self, round: u32) {
        self.round.store(round, Ordering::Release);
    }

    pub(super) fn is_dirty(&self) -> bool {
        self.flags() & DIRTY != 0
    }

    pub(super) fn flags(&self) -> u32 {
        self.flags.load(Ordering::Acquire) & FLAGS
    }
}

/// Lines fetched ahead: a leaf of 4 KiB has most of its slots in them.
#[cfg(all(target_arch = "x86_64", not(any(miri, loom, feature = "shuttle"))))]
const PREFETCH_LINES: usize = 5;
#[cfg(all(target_arch = "x86_64", not(any(miri, loom, feature = "shuttle"))))]
const WORDS_PER_LINE: usize = 8;

/// All pages of a database that are in memory, and the state of all that are not.
pub struct Pool {
    pub(super) entries: Region<Entry>,
    pub(super) words: Region<AtomicU64>,
    /// log2 of the words per page.
    pub(super) word_shift: u32,
    pub(super) memory_bytes: u64,
    /// Pages that fit in `memory_bytes` if there were nothing else.
    pub(super) resident_max: u64,
    /// See invariant 3.
    pub(super) resident: AtomicU64,
    /// Not all memory below the highest page in use is in use: see [`Pool::use_sparsely`].
    pub(super) is_sparse: AtomicBool,
    pub(super) eviction: Eviction,
    pub(super) ahead: Requests,
    pub(super) turns: Turns,
    /// Every id ever given out is below. Written under the lock of `free`; read by anybody.
    page_count: AtomicU64,
    pub(super) free: Mutex<FreeIds>,
    round: AtomicU32,
    pub(super) source: Arc<dyn PageSource>,
    pub(super) demand: Arc<Demand>,
    /// What everything else takes of the same memory.
    pub(super) account: Arc<Account>,
    /// Buffers for reading images; as many as there were ever faults at once.
    fault_buffers: Mutex<Vec<AlignedBuffer>>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({} pages of {} bytes)", self.page_count(), self.page_bytes())
    }
}

impl Pool {
    /// A pool of pages of `page_bytes` (a power of two) that keeps at most `memory_bytes` of them in memory.
    ///
    /// # Errors
    /// A setting is wrong, or the address space is limited to less than `memory_bytes`.
    pub fn new(page_bytes: usize, memory_bytes: u64, source: Arc<dyn PageSource>) -> Result<Arc<Pool>> {
        if !page_bytes.is_power_of_two() || page_bytes < 2 * super::PAGE_HEADER_BYTES {
            return Err(Error::invalid(format!("{page_bytes} cannot be the size of a page"))
                .at(Location::Setting("page_bytes")));
        }
        let resident_max = memory_bytes / page_bytes as u64;
        let (entries, words) = reserve(page_bytes, resident_max)?;
        let pool = Pool {
            entries,
            words,
            word_shift: page_bytes.trailing_zeros() - size_of::<u64>().trailing_zeros(),
            memory_bytes,
            resident_max,
            resident: AtomicU64::new(0),
            is_sparse: AtomicBool::new(false),
            eviction: Eviction::default(),
            ahead: Requests::default(),
            turns: Turns::default(),
            page_count: AtomicU64::new(1),
            free: Mutex::new(FreeIds::default()),
            round: AtomicU32::new(0),
            source,
            demand: Arc::default(),
            account: Arc::default(),
            fault_buffers: Mutex::new(Vec::new()),
        };
        pool.advise_huge();
        Ok(Arc::new(pool))
    }

    /// Tells which pages the store has; before anything else is done with the pool. They are read when first used.
    ///
    /// # Errors
    /// An id is there twice or is 0 (`Corruption`), or there are more pages than can be addressed.
    pub fn restore(&self, allocated: impl Iterator<Item = PageId>) -> Result<()> {
        let mut free = self.free.lock();
        let mut page_count = self.page_count();
        for page in allocated {
            let Some(entry) = self.entries.get(page.0 as usize) else {
                return Err(self.out_of_memory("the database has more pages than can be addressed"));
            };
            if page.0 == 0 || !entry.latch.set_evicted() {
                return Err(Error::corruption(format!("{page} is listed twice, or cannot exist")));
            }
            page_count = page_count.max(page.0 + 1);
        }
        // Lowest ids at the end: they are given out first, which keeps memory dense.
        free.cold = (1..page_count).rev().map(PageId).filter(|page| !self.is_allocated(*page)).collect();
        if page_count > self.resident_max {
            self.use_sparsely();
        }
        self.set_page_count(page_count);
        Ok(())
    }

    /// The caller holds the lock of `free`.
    fn set_page_count(&self, page_count: u64) {
        self.page_count.store(page_count, Ordering::Release);
        self.demand.page_ids.store(page_count, Ordering::Relaxed);
    }

    /// Bytes per page.
    #[inline]
    #[must_use]
    pub fn page_bytes(&self) -> usize {
        size_of::<u64>() << self.word_shift
    }

    /// Where everything is charged that is no page and takes of the same memory.
    #[must_use]
    pub fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// The budget that pages share with other things, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// Every allocated id is at least 1 and below this.
    #[must_use]
    pub fn page_count(&self) -> u64 {
        self.page_count.load(Ordering::Acquire)
    }

    /// Pages that take memory now; free ones that still have theirs are counted.
    #[must_use]
    pub fn resident_pages(&self) -> u64 {
        self.resident.load(Ordering::Relaxed)
    }

    /// The entry of a page that has one: a guard holds it, or is about to, or [`Pool::entry_of`] has found it.
    #[inline]
    pub(super) fn entry(&self, page: PageId) -> &Entry {
        debug_assert!((page.0 as usize) < self.entries.len());
        // SAFETY: every entry is there from the beginning. Guards are made only by methods that have found the page's entry with `entry_of`
        // or `get`, and whoever else calls this has the page from one of them, or a number below that of the entries.
        unsafe { self.entries.get_unchecked(page.0 as usize) }
    }

    /// The entry of a page id that may be anything.
    pub(super) fn entry_of(&self, page: PageId) -> Option<&Entry> {
        self.entries.get(page.0 as usize)
    }

    /// The memory of a page that has an entry.
    #[inline]
    pub(super) fn words(&self, page: PageId) -> &[AtomicU64] {
        let start = (page.0 as usize) << self.word_shift;
        debug_assert!((page.0 as usize) < self.entries.len());
        // SAFETY: as in `entry`; and there are `words per page` words for every entry (see `reserve`).
        unsafe { self.words.get_unchecked(start..start + (1 << self.word_shift)) }
    }

    /// Looks at a page without holding it. When the page is in memory: one load and no store.
    ///
    /// # Errors
    /// `Corruption` if there is no such page. A caller that read the id optimistically uses
    /// [`OptimisticGuard::child`], which tells that from a torn id. Otherwise see [`Pool::exclusive`].
    #[inline]
    pub fn optimistic(&self, page: PageId) -> Result<OptimisticGuard<'_>> {
        self.prefetch_head(page);
        match self.entries.get(page.0 as usize).and_then(|entry| entry.latch.begin_read()) {
            Some(version) => Ok(OptimisticGuard::new(self, page, version)),
            None => self.optimistic_slow(page),
        }
    }

    /// Has the processor fetch the first lines of a page (header and slots of a node) while its latch is looked at: a
    /// search in a page that is in no cache would otherwise wait for them one after the other.
    #[inline]
    fn prefetch_head(&self, page: PageId) {
        #[cfg(all(target_arch = "x86_64", not(any(miri, loom, feature = "shuttle"))))]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let start = (page.0 as usize) << self.word_shift;
            for line in 0..PREFETCH_LINES {
                if let Some(word) = self.words.get(start + line * WORDS_PER_LINE) {
                    // SAFETY: a prefetch has no effect on the program's state, and the address is inside the region.
                    unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(word).cast()) };
                }
            }
        }
        #[cfg(not(all(target_arch = "x86_64", not(any(miri, loom, feature = "shuttle")))))]
        let _ = page;
    }

    #[cold]
    fn optimistic_slow(&self, page: PageId) -> Result<OptimisticGuard<'_>> {
        self.turns.come_to(page);
        let version = self.wait_for(page, Latch::begin_read_slow)?;
        Ok(OptimisticGuard::new(self, page, version))
    }

    /// Looks at a page again if it has not changed since it had `version`. Never waits and never faults.
    ///
    /// # Errors
    /// It has changed, is being changed, or is not in memory.
    #[inline]
    pub fn optimistic_at(&self, page: PageId, version: Version) -> Result<OptimisticGuard<'_>, Restart> {
        match self.entries.get(page.0 as usize).and_then(|entry| entry.latch.begin_read()) {
            Some(now) if now == version => Ok(OptimisticGuard::new(self, page, version)),
            _ => Err(Restart),
        }
    }

    /// Waits until no writer holds the page, and keeps writers out.
    ///
    /// # Errors
    /// As [`Pool::exclusive`].
    pub fn shared(&self, page: PageId) -> Result<SharedGuard<'_>> {
        self.wait_for(page, Latch::try_shared)?;
        Ok(SharedGuard::new(self, page))
    }

    /// As [`Pool::shared`], for a page that may be freed or leave memory at any moment; `None` if it did.
    ///
    /// # Errors
    /// `Corruption` if there was never such a page.
    pub fn shared_if_resident(&self, page: PageId) -> Result<Option<SharedGuard<'_>>> {
        let latched = self.wait_for(page, |latch| match latch.try_shared() {
            Ok(_) => Ok(true),
            Err(Obstacle::Free | Obstacle::Evicted) => Ok(false),
            Err(obstacle) => Err(obstacle),
        })?;
        Ok(latched.then(|| SharedGuard::new(self, page)))
    }

    /// Waits until nobody holds the page, and holds it alone. Whoever holds other latches takes them top-down and left to
    /// right, or uses [`Pool::try_exclusive`].
    ///
    /// # Errors
    /// `Corruption` if there is no such page, `OutOfMemory` if it does not fit in memory, or the
    /// [`PageSource`]'s.
    pub fn exclusive(&self, page: PageId) -> Result<ExclusiveGuard<'_>> {
        self.wait_for(page, Latch::try_exclusive)?;
        Ok(ExclusiveGuard::new(self, page))
    }

    /// Holds the page alone if nobody holds it now. Does not wait for a latch, but may read the page from the store.
    ///
    /// # Errors
    /// [`Interrupt::Restart`] if it is latched; otherwise as [`Pool::exclusive`].
    pub fn try_exclusive(&self, page: PageId) -> Result<ExclusiveGuard<'_>, Interrupt> {
        match self.attempt(page, Latch::try_exclusive)? {
            Some(_) => Ok(ExclusiveGuard::new(self, page)),
            None => Err(Interrupt::Restart),
        }
    }

    /// Repeats `attempt` on the page's latch until it succeeds, bringing the page in when it has to.
    fn wait_for<T>(&self, page: PageId, attempt: impl Fn(&Latch) -> Result<T, Obstacle>) -> Result<T> {
        let mut wait = LatchWait::default();
        loop {
            match self.attempt(page, &attempt)? {
                Some(got) => return Ok(got),
                None => wait.pause(),
            }
        }
    }

    /// One try, and another if the page had to be brought in; `None` means that somebody else has the latch.
    fn attempt<T>(&self, page: PageId, attempt: impl Fn(&Latch) -> Result<T, Obstacle>) -> Result<Option<T>> {
        let Some(entry) = self.entries.get(page.0 as usize) else { return Err(no_such_page(page)) };
        for _ in 0..2 {
            match attempt(&entry.latch) {
                Ok(got) => return Ok(Some(got)),
                Err(Obstacle::Busy) => return Ok(None),
                Err(Obstacle::Free) => return Err(no_such_page(page)),
                Err(Obstacle::Evicted) => self.fault(page, entry)?,
            }
        }
        Ok(None)
    }

    /// Brings an evicted page into memory, unless somebody else is doing it.
    #[cold]
    fn fault(&self, page: PageId, entry: &Entry) -> Result<()> {
        if !entry.latch.claim_evicted() {
            return Ok(());
        }
        let mut claim = FaultClaim { pool: self, entry, has_memory: false, outcome: State::Evicted };
        self.take_memory()?;
        claim.has_memory = true;
        let own_stamps = entry.flags() & STAMPED_IMAGE != 0;
        self.read_image(page, own_stamps)?;
        super::budget::count_fault();
        self.set_flags(entry, if own_stamps { STAMPED | STAMPED_IMAGE } else { 0 });
        claim.outcome = State::Unlocked;
        Ok(())
    }

    /// Fills the memory of a page whose latch the caller has claimed.
    fn read_image(&self, page: PageId, own_stamps: bool) -> Result<()> {
        let pooled = self.fault_buffers.lock().pop();
        let mut buffer = pooled.unwrap_or_else(|| AlignedBuffer::zeroed(self.page_bytes()));
        let image = &mut buffer[..self.page_bytes()];
        let done = self.source.read_page(page, own_stamps, image);
        if done.is_ok() {
            PageBytesMut::new(self.words(page)).copy_from(0, image);
        }
        self.fault_buffers.lock().push(buffer);
        done
    }

    /// A new page of zeros, dirty, born in the current round, held exclusively.
    ///
    /// # Errors
    /// `OutOfMemory` if the budget is used up; `OutOfSpace`, see [`Pool::reserve`].
    pub fn allocate(&self) -> Result<ExclusiveGuard<'_>> {
        self.allocate_behind(None)
    }

    /// As [`Pool::allocate`]; a page that goes on where the page `before`, if any, ended lies beside it in the store, if possible.
    ///
    /// # Errors
    /// As [`Pool::allocate`].
    pub fn allocate_behind(&self, before: Option<PageId>) -> Result<ExclusiveGuard<'_>> {
        self.reserve(ReservedFor::NewPage)?;
        let recycled = self.free.lock().take_recycled(before);
        let page = match recycled {
            Some(page) => page,
            None => {
                self.take_memory()?;
                self.cold_id(before).inspect_err(|_| self.give_memory(1))?
            }
        };
        let entry = self.entry(page);
        let claimed = entry.latch.claim_free();
        assert!(claimed, "{page} was on the free list but is in use");
        let mut guard = ExclusiveGuard::new(self, page);
        // Cold pages need it too where memory is not given back (see `Region::discard`).
        guard.bytes_mut().fill(0, self.page_bytes(), 0);
        self.set_flags(entry, DIRTY | STAMPED | NEW);
        guard.set_imaged(self.round());
        Ok(guard)
    }

    /// An id without memory.
    fn cold_id(&self, before: Option<PageId>) -> Result<PageId> {
        let mut free = self.free.lock();
        if let Some(page) = free.take_cold(before) {
            return Ok(page);
        }
        let first = self.page_count.load(Ordering::Relaxed);
        let end = (first + free.wanted(before)).min(self.entries.len() as u64);
        if first >= end {
            return Err(self.out_of_memory("all page ids are in use"));
        }
        self.set_page_count(end);
        if (first..end).contains(&self.resident_max) {
            self.use_sparsely();
        }
        Ok(free.add(before, first, end))
    }

    /// Gives a page back; its id can be used again at once. The source is told that its image, if any, is not needed.
    pub fn free(&self, guard: ExclusiveGuard<'_>) {
        assert!(std::ptr::eq(guard.pool(), self), "the page is of another pool");
        self.source.freed(guard.page_id(), guard.round());
        let entry = self.entry(guard.page_id());
        self.set_flags(entry, 0);
        super::ids::count_free(entry);
        let page = guard.release_free();
        self.free.lock().recycled.push(page);
        // Its memory is for whoever waits for some.
        self.budget_grew();
    }

    /// Whether the id is a page. Can change at once unless the caller holds a latch.
    #[must_use]
    pub fn is_allocated(&self, page: PageId) -> bool {
        self.entries.get(page.0 as usize).is_some_and(|entry| entry.latch.state() != State::Free)
    }

    /// Whether the page is in memory, now.
    #[must_use]
    pub fn is_resident(&self, page: PageId) -> bool {
        self.entries.get(page.0 as usize).is_some_and(|entry| {
            let state = entry.latch.state();
            state != State::Free && state != State::Evicted
        })
    }

    /// The current checkpoint round; 0 before the first.
    #[must_use]
    pub fn round(&self) -> u32 {
        self.round.load(Ordering::SeqCst)
    }

    /// Begins the next round. `begun` is told the number before any thread can see it.
    ///
    /// A page is born in the current round. A structure change gives it the round of the page that it was split from
    /// ([`ExclusiveGuard::set_imaged`]), because the round may change between the two.
    ///
    /// # Errors
    /// Those of `begun`: then no round begins.
    pub fn begin_round<T>(&self, begun: impl FnOnce(u32) -> Result<T>) -> Result<T> {
        let result = begun(self.round.load(Ordering::SeqCst) + 1)?;
        self.round.fetch_add(1, Ordering::SeqCst);
        Ok(result)
    }

    /// The round in which the page was last imaged or born; 0 if neither happened since the database was opened.
    #[must_use]
    pub fn round_of(&self, page: PageId) -> u32 {
        self.entries.get(page.0 as usize).map_or(0, Entry::round)
    }

    /// The page has been imaged in `round`. The caller holds its latch.
    pub fn set_imaged(&self, page: PageId, round: u32) {
        if let Some(entry) = self.entries.get(page.0 as usize) {
            entry.set_round(round);
        }
    }
}

/// Reserves the tables; less than wished for if the address space is limited, but never less than fits in memory.
fn reserve(page_bytes: usize, resident_max: u64) -> Result<(Region<Entry>, Region<AtomicU64>)> {
    let least = resident_max + 1;
    let mut wish =
        resident_max.saturating_mul(RESERVATION_FACTOR).min(RESERVATION_BYTES_MAX / page_bytes as u64);
    if !cfg!(any(loom, miri, feature = "shuttle")) {
        wish = wish.max(RESERVATION_BYTES / page_bytes as u64);
    }
    let mut pages = wish.max(least) as usize;
    loop {
        let words = pages.saturating_mul(page_bytes / size_of::<u64>());
        let reserved = Region::new(pages).and_then(|entries| Ok((entries, Region::new(words)?)));
        match reserved {
            Ok(regions) => return Ok(regions),
            Err(error) if pages as u64 == least => return Err(error.at(Location::Setting("memory_bytes"))),
            Err(_) => pages = (pages / 2).max(least as usize),
        }
    }
}

#[cold]
fn no_such_page(page: PageId) -> Error {
    Error::corruption(format!("{page} is referred to but does not exist"))
}

/// An evicted page that is being brought in; goes back to Evicted unless that succeeds, also if the source panics.
pub(super) struct FaultClaim<'p> {
    pool: &'p Pool,
    pub(super) entry: &'p Entry,
    /// Counted in [`Pool::resident_pages`].
    has_memory: bool,
    outcome: State,
}

impl<'p> FaultClaim<'p> {
    /// The page of `entry` has been claimed, and memory been taken for it.
    pub(super) fn new(pool: &'p Pool, entry: &'p Entry) -> FaultClaim<'p> {
        FaultClaim { pool, entry, has_memory: true, outcome: State::Evicted }
    }

    /// The page is there.
    pub(super) fn succeed(&mut self) {
        self.outcome = State::Unlocked;
    }
}

impl Drop for FaultClaim<'_> {
    fn drop(&mut self) {
        if self.outcome == State::Unlocked {
            self.entry.latch.release(true);
            return;
        }
        if self.has_memory {
            self.pool.give_memory(1);
        }
        self.entry.latch.release_to(State::Evicted);
    }
}
