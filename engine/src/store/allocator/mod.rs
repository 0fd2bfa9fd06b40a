//! The allocator: which blocks are free, in use, held for older checkpoints, or in flight, and how
//! many must stay free. All of it lives in memory, under the store's lock.

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

/// The last time that the file could not grow; cleared when it can.
#[derive(Debug)]
pub(super) struct DiskFull {
    pub(super) error: Error,
    pub(super) asked: SpaceRefusal,
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
    /// A checkpoint epoch, and the blocks that were left to that checkpoint when the file last grew
    /// for pages beside it.
    pub(super) left_to_checkpoint: Option<(u32, u64)>,
}

impl Allocator {
    pub(super) fn new(free: FreeSpace) -> Allocator {
        let (in_flight, need) = (InFlightBlocks::default(), RecentNeed::default());
        Allocator { free, in_flight, need, full: None, refused: None, left_to_checkpoint: None }
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
