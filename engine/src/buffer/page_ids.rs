//! Page ids that can be given out.
//!
//! Eviction and checkpoints write pages in the order of their ids, so pages with neighbouring ids
//! lie side by side in the file. Where keys are inserted in order, each new leaf therefore gets the
//! id after the one before. For every such *sequence* the pool sets a few consecutive ids aside,
//! more each time they are used up.
//!
//! Bounds: [`SEQUENCES_MAX`] sequences, [`SET_ASIDE_MAX`] ids each. Ids are set aside only where
//! there is no free one.

use crate::base::PageId;

/// Sequences known at once; as many threads can load in parallel, each into pages that lie side by
/// side.
const SEQUENCES_MAX: usize = 8;
/// Ids set aside at first, and at most.
const SET_ASIDE_FIRST: u64 = 4;
const SET_ASIDE_MAX: u64 = 64;

/// Ids that are not pages now.
#[derive(Default)]
pub(super) struct FreeIds {
    /// Freed ids that still have memory: used first, and counted as resident.
    pub(super) recycled: Vec<PageId>,
    /// Ids without memory, below `page_count`.
    pub(super) cold: Vec<PageId>,
    /// Ids set aside; the sequence used most recently is last.
    sequences: Vec<Sequence>,
}

/// Consecutive ids after a page, without memory and below `page_count`.
struct Sequence {
    /// The id given out most recently.
    last: u64,
    /// The ids after `last` and below this one are set aside.
    end: u64,
    /// Ids set aside when the sequence was last extended.
    set_aside: u64,
}

impl FreeIds {
    /// Returns the number of free ids.
    pub(super) fn count(&self) -> u64 {
        let set_aside: u64 = self.sequences.iter().map(|sequence| sequence.end - sequence.last - 1).sum();
        (self.recycled.len() + self.cold.len()) as u64 + set_aside
    }

    fn position(&self, before: Option<PageId>) -> Option<usize> {
        before.and_then(|before| self.sequences.iter().position(|sequence| sequence.last == before.0))
    }

    /// Takes an id that still has memory, unless another is set aside for the page after `before`.
    pub(super) fn take_recycled(&mut self, before: Option<PageId>) -> Option<PageId> {
        if self.has_next(before) { None } else { self.recycled.pop() }
    }

    /// Returns whether an id is set aside for the page after `before`.
    fn has_next(&self, before: Option<PageId>) -> bool {
        self.position(before).is_some_and(|at| self.sequences[at].last + 1 < self.sequences[at].end)
    }

    /// Takes an id without memory for the page after `before`, or for any page. Returns `None` if
    /// there is none; then [`FreeIds::wanted`] returns how many ids to add.
    pub(super) fn take_cold(&mut self, before: Option<PageId>) -> Option<PageId> {
        if !self.has_next(before) {
            return self.cold.pop();
        }
        let mut sequence = self.sequences.remove(self.position(before)?);
        sequence.last += 1;
        let page = PageId(sequence.last);
        debug_assert!(sequence.last < sequence.end, "the id was set aside");
        self.sequences.push(sequence);
        Some(page)
    }

    /// Returns how many ids to add for the page after `before`.
    pub(super) fn wanted(&self, before: Option<PageId>) -> u64 {
        match (before, self.position(before)) {
            (None, _) => 1,
            (Some(_), None) => SET_ASIDE_FIRST,
            (Some(_), Some(at)) => (2 * self.sequences[at].set_aside).min(SET_ASIDE_MAX),
        }
    }

    /// Adds the new ids from `first` to below `end`. Takes the first for the page after `before`
    /// and sets the others aside for the pages after it.
    pub(super) fn add(&mut self, before: Option<PageId>, first: u64, end: u64) -> PageId {
        debug_assert!(first < end && end - first <= SET_ASIDE_MAX, "some ids, and not too many");
        if let Some(at) = self.position(before) {
            self.sequences.remove(at);
        }
        if first + 1 < end {
            if self.sequences.len() == SEQUENCES_MAX {
                let oldest = self.sequences.remove(0);
                self.cold.extend((oldest.last + 1..oldest.end).rev().map(PageId));
            }
            self.sequences.push(Sequence { last: first, end, set_aside: end - first });
            debug_assert!(self.sequences.len() <= SEQUENCES_MAX, "the oldest was given up");
        }
        PageId(first)
    }
}

#[cfg(test)]
mod tests;
