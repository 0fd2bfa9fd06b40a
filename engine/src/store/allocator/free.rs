//! Free space: which blocks may be written.
//!
//! Derived from the mapping at open and never stored: one bit per block, and the number of its
//! images that count (see `fill`), because a pack stays in use until no image in it counts. States
//! of a block:
//!
//! ```text
//!            allocate            checkpoint committed          replaced, and the checkpoint without it committed
//!   free ───────────────> fresh ──────────────────────> live ────────────────────────────┐
//!    ^                      │ nothing refers to it any more                              │
//!    ├──────────────────────┘                                                           │
//!    └────────────────────── no pinned checkpoint contains it ──────────── held ◀────────┘
//! ```
//!
//! A checkpoint is identified by the generation of its manifest; a backup or a reader pins the
//! generation that it uses. Content with creation generation b that is missing from generation n on
//! is needed by pins of b to n - 1. So a pin holds no more than its own checkpoint, however many
//! follow. Creation generations are recorded only while something is pinned; content without one is
//! as old as any pin. Images of one pack have different lifetimes, so each image has its own
//! creation generation. A held image keeps its block; a block is held when only held images keep
//! it.
//!
//! Held content is filed under one pinned generation that has it. When that generation is no longer
//! pinned its list is examined again, a slice at a time, and each entry is filed under another
//! generation or freed. A later pin has a newer generation than all held content, so it needs none
//! of it.
//!
//! # Invariants
//! - F1 (I8): a live block that a checkpoint replaces is freed when the manifest without it is
//!   durable, and not while a checkpoint that may contain it is pinned.
//! - F2: a fresh block is in no durable manifest; its allocator may free it at any time.
//! - F3: a block whose write failed is never freed; it is free again after the next open. Its bytes
//!   may still arrive.
//! - F4: a block is freed as often as it was claimed: once, or for a pack once for each image. Each
//!   reference to it (in the mapping, in an overlay, held, or with a writer) stands for one claim.
//! - F5: on a device that stores whole extents a freed block may stay dead: see `extents`.

