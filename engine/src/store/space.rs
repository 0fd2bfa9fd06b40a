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
use super::{BlockRef, PageStore, State};
use crate::base::clock::Nanos;
use crate::base::{PageId, Result};
use crate::sync::atomic::Ordering;
use std::sync::OnceLock;
use std::time::Duration;

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

    /// What is in the overlays of one page has changed: what it replaced `before`, and replaces `now`.
    pub(super) fn recount(&mut self, before: Replaces, now: Replaces) {
        self.working = self.working + u64::from(now.working) - u64::from(before.working);
        self.round = self.round + u64::from(now.round) - u64::from(before.round);
    }
}

/// Whether what the overlays have of a page replaces an image of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replaces {
    working: bool,
    round: bool,
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

/// Told again after this part of what is in use...
const TELL_PART: u64 = 1024;
/// ... but not more often than with each of so many.
const TELL_BLOCKS: u64 = 32;

/// What is not needed for this long, or at most twice as long, was not needed lately.
const LATELY: Duration = Duration::from_secs(15);
/// The file is cut when this part of it, or more, can go.
const CUT_PART: u64 = 64;
/// Images move when the file is longer than it need be by this part, or more.
const EXCESS_PART: u64 = 8;

/// Blocks that the file has to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Need {
    /// Most since a while.
    newest: u64,
    /// Most in the while before.
    before: u64,
    /// When the newest while began: when somebody looked first.
    since: Option<Nanos>,
}

impl Need {
    /// There have to be so many now.
    pub(super) fn note(&mut self, blocks: u64) {
        self.newest = self.newest.max(blocks);
    }

    /// Forgets what is long ago.
    fn forget(&mut self, now: Nanos) {
        let passed = now.since(*self.since.get_or_insert(now));
        if passed < LATELY {
            return;
        }
        let before = if passed < 2 * LATELY { self.newest } else { 0 };
        *self = Need { newest: 0, before, since: Some(now) };
    }

    fn lately(&self) -> u64 {
        self.newest.max(self.before)
    }
}

impl State {
    /// For [`Replaced::recount`].
    pub(super) fn replaces(&self, page: PageId) -> Replaces {
        self.replaces_with(page, self.round.get(page))
    }

    /// As [`State::replaces`], if the round has this of the page.
    pub(super) fn replaces_with(&self, page: PageId, in_round: Option<BlockRef>) -> Replaces {
        let stored = self.mapping.get(page);
        let older = in_round.unwrap_or(stored);
        Replaces {
            working: self.working.get(page).is_some() && !older.is_absent(),
            round: in_round.is_some() && !stored.is_absent(),
        }
    }

    /// Whether it is time to tell somebody of what was replaced.
    pub(super) fn is_replacing_told(&mut self) -> bool {
        if self.replaced.working < self.replaced.tell_at {
            return false;
        }
        self.replaced.tell_at = self.replaced.working + (self.used() / TELL_PART).max(TELL_BLOCKS);
        true
    }

    pub(super) fn used(&self) -> u64 {
        self.free.blocks() - self.free.free_blocks()
    }

    /// Blocks that the file has to have for what is in it and for its reserve.
    fn needed(&self, store: &PageStore) -> u64 {
        let reserve = match store.watched.get() {
            Some(watched) => self.demanded(watched, store.page_bytes(), ReservedFor::NewPage),
            None => 0,
        };
        self.used() + reserve
    }

    /// A file of which most is free is not kept so for what was needed lately.
    fn needed_lately(&self, store: &PageStore) -> u64 {
        let now = self.needed(store);
        self.need.lately().clamp(now, now + now / 2)
    }
}

fn is_much_longer(blocks: u64, needed: u64) -> bool {
    blocks > needed + needed / EXCESS_PART
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

    /// Blocks that the file could be cut to if images moved to its front, if it is much longer than was needed lately: then some should move.
    #[must_use]
    pub fn much_too_long_for(&self) -> Option<u64> {
        let state = self.state.lock();
        let needed = state.needed_lately(self);
        is_much_longer(state.free.blocks(), needed).then_some(needed)
    }

    /// When a file that is much longer than it need be is no longer kept so for what was needed lately.
    #[must_use]
    pub fn too_long_for_now(&self) -> Option<Duration> {
        let state = self.state.lock();
        let (blocks, now) = (state.free.blocks(), state.needed(self));
        let remembers = is_much_longer(state.needed_lately(self), now);
        (remembers && is_much_longer(blocks, now)).then_some(LATELY)
    }

    /// The database is going to be closed: what it needed does not matter any more.
    pub fn forget_need(&self) {
        self.state.lock().need = Need::default();
    }

    /// After a checkpoint: cuts off the free end of the file as far as it was not needed lately and is not in the reserve, if that is
    /// enough to matter.
    pub(super) fn shrink(&self) -> Result<()> {
        let mut state = self.state.lock();
        if let Some(watched) = self.watched.get() {
            state.need.forget(watched.clock.now());
        }
        let blocks = state.free.blocks();
        let keep = state.needed_lately(self).max(state.free.used_end());
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
    use crate::base::clock::Clock;

    #[test]
    fn what_was_needed_is_remembered_for_a_while_and_then_forgotten() {
        let clock = Clock::manual();
        let mut need = Need::default();
        need.note(1600);
        need.note(100);
        need.forget(clock.now());
        assert_eq!(need.lately(), 1600);
        clock.advance(LATELY);
        need.forget(clock.now());
        need.note(200);
        assert_eq!(need.lately(), 1600, "a while ago");
        clock.advance(LATELY / 2);
        need.forget(clock.now());
        assert_eq!(need.lately(), 1600);
        clock.advance(LATELY / 2);
        need.forget(clock.now());
        assert_eq!(need.lately(), 200, "two whiles ago");
        clock.advance(2 * LATELY);
        need.forget(clock.now());
        assert_eq!(need.lately(), 0);
    }
}
