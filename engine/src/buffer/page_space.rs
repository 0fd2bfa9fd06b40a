//! Address space for page ids: an entry and page memory for each id, which an id reaches without a
//! table.
//!
//! ```text
//!   ids      0 .. first         first .. + unit      .. + 2 unit      .. + 4 unit
//!           +------------------+--------------------+----------------+-------------
//!   extent   0, at open         1, when ids run out   2                3
//! ```
//!
//! 1. An extent keeps its addresses until the space is dropped, because readers hold no latch.
//! 2. Extent 0 has an id for every page that fits in memory, and as many as tables with an entry
//!    for each id can have in that memory. So a database needs another extent only if such tables
//!    exceed its memory. An id of extent 0 costs one comparison.
//! 3. Extents are reserved, not allocated: the system gives memory on first touch. Many databases
//!    with little memory fit in one process, also where its address space is limited.

use super::region::{Region, ZeroIsDefault};
use crate::base::{Error, ErrorKind, PageId, Result};
use crate::sync::atomic::AtomicU64;
use std::sync::OnceLock;

/// Bytes that the tables with an entry for each page id take for an id, about: what they can have
/// of the memory bounds the ids of extent 0.
const TABLE_BYTES: u64 = 64;
/// Page memory of extent 0, at most, unless more fits in memory: an eighth of a process's space.
const FIRST_BYTES_MAX: u64 = 1 << 44;
/// Part of a limited address space (`ulimit -v`) that page memory of extent 0 may take: threads and
/// the allocator need much of it, too.
const LIMITED_PART: u64 = 8;
/// Extents besides extent 0. Each doubles the ids, so that the address space ends first.
const EXTENTS: usize = 40;

struct Extent<E> {
    entries: Region<E>,
    words: Region<AtomicU64>,
}

impl<E: ZeroIsDefault> Extent<E> {
    fn reserve(ids: usize, word_shift: u32) -> Result<Extent<E>> {
        let words = ids.saturating_mul(1 << word_shift);
        Ok(Extent { entries: Region::new(ids)?, words: Region::new(words)? })
    }

    fn words(&self, at: usize, word_shift: u32) -> Option<&[AtomicU64]> {
        self.words.get(at << word_shift..(at + 1) << word_shift)
    }

    fn advise_huge(&self, ids: usize, word_shift: u32, wanted: bool) {
        self.words.advise_huge(ids << word_shift, wanted);
        self.entries.advise_huge(ids, wanted);
    }
}

/// Returns the most page memory of extent 0.
fn first_bytes_max() -> u64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::As).current;
    limit.map_or(FIRST_BYTES_MAX, |limit| FIRST_BYTES_MAX.min(limit / LIMITED_PART))
}

/// See the module's text.
pub(super) struct PageSpace<E> {
    first: Extent<E>,
    /// log2 of the ids of extent 1.
    unit_shift: u32,
    /// log2 of the words of a page.
    word_shift: u32,
    others: Box<[OnceLock<Extent<E>>]>,
}

