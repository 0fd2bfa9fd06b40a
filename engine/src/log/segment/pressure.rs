//! Waiting for log space: requests for checkpoints, and refusals.
//!
//! ```text
//!   committer: no segment ──press──▶ requested ──▶ maintenance thread ──▶ recycle: `prepared`
//!        ▲ looks again, until                                 └───▶ checkpoint_failed: refusal
//!        └ a refusal, or too long
//! ```

use super::pool::SegmentPool;
use super::state::State;
use crate::base::clock::{Nanos, WaitTimer};
use crate::base::{Error, ErrorKind, Location};
use crate::device::path_of;
use std::time::Duration;

/// The state when a thread began to wait for log space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpaceTicket {
    since: Nanos,
    checkpoints: u64,
    checkpoints_failed: u64,
    attempts: u64,
}

/// Checkpoints that may make room for a committer on a full disk. The first one may have begun
/// before.
const CHECKPOINTS_TRIED: u64 = 2;

impl SegmentPool {
    /// Requests a checkpoint, because a committer waits for log space. `frees_pages` says whether a
    /// checkpoint would make the file of pages shorter. Cheap enough to be called often.
    pub fn press(&self, frees_pages: bool) {
        let pressed = {
            let mut state = self.state.lock();
            let is_full = state.attempts.disk_full.is_some();
            if is_full {
                self.note_cramped(&mut state);
            }
            // On a full disk only if a checkpoint makes room. Others may wait for one for other
            // reasons: it is taken back by its end only.
            state.checkpoints.requested |=
                self.is_at_bound(&state) || is_full && self.may_make_room(&state, frees_pages);
            state.checkpoints.requested
        };
        if pressed {
            self.filled.notify_all();
        }
    }

    /// Begins to wait for a segment that [`SegmentPool::take`] did not have.
    #[must_use]
    pub fn begin_waiting(&self) -> SpaceTicket {
        let state = self.state.lock();
        SpaceTicket {
            since: self.clock.now(),
            checkpoints: state.checkpoints.done,
            checkpoints_failed: state.checkpoints.failed,
            attempts: state.attempts.ended,
        }
    }

    /// Returns whether a checkpoint on a full disk may free or shorten a segment, or the file of
    /// pages.
    fn may_make_room(&self, state: &State, frees_pages: bool) -> bool {
        state.can_be_freed() || self.has_long(state) || frees_pages
    }

    /// Why no segment could be made since `ticket`, or never will. An attempt that failed before
    /// `ticket` does not count.
    #[must_use]
    pub fn failure_since(&self, ticket: SpaceTicket) -> Option<Error> {
        let state = self.state.lock();
        let is_new = state.attempts.ended > ticket.attempts;
        let failure =
            state.attempts.failure.as_ref().filter(|error| is_new || error.kind() == ErrorKind::Poisoned);
        failure.map(Error::duplicate)
    }

    /// Returns why waiting since `ticket` cannot succeed: the disk is full and no checkpoint can
    /// change that, or the checkpoint failed. `frees_pages` as for [`SegmentPool::press`].
    #[must_use]
    pub fn refusal(&self, ticket: SpaceTicket, frees_pages: bool) -> Option<Error> {
        let mut state = self.state.lock();
        let tried = state.checkpoints.done - ticket.checkpoints;
        // A checkpoint may have made a segment READY since the committer looked.
        let is_ready = |state: &State| self.usable(state, state.requests.longest_missed).is_some();
        let may_help = |state: &State| {
            is_ready(state)
                || state.can_be_freed()
                || tried < CHECKPOINTS_TRIED && self.may_make_room(state, frees_pages)
        };
        let refusal = if state.checkpoints.failed > ticket.checkpoints_failed {
            let failure = state.checkpoints.failure.as_ref().map(Error::without_advice).unwrap_or_default();
            let what = format!("the log is full, and the checkpoint that would make room failed: {failure}");
            let is_taken = state.checkpoints.failure.as_ref().is_some_and(|e| e.kind() == ErrorKind::Fenced);
            Error::new(if is_taken { ErrorKind::Fenced } else { ErrorKind::OutOfSpace }, what)
        } else if (state.attempts.disk_full.is_some_and(|asked| asked.at >= ticket.since)
            || self.was_just_full(&state))
            && !may_help(&state)
        {
            let bytes = Self::len_for(&state, state.requests.longest_missed);
            let mut what =
                format!("the disk is full: {bytes} more bytes are needed for a segment of the log");
            if state.bytes_retained() > 0 {
                let kept = state.bytes_retained();
                what += &format!("; {kept} bytes of it are kept for transactions in progress");
            }
            let refusal = Error::new(ErrorKind::OutOfSpace, what);
            match &state.attempts.failure {
                Some(failure) => refusal.with_advice(failure.advice().to_owned()),
                None => refusal,
            }
        } else {
            return None;
        };
        state.attempts.refused = Some(self.clock.now());
        drop(state);
        self.filled.notify_all();
        Some(refusal)
    }

