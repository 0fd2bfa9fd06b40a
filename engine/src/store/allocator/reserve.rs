//! The reserve: free blocks with space on the disk, so that every acknowledged change can be
//! written even when the disk is full.
//!
//! ```text
//!   a page becomes dirty ──▶ free blocks >= demand?  ──no──▶ the file grows ──disk full──▶ OutOfSpace, nothing was changed
//! ```
//!
//! # The bound
//! Let D be the dirty pages, N those of them without an image, and O the blocks of a whole mapping
//! and of the catalog. Before a page becomes dirty there are at least `D + N + 2 * O` free blocks,
//! that page included, and some for structure changes.
//!
//! *A checkpoint fits.* It writes an image of each dirty page and at most O other blocks: D + O.
//!
//! *After it the bound holds again*, even if every page stayed dirty because transactions were
//! writing to it all the time. The checkpoint took D + O blocks. Its end frees the old block of
//! every page that had one, D - N, and the old blocks of the mapping and the catalog. So at most N
//! blocks and those of new mapping blocks are gone for good, and the bound contained them; and
//! every page has an image now.
//!
//! *Many threads reserve at once.* A page counts when it has become dirty, which is after its
//! thread reserved. So each reservation also leaves what all reservation holders may still use.
//!
//! *The end of a transaction reserves nothing*, whatever it rolls back: a page in which a
//! transaction in progress has changed or only locked a row is dirty, with or without an image, and
//! cannot leave memory.
//!
//! *Eviction keeps the bound*: a page that leaves memory takes one block and is dirty no more.
//! While a checkpoint is written eviction must not take its blocks: `has_block_for_eviction`. A
//! clean page that is written for its stamps returns no block to the bound. It takes only a block
//! outside of the bound: `check_blocks_for_clean`, `record_clean`.
//!
//! *Relocating images and cutting the file leave the bound*: they use only blocks outside of the
//! bound for dirty pages. If no page is dirty, they leave O: a close writes the catalog, and
//! dropping a table, which reserves nothing, needs a checkpoint.
//!
//! *Packs.* A written image may need a block of its own, so nothing above becomes less. But a
//! checkpoint does not free the block of a changed page if that block also holds an unchanged
//! image. Let S be the images in packs beyond the first of each; at most min(D, S) blocks are not
//! freed for that reason, and the bound is `D + N + min(D, S) + 2 * O`. (Let G be the blocks that
//! hold images of dirty pages and no others; the need is `2 * D - G + 2 * O`, and the bound is
//! never less. A checkpoint that writes b blocks leaves `2 * D - G + 2 * O - b + G`; if all its
//! pages stay dirty, G is b now, and exactly the need is left. A pack makes b and the new G smaller
//! by the same number.)
//!
//! *Whole extents.* On a device that stores whole extents a freed block may be dead for a time, and
//! then it does not count as free. The file grows instead, which such a device never refuses.
//!
//! # Invariants
//! - V1: a block of the file has its space on the disk before it is allocated, as far as the file
//!   system keeps its promise.
//! - V2: growth that fails changes nothing.
//!
//! Left out on purpose: recovery is not refused when it makes pages dirty. The blocks that it needs
//! were free when the database went down, but a page may split another way; then the first
//! checkpoint may find the disk full, and says so.

use super::super::block::references_per_block;
use super::holders::ReservationHolders;
use crate::base::clock::Clock;
use crate::base::planted::{self, Bug};
use crate::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// Blocks for pages that merges, one after the other, or a rollback make dirty without a
/// reservation.
const UNRESERVED: u64 = 32;
/// Blocks that a thread may still use after its last reservation, before the counters show it:
/// three for a new page, two for each of the two pages that a split changes besides, and the blocks
/// other than images that these add.
const PER_THREAD: u64 = 8;
/// Blocks that a change of an existing page may use and a new page may not: rows can still be
/// deleted when none can be added.
const FOR_CHANGES: u64 = 32;
/// Bytes of a page in the catalog's list, at most: the distance to the page before.
const LISTED_BYTES: u64 = 6;

/// The purpose of a page's reservation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReservedFor {
    /// Dirty; it has an image.
    Change,
    /// New.
    NewPage,
}

/// What the pages in memory will need of the store. The buffer pool counts it under page latches.
#[derive(Debug, Default)]
pub struct Demand {
    /// Pages that differ from their newest image.
    pub dirty: AtomicU64,
    /// Dirty pages that had no image when they became dirty.
    pub new: AtomicU64,
    /// Every page id is below.
    pub page_ids: AtomicU64,
    /// Pages that the next catalog may have to list because they are free although they have
    /// images.
    pub listed: AtomicU64,
}

/// The demand for which the reserve is kept.
#[derive(Debug)]
pub struct Reserve {
    /// Counted by the buffer pool.
    pub demand: Arc<Demand>,
    /// Threads between a reservation and its use.
    pub holders: ReservationHolders,
    /// For retries on a full disk.
    pub clock: Clock,
    /// Length of a page.
    pub page_bytes: usize,
}

/// Facts about the store on which the bound depends.
#[derive(Clone, Copy, Debug)]
pub struct StoredBlocks {
    /// Blocks of the catalog.
    pub catalog: u64,
    /// Images in packs beyond the first of each (S).
    pub packed_beyond_first: u64,
}

impl Reserve {
    /// Dirty pages.
    #[must_use]
    pub fn dirty(&self) -> u64 {
        self.demand.dirty.load(Ordering::Relaxed)
    }

    /// Blocks of a mapping of all pages and of the catalog, with `more` new pages, some of them
    /// roots of new tables.
    #[must_use]
    pub fn other_blocks(&self, stored: StoredBlocks, more: u64) -> u64 {
        let (demand, page_bytes) = (&self.demand, self.page_bytes);
        let per_block = references_per_block(page_bytes) as u64;
        let parts = (demand.page_ids.load(Ordering::Relaxed) + more).div_ceil(per_block);
        let new = demand.new.load(Ordering::Relaxed) + more;
        let listed = demand.listed.load(Ordering::Relaxed) * LISTED_BYTES / (page_bytes as u64 / 2);
        parts + parts.div_ceil(per_block) + stored.catalog + 1 + new / 8 + listed
    }

    /// The bound for all dirty pages and one page more.
    #[must_use]
    pub fn demanded(&self, stored: StoredBlocks, page: ReservedFor) -> u64 {
        if planted::is(Bug::ReserveNotKept) {
            return 1;
        }
        let dirty = self.dirty();
        let not_freed = (dirty + 1).min(stored.packed_beyond_first);
        let pages = dirty + self.demand.new.load(Ordering::Relaxed) + not_freed;
        let others = |more| 2 * self.other_blocks(stored, more);
        let more = match page {
            ReservedFor::Change => 1 + others(0),
            // Leaves blocks also for changes of threads that have not reserved yet.
            ReservedFor::NewPage => 2 + others(1) + FOR_CHANGES.max(PER_THREAD * (self.holders.count() + 1)),
        };
        pages + more + UNRESERVED + PER_THREAD * self.holders.count()
    }

    /// Free blocks that stay free, and by which the file is not cut: the bound for dirty pages or,
    /// if no page is dirty, the blocks that a checkpoint writes besides images.
    #[must_use]
    pub fn kept(&self, stored: StoredBlocks) -> u64 {
        if self.dirty() > 0 {
            self.demanded(stored, ReservedFor::Change)
        } else {
            self.other_blocks(stored, 0) + PER_THREAD * self.holders.count()
        }
    }
}
