//! Segments: preallocated, zero-filled files, prepared off the commit path and recycled after checkpoints.
//!
//! ```text
//!   prepared by the preparer ──▶ READY ──take──▶ ACTIVE (a log writes it) ──retire──▶ RETIRED ──recycle──▶ READY
//!                                                                             max CSN <= what is covered,
//!                                                                             and no block of it is still to be written
//! ```
//!
//! 1. Segments in use never take more than `log_bytes_max`; at the bound `take` says no, and the commit room waits for a
//!    checkpoint.
//! 2. A recycled segment is not written to become READY: its old blocks are recognised as stale by their epoch, sequence
//!    and CSNs.
//! 3. What a killed process left is removed, not recycled: a write of its may still be on its way, and would land on another block.
//!    (In a file that has no name any more it harms nobody.)
//! 4. A checkpoint may cover a block that is not written yet: its records are durable in mapped memory. Its place is nobody else's before it is.
//! 5. The number in a file's name is a slot, it says nothing about order.
//! 6. Every segment file is READY, ACTIVE, RETIRED, being made, or to be removed: what is none of these would stay until the next open.
//! 7. A database that was not closed has at least one file, so that recovery can tell a lost log from an empty one.

mod leftovers;
mod pressure;
#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;

use super::DIRECTORY;
use super::names::{check_new, id_of, path_of};
use crate::base::clock::{Clock, Nanos};
use crate::base::planted::{self, Bug};
use crate::base::{Csn, Error, ErrorKind, Result, SegmentId};
use crate::device::{File, OpenMode, SECTOR_BYTES, SpaceRefusal, Storage};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Event, Mutex, thread};
use pressure::Checkpoints;
pub use pressure::SpaceTicket;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// A segment file.
#[derive(Clone, Debug)]
pub struct Segment {
    /// The number in its name.
    pub id: SegmentId,
    /// The file.
    pub file: Arc<dyn File>,
    /// Its length.
    pub len: u64,
}

/// How many blocks have their place in a segment and are not written yet: until they are, nobody else may write there.
#[derive(Clone, Debug, Default)]
pub struct OpenBlocks(Arc<AtomicU32>);

/// One of them, until it is dropped.
#[derive(Debug)]
pub struct OpenBlock(OpenBlocks);

impl OpenBlocks {
    /// One more.
    #[must_use]
    pub fn open(&self) -> OpenBlock {
        self.0.fetch_add(1, Ordering::Relaxed);
        OpenBlock(self.clone())
    }

    fn any(&self) -> bool {
        self.0.load(Ordering::Acquire) > 0
    }
}

impl Drop for OpenBlock {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Release);
    }
}

/// A segment that is full.
#[derive(Debug)]
struct Retired {
    segment: Segment,
    max_csn: Csn,
    open: OpenBlocks,
    /// Found by a recovery that needs nothing of it; nor does any other.
    needless: bool,
}

#[derive(Debug, Default)]
struct State {
    ready: Vec<Segment>,
    retired: Vec<Retired>,
    /// With their lengths.
    active: BTreeMap<SegmentId, u64>,
    /// Being prepared.
    making: Option<SegmentId>,
    next_id: u64,
    /// Segments with lower numbers may be those of a killed process.
    own_ids: u64,
    /// Lengths asked for and not there.
    wanted: Vec<u64>,
    /// The one of them that is being prepared.
    wish: Option<u64>,
    /// The longest that was asked for in vain since the last recycling.
    missed: u64,
    /// Why the last preparation failed. Stands until one succeeds; whoever asks for a segment has it tried again.
    failure: Option<Error>,
    /// Preparations that have ended.
    attempts: u64,
    /// Too many or too large, to be removed once there are READY ones (rule 7), or that could not be removed.
    surplus: Vec<SegmentId>,
    started: bool,
    /// The last preparation found no space on the disk; forgotten when one succeeds.
    full: Option<SpaceRefusal>,
    /// When somebody was last told that the disk is full.
    refused: Option<Nanos>,
    checkpoints: Checkpoints,
    /// Somebody waits at the bound, or on a full disk; or that has no READY segment left.
    pressed: bool,
    /// Bytes that recovery found in use. Until a checkpoint frees them a little more may be taken whatever the bound says:
    /// nothing could be appended otherwise, and so no checkpoint be reached.
    adopted_bytes: u64,
    /// What is taken now has no bound.
    beyond_bound: bool,
    /// What the last recycling would have freed but for chunks of transactions in progress: segments whose newest record is
    /// above the first and not above the second. `None` if it kept none, or one of these transactions has ended since.
    kept: Option<(Csn, Csn)>,
    closed: bool,
    #[cfg(test)]
    pretend_full: bool,
}

