//! The budget: which pages may have memory, and what to do when there is none left.
//!
//! One budget covers pages and everything else, which is charged to the pool's [`Account`](crate::base::Account). What the others
//! take, pages do not get; when they grow, pages leave.

use super::pool::{Entry, Pool};
use crate::base::{Error, ErrorKind, Location, PageId, Result, allocation_failure};
use crate::sync::atomic::Ordering;
use std::cell::Cell;

/// What the store keeps in memory for a page, at most: a reference in each of three tables, and how full its block is.
const STORE_TABLE_BYTES: u64 = 3 * 8 + 3;

/// A place in a list of free ids, which grows by doubling.
const FREE_ID_BYTES: u64 = 2 * size_of::<PageId>() as u64;

/// Below this a pool gains little from huge pages, and would take 2 MiB for its first page.
const HUGE_PAGES_FROM_BYTES: u64 = 64 << 20;

/// Pages that are never denied: a few threads that split and merge.
const RESIDENT_PAGES_MIN: u64 = 12;

/// Pages that may have memory beyond the budget for what adds no page that has to stay.
const OVERDRAFT_PAGES: u64 = 16;

thread_local! {
    /// Pages that this thread has brought in.
    static FAULTS: Cell<u64> = const { Cell::new(0) };
    /// Whether this thread may go beyond the budget.
    static OVERDRAFT: Cell<bool> = const { Cell::new(false) };
}

/// The calling thread may go beyond the budget, by few pages, until this is dropped: for work that frees memory or is over soon.
#[derive(Debug)]
pub struct Overdraft {
    before: bool,
}

impl Overdraft {
    /// From now on.
    #[must_use]
    pub fn begin() -> Overdraft {
        Overdraft { before: OVERDRAFT.replace(true) }
    }

    /// Whether the calling thread has one.
    #[must_use]
    pub fn is_there() -> bool {
        OVERDRAFT.get()
    }
}

impl Drop for Overdraft {
    fn drop(&mut self) {
        OVERDRAFT.set(self.before);
    }
}

pub(super) fn count_fault() {
    FAULTS.set(FAULTS.get() + 1);
}

impl Pool {
    /// Pages that the calling thread has brought in so far, into any pool.
    #[must_use]
    pub fn faults_of_thread() -> u64 {
        FAULTS.get()
    }

    /// Counts one more page with memory. At the budget's end it takes memory away from a free page, or waits until a page has
    /// been evicted. The caller may hold latches: who evicts waits for none.
    pub(super) fn take_memory(&self) -> Result<()> {
        if !Overdraft::is_there() && allocation_failure::is_injected() {
            return Err(self.out_of_memory("no memory for a page"));
        }
        if self.take_memory_now() {
            return Ok(());
        }
        self.eviction
            .wait(&self.turns, || {
                self.count_one_more(self.resident_pages_max()).is_ok() || self.reuse_free_page()
            })
            .then_some(())
            .ok_or_else(|| {
                self.why_no_memory("all memory for pages is in use by changes that are not committed")
            })
    }

    /// The same without waiting; false if there is none.
    pub(super) fn take_memory_now(&self) -> bool {
        let max = self.resident_pages_max();
        let counted = self.count_one_more(max);
        let taken = counted.is_ok() || self.reuse_free_page();
        if !taken || counted.is_ok_and(|before| before + 1 >= self.eviction_begins_at(max)) {
            self.eviction.want();
        }
        taken
    }

    fn count_one_more(&self, max: u64) -> Result<u64, u64> {
        let max = match Overdraft::is_there() {
            true => max + OVERDRAFT_PAGES,
            // The last one is for whose turn it is.
            false => max - u64::from(self.turns.is_of_another()),
        };
        let one_more = |resident| (resident < max).then_some(resident + 1);
        self.resident.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
    }

    /// Takes the memory of a free page away; it stays counted, for the caller.
    fn reuse_free_page(&self) -> bool {
        let Some(page) = self.free.lock().recycled.pop() else { return false };
        self.discard(std::iter::once(page));
        self.free.lock().cold.push(page);
        true
    }

    /// Huge pages for the ids that fit in memory. As long as all do, and none has given its memory back, pages alone do not exceed the budget by
    /// more than one step. (What is taken by a huge page of which few pages were used is not counted: versions beside it may be too many then.)
    pub(super) fn advise_huge(&self) {
        if self.memory_bytes >= HUGE_PAGES_FROM_BYTES {
            let pages = self.resident_max as usize + 1;
            self.words.advise_huge(pages << self.word_shift, true);
            self.entries.advise_huge(pages, true);
        }
    }

