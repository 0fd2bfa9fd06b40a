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
//!    └───────────────────────── as soon as nobody has a checkpoint with it ───────────── held ◀────────────────┘
//! ```
//!
//! A checkpoint is known by the generation of its manifest. Whoever has a checkpoint, in this process or another, pins its generation.
//! What was born with generation b and is not in generation n any more is needed by those who pin b to n - 1: so each holds
//! no more than its own checkpoint, however many come after it. Births are remembered only while somebody pins; what has
//! no known birth is as old as anything that is pinned. Images of one pack are born and replaced at different times, so births are
//! those of images, and an image that is held keeps its block; a block is held when nothing but such images keeps it.
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
use super::lock::looked_at;
use crate::base::PageId;
use crate::base::planted::{self, Bug};
use std::collections::{BTreeMap, HashMap};

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
    /// The same of searches for images that move.
    moved_to: u64,
    /// Generation of the last committed checkpoint.
    committed: u64,
    /// Checkpoints held in this process: generation, and how often.
    holds: BTreeMap<u64, usize>,
    /// Generations that readers in other processes had when they were looked at after the last commit. Those that came later have
    /// newer ones.
    readers: Vec<u64>,
    /// With which generation things were born, while anything was pinned.
    born: HashMap<Content, u64>,
    /// Replaced things that somebody may need.
    held: Vec<Held>,
}

/// What a checkpoint has in a block. It has one image of a page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Content {
    Image(PageId),
    Other(BlockNumber),
}

/// Something that keeps a block in use for older checkpoints.
#[derive(Debug)]
struct Held {
    block: BlockNumber,
    born: u64,
    /// The first generation without it.
    gone: u64,
}

impl Held {
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
        (self.cursor, self.moved_to) = (0, 0);
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
        let held = self.held.capacity() * size_of::<Held>();
        let born = self.born.capacity() * size_of::<(Content, u64)>();
        self.used.capacity() as u64 * 8 + self.fills.memory_bytes() + (held + born) as u64
    }

    /// At most `most` free blocks side by side, at least one, or `None` if the file must grow first.
    pub fn allocate_run(&mut self, most: u64) -> Option<(BlockNumber, u64)> {
        let run = self.take_run(self.cursor, self.blocks, most)?;
        self.cursor = run.0.0 + run.1;
        Some(run)
    }

    /// As [`FreeSpace::allocate_run`], of blocks before `bound`, for images that move there.
    pub fn allocate_before(&mut self, bound: u64, most: u64) -> Option<(BlockNumber, u64)> {
        let run = self.take_run(self.moved_to, bound, most)?;
        self.moved_to = run.0.0 + run.1;
        Some(run)
    }

    /// Of blocks before `end`; the search begins at `from`, and goes on at the front.
    fn take_run(&mut self, from: u64, end: u64, most: u64) -> Option<(BlockNumber, u64)> {
        if self.free == 0 || most == 0 {
            return None;
        }
        let end = end.min(self.blocks);
        let first = self.find(from, end).or_else(|| self.find(0, from.min(end)))?;
        let end = end.min(first.0.saturating_add(most));
        let mut len = 0;
        while first.0 + len < end && !self.is_used(BlockNumber(first.0 + len)) {
            self.mark_used(BlockNumber(first.0 + len));
            len += 1;
        }
        Some((first, len))
    }

    /// Gives back a block that nothing refers to (F2), or an image of a pack: then the block is free with the last one.
    pub fn release(&mut self, block: BlockNumber) {
        debug_assert!(self.is_used(block), "released twice");
        if self.is_used(block) && self.fills.release(block) {
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
        self.fills.held_blocks()
    }

    /// The block of each replaced thing that somebody may need: once for each.
    pub fn held(&self) -> impl Iterator<Item = BlockNumber> + '_ {
        self.held.iter().map(|held| held.block)
    }

    /// The checkpoint committed last is the first with this block, which holds no images.
    pub fn note_birth(&mut self, block: BlockNumber) {
        self.note(Content::Other(block));
    }

    /// The checkpoint committed last is the first with this image of the page. The one before, if any, was released.
    pub fn note_image(&mut self, page: PageId) {
        self.note(Content::Image(page));
    }

    fn note(&mut self, content: Content) {
        if !self.holds.is_empty() || !self.readers.is_empty() {
            self.born.insert(content, self.committed);
        }
    }

    /// Gives back a block that the checkpoint committed last is the first not to have (F1).
    pub fn release_live(&mut self, block: BlockNumber) {
        self.replaced(Content::Other(block), block);
    }

    /// As [`FreeSpace::release_live`], the image of a page, which shares its block perhaps.
    pub fn release_image(&mut self, page: PageId, block: BlockNumber) {
        self.replaced(Content::Image(page), block);
    }

    fn replaced(&mut self, content: Content, block: BlockNumber) {
        let born = self.born.remove(&content).unwrap_or(0);
        let held = Held { block, born, gone: self.committed };
        if self.is_needed(&held) {
            self.keep(held);
        } else {
            self.release(block);
        }
    }

    fn keep(&mut self, held: Held) {
        self.fills.hold(held.block);
        self.held.push(held);
    }

    /// Every free block may belong to a checkpoint that was there before this process.
    pub fn hold_all_free(&mut self) {
        let gone = self.committed;
        while let Some((first, len)) = self.allocate_run(u64::MAX) {
            for number in first.0..first.0 + len {
                self.keep(Held { block: BlockNumber(number), born: 0, gone });
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

    fn is_needed(&self, held: &Held) -> bool {
        let by_readers = self.readers.iter().any(|reader| held.is_read_in(*reader));
        by_readers && !planted::is(Bug::ReadersNotAsked)
            || self.holds.range(held.born..held.gone).next().is_some()
                && !planted::is(Bug::BackupHoldsNothing)
    }

    fn give_back(&mut self) {
        for held in std::mem::take(&mut self.held) {
            looked_at(1);
            if self.is_needed(&held) {
                self.held.push(held);
            } else {
                self.fills.end_hold(held.block);
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
        self.fills.occupy(block);
        self.used[(block.0 / 64) as usize] |= 1 << (block.0 % 64);
        self.free -= 1;
    }

    /// First free block in `from..to`.
    fn find(&self, from: u64, to: u64) -> Option<BlockNumber> {
        let mut at = from;
        while at < to {
            looked_at(1);
            let word = self.used[(at / 64) as usize] >> (at % 64);
            if word & 1 == 0 {
                return Some(BlockNumber(at));
            }
            at += u64::from(word.trailing_ones());
        }
        None
    }
}
