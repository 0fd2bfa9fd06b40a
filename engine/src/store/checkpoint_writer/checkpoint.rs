//! An open checkpoint: its images become the mapping of the next manifest.
//!
//! # Invariants
//! - R1: until a [`FinishedCheckpoint`] is committed no block of the last durable manifest was
//!   touched. A failure at any point, such as a full disk, leaves the previous checkpoint as it
//!   was, and the images for the next checkpoint (S5).
//! - R2: errors are sticky. After one failed write every further write of the checkpoint, `finish`
//!   included, fails with the same error.

use super::super::allocator::creation::Content;
use super::super::blob::{self, BlobRef};
use super::super::block::{BlockKind, BlockNumber, BlockRef, references_per_block};
use super::super::manifest::StoreRoot;
use super::super::mapping::table::encode_references;
use super::super::page_store::PageStore;
use super::super::state::Phase;
use super::super::yielding_lock::examined;
use super::writer::ImageWriter;
use crate::base::planted::{self, Bug};
use crate::base::{Csn, Error, ErrorKind, PageId, Result};
use crate::device::{AlignedBuffer, Storage};
use crate::sync::Mutex;
use std::sync::Arc;

/// A catalog that this checkpoint wrote.
#[derive(Debug)]
struct WrittenBlob {
    blob: BlobRef,
    blocks: Vec<BlockNumber>,
}

/// Blocks without page images.
#[derive(Debug, Default)]
struct OtherBlocks {
    /// Written by this checkpoint: freed if it is abandoned.
    fresh: Vec<BlockNumber>,
    /// Replaced by this checkpoint: freed when it is committed.
    replaced: Vec<BlockNumber>,
}

impl PageStore {
    /// Begins the checkpoint of `epoch`, which is higher than the last, at `csn`: every image
    /// recorded for the next checkpoint belongs to it from now on.
    ///
    /// # Errors
    /// `Busy` while another checkpoint is open, `Poisoned` after S3 or S4 forbade further ones.
    pub fn begin_checkpoint(self: &Arc<PageStore>, epoch: u32, csn: Csn) -> Result<OpenCheckpoint> {
        let mut state = self.state.lock();
        state.checkpoint.begin(epoch)?;
        state.images.begin_checkpoint();
        state.blocks.free.bitmap.rewind();
        drop(state);
        Ok(OpenCheckpoint::new(self.clone(), csn))
    }

    /// The manifest with this checkpoint's root is durable: its pages are the committed ones, and
    /// the blocks that it replaced are free unless a pinned checkpoint contains them.
    ///
    /// # Panics
    /// If the checkpoint belongs to another store.
    pub fn commit_checkpoint(&self, finished: FinishedCheckpoint) {
        assert!(std::ptr::eq(finished.store(), self), "a checkpoint is decided by its own store");
        // After the publication: see `manifest::reader_slots`.
        let readers = self.space.generations_read();
        finished.commit(readers);
        self.space.release_unneeded();
        if let Err(error) = self.space.shrink() {
            tracing::debug!(%error, "the file of the page store stays as long as it is");
        }
    }

    /// The manifest with this checkpoint's root was certainly not written, because publishing was
    /// not even attempted: its images wait for the next checkpoint. After a failed publication drop
    /// the checkpoint instead (S3).
    ///
    /// # Panics
    /// If the checkpoint belongs to another store.
    pub fn abandon_checkpoint(&self, finished: FinishedCheckpoint) {
        assert!(std::ptr::eq(finished.store(), self), "a checkpoint is decided by its own store");
        finished.abandon();
    }
}

/// An open checkpoint. Dropping it abandons it.
#[derive(Debug)]
pub struct OpenCheckpoint {
    store: Arc<PageStore>,
    csn: Csn,
    /// The first failure (R2).
    failure: Mutex<Option<Error>>,
    blob: Mutex<Option<WrittenBlob>>,
    others: Mutex<OtherBlocks>,
    open: bool,
}

