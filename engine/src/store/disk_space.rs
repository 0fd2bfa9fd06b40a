//! The length of the file of pages: it grows, is cut, and keeps blocks for older checkpoints.
//!
//! ```text
//!   |<------------- live ------------>|<- replaced ->|<----- free ----->|
//!     kept by the next checkpoint       freed by it     reserve and excess
//! ```
//!
//! A replaced image stays until the next checkpoint is durable (I8). So the file is as long as the
//! live images and all changes between two checkpoints, and only frequent checkpoints keep it
//! short: the checkpoint scheduler decides by [`SpaceUse`].
//!
//! The file is cut down to the length that was needed recently (`RecentNeed`), so that it is not
//! cut and extended in turn.

use super::allocator::DiskFull;
use super::allocator::need::RECENT;
use super::allocator::reserve::Reserve;
use super::block::BlockNumber;
use super::block_file::BlockFile;
use super::manifest::{CheckpointReader, Readers};
use super::state::{State, StateLock};
use super::yielding_lock::SLICE;
use crate::base::clock::Clock;
use crate::base::{Error, ErrorKind, Result};
use crate::device::{AlignedBuffer, SpaceRefusal};
use crate::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The file grows by this part of its length, within these bounds.
const GROWTH_PART: u64 = 64;
const GROWTH_BYTES: std::ops::RangeInclusive<u64> = (1 << 20)..=(64 << 20);
/// A short file grows by its own length, at least this much.
const SHORT_GROWTH_BYTES: u64 = 256 << 10;
/// After a refusal the file first grows by this many blocks.
const CAREFUL_BLOCKS: u64 = 16;
/// The file is cut when at least this part of it can go.
const CUT_PART: u64 = 64;
/// Live content of a small database, in bytes.
const SMALL_BYTES: u64 = 256 << 10;
/// Images are relocated when the file exceeds the need by at least this part.
const EXCESS_PART: u64 = 8;

/// Live and replaced content, in blocks; an image in a pack counts as a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SpaceUse {
    /// In use, less what the next checkpoint frees.
    pub live: u64,
    /// Images replaced since the last checkpoint began, because their pages were evicted or
    /// relocated.
    pub replaced: u64,
    /// Images of the open checkpoint that replace others.
    pub in_checkpoint: u64,
    /// Pages in memory that differ from their images, which the next checkpoint replaces.
    pub changed: u64,
    /// Length of a block.
    pub block_bytes: u64,
}

impl SpaceUse {
    /// Changed or replaced pages: the file has to hold them twice.
    #[must_use]
    pub fn twice(&self) -> u64 {
        self.replaced + self.in_checkpoint + self.changed
    }
}

/// A listener for replaced images.
#[derive(Default)]
pub(super) struct OnReplaced(OnceLock<Box<dyn Fn() + Send + Sync>>);

impl std::fmt::Debug for OnReplaced {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("OnReplaced").field(&self.0.get().is_some()).finish()
    }
}

impl OnReplaced {
    pub(super) fn set(&self, notify: Box<dyn Fn() + Send + Sync>) {
        let _ = self.0.set(notify);
    }

    pub(super) fn notify(&self) {
        if let Some(notify) = self.0.get() {
            notify();
        }
    }
}

/// See the module's text.
#[derive(Debug)]
pub struct DiskSpace {
    pub(super) file: Arc<BlockFile>,
    pub(super) state: Arc<StateLock>,
    /// The demand for which the reserve is kept; none before recovery is over.
    pub(super) reserve: OnceLock<Reserve>,
    pub(super) on_replaced: OnReplaced,
    /// Blocks of an extent, on a device that stores whole extents.
    pub(super) extent_blocks: Option<u64>,
    /// Readers of checkpoints; none of a store that is open read-only beside no writer.
    pub(super) readers: Option<Readers>,
}

/// Keeps the blocks of a checkpoint; see [`super::PageStore::hold`].
#[derive(Debug)]
pub struct HeldBlocks {
    space: Arc<DiskSpace>,
    generation: u64,
}

impl Drop for HeldBlocks {
    fn drop(&mut self) {
        self.space.state.lock().blocks.free.pins.end_hold(self.generation);
        self.space.release_unneeded();
    }
}

impl DiskSpace {
    /// Keeps every block of the last durable checkpoint until the result is dropped.
    pub(super) fn hold(self: &Arc<DiskSpace>) -> HeldBlocks {
        let generation = self.state.lock().blocks.free.pins.hold();
        HeldBlocks { space: self.clone(), generation }
    }

