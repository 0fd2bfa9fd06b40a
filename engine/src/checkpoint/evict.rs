//! Eviction: pages leave memory without being lost.
//!
//! One thread takes the candidates that the pool's clock hand has found. A page that equals its
//! newest image leaves at once. Any other page is written first, out of place, several at a time:
//!
//! ```text
//!   marked page ──look, copy──▶ image ──write──▶ done ──unchanged since?──▶ recorded ──untouched?──▶ memory given back
//!                 (no latch)                             no: discarded                 no: stays, clean
//! ```
//!
//! # Which images are written
//! The image of an evicted page contains committed content only (I7), except pages of large values
//! in progress, which checkpoints list as free. A page with an entry in progress stays in memory;
//! for an entry that is not durable yet the log is flushed first. Entries keep the stamps that an
//! older snapshot may need (a *stamped* image), so no long snapshot or running checkpoint keeps a
//! page in memory.
//!
//! # To which checkpoint an image belongs
//! 1. No checkpoint runs, or the page has its image in the running one: the image belongs to the
//!    next checkpoint. Every change in it is committed before that one chooses its CSN.
//! 2. A checkpoint at C runs, and the page has no image in it:
//!    - If nothing in the page is newer than C, the image belongs to the running checkpoint, which
//!      then needs no other image of it.
//!    - Otherwise first the image as of C is written for the checkpoint, and the page stays; later
//!      it is case 1. A page of a large value that did not exist at C needs no image in the
//!      checkpoint.
//!
//! The decision and the recording happen under the imager's gate with the page held exclusively, so
//! no checkpoint begins or ends in between.
//!
//! All images are cold for the store, which may compress them: no thread has touched these pages
//! for a whole turn of the clock hand.
//!
//! # Bounds
//! Buffers take [`buffer_bytes`]; one pass of the hand looks at every page twice. On a full disk no
//! image is written that would take the space of the running checkpoint. Nor is a clean page
//! written for its stamps if it would take the reserve of dirty pages: then a checkpoint is
//! requested if it would free space. While writes fail, they are tried less and less often, and not
//! each attempt leaks a block.

use super::attempts::{Attempts, Pause};
use super::image::{Imager, image_as_of, writer_bytes};
use crate::base::planted::{self, Bug};
use crate::base::{Csn, Error, ErrorKind, PageId, Result};
use crate::buffer::{Claimed, HIDDEN_EPOCH, Leaving, PageBytes, PageState, Pool, ScratchPage, Version};
use crate::device::{AlignedBuffer, Storage};
use crate::store::{Heat, ImageKind, ImageWriter, PageStore, Written};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::epoch::{Guard, pin};
use crate::sync::{Mutex, thread};
use crate::transaction::{CheckpointView, StampState, TransactionSystem};
use crate::tree::image::{Shown, StampFate, owner_of, stamped_image};
use std::sync::Arc;
use std::time::Duration;

/// Candidates considered between two looks at completed writes.
const BATCH: usize = 64;
/// Pages that the hand passes for one batch, at most.
const STEPS: u64 = 4096;
/// Returns the bytes of buffers of all writers of images, in a budget of `memory_bytes`.
#[must_use]
pub fn buffer_bytes(memory_bytes: u64) -> u64 {
    3 * writer_bytes(memory_bytes)
}

/// Evicts pages when little memory is left. Its thread ends when it is dropped.
#[derive(Debug)]
pub struct Evictor {
    pool: Arc<Pool>,
    imager: Arc<Imager>,
    stop: Arc<AtomicBool>,
    thread: Mutex<Option<thread::JoinHandle<()>>>,
}

