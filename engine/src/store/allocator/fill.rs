//! How full each block is: images that count, images that it was written with, and images that only
//! older checkpoints have.
//!
//! Three bytes a block, in memory only. The first number follows from the mapping, the overlays and
//! held content. The second is known for blocks that this run wrote or read; for other blocks it is
//! at least the first.

use super::super::block::BlockNumber;
use super::super::pack::{IMAGES_MAX, PackTotals};
use std::collections::HashSet;

/// The block holds no image.
const OTHER: u8 = u8::MAX;
/// How many images there are is not known.
const UNKNOWN: u8 = 0;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Fill {
    /// References to it.
    live: u8,
    /// Images that it was written with, [`OTHER`] or [`UNKNOWN`].
    made: u8,
    /// References of replaced content that is held.
    held: u8,
}

impl Fill {
    fn is_pack(self) -> bool {
        self.live > 0 && self.made > 1 && self.made != OTHER
    }

    fn is_held(self) -> bool {
        self.live > 0 && self.held == self.live
    }

    fn totals(self) -> PackTotals {
        let (live, made) = (u64::from(self.live), u64::from(self.made));
        if !self.is_pack() {
            return PackTotals::default();
        }
        PackTotals { packs: 1, live, made, sparse: self.is_sparse().into(), beyond_first: live - 1 }
    }

    fn is_sparse(self) -> bool {
        // While an image in it is held, relocating the others frees nothing.
        self.is_pack() && self.live <= self.made / 2 && self.held == 0
    }
}

/// The table of all blocks.
#[derive(Debug, Default)]
pub struct Fills {
    fills: Vec<Fill>,
    totals: PackTotals,
    /// Blocks all of whose references are held.
    held_blocks: u64,
    /// Blocks whose references changed, while a check watches.
    changed: Option<HashSet<BlockNumber>>,
}

impl Fills {
    /// Resizes the table; blocks that disappear are free.
    pub fn resize(&mut self, blocks: u64) {
        self.fills.resize(blocks as usize, Fill::default());
    }

    /// Starts or stops recording changed blocks.
    pub fn watch(&mut self, wanted: bool) {
        self.changed = wanted.then(HashSet::new);
    }

    /// Records that a reference to the block has changed its place.
    pub fn note_change(&mut self, block: BlockNumber) {
        if let Some(changed) = &mut self.changed {
            changed.insert(block);
        }
    }

    /// Returns whether a reference to the block changed since [`Fills::watch`].
    #[must_use]
    pub fn has_changed(&self, block: BlockNumber) -> bool {
        self.changed.as_ref().is_some_and(|changed| changed.contains(&block))
    }

    /// See [`PackTotals`].
    #[must_use]
    pub fn totals(&self) -> PackTotals {
        self.totals
    }

    /// References that keep a block in use; 0 if it is free.
    #[must_use]
    pub fn live(&self, block: BlockNumber) -> u8 {
        self.of(block).live
    }

    /// Returns whether at most half of the images of a pack are live.
    #[must_use]
    pub fn is_sparse(&self, block: BlockNumber) -> bool {
        self.of(block).is_sparse()
    }

    /// Returns whether an older checkpoint needs content of the block.
    #[must_use]
    pub fn has_held(&self, block: BlockNumber) -> bool {
        self.of(block).held > 0
    }

    /// Returns whether only older checkpoints need the block.
    #[must_use]
    pub fn is_held(&self, block: BlockNumber) -> bool {
        self.of(block).is_held()
    }

    /// Returns whether the block has images that count.
    #[must_use]
    pub fn has_images(&self, block: BlockNumber) -> bool {
        let fill = self.of(block);
        fill.live > 0 && fill.made != OTHER
    }

    /// Puts a free block in use for content other than images.
    pub fn occupy(&mut self, block: BlockNumber) {
        self.change(block, |fill| *fill = Fill { live: 1, made: OTHER, held: 0 });
    }

    /// Records that a block in use holds an image, and perhaps more.
    pub fn claim_first(&mut self, block: BlockNumber) {
        debug_assert!(self.of(block).live == 1, "the first claim is for the only image");
        debug_assert!(self.of(block).live == 1, "the first claim is for the only image");
        self.change(block, |fill| fill.made = UNKNOWN);
    }

    /// Adds an image to a block with images; false if it has none, or too many.
    pub fn claim_another(&mut self, block: BlockNumber) -> bool {
        let fill = self.of(block);
        if fill.made == OTHER || usize::from(fill.live) >= IMAGES_MAX {
            return false;
        }
        self.change(block, |fill| {
            fill.live += 1;
            fill.made = fill.made.max(fill.live);
        });
        true
    }

    /// Records that a block in use is a pack of `images` images.
    pub fn becomes_pack(&mut self, block: BlockNumber, images: u8) {
        debug_assert!((1..=IMAGES_MAX).contains(&usize::from(images)));
        self.change(block, |fill| *fill = Fill { live: images, made: images, held: 0 });
    }

    /// Records that a block with images has `images` of them.
    pub fn learn(&mut self, block: BlockNumber, images: u8) {
        if self.of(block).made < images {
            self.change(block, |fill| fill.made = images);
        }
    }

    /// Marks one reference as held: only older checkpoints have its content.
    pub fn hold(&mut self, block: BlockNumber) {
        self.change(block, |fill| fill.held += 1);
        debug_assert!(self.of(block).held <= self.of(block).live, "F4");
    }

    /// Ends the hold of a reference, which is about to be released.
    pub fn end_hold(&mut self, block: BlockNumber) {
        self.change(block, |fill| fill.held -= 1);
    }

    /// Blocks that only held content keeps in use.
    #[must_use]
    pub fn held_blocks(&self) -> u64 {
        self.held_blocks
    }

    /// Removes one reference; returns whether it was the last.
    pub fn release(&mut self, block: BlockNumber) -> bool {
        debug_assert!(self.of(block).live > self.of(block).held, "what is held for a reader is not released");
        debug_assert!(self.of(block).live > self.of(block).held, "what is held for a reader is not released");
        self.change(block, |fill| {
            fill.live = fill.live.saturating_sub(1);
            if fill.live == 0 {
                fill.made = UNKNOWN;
            }
        });
        self.of(block).live == 0
    }

    fn of(&self, block: BlockNumber) -> Fill {
        self.fills.get(block.0 as usize).copied().unwrap_or_default()
    }

    fn change(&mut self, block: BlockNumber, change: impl FnOnce(&mut Fill)) {
        self.note_change(block);
        let fill = &mut self.fills[block.0 as usize];
        let (before, was_held) = (fill.totals(), fill.is_held());
        change(fill);
        debug_assert!(fill.held <= fill.live, "F4");
        debug_assert!(
            fill.made == OTHER || fill.made == UNKNOWN || fill.live <= fill.made,
            "a pack has at most the images that it was made with"
        );
        debug_assert!(fill.held <= fill.live, "F4");
        debug_assert!(
            fill.made == OTHER || fill.made == UNKNOWN || fill.live <= fill.made,
            "a pack has at most the images that it was made with"
        );
        let (after, is_held) = (fill.totals(), fill.is_held());
        self.held_blocks = self.held_blocks + u64::from(is_held) - u64::from(was_held);
        self.totals = self.totals.combine(after, |a, b| a + b).combine(before, |a, b| a - b);
    }
}