    /// Frees held content that no pin needs any more.
    pub(super) fn release_unneeded(&self) {
        while self.state.lock().blocks.free.release_unneeded(SLICE) {
            self.state.yield_to_waiters();
        }
        if self.extent_blocks.is_some() {
            self.discard_unused(&mut self.state.lock());
        }
    }

    /// Discards extents without a block in use, so that they can be allocated again (X2). The
    /// manifest without their blocks is durable (F1), or none had them (F2). Another owner may have
    /// a released file.
    fn discard_unused(&self, state: &mut State) {
        let block_bytes = self.file.page_bytes as u64;
        while let Some(extents) = &mut state.blocks.free.bitmap.extents
            && let Some((first, end)) = extents.to_discard()
            && self.file.refuse_if_released().is_ok()
        {
            if let Err(error) = self.file.file.discard(first * block_bytes, end * block_bytes) {
                tracing::debug!(%error, "an extent of the file of pages is discarded later");
                return;
            }
            extents.discarded(first);
        }
    }

    /// Returns whether the device stores whole extents.
    #[must_use]
    pub fn stores_extents(&self) -> bool {
        self.extent_blocks.is_some()
    }

    /// Returns the readers of checkpoints in other processes (or in this one, as if in another).
    #[must_use]
    pub fn checkpoint_readers(&self) -> Vec<CheckpointReader> {
        self.readers.as_ref().and_then(|readers| readers.list().ok()).unwrap_or_default()
    }

    /// Returns the generations that known readers have.
    pub(super) fn generations_read(&self) -> Vec<u64> {
        self.readers.as_ref().map(Readers::generations).unwrap_or_default()
    }

    /// Takes at most `most` adjacent free blocks; the file grows if there are none.
    pub(super) fn allocate_run(&self, state: &mut State, most: u64) -> Result<(BlockNumber, u64)> {
        if let Some(run) = state.blocks.free.allocate_run(most) {
            return Ok(run);
        }
        self.grow(state, 1)?;
        Ok(state.blocks.free.allocate_run(most).expect("the file has just grown"))
    }

    /// Takes at most `most` adjacent free blocks before `bound` for relocated images. On a device
    /// that stores whole extents any blocks, because only their number counts.
    pub(super) fn allocate_before(
        &self,
        state: &mut State,
        bound: u64,
        most: u64,
    ) -> Option<(BlockNumber, u64)> {
        match self.extent_blocks {
            Some(_) => self.allocate_run(state, most).ok(),
            None => state.blocks.free.allocate_before(bound, most),
        }
    }

    /// Adds `missing` blocks to the file. A full disk is asked again only after a pause, as long as
    /// requests are refused, whatever they are for.
    pub(super) fn ask_disk(&self, state: &mut State, clock: &Clock, missing: u64) -> Result<()> {
        let now = clock.now();
        if let Some(full) = state.blocks.full.as_ref().filter(|full| full.asked.is_recent(now)) {
            let error = full.error.duplicate();
            state.blocks.refused = Some(now);
            return Err(error);
        }
        self.grow(state, missing).inspect_err(|error| {
            if error.kind() == ErrorKind::OutOfSpace {
                let asked = SpaceRefusal::new(now, clock.now());
                let since = state.blocks.full.as_ref().map_or(now, |full| full.since);
                state.blocks.full = Some(DiskFull { error: error.duplicate(), asked, since });
                state.blocks.refused = Some(asked.at);
                state.blocks.step_max = CAREFUL_BLOCKS;
            }
        })
    }

