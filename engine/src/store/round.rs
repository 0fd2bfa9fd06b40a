//! A round: the page writes of one checkpoint.
//!
//! # Invariants
//! - R1: until [`FinishedRound`] is committed nothing that the last durable manifest reaches was touched; a failure at
//!   any point (a full disk above all) leaves the previous checkpoint as it was.
//! - R2: errors stick. After one failed write every further call of the round, `finish` included, fails with it.

use super::blob::{self, BlobRef};
use super::blocks::{BlockKind, BlockNumber, BlockRef};
use super::mapping::{encode_references, references_per_block};
use super::{PageStore, Phase, State, StoreRoot};
use crate::base::{Csn, Error, PageId, Result};
use crate::device::AlignedBuffer;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Pages whose new place is made the committed one under a single hold of the lock.
const COMMIT_STEP: usize = 4096;

/// A catalog that this round wrote.
#[derive(Debug)]
struct WrittenBlob {
    blob: BlobRef,
    blocks: Vec<BlockNumber>,
}

/// An open round. Dropping it abandons it.
#[derive(Debug)]
pub struct Round {
    store: Arc<PageStore>,
    /// The first failure (R2).
    failure: Mutex<Option<Error>>,
    blob: Mutex<Option<WrittenBlob>>,
    /// Highest CSN of a page, for the mapping blocks. Written by `write_page`, read by `finish`; no ordering needed,
    /// since `finish` takes the round by value.
    csn: AtomicU64,
    open: bool,
}

impl Round {
    pub(super) fn new(store: Arc<PageStore>) -> Round {
        Round { store, failure: Mutex::new(None), blob: Mutex::new(None), csn: AtomicU64::new(0), open: true }
    }

    /// Writes an image of `page` as of `csn` to a free block: fills the first [`super::BLOCK_HEADER_BYTES`] of `image`
    /// and writes it without flushing. A second image of a page in one round replaces the first. Any thread; memory
    /// aligned to a sector is written without a copy.
    ///
    /// # Errors
    /// `OutOfSpace`; I/O; `InvalidArgument` for a page id or an image length that cannot be. They stick (R2).
    pub fn write_page(&self, page: PageId, image: &mut [u8], csn: Csn) -> Result<()> {
        self.attempt(|| {
            if image.len() != self.store.page_bytes() {
                return Err(Error::invalid("the image of a page is not as long as a page"));
            }
            if page.0 >= self.store.state.lock().mapping.page_limit() {
                return Err(Error::invalid(format!("{page:?} is beyond the largest page id")));
            }
            self.csn.fetch_max(csn.0, Ordering::Relaxed);
            let reference = self.store.write_block(BlockKind::Page, page.0, image, csn)?;
            replace(&mut self.store.state.lock(), page, reference);
            Ok(())
        })
    }

    /// Notes that `page` does not exist any more.
    ///
    /// # Errors
    /// The round's failure, if it has failed.
    pub fn remove_page(&self, page: PageId) -> Result<()> {
        self.attempt(|| {
            replace(&mut self.store.state.lock(), page, BlockRef::ABSENT);
            Ok(())
        })
    }

    /// Writes the catalog; it replaces the one of the last checkpoint, and one written earlier in this round. A round
    /// that writes none keeps the old one.
    ///
    /// # Errors
    /// `OutOfSpace`; I/O; `InvalidArgument` if it is too long. They stick (R2).
    pub fn write_blob(&self, bytes: &[u8]) -> Result<BlobRef> {
        self.attempt(|| {
            let csn = Csn(self.csn.load(Ordering::Relaxed));
            let (blob, blocks) = blob::write(bytes, self.store.page_bytes(), |part, image| {
                self.store.write_block(BlockKind::Blob, part, image, csn)
            })?;
            if let Some(earlier) = self.blob.lock().replace(WrittenBlob { blob, blocks }) {
                let mut state = self.store.state.lock();
                earlier.blocks.iter().for_each(|block| state.free.discard(*block));
            }
            Ok(blob)
        })
    }

    /// Writes the changed parts of the mapping and flushes the file. Then publish a manifest with
    /// [`FinishedRound::root`] and tell the store what became of it.
    ///
    /// # Errors
    /// The round's first failure; `OutOfSpace`; I/O. The round is then abandoned.
    pub fn finish(mut self) -> Result<FinishedRound> {
        let written = self.attempt(|| {
            let parts = self.write_parts()?;
            let directory = self.write_directory(&parts)?;
            if let Err(error) = self.store.source.file.flush() {
                self.store.state.lock().phase = Phase::FlushFailed;
                return Err(error);
            }
            Ok((parts, directory))
        });
        let (parts, directory) = written?;
        let blob = self.blob.lock().take();
        let pages = {
            let mut state = self.store.state.lock();
            state.phase = Phase::Finished;
            if blob.is_some() {
                for at in 0..state.catalog_blocks.len() {
                    let block = state.catalog_blocks[at];
                    state.free.retire(block);
                }
            }
            pages_with_overlay(&state)
        };
        self.open = false;
        let catalog = blob.as_ref().map(|written| written.blob).or(self.store.state.lock().catalog);
        let root = StoreRoot { directory, pages, catalog };
        Ok(FinishedRound { store: self.store.clone(), root, parts, blob, decided: false })
    }

