//! When a checkpoint is due for the sake of space, and what moves after one.
//!
//! An image that is replaced keeps its block until the next checkpoint is durable (I8), and what is dirty has a block in reserve. So the file
//! is as long as what is live and what changes from one checkpoint to the next, and a checkpoint is due when that is a
//! certain part of what is live. It costs little where each page changes once or twice before it has to leave memory anyway: then a
//! checkpoint writes what would have been written a little later. It costs much where pages stay in memory and change again and again. So
//! it must also be worth it:
//!
//! ```text
//!   due:   replaced + changed >= live / 32     and   replaced + changed >= 4 MiB
//!   and    pages that left memory since the last one began >= half of that: what is changed now would have to be written soon
//!   and    replaced >= half the pages that the last one wrote and the one before had written, too: these change all the time
//!   and    replaced >= a 64th of all that: there is something to give back
//! ```
//!
//! So it writes at most twice as many pages as were read because they were not in memory.

use super::Checkpointer;
use super::pace::Pacer;
use crate::store::{Relocation, SpaceUse};
use crate::sync::atomic::Ordering;
use std::time::Duration;

/// The part of what is live that may have changed before a checkpoint is due...
const DUE_PART: u64 = 32;
/// ... and the part that may change while it is made.
const MEANWHILE_PART: u64 = 64;
/// Less than this is let be: a small database would have checkpoints all the time.
const DUE_BYTES_MIN: u64 = 4 << 20;
/// Of what has changed this part at least must have been written.
const REPLACED_PART: u64 = 64;
/// A shorter file of pages is not compacted by itself.
const COMPACT_FROM_BYTES: u64 = 64 << 20;
/// Fewer packs that are half empty are let be.
const REPACK_FROM: u64 = 16;
/// Bytes of images that move after one checkpoint.
const COMPACT_STEP_BYTES: usize = 8 << 20;
/// When images have moved the next checkpoint comes after this long at the latest, and cuts the file.
const SHORTEN_AGAIN: Duration = Duration::from_millis(500);

fn part_of(space: SpaceUse, part: u64, least_bytes: u64) -> u64 {
    (space.live / part).max(least_bytes / space.block_bytes.max(1))
}

/// What happened since the last checkpoint, and in it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Since {
    /// Pages that left memory since it began.
    pub left: u64,
    /// Pages that it wrote and the one before had written, too.
    pub rewritten: u64,
}

/// Whether a checkpoint is due.
#[must_use]
pub fn is_due(space: SpaceUse, since: Since) -> bool {
    let twice = space.twice();
    twice >= part_of(space, DUE_PART, DUE_BYTES_MIN)
        && since.left >= twice / 2
        && space.replaced >= (twice / REPLACED_PART).max(since.rewritten / 2)
}

/// For a checkpoint that begins now: how much the file may have to hold twice when it ends.
#[must_use]
pub fn most_twice(begun: SpaceUse) -> u64 {
    begun.twice() + part_of(begun, MEANWHILE_PART, DUE_BYTES_MIN / 2)
}

impl Checkpointer {
    /// After a checkpoint that nobody waited for whoever moves images rests now and then.
    fn rest(&self, pacer: Option<&Pacer<'_>>) {
        if let Some(pacer) = pacer {
            pacer.rest(|| self.impatient.load(Ordering::Relaxed) > 0);
        }
    }

    /// After a checkpoint: if many packs are half empty, some of their images move together, so that the next checkpoint frees them.
    pub(super) fn repack_a_little(&self, pacer: Option<&Pacer<'_>>) {
        let (sparse, usage) = (self.store.packs().sparse_packs, self.store.usage());
        if sparse < REPACK_FROM || sparse <= (usage.blocks - usage.free_blocks) / 8 {
            return;
        }
        let most = COMPACT_STEP_BYTES / usage.block_bytes;
        match Relocation::new(&self.store, &*self.storage, &|| self.rest(pacer)).repack(most) {
            Ok(moved) => tracing::debug!(moved, "images moved out of packs that are half empty"),
            Err(error) => tracing::warn!(%error, "packs stay half empty"),
        }
    }

    /// After a checkpoint: if a large file is much longer than it need be, some images move, so that the next checkpoint can cut it. After
    /// one that nobody waited for this takes its time, too. Returns when to look again.
    pub(super) fn compact_a_little(&self, pacer: Option<&Pacer<'_>>) -> Option<Duration> {
        let usage = self.store.usage();
        if usage.blocks * usage.block_bytes as u64 <= COMPACT_FROM_BYTES {
            return None;
        }
        let Some(bound) = self.store.disk_space().excessive_for() else {
            return self.store.disk_space().excessive_after();
        };
        let most = COMPACT_STEP_BYTES / usage.block_bytes;
        match Relocation::new(&self.store, &*self.storage, &|| self.rest(pacer)).move_tail(bound, most) {
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

    /// How long after the last checkpoint another one is to shorten the file of pages, if nothing else makes it due.
    #[must_use]
    pub fn shortens_in(&self) -> Option<Duration> {
        *self.shortens_in.lock()
    }

    /// Whether the next checkpoint is due because images that were replaced take too much space, or pages need it to leave memory.
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

#[cfg(test)]
mod tests {
    use super::*;

    const LIVE: u64 = 100_000;

    fn space(replaced: u64, changed: u64) -> SpaceUse {
        SpaceUse { live: LIVE, replaced, in_checkpoint: 0, changed, block_bytes: 4096 }
    }

    /// All that changed has left memory.
    fn seen(rewritten: u64) -> Since {
        Since { left: LIVE, rewritten }
    }

    #[test]
    fn a_checkpoint_is_due_when_a_part_of_what_is_live_has_been_replaced_or_will_be() {
        assert!(is_due(space(LIVE / 32, 0), seen(0)));
        assert!(is_due(space(1000, 2125), seen(0)));
        assert!(!is_due(space(1000, 2124), seen(0)));
        assert!(!is_due(space(0, 0), seen(0)));
    }

    #[test]
    fn small_databases_are_let_be() {
        let small =
            |replaced| SpaceUse { live: 500, replaced, in_checkpoint: 0, changed: 0, block_bytes: 4096 };
        assert!(!is_due(small(1000), seen(0)), "all of it, twice");
        assert!(is_due(small(1024), seen(0)));
    }

    #[test]
    fn what_changes_in_memory_alone_makes_none_due() {
        let left = |left| Since { left, rewritten: 0 };
        assert!(!is_due(space(0, LIVE), left(0)));
        assert!(!is_due(space(2000, 40_000), left(4000)), "few pages leave");
        assert!(is_due(space(2000, 40_000), left(21_000)));
        assert!(!is_due(space(100, 40_000), left(LIVE)), "only pages that had not changed left");
    }

    #[test]
    fn pages_that_each_checkpoint_writes_again_put_it_off() {
        assert!(!is_due(space(3900, 9000), seen(8000)));
        assert!(
            is_due(space(4000, 9000), seen(8000)),
            "until it gives back half of what it writes for nothing"
        );
    }

    #[test]
    fn while_it_is_made_not_much_more_may_change() {
        assert_eq!(most_twice(space(1000, 5000)), 6000 + LIVE / 64);
    }
}
