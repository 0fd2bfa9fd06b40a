//! Shortens the file: images at its end move to free blocks at its front. On a device that stores
//! whole extents: frees extents that are mostly dead, wherever they are.
//!
//! ```text
//!   before      [A][ ][B][ ][ ][ ][C][ ][D]      C and D are behind the bound
//!   moved       [A][C][B][D][ ][ ][C][ ][D]      the copies count for the next checkpoint; a crash changes nothing
//!   checkpoint  [A][C][B][D][ ][ ][ ][ ][ ]      the old blocks are free, and the file is cut
//! ```
//!
//! A relocated image may share its block with others, and images of sparse packs move together.
//! Each copy is bit-identical, so it stays valid even if the page in memory has changed. The copy
//! counts only if the original is still the newest image after the write and no checkpoint is open,
//! because a checkpoint's own images are newer. Blocks of the mapping move when the next checkpoint
//! writes them, and are recorded here for that; every checkpoint writes the catalog anyway.

use super::block::{self, BlockNumber, BlockRef, references_per_block};
use super::checkpoint_writer::{Heat, Written};
use super::page_store::PageStore;
use super::state::{Phase, State};
use super::yielding_lock::{SLICE, examined};
use crate::base::{Error, ErrorKind, PageId, Result};
use crate::device::Storage;
use std::sync::Arc;

/// Images copied between two looks at the tables.
const BATCH: usize = 64;
/// Bytes of buffers for writing.
const WRITER_BYTES: u64 = 256 << 10;

/// Images to relocate, and the part of the mapping where their search began.
struct Found {
    images: Vec<(PageId, BlockRef)>,
    from: usize,
}

/// Relocates images of one store.
pub struct Relocation<'a> {
    store: &'a Arc<PageStore>,
    storage: &'a dyn Storage,
    /// Called between batches, without a lock.
    pause: &'a dyn Fn(),
}

impl std::fmt::Debug for Relocation<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relocation").finish_non_exhaustive()
    }
}

impl<'a> Relocation<'a> {
    /// Relocates images of `store`, which is in `storage`. `pause` is called between batches,
    /// without a lock. The caller keeps checkpoints from beginning; everything else may continue.
    #[must_use]
    pub fn new(store: &'a Arc<PageStore>, storage: &'a dyn Storage, pause: &'a dyn Fn()) -> Relocation<'a> {
        Relocation { store, storage, pause }
    }

    /// Relocates at most `most` images from blocks at or behind `bound` to free blocks before it,
    /// for the next checkpoint, and records which parts of the mapping have to move. Returns the
    /// number of relocated images.
    ///
    /// # Errors
    /// `Busy` if a checkpoint is open; `Corruption` if an image is damaged; I/O. Images relocated
    /// before the error stay so.
    pub fn move_tail(&self, bound: u64, most: usize) -> Result<u64> {
        self.refuse_unless_idle()?;
        if self.store.state.lock().checkpoint.search.part_for(Some(bound)) == 0 {
            self.note_parts_of_mapping(&|block| block.0 >= bound);
        }
        let found = self.images_where(Some(bound), most);
        self.rewrite(found, bound)
    }

    /// Relocates at most `most` images out of sparse packs into full ones, for the next checkpoint.
    /// Otherwise as [`Relocation::move_tail`].
    ///
    /// # Errors
    /// As [`Relocation::move_tail`].
    pub fn repack(&self, most: usize) -> Result<u64> {
        self.refuse_unless_idle()?;
        let found = self.images_where(None, most);
        let bound = self.store.state.lock().blocks.free.bitmap.blocks();
        self.rewrite(found, bound)
    }

    /// Relocates about `most` images out of extents of which at most half is in use, for the next
    /// checkpoint, and records which parts of the mapping have to move. An extent is emptied once
    /// between two checkpoints. Nothing moves on other devices. Otherwise as
    /// [`Relocation::move_tail`].
    ///
    /// # Errors
    /// As [`Relocation::move_tail`].
    pub fn empty_extents(&self, most: usize) -> Result<u64> {
        self.refuse_unless_idle()?;
        let Some(len) = self.store.space.extent_blocks else { return Ok(0) };
        let extents = {
            let mut state = self.store.state.lock();
            let State { blocks, checkpoint, .. } = &mut *state;
            let extents = blocks.sparse_extents(&checkpoint.search.extents, most as u64);
            checkpoint.search.extents.extend(&extents);
            extents
        };
        if extents.is_empty() {
            return Ok(0);
        }
        let is_in = |block: BlockNumber| extents.contains(&(block.0 / len));
        self.note_parts_of_mapping(&is_in);
        let found = self.images_in(&is_in);
        let bound = self.store.state.lock().blocks.free.bitmap.blocks();
        self.rewrite(found, bound)
    }

    fn refuse_unless_idle(&self) -> Result<()> {
        if self.store.state.lock().checkpoint.phase == Phase::Idle {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Busy, "a checkpoint is in progress, or its end is unknown"))
    }

    /// Ignores the corruption of an image whose page got a newer one during the read.
    fn unless_replaced(&self, batch: &[(PageId, BlockRef)], error: Error) -> Result<()> {
        let state = self.store.state.lock();
        let replaced = batch.iter().any(|(page, reference)| state.images.look_up(*page) != *reference);
        if error.kind() == ErrorKind::Corruption && replaced { Ok(()) } else { Err(error) }
    }

