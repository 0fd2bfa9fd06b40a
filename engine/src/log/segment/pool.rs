//! The pool: gives segments to logs and takes full ones back.

use super::file::{OpenBlocks, Readable, Segment};
use super::history::{Covering, FeedId, History, Retained};
use super::state::{Retired, State};
use crate::base::clock::Clock;
use crate::base::planted::{self, Bug};
use crate::base::{Csn, Result, SegmentId};
use crate::device::{SECTOR_BYTES, Storage};
use crate::sync::{Event, Mutex, thread};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Segments that may be taken beyond the bound between recovery and the first checkpoint.
pub(super) const RECOVERY_SEGMENTS: u64 = 4;
/// Length of the first segments, in bytes.
pub const FIRST_BYTES: u64 = 64 << 10;
/// A spare segment is this many times as long as the longest that a log took or missed.
const GROWTH: u64 = 4;
/// Recycled segments kept beyond the spare ones.
const READY_MAX: usize = 64;

/// All segments of a database, shared by its logs.
#[derive(Debug)]
pub struct SegmentPool {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) segment_bytes: u64,
    pub(super) bytes_max: u64,
    /// A segment is written again after a checkpoint; otherwise it is removed.
    pub(super) recycles: bool,
    /// READY segments that the preparer keeps.
    pub(super) spare: usize,
    pub(super) clock: Clock,
    pub(super) state: Mutex<State>,
    /// Wakes the preparer, which keeps no pool alive while it sleeps: one that a failed open gives
    /// up ends with its thread.
    pub(super) work: Arc<Event>,
    /// Wakes threads that wait for a segment.
    pub(super) prepared: Event,
    /// Happens when a segment is full and when a committer is refused. The maintenance thread then
    /// looks at [`SegmentPool::bytes_in_use`].
    pub(super) filled: Event,
    pub(super) preparer: Mutex<Option<thread::JoinHandle<()>>>,
}

impl SegmentPool {
    /// A pool without segments, in a directory that exists; call [`SegmentPool::add_recovered`] for
    /// existing ones, then [`SegmentPool::start`].
    ///
    /// # Errors
    /// I/O.
    pub fn new(
        storage: Arc<dyn Storage>,
        segment_bytes: u64,
        bytes_max: u64,
        spare: usize,
    ) -> Result<Arc<SegmentPool>> {
        let recycles = !storage.facts().append_only;
        // Where nothing is allocated, short segments save nothing and cost requests.
        let next_len = if recycles { FIRST_BYTES.min(segment_bytes) } else { segment_bytes };
        Ok(Arc::new(SegmentPool {
            storage,
            recycles,
            segment_bytes,
            bytes_max,
            spare,
            clock: Clock::real(),
            state: Mutex::new(State { next_len, ..State::default() }),
            work: Arc::new(Event::new()),
            prepared: Event::new(),
            filled: Event::new(),
            preparer: Mutex::new(None),
        }))
    }

