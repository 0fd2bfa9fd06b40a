//! Free space: which blocks may be written.
//!
//! One bit per block, derived from the mapping at open and never stored, and two bytes that say how many images in it count (see
//! `fill`): a pack is in use until none does. A block passes through these states:
//!
//! ```text
//!            allocate                round committed              replaced, and the round without it committed
//!   free ───────────────> fresh ──────────────────────> live ───────────────────────────────────────────────────┐
//!    ^                      │ nothing refers to it any more                                                      │
//!    ├──────────────────────┘                                                                                   │
//!    └───────────────────────── as soon as nobody has a checkpoint with it ───────────── held ◀────────────────┘
//! ```
//!
//! A checkpoint is known by the generation of its manifest. Whoever has a checkpoint, in this process or another, pins its generation.
//! What was born with generation b and is not in generation n any more is needed by those who pin b to n - 1: so each holds
//! no more than its own checkpoint, however many come after it. Births are remembered only while somebody pins; what has
//! no known birth is as old as anything that is pinned. Images of one pack are born and replaced at different times, so births are
//! those of images, and an image that is held keeps its block; a block is held when nothing but such images keeps it.
//!
//! What is held is filed under one pinned generation that has it. When nobody pins that any more it is looked at again, a slice at a time,
//! and filed under another or given back. Who pins something later has a newer generation than all that is held, so nothing
//! is needed for the sake of a new pin.
//!
//! # Invariants
//! - F1 (I8): a live block that a round replaces is released when the manifest without it is durable, and not while a
//!   checkpoint that may have it is held.
//! - F2: a fresh block is in no durable manifest; who allocated it may release it at any time.
//! - F4: a block is released as often as it was claimed: once, or for a pack once for each image. Each reference to it, in the mapping, in
//!   an overlay, replaced but held, or with a writer, stands for one of these.
//! - F3: a block whose write failed is never released; it is free again after the next open. Its bytes may still arrive.