/// All segments of a database, shared by its logs.
#[derive(Debug)]
pub struct SegmentPool {
    storage: Arc<dyn Storage>,
    segment_bytes: u64,
    bytes_max: u64,
    /// READY segments that the preparer keeps.
    spare: usize,
    clock: Clock,
    state: Mutex<State>,
    /// Wakes the preparer, which keeps no pool alive while it sleeps: one that a failed open gives up ends with its thread.
    work: Arc<Event>,
    /// Wakes those who wait for a segment.
    prepared: Event,
    /// Happens when segments fill up and when somebody is refused: whoever makes checkpoints looks at
    /// [`SegmentPool::bytes_in_use`] then.
    filled: Event,
    preparer: Mutex<Option<thread::JoinHandle<()>>>,
}

/// If the thread ends by a panic there are no new segments any more: who waits for one is told.
struct Alive(std::sync::Weak<SegmentPool>);

impl Drop for Alive {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(pool) = self.0.upgrade()
        {
            let what = "the thread that prepares log segments panicked: this is a bug";
            pool.state.lock().failure = Some(Error::new(ErrorKind::Poisoned, what));
            pool.prepared.notify_all();
        }
    }
}

impl SegmentPool {
    /// A pool without segments; call [`SegmentPool::adopt`] for existing ones, then [`SegmentPool::start`].
    ///
    /// # Errors
    /// I/O.
    pub fn new(
        storage: Arc<dyn Storage>,
        segment_bytes: u64,
        bytes_max: u64,
        spare: usize,
    ) -> Result<Arc<SegmentPool>> {
        storage.create_directory(DIRECTORY)?;
        storage.flush_directory("")?;
        Ok(Arc::new(SegmentPool {
            storage,
            segment_bytes,
            bytes_max,
            spare,
            clock: Clock::real(),
            state: Mutex::new(State::default()),
            work: Arc::new(Event::new()),
            prepared: Event::new(),
            filled: Event::new(),
            preparer: Mutex::new(None),
        }))
    }

    /// Keeps spare segments ready, from a thread of its own.
    ///
    /// # Errors
    /// `OutOfMemory` if there is no thread left.
    pub fn start(self: &Arc<Self>) -> Result<()> {
        let (pool, work) = (Arc::downgrade(self), self.work.clone());
        let handle = thread::spawn("quench-segments", move || {
            let _alive = Alive(pool.clone());
            loop {
                let ticket = work.ticket();
                let Some(pool) = pool.upgrade() else { return };
                match pool.next_work() {
                    Work::Closed => return,
                    Work::Prepare(len) => {
                        pool.prepare_or_note(len);
                        continue;
                    }
                    Work::Nothing => {}
                }
                drop(pool);
                work.wait(ticket, None);
            }
        })
        .map_err(|error| Error::io("cannot start the thread that prepares log segments", error))?;
        *self.preparer.lock() = Some(handle);
        Ok(())
    }

    /// Stops the preparer; with `wait` returns when it has ended.
    pub fn close(&self, wait: bool) {
        self.state.lock().closed = true;
        self.work.notify_all();
        self.prepared.notify_all();
        if wait && let Some(handle) = self.preparer.lock().take() {
            let _ = handle.join();
        }
    }