    /// Makes the file at least `least` blocks longer, and a whole step if the disk has space.
    pub(super) fn grow(&self, state: &mut State, least: u64) -> Result<()> {
        self.file.refuse_if_released()?;
        let free_blocks = |state: &State| state.blocks.free.bitmap.free_blocks();
        let wanted = free_blocks(state) + least;
        if state.blocks.free.waits_for_readers() {
            // Some readers may have ended since the last checkpoint.
            state.blocks.free.pins.set_readers(self.generations_read());
            state.blocks.free.release_unneeded(SLICE);
            if free_blocks(state) >= wanted {
                return Ok(());
            }
        }
        self.discard_unused(state);
        if free_blocks(state) >= wanted {
            return Ok(());
        }
        let block_bytes = self.file.page_bytes as u64;
        let old = state.blocks.free.bitmap.blocks();
        let most = BlockNumber::LIMIT - 1 - old;
        let least = state.blocks.free.bitmap.whole_extents(old + least) - old;
        if least > most {
            return Err(Error::new(ErrorKind::OutOfSpace, "the page store is at its largest size"));
        }
        let len = old * block_bytes;
        let part = (len / GROWTH_PART).clamp(*GROWTH_BYTES.start(), *GROWTH_BYTES.end());
        let mut step = (part.min(len.max(SHORT_GROWTH_BYTES)) / block_bytes).min(state.blocks.step_max);
        if state.blocks.full.is_some() {
            step = least;
        }
        step = state.blocks.free.bitmap.whole_extents(old + step) - old;
        step = step.clamp(least, most);
        loop {
            match self.file.file.reserve(old * block_bytes, (old + step) * block_bytes) {
                Ok(()) => break,
                Err(error) if error.kind() == ErrorKind::OutOfSpace && step > least => {
                    let half = state.blocks.free.bitmap.whole_extents(old + step / 2) - old;
                    step = if half < step { half.max(least) } else { least };
                }
                Err(error) => {
                    let is_full = error.kind() == ErrorKind::OutOfSpace;
                    // Other threads wait meanwhile, but they would wait for space anyway.
                    while is_full && free_blocks(state) < wanted && state.blocks.free.release_unneeded(SLICE)
                    {
                    }
                    return if free_blocks(state) < wanted { Err(error) } else { Ok(()) };
                }
            }
        }
        state.blocks.free.extend(old + step);
        state.blocks.step_max = state.blocks.step_max.saturating_mul(2);
        if state.blocks.full.take().is_some() {
            tracing::info!("there is space on the disk again");
        }
        Ok(())
    }

    /// Reserves disk space for the file's free end, or cuts it off: an earlier run may have left it
    /// sparse.
    pub(super) fn back_free_end(&self) -> Result<()> {
        let mut state = self.state.lock();
        let block_bytes = self.file.page_bytes as u64;
        let bitmap = &state.blocks.free.bitmap;
        let (used, blocks) = (bitmap.used_end(), bitmap.blocks());
        match self.file.file.reserve(used * block_bytes, blocks * block_bytes) {
            Err(error) if error.kind() == ErrorKind::OutOfSpace => {
                self.file.file.set_len(used * block_bytes)?;
                state.blocks.free.cut(used);
                Ok(())
            }
            reserved => reserved,
        }
    }

    /// Returns live and replaced content.
    #[must_use]
    pub fn measure(&self) -> SpaceUse {
        let state = self.state.lock();
        let changed = self
            .reserve
            .get()
            .map_or(0, |reserve| reserve.dirty().saturating_sub(reserve.demand.new.load(Ordering::Relaxed)));
        let replaced = state.images.replaced;
        let live = state.used().saturating_sub(replaced.next + replaced.in_checkpoint);
        SpaceUse {
            live,
            replaced: replaced.next,
            in_checkpoint: replaced.in_checkpoint,
            changed,
            block_bytes: self.file.page_bytes as u64,
        }
    }

    /// Sets, once, the listener that is called now and then while images are replaced, and with the
    /// first one after a checkpoint began. No lock is held during the call.
    pub fn on_replaced(&self, notify: Box<dyn Fn() + Send + Sync>) {
        self.on_replaced.set(notify);
    }

    /// Returns the length, in blocks, to which relocating images could cut the file, if the file is
    /// much longer than was needed recently.
    #[must_use]
    pub fn excessive_for(&self) -> Option<u64> {
        let state = self.state.lock();
        let needed = state.needed_recently(self.reserve.get());
        is_excessive(state.blocks.free.bitmap.blocks(), needed).then_some(needed)
    }

    /// Returns when a recent need no longer keeps a file long that exceeds the present need.
    #[must_use]
    pub fn excessive_after(&self) -> Option<Duration> {
        let state = self.state.lock();
        let (blocks, now) = (state.blocks.free.bitmap.blocks(), state.needed(self.reserve.get()));
        let remembers = is_excessive(state.needed_recently(self.reserve.get()), now);
        (remembers && is_excessive(blocks, now)).then_some(RECENT)
    }

    /// Forgets recent needs, because the database is about to be closed.
    pub fn forget_recent_need(&self) {
        self.state.lock().blocks.need = Default::default();
    }

    /// Lets the next checkpoint cut off all that pages do not need: the disk is full, and the log
    /// needs space.
    pub fn spare_for_log(&self) {
        self.state.lock().blocks.log_needs_space = true;
    }

