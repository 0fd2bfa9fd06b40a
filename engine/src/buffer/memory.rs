//! Memory for pages: the budget, and what a thread does at its end.
//!
//! One budget covers pages and everything else, which is charged to the pool's [`Account`]. Pages
//! get what the others leave; when the others grow, pages leave memory.
//!
//! Invariant: `resident` counts the pages that may have memory, that is, pages in memory and free
//! ids that still have some. It does not exceed the budget, unless the budget has just become
//! smaller.

use super::eviction::Eviction;
use super::fairness::{Fairness, FairnessTicket};
use super::frames::FrameTable;
use crate::base::{Account, Error, PageId, Result, allocation_failure};
use crate::sync::atomic::{AtomicU64, Ordering};
use std::cell::Cell;
use std::sync::Arc;

/// Pages that always get memory: enough for a few threads that split and merge.
const RESIDENT_PAGES_MIN: u64 = 12;

/// Pages that the emergency reserve allows beyond the budget.
const EMERGENCY_PAGES: u64 = 16;

/// Eviction begins when less than this part of the budget is left, and continues until twice that
/// is.
const HEADROOM: u64 = 32;

thread_local! {
    /// Whether this thread may exceed the budget.
    static EMERGENCY: Cell<bool> = const { Cell::new(false) };
}

/// Lets the calling thread exceed the budget by a few pages until it is dropped: for work that
/// frees memory or is over soon.
#[derive(Debug)]
pub struct EmergencyReserve {
    before: bool,
}

impl EmergencyReserve {
    /// Opens the reserve for the calling thread.
    #[must_use]
    pub fn begin() -> EmergencyReserve {
        EmergencyReserve { before: EMERGENCY.replace(true) }
    }

    /// Returns whether the calling thread may use the reserve.
    #[must_use]
    pub fn is_active() -> bool {
        EMERGENCY.get()
    }
}

impl Drop for EmergencyReserve {
    fn drop(&mut self) {
        debug_assert!(EMERGENCY.get(), "reserves end in the opposite order of their beginning");
        EMERGENCY.set(self.before);
    }
}

/// The frames of a pool, and which of them may have memory.
pub struct PageMemory {
    pub(super) frames: FrameTable,
    /// See the invariant.
    resident: AtomicU64,
    /// Memory of the same budget that is not for pages.
    account: Arc<Account>,
    pub(super) fairness: Fairness,
    pub(super) eviction: Eviction,
}

impl PageMemory {
    pub(super) fn new(frames: FrameTable) -> PageMemory {
        PageMemory {
            frames,
            resident: AtomicU64::new(0),
            account: Arc::default(),
            fairness: Fairness::default(),
            eviction: Eviction::default(),
        }
    }

    /// The account to which all other memory of the same budget is charged.
    #[must_use]
    pub fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// Counts one more page with memory. At the end of the budget it takes the memory of a free
    /// page, or waits until a page has been evicted. The caller may hold latches: the evictor waits
    /// for none.
    pub(super) fn take(&self) -> Result<()> {
        if !EmergencyReserve::is_active() && allocation_failure::is_injected() {
            return Err(self.frames.out_of_memory("no memory for a page"));
        }
        if self.take_now() {
            return Ok(());
        }
        let got = || self.count_one_more(self.resident_pages_max()).is_ok() || self.reuse_free_page();
        if self.eviction.wait(&self.fairness, got) {
            return Ok(());
        }
        Err(self.refusal("all memory for pages is in use by changes that are not committed"))
    }

    /// Counts one more page with memory as [`PageMemory::take`], without waiting. Returns false if
    /// there is no memory.
    pub(super) fn take_now(&self) -> bool {
        let max = self.resident_pages_max();
        let counted = self.count_one_more(max);
        let taken = counted.is_ok() || self.reuse_free_page();
        if !taken || counted.is_ok_and(|before| before + 1 >= eviction_begins_at(max)) {
            self.eviction.want();
        }
        taken
    }

