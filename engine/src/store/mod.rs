//! Rank 3: where is a page image?
//!
//! Pages are never written in place. An image goes to a free block: written by a checkpoint, or because the page had to
//! leave memory. A checkpoint is a **round**: the images made since the last round began and those that it makes itself,
//! then the changed parts of the mapping; it flushes, and hands out the [`StoreRoot`] that the manifest will point to.
//! Until that manifest is durable the previous checkpoint is complete and untouched, so there are no torn pages to repair
//! and nothing to undo.
//!
//! ```text
//!   look-up:   working  ──absent?──▶  round  ──absent?──▶  mapping
//!              images for the         images of the        the last durable
//!              next round             round in progress    checkpoint
//!
//!   begin_round: working becomes the round     round_committed: the round goes into the mapping
//!                                              dropped, abandoned: the round goes back to working
//! ```
//!
//! # Invariants
//! - S1 (I8): no block that the last durable manifest reaches is written. See `free`.
//! - S2: a block is believed only if its checksum, database, kind, subject and the tag in the reference to it agree. See
//!   `blocks`.
//! - S3: there is one round at a time, and a finished round is decided (committed or abandoned) before the next begins.
//!   If nobody decides, because publishing the manifest failed and may or may not have happened, no further round
//!   begins: either set of blocks may be the durable one.
//! - S4 (I11): after a failed flush no round begins.
//! - S5: an image that was recorded stays until a newer one is: a failed round loses none, for a page may have left memory
//!   trusting in it.
//!
//! Images that are not expected to change soon are compressed, several to a block; see `pack`. Left out on purpose: blocks of several
//! lengths.
//!
//! Locks: one mutex, held for look-ups and allocation, never across a read or write of a block. (Growing and cutting the
//! file, changes of its length, are done under it.)

mod askers;
mod births;
pub mod blob;
pub mod blocks;
mod check;
pub mod codec;
mod compact;
mod copy;
pub mod csn_set;
mod fill;
mod free;
mod lock;
pub mod manifest;
pub mod manifest_file;
mod mapping;
mod memory;
mod open;
mod overlay;
pub mod pack;
mod packer;
mod packing;
mod read;
mod readers;
mod remains;
mod reserve;
mod round;
mod space;
#[cfg(test)]
mod tests;
mod unsettled;
mod writer;

pub use blob::BlobRef;
pub use blocks::{BLOCK_HEADER_BYTES, BlockRef, ImageKind};
pub use copy::{StoreCopy, StoredImage};
pub use csn_set::CsnSet;
pub use manifest::{AcceptedEnd, EpochEntry, Manifest, NeededMemory};
pub use manifest_file::{CreationState, MANIFEST_PATH, ManifestFile, creation_state};
pub use packing::PackUsage;
pub use read::VisitImage;
pub use readers::{CheckpointReader, HeldBlocks, READERS_PATH, ReaderSlot, Readers, open_newest_checkpoint};
pub use remains::Remains;
pub use reserve::{Demand, ReservedFor};
pub use round::{FinishedRound, Round};
pub use space::Space;
pub use writer::{Heat, ImageWriter, Written};

use crate::base::clock::Nanos;
use crate::base::planted::{self, Bug};
use crate::base::{Account, Csn, Error, ErrorKind, PageId, Result};
use crate::device::AlignedBuffer;
use crate::device::counted::Traffic;
use crate::sync::atomic::AtomicBool;
use crate::sync::{Mutex, MutexGuard};
use blocks::{BlockKind, BlockNumber};
use codec::Codecs;
use compact::Search;
use free::FreeSpace;
use lock::StateLock;
use mapping::{BlockSource, Mapping};
use overlay::Overlay;
use packing::Packing;
use reserve::{Full, Watched};
use space::{Need, OnReplaced, Replaced};
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use unsettled::Unsettled;

/// The file of the page store, in the database directory.
pub const PAGES_PATH: &str = "pages/data";
const PAGES_DIRECTORY: &str = "pages";

/// What the manifest keeps of the page store: everything else is reached from here.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StoreRoot {
    /// The mapping's directory blocks, in order.
    pub directory: Vec<BlockRef>,
    /// Pages that have an image; a check on the mapping.
    pub pages: u64,
    /// The catalog, once a checkpoint has written one.
    pub catalog: Option<BlobRef>,
    /// What images may be compressed with.
    pub codecs: Codecs,
}

