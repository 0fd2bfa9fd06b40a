//! What may still be written when the disk is full: reservations, eviction, and the open
//! checkpoint. The bound and why it suffices are explained in `allocator::reserve`.

use super::allocator::ReservedFor;
use super::allocator::holders::ReservationHolders;
use super::allocator::reserve::{Demand, Reserve};
use super::block::BlockNumber;
use super::disk_space::DiskSpace;
use super::state::{Phase, State};
use crate::base::clock::{Clock, Nanos};
use crate::base::{Error, ErrorKind, Result};
use crate::device::SpaceRefusal;
use crate::sync::{MutexGuard, thread};
use std::sync::Arc;
use std::time::Duration;

/// Looks of a checkpoint for blocks of other writers, [`WAIT`] apart: some seconds in all.
const WAITS_MAX: u32 = 2500;
const WAIT: Duration = Duration::from_millis(2);
/// One look in so many asks the disk for space; the others take only blocks that the file has.
const WAITS_UNASKED: u32 = 50;

/// With fewer dirty pages or replaced images a checkpoint frees too little to wait for.
const WORTH_A_CHECKPOINT: u64 = 16;

impl DiskSpace {
    /// Keeps the reserve for `demand` from now on. Once.
    pub fn keep_reserve(&self, demand: Arc<Demand>, clock: Clock) {
        let (holders, page_bytes) = (ReservationHolders::default(), self.file.page_bytes);
        let _ = self.reserve.set(Reserve { demand, holders, clock, page_bytes });
    }