    /// After a checkpoint: cuts off the free end of the file, without the reserve and the length
    /// that was needed recently, if that is enough to matter.
    pub(super) fn shrink(&self) -> Result<()> {
        let mut state = self.state.lock();
        if let Some(reserve) = self.reserve.get() {
            state.blocks.need.advance(reserve.clock.now());
        }
        let blocks = state.blocks.free.bitmap.blocks();
        let needed = match std::mem::take(&mut state.blocks.log_needs_space) {
            true => {
                state.blocks.step_max = CAREFUL_BLOCKS;
                state.needed(self.reserve.get())
            }
            false => state.needed_recently(self.reserve.get()),
        };
        let keep = state.blocks.free.bitmap.whole_extents(needed.max(state.blocks.free.bitmap.used_end()));
        let least = (blocks / CUT_PART).max(GROWTH_BYTES.start() / self.file.page_bytes as u64);
        let least = least.min(state.blocks.step_max);
        if let Some(full) = &mut state.blocks.full {
            // The checkpoint may have freed space.
            full.asked.expire();
        }
        if blocks < keep + least {
            return Ok(());
        }
        self.file.file.set_len(keep * self.file.page_bytes as u64)?;
        state.blocks.cut(keep);
        Ok(())
    }

    /// Returns the length, in blocks, that the file need not exceed: blocks in use, and a twentieth
    /// more, or the reserve if that is more.
    #[must_use]
    pub fn compact_blocks(&self) -> u64 {
        let state = self.state.lock();
        let used = state.used();
        used + self.kept(&state).max(used / 20)
    }

    /// Cuts off the free end of the file without the reserve, which is promised to transactions in
    /// progress.
    ///
    /// # Errors
    /// I/O: the file stays as long as it is.
    pub fn cut_free_end(&self) -> Result<()> {
        let mut state = self.state.lock();
        let needed = state.used() + self.kept(&state);
        self.cut_to(&mut state, needed)
    }

    /// Cuts the file to `needed` blocks, or behind the last block in use.
    fn cut_to(&self, state: &mut State, needed: u64) -> Result<()> {
        self.file.refuse_if_released()?;
        let end = state.blocks.free.bitmap.used_end().max(needed);
        let end = state.blocks.free.bitmap.whole_extents(end);
        if end < state.blocks.free.bitmap.blocks() {
            self.file.file.set_len(end * self.file.page_bytes as u64)?;
            state.blocks.cut(end);
        }
        Ok(())
    }

    /// Before the database is closed for good: cuts off the free end of the file. A small database
    /// keeps what a checkpoint of no change writes; removing its rows would free little space on a
    /// full disk. Another keeps the reserve for a change, so that rows can be removed after the
    /// next open on a full disk.
    ///
    /// # Errors
    /// I/O: the file stays as long as it is.
    pub fn cut_for_close(&self) -> Result<()> {
        let mut state = self.state.lock();
        let (used, reserve) = (state.used(), self.reserve.get());
        let is_small = used * self.file.page_bytes as u64 <= SMALL_BYTES;
        let needed = if is_small { used + self.kept(&state) } else { state.needed(reserve) };
        self.cut_to(&mut state, needed)
    }

    /// Blocks that no other use may take: see [`Reserve::kept`].
    pub(super) fn kept(&self, state: &State) -> u64 {
        self.reserve.get().map_or(0, |reserve| reserve.kept(state.stored_blocks()))
    }

    /// Writes to a leaked block, each time to another, to learn whether the disk accepts writes
    /// again. Nothing refers to a leaked block before the next open (F3), so another failure loses
    /// nothing. Does nothing if few blocks are leaked.
    ///
    /// # Errors
    /// I/O: the disk still fails.
    pub fn retry_leaked_block(&self) -> Result<()> {
        let Some(block) = self.state.lock().blocks.in_flight.next_to_retry() else { return Ok(()) };
        let zeros = AlignedBuffer::zeroed(self.file.page_bytes);
        let offset = block.0 * self.file.page_bytes as u64;
        // Where blocks are not overwritten the failed write may have left bytes.
        self.file.file.discard(offset, offset + self.file.page_bytes as u64)?;
        self.file.file.write_at(offset, &zeros)
    }
}

fn is_excessive(blocks: u64, needed: u64) -> bool {
    blocks > needed + needed / EXCESS_PART
}