impl OpenCheckpoint {
    pub(super) fn new(store: Arc<PageStore>, csn: Csn) -> OpenCheckpoint {
        let (failure, blob, others) = (Mutex::new(None), Mutex::new(None), Mutex::default());
        OpenCheckpoint { store, csn, failure, blob, others, open: true }
    }

    /// Returns a writer of this checkpoint's images to the store, which is in `storage`. Blocks
    /// were kept for it that other writers may be about to return.
    ///
    /// # Errors
    /// I/O.
    pub fn writer(&self, storage: &dyn Storage, bytes_max: u64) -> Result<ImageWriter> {
        let mut writer = self.store.writer(storage, bytes_max)?;
        writer.waits = true;
        Ok(writer)
    }

    /// Records the image of `page` in this checkpoint; absent if the page has none.
    pub fn record(&self, page: PageId, reference: BlockRef) {
        let mut state = self.store.state.lock();
        state.blocks.settle(reference.block());
        state.set_in_checkpoint(page, reference);
    }

    /// Makes images that are recorded from now on belong to the next checkpoint.
    pub fn close(&self) {
        self.store.state.lock().checkpoint.close();
    }

    /// Writes the catalog. It replaces the catalog of the last checkpoint, and one written earlier
    /// in this checkpoint. A checkpoint that writes none keeps the old one.
    ///
    /// # Errors
    /// `OutOfSpace`; I/O; `InvalidArgument` if it is too long. They are sticky (R2).
    pub fn write_blob(&self, bytes: &[u8]) -> Result<BlobRef> {
        self.attempt(|| {
            let (blob, blocks) = blob::write(bytes, self.store.page_bytes(), |part, image| {
                self.write_block(BlockKind::Blob, part, image)
            })?;
            if let Some(earlier) = self.blob.lock().replace(WrittenBlob { blob, blocks }) {
                self.others.lock().fresh.retain(|block| !earlier.blocks.contains(block));
                let mut state = self.store.state.lock();
                earlier.blocks.iter().for_each(|block| state.blocks.free.release(*block));
            }
            Ok(blob)
        })
    }

    fn write_block(&self, kind: BlockKind, subject: u64, image: &mut AlignedBuffer) -> Result<BlockRef> {
        let reference = self.store.write_block(kind, subject, image, self.csn)?;
        self.others.lock().fresh.push(reference.block());
        Ok(reference)
    }

    /// Writes the changed parts of the mapping and flushes the file. Then publish a manifest with
    /// [`FinishedCheckpoint::root`], and commit or abandon the result.
    ///
    /// # Errors
    /// The checkpoint's first failure; `OutOfSpace`; I/O. The checkpoint is then abandoned.
    pub fn finish(mut self) -> Result<FinishedCheckpoint> {
        self.close();
        let (parts, pages, directory) = self.attempt(|| {
            let (parts, pages) = self.write_parts()?;
            let directory = self.write_directory(&parts)?;
            let flushed =
                if planted::is(Bug::ImagesNotFlushed) { Ok(()) } else { self.store.file.file.flush() };
            if let Err(error) = flushed {
                // A file that knows the outcome still has what it could not write.
                if !(self.store.file.file.knows_outcome() && error.kind() == ErrorKind::Io) {
                    self.store.state.lock().checkpoint.flush_failed(&error);
                }
                return Err(error);
            }
            Ok((parts, pages, directory))
        })?;
        let blob = self.blob.lock().take();
        let mut others = std::mem::take(&mut *self.others.lock());
        let catalog = {
            let state = self.store.state.lock();
            if blob.is_some() {
                others.replaced.extend(&state.images.catalog_blocks);
            }
            blob.as_ref().map(|written| written.blob).or(state.images.catalog)
        };
        self.open = false;
        let root = StoreRoot { directory, pages, catalog, codecs: self.store.packing.codecs() };
        Ok(FinishedCheckpoint {
            store: self.store.clone(),
            root,
            parts,
            blob,
            others,
            generation: None,
            decided: false,
        })
    }