    /// Returns at most `most` pages of the last checkpoint whose newest image is at or behind
    /// `bound`, or in a sparse pack if `bound` is `None`. Continues where the last search ended,
    /// and once from the front if that finds nothing.
    fn images_where(&self, bound: Option<u64>, most: usize) -> Found {
        let mut found = Vec::new();
        let mut from = self.store.state.lock().checkpoint.search.part_for(bound);
        while found.len() < most {
            // Works in parts, so that no thread waits for the whole table.
            self.store.state.yield_to_waiters();
            let mut state = self.store.state.lock();
            let part = state.checkpoint.search.part_for(bound);
            if part >= state.images.mapping.part_count() {
                // The next search starts over.
                state.checkpoint.search.part = 0;
                if from > 0 && found.is_empty() {
                    from = 0;
                    continue;
                }
                break;
            }
            examined(1);
            let wanted = |block: BlockNumber| match bound {
                Some(bound) => block.0 >= bound,
                None => state.blocks.free.fills.is_sparse(block),
            };
            let images = state
                .images
                .mapping
                .page_ids(part)
                .into_iter()
                .map(|page| (page, state.images.look_up(page)));
            found.extend(images.filter(|(_, reference)| !reference.is_absent() && wanted(reference.block())));
            if found.len() <= most {
                state.checkpoint.search.part = part + 1;
            }
        }
        found.truncate(most);
        Found { images: found, from }
    }

    /// Returns all pages of the last checkpoint whose newest image is in such a block.
    fn images_in(&self, is_wanted: &dyn Fn(BlockNumber) -> bool) -> Found {
        let parts = self.store.state.lock().images.mapping.part_count();
        let mut images = Vec::new();
        for part in 0..parts {
            self.store.state.yield_to_waiters();
            let state = self.store.state.lock();
            examined(1);
            let newest = state.images.mapping.page_ids(part);
            let newest = newest.into_iter().map(|page| (page, state.images.look_up(page)));
            images.extend(
                newest.filter(|(_, reference)| !reference.is_absent() && is_wanted(reference.block())),
            );
        }
        let from = self.store.state.lock().checkpoint.search.part;
        Found { images, from }
    }

    /// Copies images to free blocks before `bound` that the reserve does not need, while there are
    /// any.
    fn rewrite(&self, Found { images, from }: Found, bound: u64) -> Result<u64> {
        let store = self.store;
        let _charge = store.file.memory.get().map(|memory| memory.charge(WRITER_BYTES));
        let mut writer = store.writer_before(self.storage, WRITER_BYTES, Some(bound))?;
        let (mut written, mut moved, mut full) = (Vec::new(), 0, false);
        for batch in images.chunks(BATCH) {
            full |= !store.space.can_spare(batch.len() as u64);
            if full {
                break;
            }
            store
                .visit_images(batch, &mut |image| {
                    let pushed = writer.push(image.page, block::csn_of(image.bytes), Heat::Cold, |out| {
                        out.copy_from_slice(image.bytes);
                        Some((image.kind, image.reference.0))
                    });
                    full |= is_full(&pushed);
                    if full { Ok(()) } else { pushed.map(drop) }
                })
                .or_else(|error| self.unless_replaced(batch, error))?;
            let result = writer.reap(false, &mut written);
            moved += self.record_moved(&mut written);
            result?;
            (self.pause)();
        }
        let result = writer.reap(true, &mut written);
        moved += self.record_moved(&mut written);
        if moved < images.len() as u64 {
            // The other images are still to be relocated.
            store.state.lock().checkpoint.search.part = from;
        }
        if is_full(&result) { Ok(moved) } else { result.map(|()| moved) }
    }

    /// Records the copies whose original is still the newest image; returns their number.
    fn record_moved(&self, written: &mut Vec<Written>) -> u64 {
        let mut moved = 0;
        for Written { page, reference, token, .. } in written.drain(..) {
            let mut state = self.store.state.lock();
            if state.checkpoint.phase == Phase::Idle && state.images.look_up(page) == BlockRef(token) {
                state.blocks.settle(reference.block());
                state.set_next(page, reference);
                moved += 1;
            } else {
                state.blocks.discard(reference.block());
            }
        }
        moved
    }

    /// Records the parts of the mapping with a block that has to move. Only checkpoints change
    /// these, and none is open.
    fn note_parts_of_mapping(&self, has_to_move: &dyn Fn(BlockNumber) -> bool) {
        let per_block = references_per_block(self.store.page_bytes());
        let parts = self.store.state.lock().images.mapping.part_count();
        for first in (0..parts).step_by(SLICE) {
            let mut state = self.store.state.lock();
            for part in first..parts.min(first + SLICE) {
                examined(1);
                let stored = state.images.mapping.stored(part);
                let directory =
                    state.images.mapping.directory().get(part / per_block).copied().unwrap_or_default();
                // A directory block is written with any of its parts.
                let moves = has_to_move(stored.block()) || has_to_move(directory.block());
                if moves && !stored.is_absent() {
                    state.checkpoint.relocating_parts.insert(part);
                }
            }
        }
    }
}

fn is_full<T>(result: &Result<T>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == ErrorKind::OutOfSpace)
}
