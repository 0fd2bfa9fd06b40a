//! Blocks that are in use and in no table: those with a writer, and those that nobody will ever know of.
//!
//! ```text
//!   new run ──▶ whole, moving ──first image recorded──▶ rest (what is left of a pack) ──last one──▶ (in a table, or free)
//!                 └──its write failed──▶ lost (F3), until the next open
//! ```
//!
//! With the tables, what is held, and what a round has in its hands they account for every reference to every block (F4): see `check`.

use super::blocks::BlockNumber;
use std::collections::{HashMap, HashSet};

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Unsettled {
    /// None of its images has been recorded yet, nor all discarded.
    whole: HashSet<BlockNumber>,
    /// As `whole`, of images that only move: no page becomes clean for them, and what they replace comes back with the next checkpoint.
    moving: HashSet<BlockNumber>,
    /// Packs of which some images are recorded, and how many are not.
    rest: HashMap<BlockNumber, u8>,
    /// Their write failed.
    lost: HashSet<BlockNumber>,
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

    /// Blocks that come back, or for which a page becomes clean: none of their images is in a table yet.
    pub(super) fn coming_back(&self) -> u64 {
        self.whole.len() as u64
    }

    /// How many of the `users` of a block are here.
    pub(super) fn of(&self, block: BlockNumber, users: u8) -> u8 {
        if [&self.whole, &self.moving, &self.lost].iter().any(|blocks| blocks.contains(&block)) {
            return users;
        }
        self.rest.get(&block).copied().unwrap_or(0)
    }
}
