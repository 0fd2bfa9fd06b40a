//! How long the file of pages is, and how long it need be.
//!
//! ```text
//!   |<------------- live ------------>|<- replaced ->|<----- free ----->|
//!     what the next checkpoint keeps    what it frees   the reserve, and what nobody needs
//! ```
//!
//! An image that is replaced stays until the next checkpoint is durable (I8). So the file is as long as what is live and what changes from
//! one checkpoint to the next, and only checkpoints that come often enough keep it short: [`Space`] is what `checkpoint` decides that by.
//!
//! The file is cut down to what was needed lately ([`Need`]), so that it is not cut and lengthened in turns.

use super::reserve::{GROWTH_BYTES, ReservedFor};
use super::{PageStore, State};
use crate::base::Result;
use crate::sync::atomic::Ordering;
use std::sync::OnceLock;

/// In blocks, but for packs, of which an image is a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Space {
    /// In use, less what the next checkpoint gives back.
    pub live: u64,
    /// Replaced since the last round began, by images that were written because their pages had to leave memory or to move.
    pub replaced: u64,
    /// Images of the round in progress that replace others.
    pub in_round: u64,
    /// Pages in memory that differ from their images: the next checkpoint replaces those.
    pub changed: u64,
    /// Length of a block.
    pub block_bytes: u64,
}

impl Space {
    /// What is changed or replaced: what the file has to have room for twice.
    #[must_use]
    pub fn twice(&self) -> u64 {
        self.replaced + self.in_round + self.changed
    }
}

/// Images that were replaced, by whose image replaces them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Replaced {
    /// By one for the next round.
    pub(super) working: u64,
    /// By one of the round in progress.
    pub(super) round: u64,
    /// How many of the first there are when somebody is told of it.
    tell_at: u64,
}

impl Replaced {
    pub(super) fn begin_round(&mut self) {
        *self = Replaced { working: 0, round: self.working, tell_at: 0 };
    }
}

/// Who is told that images are replaced.
#[derive(Default)]
pub(super) struct OnReplaced(OnceLock<Box<dyn Fn() + Send + Sync>>);

impl std::fmt::Debug for OnReplaced {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("OnReplaced").field(&self.0.get().is_some()).finish()
    }
}

impl OnReplaced {
    pub(super) fn tell(&self) {
        if let Some(tell) = self.0.get() {
            tell();
        }
    }
}

/// Told again after this part of what is live...
const TELL_PART: u64 = 256;
/// ... but not more often than with each of so many.
const TELL_BLOCKS: u64 = 64;

/// What was needed lately falls by this part with each checkpoint, unless it is needed again.
const FORGET_PART: u64 = 16;
/// The file is cut when this part of it, or more, can go.
const CUT_PART: u64 = 32;
/// Images move when the file is longer than it need be by this part, or more.
const EXCESS_PART: u64 = 8;

/// Blocks that the file has to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Need {
    /// Most since the last checkpoint.
    newest: u64,
    /// Most of the checkpoints before, where each counts for less than the one after it.
    lately: u64,
}

impl Need {
    /// There have to be so many now.
    pub(super) fn note(&mut self, blocks: u64) {
        self.newest = self.newest.max(blocks);
    }

    /// A checkpoint is durable.
    fn forget_some(&mut self) {
        self.lately = self.newest.max(self.lately - self.lately.div_ceil(FORGET_PART));
        self.newest = 0;
    }
}

impl State {
    /// Whether it is time to tell somebody of what was replaced.
    pub(super) fn is_replacing_told(&mut self) -> bool {
        if self.replaced.working < self.replaced.tell_at {
            return false;
        }
        let used = self.free.blocks() - self.free.free_blocks();
        self.replaced.tell_at = self.replaced.working + (used / TELL_PART).max(TELL_BLOCKS);
        true
    }

    /// After images went back from a round to the next one.
    pub(super) fn recount_replaced(&mut self) {
        let (working, mapping) = (&self.working, &self.mapping);
        let slots = working.parts().flat_map(|part| working.part(part).map(move |(slot, _)| (part, slot)));
        let replaced = slots.filter(|(part, slot)| !mapping.get(mapping.id(*part, *slot)).is_absent());
        let working = replaced.count() as u64;
        self.replaced = Replaced { working, ..Replaced::default() };
    }

    fn used(&self) -> u64 {
        self.free.blocks() - self.free.free_blocks()
    }

    /// Blocks that the file has to have for what is in it and for its reserve, now and lately.
    fn needed(&self, store: &PageStore) -> u64 {
        let reserve = match store.watched.get() {
            Some(watched) => self.demanded(&watched.demand, store.page_bytes(), ReservedFor::NewPage),
            None => 0,
        };
        (self.used() + reserve).max(self.need.lately)
    }
}

impl PageStore {
    /// What is live, and what is not any more.
    #[must_use]
    pub fn space(&self) -> Space {
        let state = self.state.lock();
        let changed = self.watched.get().map_or(0, |watched| {
            let (dirty, new) = (&watched.demand.dirty, &watched.demand.new);
            dirty.load(Ordering::Relaxed).saturating_sub(new.load(Ordering::Relaxed))
        });
        let (replaced, in_round) = (state.replaced.working, state.replaced.round);
        let live = state.used().saturating_sub(replaced + in_round);
        Space { live, replaced, in_round, changed, block_bytes: self.page_bytes() as u64 }
    }

    /// Has `tell` called every now and then while images are replaced, and with the first after a round began. Once. It holds no lock.
    pub fn on_replaced(&self, tell: Box<dyn Fn() + Send + Sync>) {
        let _ = self.on_replaced.0.set(tell);
    }

    /// Blocks that the file could be cut to if images moved to its front, if it is much longer than it need be: then some should move.
    #[must_use]
    pub fn much_too_long_for(&self) -> Option<u64> {
        let state = self.state.lock();
        let needed = state.needed(self);
        (state.free.blocks() > needed + needed / EXCESS_PART).then_some(needed)
    }

    /// After a checkpoint: cuts off the free end of the file as far as it was not needed lately and is not in the reserve, if that is
    /// enough to matter.
    pub(super) fn shrink(&self) -> Result<()> {
        let mut state = self.state.lock();
        state.need.forget_some();
        let blocks = state.free.blocks();
        let keep = state.needed(self).max(state.free.used_end());
        let least = (blocks / CUT_PART).max(GROWTH_BYTES.start() / self.source.page_bytes as u64);
        if blocks < keep + least {
            return Ok(());
        }
        self.source.file.set_len(keep * self.source.page_bytes as u64)?;
        state.free.cut(keep);
        state.full = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_needed_once_is_forgotten_bit_by_bit_and_what_is_needed_again_is_not() {
        let mut need = Need::default();
        need.note(1600);
        need.note(100);
        need.forget_some();
        assert_eq!(need.lately, 1600);
        need.note(1550);
        need.forget_some();
        assert_eq!(need.lately, 1550, "as before, nearly");
        for _ in 0..10 {
            need.note(200);
            need.forget_some();
        }
        assert!((700..900).contains(&need.lately), "{need:?}");
        for _ in 0..60 {
            need.note(200);
            need.forget_some();
        }
        assert_eq!(need.lately, 200);
    }
}
