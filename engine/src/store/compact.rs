//! Giving space back: images at the end of the file move to free blocks at its front.
//!
//! ```text
//!   before      [A][ ][B][ ][ ][ ][C][ ][D]      C and D are behind the bound
//!   moved       [A][C][B][D][ ][ ][C][ ][D]      the copies count for the next round; a crash now changes nothing
//!   checkpoint  [A][C][B][D][ ][ ][ ][ ][ ]      the old blocks are free, and the file is cut
//! ```
//!
//! An image is copied to the last bit, so it stays true whatever the page in memory has become since. The copy counts only if the
//! original is still the newest image when it is written, and no round is in progress: a round's own images are newer.
//! Blocks of the mapping move when the next round writes them, for which they are noted here; the catalog is written by each.

use super::blocks::{self, BlockNumber, BlockRef};
use super::{PageStore, Phase};
use crate::base::{Error, ErrorKind, PageId, Result};
use crate::device::AlignedBuffer;

/// Images that are copied between two looks at the tables.
const BATCH: usize = 64;

impl PageStore {
    /// The length, in blocks, that the file need not exceed: what is in use, and a twentieth.
    #[must_use]
    pub fn compact_blocks(&self) -> u64 {
        let state = self.state.lock();
        let used = state.free.blocks() - state.free.free_blocks();
        used + used / 20
    }

    /// Moves at most `most` images from blocks at or behind `bound` to free blocks before it, for the next round, and notes which
    /// parts of the mapping have to move. Returns how many images moved. The caller keeps rounds from beginning; all else may go on.
    /// `rest` is called between batches, without a lock.
    ///
    /// # Errors
    /// `Busy` if a round is in progress; `Corruption` if an image is damaged; I/O. Images that had moved by then stay moved.
    pub fn move_tail(&self, bound: u64, most: usize, rest: &dyn Fn()) -> Result<u64> {
        if self.state.lock().phase != Phase::Idle {
            return Err(Error::new(ErrorKind::Busy, "a checkpoint is in progress, or its end is unknown"));
        }
        self.note_tail_of_mapping(bound);
        let tail = self.tail(bound, most);
        let (mut moved, mut from) = (0, 0);
        for batch in tail.chunks(BATCH) {
            let mut failure = None;
            self.visit_images(batch, &mut |image| {
                let Some(target) = self.allocate_before(bound, &mut from) else { return Ok(()) };
                match self.copy_to(target, image.page, image.reference, image.bytes) {
                    Ok(counts) => moved += u64::from(counts),
                    Err(error) => failure = Some(error),
                }
                failure.take().map_or(Ok(()), Err)
            })
            .or_else(|error| self.unless_replaced(batch, error))?;
            rest();
        }
        Ok(moved)
    }

    /// An image that was read while its page got a newer one may be anything.
    fn unless_replaced(&self, batch: &[(PageId, BlockRef)], error: Error) -> Result<()> {
        let state = self.state.lock();
        let replaced = batch.iter().any(|(page, reference)| state.look_up(*page) != *reference);
        if error.kind() == ErrorKind::Corruption && replaced { Ok(()) } else { Err(error) }
    }

    /// Pages whose newest image is at or behind `bound`.
    fn tail(&self, bound: u64, most: usize) -> Vec<(PageId, BlockRef)> {
        let mut tail = Vec::new();
        let parts = self.state.lock().mapping.part_count();
        for part in 0..parts {
            // Part by part, so that nobody waits for the whole table.
            let state = self.state.lock();
            let images = state.mapping.page_ids(part).into_iter().map(|page| (page, state.look_up(page)));
            tail.extend(images.filter(|(_, reference)| reference.block().0 >= bound));
            if tail.len() >= most {
                tail.truncate(most);
                break;
            }
        }
        tail
    }

    fn note_tail_of_mapping(&self, bound: u64) {
        let per_block = super::mapping::references_per_block(self.source.page_bytes);
        let mut state = self.state.lock();
        for part in 0..state.mapping.part_count() {
            let stored = state.mapping.stored(part);
            let directory = state.mapping.directory().get(part / per_block).copied().unwrap_or_default();
            // A directory block is written with any of its parts.
            let behind = stored.block().0 >= bound || directory.block().0 >= bound;
            if behind && !stored.is_absent() {
                state.moving_parts.insert(part);
            }
        }
    }

    fn allocate_before(&self, bound: u64, from: &mut u64) -> Option<BlockNumber> {
        let block = self.state.lock().free.allocate_between(*from, bound)?;
        *from = block.0 + 1;
        Some(block)
    }

    /// Copies an image; whether the copy counts now.
    fn copy_to(&self, target: BlockNumber, page: PageId, from: BlockRef, bytes: &[u8]) -> Result<bool> {
        let mut copy = AlignedBuffer::zeroed(bytes.len());
        copy[..bytes.len()].copy_from_slice(bytes);
        // If this fails the block stays in use (F3).
        self.source.file.write_at(target.0 * bytes.len() as u64, &copy)?;
        let mut state = self.state.lock();
        if state.phase != Phase::Idle || state.look_up(page) != from {
            state.free.release(target);
            return Ok(false);
        }
        state.set_working(page, blocks::moved(from, target));
        Ok(true)
    }

    /// Cuts off the free end of the file, all of it.
    ///
    /// # Errors
    /// I/O: the file stays as long as it is.
    pub fn cut_free_end(&self) -> Result<()> {
        let mut state = self.state.lock();
        let end = state.free.used_end();
        if end < state.free.blocks() {
            self.source.file.set_len(end * self.source.page_bytes as u64)?;
            state.free.cut(end);
        }
        Ok(())
    }
}
