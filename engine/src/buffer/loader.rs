//! Bringing evicted pages into memory: one that is needed now, or many at once.

use super::bytes::PageBytesMut;
use super::frames::{DIRTY, Entry, NEW, STAMPED, STAMPED_IMAGE};
use super::latch::State;
use super::memory::PageMemory;
use super::source::PageSource;
use crate::base::metrics::Counter;
use crate::base::{PageId, Result};
use crate::device::AlignedBuffer;
use crate::store::ReservedFor;
use crate::sync::Mutex;
use std::cell::Cell;
use std::sync::Arc;

/// Pages of one batch, at most.
pub(super) const BATCH_MAX: usize = 256;

/// The part of memory that one batch of a prefetch claims at once: less than eviction keeps free.
const PREFETCHED_PART: usize = 64;

thread_local! {
    /// Pages that this thread has brought in.
    static FAULTS: Cell<u64> = const { Cell::new(0) };
    /// Descents of this thread.
    static DESCENTS: Cell<u64> = const { Cell::new(0) };
}

/// Of so many descents of a thread one is counted, for all of them.
const COUNTED_OF: u64 = 64;

/// Pages that the calling thread has brought in so far, one at a time, into any pool.
pub(super) fn faults_of_thread() -> u64 {
    FAULTS.get()
}

/// When a batch waits for memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AtLimit {
    /// Always. For one thread only, which claims at most an eighth of the memory.
    Wait,
    /// Only for the first page, when no page is claimed yet.
    WaitForFirst,
}

/// The source of images, and buffers to read them into.
pub(super) struct Loader {
    pub(super) source: Arc<dyn PageSource>,
    /// Buffers for images; as many as there were ever faults at once.
    buffers: Mutex<Vec<AlignedBuffer>>,
    /// Pages that were not in memory when a thread needed one.
    pub(super) faults: Counter,
    /// Pages that descents have visited, about.
    pub(super) visits: Counter,
}

impl Loader {
    pub(super) fn new(source: Arc<dyn PageSource>) -> Loader {
        Loader { source, buffers: Mutex::default(), faults: Counter::default(), visits: Counter::default() }
    }

    /// Counts the pages of a descent.
    #[inline]
    pub(super) fn visited(&self, pages: u64) {
        let descents = DESCENTS.get() + 1;
        DESCENTS.set(descents);
        if descents.is_multiple_of(COUNTED_OF) {
            self.visits.add(pages * COUNTED_OF);
        }
    }

    /// Brings an evicted page into memory, unless another thread is doing that.
    #[cold]
    pub(super) fn fault(&self, memory: &PageMemory, page: PageId, entry: &Entry) -> Result<()> {
        if !entry.latch.claim_evicted() {
            return Ok(());
        }
        let mut claim = FaultClaim { memory, entry, has_memory: false, outcome: State::Evicted };
        memory.take()?;
        claim.has_memory = true;
        let own_stamps = entry.flags() & STAMPED_IMAGE != 0;
        self.reserve_adopted(page)?;
        self.read_image(memory, page, own_stamps)?;
        FAULTS.set(FAULTS.get() + 1);
        self.faults.add(1);
        claim.succeed(own_stamps, self.source.take_adopted(page));
        Ok(())
    }

    /// Makes sure that a page which will be dirty once it is in memory finds space.
    fn reserve_adopted(&self, page: PageId) -> Result<()> {
        match self.source.is_adopted(page) {
            true => self.source.reserve(ReservedFor::NewPage),
            false => Ok(()),
        }
    }

    /// Fills the memory of a page whose latch the caller has claimed.
    fn read_image(&self, memory: &PageMemory, page: PageId, own_stamps: bool) -> Result<()> {
        let page_bytes = memory.frames.page_bytes();
        let pooled = self.buffers.lock().pop();
        let mut buffer = pooled.unwrap_or_else(|| AlignedBuffer::zeroed(page_bytes));
        let image = &mut buffer[..page_bytes];
        let done = self.source.read_page(page, own_stamps, image);
        if done.is_ok() {
            PageBytesMut::new(memory.frames.words(page)).copy_from(0, image);
        }
        self.buffers.lock().push(buffer);
        done
    }