impl Evictor {
    /// Starts the thread `quench-evictor`, which sleeps while enough memory is free. Without a
    /// storage only pages that need no write leave memory.
    ///
    /// # Errors
    /// I/O; the system cannot start a thread.
    pub fn start(
        system: Arc<TransactionSystem>,
        pool: Arc<Pool>,
        store: Arc<PageStore>,
        storage: Option<Arc<dyn Storage>>,
    ) -> Result<Evictor> {
        let imager = Arc::new(Imager::new(pool.clone()));
        let stop = Arc::new(AtomicBool::new(false));
        let mut work = Work {
            attempts: Attempts::new(system.clock()),
            system,
            pool: pool.clone(),
            store,
            imager: imager.clone(),
            stop: stop.clone(),
            storage,
            writes: true,
            writer: None,
            pending: Vec::new(),
            candidates: Vec::new(),
            written: Vec::new(),
            leavers: Vec::new(),
            not_durable: Csn::ZERO,
            eviction_error: None,
        };
        pool.eviction().set_attached(true);
        let started = thread::spawn("quench-evictor", move || work.run());
        let thread = started.map_err(|error| {
            pool.eviction().set_attached(false);
            Error::io("cannot start the thread that evicts pages", error)
        })?;
        Ok(Evictor { pool, imager, stop, thread: Mutex::new(Some(thread)) })
    }

    /// The imager, for the checkpoint.
    #[must_use]
    pub fn imager(&self) -> Arc<Imager> {
        self.imager.clone()
    }
}

impl Evictor {
    /// Ends the thread. Full memory is an error from now on.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.pool.eviction().set_attached(false);
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Evictor {
    fn drop(&mut self) {
        self.stop();
    }
}

/// An image being written.
#[derive(Clone, Copy, Debug)]
struct Pending {
    page: PageId,
    version: Version,
    /// The page is dirty, so the reserve has a block for it.
    dirty: bool,
    purpose: Purpose,
    /// Owner of the large value of the page, if that may be in progress.
    unfinished: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    /// The page as of the CSN of this checkpoint epoch (case 2b).
    Checkpoint(u32),
    /// The page as it is; nothing in it is newer than this CSN.
    Leave(Csn),
}

/// A page that needs no image if it has not changed.
#[derive(Clone, Copy, Debug)]
struct Leaver {
    page: PageId,
    version: Version,
    /// No snapshot needs its stamps any more.
    settled: bool,
}

/// The state of the thread.
struct Work {
    system: Arc<TransactionSystem>,
    pool: Arc<Pool>,
    store: Arc<PageStore>,
    imager: Arc<Imager>,
    stop: Arc<AtomicBool>,
    /// The store's storage; none if nothing may be written.
    storage: Option<Arc<dyn Storage>>,
    attempts: Attempts,
    /// Off for a pause after a failure.
    writes: bool,
    /// Created when first needed, and again after a failure.
    writer: Option<ImageWriter>,
    /// By token.
    pending: Vec<Option<Pending>>,
    candidates: Vec<PageId>,
    written: Vec<Written>,
    /// Candidates that need no image.
    leavers: Vec<Leaver>,
    /// The newest CSN that kept a page in memory because it is not durable.
    not_durable: Csn,
    /// The error that kept pages of the current pass in memory, if it was not their content.
    eviction_error: Option<Error>,
}

/// If the thread ends by a panic, threads that wait for memory get an error.
struct Alive(Arc<TransactionSystem>, Arc<Pool>);

impl Drop for Alive {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.1.eviction().set_attached(false);
            self.0.committed.panicked("the thread that evicts pages");
        }
    }
}

