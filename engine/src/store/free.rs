//! Free space: which blocks may be written.
//!
//! One bit per block, derived from the mapping at open and never stored. A block passes through these states:
//!
//! ```text
//!            allocate                round committed              replaced, and the round without it committed
//!   free ───────────────> fresh ──────────────────────> live ───────────────────────────────────────────────────┐
//!    ^                      │ nothing refers to it any more                                                      │
//!    ├──────────────────────┘                                                                                   │
//!    └───────────────────────── as soon as nobody has a checkpoint with it ───────────── held, with a tag ──────┘
//! ```
//!
//! A checkpoint is known by the generation of its manifest. Whoever has a checkpoint, in this process or another, pins its generation.
//! A block that was born with generation b and is not in generation n any more is needed by those who pin b to n - 1: so each holds
//! no more than its own checkpoint, however many come after it. Births are remembered only while somebody pins; a
//! block whose birth is not known is as old as anything that is pinned.
//!
//! # Invariants
//! - F1 (I8): a live block that a round replaces is released when the manifest without it is durable, and not while a
//!   checkpoint that may have it is held.
//! - F2: a fresh block is in no durable manifest; who allocated it may release it at any time.
//! - F3: a block whose write failed is never released; it is free again after the next open. Its bytes may still arrive.

use super::blocks::BlockNumber;
use std::collections::{BTreeMap, HashMap};

/// The bitmap.
#[derive(Debug, Default)]
pub struct FreeSpace {
    /// Bit set = in use. Bits at and above `blocks` do not exist.
    used: Vec<u64>,
    blocks: u64,
    free: u64,
    /// Where the next search begins; back at the front with each round, so that the file stays compact.
    cursor: u64,
    /// Generation of the last committed checkpoint.
    committed: u64,
    /// Checkpoints held in this process: generation, and how often.
    holds: BTreeMap<u64, usize>,
    /// Generations that readers in other processes had when they were looked at after the last commit. Those that came later have
    /// newer ones.
    readers: Vec<u64>,
    /// With which generation blocks were born, while anything was pinned.
    born: HashMap<BlockNumber, u64>,
    /// Replaced blocks that somebody may need.
    held: Vec<HeldBlock>,
}

#[derive(Debug)]
struct HeldBlock {
    block: BlockNumber,
    born: u64,
    /// The first generation without it.
    gone: u64,
}

impl HeldBlock {
    fn is_read_in(&self, generation: u64) -> bool {
        generation < self.gone && (self.born <= generation || generation == READS_ANYTHING)
    }
}

