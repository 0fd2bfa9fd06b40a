//! How full blocks are: for each, how many of its images count, how many it was written with, and how many only older checkpoints have.
//!
//! Three bytes a block, in memory only. The first number follows from the mapping, the overlays, and what is held. The second is known of
//! blocks that this run wrote or read; of the others it is not less than the first.

use super::blocks::BlockNumber;
use super::pack::IMAGES_MAX;
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
    /// Of the references, those of things that are replaced, but held.
    held: u8,
}

impl Fill {
    fn is_pack(self) -> bool {
        self.live > 0 && self.made > 1 && self.made != OTHER
    }

    fn is_held(self) -> bool {
        self.live > 0 && self.held == self.live
    }

    fn is_sparse(self) -> bool {
        // While something in it is held, moving the rest frees nothing.
        self.is_pack() && self.live <= self.made / 2 && self.held == 0
    }
}

/// Packs, all together, as far as it is known which blocks are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PackTotals {
    /// Blocks that are packs.
    pub packs: u64,
    /// Images in them that count.
    pub live: u64,
    /// Images that they were written with.
    pub made: u64,
    /// Packs of which at most half counts.
    pub sparse: u64,
    /// Images that would need a block more if each had its own.
    pub beyond_first: u64,
}

impl PackTotals {
    fn of(fill: Fill) -> PackTotals {
        let (live, made) = (u64::from(fill.live), u64::from(fill.made));
        if !fill.is_pack() {
            return PackTotals::default();
        }
        PackTotals { packs: 1, live, made, sparse: fill.is_sparse().into(), beyond_first: live - 1 }
    }

    fn combine(self, other: PackTotals, with: impl Fn(u64, u64) -> u64) -> PackTotals {
        PackTotals {
            packs: with(self.packs, other.packs),
            live: with(self.live, other.live),
            made: with(self.made, other.made),
            sparse: with(self.sparse, other.sparse),
            beyond_first: with(self.beyond_first, other.beyond_first),
        }
    }
}

/// The table.
#[derive(Debug, Default)]
pub struct Fills {
    fills: Vec<Fill>,
    totals: PackTotals,
    /// Blocks all of whose references are held.
    held_blocks: u64,
    /// Blocks to whose references something has happened, while somebody wants to know.
    changed: Option<HashSet<BlockNumber>>,
}

impl Fills {
    /// The file has so many blocks now; those that go are free.
    pub fn resize(&mut self, blocks: u64) {
        self.fills.resize(blocks as usize, Fill::default());
    }

    /// From now on, or no more, it is noted what changes.
    pub fn watch(&mut self, wanted: bool) {
        self.changed = wanted.then(HashSet::new);
    }

    /// A reference to the block has changed its place.
    pub fn note_change(&mut self, block: BlockNumber) {
        if let Some(changed) = &mut self.changed {
            changed.insert(block);
        }
    }

    /// Whether something happened to a reference to the block since [`Fills::watch`].
    #[must_use]
    pub fn has_changed(&self, block: BlockNumber) -> bool {
        self.changed.as_ref().is_some_and(|changed| changed.contains(&block))
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        (self.fills.capacity() * size_of::<Fill>()) as u64
    }

    /// See [`PackTotals`].
    #[must_use]
    pub fn totals(&self) -> PackTotals {
        self.totals
    }

    /// References to a block.
    #[must_use]
    pub fn live(&self, block: BlockNumber) -> u8 {
        self.of(block).live
    }

    /// Whether at most half of a pack counts.
    #[must_use]
    pub fn is_sparse(&self, block: BlockNumber) -> bool {
        self.of(block).is_sparse()
    }

    /// A free block is in use from now on, for one thing that is no image, until something else is said.
    pub fn occupy(&mut self, block: BlockNumber) {
        self.change(block, |fill| *fill = Fill { live: 1, made: OTHER, held: 0 });
    }

    /// A block in use holds an image, and perhaps more.
    pub fn claim_first(&mut self, block: BlockNumber) {
        self.change(block, |fill| fill.made = UNKNOWN);
    }

    /// One more image in a block that holds one; false if it holds none, or too many.
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

    /// A block in use is a pack of so many images.
    pub fn becomes_pack(&mut self, block: BlockNumber, images: u8) {
        debug_assert!((1..=IMAGES_MAX).contains(&usize::from(images)));
        self.change(block, |fill| *fill = Fill { live: images, made: images, held: 0 });
    }

    /// A block with images has so many.
    pub fn learn(&mut self, block: BlockNumber, images: u8) {
        if self.of(block).made < images {
            self.change(block, |fill| fill.made = images);
        }
    }

    /// A reference is of something that only older checkpoints have.
    pub fn hold(&mut self, block: BlockNumber) {
        self.change(block, |fill| fill.held += 1);
        debug_assert!(self.of(block).held <= self.of(block).live, "F4");
    }

    /// A reference that was held is going to be released.
    pub fn end_hold(&mut self, block: BlockNumber) {
        self.change(block, |fill| fill.held -= 1);
    }

    /// Blocks that only older checkpoints keep in use.
    #[must_use]
    pub fn held_blocks(&self) -> u64 {
        self.held_blocks
    }

    /// One reference less; true if it was the last.
    pub fn release(&mut self, block: BlockNumber) -> bool {
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
        let (before, was_held) = (PackTotals::of(*fill), fill.is_held());
        change(fill);
        let (after, is_held) = (PackTotals::of(*fill), fill.is_held());
        self.held_blocks = self.held_blocks + u64::from(is_held) - u64::from(was_held);
        self.totals = self.totals.combine(after, |a, b| a + b).combine(before, |a, b| a - b);
    }
}