impl Work {
    fn run(&mut self) {
        let _alive = Alive(self.system.clone(), self.pool.clone());
        let mut pause = Pause::NONE;
        while !self.stop.load(Ordering::SeqCst) {
            if pause.least > Duration::ZERO {
                thread::sleep(pause.least);
            }
            self.pool.eviction().wait_for_pressure(pause.most);
            self.writes = self.attempts.may_write(&self.store);
            let relieved = self.relieve();
            if self.writes && relieved.is_ok() {
                self.attempts.went_well();
            }
            pause = match relieved {
                Ok(true) => {
                    self.pool.eviction().succeeded();
                    Pause::NONE
                }
                Ok(false) if !self.writes => {
                    self.pool.eviction().pass_failed(self.attempts.failure());
                    Pause::AFTER_FAILURE
                }
                Ok(false) if self.pool.eviction().has_error() || self.pool.memory().is_over_budget() => {
                    Pause::BEFORE_LONG
                }
                Ok(false) => Pause::WHEN_FUTILE,
                Err(error) => {
                    tracing::warn!(%error, "pages cannot leave memory");
                    // Waits for writes in flight. Pages whose images are not recorded stay dirty.
                    self.writer = None;
                    self.pending.clear();
                    self.attempts.failed(&error);
                    self.pool.eviction().pass_failed(Some(error));
                    // Pages that need no write may not have been enough.
                    if self.relieves_without_writing() { Pause::BEFORE_LONG } else { Pause::AFTER_FAILURE }
                }
            };
        }
    }

    /// After a failure: evicts pages that need no write. Returns whether any page left.
    fn relieves_without_writing(&mut self) -> bool {
        let before = self.pool.eviction().pages_evicted();
        self.writes = false;
        let _ = self.relieve();
        self.pool.eviction().pages_evicted() != before
    }

    /// Evicts pages until enough memory is free; returns false if a whole pass freed nothing.
    fn relieve(&mut self) -> Result<bool> {
        if self.pool.memory().pages_to_evict() > 0 {
            self.system.versions.lower_charges();
        }
        // An error of an earlier attempt does not count.
        self.eviction_error = None;
        let (mut passed, mut freed) = (0, 0);
        loop {
            let wanted = self.pool.memory().pages_to_evict();
            if wanted == 0 || self.stop.load(Ordering::SeqCst) {
                self.finish_writes()?;
                return Ok(true);
            }
            freed += self.pool.memory().discard_free_pages(wanted);
            self.candidates.clear();
            passed += self.pool.memory().next_candidates(BATCH, STEPS, &mut self.candidates);
            for at in 0..self.candidates.len() {
                self.consider(self.candidates[at])?;
            }
            freed += self.leave_now();
            // A pack being filled frees no memory before it is written.
            let enough = self.pending.iter().flatten().count() as u64 >= wanted;
            freed += self.complete_writes(enough)?;
            if passed < 2 * self.pool.page_count() {
                continue;
            }
            freed += self.finish_writes()?;
            if freed == 0 {
                if self.writes {
                    self.wait_for_log();
                    self.pool.eviction().pass_failed(self.eviction_error.take());
                }
                return Ok(false);
            }
            self.eviction_error = None;
            (passed, freed) = (0, 0);
        }
    }

    /// Flushes commits that are not durable and keep pages in memory (I14).
    fn wait_for_log(&mut self) {
        let csn = std::mem::replace(&mut self.not_durable, Csn::ZERO);
        if csn > Csn::ZERO
            && let Err(error) = self.system.committed.wait_up_to(csn)
        {
            tracing::debug!(%error, "pages stay in memory: what they hold cannot become durable");
            self.eviction_error.get_or_insert(error);
        }
    }

    /// Decides whether a candidate leaves, is written first, or stays.
    fn consider(&mut self, page: PageId) -> Result<()> {
        let Some(state) = self.pool.look_at_marked(page, |_| ()) else { return Ok(()) };
        if state.epoch == HIDDEN_EPOCH {
            return Ok(());
        }
        if !state.dirty && !state.unsaved_stamps || planted::is(Bug::DirtyPageDropped) {
            self.leavers.push(Leaver { page, version: state.version, settled: false });
            return Ok(());
        }
        if !self.writes || self.storage.is_none() || self.is_being_written(page, state.version) {
            return Ok(());
        }
        if let Err(refused) = self.spares_block(state.dirty) {
            match if state.dirty { None } else { self.needs_none(page) } {
                Some(version) => self.leavers.push(Leaver { page, version, settled: true }),
                None => self.eviction_error = Some(refused),
            }
            return Ok(());
        }
        let Some(mut writer) = self.take_writer()? else { return Ok(()) };
        let needs_none = self.write(&mut writer, page, state.dirty);
        self.writer = Some(writer);
        self.leavers.extend(needs_none?.map(|version| Leaver { page, version, settled: true }));
        Ok(())
    }