/// A reader of which it is not known what it reads: it needs every block.
pub const READS_ANYTHING: u64 = 0;

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
        self.cursor = self.cursor.min(blocks);
    }

    /// Searches begin at the front again.
    pub fn rewind(&mut self) {
        self.cursor = 0;
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

    /// The first free block in `from..to`, if there is one.
    pub fn allocate_between(&mut self, from: u64, to: u64) -> Option<BlockNumber> {
        let block = self.find(from, to.min(self.blocks))?;
        self.mark_used(block);
        Some(block)
    }

    /// Gives back a block that nothing refers to (F2).
    pub fn release(&mut self, block: BlockNumber) {
        debug_assert!(self.is_used(block), "released twice");
        if self.is_used(block) {
            self.used[(block.0 / 64) as usize] &= !(1 << (block.0 % 64));
            self.free += 1;
        }
    }

    /// The checkpoint of manifest `generation` is durable, and since then `readers` were found to be what is read in other
    /// processes.
    pub fn committed(&mut self, generation: u64, readers: Vec<u64>) {
        debug_assert!(generation >= self.committed);
        self.committed = generation;
        self.set_readers(readers);
    }

    /// Generation of the last committed checkpoint.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.committed
    }

    /// The generations that are read in other processes now.
    pub fn set_readers(&mut self, readers: Vec<u64>) {
        self.readers = readers;
        self.readers.sort_unstable();
        self.readers.dedup();
        self.give_back();
    }

    /// Whether blocks may be held because of readers in other processes.
    #[must_use]
    pub fn waits_for_readers(&self) -> bool {
        !self.held.is_empty() && !self.readers.is_empty()
    }

    /// Blocks that are in no checkpoint but older ones.
    #[must_use]
    pub fn held_blocks(&self) -> u64 {
        self.held.len() as u64
    }

    /// The checkpoint committed last is the first with this block.
    pub fn note_birth(&mut self, block: BlockNumber) {
        if !self.holds.is_empty() || !self.readers.is_empty() {
            self.born.insert(block, self.committed);
        }
    }

    /// Gives back a block that the checkpoint committed last is the first not to have (F1).
    pub fn release_live(&mut self, block: BlockNumber) {
        let held = HeldBlock { block, born: self.born.remove(&block).unwrap_or(0), gone: self.committed };
        if self.is_needed(&held) {
            self.held.push(held);
        } else {
            self.release(block);
        }
    }

    /// Every free block may belong to a checkpoint that was there before this process.
    pub fn hold_all_free(&mut self) {
        let gone = self.committed;
        while let Some((first, len)) = self.allocate_run(u64::MAX) {
            for number in first.0..first.0 + len {
                self.held.push(HeldBlock { block: BlockNumber(number), born: 0, gone });
            }
        }
        self.rewind();
    }

    /// Keeps the blocks of the last committed checkpoint; returns its generation.
    #[must_use = "to end it"]
    pub fn hold(&mut self) -> u64 {
        *self.holds.entry(self.committed).or_default() += 1;
        self.committed
    }

    /// Ends one [`FreeSpace::hold`] of a generation.
    pub fn end_hold(&mut self, generation: u64) {
        let count = self.holds.get_mut(&generation).expect("every hold ends once");
        *count -= 1;
        if *count == 0 {
            self.holds.remove(&generation);
            self.give_back();
        }
    }

    fn is_needed(&self, held: &HeldBlock) -> bool {
        let by_readers = self.readers.iter().any(|reader| held.is_read_in(*reader));
        by_readers || self.holds.range(held.born..held.gone).next().is_some()
    }

    fn give_back(&mut self) {
        for held in std::mem::take(&mut self.held) {
            if self.is_needed(&held) {
                self.held.push(held);
            } else {
                self.release(held.block);
            }
        }
        if self.holds.is_empty() && self.readers.is_empty() {
            self.born = HashMap::new();
        }
    }

    /// Whether a block is in use; those behind the end are not.
    #[must_use]
    pub fn is_used(&self, block: BlockNumber) -> bool {
        self.used.get((block.0 / 64) as usize).is_some_and(|word| word >> (block.0 % 64) & 1 == 1)
    }

    fn mark_used(&mut self, block: BlockNumber) {
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
    fn live_blocks_are_kept_while_a_checkpoint_with_them_is_held() {
        let mut space = FreeSpace::new(4);
        assert_eq!(drain(&mut space), [1, 2, 3]);
        let (first, again) = (space.hold(), space.hold());
        space.committed(5, Vec::new());
        space.release_live(BlockNumber(1));
        let second = space.hold();
        space.committed(6, Vec::new());
        space.release_live(BlockNumber(2));
        space.end_hold(first);
        assert_eq!((space.allocate_run(1), space.held_blocks()), (None, 2), "F1");
        space.end_hold(again);
        assert_eq!(drain(&mut space), [1], "the second does not have it");
        space.end_hold(second);
        assert_eq!(drain(&mut space), [2]);
        space.release_live(BlockNumber(3));
        assert_eq!(drain(&mut space), [3]);
    }

    #[test]
    fn live_blocks_are_kept_for_readers_of_older_checkpoints() {
        let mut space = FreeSpace::new(3);
        drain(&mut space);
        space.committed(7, vec![6]);
        space.release_live(BlockNumber(1));
        let held = space.hold();
        space.committed(8, vec![6]);
        space.release_live(BlockNumber(2));
        assert!(space.waits_for_readers());
        space.set_readers(vec![7]);
        assert_eq!(drain(&mut space), [1]);
        space.set_readers(Vec::new());
        assert!(space.allocate_run(1).is_none() && !space.waits_for_readers(), "held in this process");
        space.end_hold(held);
        assert_eq!(drain(&mut space), [2]);
    }

    #[test]
    fn a_reader_holds_no_more_than_its_checkpoint() {
        let mut space = FreeSpace::new(100);
        let mut live = space.allocate_run(1).expect("free").0;
        let mut catalog = space.allocate_run(1).expect("free").0;
        space.committed(1, Vec::new());
        // A reader that is understood, one hold of this process, and later a reader that is not understood.
        let mut held = None;
        for generation in 2..20 {
            let readers = match generation {
                2..4 => vec![],
                4..15 => vec![3],
                _ => vec![3, READS_ANYTHING],
            };
            space.committed(generation, readers);
            for block in [&mut live, &mut catalog] {
                let new = space.allocate_run(1).expect("free").0;
                space.release_live(std::mem::replace(block, new));
                space.note_birth(new);
            }
            if generation == 8 {
                held = Some(space.hold());
            }
            let expected = match generation {
                2..4 => 0,
                4..9 => 2,
                9..15 => 4,
                _ => 4 + 2 * (generation - 14),
            };
            assert_eq!(space.held_blocks(), expected, "generation {generation}");
        }
        space.set_readers(vec![3]);
        assert_eq!(space.held_blocks(), 4);
        space.end_hold(held.expect("held"));
        assert_eq!(space.held_blocks(), 2);
        space.set_readers(Vec::new());
        assert_eq!((space.held_blocks(), space.free_blocks()), (0, 97));
    }

    #[test]
    fn what_was_free_at_open_may_belong_to_earlier_readers() {
        let mut space = FreeSpace::new(70);
        assert!(space.claim(BlockNumber(9)));
        space.committed(20, vec![18]);
        space.hold_all_free();
        assert_eq!((space.free_blocks(), space.held_blocks(), space.used_end()), (0, 68, 70));
        space.extend(71);
        assert_eq!(drain(&mut space), [70]);
        space.set_readers(vec![20]);
        assert_eq!(drain(&mut space).len(), 68);
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
    fn a_block_can_be_claimed_once_and_only_if_it_exists() {
        let mut space = FreeSpace::new(3);
        assert!(!space.claim(BlockNumber(0)));
        assert!(space.claim(BlockNumber(2)));
        assert!(!space.claim(BlockNumber(2)));
        assert!(!space.claim(BlockNumber(3)));
    }
}
