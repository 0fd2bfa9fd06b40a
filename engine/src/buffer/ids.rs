//! Page ids that can be given out.
//!
//! Eviction and checkpoints write pages in the order of their ids, so pages whose ids are neighbours lie side by side in the file.
//! Where keys are inserted in order, each new leaf therefore gets the id behind the one before: for every such *sequence* a few ids
//! in a row are set aside, more each time they are used up.
//!
//! Bounds: [`SEQUENCES_MAX`] sequences, [`SET_ASIDE_MAX`] ids each. Ids are set aside only where there is no free one.

use super::pool::{Entry, FLAGS, Pool};
use crate::base::PageId;
use crate::sync::atomic::Ordering;

/// Sequences that are known at once; as many threads can load in parallel and find what they load side by side.
const SEQUENCES_MAX: usize = 8;
/// Ids set aside at first, and at most.
const SET_ASIDE_FIRST: u64 = 4;
const SET_ASIDE_MAX: u64 = 64;

/// Ids that are no page now.
#[derive(Default)]
pub(super) struct FreeIds {
    /// Freed ids whose memory is still there: used first, and counted as resident.
    pub(super) recycled: Vec<PageId>,
    /// Ids without memory, below `page_count`.
    pub(super) cold: Vec<PageId>,
    /// Ids set aside; the sequence that went on last is last.
    sequences: Vec<Sequence>,
}

/// Ids behind a page, without memory and below `page_count`.
struct Sequence {
    /// The id given out last.
    last: u64,
    /// All up to this one, less itself, are set aside.
    end: u64,
    set_aside: u64,
}

impl FreeIds {
    fn position(&self, before: Option<PageId>) -> Option<usize> {
        before.and_then(|before| self.sequences.iter().position(|sequence| sequence.last == before.0))
    }

    /// An id whose memory is still there, unless another is set aside for the page behind `before`.
    pub(super) fn take_recycled(&mut self, before: Option<PageId>) -> Option<PageId> {
        if self.has_behind(before) { None } else { self.recycled.pop() }
    }

    /// Whether an id is set aside for the page behind `before`.
    fn has_behind(&self, before: Option<PageId>) -> bool {
        self.position(before).is_some_and(|at| self.sequences[at].last + 1 < self.sequences[at].end)
    }

    /// An id without memory for the page behind `before`, or for any page; `None` if there is none: then
    /// [`FreeIds::wanted`] say how many more.
    pub(super) fn take_cold(&mut self, before: Option<PageId>) -> Option<PageId> {
        if !self.has_behind(before) {
            return self.cold.pop();
        }
        let mut sequence = self.sequences.remove(self.position(before)?);
        sequence.last += 1;
        let page = PageId(sequence.last);
        self.sequences.push(sequence);
        Some(page)
    }

    /// Ids to be added for the page behind `before`.
    pub(super) fn wanted(&self, before: Option<PageId>) -> u64 {
        match (before, self.position(before)) {
            (None, _) => 1,
            (Some(_), None) => SET_ASIDE_FIRST,
            (Some(_), Some(at)) => (2 * self.sequences[at].set_aside).min(SET_ASIDE_MAX),
        }
    }

    /// The ids from `first` to below `end` are new. The first is taken for the page behind `before`, the others are set aside for
    /// those behind it.
    pub(super) fn add(&mut self, before: Option<PageId>, first: u64, end: u64) -> PageId {
        if let Some(at) = self.position(before) {
            self.sequences.remove(at);
        }
        if first + 1 < end {
            if self.sequences.len() == SEQUENCES_MAX {
                let oldest = self.sequences.remove(0);
                self.cold.extend((oldest.last + 1..oldest.end).rev().map(PageId));
            }
            self.sequences.push(Sequence { last: first, end, set_aside: end - first });
        }
        PageId(first)
    }
}

// What is above the flags counts alone.
const _: () = assert!((FLAGS + 1).is_power_of_two());

/// The page of `entry`, which the caller holds exclusively, is being freed.
pub(super) fn count_free(entry: &Entry) {
    let word = entry.flags.load(Ordering::Relaxed);
    entry.flags.store(word.wrapping_add(FLAGS + 1), Ordering::Release);
}

impl Pool {
    /// How often the id was given back, in 28 bits. While that does not change, and the id is allocated, it is the same page.
    #[must_use]
    pub fn times_freed(&self, page: PageId) -> u32 {
        self.entry_of(page).map_or(0, |entry| entry.flags.load(Ordering::Acquire) / (FLAGS + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the pool does it.
    fn take(free: &mut FreeIds, page_count: &mut u64, before: Option<u64>) -> u64 {
        let before = before.map(PageId);
        free.take_cold(before).map_or_else(
            || {
                let (first, end) = (*page_count, *page_count + free.wanted(before));
                *page_count = end;
                free.add(before, first, end).0
            },
            |page| page.0,
        )
    }

    #[test]
    fn the_pages_of_each_sequence_lie_side_by_side_and_no_id_is_given_out_twice_or_lost() {
        let (mut free, mut page_count) = (FreeIds::default(), 1);
        let mut taken = std::collections::BTreeSet::new();
        let mut lasts: Vec<u64> = (0..4).map(|_| take(&mut free, &mut page_count, None)).collect();
        taken.extend(lasts.iter().copied());
        let (mut side_by_side, rounds) = (0, 300);
        for _ in 0..rounds {
            for last in &mut lasts {
                let page = take(&mut free, &mut page_count, Some(*last));
                side_by_side += u64::from(page == *last + 1);
                assert!(taken.insert(page));
                *last = page;
            }
        }
        assert!(side_by_side > 4 * rounds * 9 / 10, "{side_by_side}");
        // More sequences than are known: what was set aside for the others is used.
        for stranger in 0..2 * SEQUENCES_MAX as u64 {
            assert!(taken.insert(take(&mut free, &mut page_count, Some(1 << 40 | stranger))));
        }
        let before = page_count;
        while !free.cold.is_empty() {
            assert!(taken.insert(take(&mut free, &mut page_count, None)));
        }
        assert_eq!(page_count, before, "there were free ids");
        let set_aside: u64 = free.sequences.iter().map(|sequence| sequence.end - sequence.last - 1).sum();
        assert_eq!(taken.len() as u64 + set_aside, page_count - 1);
        assert!(set_aside < SEQUENCES_MAX as u64 * SET_ASIDE_MAX);
    }

    #[test]
    fn a_sequence_uses_free_ids_before_new_ones() {
        let (mut free, mut page_count) = (FreeIds::default(), 1);
        let first = take(&mut free, &mut page_count, None);
        free.cold.push(PageId(99));
        assert_eq!(take(&mut free, &mut page_count, Some(first)), 99);
        assert_eq!(page_count, 2);
    }
}