    /// From now on memory is used with gaps, for good: no more huge pages anywhere. The system would put one where a few pages are in use
    /// (`khugepaged`), and so fill the gaps with memory that nobody has counted.
    pub(super) fn use_sparsely(&self) {
        if !self.is_sparse.swap(true, Ordering::Relaxed) {
            self.words.advise_huge(self.words.len(), false);
            self.entries.advise_huge(self.entries.len(), false);
        }
    }

    /// Gives the memory of pages back to the system. The caller holds them exclusively, or their ids.
    pub(super) fn discard(&self, pages: impl Iterator<Item = PageId>) {
        self.use_sparsely();
        self.words.discard(pages.map(|page| {
            let start = (page.0 as usize) << self.word_shift;
            start..start + (1 << self.word_shift)
        }));
    }

    /// So many pages less have memory: who waits for some looks again.
    pub(super) fn give_memory(&self, pages: u64) {
        self.resident.fetch_sub(pages, Ordering::Relaxed);
        self.budget_grew();
    }

    /// Pages that may have memory now: what is left of the budget.
    #[must_use]
    pub fn resident_pages_max(&self) -> u64 {
        let others = self.account.bytes() + self.table_bytes();
        let left = self.memory_bytes.saturating_sub(others) / self.page_bytes() as u64;
        // However much the others take, a few pages are needed to get anything done.
        left.max(self.resident_max / 32).max(self.resident_max.min(RESIDENT_PAGES_MIN))
    }

    /// Memory that the tables with an entry for every page id take, in memory or not.
    fn table_bytes(&self) -> u64 {
        self.page_count() * (size_of::<Entry>() as u64 + FREE_ID_BYTES + STORE_TABLE_BYTES)
    }

    /// Takes the memory of at most `most` free pages away; returns of how many.
    pub fn discard_free_pages(&self, most: u64) -> u64 {
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
        self.give_memory(count);
        count
    }

    /// For a descent that never arrives, because the pages that it needs push each other out.
    #[must_use]
    pub fn too_few_pages(&self) -> Error {
        self.why_no_memory("too few pages fit in memory beside those with changes that are not committed")
    }

    pub(super) fn out_of_memory(&self, what: &str) -> Error {
        let limit = self.memory_bytes;
        Error::new(ErrorKind::OutOfMemory, format!("{what}: `memory_bytes` is {limit}"))
            .at(Location::Setting("memory_bytes"))
    }
}

#[cfg(all(test, target_os = "linux", not(any(loom, miri, feature = "shuttle"))))]
mod tests {
    use super::*;
    use crate::buffer::test_sources::{Images, PAGE_BYTES};
    use std::sync::Arc;

    /// What the system has been told about the memory at `address`, in its two-letter words.
    fn advice_at(address: usize) -> Option<String> {
        let maps = std::fs::read_to_string("/proc/self/smaps").ok()?;
        let mut inside = false;
        for line in maps.lines() {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let bound = |hex| usize::from_str_radix(hex, 16).ok();
            if let Some((Some(start), Some(end))) = range.map(|(start, end)| (bound(start), bound(end))) {
                inside = (start..end).contains(&address);
            } else if inside && let Some(flags) = line.strip_prefix("VmFlags: ") {
                return Some(format!(" {flags} "));
            }
        }
        None
    }

    /// All page ids fitted in memory, so huge pages stayed advised while pages left: the system put what had been given back into huge pages
    /// again, a fifth more than the budget.
    #[test]
    fn no_huge_page_is_asked_for_once_a_page_has_given_its_memory_back() {
        let pool =
            Pool::new(PAGE_BYTES, HUGE_PAGES_FROM_BYTES, Arc::new(Images::default())).expect("address space");
        let page = pool.allocate().expect("room");
        let address = pool.words.as_ptr().addr();
        match advice_at(address) {
            Some(advice) if advice.contains(" hg ") => {}
            advice => {
                println!("not tested: the system has no huge pages, or does not tell ({advice:?})");
                return;
            }
        }
        pool.free(page);
        assert_eq!(pool.discard_free_pages(1), 1);
        let advice = advice_at(address).expect("it was told before");
        assert!(!advice.contains(" hg "), "{advice}");
    }
}