impl<E: ZeroIsDefault> PageSpace<E> {
    /// Reserves extent 0 for pages of `page_bytes`, of which at most `pages_in_memory` are in a
    /// memory of `memory_bytes`. It has fewer ids than wished for if the address space is limited,
    /// but never fewer than fit in memory.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub(super) fn reserve(page_bytes: usize, memory_bytes: u64) -> Result<PageSpace<E>> {
        let word_shift = page_bytes.trailing_zeros() - size_of::<u64>().trailing_zeros();
        let least = memory_bytes / page_bytes as u64 + 1;
        // Where a region is an array on the heap, it is small.
        let wish = match cfg!(any(loom, miri, feature = "shuttle")) {
            true => 2 * least,
            false => (memory_bytes / TABLE_BYTES).min(first_bytes_max() / page_bytes as u64),
        };
        let mut ids = wish.max(least);
        let first = loop {
            match Extent::reserve(ids as usize, word_shift) {
                Err(_) if ids > least => ids = (ids / 2).max(least),
                reserved => break reserved?,
            }
        };
        // Not an array: a pool is moved a few times before it has its place.
        let others = std::iter::repeat_with(OnceLock::new).take(EXTENTS).collect();
        Ok(PageSpace { first, unit_shift: ids.ilog2(), word_shift, others })
    }

    /// Returns the extent of an id that is not in extent 0, from 0, and its place there.
    fn place(&self, page: PageId) -> (usize, usize) {
        let behind = page.0 - self.first.entries.len() as u64;
        let extent = ((behind >> self.unit_shift) + 1).ilog2();
        let begin = ((1u64 << extent) - 1) << self.unit_shift;
        (extent as usize, (behind - begin) as usize)
    }

    /// Returns the ids that have an entry: all below the result.
    pub(super) fn end(&self) -> u64 {
        let extents = self.others.iter().take_while(|extent| extent.get().is_some()).count();
        self.first.entries.len() as u64 + (((1u64 << extents) - 1) << self.unit_shift)
    }

    /// Makes sure that `page` has an entry. To be called by one thread at a time.
    ///
    /// # Errors
    /// `OutOfMemory`: the system gives no address space.
    pub(super) fn grow_to(&self, page: PageId) -> Result<()> {
        while page.0 >= self.end() {
            let (extent, _) = self.place(PageId(self.end()));
            let Some(place) = self.others.get(extent) else {
                return Err(Error::new(ErrorKind::OutOfMemory, "no page ids are left"));
            };
            let ids = 1usize << self.unit_shift << extent;
            let reserved = Extent::reserve(ids, self.word_shift)?;
            // Pages here are used with gaps.
            reserved.advise_huge(ids, self.word_shift, false);
            let set = place.set(reserved);
            debug_assert!(set.is_ok(), "one thread at a time adds extents");
        }
        Ok(())
    }

    /// Returns the entry of an id; `None` if the id has none.
    #[inline]
    pub(super) fn entry_of(&self, page: PageId) -> Option<&E> {
        match self.first.entries.get(page.0 as usize) {
            None => self.entry_behind(page),
            first => first,
        }
    }

    #[cold]
    fn entry_behind(&self, page: PageId) -> Option<&E> {
        let (extent, at) = self.place(page);
        self.others.get(extent)?.get()?.entries.get(at)
    }

    /// Returns the entry of an id that has one.
    #[inline]
    pub(super) fn entry(&self, page: PageId) -> &E {
        self.entry_of(page).expect("the caller has the page from a guard, or from `entry_of`")
    }

    /// Returns entry and memory of an id; `None` if the id has none.
    #[inline]
    pub(super) fn find(&self, page: PageId) -> Option<(&E, &[AtomicU64])> {
        let Some(entry) = self.first.entries.get(page.0 as usize) else { return self.find_behind(page) };
        let start = (page.0 as usize) << self.word_shift;
        // SAFETY: there are `1 << word_shift` words for each of the entries (see
        // `Extent::reserve`).
        Some((entry, unsafe { self.first.words.get_unchecked(start..start + (1 << self.word_shift)) }))
    }

    #[cold]
    fn find_behind(&self, page: PageId) -> Option<(&E, &[AtomicU64])> {
        let (extent, at) = self.place(page);
        let extent = self.others.get(extent)?.get()?;
        Some((extent.entries.get(at)?, extent.words(at, self.word_shift)?))
    }

    /// Gives the memory of pages back to the system: see [`Region::discard`].
    pub(super) fn discard(&self, pages: impl Iterator<Item = PageId>) {
        let shift = self.word_shift;
        let range = |at: usize| at << shift..(at + 1) << shift;
        let (end, mut behind) = (self.first.entries.len() as u64, Vec::new());
        self.first.words.discard(pages.filter_map(|page| {
            if page.0 >= end {
                behind.push(self.place(page));
            }
            (page.0 < end).then(|| range(page.0 as usize))
        }));
        behind.sort_unstable();
        for of_one in behind.chunk_by(|a, b| a.0 == b.0) {
            if let Some(extent) = self.others[of_one[0].0].get() {
                extent.words.discard(of_one.iter().map(|(_, at)| range(*at)));
            }
        }
    }

    /// Asks for huge pages for the first `ids` ids of extent 0, or for none in all of it.
    pub(super) fn advise_huge(&self, ids: Option<usize>) {
        let wanted = ids.is_some();
        self.first.advise_huge(ids.unwrap_or(self.first.entries.len()), self.word_shift, wanted);
    }
}

#[cfg(all(test, not(any(loom, miri, feature = "shuttle"))))]
mod tests;