    /// Does `work` for a recovery: what that appends has been in the log before, so there is room for it, whatever the bound says. Nobody
    /// else is there who could make a checkpoint.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn beyond_bound<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.state.lock().beyond_bound = true;
        let done = work();
        let mut state = self.state.lock();
        state.beyond_bound = false;
        state.adopted_bytes = bytes_in_use(&state);
        done
    }

    fn within_bound(&self, state: &State, in_use: u64, more: u64) -> bool {
        let after_recovery =
            state.adopted_bytes > 0 && in_use < state.adopted_bytes + RECOVERY_SEGMENTS * self.segment_bytes;
        in_use + more <= self.bytes_max || after_recovery || state.beyond_bound
    }

    fn next_work(&self) -> Work {
        let mut state = self.state.lock();
        if state.closed {
            return Work::Closed;
        }
        if self.was_just_full(&state) {
            // Whoever still wants one asks again.
            state.wanted.clear();
        }
        while let Some(len) = state.wanted.pop() {
            // With the length that it will have: what `take` would refuse is not made.
            let fits = self.within_bound(&state, bytes_in_use(&state), self.len_for(len));
            if fits && self.usable(&state, len).is_none() {
                state.wish = Some(len);
                return Work::Prepare(len);
            }
        }
        if state.ready.len() < self.spare && state.failure.is_none() {
            return Work::Prepare(self.segment_bytes);
        }
        Work::Nothing
    }

    /// Length of a segment with room for `len` bytes.
    fn len_for(&self, len: u64) -> u64 {
        len.max(self.segment_bytes).next_multiple_of(SECTOR_BYTES as u64)
    }

    /// The shortest READY segment with room for `len` bytes that may be taken: a longer one may not be within the bound.
    fn usable(&self, state: &State, len: u64) -> Option<usize> {
        let in_use = bytes_in_use(state);
        let fits = |segment: &Segment| segment.len >= len && self.within_bound(state, in_use, segment.len);
        let usable = state.ready.iter().enumerate().filter(|(_, segment)| fits(segment));
        usable.min_by_key(|(_, segment)| segment.len).map(|(index, _)| index)
    }

    fn prepare_or_note(&self, len: u64) {
        let begun = self.clock.now();
        let result = self.prepare(len);
        if let Err(error) = &result {
            tracing::warn!(%error, "cannot prepare a log segment");
        }
        let mut state = self.state.lock();
        let full = result.as_ref().is_err_and(|error| error.kind() == ErrorKind::OutOfSpace);
        state.full = full.then(|| SpaceRefusal::new(begun, self.clock.now()));
        state.failure = result.err();
        state.attempts += 1;
        state.wish = None;
        drop(state);
        self.prepared.notify_all();
    }

    /// Creates a READY segment of at least `len` bytes.
    fn prepare(&self, len: u64) -> Result<()> {
        let id = {
            let mut state = self.state.lock();
            state.next_id = state.next_id.max(1);
            state.next_id += 1;
            let id = SegmentId(state.next_id - 1);
            state.making = Some(id);
            id
        };
        let len = self.len_for(len);
        let result = self.create(id, len);
        // Half a segment must not keep the space that is missing.
        let stays = result.is_err() && self.storage.remove(&path_of(id)).is_err();
        let mut state = self.state.lock();
        state.making = None;
        if stays {
            state.surplus.push(id);
        }
        let file = result?;
        state.ready.push(Segment { id, file, len });
        drop(state);
        self.prepared.notify_all();
        Ok(())
    }

    fn create(&self, id: SegmentId, len: u64) -> Result<Arc<dyn File>> {
        check_new(id)?;
        let mode = OpenMode { create: true, read_only: false, direct: true };
        let file = self.storage.open(&path_of(id), mode)?;
        file.zero_extend_paced(len, &mut |took| self.rest(took))?;
        if !planted::is(Bug::SegmentNameNotFlushed) {
            self.storage.flush_directory(DIRECTORY)?;
        }
        Ok(file)
    }

    /// Leaves the device to commits, unless somebody waits for the segment, or will soon.
    fn rest(&self, took: Duration) {
        let hurry = {
            let state = self.state.lock();
            let waits = state.wish.is_some() || !state.wanted.is_empty();
            !state.started || waits || state.ready.is_empty() || state.closed
        };
        if !hurry {
            thread::sleep(took.min(REST_MAX) * RESTS);
        }
    }

    /// A READY segment with room for `len` bytes, now ACTIVE; `None` if there is none yet, or at the bound. Never blocks
    /// on the device.
    #[must_use]
    pub fn take(&self, len: u64) -> Option<Segment> {
        let mut state = self.state.lock();
        #[cfg(test)]
        if state.pretend_full {
            return None;
        }
        let segment = self.usable(&state, len).map(|index| state.ready.swap_remove(index));
        match &segment {
            Some(segment) => drop(state.active.insert(segment.id, segment.len)),
            None => {
                state.missed = state.missed.max(len);
                // Whoever waits looks again and again, also while it is made.
                let is_made = state.wish.is_some_and(|wish| wish >= len);
                if !is_made && !state.wanted.contains(&len) {
                    state.wanted.push(len);
                }
            }
        }
        let wake = segment.is_none() || state.ready.len() < self.spare;
        drop(state);
        if wake {
            self.work.notify_all();
        }
        segment
    }

    /// An ACTIVE segment is full: RETIRED with the highest CSN in it, and the blocks that are still to be written there.
    pub fn retire(&self, segment: Segment, max_csn: Csn, open: OpenBlocks) {
        let mut state = self.state.lock();
        state.active.remove(&segment.id);
        state.retired.push(Retired { segment, max_csn, open, needless: false });
        // Whoever opens the database after a kill on a full disk needs the room of a segment with nothing above the checkpoint.
        state.pressed |= state.full.is_some() && state.ready.is_empty();
        drop(state);
        self.filled.notify_all();
    }

    /// Happens when a segment is full.
    #[must_use]
    pub fn filled(&self) -> &Event {
        &self.filled
    }

    /// Makes segments READY again that have nothing above `covered`, and whose blocks are written. That is the CSN of a durable checkpoint,
    /// `checkpoint`, or one below it, from which on the log is kept; at a clean close, where nothing is needed any more, one above all. Removes
    /// those that are too many, too large or not ours; before [`SegmentPool::await_ready`] that waits until there are others.
    ///
    /// # Errors
    /// I/O while removing: the first one. All else is done, and what could not be removed is tried again the next time.
    pub fn recycle(&self, covered: Csn, checkpoint: Csn) -> Result<()> {
        let started;
        {
            let mut state = self.state.lock();
            let retired = std::mem::take(&mut state.retired);
            for full in retired {
                let is_needed =
                    full.max_csn > covered || (full.open.any() && !planted::is(Bug::PlaceUsedEarly));
                if is_needed && !planted::is(Bug::SegmentRecycledEarly) {
                    state.retired.push(full);
                    continue;
                }
                let segment = full.segment;
                let fits = segment.len == self.segment_bytes && state.ready.len() < self.spare + READY_MAX;
                if fits && (segment.id.0 >= state.own_ids || planted::is(Bug::KilledSegmentAdopted)) {
                    state.ready.push(segment);
                } else if !planted::is(Bug::SegmentForgotten) {
                    state.surplus.push(segment.id);
                }
            }
            state.kept = (covered < checkpoint).then_some((covered, checkpoint));
            state.forget_failure();
            (state.pressed, state.missed) = (false, 0);
            state.checkpoints.done += 1;
            state.adopted_bytes = 0;
            started = state.started;
        }
        self.prepared.notify_all();
        self.work.notify_all();
        if started { self.remove_surplus() } else { Ok(()) }
    }

    /// Segment files that belong to nothing (rule 6). Nothing is recycled meanwhile.
    ///
    /// # Errors
    /// I/O.
    pub fn leaked(&self) -> Result<Vec<SegmentId>> {
        let files = || -> Result<BTreeSet<SegmentId>> {
            let names = self.storage.list(DIRECTORY)?;
            names.iter().filter_map(|name| id_of(name).transpose()).collect()
        };
        // Before what is known: a file is known before it is made.
        let mut leaked = files()?;
        leaked.retain(|id| !self.state.lock().knows(*id));
        if !leaked.is_empty() {
            // One whose making failed was removed meanwhile.
            let there = files()?;
            leaked.retain(|id| there.contains(id));
        }
        Ok(leaked.into_iter().collect())
    }

    /// Makes `take` say no, as if the log were at its bound.
    #[cfg(test)]
    pub fn pretend_full(&self, full: bool) {
        self.state.lock().pretend_full = full;
    }

    /// Waiting for a segment: take the ticket before trying.
    #[must_use]
    pub fn prepared(&self) -> &Event {
        &self.prepared
    }

    /// Length of a segment that nobody needs longer.
    #[must_use]
    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// Why there is no segment, if preparing one failed.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        self.state.lock().failure.as_ref().map(Error::duplicate)
    }

    /// Bytes of all segments, READY ones too.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        let state = self.state.lock();
        bytes_in_use(&state) + state.ready.iter().map(|segment| segment.len).sum::<u64>()
    }

    /// Bytes of segments that hold records that may be needed.
    #[must_use]
    pub fn bytes_in_use(&self) -> u64 {
        bytes_in_use(&self.state.lock())
    }

    /// Of these, bytes that a checkpoint may free: not those that the last one had to leave.
    #[must_use]
    pub fn bytes_to_free(&self) -> u64 {
        let state = self.state.lock();
        bytes_in_use(&state) - bytes_kept(&state)
    }

    /// A transaction has ended for which the log was kept: the next checkpoint may free more.
    pub fn let_go(&self) {
        let kept = self.state.lock().kept.take();
        if kept.is_some() {
            self.filled.notify_all();
        }
    }

    /// Bytes of full segments whose newest record is between these, the first excluded.
    #[must_use]
    pub fn bytes_between(&self, above: Csn, last: Csn) -> u64 {
        bytes_between(&self.state.lock(), above, last)
    }
}