use super::births::{Births, Content};
use super::blocks::BlockNumber;
use super::fill::{Fills, PackTotals};
use super::lock::looked_at;
use crate::base::account::Charge;
use crate::base::planted::{self, Bug};
use crate::base::{Account, PageId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Of births a part is forgotten where so many other things are looked at: it is a piece of memory of its own.
const PARTS_FORGOTTEN: usize = 16;

/// The bitmap.
#[derive(Debug, Default)]
pub struct FreeSpace {
    /// Bit set = in use. Bits at and above `blocks` do not exist.
    used: Vec<u64>,
    /// How full the blocks in use are.
    fills: Fills,
    blocks: u64,
    free: u64,
    /// Where the next search begins; back at the front with each round, so that the file stays compact.
    cursor: u64,
    /// The same of searches for images that move.
    moved_to: u64,
    /// Generation of the last committed checkpoint.
    committed: u64,
    /// Checkpoints held in this process: generation, and how often.
    holds: BTreeMap<u64, usize>,
    /// Generations that readers in other processes had when they were looked at after the last commit. Those that came later have
    /// newer ones.
    readers: Vec<u64>,
    /// With which generation things were born, while anything was pinned.
    births: Births,
    /// Replaced things that somebody may need, by a generation that has them and was pinned when they were looked at last.
    held: BTreeMap<u64, Vec<Held>>,
    /// For `births` and `held`, once somebody pays.
    charge: Option<Charge>,
}

/// Something that keeps a block in use for older checkpoints.
#[derive(Debug)]
struct Held {
    block: BlockNumber,
    born: u64,
    /// The first generation without it.
    gone: u64,
}

impl Held {
    fn is_read_in(&self, generation: u64) -> bool {
        generation < self.gone && (self.born <= generation || generation == READS_ANYTHING)
    }
}

/// A reader of which it is not known what it reads: it needs every block.
pub const READS_ANYTHING: u64 = 0;

impl FreeSpace {
    /// A file of `blocks` blocks, all free but the header (B2).
    #[must_use]
    pub fn new(blocks: u64) -> FreeSpace {
        let mut space = FreeSpace::default();
        space.extend(blocks.max(1));
        space.mark_used(BlockNumber(0));
        space
    }

    /// Blocks of the file.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Free blocks.
    #[must_use]
    pub fn free_blocks(&self) -> u64 {
        self.free
    }

    /// The file has grown to `blocks` blocks.
    pub fn extend(&mut self, blocks: u64) {
        debug_assert!(blocks >= self.blocks && blocks < BlockNumber::LIMIT);
        self.used.resize(blocks.div_ceil(64) as usize, 0);
        self.fills.resize(blocks);
        self.free += blocks - self.blocks;
        self.blocks = blocks;
    }

    /// Blocks up to the last one in use: what the file can be cut to.
    #[must_use]
    pub fn used_end(&self) -> u64 {
        let last = self.used.iter().rposition(|word| *word != 0);
        last.map_or(0, |at| at as u64 * 64 + 64 - u64::from(self.used[at].leading_zeros()))
    }

    /// The file is going to be cut to `blocks` blocks, none of which behind is in use.
    pub fn cut(&mut self, blocks: u64) {
        debug_assert!(blocks >= self.used_end() && blocks <= self.blocks);
        self.free -= self.blocks - blocks;
        self.blocks = blocks;
        self.used.truncate(blocks.div_ceil(64) as usize);
        self.fills.resize(blocks);
        self.cursor = self.cursor.min(blocks);
    }

    /// Searches begin at the front again.
    pub fn rewind(&mut self) {
        (self.cursor, self.moved_to) = (0, 0);
    }

    /// Marks a block that holds no images; false if it does not exist or is in use already.
    #[must_use = "false means that two things claim one block"]
    pub fn claim(&mut self, block: BlockNumber) -> bool {
        if block.0 >= self.blocks || self.is_used(block) {
            return false;
        }
        self.mark_used(block);
        true
    }

    /// Marks a block in which the mapping has an image; false if it does not exist or cannot have it, or more.
    #[must_use = "false means that something is not what it should be"]
    pub fn claim_image(&mut self, block: BlockNumber) -> bool {
        if block.0 >= self.blocks {
            return false;
        }
        if self.is_used(block) {
            return self.fills.claim_another(block);
        }
        self.mark_used(block);
        self.fills.claim_first(block);
        true
    }

    /// A block that was allocated has become a pack of so many images, each of which is to be released.
    pub fn becomes_pack(&mut self, block: BlockNumber, images: u8) {
        debug_assert!(self.is_used(block));
        self.fills.becomes_pack(block, images);
    }

    /// A block that holds an image was read: it has so many.
    pub fn learn(&mut self, block: BlockNumber, images: u8) {
        if self.is_used(block) {
            self.fills.learn(block, images);
        }
    }

    /// Whether at most half of the images of a pack count.
    #[must_use]
    pub fn is_sparse(&self, block: BlockNumber) -> bool {
        self.fills.is_sparse(block)
    }

    /// References that keep a block in use; 0 if it is free.
    #[must_use]
    pub fn users(&self, block: BlockNumber) -> u8 {
        self.fills.live(block)
    }

    /// Packs, all together.
    #[must_use]
    pub fn packs(&self) -> PackTotals {
        self.fills.totals()
    }

    /// See [`Fills::watch`].
    pub fn watch(&mut self, wanted: bool) {
        self.fills.watch(wanted);
    }

    /// See [`Fills::note_change`].
    pub fn note_change(&mut self, block: BlockNumber) {
        self.fills.note_change(block);
    }

    /// See [`Fills::has_changed`].
    #[must_use]
    pub fn has_changed(&self, block: BlockNumber) -> bool {
        self.fills.has_changed(block)
    }

    /// Bytes of memory for all this.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.used.capacity() as u64 * 8 + self.fills.memory_bytes() + self.pinned_bytes()
    }

    /// Of these, those that are there because somebody pins a checkpoint.
    fn pinned_bytes(&self) -> u64 {
        let held: usize = self.held.values().map(Vec::capacity).sum();
        self.births.memory_bytes() + (held * size_of::<Held>()) as u64
    }

    /// What is there because somebody pins a checkpoint is charged to `memory` from now on.
    pub fn charge_to(&mut self, memory: &Arc<Account>) {
        self.charge = Some(memory.charge(self.pinned_bytes()));
    }

    /// To be called after things were noted or replaced.
    pub fn recharge(&self) {
        if let Some(charge) = &self.charge {
            charge.set(self.pinned_bytes());
        }
    }

    /// At most `most` free blocks side by side, at least one, or `None` if the file must grow first.
    pub fn allocate_run(&mut self, most: u64) -> Option<(BlockNumber, u64)> {
        let run = self.take_run(self.cursor, self.blocks, most)?;
        self.cursor = run.0.0 + run.1;
        Some(run)
    }

    /// As [`FreeSpace::allocate_run`], of blocks before `bound`, for images that move there.
    pub fn allocate_before(&mut self, bound: u64, most: u64) -> Option<(BlockNumber, u64)> {
        let run = self.take_run(self.moved_to, bound, most)?;
        self.moved_to = run.0.0 + run.1;
        Some(run)
    }

    /// Of blocks before `end`; the search begins at `from`, and goes on at the front.
    fn take_run(&mut self, from: u64, end: u64, most: u64) -> Option<(BlockNumber, u64)> {
        if self.free == 0 || most == 0 {
            return None;
        }
        let end = end.min(self.blocks);
        let first = self.find(from, end).or_else(|| self.find(0, from.min(end)))?;
        let end = end.min(first.0.saturating_add(most));
        let mut len = 0;
        while first.0 + len < end && !self.is_used(BlockNumber(first.0 + len)) {
            self.mark_used(BlockNumber(first.0 + len));
            len += 1;
        }
        Some((first, len))
    }

    /// Gives back a block that nothing refers to (F2), or an image of a pack: then the block is free with the last one.
    pub fn release(&mut self, block: BlockNumber) {
        debug_assert!(self.is_used(block), "released twice");
        if self.is_used(block) && self.fills.release(block) {
            self.used[(block.0 / 64) as usize] &= !(1 << (block.0 % 64));
            self.free += 1;
        }
    }

    /// The checkpoint of manifest `generation` is durable, and since then `readers` were found to be what is read in other
    /// processes.
    pub fn committed(&mut self, generation: u64, readers: Vec<u64>) {
        debug_assert!(generation >= self.committed);
        self.committed = generation;
        self.set_readers(readers);
    }

    /// Generation of the last committed checkpoint.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.committed
    }

    /// The generations that are read in other processes now. Then call [`FreeSpace::give_back`].
    pub fn set_readers(&mut self, readers: Vec<u64>) {
        self.readers = readers;
        self.readers.sort_unstable();
        self.readers.dedup();
    }

    /// Whether blocks may be held because of readers in other processes, or have not been given back yet.
    #[must_use]
    pub fn waits_for_readers(&self) -> bool {
        !self.held.is_empty() && (!self.readers.is_empty() || self.let_go().is_some())
    }

    /// Blocks that are in no checkpoint but older ones.
    #[must_use]
    pub fn held_blocks(&self) -> u64 {
        self.fills.held_blocks()
    }

    /// The generations for which things are held.
    #[must_use]
    pub fn held_for(&self) -> Vec<u64> {
        self.held.keys().copied().collect()
    }

    /// The blocks of the things that are held for a generation, once for each thing, without the first `skipped`. What changes meanwhile is at
    /// the end.
    pub fn held(&self, generation: u64, skipped: usize) -> impl Iterator<Item = BlockNumber> + '_ {
        let held = self.held.get(&generation).and_then(|held| held.get(skipped..)).unwrap_or_default();
        held.iter().map(|held| held.block)
    }

    /// The checkpoint committed last is the first with this block, which holds no images.
    pub fn note_birth(&mut self, block: BlockNumber) {
        self.note(Content::Other(block));
    }

    /// The checkpoint committed last is the first with this image of the page. The one before, if any, was released.
    pub fn note_image(&mut self, page: PageId) {
        self.note(Content::Image(page));
    }

    fn note(&mut self, content: Content) {
        if self.is_anything_pinned() {
            self.births.note(content, self.committed);
        }
    }

    /// Gives back a block that the checkpoint committed last is the first not to have (F1).
    pub fn release_live(&mut self, block: BlockNumber) {
        self.replaced(Content::Other(block), block);
    }

    /// As [`FreeSpace::release_live`], the image of a page, which shares its block perhaps.
    pub fn release_image(&mut self, page: PageId, block: BlockNumber) {
        self.replaced(Content::Image(page), block);
    }

    fn replaced(&mut self, content: Content, block: BlockNumber) {
        let born = self.births.take(content);
        let held = Held { block, born, gone: self.committed };
        match self.needed_in(&held) {
            Some(generation) => self.keep(generation, held),
            None => self.release(block),
        }
    }

    fn keep(&mut self, generation: u64, held: Held) {
        self.fills.hold(held.block);
        self.held.entry(generation).or_default().push(held);
    }

    /// Every free block may belong to a checkpoint that was there before this process, if somebody reads an older one, or a newer one that
    /// was lost.
    pub fn hold_all_free(&mut self) {
        let lost = self.readers.last().filter(|reader| **reader > self.committed);
        let gone = lost.map_or(self.committed, |reader| reader + 1);
        let all = |block| Held { block, born: 0, gone };
        let Some(generation) = self.needed_in(&all(BlockNumber(0))) else { return };
        while let Some((first, len)) = self.allocate_run(u64::MAX) {
            (first.0..first.0 + len).for_each(|number| self.keep(generation, all(BlockNumber(number))));
        }
        self.rewind();
    }

    /// Keeps the blocks of the last committed checkpoint; returns its generation.
    #[must_use = "to end it"]
    pub fn hold(&mut self) -> u64 {
        *self.holds.entry(self.committed).or_default() += 1;
        self.committed
    }

    /// Ends one [`FreeSpace::hold`] of a generation. Then call [`FreeSpace::give_back`].
    pub fn end_hold(&mut self, generation: u64) {
        let count = self.holds.get_mut(&generation).expect("every hold ends once");
        *count -= 1;
        if *count == 0 {
            self.holds.remove(&generation);
        }
    }

    /// A pinned generation that has it.
    fn needed_in(&self, held: &Held) -> Option<u64> {
        let mut holds =
            self.holds.range(held.born..held.gone).filter(|_| !planted::is(Bug::BackupHoldsNothing));
        let by_holds = holds.next().map(|(generation, _)| *generation);
        let mut readers = self.readers.iter().filter(|_| !planted::is(Bug::ReadersNotAsked));
        by_holds.or_else(|| readers.find(|reader| held.is_read_in(**reader)).copied())
    }

    fn is_anything_pinned(&self) -> bool {
        !self.holds.is_empty() || !self.readers.is_empty()
    }

    /// A generation that nobody pins any more, and for which things are held.
    fn let_go(&self) -> Option<u64> {
        let is_pinned = |generation| self.holds.contains_key(generation) || self.readers.contains(generation);
        self.held.keys().find(|generation| !is_pinned(generation)).copied()
    }

    /// Gives back what is held for nobody any more, of at most `most` things. Returns whether there may be more: what has not been looked
    /// at stays held until it is (F1).
    pub fn give_back(&mut self, mut most: usize) -> bool {
        while let Some(generation) = self.let_go() {
            let mut held = self.held.remove(&generation).unwrap_or_default();
            let rest = held.len().saturating_sub(most);
            most -= held.len() - rest;
            for held in held.drain(rest..) {
                looked_at(1);
                match self.needed_in(&held) {
                    Some(generation) => {
                        self.fills.note_change(held.block);
                        self.held.entry(generation).or_default().push(held);
                    }
                    None => {
                        self.fills.end_hold(held.block);
                        self.release(held.block);
                    }
                }
            }
            if rest > 0 {
                self.held.insert(generation, held);
                break;
            }
        }
        let more = self.let_go().is_some()
            || !self.is_anything_pinned() && self.births.forget((most / PARTS_FORGOTTEN).max(1));
        self.recharge();
        more
    }

    /// Whether a block is in use; those behind the end are not.
    #[must_use]
    pub fn is_used(&self, block: BlockNumber) -> bool {
        self.used.get((block.0 / 64) as usize).is_some_and(|word| word >> (block.0 % 64) & 1 == 1)
    }

    fn mark_used(&mut self, block: BlockNumber) {
        self.fills.occupy(block);
        self.used[(block.0 / 64) as usize] |= 1 << (block.0 % 64);
        self.free -= 1;
    }

    /// First free block in `from..to`.
    fn find(&self, from: u64, to: u64) -> Option<BlockNumber> {
        let mut at = from;
        while at < to {
            looked_at(1);
            let word = self.used[(at / 64) as usize] >> (at % 64);
            if word & 1 == 0 {
                return Some(BlockNumber(at));
            }
            at += u64::from(word.trailing_ones());
        }
        None
    }
}