    /// Checks that a block is available for a page that leaves memory. Never waits: a checkpoint
    /// may wait for a latch of a thread that waits for memory.
    fn spares_block(&self, dirty: bool) -> Result<()> {
        // Also after the images are made: then the imager no longer runs the checkpoint, but its
        // mapping is not written yet.
        if !self.store.disk_space().has_block_for_eviction() {
            let what = "the disk is full, and its last space is needed by the checkpoint in progress";
            return Err(Error::new(ErrorKind::OutOfSpace, what));
        }
        if dirty {
            return Ok(());
        }
        let clean = self.pending.iter().flatten().filter(|pending| !pending.dirty).count() as u64;
        self.store.disk_space().check_blocks_for_clean(clean + 1)
    }

    /// Returns the version of a clean page whose stamps no snapshot needs any more.
    fn needs_none(&self, page: PageId) -> Option<Version> {
        let mut copy = AlignedBuffer::zeroed(self.store.page_bytes());
        let guard = pin();
        let state = self.pool.look_at_marked(page, |bytes| bytes.copy_to(0, &mut copy))?;
        let looked = self.look(&mut copy, &guard).filter(|_| !state.dirty)?;
        (!looked.stamped).then_some(state.version)
    }

    /// The hand may pass a page twice before its pack is full.
    fn is_being_written(&self, page: PageId, version: Version) -> bool {
        self.pending.iter().flatten().any(|pending| (pending.page, pending.version) == (page, version))
    }

    fn take_writer(&mut self) -> Result<Option<ImageWriter>> {
        let Some(storage) = &self.storage else { return Ok(None) };
        match self.writer.take() {
            Some(writer) => Ok(Some(writer)),
            None => self.store.writer(&**storage, writer_bytes(self.pool.frames().memory_bytes())).map(Some),
        }
    }

    /// Evicts pages that need no image; returns their number.
    fn leave_now(&mut self) -> u64 {
        let mut leaving = Leaving::default();
        for Leaver { page, version, settled } in self.leavers.drain(..) {
            let claimed = self.pool.claim_unchanged(page, version);
            if let Some(claimed) = claimed.filter(|claimed| claimed.needs_no_image(settled)) {
                Self::leave(claimed, &mut leaving);
            }
        }
        leaving.evict()
    }

    /// Writes the image that the page needs now. Returns the page's version if it needs none.
    fn write(&mut self, writer: &mut ImageWriter, page: PageId, dirty: bool) -> Result<Option<Version>> {
        let token = self.pending.iter().position(Option::is_none).unwrap_or_else(|| {
            self.pending.push(None);
            self.pending.len() - 1
        });
        let running = self.imager.running();
        let (mut settled, mut passed_by) = (None, None);
        let mut pending = None;
        let guard = pin();
        let pushed = writer.push(page, self.system.committed.newest_drawn(), Heat::Cold, |out| {
            let state = self.pool.look_at_marked(page, |bytes| bytes.copy_to(0, out))?;
            let Looked { stamped, newest, not_durable, unfinished } = self.look(out, &guard)?;
            self.not_durable = self.not_durable.max(not_durable);
            if not_durable > Csn::ZERO && !planted::is(Bug::ImageBeforeLog) {
                return None;
            }
            if !state.dirty && !stamped {
                settled = Some(state.version);
                return None;
            }
            if state.dirty != dirty {
                // The block was checked for the other kind of page.
                return None;
            }
            let purpose = purpose_of(&state, newest, running.as_ref());
            let kind = match (purpose, &running) {
                (Purpose::Checkpoint(epoch), Some((_, view))) => match as_of(view, out)? {
                    Shown::Nothing => {
                        passed_by = Some((state.version, epoch));
                        return None;
                    }
                    _ => ImageKind::Settled,
                },
                _ if stamped => ImageKind::Stamped,
                _ => ImageKind::Settled,
            };
            pending = Some(Pending { page, version: state.version, dirty, purpose, unfinished });
            Some((kind, token as u64))
        })?;
        debug_assert_eq!(pushed, pending.is_some());
        self.pending[token] = pending;
        if let Some((version, epoch)) = passed_by {
            self.pass_by(page, version, epoch);
        }
        Ok(settled)
    }

