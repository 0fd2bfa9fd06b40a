//! Free space: which blocks may be written.
//!
//! One bit per block, derived from the mapping at open and never stored. A block passes through these states:
//!
//! ```text
//!            allocate                round committed              replaced in a later round
//!   free ───────────────> fresh ──────────────────────> live ──────────────────────────────> retired
//!    ^                      │ round abandoned, or                                               │
//!    ├──────────────────────┘ discarded in its own round                                        │
//!    └──────────────────────────────────────────────────────────── that round committed ────────┘
//! ```
//!
//! # Invariants
//! - F1 (I8): a live block that a round replaces is retired, not free: the durable manifest still refers to it. It
//!   becomes free when the manifest without it is durable.
//! - F2: a fresh block is in no durable manifest; its own round may discard and reuse it at any time.
//! - F3: a block whose write failed stays out of use until the next open: the bytes may still arrive.

use super::blocks::BlockNumber;

/// The bitmap and the round's lists.
#[derive(Debug, Default)]
pub struct FreeSpace {
    /// Bit set = in use. Bits at and above `blocks` do not exist.
    used: Vec<u64>,
    blocks: u64,
    free: u64,
    /// Where the next search begins; back at the front in each round, so that the file stays compact.
    cursor: u64,
    fresh: Vec<BlockNumber>,
    retired: Vec<BlockNumber>,
    quarantined: Vec<BlockNumber>,
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

    /// Free blocks; retired ones do not count.
    #[must_use]
    pub fn free_blocks(&self) -> u64 {
        self.free
    }

    /// The file has grown to `blocks` blocks.
    pub fn extend(&mut self, blocks: u64) {
        debug_assert!(blocks >= self.blocks && blocks < BlockNumber::LIMIT);
        self.used.resize(blocks.div_ceil(64) as usize, 0);
        self.free += blocks - self.blocks;
        self.blocks = blocks;
    }

    /// Marks a block that a mapping refers to; false if it does not exist or is in use already.
    #[must_use = "false means that two things claim one block"]
    pub fn claim(&mut self, block: BlockNumber) -> bool {
        if block.0 >= self.blocks || self.is_used(block) {
            return false;
        }
        self.mark_used(block);
        true
    }

    /// A free block for this round, or `None` if the file must grow first.
    pub fn allocate(&mut self) -> Option<BlockNumber> {
        if self.free == 0 {
            return None;
        }
        let block = self.find(self.cursor, self.blocks).or_else(|| self.find(0, self.cursor))?;
        self.cursor = block.0 + 1;
        self.mark_used(block);
        self.fresh.push(block);
        Some(block)
    }

    /// Gives back a block of this round that nothing will refer to (F2).
    pub fn discard(&mut self, block: BlockNumber) {
        self.release(block);
    }

    /// Notes that this round replaced a block of the last checkpoint (F1).
    pub fn retire(&mut self, block: BlockNumber) {
        debug_assert!(self.is_used(block));
        self.retired.push(block);
    }

    /// Keeps a block out of use until the next open (F3).
    pub fn quarantine(&mut self, block: BlockNumber) {
        self.quarantined.push(block);
    }

    /// The round's manifest is durable: what it replaced is free.
    pub fn commit_round(&mut self) {
        self.fresh.clear();
        for block in std::mem::take(&mut self.retired) {
            self.release(block);
        }
        self.end_round();
    }

    /// The round never happened: what it wrote is free, what it replaced is live again.
    pub fn abandon_round(&mut self) {
        self.retired.clear();
        for block in std::mem::take(&mut self.fresh) {
            self.release(block);
        }
        self.end_round();
    }

    fn end_round(&mut self) {
        self.cursor = 0;
        for at in 0..self.quarantined.len() {
            let block = self.quarantined[at];
            if !self.is_used(block) {
                self.mark_used(block);
            }
        }
    }

    /// False if the block is free. It must exist.
    #[must_use]
    pub fn is_used(&self, block: BlockNumber) -> bool {
        self.used[(block.0 / 64) as usize] >> (block.0 % 64) & 1 == 1
    }

    fn mark_used(&mut self, block: BlockNumber) {
        self.used[(block.0 / 64) as usize] |= 1 << (block.0 % 64);
        self.free -= 1;
    }

    /// Idempotent: a block discarded and allocated again in one round is in `fresh` twice.
    fn release(&mut self, block: BlockNumber) {
        if self.is_used(block) {
            self.used[(block.0 / 64) as usize] &= !(1 << (block.0 % 64));
            self.free += 1;
        }
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
        std::iter::from_fn(|| space.allocate()).map(|block| block.0).collect()
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
    fn replaced_blocks_are_free_only_after_the_round_is_committed() {
        let mut space = FreeSpace::new(3);
        assert_eq!(drain(&mut space), [1, 2]);
        space.commit_round();
        space.retire(BlockNumber(1));
        assert_eq!(space.allocate(), None, "F1");
        space.commit_round();
        assert_eq!(drain(&mut space), [1]);
    }

    #[test]
    fn an_abandoned_round_gives_back_what_it_took_and_keeps_what_it_replaced() {
        let mut space = FreeSpace::new(4);
        let live = space.allocate().expect("free");
        space.commit_round();
        space.retire(live);
        let fresh = space.allocate().expect("free");
        space.discard(fresh);
        assert_eq!(space.allocate(), Some(BlockNumber(3)), "the search goes on behind the last one");
        assert_eq!(space.allocate(), Some(fresh), "F2");
        space.abandon_round();
        assert_eq!(drain(&mut space), [2, 3]);
    }

    #[test]
    fn a_block_whose_write_failed_is_not_used_again() {
        let mut space = FreeSpace::new(3);
        let block = space.allocate().expect("free");
        space.quarantine(block);
        space.abandon_round();
        assert_eq!(drain(&mut space), [2]);
        space.commit_round();
        assert_eq!(space.free_blocks(), 0);
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
