//! What the store's lock protects: the images, the allocator, and the progress of the open
//! checkpoint.

use super::allocator::Allocator;
use super::allocator::ReservedFor;
use super::allocator::reserve::{Reserve, StoredBlocks};
use super::block::BlockRef;
use super::mapping::Images;
use super::yielding_lock::YieldingLock;
use crate::base::{Error, ErrorKind, PageId};
use std::collections::BTreeSet;

/// The progress of the open checkpoint (S3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// No checkpoint is open.
    Idle,
    /// Images are recorded.
    Writing,
    /// All images are recorded; the mapping is written and the manifest published.
    Finished,
    /// Finished, and it is unknown whether the manifest was published.
    Undecided,
    /// A flush failed.
    FlushFailed,
}

/// The progress of the search for images to relocate, so that each step continues where the last
/// one ended. Reset when a checkpoint begins.
#[derive(Debug, Default)]
pub(super) struct RelocationSearch {
    /// Images at or behind this block are wanted; `None` = images in sparse packs.
    bound: Option<u64>,
    pub(super) part: usize,
    /// Extents whose images were relocated.
    pub(super) extents: BTreeSet<u64>,
}

impl RelocationSearch {
    /// Returns the part to continue with; a search for another bound starts over.
    pub(super) fn part_for(&mut self, bound: Option<u64>) -> usize {
        if self.bound != bound {
            (self.bound, self.part) = (bound, 0);
        }
        self.part
    }
}

/// The open checkpoint and requests for the next one.
#[derive(Debug)]
pub(super) struct CheckpointState {
    pub(super) phase: Phase,
    /// The newest checkpoint epoch. A page has one image for each epoch.
    pub(super) epoch: u32,
    /// Why the phase is `Undecided` or `FlushFailed`.
    failure: Option<Error>,
    /// Unchanged parts of the mapping that the next checkpoint writes to other blocks.
    pub(super) relocating_parts: BTreeSet<usize>,
    pub(super) search: RelocationSearch,
    /// The next checkpoint would free blocks that clean pages need to leave memory.
    pub(super) is_wanted: bool,
    /// The number of replaced images at which the listener is notified next.
    notify_at: u64,
}

impl CheckpointState {
    fn new() -> CheckpointState {
        CheckpointState {
            phase: Phase::Idle,
            epoch: 0,
            failure: None,
            relocating_parts: BTreeSet::new(),
            search: RelocationSearch::default(),
            is_wanted: false,
            notify_at: 0,
        }
    }

    /// Opens the checkpoint of `epoch`.
    ///
    /// # Errors
    /// `Busy` while another checkpoint is open, `Poisoned` after S3 or S4 forbade further ones.
    pub(super) fn begin(&mut self, epoch: u32) -> Result<(), Error> {
        match self.phase {
            Phase::Idle => {
                (self.phase, self.epoch, self.notify_at) = (Phase::Writing, epoch, 0);
                self.search = RelocationSearch::default();
                Ok(())
            }
            Phase::Writing | Phase::Finished => {
                Err(Error::new(ErrorKind::Busy, "another checkpoint is being written"))
            }
            Phase::Undecided => {
                let what = "a manifest may or may not have been published, so no block can be reused";
                Err(self.refusal(what))
            }
            Phase::FlushFailed => Err(self.refusal("an earlier flush of the page store failed")),
        }
    }

    /// Images recorded from now on belong to the next checkpoint.
    pub(super) fn close(&mut self) {
        if self.phase == Phase::Writing {
            self.phase = Phase::Finished;
        }
    }

    /// Stops further checkpoints: a flush failed (S4).
    pub(super) fn flush_failed(&mut self, failure: &Error) {
        (self.phase, self.failure) = (Phase::FlushFailed, Some(failure.duplicate()));
    }

    /// Keeps the reason why it is unknown whether the manifest was published (S3).
    pub(super) fn publication_failed(&mut self, failure: &Error) {
        debug_assert!(
            !matches!(self.phase, Phase::Idle | Phase::Writing),
            "only a finished checkpoint is published"
        );
        self.failure = Some(failure.duplicate());
    }

    fn refusal(&self, what: &str) -> Error {
        match &self.failure {
            Some(failure) => Error::after(ErrorKind::Poisoned, what, failure),
            None => Error::new(ErrorKind::Poisoned, what),
        }
    }
}

/// The listener is notified again after this part of the blocks in use was replaced...
const NOTIFY_PART: u64 = 1024;
/// ... but at most once per so many images.
const NOTIFY_BLOCKS: u64 = 32;

/// See the module's text.
#[derive(Debug)]
pub(super) struct State {
    pub(super) images: Images,
    pub(super) blocks: Allocator,
    pub(super) checkpoint: CheckpointState,
}

/// The store's one lock.
pub(super) type StateLock = YieldingLock<State>;

impl State {
    pub(super) fn new(images: Images, blocks: Allocator) -> State {
        State { images, blocks, checkpoint: CheckpointState::new() }
    }

    /// Records the newest image of a page for the next checkpoint.
    pub(super) fn set_next(&mut self, page: PageId, reference: BlockRef) {
        let more_may_arrive = self.checkpoint.phase == Phase::Writing;
        let replaced = self.images.set_next(page, reference, more_may_arrive);
        self.release(replaced);
    }

    /// Records the image of a page in the open checkpoint.
    pub(super) fn set_in_checkpoint(&mut self, page: PageId, reference: BlockRef) {
        debug_assert!(self.checkpoint.phase == Phase::Writing, "a closed checkpoint takes no image");
        let replaced = self.images.set_in_checkpoint(page, reference);
        self.release(replaced);
    }

    /// Moves an image of an abandoned checkpoint to the next one.
    pub(super) fn take_back(&mut self, page: PageId, reference: BlockRef) {
        debug_assert!(self.checkpoint.phase != Phase::Writing, "only a closed checkpoint is taken back");
        let replaced = self.images.take_back(page, reference);
        self.release(replaced);
    }

    fn release(&mut self, replaced: Option<BlockRef>) {
        if let Some(replaced) = replaced {
            self.blocks.free.release(replaced.block());
        }
    }

    /// Returns whether to notify the listener of replaced images now.
    pub(super) fn is_notification_due(&mut self) -> bool {
        let replaced = self.images.replaced.next;
        if replaced < self.checkpoint.notify_at {
            return false;
        }
        self.checkpoint.notify_at = replaced + (self.used() / NOTIFY_PART).max(NOTIFY_BLOCKS);
        true
    }

    /// Blocks in use.
    pub(super) fn used(&self) -> u64 {
        self.blocks.free.bitmap.used_blocks()
    }

    /// The facts on which the bound of the reserve depends.
    pub(super) fn stored_blocks(&self) -> StoredBlocks {
        StoredBlocks {
            catalog: self.images.catalog_blocks.len() as u64,
            packed_beyond_first: self.blocks.free.fills.totals().beyond_first,
        }
    }

    /// Blocks in use and in the reserve: the length that the file needs now.
    pub(super) fn needed(&self, reserve: Option<&Reserve>) -> u64 {
        let demanded = |reserve: &Reserve| reserve.demanded(self.stored_blocks(), ReservedFor::NewPage);
        self.used() + reserve.map_or(0, demanded)
    }

    /// As [`State::needed`], or what was needed recently if that is more, but at most half more
    /// than now.
    pub(super) fn needed_recently(&self, reserve: Option<&Reserve>) -> u64 {
        let now = self.needed(reserve);
        self.blocks.need.blocks().clamp(now, now + now / 2)
    }
}