/// Numbers for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreUsage {
    /// Pages that have an image in the last committed checkpoint.
    pub pages: u64,
    /// Blocks of the file.
    pub blocks: u64,
    /// Of these, free.
    pub free_blocks: u64,
    /// Of the others, in older checkpoints only, which somebody holds or reads.
    pub held_blocks: u64,
    /// Images that the next checkpoint will take over.
    pub working: u64,
    /// Images of the checkpoint that is being made.
    pub in_round: u64,
    /// Images of the last checkpoint whose pages have newer ones: the next gives their space back.
    pub replaced: u64,
    /// Length of a block.
    pub block_bytes: usize,
}

/// Where the current round stands (S3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Idle,
    Writing,
    /// Finished; the manifest is being published.
    Finished,
    /// Finished, and nobody knows whether the manifest was published.
    Undecided,
    /// A flush failed.
    FlushFailed,
}

#[derive(Debug)]
struct State {
    /// As of the last committed round.
    mapping: Mapping,
    /// What the round in progress changed; absent = removed.
    round: Overlay,
    /// What was changed for the next round; absent = removed.
    working: Overlay,
    /// Number of the newest round; pages are imaged once per round.
    number: u32,
    free: FreeSpace,
    replaced: Replaced,
    need: Need,
    /// Parts of the mapping that the next round writes though nothing in them has changed.
    moving_parts: BTreeSet<usize>,
    search: Search,
    /// Blocks in use that are in no table.
    unsettled: Unsettled,
    /// The disk was full when the file had to grow last.
    full: Option<Full>,
    /// When somebody last did not get what the file would have had to grow for.
    refused: Option<Nanos>,
    /// The next round would give back blocks that somebody waits for.
    round_wanted: bool,
    /// A round, and the blocks it had when the file last grew for pages beside it.
    left_to_round: Option<(u32, u64)>,
    phase: Phase,
    /// Why the phase is `Undecided` or `FlushFailed`.
    failure: Option<Error>,
    catalog: Option<BlobRef>,
    catalog_blocks: Vec<BlockNumber>,
}

impl State {
    /// No further round begins.
    fn refusal(&self, what: &str) -> Error {
        match &self.failure {
            Some(failure) => Error::after(ErrorKind::Poisoned, what, failure),
            None => Error::new(ErrorKind::Poisoned, what),
        }
    }

    fn look_up(&self, page: PageId) -> BlockRef {
        let newer = self.working.get(page).or_else(|| self.round.get(page));
        newer.unwrap_or_else(|| self.mapping.get(page))
    }

    /// Notes where the newest image of a page is, for the next round.
    fn set_working(&mut self, page: PageId, reference: BlockRef) {
        let before = self.replaces(page);
        let replaced = self.working.set(page, reference);
        self.release_replaced(replaced);
        // Its first image may still be on its way, and the round has it then, when it arrives.
        let on_its_way = self.phase == Phase::Writing && !planted::is(Bug::RemovalForgotten);
        let unwritten = self.round.get(page).is_none() && self.mapping.get(page).is_absent() && !on_its_way;
        if reference.is_absent() && unwritten {
            // Never written, and now removed: nothing changed.
            self.working.remove(page);
        }
        self.replaced.recount(before, self.replaces(page));
    }

    /// Notes where the image of a page for the round in progress is.
    fn set_round(&mut self, page: PageId, reference: BlockRef) {
        let before = self.replaces(page);
        let replaced = self.round.set(page, reference);
        if planted::is(Bug::BlockReusedEarly) && replaced.is_none() && !reference.is_absent() {
            let old = self.mapping.set(page, BlockRef::ABSENT);
            self.release_replaced(Some(old));
        }
        self.release_replaced(replaced);
        if reference.is_absent() && self.mapping.get(page).is_absent() {
            self.round.remove(page);
        }
        self.replaced.recount(before, self.replaces(page));
    }

    /// Notes for the next round what was taken out of one that is abandoned.
    fn take_back(&mut self, page: PageId, reference: BlockRef) {
        self.replaced.recount(self.replaces_with(page, Some(reference)), self.replaces(page));
        if self.working.get(page).is_none() {
            return self.set_working(page, reference);
        }
        // That has replaced this, and replaces what the mapping has from now on.
        self.release_replaced(Some(reference));
        if self.look_up(page).is_absent() {
            // Removed, and in no checkpoint: nothing is left to say.
            self.set_working(page, BlockRef::ABSENT);
        }
    }

    /// No manifest has an image that an overlay had (F2).
    fn release_replaced(&mut self, replaced: Option<BlockRef>) {
        if let Some(replaced) = replaced.filter(|reference| !reference.is_absent()) {
            self.free.release(replaced.block());
        }
    }

    /// A writer has no use for a block, or for one of its images.
    fn give_back(&mut self, block: BlockNumber) {
        self.free.release(block);
        self.unsettled.given_back(block, self.free.users(block));
    }
}