    /// Case 2b for a page that is not in the checkpoint: it may leave at the next pass of the hand.
    fn pass_by(&self, page: PageId, version: Version, epoch: u32) {
        let _gate = self.imager.gate();
        let runs = self.imager.running().is_some_and(|(running, _)| running == epoch);
        if let Some(claimed) = self.pool.claim_unchanged(page, version).filter(|_| runs)
            && claimed.epoch() < epoch
        {
            claimed.set_imaged(epoch);
        }
    }

    fn finish_writes(&mut self) -> Result<u64> {
        self.complete_writes(true)
    }

    /// Records the images whose writes have completed; returns the number of evicted pages.
    fn complete_writes(&mut self, all: bool) -> Result<u64> {
        let Some(writer) = &mut self.writer else { return Ok(0) };
        let result = writer.reap(all, &mut self.written);
        let mut pending_of =
            |written: &Written| self.pending.get_mut(written.token as usize).and_then(Option::take);
        let done: Vec<_> = self.written.drain(..).map(|written| (pending_of(&written), written)).collect();
        let mut leaving = Leaving::default();
        // Before the first page is held: a checkpoint waits for pages under the gate.
        let gate = (!done.is_empty()).then(|| self.imager.gate());
        for (pending, written) in &done {
            self.complete(written, *pending, &mut leaving);
        }
        drop(gate);
        let freed = leaving.evict();
        result.map(|()| freed)
    }