use super::super::block::BlockNumber;
use super::super::yielding_lock::examined;
use super::bitmap::Bitmap;
use super::creation::Content;
use super::fill::Fills;
use super::pins::{Lifetime, Pins};
use crate::base::account::Charge;
use crate::base::{Account, PageId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One part of the creation table is forgotten per so many examined items: it is its own
/// allocation.
const ITEMS_PER_PART: usize = 16;

/// See the module's text.
#[derive(Debug, Default)]
pub struct FreeSpace {
    pub(in super::super) bitmap: Bitmap,
    /// How full the blocks in use are.
    pub(in super::super) fills: Fills,
    pub(in super::super) pins: Pins,
    /// Replaced content that a pin may need, by a generation that contains it and was pinned when
    /// the content was examined last.
    held: BTreeMap<u64, Vec<Held>>,
    /// Pays for `held` and the creation table.
    charge: Option<Charge>,
}

/// Replaced content that keeps a block in use for older checkpoints.
#[derive(Debug)]
struct Held {
    block: BlockNumber,
    lifetime: Lifetime,
}

impl FreeSpace {
    /// As [`FreeSpace::with_extents`], on a device where overwriting is cheap.
    #[cfg(test)]
    pub fn new(blocks: u64) -> FreeSpace {
        FreeSpace::with_extents(blocks, None)
    }

    /// A file of `blocks` blocks, all free but the header (B2). `extent_blocks`: on a device that
    /// stores whole extents, the blocks of one.
    #[must_use]
    pub fn with_extents(blocks: u64, extent_blocks: Option<u64>) -> FreeSpace {
        let bitmap = extent_blocks.map_or_else(Bitmap::default, Bitmap::of_extents);
        let mut space = FreeSpace { bitmap, ..FreeSpace::default() };
        space.extend(blocks.max(1));
        space.mark_used(BlockNumber(0));
        space
    }

    /// The file has grown to `blocks` blocks.
    pub fn extend(&mut self, blocks: u64) {
        self.bitmap.extend(blocks);
        self.fills.resize(blocks);
    }

    /// The file is about to be cut to `blocks` blocks. No block behind is in use.
    pub fn cut(&mut self, blocks: u64) {
        self.bitmap.cut(blocks);
        self.fills.resize(blocks);
    }

    /// Marks a block without images as used; false if it does not exist or is in use already.
    #[must_use = "false means that two owners claim one block"]
    pub fn claim(&mut self, block: BlockNumber) -> bool {
        if block.0 >= self.bitmap.blocks() || self.bitmap.is_used(block) {
            return false;
        }
        self.mark_used(block);
        true
    }

    /// Returns the number of blocks of the file.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.bitmap.blocks()
    }

    /// Marks a block in which the mapping has an image; false if the block does not exist or cannot
    /// hold another image.
    #[must_use = "false means that the mapping is damaged"]
    pub fn claim_image(&mut self, block: BlockNumber) -> bool {
        if block.0 >= self.bitmap.blocks() {
            return false;
        }
        if self.bitmap.is_used(block) {
            return self.fills.claim_another(block);
        }
        self.mark_used(block);
        self.fills.claim_first(block);
        true
    }

    /// Records that an allocated block is a pack of `images` images, each freed separately.
    pub fn becomes_pack(&mut self, block: BlockNumber, images: u8) {
        debug_assert!(self.bitmap.is_used(block));
        self.fills.becomes_pack(block, images);
    }

    /// Records that a block with an image was read and contains `images` images.
    pub fn learn(&mut self, block: BlockNumber, images: u8) {
        if self.bitmap.is_used(block) {
            self.fills.learn(block, images);
        }
    }

    /// Bytes of memory of the tables that exist because a checkpoint is pinned.
    fn pinned_bytes(&self) -> u64 {
        let held: usize = self.held.values().map(Vec::capacity).sum();
        self.pins.memory_bytes() + (held * size_of::<Held>()) as u64
    }

    /// Charges the tables for pinned checkpoints to `memory` from now on.
    pub fn charge_to(&mut self, memory: &Arc<Account>) {
        self.charge = Some(memory.charge(self.pinned_bytes()));
    }

    /// Updates the charge; to be called after content was created or replaced.
    pub fn recharge(&self) {
        if let Some(charge) = &self.charge {
            charge.set(self.pinned_bytes());
        }
    }

    /// Takes at most `most` adjacent free blocks, or `None` if the file must grow first.
    pub fn allocate_run(&mut self, most: u64) -> Option<(BlockNumber, u64)> {
        let (first, len) = self.bitmap.take_run(most)?;
        self.occupy(first, len);
        Some((first, len))
    }

    /// As [`FreeSpace::allocate_run`], of blocks before `bound`, for relocated images.
    pub fn allocate_before(&mut self, bound: u64, most: u64) -> Option<(BlockNumber, u64)> {
        let (first, len) = self.bitmap.take_run_before(bound, most)?;
        self.occupy(first, len);
        Some((first, len))
    }

    /// Frees a block that nothing refers to (F2), or one image of a pack, whose last image frees
    /// it.
    pub fn release(&mut self, block: BlockNumber) {
        debug_assert!(self.bitmap.is_used(block), "released twice");
        if self.bitmap.is_used(block) && self.fills.release(block) {
            self.bitmap.mark_free(block);
        }
    }

    /// The checkpoint of manifest `generation` is durable. `readers` are the generations that were
    /// found to be read in other processes since then.
    pub fn committed(&mut self, generation: u64, readers: Vec<u64>) {
        self.pins.set_committed(generation);
        self.pins.set_readers(readers);
    }

    /// Returns whether blocks may be held for readers in other processes, or were not freed yet.
    #[must_use]
    pub fn waits_for_readers(&self) -> bool {
        !self.held.is_empty() && (self.pins.has_readers() || self.unpinned().is_some())
    }

    /// The generations for which content is held.
    #[must_use]
    pub fn held_for(&self) -> Vec<u64> {
        self.held.keys().copied().collect()
    }

    /// The blocks of content held for a generation, once for each item, without the first
    /// `skipped`. Concurrent changes happen at the end.
    pub fn held(&self, generation: u64, skipped: usize) -> impl Iterator<Item = BlockNumber> + '_ {
        let held = self.held.get(&generation).and_then(|held| held.get(skipped..)).unwrap_or_default();
        held.iter().map(|held| held.block)
    }

    /// Frees a block that the checkpoint committed last is the first not to have (F1).
    pub fn release_live(&mut self, block: BlockNumber) {
        self.replaced(Content::Other(block), block);
    }

    /// As [`FreeSpace::release_live`], for the image of a page, which may share its block.
    pub fn release_image(&mut self, page: PageId, block: BlockNumber) {
        self.replaced(Content::Image(page), block);
    }

    fn replaced(&mut self, content: Content, block: BlockNumber) {
        let lifetime = self.pins.end_life(content);
        debug_assert!(self.bitmap.is_used(block), "only a block in use is replaced");
        debug_assert!(self.bitmap.is_used(block), "only a block in use is replaced");
        match self.pins.needing(lifetime) {
            Some(generation) => self.keep(generation, Held { block, lifetime }),
            None => self.release(block),
        }
    }

    fn keep(&mut self, generation: u64, held: Held) {
        debug_assert!(self.pins.contains(generation), "a block is kept for somebody");
        debug_assert!(self.bitmap.is_used(held.block), "a block that is kept is not free");
        debug_assert!(self.pins.contains(generation), "a block is kept for somebody");
        debug_assert!(self.bitmap.is_used(held.block), "a block that is kept is not free");
        self.fills.hold(held.block);
        self.held.entry(generation).or_default().push(held);
    }

    /// At open: every free block may belong to a checkpoint of an earlier process if a reader has
    /// an older checkpoint, or a newer one that was lost.
    pub fn hold_all_free(&mut self) {
        let committed = self.pins.committed();
        let lost = self.pins.newest_reader().filter(|reader| *reader > committed);
        let lifetime = Lifetime { created: 0, gone: lost.map_or(committed, |reader| reader + 1) };
        let Some(generation) = self.pins.needing(lifetime) else { return };
        while let Some((first, len)) = self.bitmap.take_any_run(u64::MAX) {
            self.occupy(first, len);
            (first.0..first.0 + len)
                .for_each(|number| self.keep(generation, Held { block: BlockNumber(number), lifetime }));
        }
        debug_assert!(self.bitmap.used_blocks() == self.blocks(), "nothing is left free");
        debug_assert!(self.bitmap.used_blocks() == self.blocks(), "nothing is left free");
        self.bitmap.rewind();
    }

    /// A generation that is no longer pinned and for which content is held.
    fn unpinned(&self) -> Option<u64> {
        self.held.keys().find(|generation| !self.pins.contains(**generation)).copied()
    }

    /// Frees held content that no pin needs any more, examining at most `most` items. Returns
    /// whether there may be more: an item that was not examined stays held (F1).
    pub fn release_unneeded(&mut self, mut most: usize) -> bool {
        while let Some(generation) = self.unpinned() {
            let mut held = self.held.remove(&generation).unwrap_or_default();
            let rest = held.len().saturating_sub(most);
            most -= held.len() - rest;
            for held in held.drain(rest..) {
                examined(1);
                match self.pins.needing(held.lifetime) {
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
        let more = self.unpinned().is_some()
            || !self.pins.is_any() && self.pins.forget_created((most / ITEMS_PER_PART).max(1));
        self.recharge();
        more
    }

    fn mark_used(&mut self, block: BlockNumber) {
        self.bitmap.mark_used(block);
        self.fills.occupy(block);
    }

    fn occupy(&mut self, first: BlockNumber, len: u64) {
        (first.0..first.0 + len).for_each(|number| self.fills.occupy(BlockNumber(number)));
    }
}