impl Drop for SegmentPool {
    fn drop(&mut self) {
        self.work.notify_all();
    }
}

/// Segments that may be taken beyond the bound between recovery and the first checkpoint.
const RECOVERY_SEGMENTS: u64 = 4;
/// A segment that is made beside commits has the device for one part of the time, and rests for so many.
const RESTS: u32 = 4;
const REST_MAX: Duration = Duration::from_millis(5);
/// Recycled segments kept beyond the spare ones.
const READY_MAX: usize = 64;

enum Work {
    Closed,
    Prepare(u64),
    Nothing,
}

impl State {
    /// The device may do better now. That there is no preparer any more stands.
    fn forget_failure(&mut self) {
        drop(self.failure.take_if(|failure| failure.kind() != ErrorKind::Poisoned));
    }

    fn knows(&self, id: SegmentId) -> bool {
        let files = self.ready.iter().chain(self.retired.iter().map(|full| &full.segment));
        let others = self.surplus.iter().chain(self.active.keys()).chain(&self.making);
        files.map(|segment| &segment.id).chain(others).any(|known| *known == id)
    }
}

fn bytes_in_use(state: &State) -> u64 {
    state.active.values().chain(state.retired.iter().map(|full| &full.segment.len)).sum()
}

fn bytes_kept(state: &State) -> u64 {
    state.kept.map_or(0, |(covered, checkpoint)| bytes_between(state, covered, checkpoint))
}

fn bytes_between(state: &State, above: Csn, last: Csn) -> u64 {
    let between = state.retired.iter().filter(|full| full.max_csn > above && full.max_csn <= last);
    between.map(|full| full.segment.len).sum()
}