/// What a checkpoint is, in memory.
struct Parts {
    mapping: Mapping,
    free: FreeSpace,
    catalog: Option<BlobRef>,
    catalog_blocks: Vec<BlockNumber>,
    packing: Packing,
}

impl Parts {
    fn new(mapping: Mapping, free: FreeSpace) -> Parts {
        let (catalog, catalog_blocks, packing) = (None, Vec::new(), Packing::default());
        Parts { mapping, free, catalog, catalog_blocks, packing }
    }
}

/// The page images of one database.
#[derive(Debug)]
pub struct PageStore {
    source: BlockSource,
    traffic: Arc<Traffic>,
    packing: Packing,
    state: StateLock,
    /// Whom the reserve is kept for; nobody before recovery is over.
    watched: OnceLock<Watched>,
    /// Pays for buffers that are larger than a page.
    memory: OnceLock<Arc<Account>>,
    /// Told now and then how much was replaced.
    on_replaced: OnReplaced,
    /// For reading many pages; as many as there were ever such reads at once.
    buffers: Mutex<Vec<AlignedBuffer>>,
    /// Readers of checkpoints; none of a store that is open read-only while nobody writes.
    readers: Option<Readers>,
    /// What keeps the blocks that this store reads.
    slot: Option<ReaderSlot>,
    /// Another owner may have the file, and write to any block. Set once.
    released: AtomicBool,
}

impl PageStore {
    fn with(source: BlockSource, traffic: Arc<Traffic>, parts: Parts) -> PageStore {
        let Parts { mapping, free, packing, catalog, catalog_blocks } = parts;
        let overlay = || Overlay::new(mapping::references_per_block(source.page_bytes));
        let state = State {
            round: overlay(),
            working: overlay(),
            mapping,
            number: 0,
            free,
            replaced: Replaced::default(),
            need: Need::default(),
            moving_parts: BTreeSet::new(),
            search: Search::default(),
            unsettled: Unsettled::default(),
            full: None,
            refused: None,
            round_wanted: false,
            left_to_round: None,
            phase: Phase::Idle,
            failure: None,
            catalog,
            catalog_blocks,
        };
        let (state, watched, memory) = (StateLock::new(state), OnceLock::new(), OnceLock::new());
        let buffers = Mutex::default();
        let on_replaced = OnReplaced::default();
        PageStore {
            source,
            traffic,
            packing,
            state,
            watched,
            memory,
            on_replaced,
            buffers,
            readers: None,
            slot: None,
            released: AtomicBool::new(false),
        }
    }

    /// Length of a page and of a block.
    #[must_use]
    pub fn page_bytes(&self) -> usize {
        self.source.page_bytes
    }

    /// Reads and writes of the file of pages since it was opened: faults, checkpoints, the mapping, the catalog.
    #[must_use]
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// The root of the last committed round.
    #[must_use]
    pub fn root(&self) -> StoreRoot {
        let state = self.state.lock();
        StoreRoot {
            directory: state.mapping.directory().to_vec(),
            pages: state.mapping.pages(),
            catalog: state.catalog,
            codecs: self.packing.codecs(),
        }
    }

    /// Pages and blocks in use.
    #[must_use]
    pub fn usage(&self) -> StoreUsage {
        let state = self.state.lock();
        StoreUsage {
            pages: state.mapping.pages(),
            blocks: state.free.blocks(),
            free_blocks: state.free.free_blocks(),
            held_blocks: state.free.held_blocks(),
            working: state.working.len(),
            in_round: state.round.len(),
            replaced: state.replaced.working + state.replaced.round,
            block_bytes: self.source.page_bytes,
        }
    }

    /// True if `page` has an image that [`PageStore::read_page`] would read.
    #[must_use]
    pub fn contains(&self, page: PageId) -> bool {
        !self.state.lock().look_up(page).is_absent()
    }

