//! After a checkpoint: relocates images out of sparse packs and from the end of a file that is too
//! long. Before a close: the same for a file that is mostly free.

use super::checkpointer::Checkpointer;
use super::pace::Pacer;
use super::space::{Since, is_due};
use crate::base::Result;
use crate::store::{Relocation, StoreUsage};
use crate::sync::atomic::Ordering;
use std::time::Duration;

/// A shorter file of pages is not compacted automatically.
const COMPACT_FROM_BYTES: u64 = 64 << 20;
/// Fewer sparse packs are left alone.
const REPACK_FROM: u64 = 16;
/// Bytes of images relocated after one checkpoint.
const COMPACT_STEP_BYTES: usize = 8 << 20;
/// After a relocation the next checkpoint, which cuts the file, comes at the latest after this
/// time.
const SHORTEN_AGAIN: Duration = Duration::from_millis(500);

/// A shorter file stays as it is at a close.
const CLOSE_FROM_BYTES: u64 = 1 << 20;
/// Images relocated at a close.
const CLOSE_IMAGES_MAX: u64 = 2048;

impl Checkpointer {
    /// Prepares the file of pages for a close, which cuts it. If most of the file is free, or will
    /// be after a checkpoint, makes that checkpoint and relocates images at the end, if they are
    /// few.
    ///
    /// # Errors
    /// As [`Checkpointer::checkpoint`] and [`Checkpointer::move_tail`].
    pub fn shorten_for_close(&self) -> Result<()> {
        if self.store.disk_space().stores_extents() {
            return Ok(());
        }
        // Pages of removed rows are free afterwards.
        self.system.versions.collect_all();
        let drops_tables = self.system.catalog.lock().has_dropped();
        let usage = self.store.usage();
        let is_long = usage.blocks * usage.block_bytes as u64 > CLOSE_FROM_BYTES;
        if !is_long || !drops_tables && !self.is_mostly_free() {
            return Ok(());
        }
        self.checkpoint()?;
        if self.is_mostly_free() {
            let bound = self.store.disk_space().compact_blocks();
            self.move_tail(bound, CLOSE_IMAGES_MAX as usize)?;
        }
        Ok(())
    }

    /// Returns whether the pages take less than half of the file, and are few.
    fn is_mostly_free(&self) -> bool {
        let pages = self.pool.frames().pages_in_use();
        pages <= CLOSE_IMAGES_MAX && pages * 2 < self.store.usage().blocks
    }

    /// Sleeps between batches of relocated images, after a paced checkpoint.
    fn pause_relocation(&self, pacer: Option<&Pacer<'_>>) {
        if let Some(pacer) = pacer {
            pacer.rest(|| self.is_hurried());
        }
    }

    /// Relocates some images if many packs are sparse, so that the next checkpoint frees these
    /// packs.
    pub(super) fn repack_a_little(&self, pacer: Option<&Pacer<'_>>) {
        let (sparse, usage) = (self.store.packs().sparse_packs, self.store.usage());
        if sparse < REPACK_FROM || sparse <= usage.used_blocks() / 8 {
            return;
        }
        let most = COMPACT_STEP_BYTES / usage.block_bytes;
        let pause = || self.pause_relocation(pacer);
        match Relocation::new(&self.store, &*self.storage, &pause).repack(most) {
            Ok(moved) => tracing::debug!(moved, "images moved out of packs that are half empty"),
            Err(error) => tracing::warn!(%error, "packs stay half empty"),
        }
    }

    /// Relocates some images if a large file is much longer than necessary, so that the next
    /// checkpoint can cut it. Returns when to look again.
    pub(super) fn compact_a_little(&self, pacer: Option<&Pacer<'_>>) -> Option<Duration> {
        let usage = self.store.usage();
        if self.store.disk_space().stores_extents() {
            return self.empty_extents_a_little(usage, pacer);
        }
        if usage.blocks * usage.block_bytes as u64 <= COMPACT_FROM_BYTES {
            return None;
        }
        let space = self.store.disk_space();
        let Some(bound) = space.excessive_for() else { return space.excessive_after() };
        let most = COMPACT_STEP_BYTES / usage.block_bytes;
        let pause = || self.pause_relocation(pacer);
        match Relocation::new(&self.store, &*self.storage, &pause).move_tail(bound, most) {
            Ok(moved) => {
                tracing::debug!(moved, "images moved to the front of the file of pages");
                (moved > 0).then_some(SHORTEN_AGAIN)
            }
            Err(error) => {
                tracing::warn!(%error, "the file of pages stays as long as it is");
                None
            }
        }
    }

    /// Relocates some images if much of the extents is dead, so that the next checkpoint frees some
    /// extents. Returns when to look again.
    fn empty_extents_a_little(&self, usage: StoreUsage, pacer: Option<&Pacer<'_>>) -> Option<Duration> {
        if !usage.is_sparse() {
            return None;
        }
        let most = COMPACT_STEP_BYTES / usage.block_bytes;
        let pause = || self.pause_relocation(pacer);
        match Relocation::new(&self.store, &*self.storage, &pause).empty_extents(most) {
            Ok(moved) => {
                tracing::debug!(moved, "images moved out of extents that are mostly dead");
                (moved > 0).then_some(SHORTEN_AGAIN)
            }
            Err(error) => {
                tracing::warn!(%error, "extents stay mostly dead");
                None
            }
        }
    }

    /// Returns how long after the last checkpoint another one is due to shorten the file of pages,
    /// if nothing else makes one due.
    #[must_use]
    pub fn shortens_in(&self) -> Option<Duration> {
        *self.shortens_in.lock()
    }

    /// Returns whether the next checkpoint is due because replaced images take too much space, or
    /// because pages need it to leave memory.
    #[must_use]
    pub fn is_due_for_space(&self) -> bool {
        if self.store.disk_space().is_checkpoint_wanted() {
            return true;
        }
        let left = self.pool.eviction().pages_evicted() - self.evicted_before.load(Ordering::Relaxed);
        let rewritten = self.totals().newest.pages_rewritten;
        is_due(self.store.disk_space().measure(), Since { left, rewritten })
    }
}
