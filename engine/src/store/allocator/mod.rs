//! The allocator: which blocks are free, in use, held for older checkpoints, or in flight, and how
//! many must stay free. All of it lives in memory, under the store's lock.

pub mod extents;
pub mod bitmap;
pub mod creation;
pub mod fill;
pub mod pins;
pub mod free;
pub mod holders;
pub mod in_flight;
pub mod need;
pub mod reserve;

pub use reserve::{Demand, ReservedFor};

use super::block::BlockNumber;
use crate::base::Error;
use crate::base::clock::Nanos;
use crate::device::SpaceRefusal;
use free::FreeSpace;
use in_flight::InFlightBlocks;
use need::RecentNeed;
use std::collections::BTreeSet;

/// The last time that the file could not grow; cleared when it can.
#[derive(Debug)]
pub(super) struct DiskFull {
    pub(super) error: Error,
    pub(super) asked: SpaceRefusal,
    /// When the first of the refusals came that have come in a row.
    pub(super) since: Nanos,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Allocator {
    pub(super) free: FreeSpace,
    /// Allocated blocks that are in no table.
    pub(super) in_flight: InFlightBlocks,
    /// The length of the file that was needed recently.
    pub(super) need: RecentNeed,
    /// The disk was full when the file had to grow last.
    pub(super) full: Option<DiskFull>,
    /// When the disk last refused space.
    pub(super) refused: Option<Nanos>,
    /// Blocks by which the file grows at most: few after a refusal, then more and more.
    pub(super) step_max: u64,
    /// The log needs disk space that pages can spare after the next checkpoint.
    pub(super) log_needs_space: bool,
    /// A checkpoint epoch, and the blocks that were left to that checkpoint when the file last grew
    /// for pages beside it.
    pub(super) left_to_checkpoint: Option<(u32, u64)>,
}

impl Allocator {
    pub(super) fn new(free: FreeSpace) -> Allocator {
        let (in_flight, need) = (InFlightBlocks::default(), RecentNeed::default());
        Allocator {
            free,
            in_flight,
            need,
            full: None,
            refused: None,
            step_max: u64::MAX,
            log_needs_space: false,
            left_to_checkpoint: None,
        }
    }

    /// A block, or an image in one, leaves its writer and is about to enter a table.
    pub(super) fn settle(&mut self, block: BlockNumber) {
        self.in_flight.recorded(block, self.free.fills.live(block));
        self.free.fills.note_change(block);
    }

    /// A writer returns a block, or discards one of its images.
    pub(super) fn discard(&mut self, block: BlockNumber) {
        self.free.release(block);
        self.in_flight.discarded(block, self.free.fills.live(block));
    }

    /// A writer returns a block that it has not written.
    pub(super) fn give_back(&mut self, block: BlockNumber) {
        self.discard(block);
        if let Some(extents) = &mut self.free.bitmap.extents {
            extents.give_back(block);
        }
    }

    /// Returns extents of which at most half is in use, with about `most` images that can be
    /// relocated, or one extent if that has more. Without extents that are among `others`, or that
    /// relocating cannot free because of blocks that are held or with a writer.
    pub(super) fn sparse_extents(&self, others: &BTreeSet<u64>, most: u64) -> BTreeSet<u64> {
        let (mut found, mut images) = (BTreeSet::new(), 0);
        let Some(extents) = &self.free.bitmap.extents else { return found };
        for extent in extents.sparse().into_iter().filter(|extent| !others.contains(extent)) {
            let start = extent * extents.len();
            let blocks = (start..start + extents.len()).map(BlockNumber);
            let mut live = 0;
            let is_movable = blocks.filter(|block| self.free.bitmap.is_used(*block)).all(|block| {
                let users = self.free.fills.live(block);
                live += u64::from(users);
                !self.free.fills.has_held(block) && self.in_flight.references_to(block, users) == 0
            });
            if !is_movable {
                continue;
            }
            images += live;
            if images > most && !found.is_empty() {
                break;
            }
            found.insert(extent);
        }
        found
    }

    /// Blocks that can be written: free, or with a writer that may return them.
    pub(super) fn available(&self) -> u64 {
        self.free.bitmap.free_blocks() + self.in_flight.returning()
    }

    /// Cuts the tables to `blocks` blocks.
    pub(super) fn cut(&mut self, blocks: u64) {
        self.free.cut(blocks);
        self.full = None;
    }
}