    fn count_one_more(&self, max: u64) -> Result<u64, u64> {
        let max = match EmergencyReserve::is_active() {
            true => max + EMERGENCY_PAGES,
            // The last frame is for the holder of the fairness ticket.
            false => max - u64::from(self.fairness.is_held_by_another()),
        };
        let one_more = |resident| (resident < max).then_some(resident + 1);
        self.resident.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
    }

    /// Takes the memory of a free page away. The page stays counted, for the caller.
    fn reuse_free_page(&self) -> bool {
        self.frames.discard_free(1) == 1
    }

    /// Counts that `pages` pages no longer have memory, and wakes threads that wait for some.
    pub(super) fn give(&self, pages: u64) {
        let before = self.resident.fetch_sub(pages, Ordering::Relaxed);
        debug_assert!(before >= pages, "each page with memory is counted");
        self.eviction.budget_grew();
    }

    /// Pages that take memory now, free ones that still have some included.
    #[must_use]
    pub fn resident_pages(&self) -> u64 {
        self.resident.load(Ordering::Relaxed)
    }

    /// Pages that may have memory now: the rest of the budget.
    #[must_use]
    pub fn resident_pages_max(&self) -> u64 {
        let frames = &self.frames;
        let others = self.account.bytes() + frames.table_bytes();
        let left = frames.memory_bytes().saturating_sub(others) / frames.page_bytes() as u64;
        // However much the others take, no work is possible without a few pages.
        left.max(frames.frames_max() / 32).max(frames.frames_max().min(RESIDENT_PAGES_MIN))
    }

    /// Pages that should leave memory now, 0 if there is enough.
    #[must_use]
    pub fn pages_to_evict(&self) -> u64 {
        let max = self.resident_pages_max();
        self.resident_pages().saturating_sub(max - (2 * max / HEADROOM).max(2).min(max))
    }

    /// Returns whether more pages have memory than the budget allows, because other memory has
    /// grown.
    #[must_use]
    pub fn is_over_budget(&self) -> bool {
        self.resident_pages() > self.resident_pages_max()
    }

    /// Asks for pages to leave if more have memory than the budget allows. For callers that have
    /// charged other memory.
    pub fn check_budget(&self) {
        let max = self.resident_pages_max();
        if self.resident_pages() >= eviction_begins_at(max) {
            self.eviction.want();
        }
    }

    /// Gives back the memory of at most `most` free pages. Returns of how many.
    pub fn discard_free_pages(&self, most: u64) -> u64 {
        let count = self.frames.discard_free(most);
        if count > 0 {
            self.give(count);
        }
        count
    }

    /// Waits for the fairness ticket. Returns `None` if the calling thread holds it already, or the
    /// queue does not move.
    #[must_use]
    pub fn take_ticket(&self) -> Option<FairnessTicket<'_>> {
        self.fairness.take_ticket(&self.eviction.freed)
    }

    /// Moves the hand over at most `steps` pages and appends candidates for eviction, at most
    /// `most`. Returns how many pages it passed; a pass in which every page had its second chance
    /// is twice [`FrameTable::page_count`].
    pub fn next_candidates(&self, most: usize, steps: u64, candidates: &mut Vec<PageId>) -> u64 {
        self.eviction.next_candidates(&self.frames, &self.fairness, most, steps, candidates)
    }

    /// Returns the error for a descent that never arrives, because the pages that it needs push
    /// each other out.
    #[must_use]
    pub fn too_few_pages(&self) -> Error {
        self.refusal("too few pages fit in memory beside those with changes that are not committed")
    }

    /// Returns why a thread that waited for memory got none: the error that kept pages from being
    /// written, or `otherwise`.
    fn refusal(&self, otherwise: &str) -> Error {
        self.eviction.error().unwrap_or_else(|| self.frames.out_of_memory(otherwise))
    }
}

/// Pages with memory at which eviction begins.
fn eviction_begins_at(max: u64) -> u64 {
    max - (max / HEADROOM).max(1)
}

#[cfg(all(test, target_os = "linux", not(any(loom, miri, feature = "shuttle"))))]
mod tests;
