//! Free space: which blocks may be written.
//!
//! One bit per block, derived from the mapping at open and never stored, and two bytes that say how many images in it count (see
//! `fill`): a pack is in use until none does. A block passes through these states:
//!
//! ```text
//!            allocate                round committed              replaced, and the round without it committed
//!   free ───────────────> fresh ──────────────────────> live ───────────────────────────────────────────────────┐
//!    ^                      │ nothing refers to it any more                                                      │
//!    ├──────────────────────┘                                                                                   │
//!    └──────────────────────────────────────────────────────────────── unless somebody holds a checkpoint ──────┘
//! ```
//!
//! # Invariants
//! - F1 (I8): a live block that a round replaces is released when the manifest without it is durable, and not while a
//!   checkpoint that may have it is held.
//! - F2: a fresh block is in no durable manifest; who allocated it may release it at any time.
//! - F4: a block is released as often as it was claimed: once, or for a pack once for each image. Each reference to it, in the mapping, in
//!   an overlay, replaced but held, or with a writer, stands for one of these.
//! - F3: a block whose write failed is never released; it is free again after the next open. Its bytes may still arrive.

use super::blocks::BlockNumber;
use super::fill::{Fills, PackTotals};

/// The bitmap.
#[derive(Debug, Default)]
pub struct FreeSpace {
    /// Bit set = in use. Bits at and above `blocks` do not exist.
    used: Vec<u64>,
    /// How full the blocks in use are.
    fills: Fills,
    blocks: u64,
    free: u64,
    /// Where the next search begins; back at the front with each round, so that the file stays compact.
    cursor: u64,
    /// Checkpoints that somebody holds.
    holds: usize,
    /// Live blocks that were replaced while a checkpoint was held.
    held: Vec<BlockNumber>,
}

impl FreeSpace {
    /// A file of `blocks` blocks, all free but the header (B2).
    #[must_use]
    pub fn new(blocks: u64) -> FreeSpace {
        let mut space = FreeSpace::default();
        space.extend(blocks.max(1));
        space.mark_used(BlockNumber(0));
        space
    }

    /// Blocks of the file.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Free blocks.
    #[must_use]
    pub fn free_blocks(&self) -> u64 {
        self.free
    }

    /// The file has grown to `blocks` blocks.
    pub fn extend(&mut self, blocks: u64) {
        debug_assert!(blocks >= self.blocks && blocks < BlockNumber::LIMIT);
        self.used.resize(blocks.div_ceil(64) as usize, 0);
        self.fills.resize(blocks);
        self.free += blocks - self.blocks;
        self.blocks = blocks;
    }

    /// Blocks up to the last one in use: what the file can be cut to.
    #[must_use]
    pub fn used_end(&self) -> u64 {
        let last = self.used.iter().rposition(|word| *word != 0);
        last.map_or(0, |at| at as u64 * 64 + 64 - u64::from(self.used[at].leading_zeros()))
    }

    /// The file is going to be cut to `blocks` blocks, none of which behind is in use.
    pub fn cut(&mut self, blocks: u64) {
        debug_assert!(blocks >= self.used_end() && blocks <= self.blocks);
        self.free -= self.blocks - blocks;
        self.blocks = blocks;
        self.used.truncate(blocks.div_ceil(64) as usize);
        self.fills.resize(blocks);
        self.cursor = self.cursor.min(blocks);
    }

    /// Searches begin at the front again.
    pub fn rewind(&mut self) {
        self.cursor = 0;
    }

    /// Marks a block that holds no images; false if it does not exist or is in use already.
    #[must_use = "false means that two things claim one block"]
    pub fn claim(&mut self, block: BlockNumber) -> bool {
        if block.0 >= self.blocks || self.is_used(block) {
            return false;
        }
        self.mark_used(block);
        true
    }

    /// Marks a block in which the mapping has an image; false if it does not exist or cannot have it, or more.
    #[must_use = "false means that something is not what it should be"]
    pub fn claim_image(&mut self, block: BlockNumber) -> bool {
        if block.0 >= self.blocks {
            return false;
        }
        if self.is_used(block) {
            return self.fills.claim_another(block);
        }
        self.mark_used(block);
        self.fills.claim_first(block);
        true
    }

    /// A block that was allocated has become a pack of so many images, each of which is to be released.
    pub fn becomes_pack(&mut self, block: BlockNumber, images: u8) {
        debug_assert!(self.is_used(block));
        self.fills.becomes_pack(block, images);
    }