    /// A block may be longer than a segment, and what is in its way less than that below the bound.
    fn is_at_bound(&self, state: &State) -> bool {
        !self.within_bound(state, state.bytes_in_use(), state.requests.longest_missed.max(self.segment_bytes))
    }

    /// Returns the error for a committer that has waited too long.
    #[must_use]
    pub fn full(&self) -> Error {
        let state = self.state.lock();
        if !self.is_at_bound(&state)
            && let Some(id) = state.making
        {
            let what = "the log has no segment ready: the device has not finished the next one in time";
            return Error::new(ErrorKind::OutOfSpace, what)
                .at(Location::File { path: path_of(id), offset: 0 });
        }
        let (in_use, most) = (state.bytes_in_use(), self.bytes_max);
        let what = format!(
            "the log is full: {in_use} bytes of {most} are in use, and no checkpoint made room in time"
        );
        Error::new(ErrorKind::OutOfSpace, what).at(Location::Setting("log_bytes_max"))
    }

    pub(super) fn was_just_full(&self, state: &State) -> bool {
        state.attempts.disk_full.is_some_and(|asked| asked.is_recent(self.clock.now()))
    }

    /// The disk was full when the last segment was to be made, and segments are missing.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        self.disk_full_since().is_some()
    }

    /// Returns when the disk became full, if [`SegmentPool::is_disk_full`].
    #[must_use]
    pub fn disk_full_since(&self) -> Option<Nanos> {
        let state = self.state.lock();
        let refusal = state.attempts.disk_full.filter(|_| Self::spare_ready(&state) < self.spare)?;
        Some(state.attempts.failed_since.unwrap_or(refusal.at))
    }

    /// Returns true if a committer was refused at most `recently` ago because the disk is full.
    #[must_use]
    pub fn has_refused(&self, recently: Duration) -> bool {
        self.state.lock().attempts.refused.is_some_and(|then| self.clock.now().since(then) <= recently)
    }

    /// Has a full disk asked for a segment again.
    pub fn ask_again(&self) {
        let mut state = self.state.lock();
        if state.attempts.disk_full.is_some() && !self.was_just_full(&state) {
            // The preparer then sees that there are fewer than the spare ones.
            state.forget_failure();
            drop(state);
            self.work.notify_all();
        }
    }

    /// Has a checkpoint made because the disk refused space to pages, and waits for its end, at
    /// most `most` of a machine that runs; true if it made room.
    pub fn await_checkpoint(&self, most: Duration) -> bool {
        let mut wait_timer = WaitTimer::start(&self.clock);
        let before = {
            let mut state = self.state.lock();
            self.note_cramped(&mut state);
            state.checkpoints.requested = true;
            (state.checkpoints.done, state.checkpoints.failed)
        };
        self.filled.notify_all();
        loop {
            let ticket = self.prepared.ticket();
            {
                let state = self.state.lock();
                if state.checkpoints.done != before.0 {
                    return true;
                }
                if state.closed || state.checkpoints.failed != before.1 {
                    return false;
                }
            }
            let waited = wait_timer.elapsed();
            if waited >= most {
                return false;
            }
            self.prepared.wait(ticket, Some(WaitTimer::POLL_INTERVAL_MAX.min(most - waited)));
        }
    }

    /// Notes that a checkpoint failed that should have made room, and wakes the threads that wait
    /// for it.
    pub fn checkpoint_failed(&self, error: &Error) {
        let mut state = self.state.lock();
        state.checkpoints.requested = false;
        state.checkpoints.failed += 1;
        state.checkpoints.failed_since.get_or_insert_with(|| self.clock.now());
        state.checkpoints.failure = Some(error.duplicate());
        drop(state);
        self.prepared.notify_all();
    }

    /// Returns what is wrong with the log, and since when: no segment can be made, committers have
    /// waited for one for `patience`, or checkpoints fail. Not that the disk is full.
    #[must_use]
    pub fn troubles(&self, patience: Duration) -> Vec<(String, Nanos)> {
        let state = self.state.lock();
        let mut troubles = Vec::new();
        if let (Some(failure), Some(since)) = (&state.attempts.failure, state.attempts.failed_since)
            && state.attempts.disk_full.is_none()
        {
            troubles.push((format!("the log gets no new segment: {}", failure.without_advice()), since));
        } else if let Some(since) = state.requests.missed_since
            && self.usable(&state, state.requests.longest_missed).is_none()
            && self.clock.now().since(since) >= patience
        {
            troubles.push(("commits wait for a segment of the log".into(), since));
        }
        if let (Some(failure), Some(since)) = (&state.checkpoints.failure, state.checkpoints.failed_since) {
            let what = format!("checkpoints fail, so the log grows: {}", failure.without_advice());
            troubles.push((what, since));
        }
        troubles
    }

    /// Returns true if a thread waits for space that only a checkpoint can give. The next recycling
    /// clears this.
    #[must_use]
    pub fn is_pressed(&self) -> bool {
        self.state.lock().checkpoints.requested
    }
}
