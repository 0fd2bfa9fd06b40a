//! The page store: look-ups and records of page images.

use super::allocator::Allocator;
use super::allocator::extents::Extents;
use super::blob::{self, BlobRef};
use super::block::{BlockKind, BlockRef};
use super::block_file::{BlockFile, StoredImage};
use super::disk_space::{DiskSpace, HeldBlocks};
use super::manifest::{ReaderSlot, Readers};
use super::mapping::Images;
use super::pack::{PackUsage, Packing};
use super::state::{Phase, State, StateLock};
use crate::base::settings::Compression;
use crate::base::{Account, Csn, PageId, Result};
use crate::device::AlignedBuffer;
use crate::device::counted::Traffic;
use crate::sync::atomic::Ordering;
use crate::sync::{Mutex, MutexGuard};
use std::sync::Arc;

/// Dead blocks may be one for so many blocks in use.
const DEAD_PART: u64 = 3;

/// Numbers for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StoreUsage {
    /// Pages with an image in the last committed checkpoint.
    pub pages: u64,
    /// Blocks of the file.
    pub blocks: u64,
    /// Blocks that can be allocated.
    pub free_blocks: u64,
    /// Blocks that are neither in use nor can be allocated before the rest of their extent is free.
    pub dead_blocks: u64,
    /// Used blocks that only pinned older checkpoints contain.
    pub held_blocks: u64,
    /// Images for the next checkpoint.
    pub next: u64,
    /// Images of the open checkpoint.
    pub in_checkpoint: u64,
    /// Images of the last checkpoint whose pages have newer ones; the next checkpoint frees them.
    pub replaced: u64,
    /// Length of a block.
    pub block_bytes: usize,
}

impl StoreUsage {
    /// Blocks in use.
    #[must_use]
    pub fn used_blocks(&self) -> u64 {
        self.blocks - self.free_blocks - self.dead_blocks
    }

    /// Returns whether dead blocks are so many that images should be relocated.
    #[must_use]
    pub fn is_sparse(&self) -> bool {
        self.dead_blocks * DEAD_PART > self.used_blocks()
    }
}

/// The page images of one database.
#[derive(Debug)]
pub struct PageStore {
    pub(super) file: Arc<BlockFile>,
    pub(super) packing: Packing,
    pub(super) state: Arc<StateLock>,
    pub(super) space: Arc<DiskSpace>,
    /// Keeps the blocks that a store reads as of a checkpoint, beside a writer.
    slot: Mutex<Option<ReaderSlot>>,
}

impl PageStore {
    /// Length of a page and of a block.
    #[must_use]
    pub fn page_bytes(&self) -> usize {
        self.file.page_bytes
    }

    /// The length of the file and its reserve.
    #[must_use]
    pub fn disk_space(&self) -> &DiskSpace {
        &self.space
    }

    /// Reads and writes of the file since it was opened: faults, checkpoints, the mapping, the
    /// catalog.
    #[must_use]
    pub fn traffic(&self) -> &Traffic {
        &self.file.traffic
    }

    /// The root of the last committed checkpoint.
    #[cfg(test)]
    pub fn root(&self) -> super::manifest::StoreRoot {
        let state = self.state.lock();
        super::manifest::StoreRoot {
            directory: state.images.mapping.directory().to_vec(),
            pages: state.images.mapping.pages(),
            catalog: state.images.catalog,
            codecs: self.packing.codecs(),
        }
    }

    /// Pages and blocks in use.
    #[must_use]
    pub fn usage(&self) -> StoreUsage {
        let state = self.state.lock();
        let State { images, blocks, .. } = &*state;
        StoreUsage {
            pages: images.mapping.pages(),
            blocks: blocks.free.bitmap.blocks(),
            free_blocks: blocks.free.bitmap.free_blocks(),
            dead_blocks: blocks.free.bitmap.dead_blocks(),
            held_blocks: blocks.free.fills.held_blocks(),
            next: images.next.len(),
            in_checkpoint: images.in_checkpoint.len(),
            replaced: images.replaced.next + images.replaced.in_checkpoint,
            block_bytes: self.file.page_bytes,
        }
    }

    /// Charges large buffers, and tables for pinned checkpoints, to `memory` from now on. Once.
    pub fn charge_to(&self, memory: &Arc<Account>) {
        let _ = self.file.memory.set(memory.clone());
        self.state.lock().blocks.free.charge_to(memory);
    }

    /// Sets, once, how new images are compressed; before that they are not.
    pub fn compress(&self, compression: Compression) {
        self.packing.set_compression(compression);
    }

    /// How new images are compressed.
    #[must_use]
    pub fn compression(&self) -> Compression {
        self.packing.compression()
    }

    /// Returns what compression has saved, and the packs in the file.
    #[must_use]
    pub fn packs(&self) -> PackUsage {
        let totals = self.state.lock().blocks.free.fills.totals();
        self.packing.usage(totals, self.page_bytes() as u64)
    }

    /// Returns whether [`PageStore::read_page`] would read an image of `page`.
    #[must_use]
    pub fn contains(&self, page: PageId) -> bool {
        !self.state.lock().images.look_up(page).is_absent()
    }