    /// Writes each part of the mapping with a changed page; returns where.
    fn write_parts(&self) -> Result<Vec<(usize, BlockRef)>> {
        let changed: BTreeSet<usize> = {
            let state = self.store.state.lock();
            state.overlay.keys().map(|page| state.mapping.place(*page).0).collect()
        };
        let mut changes = self.changes();
        changes.sort_unstable_by_key(|(page, _)| *page);
        let mut changes = changes.into_iter().peekable();
        let mut written = Vec::with_capacity(changed.len());
        for index in changed {
            let (mut references, old) = {
                let state = self.store.state.lock();
                (state.mapping.copy_part(index), state.mapping.stored(index))
            };
            let per_block = references.len() as u64;
            while let Some((page, reference)) =
                changes.next_if(|(page, _)| (page.0 / per_block) as usize == index)
            {
                references[(page.0 % per_block) as usize] = reference;
            }
            written.push((index, self.replace_references(BlockKind::Mapping, index, &references, old)?));
        }
        Ok(written)
    }

    /// Writes each directory block with a changed part; returns the whole directory.
    fn write_directory(&self, parts: &[(usize, BlockRef)]) -> Result<Vec<BlockRef>> {
        let per_block = references_per_block(self.store.page_bytes());
        let mut directory = self.store.state.lock().mapping.directory().to_vec();
        for group in parts.chunk_by(|a, b| a.0 / per_block == b.0 / per_block) {
            let index = group[0].0 / per_block;
            if directory.len() <= index {
                directory.resize(index + 1, BlockRef::ABSENT);
            }
            let mut references = self.store.state.lock().mapping.copy_directory(index);
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

    /// Writes a block of references in the place of `old`; none at all need no block.
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
            let csn = Csn(self.csn.load(Ordering::Relaxed));
            new = self.store.write_block(kind, index as u64, &mut image, csn)?;
        }
        if !old.is_absent() {
            self.store.state.lock().free.retire(old.block());
        }
        Ok(new)
    }

    fn changes(&self) -> Vec<(PageId, BlockRef)> {
        self.store.state.lock().overlay.iter().map(|(page, reference)| (*page, *reference)).collect()
    }

    /// Runs `step` unless the round has failed; makes a failure stick.
    fn attempt<T>(&self, step: impl FnOnce() -> Result<T>) -> Result<T> {
        if let Some(failure) = &*self.failure.lock() {
            return Err(failure.duplicate());
        }
        step().inspect_err(|error| {
            self.failure.lock().get_or_insert_with(|| error.duplicate());
        })
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        if self.open {
            abandon(&self.store);
        }
    }
}

/// A round whose blocks are all durable, waiting for its manifest. Dropping it undecided stops the store from beginning
/// further rounds (S3): do that when publishing failed.
#[derive(Debug)]
#[must_use = "tell the store what became of the manifest"]
pub struct FinishedRound {
    store: Arc<PageStore>,
    root: StoreRoot,
    parts: Vec<(usize, BlockRef)>,
    blob: Option<WrittenBlob>,
    decided: bool,
}

impl FinishedRound {
    /// What the manifest must point to.
    #[must_use]
    pub fn root(&self) -> &StoreRoot {
        &self.root
    }

    pub(super) fn store(&self) -> &PageStore {
        &self.store
    }

    pub(super) fn commit(mut self) {
        self.decided = true;
        let changes: Vec<_> = {
            let state = self.store.state.lock();
            state.overlay.iter().map(|(page, reference)| (*page, *reference)).collect()
        };
        // A page moves from the overlay to the mapping under one hold of the lock, so readers see no change; the steps
        // keep them from waiting for the whole table.
        for step in changes.chunks(COMMIT_STEP) {
            let mut state = self.store.state.lock();
            for (page, reference) in step {
                state.mapping.set(*page, *reference);
                state.overlay.remove(page);
            }
        }
        let mut state = self.store.state.lock();
        for (part, stored) in &self.parts {
            state.mapping.set_stored(*part, *stored);
        }
        state.mapping.set_directory(std::mem::take(&mut self.root.directory));
        if let Some(written) = self.blob.take() {
            state.catalog = Some(written.blob);
            state.catalog_blocks = written.blocks;
        }
        state.overlay = Default::default();
        state.free.commit_round();
        state.phase = Phase::Idle;
    }

    pub(super) fn abandon(mut self) {
        self.decided = true;
        abandon(&self.store);
    }
}

impl Drop for FinishedRound {
    fn drop(&mut self) {
        if !self.decided {
            self.store.state.lock().phase = Phase::Undecided;
        }
    }
}

fn abandon(store: &PageStore) {
    let mut state = store.state.lock();
    let overlay = std::mem::take(&mut state.overlay);
    state.free.abandon_round();
    if state.phase != Phase::FlushFailed {
        state.phase = Phase::Idle;
    }
    drop(state);
    // Freed outside the lock: it may be large.
    drop(overlay);
}

/// Notes the new place of a page; the old one is free at once if it is of this round (F2), else when the round is
/// committed (F1).
fn replace(state: &mut State, page: PageId, reference: BlockRef) {
    let committed = state.mapping.get(page);
    match state.overlay.insert(page, reference) {
        Some(earlier) if !earlier.is_absent() => state.free.discard(earlier.block()),
        Some(_) => {}
        None if !committed.is_absent() => state.free.retire(committed.block()),
        // Never written, and now removed: nothing changed.
        None if reference.is_absent() => {
            state.overlay.remove(&page);
        }
        None => {}
    }
}

fn pages_with_overlay(state: &State) -> u64 {
    state.overlay.iter().fold(state.mapping.pages(), |pages, (page, reference)| {
        let before = u64::from(!state.mapping.get(*page).is_absent());
        pages + u64::from(!reference.is_absent()) - before
    })
}
