//! The preparer: a thread that creates segments before logs need them.

use super::file::Segment;
use super::pool::SegmentPool;
use crate::base::planted::{self, Bug};
use crate::base::{Error, ErrorKind, Result, SegmentId};
use crate::device::{File, Names, SECTOR_BYTES, SpaceRefusal, check_new};
use crate::sync::thread;
use std::sync::Arc;
use std::time::Duration;

/// A segment that is made beside commits has the device for one part of the time, and rests for so
/// many.
const RESTS: u32 = 4;
const REST_MAX: Duration = Duration::from_millis(5);

/// The next thing that the preparer does.
pub(super) enum Work {
    Closed,
    /// Prepare a segment of this length.
    Prepare(u64),
    Nothing,
}

/// If the thread panics there are no new segments any more: threads that wait for one get an error.
struct Alive(std::sync::Weak<SegmentPool>);

impl Drop for Alive {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(pool) = self.0.upgrade()
        {
            let what = "the thread that prepares log segments panicked";
            pool.state.lock().attempts.failure = Some(
                Error::new(ErrorKind::Poisoned, what)
                    .with_advice("report this bug, and reopen the database to recover"),
            );
            pool.prepared.notify_all();
        }
    }
}

impl SegmentPool {
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

    pub(super) fn next_work(&self) -> Work {
        let mut state = self.state.lock();
        if state.closed {
            return Work::Closed;
        }
        if self.was_just_full(&state) {
            // A committer that still needs one asks again.
            state.requests.wanted.clear();
        }
        while let Some(len) = state.requests.wanted.pop() {
            // With the length that it will have: what `take` would refuse is not made.
            let fits = self.within_bound(&state, state.bytes_in_use(), Self::len_for(&state, len));
            if fits && self.usable(&state, len).is_none() {
                state.requests.in_progress = Some(len);
                return Work::Prepare(len);
            }
        }
        if Self::spare_ready(&state) < self.spare && state.attempts.failure.is_none() {
            return Work::Prepare(state.next_len);
        }
        Work::Nothing
    }

    pub(super) fn prepare_or_note(&self, len: u64) {
        let is_full =
            |result: &Result<()>| result.as_ref().is_err_and(|error| error.kind() == ErrorKind::OutOfSpace);
        let mut begun = self.clock.now();
        let mut result = self.prepare(len);
        for most in [self.short_bytes(), self.first_bytes()] {
            if !is_full(&result) {
                break;
            }
            let (tried, short, len) = {
                let mut state = self.state.lock();
                let (tried, len) = (Self::len_for(&state, len), state.requests.in_progress.unwrap_or(0));
                self.note_cramped(&mut state);
                if self.recycles {
                    state.next_len = state.next_len.min(most);
                }
                (tried, Self::len_for(&state, len), len)
            };
            if short < tried {
                begun = self.clock.now();
                result = self.prepare(len);
            }
        }
        let mut state = self.state.lock();
        match &result {
            // Committers that wait ask again and again.
            Err(error) if state.attempts.failed_since.is_some() => {
                tracing::debug!(%error, "cannot prepare a log segment");
            }
            Err(error) => tracing::warn!(%error, "cannot prepare a log segment"),
            Ok(()) => {}
        }
        let full = is_full(&result);
        state.attempts.disk_full = full.then(|| SpaceRefusal::new(begun, self.clock.now()));
        state.attempts.failed_since = result.is_err().then(|| state.attempts.failed_since.unwrap_or(begun));
        state.attempts.failure = result.err();
        state.attempts.ended += 1;
        state.requests.in_progress = None;
        let removes = full && state.started && state.history.bytes() > 0;
        if full {
            self.release_history(&mut state);
        }
        drop(state);
        if removes && let Err(error) = self.remove_excess() {
            tracing::warn!(%error, "the disk is full, and a log segment that only change feeds need stays");
        }
        self.prepared.notify_all();
    }

    /// Creates a READY segment of at least `len` bytes.
    fn prepare(&self, len: u64) -> Result<()> {
        let len = Self::len_for(&self.state.lock(), len);
        let (id, file) = self.create()?;
        let result = self.fill(&*file, len).and_then(|()| self.make_name_durable());
        // Half a segment must not keep the space that is missing.
        let stays = result.is_err() && self.storage.segments().remove(id).is_err();
        let mut state = self.state.lock();
        state.making = None;
        if stays {
            state.excess.push(id);
        }
        result?;
        debug_assert_eq!(state.states_of(id), 0, "rule 6: a new segment is in no state yet");
        debug_assert!(len.is_multiple_of(SECTOR_BYTES as u64), "a segment is whole sectors");
        state.ready.push(Segment { id, file, len, uses: 0 });
        drop(state);
        self.prepared.notify_all();
        Ok(())
    }

    /// Makes an empty file with the next number that no other file has: not even a directory or a
    /// link of others.
    fn create(&self) -> Result<(SegmentId, Arc<dyn File>)> {
        loop {
            let id = {
                let mut state = self.state.lock();
                let id = SegmentId(state.ids.next.max(1));
                debug_assert!(state.making.is_none_or(|before| before < id), "numbers of segments rise");
                state.ids.next = id.0 + 1;
                state.making = Some(id);
                id
            };
            let made = check_new(id).and_then(|()| self.storage.segments().create(id));
            match made {
                Ok(file) => return Ok((id, file)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => {
                    self.state.lock().making = None;
                    return Err(error);
                }
            }
        }
    }

    fn fill(&self, file: &dyn File, len: u64) -> Result<()> {
        file.zero_extend(len, &mut |took| self.rest(took))
    }

    /// Makes the name of a new segment durable. Before the first segments are taken one flush makes
    /// all their names durable: see [`SegmentPool::await_ready`].
    fn make_name_durable(&self) -> Result<()> {
        {
            let mut state = self.state.lock();
            if !state.started {
                state.has_new_names = true;
                return Ok(());
            }
        }
        self.flush_names()
    }

    pub(super) fn flush_names(&self) -> Result<()> {
        if planted::is(Bug::SegmentNameNotFlushed) {
            return Ok(());
        }
        self.storage.flush_names(Names::Segments)
    }

    /// Leaves the device to commits, unless a thread waits for the segment, or will soon.
    fn rest(&self, took: Duration) {
        let hurry = {
            let state = self.state.lock();
            let waits = state.requests.in_progress.is_some() || !state.requests.wanted.is_empty();
            !state.started || waits || state.ready.is_empty() || state.closed
        };
        if !hurry {
            thread::sleep(took.min(REST_MAX) * RESTS);
        }
    }
}