    /// Ids of the pages of the last committed checkpoint, ascending; for use before the next
    /// checkpoint.
    pub fn page_ids(&self) -> impl Iterator<Item = PageId> + '_ {
        let parts = self.state.lock().images.mapping.part_count();
        (0..parts).flat_map(move |part| self.state.lock().images.mapping.page_ids(part))
    }

    /// Returns every page of the last committed checkpoint, ascending, and where its image is.
    #[must_use]
    pub fn references(&self) -> Vec<(PageId, BlockRef)> {
        let state = self.state.lock();
        let mapping = &state.images.mapping;
        let pages = (0..mapping.part_count()).flat_map(|part| mapping.page_ids(part));
        pages.map(|page| (page, mapping.get(page))).collect()
    }

    /// Returns at most `most` pages of the last committed checkpoint from all over it. Examines at
    /// most `most` parts of the mapping.
    #[must_use]
    pub fn sample_pages(&self, most: usize) -> Vec<PageId> {
        let parts = self.state.lock().images.mapping.part_count();
        let examined = parts.min(most);
        let each = most.div_ceil(examined.max(1));
        let sample = (0..examined).flat_map(|at| {
            let pages = self.state.lock().images.mapping.page_ids(at * parts / examined);
            let step = pages.len().div_ceil(each).max(1);
            pages.into_iter().step_by(step)
        });
        sample.take(most).collect()
    }

    /// Records the newest image of `page`. It belongs to the next checkpoint, and also to the open
    /// one if `in_checkpoint`. The caller holds the page exclusively.
    pub fn record(&self, page: PageId, reference: BlockRef, in_checkpoint: bool) {
        self.record_locked(self.state.lock(), page, reference, in_checkpoint);
    }

    /// As [`PageStore::record`], for the image of a clean page; returns false, and records nothing,
    /// if its block belongs to the reserve by now.
    #[must_use]
    pub fn record_clean(&self, page: PageId, reference: BlockRef, in_checkpoint: bool) -> bool {
        let state = self.state.lock();
        let may_record = self.space.may_record_clean(&state);
        if may_record {
            self.record_locked(state, page, reference, in_checkpoint);
        }
        may_record
    }

    fn record_locked(
        &self,
        mut state: MutexGuard<'_, State>,
        page: PageId,
        reference: BlockRef,
        in_checkpoint: bool,
    ) {
        state.blocks.settle(reference.block());
        if in_checkpoint && state.checkpoint.phase == Phase::Writing {
            state.set_in_checkpoint(page, reference);
        } else {
            state.set_next(page, reference);
        }
        let notify = state.is_notification_due();
        drop(state);
        if notify {
            self.space.on_replaced.notify();
        }
    }

    /// Records that `page`, last imaged or created in checkpoint `epoch`, was freed: from the open
    /// checkpoint on if it has no image in that, otherwise from the next one on. The caller holds
    /// the page exclusively.
    pub fn freed(&self, page: PageId, epoch: u32) {
        let mut state = self.state.lock();
        if state.checkpoint.phase == Phase::Writing && epoch < state.checkpoint.epoch {
            state.set_in_checkpoint(page, BlockRef::ABSENT);
        } else {
            state.set_next(page, BlockRef::ABSENT);
        }
    }

    /// Returns the block of an image that was not recorded.
    pub fn discard(&self, reference: BlockRef) {
        self.state.lock().blocks.discard(reference.block());
    }

    /// Keeps every block of the last durable checkpoint until the result is dropped.
    #[must_use]
    pub fn hold(&self) -> HeldBlocks {
        self.space.hold()
    }

    /// Ends writing and growing: another owner may have the file, though this store may still read.
    pub fn release(&self) {
        {
            // Before another owner can write a block, and while the file does not grow.
            let _state = self.state.lock();
            self.file.release();
        }
        self.file.file.unclaim();
    }

    /// Lets the writer reuse the blocks of the checkpoint that this store reads, if it is beside a
    /// writer. A read that is under way may fail.
    pub fn release_checkpoint(&self) {
        self.file.is_held.store(false, Ordering::SeqCst);
        drop(self.slot.lock().take());
    }

    /// Reads a blob that a committed checkpoint wrote.
    ///
    /// # Errors
    /// `Corruption` with the place; I/O.
    pub fn read_blob(&self, blob: &BlobRef) -> Result<Vec<u8>> {
        blob::read(&self.file, blob).map(|(bytes, _)| bytes)
    }

    /// Reads the images that `wanted` names, in the order of the file, verifies each, and calls
    /// `visit` with it.
    ///
    /// # Errors
    /// `Corruption` with the page; I/O; errors of `visit`.
    pub fn visit_images(
        &self,
        wanted: &[(PageId, BlockRef)],
        visit: &mut dyn FnMut(&StoredImage<'_>) -> Result<()>,
    ) -> Result<()> {
        self.file.visit_images(wanted, visit)
    }

    /// Seals `image` and writes it to a free block, which stays in use if this fails (F3).
    pub(super) fn write_block(
        &self,
        kind: BlockKind,
        subject: u64,
        image: &mut AlignedBuffer,
        csn: Csn,
    ) -> Result<BlockRef> {
        let (state, (block, _)) = self.space.await_run(1, 0)?;
        drop(state);
        let written = self.file.write_block(self.file.identity(kind, subject), image, csn, block);
        written.inspect_err(|_| self.state.lock().blocks.in_flight.leak(block))
    }

    pub(super) fn with(
        file: BlockFile,
        images: Images,
        blocks: Allocator,
        packing: Packing,
        readers: Option<Readers>,
        slot: Option<ReaderSlot>,
    ) -> PageStore {
        file.is_held.store(slot.is_some(), Ordering::SeqCst);
        let file = Arc::new(file);
        let extent_blocks = blocks.free.bitmap.extents.as_ref().map(Extents::len);
        let state = Arc::new(StateLock::new(State::new(images, blocks)));
        let space = Arc::new(DiskSpace {
            file: file.clone(),
            state: state.clone(),
            reserve: Default::default(),
            on_replaced: Default::default(),
            extent_blocks,
            readers,
        });
        PageStore { file, packing, state, space, slot: Mutex::new(slot) }
    }
}