    /// Writes each part of the mapping with a changed page; returns the blocks and the new number
    /// of pages. The checkpoint is closed, so neither it nor the mapping changes between two parts.
    fn write_parts(&self) -> Result<(Vec<(usize, BlockRef)>, u64)> {
        let (changed, moving, mut pages) = {
            let mut state = self.store.state.lock();
            (
                state.images.in_checkpoint.part_count(),
                std::mem::take(&mut state.checkpoint.relocating_parts),
                state.images.mapping.pages(),
            )
        };
        let end = changed.max(moving.last().map_or(0, |last| last + 1));
        let mut written = Vec::new();
        for index in 0..end {
            let (references, old) = {
                let state = self.store.state.lock();
                let mut changes = state.images.in_checkpoint.part(index).enumerate().peekable();
                if changes.peek().is_none() && !moving.contains(&index) {
                    continue;
                }
                let mut references = state.images.mapping.copy_part(index);
                let skipped = usize::from(planted::is(Bug::MappingSlotSkipped));
                for (nth, (slot, reference)) in changes {
                    examined(1);
                    pages -= u64::from(!references[slot].is_absent());
                    pages += u64::from(!reference.is_absent());
                    if nth >= skipped {
                        references[slot] = reference;
                    }
                }
                (references, state.images.mapping.stored(index))
            };
            written.push((index, self.replace_references(BlockKind::Mapping, index, &references, old)?));
        }
        Ok((written, pages))
    }

    /// Writes each directory block with a changed part; returns the whole directory.
    fn write_directory(&self, parts: &[(usize, BlockRef)]) -> Result<Vec<BlockRef>> {
        let per_block = references_per_block(self.store.page_bytes());
        let mut directory = self.store.state.lock().images.mapping.directory().to_vec();
        for group in parts.chunk_by(|a, b| a.0 / per_block == b.0 / per_block) {
            let index = group[0].0 / per_block;
            if directory.len() <= index {
                directory.resize(index + 1, BlockRef::ABSENT);
            }
            let mut references = self.store.state.lock().images.mapping.copy_directory(index);
            for (part, reference) in group {
                references[part % per_block] = *reference;
            }
            let old = directory[index];
            directory[index] = self.replace_references(BlockKind::Directory, index, &references, old)?;
        }
        while directory.last().is_some_and(|reference| reference.is_absent()) {
            directory.pop();
        }
        Ok(directory)
    }

    /// Writes a block of references that replaces `old`; no block if all are absent.
    fn replace_references(
        &self,
        kind: BlockKind,
        index: usize,
        references: &[BlockRef],
        old: BlockRef,
    ) -> Result<BlockRef> {
        let mut new = BlockRef::ABSENT;
        if references.iter().any(|reference| !reference.is_absent()) {
            let mut image = AlignedBuffer::zeroed(self.store.page_bytes());
            encode_references(references, &mut image);
            new = self.write_block(kind, index as u64, &mut image)?;
        }
        if !old.is_absent() {
            self.others.lock().replaced.push(old.block());
        }
        Ok(new)
    }

    /// Runs `step` unless the checkpoint has failed; keeps its error.
    fn attempt<T>(&self, step: impl FnOnce() -> Result<T>) -> Result<T> {
        if let Some(failure) = &*self.failure.lock() {
            return Err(failure.duplicate());
        }
        step().inspect_err(|error| {
            self.failure.lock().get_or_insert_with(|| error.duplicate());
        })
    }
}

impl Drop for OpenCheckpoint {
    fn drop(&mut self) {
        if self.open {
            abandon(&self.store, &self.others.lock().fresh);
        }
    }
}

/// A checkpoint whose blocks are all durable, waiting for its manifest. Dropping it undecided
/// prevents further checkpoints (S3): do that when publishing failed.
#[derive(Debug)]
#[must_use = "commit or abandon it"]
pub struct FinishedCheckpoint {
    store: Arc<PageStore>,
    root: StoreRoot,
    parts: Vec<(usize, BlockRef)>,
    blob: Option<WrittenBlob>,
    others: OtherBlocks,
    generation: Option<u64>,
    decided: bool,
}