    /// Makes sure that a page can be written; to be called before a clean page becomes dirty or a
    /// new one is made. Takes the store's lock and grows the file now and then; never waits.
    ///
    /// # Errors
    /// `OutOfSpace`: the disk is full, and dirty pages need the reserve. `InvalidArgument`: the
    /// store was released.
    pub fn reserve(&self, page: ReservedFor) -> Result<()> {
        let Some(reserve) = self.reserve.get() else { return Ok(()) };
        let mut state = self.state.lock();
        self.file.refuse_if_released()?;
        let is_new = reserve.holders.add_current();
        let wanted = reserve.demanded(state.stored_blocks(), page);
        let available = state.blocks.available();
        let needed = state.blocks.free.bitmap.blocks() - available + wanted;
        state.blocks.need.note(needed);
        let missing = wanted.saturating_sub(available);
        if missing == 0 {
            return Ok(());
        }
        match self.ask_disk(&mut state, &reserve.clock, missing) {
            Err(error) if error.kind() == ErrorKind::OutOfSpace => {
                if is_new {
                    reserve.holders.remove_current();
                }
                Err(self.refusal(&error, missing))
            }
            Err(error) => {
                // Not a full disk: the checkpoint will find out whether pages can be written, and
                // that stops no change.
                tracing::debug!(%error, "the file of the page store does not grow");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn refusal(&self, error: &Error, missing_blocks: u64) -> Error {
        let what = format!(
            "the disk is full: {} more bytes are needed for the checkpoint of what would be committed",
            missing_blocks * self.file.page_bytes as u64
        );
        let refusal = Error::new(ErrorKind::OutOfSpace, what).with_advice(error.advice().to_owned());
        match error.location() {
            Some(location) => refusal.at(location.clone()),
            None => refusal,
        }
    }

    /// Returns whether `blocks` blocks are left beside the reserve; the file grows for them.
    pub(super) fn can_spare(&self, blocks: u64) -> bool {
        let mut state = self.state.lock();
        let kept = self.kept(&state);
        self.spare(&mut state, kept, blocks).is_ok()
    }

    fn spare(&self, state: &mut State, kept: u64, blocks: u64) -> Result<()> {
        let Some(Reserve { clock, .. }) = self.reserve.get() else { return Ok(()) };
        let missing = (kept + blocks).saturating_sub(state.blocks.available());
        if missing == 0 { Ok(()) } else { self.ask_disk(state, clock, missing) }
    }

    /// Blocks that clean pages leave: also the next change, because nothing else would help if it
    /// was refused while no page is dirty.
    fn kept_from_clean(&self, state: &State) -> u64 {
        let demanded = |reserve: &Reserve| reserve.demanded(state.stored_blocks(), ReservedFor::Change);
        self.reserve.get().map_or(0, demanded)
    }

    /// Checks that `pages` clean pages may be written: enough is left for dirty pages; the file
    /// grows for them. If not, and a checkpoint would free blocks, requests one.
    ///
    /// # Errors
    /// Why the file does not grow.
    pub fn check_blocks_for_clean(&self, pages: u64) -> Result<()> {
        let mut state = self.state.lock();
        let kept = self.kept_from_clean(&state);
        let spared = self.spare(&mut state, kept, pages);
        // Once: a failed checkpoint is repeated by its scheduler, not for each refused page.
        let is_requested = spared.is_err()
            && state.checkpoint.phase == Phase::Idle
            && !state.checkpoint.is_wanted
            && state.images.replaced.next >= WORTH_A_CHECKPOINT;
        state.checkpoint.is_wanted |= is_requested;
        drop(state);
        if is_requested {
            self.on_replaced.notify();
        }
        spared
    }

    /// Returns whether the image of a clean page may be recorded: its block is not in the reserve.
    /// The block itself is among the available ones.
    pub(super) fn may_record_clean(&self, state: &State) -> bool {
        self.reserve.get().is_none() || self.kept_from_clean(state) < state.blocks.available()
    }

    /// As [`DiskSpace::allocate_run`], for the open checkpoint, which has `own` of the in-flight
    /// blocks: on a full disk it waits for the other ones. They count as free, because they are
    /// returned soon, or their pages need no other block. Only checkpoints wait, so nothing waits
    /// for a checkpoint here.
    pub(super) fn await_run(
        &self,
        most: u64,
        own: u64,
    ) -> Result<(MutexGuard<'_, State>, (BlockNumber, u64))> {
        for wait in 0..WAITS_MAX {
            let mut state = self.state.lock();
            let asks_disk = wait % WAITS_UNASKED == 0;
            let returning = state.blocks.in_flight.returning();
            if asks_disk || state.blocks.free.bitmap.free_blocks() > 0 || returning <= own {
                match self.allocate_run(&mut state, most) {
                    Err(error) if error.kind() == ErrorKind::OutOfSpace && returning > own => {}
                    allocated => return allocated.map(|run| (state, run)),
                }
            }
            drop(state);
            thread::sleep(WAIT);
        }
        let mut state = self.state.lock();
        self.allocate_run(&mut state, most).map(|run| (state, run))
    }

    /// Returns whether a checkpoint would free blocks that clean pages need to leave memory.
    #[must_use]
    pub fn is_checkpoint_wanted(&self) -> bool {
        self.state.lock().checkpoint.is_wanted
    }

    /// Returns whether eviction may write a page that the open checkpoint, if any, does not need:
    /// enough is left for that checkpoint; the file grows for it. A checkpoint needs blocks until
    /// it is decided, because after its images it writes the mapping. Only a full disk gives false:
    /// the evictor finds out itself whether pages can be written in spite of another error.
    #[must_use]
    pub fn has_block_for_eviction(&self) -> bool {
        let Some(reserve) = self.reserve.get() else { return true };
        let mut state = self.state.lock();
        let images = match state.checkpoint.phase {
            // At most: a page with an image in this checkpoint that changed again is dirty, too.
            Phase::Writing => reserve.dirty(),
            Phase::Finished => 0,
            Phase::Idle | Phase::Undecided | Phase::FlushFailed => return true,
        };
        let needed = images + reserve.other_blocks(state.stored_blocks(), 0);
        let (epoch, available) = (state.checkpoint.epoch, state.blocks.available());
        let left = state.blocks.left_to_checkpoint.filter(|(of, _)| *of == epoch);
        let left = left.map_or(needed, |(_, left)| left);
        if available > needed.min(left) {
            return true;
        }
        // One block is enough, whatever is missing: a page with a block of its own takes nothing
        // from the checkpoint.
        match self.ask_disk(&mut state, &reserve.clock, 1) {
            Ok(()) => {
                state.blocks.left_to_checkpoint = Some((epoch, available));
                true
            }
            Err(error) => error.kind() != ErrorKind::OutOfSpace,
        }
    }

    /// Returns whether the next checkpoint would free a good part of the reserve.
    #[must_use]
    pub fn is_checkpoint_worthwhile(&self) -> bool {
        let replaced = || self.state.lock().images.replaced.next;
        self.reserve.get().is_some_and(|reserve| reserve.dirty() + replaced() >= WORTH_A_CHECKPOINT)
    }

    /// Returns whether the disk was full when the file had to grow last.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        self.disk_full_since().is_some()
    }

    /// Returns when the disk became full, if it is.
    #[must_use]
    pub fn disk_full_since(&self) -> Option<Nanos> {
        self.state.lock().blocks.full.as_ref().map(|full| full.since)
    }

    /// Returns whether a request was refused at most `recently` ago.
    #[must_use]
    pub fn has_refused(&self, recently: Duration) -> bool {
        let Some(Reserve { clock, .. }) = self.reserve.get() else { return false };
        self.state.lock().blocks.refused.is_some_and(|then| clock.now().since(then) <= recently)
    }

    /// Asks a full disk for space again, unless it was asked just before.
    pub fn ask_again(&self) {
        let Some(reserve) = self.reserve.get() else { return };
        let mut state = self.state.lock();
        let now = reserve.clock.now();
        if state.blocks.full.as_ref().is_none_or(|full| full.asked.is_recent(now)) {
            return;
        }
        let wanted = reserve.demanded(state.stored_blocks(), ReservedFor::NewPage);
        let missing = wanted.saturating_sub(state.blocks.available()).max(1);
        if self.grow(&mut state, missing).is_err()
            && let Some(full) = &mut state.blocks.full
        {
            full.asked = SpaceRefusal::new(now, reserve.clock.now());
        }
    }

    /// Bytes of free blocks that are kept for dirty pages.
    #[must_use]
    pub fn reserved_bytes(&self) -> u64 {
        let Some(reserve) = self.reserve.get() else { return 0 };
        let state = self.state.lock();
        let demanded = reserve.demanded(state.stored_blocks(), ReservedFor::Change);
        demanded.min(state.blocks.available()) * self.file.page_bytes as u64
    }
}
