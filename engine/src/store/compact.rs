//! Giving space back: images at the end of the file move to free blocks at its front.
//!
//! ```text
//!   before      [A][ ][B][ ][ ][ ][C][ ][D]      C and D are behind the bound
//!   moved       [A][C][B][D][ ][ ][C][ ][D]      the copies count for the next round; a crash now changes nothing
//!   checkpoint  [A][C][B][D][ ][ ][ ][ ][ ]      the old blocks are free, and the file is cut
//! ```
//!
//! An image that moves may share its block with others, and images of packs that are half empty move together. To the last bit each is what it
//! was, so it stays true whatever the page in memory has become since. The copy counts only if the
//! original is still the newest image when it is written, and no round is in progress: a round's own images are newer.
//! Blocks of the mapping move when the next round writes them, for which they are noted here; the catalog is written by each.

use super::blocks::{self, BlockNumber, BlockRef};
use super::lock::{SLICE, looked_at};
use super::writer::{Heat, Written};
use super::{PageStore, Phase, State};
use crate::base::{Error, ErrorKind, PageId, Result};
use crate::device::Storage;
use std::sync::Arc;

/// Images that are copied between two looks at the tables.
const BATCH: usize = 64;
/// Bytes of buffers for writing.
const WRITER_BYTES: u64 = 256 << 10;

/// How far the search for images that should move has come, so that each step goes on where the last one ended. Forgotten when a round
/// begins.
#[derive(Debug, Default)]
pub(super) struct Search {
    /// Those behind this block are wanted, or those of packs that are half empty.
    bound: Option<u64>,
    part: usize,
}

/// Images to move, and the part of the mapping where the search for them began.
struct Found {
    images: Vec<(PageId, BlockRef)>,
    from: usize,
}

impl State {
    /// The part to go on with.
    fn search_from(&mut self, bound: Option<u64>) -> usize {
        if self.search.bound != bound {
            self.search = Search { bound, part: 0 };
        }
        self.search.part
    }
}

impl PageStore {
    /// The length, in blocks, that the file need not exceed: what is in use, and a twentieth, or the reserve if that is more.
    #[must_use]
    pub fn compact_blocks(&self) -> u64 {
        let state = self.state.lock();
        let used = state.used();
        used + state.kept(self).max(used / 20)
    }

    /// Moves at most `most` images from blocks at or behind `bound` to free blocks before it, for the next round, and notes which
    /// parts of the mapping have to move. Returns how many images moved. The store is in `storage`. The caller keeps rounds from beginning;
    /// all else may go on. `rest` is called between batches, without a lock.
    ///
    /// # Errors
    /// `Busy` if a round is in progress; `Corruption` if an image is damaged; I/O. Images that had moved by then stay moved.
    pub fn move_tail(
        self: &Arc<Self>,
        storage: &dyn Storage,
        bound: u64,
        most: usize,
        rest: &dyn Fn(),
    ) -> Result<u64> {
        self.refuse_unless_idle()?;
        if self.state.lock().search_from(Some(bound)) == 0 {
            self.note_tail_of_mapping(bound);
        }
        let found = self.images_where(Some(bound), most);
        self.rewrite(storage, found, bound, rest)
    }

    /// Moves at most `most` images out of packs of which at most half counts, into full ones, for the next round. Otherwise as
    /// [`PageStore::move_tail`].
    ///
    /// # Errors
    /// As [`PageStore::move_tail`].
    pub fn repack(self: &Arc<Self>, storage: &dyn Storage, most: usize, rest: &dyn Fn()) -> Result<u64> {
        self.refuse_unless_idle()?;
        let found = self.images_where(None, most);
        let bound = self.state.lock().free.blocks();
        self.rewrite(storage, found, bound, rest)
    }

