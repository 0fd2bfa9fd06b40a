//! A disk without space: what the log gives up before a commit is refused.
//!
//! ```text
//!   refused, to the log or to pages ──▶ cramped: segments are short, only the spare ones stay READY
//!     ├─ READY, long ───────────────────────────▶ removed, the last one once a short one is READY
//!     ├─ ACTIVE, long: its log leaves it ───────▶ RETIRED ──checkpoint──▶ removed
//!     └─ space again, for a while ──────────────▶ segments grow as before
//! ```
//!
//! Segments are long because that is fast, and a log needs none longer than its longest block. A
//! segment with needed records is given up only after a checkpoint has covered them. The short
//! segments stay: with them rows can be deleted when nothing can be added, and a recovery finds the
//! place of one to begin with.

use super::pool::{FIRST_BYTES, SegmentPool};
use super::state::State;
use crate::device::SECTOR_BYTES;

/// A segment on a full disk is this part of an ordinary one, or as long as the first ones.
const SHORT_PART: u64 = 64;

impl SegmentPool {
    /// Returns the length of the segments that a log makes do with on a full disk.
    #[must_use]
    pub fn short_bytes(&self) -> u64 {
        (self.segment_bytes / SHORT_PART).next_multiple_of(SECTOR_BYTES as u64).max(self.first_bytes())
    }

    /// Returns the length of the first segments.
    pub(super) fn first_bytes(&self) -> u64 {
        FIRST_BYTES.min(self.segment_bytes).next_multiple_of(SECTOR_BYTES as u64)
    }

    /// Notes that the disk refused space to the log or to pages. Does nothing where segments are
    /// not made before they are written.
    pub(super) fn note_cramped(&self, state: &mut State) {
        if self.recycles {
            state.attempts.cramped = Some(self.clock.now());
            state.next_len = state.next_len.min(self.short_bytes());
        }
    }

    pub(super) fn has_long(&self, state: &State) -> bool {
        let short = self.short_bytes();
        let ready = state.ready.iter().map(|segment| &segment.len);
        self.recycles && ready.chain(state.active.values()).any(|len| *len > short)
    }

    /// Returns whether the disk refused space to the log or to pages a short time ago.
    #[must_use]
    pub fn is_cramped(&self) -> bool {
        self.state.lock().is_cramped(&self.clock)
    }

    /// Returns whether [`SegmentPool::give_up`] and a checkpoint would make room.
    #[must_use]
    pub fn can_give_up(&self) -> bool {
        let state = self.state.lock();
        state.can_be_freed() || self.has_long(&state) || state.ready.len() > self.spare
    }

    /// Removes READY segments that are long, or not among the spare ones, for a disk that is full.
    /// The shortest one stays in any case.
    pub fn give_up(&self) {
        let short = self.short_bytes();
        let removes = {
            let mut state = self.state.lock();
            let state = &mut *state;
            self.note_cramped(state);
            state.ready.sort_unstable_by_key(|segment| segment.len);
            let stay = state.ready.iter().filter(|segment| segment.len <= short).count();
            let stay = stay.clamp(1, self.spare.max(1)).min(state.ready.len());
            let others = state.ready.split_off(stay);
            state.excess.extend(others.iter().map(|segment| segment.id));
            state.started && !state.excess.is_empty()
        };
        if removes && let Err(error) = self.remove_excess() {
            tracing::warn!(%error, "the disk is full, and a log segment that is not needed stays");
        }
        self.work.notify_all();
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
