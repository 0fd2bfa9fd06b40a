//! The reserve: free blocks that have their space on the disk, so that everything acknowledged can be written even when
//! the disk is full.
//!
//! ```text
//!   a page becomes dirty ──▶ free blocks >= demand?  ──no──▶ the file grows ──disk full──▶ OutOfSpace, nothing was changed
//! ```
//!
//! # The bound
//! Let D be the dirty pages, N those of them that have no image yet, and O the blocks of a whole mapping and of the catalog. Before a
//! page becomes dirty there are at least `D + N + 2 * O` free blocks, that page included, and some for structure changes.
//!
//! *A checkpoint fits.* It writes an image of each dirty page and at most O other blocks: D + O.
//!
//! *After it the bound holds again*, even if every page stayed dirty because transactions were writing to it all the time. The
//! checkpoint took D + O blocks. Its end gives back the old block of every page that had one, D - N, and the old blocks of the
//! mapping and the catalog. So at most N blocks and those of new mapping blocks are gone for good, which were in the bound
//! besides; and no page is without an image now.
//!
//! *Many threads ask at once.* A page counts when it has become dirty, which is after its thread asked. So everybody leaves, besides, what
//! all threads to which something was promised may still use.
//!
//! *The end of a transaction asks for nothing*, whatever it takes back: a page in which a transaction in progress has changed or only locked
//! something is dirty, images or not, and cannot leave memory.
//!
//! *Eviction keeps it*: a page that leaves memory takes one block and is dirty no more. While a checkpoint is written its
//! blocks must not be taken for that: [`PageStore::spares_blocks`]. A clean page that is written for its stamps gives no block back to the
//! bound. It takes one only that is not in it: [`PageStore::spares_blocks_for_clean`], [`PageStore::record_clean`].
//!
//! *Moving images and cutting the file leave it*: they take and give away only what is not in the bound for what is dirty. If nothing is,
//! they leave O: a close writes the catalog, and who drops a table, which asks for nothing, needs a checkpoint of it.
//!
//! *Packs.* An image that is written may have to get a block to itself, so nothing above becomes less. But a checkpoint does not give back
//! the block of a page that changed if that holds an image of another page, which did not. So let S be the images in packs beyond the first
//! of each; at most min(D, S) blocks are not given back for that reason, and the bound is `D + N + min(D, S) + 2 * O`. (Let G be the blocks
//! that hold images of dirty pages and no others; what is needed is `2 * D - G + 2 * O`, and the bound is never less. A checkpoint that
//! writes b blocks leaves `2 * D - G + 2 * O - b + G`; if all its pages stay dirty, G is b now, and what is left is what is needed. A pack
//! makes b and the new G smaller by the same number.)
//!
//! # Invariants
//! - V1: a block of the file has its space on the disk before it is handed out, as far as the file system keeps what it
//!   promised.
//! - V2: growth that fails changes nothing.
//!
//! Left out on purpose: what recovery makes dirty is not refused. The blocks it needs were free when the database went down, but a
//! page may split another way; then the first checkpoint may find the disk full, and says so.

use super::askers::Askers;
use super::blocks::BlockNumber;
use super::lock::SLICE;
use super::mapping::references_per_block;
use super::{BlockRef, PageStore, Phase, State};
use crate::base::clock::Clock;
use crate::base::planted::{self, Bug};
use crate::base::{Error, ErrorKind, PageId, Result};
use crate::device::SpaceRefusal;
use crate::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// The file grows by this part, within these bounds.
const GROWTH_PART: u64 = 64;
pub(super) const GROWTH_BYTES: std::ops::RangeInclusive<u64> = (1 << 20)..=(64 << 20);
/// Blocks for pages that merges, one after the other, or a rollback make dirty without asking.
const UNASKED: u64 = 32;
/// Blocks that a thread may still use when it has asked last, before the numbers show it: for a new page three, and two for each of the two
/// that a split changes besides; and what these add to the blocks that are not images.
const PER_THREAD: u64 = 8;
/// Blocks that a change of a page that is there may use and a new page may not: rows can still be deleted when none can be added.
const FOR_CHANGES: u64 = 32;
/// A page in the catalog's list takes at most so much: the distance to the one before.
const LISTED_BYTES: u64 = 6;
/// With fewer dirty pages, or images that were replaced, a checkpoint makes no room worth waiting for.
const WORTH_A_CHECKPOINT: u64 = 16;

/// What a page is about to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReservedFor {
    /// Dirty, and it has an image.
    Change,
    /// New.
    NewPage,
}

