//! After a checkpoint: relocates images out of sparse packs and from the end of a file that is too
//! long.

use super::checkpointer::Checkpointer;
use super::pace::Pacer;
use super::space::{Since, is_due};
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

impl Checkpointer {
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