    fn refuse_unless_idle(&self) -> Result<()> {
        if self.state.lock().phase == Phase::Idle {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Busy, "a checkpoint is in progress, or its end is unknown"))
    }

    /// An image that was read while its page got a newer one may be anything.
    fn unless_replaced(&self, batch: &[(PageId, BlockRef)], error: Error) -> Result<()> {
        let state = self.state.lock();
        let replaced = batch.iter().any(|(page, reference)| state.look_up(*page) != *reference);
        if error.kind() == ErrorKind::Corruption && replaced { Ok(()) } else { Err(error) }
    }

    /// Pages of the last checkpoint, at most `most`, whose newest image is at or behind `bound`, or without one in a pack that is half empty.
    /// Goes on where the last search ended; what is found nowhere then is not there.
    fn images_where(&self, bound: Option<u64>, most: usize) -> Found {
        let mut found = Vec::new();
        let mut from = self.state.lock().search_from(bound);
        while found.len() < most {
            // Part by part, so that nobody waits for the whole table.
            self.state.let_others_in();
            let mut state = self.state.lock();
            let part = state.search_from(bound);
            if part >= state.mapping.part_count() {
                // The next search begins anew.
                state.search.part = 0;
                if from > 0 && found.is_empty() {
                    from = 0;
                    continue;
                }
                break;
            }
            looked_at(1);
            let wanted = |block: BlockNumber| match bound {
                Some(bound) => block.0 >= bound,
                None => state.free.is_sparse(block),
            };
            let images = state.mapping.page_ids(part).into_iter().map(|page| (page, state.look_up(page)));
            found.extend(images.filter(|(_, reference)| !reference.is_absent() && wanted(reference.block())));
            if found.len() <= most {
                state.search.part = part + 1;
            }
        }
        found.truncate(most);
        Found { images: found, from }
    }

    /// Copies images to free blocks before `bound`, as long as there are any that the reserve does not need.
    fn rewrite(
        self: &Arc<Self>,
        storage: &dyn Storage,
        Found { images, from }: Found,
        bound: u64,
        rest: &dyn Fn(),
    ) -> Result<u64> {
        let _charge = self.memory.get().map(|memory| memory.charge(WRITER_BYTES));
        let mut writer = self.writer_before(storage, WRITER_BYTES, Some(bound))?;
        let (mut written, mut moved, mut full) = (Vec::new(), 0, false);
        for batch in images.chunks(BATCH) {
            full |= !self.can_spare(batch.len() as u64);
            if full {
                break;
            }
            self.visit_images(batch, &mut |image| {
                let pushed = writer.push(image.page, blocks::csn_of(image.bytes), Heat::Cold, |out| {
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
            rest();
        }
        let result = writer.reap(true, &mut written);
        moved += self.record_moved(&mut written);
        if moved < images.len() as u64 {
            // The others are still there.
            self.state.lock().search.part = from;
        }
        if is_full(&result) { Ok(moved) } else { result.map(|()| moved) }
    }

    /// Counts those copies whose original is still the newest image.
    fn record_moved(&self, written: &mut Vec<Written>) -> u64 {
        let mut moved = 0;
        for Written { page, reference, token, .. } in written.drain(..) {
            let mut state = self.state.lock();
            if state.phase == Phase::Idle && state.look_up(page) == BlockRef(token) {
                state.settle(reference.block());
                state.set_working(page, reference);
                moved += 1;
            } else {
                state.give_back(reference.block());
            }
        }
        moved
    }

    /// Only rounds change what is looked at here, and none is in progress.
    fn note_tail_of_mapping(&self, bound: u64) {
        let per_block = super::mapping::references_per_block(self.source.page_bytes);
        let parts = self.state.lock().mapping.part_count();
        for first in (0..parts).step_by(SLICE) {
            let mut state = self.state.lock();
            for part in first..parts.min(first + SLICE) {
                looked_at(1);
                let stored = state.mapping.stored(part);
                let directory = state.mapping.directory().get(part / per_block).copied().unwrap_or_default();
                // A directory block is written with any of its parts.
                let behind = stored.block().0 >= bound || directory.block().0 >= bound;
                if behind && !stored.is_absent() {
                    state.moving_parts.insert(part);
                }
            }
        }
    }

    /// Cuts off the free end of the file, but for the reserve: a transaction in progress has been promised that it can be written.
    ///
    /// # Errors
    /// I/O: the file stays as long as it is.
    pub fn cut_free_end(&self) -> Result<()> {
        let mut state = self.state.lock();
        let end = state.free.used_end().max(state.used() + state.kept(self));
        if end < state.free.blocks() {
            self.source.file.set_len(end * self.source.page_bytes as u64)?;
            state.free.cut(end);
            state.full = None;
        }
        Ok(())
    }
}

fn is_full<T>(result: &Result<T>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == ErrorKind::OutOfSpace)
}