    /// Brings in `pages`, as many at once as find memory. Waits for memory before each batch: the
    /// thread that needs the pages would wait otherwise, and then read one alone.
    pub(super) fn load_all(&self, memory: &PageMemory, pages: &[PageId]) {
        let most = BATCH_MAX.min(memory.resident_pages_max() as usize / PREFETCHED_PART).max(1);
        let mut left = pages;
        while !left.is_empty() {
            match self.load_batch(memory, &left[..left.len().min(most)], AtLimit::WaitForFirst) {
                0 => return,
                done => left = &left[done..],
            }
        }
    }

    /// Brings in those of `pages` that no other thread is bringing in. Returns how many pages it
    /// looked at before memory was used up, 0 if there was no memory at all. A page that cannot be
    /// read stays evicted; the thread that needs it gets the error.
    pub(super) fn load_batch(&self, memory: &PageMemory, pages: &[PageId], at_limit: AtLimit) -> usize {
        let (mut claims, done) = claim_all(memory, pages, at_limit);
        let wanted: Vec<(PageId, bool)> =
            claims.iter().map(|(page, claim)| (*page, claim.entry.flags() & STAMPED_IMAGE != 0)).collect();
        self.source.read_pages(&wanted, &mut |index, image| {
            let (page, claim) = &mut claims[index];
            match image.and_then(|image| self.reserve_adopted(*page).map(|()| image)) {
                Ok(image) => {
                    debug_assert_eq!(
                        image.len(),
                        memory.frames.page_bytes(),
                        "an image is as long as a page"
                    );
                    PageBytesMut::new(memory.frames.words(*page)).copy_from(0, image);
                    claim.succeed(wanted[index].1, self.source.take_adopted(*page));
                }
                Err(error) => tracing::debug!(%error, %page, "not read ahead"),
            }
        });
        done
    }
}

/// Claims the evicted ones of `pages` and takes memory for them. Returns the claims, and how many
/// pages it looked at.
fn claim_all<'p>(
    memory: &'p PageMemory,
    pages: &[PageId],
    at_limit: AtLimit,
) -> (Vec<(PageId, FaultClaim<'p>)>, usize) {
    let mut claims = Vec::with_capacity(pages.len());
    for (index, page) in pages.iter().enumerate() {
        let Some(entry) = memory.frames.entry_of(*page) else { continue };
        if entry.latch.state() != State::Evicted {
            continue;
        }
        let may_wait = at_limit == AtLimit::Wait || at_limit == AtLimit::WaitForFirst && claims.is_empty();
        let has_memory = if may_wait { memory.take().is_ok() } else { memory.take_now() };
        if !has_memory {
            // Threads that need the claimed pages wait for them, so these are read now. Without any
            // the batch gives up.
            let done = if claims.is_empty() { 0 } else { index };
            return (claims, done);
        }
        if entry.latch.claim_evicted() {
            claims.push((*page, FaultClaim { memory, entry, has_memory: true, outcome: State::Evicted }));
        } else {
            memory.give(1);
        }
    }
    (claims, pages.len())
}

/// An evicted page that is being brought in. It returns to Evicted unless that succeeds, also if
/// the source panics.
struct FaultClaim<'p> {
    memory: &'p PageMemory,
    entry: &'p Entry,
    /// Counted in [`PageMemory::resident_pages`].
    has_memory: bool,
    outcome: State,
}

impl FaultClaim<'_> {
    /// Notes that the page's memory is filled. `adopted`: from another store, and whether this
    /// store has an older image.
    fn succeed(&mut self, own_stamps: bool, adopted: Option<bool>) {
        debug_assert!(self.has_memory, "a page in memory is counted");
        debug_assert!(!self.entry.is_dirty(), "an evicted page equals its newest image");
        let flags = match adopted {
            None if own_stamps => STAMPED | STAMPED_IMAGE,
            None => 0,
            Some(true) => DIRTY,
            Some(false) => DIRTY | NEW,
        };
        self.memory.frames.set_flags(self.entry, flags);
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
            self.memory.give(1);
        }
        self.entry.latch.release_to(State::Evicted);
    }
}