/// What the pages in memory will need of the store. Counted by the buffer pool, under the latches of the pages.
#[derive(Debug, Default)]
pub struct Demand {
    /// Pages that differ from their newest image.
    pub dirty: AtomicU64,
    /// Of these, pages that had no image when they became dirty.
    pub new: AtomicU64,
    /// Every page id is below.
    pub page_ids: AtomicU64,
    /// Pages that the next catalog may have to list because they are free although they have images.
    pub listed: AtomicU64,
}

/// Who needs space, and when that began to count.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) demand: Arc<Demand>,
    pub(super) askers: Askers,
    pub(super) clock: Clock,
}

/// The last time that the file could not grow; forgotten when it can.
#[derive(Debug)]
pub(super) struct Full {
    error: Error,
    asked: SpaceRefusal,
}

impl State {
    /// A block, or an image of one, that was with a writer is about to be in a table.
    pub(super) fn settle(&mut self, block: BlockNumber) {
        self.unsettled.recorded(block, self.free.users(block));
        self.free.note_change(block);
    }

    /// Blocks that can be written: free, or with a writer that may give them back.
    pub(super) fn available(&self) -> u64 {
        self.free.free_blocks() + self.unsettled.coming_back()
    }

    /// Blocks of a mapping of all pages and of the catalog, with `more` new pages, some of them roots of new tables.
    fn other_blocks(&self, demand: &Demand, page_bytes: usize, more: u64) -> u64 {
        let per_block = references_per_block(page_bytes) as u64;
        let parts = (demand.page_ids.load(Ordering::Relaxed) + more).div_ceil(per_block);
        let new = demand.new.load(Ordering::Relaxed) + more;
        let listed = demand.listed.load(Ordering::Relaxed) * LISTED_BYTES / (page_bytes as u64 / 2);
        parts + parts.div_ceil(per_block) + self.catalog_blocks.len() as u64 + 1 + new / 8 + listed
    }

    /// The bound for what is dirty and one page more.
    pub(super) fn demanded(&self, watched: &Watched, page_bytes: usize, page: ReservedFor) -> u64 {
        let Watched { demand, askers, .. } = watched;
        if planted::is(Bug::ReserveNotKept) {
            return 1;
        }
        let dirty = demand.dirty.load(Ordering::Relaxed);
        let not_given_back = (dirty + 1).min(self.free.packs().beyond_first);
        let pages = dirty + demand.new.load(Ordering::Relaxed) + not_given_back;
        let others = |more| 2 * self.other_blocks(demand, page_bytes, more);
        let more = match page {
            ReservedFor::Change => 1 + others(0),
            // Changes of threads that have not asked yet, too.
            ReservedFor::NewPage => 2 + others(1) + FOR_CHANGES.max(PER_THREAD * (askers.count() + 1)),
        };
        pages + more + UNASKED + PER_THREAD * askers.count()
    }

    /// Free blocks that nobody else may have, and that the file is not cut by: the bound for what is dirty. If nothing is, what a
    /// checkpoint writes besides images.
    pub(super) fn kept(&self, store: &PageStore) -> u64 {
        let Some(watched) = store.watched.get() else { return 0 };
        if watched.demand.dirty.load(Ordering::Relaxed) > 0 {
            self.demanded(watched, store.page_bytes(), ReservedFor::Change)
        } else {
            self.other_blocks(&watched.demand, store.page_bytes(), 0) + PER_THREAD * watched.askers.count()
        }
    }

    /// What clean pages leave: also the next change, which nothing would help if it was refused and nothing is dirty.
    fn kept_from_clean(&self, store: &PageStore) -> u64 {
        let Some(watched) = store.watched.get() else { return 0 };
        self.demanded(watched, store.page_bytes(), ReservedFor::Change)
    }
}

impl PageStore {
    /// From now on the reserve is kept for `demand`. Once.
    pub fn keep_reserve(&self, demand: Arc<Demand>, clock: Clock) {
        let _ = self.watched.set(Watched { demand, askers: Askers::default(), clock });
    }