    /// Recycles also segments that are shorter than new ones, so that a restore finds their records
    /// for longer.
    pub fn keep_short(&self) {
        self.state.lock().keeps_short = true;
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

    /// Retains history: `kept_bytes` of it without feeds, as much as `feed_bytes` with feeds.
    /// `checkpoints` are what the manifest says, the first one where history begins. To be called
    /// before segments are added.
    pub fn keep_history(&self, kept_bytes: u64, feed_bytes: u64, checkpoints: Vec<Covering>) {
        self.state.lock().history = History::new(kept_bytes, feed_bytes, checkpoints);
    }

    /// Returns up to where the newest checkpoint covers the log, and its CSN.
    #[must_use]
    pub fn newest_checkpoint(&self) -> Covering {
        self.state.lock().history.newest_checkpoint()
    }

    /// Returns the checkpoints since history begins, with the one that comes now; none if no
    /// history is retained without feeds.
    #[must_use]
    pub fn history_with(&self, covered: Csn, checkpoint: Csn) -> Vec<Covering> {
        self.state.lock().history.with(covered, checkpoint)
    }

    /// Registers a feed that has read up to `position`.
    ///
    /// # Errors
    /// The CSN where history begins, if that is later.
    pub fn add_feed(&self, position: Csn) -> std::result::Result<FeedId, Csn> {
        self.state.lock().history.add_feed(position)
    }

    /// Notes that a feed has read up to `position`, so that what comes before may go.
    ///
    /// # Errors
    /// The CSN where history begins, if that is later: the feed has fallen behind.
    pub fn advance_feed(&self, feed: FeedId, position: Csn) -> std::result::Result<(), Csn> {
        self.state.lock().history.advance_feed(feed, position)
    }

    /// Forgets a feed.
    pub fn remove_feed(&self, feed: FeedId) {
        self.state.lock().history.remove_feed(feed);
    }

    /// Returns the segments with records above `position`: RETAINED, RETIRED, and those of
    /// `active`, which were listed before, each with up to where blocks have a place.
    #[must_use]
    pub fn readable(&self, active: Vec<(Segment, u64)>, position: Csn) -> Vec<Readable> {
        let state = self.state.lock();
        let readable =
            |segment: Segment, end: u64, is_whole: bool| Readable { segment, part: 0, end, is_whole };
        let retained = state.history.readable(position).map(|segment| {
            let end = segment.len;
            readable(segment.clone(), end, true)
        });
        let retired = state.retired.iter().map(|full| {
            let is_whole = !full.open.any();
            readable(full.segment.clone(), full.segment.len, is_whole)
        });
        let full: Vec<Readable> = retained.chain(retired).collect();
        let mut all: Vec<Readable> = active
            .into_iter()
            .filter(|(segment, _)| full.iter().all(|other| other.segment.id != segment.id))
            .map(|(segment, end)| readable(segment, end, false))
            .collect();
        all.extend(full);
        all
    }

    /// Does `work` for a recovery without the bound: the log held these records before, and no
    /// other thread could make a checkpoint yet.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn beyond_bound<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.state.lock().beyond_bound = true;
        let done = work();
        let mut state = self.state.lock();
        state.beyond_bound = false;
        state.recovered_bytes = state.bytes_in_use();
        done
    }

    pub(super) fn within_bound(&self, state: &State, in_use: u64, more: u64) -> bool {
        let after_recovery = state.recovered_bytes > 0
            && in_use < state.recovered_bytes + RECOVERY_SEGMENTS * self.segment_bytes;
        in_use + more <= self.bytes_max || after_recovery || state.beyond_bound
    }

    /// Returns the length of a new segment with room for `len` bytes.
    pub(super) fn len_for(state: &State, len: u64) -> u64 {
        len.max(state.next_len).next_multiple_of(SECTOR_BYTES as u64)
    }

    /// Makes the next segments longer (rule 8), after a log took or missed one of `len` bytes.
    fn grow(&self, state: &mut State, len: u64) {
        if state.is_cramped(&self.clock) {
            return;
        }
        let longer = len.saturating_mul(GROWTH).min(self.segment_bytes);
        state.next_len = state.next_len.max(longer.next_multiple_of(SECTOR_BYTES as u64));
        debug_assert!(
            state.next_len <= self.segment_bytes.next_multiple_of(SECTOR_BYTES as u64),
            "segments grow to the length of an ordinary one"
        );
    }

    /// Returns the number of READY segments that need no longer one beside them.
    pub(super) fn spare_ready(state: &State) -> usize {
        if state.attempts.disk_full.is_some() {
            return state.ready.len();
        }
        state.ready.iter().filter(|segment| segment.len >= state.next_len).count()
    }

    /// The shortest READY segment with room for `len` bytes that may be taken: a longer one may not
    /// be within the bound.
    pub(super) fn usable(&self, state: &State, len: u64) -> Option<usize> {
        let in_use = state.bytes_in_use();
        let fits = |segment: &Segment| segment.len >= len && self.within_bound(state, in_use, segment.len);
        let usable = state.ready.iter().enumerate().filter(|(_, segment)| fits(segment));
        usable.min_by_key(|(_, segment)| segment.len).map(|(index, _)| index)
    }