    /// Records an image if the page in memory has not changed. Under the gate.
    fn complete<'p>(&'p self, written: &Written, pending: Option<Pending>, leaving: &mut Leaving<'p>) {
        let claimed = pending.and_then(|pending| {
            let claimed = self.pool.claim_unchanged(written.page, pending.version)?;
            Some((claimed, pending))
        });
        match claimed {
            Some((claimed, pending @ Pending { purpose: Purpose::Leave(newest), .. })) => {
                self.complete_leaving(claimed, newest, pending, written, leaving);
            }
            Some((claimed, Pending { purpose: Purpose::Checkpoint(epoch), .. })) => {
                self.complete_checkpoint_image(&claimed, epoch, written);
            }
            None => self.store.discard(written.reference),
        }
    }

    /// Case 2b: the page has its image in the checkpoint now.
    fn complete_checkpoint_image(&self, claimed: &Claimed<'_>, epoch: u32, written: &Written) {
        let runs = self.imager.running().is_some_and(|(running, _)| running == epoch);
        debug_assert!(
            written.kind == ImageKind::Settled,
            "the image of a checkpoint has no stamps of versions"
        );
        if runs && claimed.epoch() < epoch {
            self.store.record(written.page, written.reference, true);
            claimed.set_imaged(epoch);
        } else {
            self.store.discard(written.reference);
        }
    }

    /// Cases 1 and 2a.
    fn complete_leaving<'p>(
        &self,
        claimed: Claimed<'p>,
        newest: Csn,
        pending: Pending,
        written: &Written,
        leaving: &mut Leaving<'p>,
    ) {
        debug_assert!(
            pending.unfinished.is_none() || newest == Csn::MAX,
            "a page of an unfinished value is newer than every checkpoint"
        );
        debug_assert!(
            pending.dirty || written.kind == ImageKind::Stamped,
            "a clean page is written for its stamps alone"
        );
        if pending.dirty && !claimed.is_dirty() {
            // The running checkpoint has written the page meanwhile, so the reserve has no block
            // for it any more.
            self.store.discard(written.reference);
            if written.kind == ImageKind::Settled {
                Self::leave(claimed, leaving);
            }
            return;
        }
        let needs = self.imager.running().filter(|(epoch, _)| claimed.epoch() < *epoch);
        if needs.as_ref().is_some_and(|(_, view)| newest > view.csn())
            && !planted::is(Bug::ImageAfterCheckpoint)
        {
            // A checkpoint that began meanwhile needs the page as of an older CSN first.
            self.store.discard(written.reference);
            return;
        }
        if let Some(owner) = pending.unfinished {
            self.system.large_values.note_uncommitted(owner, written.page);
        }
        if pending.dirty {
            self.store.record(written.page, written.reference, needs.is_some());
        } else if !self.store.record_clean(written.page, written.reference, needs.is_some()) {
            self.store.discard(written.reference);
            return;
        }
        if let Some((epoch, _)) = &needs {
            claimed.set_imaged(*epoch);
        }
        claimed.set_clean(written.kind == ImageKind::Stamped);
        Self::leave(claimed, leaving);
    }

    /// Evicts the page if no thread has touched it.
    fn leave<'p>(claimed: Claimed<'p>, leaving: &mut Leaving<'p>) {
        if claimed.is_untouched() {
            leaving.push(claimed);
        }
    }

    /// Turns a copied page into a stamped image and describes its content; `None` if the page has
    /// to stay in memory.
    fn look(&self, out: &mut [u8], guard: &Guard) -> Option<Looked> {
        let (mut newest, mut not_durable, mut unfinished) = (Csn::ZERO, Csn::ZERO, None);
        let owner = owner_of(out);
        let stamped =
            stamped_image(out, &mut |stamp| match self.system.versions.stamp_state(stamp, guard) {
                StampState::Settled => StampFate::Settled,
                StampState::Committed(csn) => {
                    newest = newest.max(csn);
                    StampFate::Kept
                }
                StampState::NotDurable(csn) => {
                    not_durable = not_durable.max(csn);
                    StampFate::Kept
                }
                StampState::InProgress if owner == Some(stamp) => {
                    // No running checkpoint contains it.
                    (newest, unfinished) = (Csn::MAX, owner);
                    StampFate::Kept
                }
                StampState::InProgress if planted::is(Bug::UncommittedImage) => StampFate::Kept,
                StampState::InProgress => StampFate::Refused,
            })?;
        Some(Looked { stamped, newest, not_durable, unfinished })
    }
}

/// The content of a page.
struct Looked {
    /// A snapshot may need some of its stamps.
    stamped: bool,
    /// The newest of these stamps.
    newest: Csn,
    /// The newest stamp that is not durable; 0 if all are.
    not_durable: Csn,
    /// The owner of the large value in progress of the page.
    unfinished: Option<u64>,
}

/// Returns the purpose of a page's image.
fn purpose_of(state: &PageState, newest: Csn, running: Option<&(u32, Arc<CheckpointView>)>) -> Purpose {
    match running {
        _ if planted::is(Bug::ImageAfterCheckpoint) => Purpose::Leave(newest),
        Some((epoch, view)) if state.dirty && state.epoch < *epoch && newest > view.csn() => {
            Purpose::Checkpoint(*epoch)
        }
        _ => Purpose::Leave(newest),
    }
}

/// Turns a copy of a page into its image as of the view's CSN. A page of a large value that did not
/// exist then has none.
fn as_of(view: &CheckpointView, out: &mut [u8]) -> Option<Shown> {
    let copy = ScratchPage::from_image(out);
    let bytes: PageBytes<'_> = copy.bytes();
    image_as_of(view, bytes, out, &mut || false)
}

#[cfg(all(test, not(any(loom, miri, feature = "shuttle"))))]
mod tests;