    /// To be called before a clean page becomes dirty or a new one is made: makes sure that it can be written. Takes the store's
    /// lock, and grows the file now and then; waits for nobody.
    ///
    /// # Errors
    /// `OutOfSpace`: the disk is full, and the reserve is needed for what is dirty already. `InvalidArgument`: the store was released.
    pub fn reserve(&self, page: ReservedFor) -> Result<()> {
        let Some(watched) = self.watched.get() else { return Ok(()) };
        let mut state = self.state.lock();
        self.refuse_if_released()?;
        let is_new = watched.askers.note();
        let wanted = state.demanded(watched, self.page_bytes(), page);
        let available = state.available();
        let needed = state.free.blocks() - available + wanted;
        state.need.note(needed);
        let missing = wanted.saturating_sub(available);
        if missing == 0 {
            return Ok(());
        }
        match self.ask_disk(&mut state, &watched.clock, missing) {
            Err(error) if error.kind() == ErrorKind::OutOfSpace => {
                if is_new {
                    watched.askers.forget();
                }
                Err(self.refusal(&error, missing))
            }
            Err(error) => {
                // Not a full disk: whether pages can be written is for the checkpoint to find out, which stops nobody.
                tracing::debug!(%error, "the file of the page store does not grow");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Has the file grow by what is `missing`: whether the disk has space is not known before it was asked. One that is full is not asked
    /// again at once, but by and by as long as somebody is refused, whatever that was for.
    fn ask_disk(&self, state: &mut State, clock: &Clock, missing: u64) -> Result<()> {
        let now = clock.now();
        if let Some(full) = state.full.as_ref().filter(|full| full.asked.is_recent(now)) {
            let error = full.error.duplicate();
            state.refused = Some(now);
            return Err(error);
        }
        self.grow(state, missing).inspect_err(|error| {
            if error.kind() == ErrorKind::OutOfSpace {
                let asked = SpaceRefusal::new(now, clock.now());
                state.full = Some(Full { error: error.duplicate(), asked });
                state.refused = Some(asked.at);
            }
        })
    }

    /// True if so many blocks are left when the reserve is taken away; the file grows for it.
    pub(super) fn can_spare(&self, blocks: u64) -> bool {
        let mut state = self.state.lock();
        let kept = state.kept(self);
        self.spare(&mut state, kept, blocks).is_ok()
    }

    fn spare(&self, state: &mut State, kept: u64, blocks: u64) -> Result<()> {
        let Some(Watched { clock, .. }) = self.watched.get() else { return Ok(()) };
        let missing = (kept + blocks).saturating_sub(state.available());
        if missing == 0 { Ok(()) } else { self.ask_disk(state, clock, missing) }
    }

    /// Whether so many clean pages may be written: enough is left for what is dirty; the file grows for it. If not, and a checkpoint would give
    /// blocks back, one is asked for.
    ///
    /// # Errors
    /// Why the file does not grow.
    pub fn spares_blocks_for_clean(&self, pages: u64) -> Result<()> {
        let mut state = self.state.lock();
        let kept = state.kept_from_clean(self);
        let spared = self.spare(&mut state, kept, pages);
        // Once: a round that fails is made again by and by, not at each page that is refused.
        let is_asked = spared.is_err()
            && state.phase == Phase::Idle
            && !state.round_wanted
            && state.replaced.working >= WORTH_A_CHECKPOINT;
        state.round_wanted |= is_asked;
        drop(state);
        if is_asked {
            self.on_replaced.tell();
        }
        spared
    }

    /// As [`PageStore::record`], the image of a clean page; false, and nothing is recorded, if its block is in the reserve by now.
    #[must_use]
    pub fn record_clean(&self, page: PageId, reference: BlockRef, in_round: bool) -> bool {
        let state = self.state.lock();
        // Its own is among those that are available.
        let spared = self.watched.get().is_none() || state.kept_from_clean(self) < state.available();
        if spared {
            self.record_in(state, page, reference, in_round);
        }
        spared
    }

    /// A checkpoint would give back blocks of which clean pages have need, to leave memory.
    #[must_use]
    pub fn is_round_wanted(&self) -> bool {
        self.state.lock().round_wanted
    }

    fn refusal(&self, error: &Error, missing_blocks: u64) -> Error {
        let what = format!(
            "the disk is full: {} more bytes are needed for the checkpoint of what would be committed",
            missing_blocks * self.page_bytes() as u64
        );
        let refusal = Error::new(ErrorKind::OutOfSpace, what);
        match error.location() {
            Some(location) => refusal.at(location.clone()),
            None => refusal,
        }
    }

    /// Makes the file at least `least` blocks longer, and a step if there is room.
    pub(super) fn grow(&self, state: &mut State, least: u64) -> Result<()> {
        self.refuse_if_released()?;
        let wanted = state.free.free_blocks() + least;
        if state.free.waits_for_readers() {
            // Some may have gone since the last checkpoint.
            state.free.set_readers(self.generations_read());
            state.free.give_back(SLICE);
            if state.free.free_blocks() >= wanted {
                return Ok(());
            }
        }
        let block_bytes = self.source.page_bytes as u64;
        let old = state.free.blocks();
        let most = BlockNumber::LIMIT - 1 - old;
        if least > most {
            return Err(Error::new(ErrorKind::OutOfSpace, "the page store is at its largest size"));
        }
        let mut step =
            (old * block_bytes / GROWTH_PART).clamp(*GROWTH_BYTES.start(), *GROWTH_BYTES.end()) / block_bytes;
        if state.full.is_some() {
            step = least;
        }
        step = step.clamp(least, most);
        loop {
            match self.source.file.reserve(old * block_bytes, (old + step) * block_bytes) {
                Ok(()) => break,
                Err(error) if error.kind() == ErrorKind::OutOfSpace && step > least => {
                    step = (step / 2).max(least);
                }
                Err(error) => {
                    let is_full = error.kind() == ErrorKind::OutOfSpace;
                    // Others wait, but for space they would wait anyway.
                    while is_full && state.free.free_blocks() < wanted && state.free.give_back(SLICE) {}
                    return if state.free.free_blocks() < wanted { Err(error) } else { Ok(()) };
                }
            }
        }
        state.free.extend(old + step);
        if state.full.take().is_some() {
            tracing::info!("there is space on the disk again");
        }
        Ok(())
    }

    /// Sets space aside for the free blocks that the file has already, or cuts them off: an earlier run may have left a sparse
    /// end.
    pub(super) fn back_free_end(&self) -> Result<()> {
        let mut state = self.state.lock();
        let block_bytes = self.source.page_bytes as u64;
        let (used, blocks) = (state.free.used_end(), state.free.blocks());
        match self.source.file.reserve(used * block_bytes, blocks * block_bytes) {
            Err(error) if error.kind() == ErrorKind::OutOfSpace => {
                self.source.file.set_len(used * block_bytes)?;
                state.free.cut(used);
                Ok(())
            }
            reserved => reserved,
        }
    }

    /// True if a page may be written that the round in progress, if there is one, does not need: enough is left for that; the file grows
    /// for it. A round needs blocks until it is decided: after its images it writes the mapping. Only a full disk says no: whether
    /// pages can be written in spite of another error is for who writes them to find out.
    #[must_use]
    pub fn spares_blocks(&self) -> bool {
        let Some(Watched { demand, clock, .. }) = self.watched.get() else { return true };
        let mut state = self.state.lock();
        let images = match state.phase {
            // At most: a page that has its image, and was changed again since, is dirty too.
            Phase::Writing => demand.dirty.load(Ordering::Relaxed),
            Phase::Finished => 0,
            Phase::Idle | Phase::Undecided | Phase::FlushFailed => return true,
        };
        let needed = images + state.other_blocks(demand, self.page_bytes(), 0);
        let (number, available) = (state.number, state.available());
        let left = state.left_to_round.filter(|(round, _)| *round == number).map_or(needed, |(_, left)| left);
        if available > needed.min(left) {
            return true;
        }
        // One is enough, whatever is missing: with a block of its own a page takes nothing from the round.
        match self.ask_disk(&mut state, clock, 1) {
            Ok(()) => {
                state.left_to_round = Some((number, available));
                true
            }
            Err(error) => error.kind() != ErrorKind::OutOfSpace,
        }
    }

    /// True if the next checkpoint would give a good part of the reserve back.
    #[must_use]
    pub fn is_checkpoint_worthwhile(&self) -> bool {
        let replaced = || self.state.lock().replaced.working;
        self.watched
            .get()
            .is_some_and(|w| w.demand.dirty.load(Ordering::Relaxed) + replaced() >= WORTH_A_CHECKPOINT)
    }

    /// The disk was full when the file had to grow last.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        self.state.lock().full.is_some()
    }

    /// Somebody was refused at most `recently` ago.
    #[must_use]
    pub fn has_refused(&self, recently: Duration) -> bool {
        let Some(Watched { clock, .. }) = self.watched.get() else { return false };
        self.state.lock().refused.is_some_and(|then| clock.now().since(then) <= recently)
    }

    /// Asks a full disk for space again, unless that was just done.
    pub fn ask_again(&self) {
        let Some(watched) = self.watched.get() else { return };
        let mut state = self.state.lock();
        let now = watched.clock.now();
        if state.full.as_ref().is_none_or(|full| full.asked.is_recent(now)) {
            return;
        }
        let wanted = state.demanded(watched, self.page_bytes(), ReservedFor::NewPage);
        let missing = wanted.saturating_sub(state.available()).max(1);
        if self.grow(&mut state, missing).is_err()
            && let Some(full) = &mut state.full
        {
            full.asked = SpaceRefusal::new(now, watched.clock.now());
        }
    }

    /// Bytes of free blocks that are kept for what is dirty.
    #[must_use]
    pub fn reserved_bytes(&self) -> u64 {
        let Some(watched) = self.watched.get() else { return 0 };
        let state = self.state.lock();
        let demanded = state.demanded(watched, self.page_bytes(), ReservedFor::Change);
        demanded.min(state.available()) * self.page_bytes() as u64
    }
}