    /// A block that holds an image was read: it has so many.
    pub fn learn(&mut self, block: BlockNumber, images: u8) {
        if self.is_used(block) {
            self.fills.learn(block, images);
        }
    }

    /// Whether at most half of the images of a pack count.
    #[must_use]
    pub fn is_sparse(&self, block: BlockNumber) -> bool {
        self.fills.is_sparse(block)
    }

    /// References that keep a block in use; 0 if it is free.
    #[must_use]
    pub fn users(&self, block: BlockNumber) -> u8 {
        self.fills.live(block)
    }

    /// Packs, all together.
    #[must_use]
    pub fn packs(&self) -> PackTotals {
        self.fills.totals()
    }

    /// Bytes of memory for all this.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.used.capacity() as u64 * 8 + self.fills.memory_bytes() + self.held.capacity() as u64 * 8
    }

    /// At most `most` free blocks side by side, at least one, or `None` if the file must grow first.
    pub fn allocate_run(&mut self, most: u64) -> Option<(BlockNumber, u64)> {
        if self.free == 0 || most == 0 {
            return None;
        }
        let first = self.find(self.cursor, self.blocks).or_else(|| self.find(0, self.cursor))?;
        let end = self.blocks.min(first.0.saturating_add(most));
        let mut len = 0;
        while first.0 + len < end && !self.is_used(BlockNumber(first.0 + len)) {
            self.mark_used(BlockNumber(first.0 + len));
            len += 1;
        }
        self.cursor = first.0 + len;
        Some((first, len))
    }

    /// As [`FreeSpace::allocate_run`], of blocks in `from..to`.
    pub fn allocate_between(&mut self, from: u64, to: u64, most: u64) -> Option<(BlockNumber, u64)> {
        let to = to.min(self.blocks);
        let first = self.find(from, to)?;
        let mut len = 0;
        while len < most && first.0 + len < to && !self.is_used(BlockNumber(first.0 + len)) {
            self.mark_used(BlockNumber(first.0 + len));
            len += 1;
        }
        (len > 0).then_some((first, len))
    }

    /// Gives back a block that nothing refers to (F2), or an image of a pack: then the block is free with the last one.
    pub fn release(&mut self, block: BlockNumber) {
        debug_assert!(self.is_used(block), "released twice");
        if self.is_used(block) && self.fills.release(block) {
            self.used[(block.0 / 64) as usize] &= !(1 << (block.0 % 64));
            self.free += 1;
        }
    }

    /// Gives back a block of an earlier checkpoint that the durable one does not have (F1).
    pub fn release_live(&mut self, block: BlockNumber) {
        if self.holds == 0 {
            self.release(block);
        } else {
            self.held.push(block);
        }
    }

    /// From now on no live block is given back.
    pub fn hold(&mut self) {
        self.holds += 1;
    }

    /// Ends one [`FreeSpace::hold`].
    pub fn end_hold(&mut self) {
        self.holds -= 1;
        if self.holds == 0 {
            for block in std::mem::take(&mut self.held) {
                self.release(block);
            }
        }
    }

    /// Whether a block is in use; those behind the end are not.
    #[must_use]
    pub fn is_used(&self, block: BlockNumber) -> bool {
        self.used.get((block.0 / 64) as usize).is_some_and(|word| word >> (block.0 % 64) & 1 == 1)
    }

    fn mark_used(&mut self, block: BlockNumber) {
        self.fills.occupy(block);
        self.used[(block.0 / 64) as usize] |= 1 << (block.0 % 64);
        self.free -= 1;
    }

    /// First free block in `from..to`.
    fn find(&self, from: u64, to: u64) -> Option<BlockNumber> {
        let mut at = from;
        while at < to {
            let word = self.used[(at / 64) as usize] >> (at % 64);
            if word & 1 == 0 {
                return Some(BlockNumber(at));
            }
            at += u64::from(word.trailing_ones());
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(space: &mut FreeSpace) -> Vec<u64> {
        std::iter::from_fn(|| space.allocate_run(1)).map(|(block, _)| block.0).collect()
    }

    #[test]
    fn every_block_but_the_header_is_handed_out_once() {
        let mut space = FreeSpace::new(200);
        assert_eq!(drain(&mut space), (1..200).collect::<Vec<_>>());
        assert_eq!(space.free_blocks(), 0);
        space.extend(203);
        assert_eq!(drain(&mut space), [200, 201, 202]);
    }

    #[test]
    fn a_run_ends_at_a_block_in_use_and_at_the_end_of_the_file() {
        let mut space = FreeSpace::new(100);
        assert!(space.claim(BlockNumber(10)));
        assert_eq!(space.allocate_run(64), Some((BlockNumber(1), 9)));
        assert_eq!(space.allocate_run(64), Some((BlockNumber(11), 64)));
        assert_eq!(space.allocate_run(64), Some((BlockNumber(75), 25)));
        assert_eq!(space.allocate_run(64), None);
        space.release(BlockNumber(3));
        assert_eq!(space.allocate_run(2), Some((BlockNumber(3), 1)));
    }

    #[test]
    fn live_blocks_are_kept_while_a_checkpoint_is_held() {
        let mut space = FreeSpace::new(3);
        assert_eq!(drain(&mut space), [1, 2]);
        space.hold();
        space.hold();
        space.release_live(BlockNumber(1));
        space.end_hold();
        assert_eq!(space.allocate_run(1), None, "F1");
        space.end_hold();
        assert_eq!(drain(&mut space), [1]);
        space.release_live(BlockNumber(2));
        assert_eq!(drain(&mut space), [2]);
    }

    #[test]
    fn a_free_tail_can_be_cut_off_and_grown_again() {
        let mut space = FreeSpace::new(300);
        drain(&mut space);
        (70..300).for_each(|block| space.release(BlockNumber(block)));
        assert_eq!((space.used_end(), space.free_blocks()), (70, 230));
        space.cut(72);
        assert_eq!((space.blocks(), space.free_blocks()), (72, 2));
        space.extend(300);
        space.rewind();
        assert_eq!(drain(&mut space), (70..300).collect::<Vec<_>>());
        assert_eq!(FreeSpace::new(1).used_end(), 1);
    }

    #[test]
    fn a_pack_is_free_with_its_last_image_and_not_while_a_checkpoint_that_has_one_is_held() {
        let mut space = FreeSpace::new(3);
        assert_eq!(space.allocate_run(2), Some((BlockNumber(1), 2)));
        space.becomes_pack(BlockNumber(1), 3);
        assert_eq!(space.packs().beyond_first, 2);
        space.release(BlockNumber(1));
        assert!(!space.is_sparse(BlockNumber(1)));
        space.hold();
        space.release_live(BlockNumber(1));
        space.release(BlockNumber(1));
        assert!(space.is_sparse(BlockNumber(1)), "one of three");
        assert_eq!((space.allocate_run(1), space.users(BlockNumber(1))), (None, 1), "F1, F4");
        space.end_hold();
        assert_eq!(space.allocate_run(1), Some((BlockNumber(1), 1)));
        assert_eq!((space.packs(), space.is_sparse(BlockNumber(1))), (PackTotals::default(), false));
    }

    #[test]
    fn only_images_share_a_block() {
        let mut space = FreeSpace::new(5);
        assert!(space.claim(BlockNumber(1)) && !space.claim_image(BlockNumber(1)));
        assert!(space.claim_image(BlockNumber(2)) && !space.claim(BlockNumber(2)));
        assert!((1..64).all(|_| space.claim_image(BlockNumber(2))) && !space.claim_image(BlockNumber(2)));
        assert!(!space.claim_image(BlockNumber(0)) && !space.claim_image(BlockNumber(5)));
        space.learn(BlockNumber(2), 64);
        assert_eq!((space.packs().packs, space.packs().live, space.packs().made), (1, 64, 64));
        assert!(space.claim_image(BlockNumber(3)));
        assert_eq!(space.packs().packs, 1, "nobody has looked yet");
        space.learn(BlockNumber(3), 4);
        assert!(space.is_sparse(BlockNumber(3)));
        assert_eq!((space.packs().packs, space.packs().sparse, space.packs().made), (2, 1, 68));
    }

    #[test]
    fn a_block_can_be_claimed_once_and_only_if_it_exists() {
        let mut space = FreeSpace::new(3);
        assert!(!space.claim(BlockNumber(0)));
        assert!(space.claim(BlockNumber(2)));
        assert!(!space.claim(BlockNumber(2)));
        assert!(!space.claim(BlockNumber(3)));
    }
}