    /// A READY segment with room for `len` bytes, now ACTIVE; `None` if there is none yet, or at
    /// the bound. Never blocks on the device.
    #[must_use]
    pub fn take(&self, len: u64) -> Option<Segment> {
        let mut state = self.state.lock();
        #[cfg(test)]
        if state.pretend_full {
            return None;
        }
        let mut segment = self.usable(&state, len).map(|index| state.ready.swap_remove(index));
        self.grow(&mut state, segment.as_ref().map_or(len, |segment| segment.len));
        match &mut segment {
            Some(segment) => {
                state.requests.missed_since = None;
                segment.uses += 1;
                debug_assert!(segment.len >= len, "the block has room");
                state.active.insert(segment.id, segment.len);
                debug_assert_eq!(state.states_of(segment.id), 1, "rule 6: READY or ACTIVE");
            }
            None => {
                state.requests.longest_missed = state.requests.longest_missed.max(len);
                state.requests.missed_since.get_or_insert_with(|| self.clock.now());
                // A waiting committer asks again and again, also while the segment is made.
                let is_made = state.requests.in_progress.is_some_and(|wish| wish >= len);
                if !is_made && !state.requests.wanted.contains(&len) {
                    state.requests.wanted.push(len);
                }
            }
        }
        // A short session fills no segment: one spare segment, however short, is enough for it.
        let has_few = match state.has_filled {
            true => Self::spare_ready(&state) < self.spare,
            false => state.ready.is_empty() && self.spare > 0,
        };
        let wake = segment.is_none() || has_few;
        drop(state);
        if wake {
            self.work.notify_all();
        }
        segment
    }

    /// Makes an ACTIVE segment READY again in which no block has a place.
    pub fn put_back(&self, segment: Segment) {
        let mut state = self.state.lock();
        let was_active = state.active.remove(&segment.id);
        debug_assert!(was_active.is_some(), "only an ACTIVE segment is put back");
        debug_assert_eq!(state.states_of(segment.id), 0, "rule 6: READY or ACTIVE");
        state.ready.push(segment);
        drop(state);
        self.prepared.notify_all();
    }

    /// An ACTIVE segment is full: RETIRED with the highest CSN in it, and the blocks that are still
    /// to be written there.
    pub fn retire(&self, segment: Segment, max_csn: Csn, open: OpenBlocks) {
        let mut state = self.state.lock();
        let was_active = state.active.remove(&segment.id);
        debug_assert!(was_active.is_some(), "only an ACTIVE segment becomes full");
        debug_assert_eq!(state.states_of(segment.id), 0, "rule 6: ACTIVE or RETIRED");
        state.retired.push(Retired { segment, max_csn, open: open.clone(), obsolete: false });
        // An open after a kill on a full disk needs the room of a segment with nothing above the
        // checkpoint.
        let is_full = state.attempts.disk_full.is_some() || state.is_cramped(&self.clock);
        state.checkpoints.requested |= is_full && state.ready.is_empty();
        state.has_filled = true;
        drop(state);
        open.leave();
        self.filled.notify_all();
    }

    /// Happens when a segment is full.
    #[must_use]
    pub fn filled(&self) -> &Event {
        &self.filled
    }

    /// Takes back segments that have nothing above `covered`, and whose blocks are written: they
    /// become RETAINED, READY, or are removed. `covered` is the CSN of a durable checkpoint,
    /// `checkpoint`, or a lower one from which on the log is retained; at a clean close a CSN above
    /// all. Removes segments that are too many, too large or not ours. Before
    /// [`SegmentPool::await_ready`] the removal waits until there are others.
    ///
    /// # Errors
    /// I/O while removing: the first one. All else is done, and what could not be removed is tried
    /// again the next time.
    pub fn recycle(&self, covered: Csn, checkpoint: Csn) -> Result<()> {
        let (started, is_cramped);
        {
            let mut state = self.state.lock();
            let state = &mut *state;
            state.history.checkpointed(covered, checkpoint);
            for full in std::mem::take(&mut state.retired) {
                let is_needed =
                    full.max_csn > covered || (full.open.any() && !planted::is(Bug::PlaceUsedEarly));
                if is_needed && !planted::is(Bug::SegmentRecycledEarly) {
                    state.retired.push(full);
                } else {
                    debug_assert!(full.max_csn <= covered, "no recovery needs what the segment holds");
                    debug_assert!(!full.open.any(), "a block is still to be written to the segment");
                    state.history.retain(full.segment, full.max_csn, true);
                }
            }
            self.release_history(state);
            state.retained = (covered < checkpoint).then_some((covered, checkpoint));
            state.forget_failure();
            (state.checkpoints.requested, state.requests.longest_missed) = (false, 0);
            (state.checkpoints.failed_since, state.requests.missed_since) = (None, None);
            state.recovered_bytes = 0;
            (started, is_cramped) = (state.started, state.is_cramped(&self.clock));
        }
        let remove = || if started { self.remove_excess() } else { Ok(()) };
        // Threads that wait for space on a full disk look for it as soon as the checkpoint ends.
        let removed = if is_cramped { remove() } else { Ok(()) };
        {
            let mut state = self.state.lock();
            state.attempts.disk_full = None;
            state.checkpoints.done += 1;
        }
        self.prepared.notify_all();
        self.work.notify_all();
        if is_cramped { removed } else { remove() }
    }