impl FinishedCheckpoint {
    /// The root for the manifest.
    #[must_use]
    pub fn root(&self) -> &StoreRoot {
        &self.root
    }

    pub(super) fn store(&self) -> &PageStore {
        &self.store
    }

    /// Publishing failed with unknown outcome (S3).
    pub fn undecided(self, failure: &Error) {
        self.store.state.lock().checkpoint.publication_failed(failure);
    }

    /// Sets the generation of the published manifest; without it the generation is one above the
    /// last.
    pub fn published_as(mut self, generation: u64) -> FinishedCheckpoint {
        self.generation = Some(generation);
        self
    }

    /// Makes the checkpoint the committed one. `readers` are the generations that readers in other
    /// processes have, looked up after the publication.
    pub(super) fn commit(mut self, readers: Vec<u64>) {
        self.decided = true;
        {
            let mut state = self.store.state.lock();
            debug_assert!(
                state.checkpoint.phase == Phase::Finished,
                "a checkpoint is decided after it has all its images"
            );
            let generation = self.generation.unwrap_or(state.blocks.free.pins.committed() + 1);
            state.blocks.free.committed(generation, readers);
        }
        // The pages of a part move into the mapping during one hold of the lock, so readers see no
        // change. Working in parts keeps them from waiting for the whole table.
        loop {
            let mut state = self.store.state.lock();
            let Some(pages) = state.images.in_checkpoint.take_part() else { break };
            for (page, reference) in pages {
                let before = state.images.replaces_with(page, Some(reference));
                let old = state.images.mapping.set(page, reference);
                let now = state.images.replaces(page);
                state.images.recount(before, now);
                if !old.is_absent() {
                    state.blocks.free.release_image(page, old.block());
                }
                if !reference.is_absent() {
                    state.blocks.free.pins.note_created(Content::Image(page));
                }
            }
            state.blocks.free.recharge();
        }
        let mut state = self.store.state.lock();
        for (part, stored) in &self.parts {
            state.images.mapping.set_stored(*part, *stored);
        }
        state.images.mapping.set_directory(std::mem::take(&mut self.root.directory));
        if let Some(written) = self.blob.take() {
            state.images.catalog = Some(written.blob);
            state.images.catalog_blocks = written.blocks;
        }
        let leaked = usize::from(planted::is(Bug::BlockLeaked));
        for block in std::mem::take(&mut self.others.replaced).into_iter().skip(leaked) {
            state.blocks.free.release_live(block);
        }
        for block in std::mem::take(&mut self.others.fresh) {
            state.blocks.free.pins.note_created(Content::Other(block));
        }
        state.blocks.free.recharge();
        debug_assert!(state.images.in_checkpoint.len() == 0, "the mapping has all images of the checkpoint");
        state.checkpoint.is_wanted = false;
        state.checkpoint.phase = Phase::Idle;
    }

    pub(super) fn abandon(mut self) {
        self.decided = true;
        abandon(&self.store, &self.others.fresh);
    }
}

impl Drop for FinishedCheckpoint {
    fn drop(&mut self) {
        if !self.decided {
            self.store.state.lock().checkpoint.phase = Phase::Undecided;
        }
    }
}

/// Gives the checkpoint's images to the next one (S5), below the newer images there. Works in
/// parts, as [`FinishedCheckpoint::commit`].
fn abandon(store: &PageStore, fresh: &[BlockNumber]) {
    loop {
        let mut state = store.state.lock();
        // No image is added to the checkpoint any more.
        state.checkpoint.close();
        let Some(pages) = state.images.in_checkpoint.take_part() else {
            if state.checkpoint.phase != Phase::FlushFailed {
                state.checkpoint.phase = Phase::Idle;
            }
            fresh.iter().for_each(|block| state.blocks.free.release(*block));
            return;
        };
        for (page, reference) in pages {
            examined(1);
            state.take_back(page, reference);
        }
        drop(state);
        store.state.yield_to_waiters();
    }
}
