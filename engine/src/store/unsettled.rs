//! Blocks that are in use and in no table: those with a writer, and those that nobody will ever know of.
//!
//! ```text
//!   new run ──▶ whole, moving ──first image recorded──▶ rest (what is left of a pack) ──last one──▶ (in a table, or free)
//!                 └──its write failed──▶ lost (F3), until the next open
//! ```
//!
//! With the tables, what is held, and what a round has in its hands they account for every reference to every block (F4): see `check`.

use super::PageStore;
use super::blocks::BlockNumber;
use crate::base::Result;
use crate::device::AlignedBuffer;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Bound;

/// With fewer lost blocks these may be all that is bad of the disk.
const TRIED_FROM: usize = 16;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Unsettled {
    /// None of its images has been recorded yet, nor all discarded.
    whole: HashSet<BlockNumber>,
    /// As `whole`, of images that only move: no page becomes clean for them, and what they replace comes back with the next checkpoint.
    moving: HashSet<BlockNumber>,
    /// Packs of which some images are recorded, and how many are not.
    rest: HashMap<BlockNumber, u8>,
    /// Their write failed.
    lost: BTreeSet<BlockNumber>,
    /// The one of these that was tried last.
    tried: BlockNumber,
}

impl Default for Unsettled {
    fn default() -> Unsettled {
        let (whole, moving, rest, lost) = Default::default();
        Unsettled { whole, moving, rest, lost, tried: BlockNumber(0) }
    }
}

impl Unsettled {
    /// A writer has these from now on; one that only `moves` images, or one of pages.
    pub(super) fn begin(&mut self, first: BlockNumber, blocks: u64, moves: bool) {
        let begun = if moves { &mut self.moving } else { &mut self.whole };
        begun.extend((first.0..first.0 + blocks).map(BlockNumber));
    }

    /// Nothing has become of the block; now something does.
    fn take_whole(&mut self, block: BlockNumber) -> bool {
        self.whole.remove(&block) || self.moving.remove(&block)
    }

    /// Something in a block is about to be in a table; `users` refer to the block now.
    pub(super) fn recorded(&mut self, block: BlockNumber, users: u8) {
        if !self.take_whole(block) {
            self.one_less(block);
        } else if users > 1 {
            self.rest.insert(block, users - 1);
        }
    }

    /// A writer had no use for something in a block, to which `users` refer still.
    pub(super) fn given_back(&mut self, block: BlockNumber, users: u8) {
        if users == 0 {
            self.take_whole(block);
        }
        self.one_less(block);
    }

    fn one_less(&mut self, block: BlockNumber) {
        if let Some(rest) = self.rest.get_mut(&block) {
            *rest -= 1;
            if *rest == 0 {
                self.rest.remove(&block);
            }
        }
    }

    /// The write of a block failed, or nobody knows whether it did: its bytes may still arrive (F3).
    pub(super) fn lose(&mut self, block: BlockNumber) {
        self.take_whole(block);
        self.lost.insert(block);
    }

    /// One lost block after the other, if there are many; after all of them none, once: the disk may take writes elsewhere only.
    fn next_to_try(&mut self) -> Option<BlockNumber> {
        if self.lost.len() < TRIED_FROM {
            return None;
        }
        let mut behind = self.lost.range((Bound::Excluded(self.tried), Bound::Unbounded));
        let next = behind.next().copied();
        self.tried = next.unwrap_or(BlockNumber(0));
        next
    }

    /// Blocks that come back, or for which a page becomes clean: none of their images is in a table yet.
    pub(super) fn coming_back(&self) -> u64 {
        self.whole.len() as u64
    }

    /// How many of the `users` of a block are here.
    pub(super) fn of(&self, block: BlockNumber, users: u8) -> u8 {
        let is_with_writer = self.whole.contains(&block) || self.moving.contains(&block);
        if is_with_writer || self.lost.contains(&block) {
            return users;
        }
        self.rest.get(&block).copied().unwrap_or(0)
    }
}

impl PageStore {
    /// Whether the disk takes writes again of which some have failed: writes to a block that such a write has lost, each time to another. Nobody
    /// refers to it, and nobody ever will before the next open (F3), so nothing more is lost if that fails, too. Without many such blocks it does nothing.
    ///
    /// # Errors
    /// I/O: it does not.
    pub fn try_lost_block(&self) -> Result<()> {
        let Some(block) = self.state.lock().unsettled.next_to_try() else { return Ok(()) };
        let nothing = AlignedBuffer::zeroed(self.page_bytes());
        self.source.file.write_at(block.0 * self.page_bytes() as u64, &nothing)
    }
}