    /// Makes segments READY or excess that history does not retain any longer.
    pub(super) fn release_history(&self, state: &mut State) {
        let is_cramped = state.is_cramped(&self.clock);
        let disk_full = state.attempts.disk_full.is_some() || is_cramped;
        // Excess segments make room once they are removed.
        let gives_up = is_cramped && state.started;
        let most = self.spare + if gives_up { 0 } else { READY_MAX };
        while let Some(Retained { segment, is_own, .. }) = state.history.take_excess(disk_full) {
            let is_kept = state.keeps_short || disk_full;
            let is_long = segment.len >= state.next_len || is_kept;
            let wastes = gives_up && segment.len > self.short_bytes() && !state.ready.is_empty();
            let fits = segment.len <= self.segment_bytes && is_long && !wastes;
            if fits
                && state.ready.len() < most
                && (self.recycles && is_own)
                && (segment.id.0 >= state.ids.first_own || planted::is(Bug::KilledSegmentAdopted))
            {
                state.ready.push(segment);
                debug_assert!(state.ready.len() <= most, "no more than the spare ones, and some");
            } else if !planted::is(Bug::SegmentForgotten) {
                state.excess.push(segment.id);
            }
        }
    }

    /// Segment files that belong to nothing (rule 6). Nothing is recycled meanwhile.
    ///
    /// # Errors
    /// I/O.
    pub fn leaked(&self) -> Result<Vec<SegmentId>> {
        let files =
            || -> Result<BTreeSet<SegmentId>> { Ok(BTreeSet::from_iter(self.storage.segments().list()?)) };
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

    /// Returns the length of an ordinary segment, once segments have grown to it.
    #[must_use]
    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// Returns why preparing a segment failed, if it did.
    #[cfg(test)]
    pub fn failure(&self) -> Option<crate::base::Error> {
        self.state.lock().attempts.failure.as_ref().map(crate::base::Error::duplicate)
    }

    /// Returns the bytes of all segments, READY ones too.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        let state = self.state.lock();
        let ready: u64 = state.ready.iter().map(|segment| segment.len).sum();
        state.bytes_in_use() + state.history.bytes() + ready
    }

    /// Returns whether history is retained without feeds.
    #[must_use]
    pub fn keeps_history(&self) -> bool {
        self.state.lock().history.is_kept()
    }

    /// Returns the CSN above which the log has all transactions.
    #[must_use]
    pub fn history_begins(&self) -> Csn {
        self.state.lock().history.begins()
    }

    /// Returns the bytes of RETAINED segments.
    #[must_use]
    pub fn history_bytes(&self) -> u64 {
        self.state.lock().history.bytes()
    }

    /// Returns the bytes of segments that hold records that may be needed.
    #[must_use]
    pub fn bytes_in_use(&self) -> u64 {
        self.state.lock().bytes_in_use()
    }

    /// Returns the bytes in use that a checkpoint may free, without those that the last one
    /// retained.
    #[must_use]
    pub fn bytes_to_free(&self) -> u64 {
        let state = self.state.lock();
        state.bytes_in_use() - state.bytes_retained()
    }

    /// Notes that a transaction has ended for which the log was retained: the next checkpoint may
    /// free more.
    pub fn let_go(&self) {
        let kept = self.state.lock().retained.take();
        if kept.is_some() {
            self.filled.notify_all();
        }
    }

    /// Returns the bytes of full segments whose newest record is above `above` and at or below
    /// `last`.
    #[must_use]
    pub fn bytes_between(&self, above: Csn, last: Csn) -> u64 {
        self.state.lock().bytes_between(above, last)
    }
}

impl Drop for SegmentPool {
    fn drop(&mut self) {
        self.work.notify_all();
    }
}
