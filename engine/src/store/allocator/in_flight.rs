//! In-flight blocks: allocated, but not in a table yet, or leaked by a failed write.
//!
//! ```text
//!   new run ──▶ unwritten, relocating ──first image recorded──▶ partial (rest of a pack) ──last one──▶ (in a table, or free)
//!                 └──its write failed──▶ leaked (F3), until the next open
//! ```
//!
//! Tables, held content, in-flight blocks and the blocks of an open checkpoint together account for
//! every reference to every block (F4): see `check`.

use super::super::block::BlockNumber;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Bound;

/// Retries begin with so many leaked blocks. Fewer may be the only bad blocks of the disk.
const RETRY_FROM: usize = 16;

/// See the module's text.
#[derive(Debug)]
pub struct InFlightBlocks {
    /// No image of the block was recorded yet, nor all discarded.
    unwritten: HashSet<BlockNumber>,
    /// As `unwritten`, for images that only change their place: no page becomes clean, and the
    /// blocks that they replace are freed with the next checkpoint.
    relocating: HashSet<BlockNumber>,
    /// Packs with recorded images, and how many images are not recorded.
    partial: HashMap<BlockNumber, u8>,
    /// Blocks whose write failed.
    leaked: BTreeSet<BlockNumber>,
    /// The leaked block that was retried last.
    retried: BlockNumber,
}

impl Default for InFlightBlocks {
    fn default() -> InFlightBlocks {
        let (unwritten, relocating, partial, leaked) = Default::default();
        InFlightBlocks { unwritten, relocating, partial, leaked, retried: BlockNumber(0) }
    }
}

impl InFlightBlocks {
    /// Gives a run of blocks to a writer, which only `relocates` images or writes new ones.
    pub fn begin(&mut self, first: BlockNumber, blocks: u64, relocates: bool) {
        debug_assert!(first.0 > 0 && blocks > 0, "the file's header is never written as an image");
        debug_assert!(
            (first.0..first.0 + blocks).map(BlockNumber).all(|block| {
                !self.unwritten.contains(&block)
                    && !self.relocating.contains(&block)
                    && !self.partial.contains_key(&block)
            }),
            "a block is written by one writer"
        );
        let begun = if relocates { &mut self.relocating } else { &mut self.unwritten };
        begun.extend((first.0..first.0 + blocks).map(BlockNumber));
    }

    fn take_unwritten(&mut self, block: BlockNumber) -> bool {
        self.unwritten.remove(&block) || self.relocating.remove(&block)
    }

    /// An image in a block is about to enter a table; `users` refer to the block now.
    pub fn recorded(&mut self, block: BlockNumber, users: u8) {
        debug_assert!(users > 0, "a block that an image is recorded in has a user");
        debug_assert!(users > 0, "a block that an image is recorded in has a user");
        if !self.take_unwritten(block) {
            self.decrement(block);
        } else if users > 1 {
            self.partial.insert(block, users - 1);
        }
    }

    /// A writer discarded an image in a block, to which `users` still refer.
    pub fn discarded(&mut self, block: BlockNumber, users: u8) {
        if users == 0 {
            self.take_unwritten(block);
        }
        self.decrement(block);
    }

    fn decrement(&mut self, block: BlockNumber) {
        if let Some(images) = self.partial.get_mut(&block) {
            *images -= 1;
            if *images == 0 {
                self.partial.remove(&block);
            }
        }
    }

    /// The write of a block failed, or its result is unknown: its bytes may still arrive (F3).
    pub fn leak(&mut self, block: BlockNumber) {
        debug_assert!(!self.partial.contains_key(&block), "an image of a lost write is not recorded");
        debug_assert!(!self.partial.contains_key(&block), "an image of a lost write is not recorded");
        self.take_unwritten(block);
        self.leaked.insert(block);
    }

    /// Returns the leaked blocks one after the other if there are many; after the last one `None`
    /// once, because the disk may accept writes elsewhere only.
    pub fn next_to_retry(&mut self) -> Option<BlockNumber> {
        if self.leaked.len() < RETRY_FROM {
            return None;
        }
        let mut behind = self.leaked.range((Bound::Excluded(self.retried), Bound::Unbounded));
        let next = behind.next().copied();
        self.retried = next.unwrap_or(BlockNumber(0));
        next
    }

    /// Blocks that are returned, or make a page clean: none of their images is in a table yet.
    #[must_use]
    pub fn returning(&self) -> u64 {
        self.unwritten.len() as u64
    }

    /// How many of the `users` of a block are in flight or leaked.
    #[must_use]
    pub fn references_to(&self, block: BlockNumber, users: u8) -> u8 {
        let is_with_writer = self.unwritten.contains(&block) || self.relocating.contains(&block);
        if is_with_writer || self.leaked.contains(&block) {
            return users;
        }
        self.partial.get(&block).copied().unwrap_or(0)
    }
}