    /// Ids of the pages of the last committed round, in ascending order; meant for the time before the first round.
    pub fn page_ids(&self) -> impl Iterator<Item = PageId> + '_ {
        let parts = self.state.lock().mapping.part_count();
        (0..parts).flat_map(move |part| self.state.lock().mapping.page_ids(part))
    }

    /// At most `most` pages of the last committed round from all over it. Looks at no more than `most` parts of the mapping, however many there are.
    #[must_use]
    pub fn sample_pages(&self, most: usize) -> Vec<PageId> {
        let parts = self.state.lock().mapping.part_count();
        let looked_at = parts.min(most);
        let each = most.div_ceil(looked_at.max(1));
        let sample = (0..looked_at).flat_map(|at| {
            let pages = self.state.lock().mapping.page_ids(at * parts / looked_at);
            let step = pages.len().div_ceil(each).max(1);
            pages.into_iter().step_by(step)
        });
        sample.take(most).collect()
    }

    /// Notes that the newest image of `page` is at `reference`. It belongs to the next round, and also to the one in progress if
    /// `in_round`. The caller holds the page exclusively.
    pub fn record(&self, page: PageId, reference: BlockRef, in_round: bool) {
        self.record_in(self.state.lock(), page, reference, in_round);
    }

    fn record_in(&self, mut state: MutexGuard<'_, State>, page: PageId, reference: BlockRef, in_round: bool) {
        state.settle(reference.block());
        if in_round && state.phase == Phase::Writing {
            state.set_round(page, reference);
        } else {
            state.set_working(page, reference);
        }
        let tell = state.is_replacing_told();
        drop(state);
        if tell {
            self.on_replaced.tell();
        }
    }

    /// Notes that `page`, which was last imaged or born in round `page_round`, exists no more: from the round in progress on
    /// if it has no image in that, otherwise from the next one on. The caller holds the page exclusively.
    pub fn freed(&self, page: PageId, page_round: u32) {
        let mut state = self.state.lock();
        if state.phase == Phase::Writing && page_round < state.number {
            state.set_round(page, BlockRef::ABSENT);
        } else {
            state.set_working(page, BlockRef::ABSENT);
        }
    }

    /// Gives back the block of an image that nobody recorded.
    pub fn discard(&self, reference: BlockRef) {
        let mut state = self.state.lock();
        state.give_back(reference.block());
    }

    /// Begins round `number`, higher than the last, of the checkpoint at `csn`: every image recorded for the next round belongs
    /// to it from now on.
    ///
    /// # Errors
    /// `Busy` while another round is open or undecided-but-pending, `Poisoned` after S3 or S4 forbade further rounds.
    pub fn begin_round(self: &Arc<PageStore>, number: u32, csn: Csn) -> Result<Round> {
        let mut state = self.state.lock();
        match state.phase {
            Phase::Idle => {
                let state = &mut *state;
                std::mem::swap(&mut state.round, &mut state.working);
                (state.phase, state.number) = (Phase::Writing, number);
                state.replaced.begin_round();
                state.free.rewind();
                state.search = Search::default();
            }
            Phase::Writing | Phase::Finished => {
                return Err(Error::new(ErrorKind::Busy, "another checkpoint is being written"));
            }
            Phase::Undecided => {
                let what = "a manifest may or may not have been published, so no block can be reused";
                return Err(state.refusal(what));
            }
            Phase::FlushFailed => return Err(state.refusal("an earlier flush of the page store failed")),
        }
        Ok(Round::new(self.clone(), csn))
    }

    /// The manifest with this round's root is durable: its pages are the committed ones, and the blocks it replaced are
    /// free unless somebody has a checkpoint with them.
    ///
    /// # Panics
    /// If the round belongs to another store.
    pub fn round_committed(&self, round: FinishedRound) {
        assert!(std::ptr::eq(round.store(), self), "a round is decided by its own store");
        // After the publication: see `readers`.
        let readers = self.generations_read();
        round.commit(readers);
        self.give_back();
        if let Err(error) = self.shrink() {
            tracing::debug!(%error, "the file of the page store stays as long as it is");
        }
    }

    /// The manifest with this round's root was certainly not written (publishing was not even attempted): its images
    /// wait for the next round. After a publication that failed, drop the round instead (S3).
    ///
    /// # Panics
    /// If the round belongs to another store.
    pub fn round_abandoned(&self, round: FinishedRound) {
        assert!(std::ptr::eq(round.store(), self), "a round is decided by its own store");
        round.abandon();
    }

    /// At most `most` free blocks side by side; the file grows if there are none.
    fn allocate_run(&self, state: &mut State, most: u64) -> Result<(BlockNumber, u64)> {
        if let Some(run) = state.free.allocate_run(most) {
            return Ok(run);
        }
        self.grow(state, 1)?;
        Ok(state.free.allocate_run(most).expect("the file has just grown"))
    }

    /// Seals `image` and writes it to a free block.
    fn write_block(
        &self,
        kind: BlockKind,
        subject: u64,
        image: &mut AlignedBuffer,
        csn: Csn,
    ) -> Result<BlockRef> {
        let (state, (block, _)) = self.await_run(1, 0)?;
        drop(state);
        let len = self.source.page_bytes;
        let reference = blocks::seal(&mut image[..len], self.source.identity(kind, subject), csn, block);
        // If this fails the block stays in use (F3).
        let written = self.source.file.write_at(self.source.offset(reference), &image[..len]);
        written.inspect_err(|_| self.state.lock().unsettled.lose(block))?;
        Ok(reference)
    }
}
