//! The state of a segment pool, under its lock.

use super::file::{OpenBlocks, Segment};
use super::history::History;
use crate::base::clock::{Clock, Nanos};
use crate::base::{Csn, Error, ErrorKind, SegmentId};
use crate::device::SpaceRefusal;
use std::collections::BTreeMap;
use std::time::Duration;

/// Segments stay short for so long after the disk refused space.
const SHORT_FOR: Duration = Duration::from_secs(10);

/// A full segment.
#[derive(Debug)]
pub(super) struct Retired {
    pub segment: Segment,
    pub max_csn: Csn,
    pub open: OpenBlocks,
    /// Found by a recovery. Neither this recovery nor a later one needs it.
    pub obsolete: bool,
}

/// Numbers of segments.
#[derive(Debug, Default)]
pub(super) struct Ids {
    pub next: u64,
    /// Segments with lower numbers may belong to a killed process.
    pub first_own: u64,
}

/// Requests for segments that were not ready.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// Requested lengths.
    pub wanted: Vec<u64>,
    /// The requested length that the preparer works on.
    pub in_progress: Option<u64>,
    /// The longest length that `take` could not give since the last recycling.
    pub longest_missed: u64,
    /// Since when `take` has given nothing, if it has not.
    pub missed_since: Option<Nanos>,
}

/// Results of preparing segments.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    /// Preparations that have ended.
    pub ended: u64,
    /// Why the last preparation failed. Stands until one succeeds; a request for a segment retries.
    pub failure: Option<Error>,
    /// When the first of the preparations failed that failed in a row.
    pub failed_since: Option<Nanos>,
    /// The last preparation found the disk full. Cleared when one succeeds.
    pub disk_full: Option<SpaceRefusal>,
    /// When a committer was last refused because the disk is full.
    pub refused: Option<Nanos>,
    /// When the disk last refused space to the log or to pages: see `cramped`.
    pub cramped: Option<Nanos>,
}

/// Checkpoints that would make room.
#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    pub done: u64,
    pub failed: u64,
    /// Why the last failed checkpoint failed.
    pub failure: Option<Error>,
    /// When the first of the checkpoints failed that failed since the last one that did not.
    pub failed_since: Option<Nanos>,
    /// A committer waits at the bound or on a full disk, or the full disk leaves no READY segment.
    pub requested: bool,
}

/// All segments of a pool and what is known about them.
#[derive(Debug, Default)]
pub(super) struct State {
    pub ready: Vec<Segment>,
    /// Length of the next spare segment, in bytes (rule 8).
    pub next_len: u64,
    /// Short segments are recycled, too: `trim_log` is off.
    pub keeps_short: bool,
    pub retired: Vec<Retired>,
    /// Lengths of the ACTIVE segments.
    pub active: BTreeMap<SegmentId, u64>,
    /// The segment that is being prepared.
    pub making: Option<SegmentId>,
    /// Too many or too large: to be removed once there are READY segments (rule 7). Also files that
    /// could not be removed.
    pub excess: Vec<SegmentId>,
    /// Files of others with the name of a segment, which stay as they are.
    pub foreign: Vec<SegmentId>,
    /// RETAINED segments.
    pub history: History,
    pub ids: Ids,
    pub requests: Requests,
    pub attempts: Attempts,
    pub checkpoints: Checkpoints,
    pub started: bool,
    /// READY segments have names that are not durable yet.
    pub has_new_names: bool,
    /// A segment was filled since the pool was made.
    pub has_filled: bool,
    /// Bytes that recovery found in use. Until a checkpoint frees them, `take` may exceed the bound
    /// a little. Otherwise nothing could be appended, and no checkpoint could be made.
    pub recovered_bytes: u64,
    /// The bound does not apply at the moment.
    pub beyond_bound: bool,
    /// The last recycling retained segments whose newest record lies above the first CSN and not
    /// above the second, because of chunks of transactions in progress. `None` if it retained none,
    /// or if one of these transactions has ended since.
    pub retained: Option<(Csn, Csn)>,
    pub closed: bool,
    #[cfg(test)]
    pub pretend_full: bool,
}

impl State {
    /// Returns whether segments are short, because the disk refused space a short time ago.
    pub fn is_cramped(&self, clock: &Clock) -> bool {
        self.attempts.cramped.is_some_and(|then| clock.now().since(then) < SHORT_FOR)
    }

    /// Forgets a failed preparation, because the device may succeed now. The end of the preparer's
    /// thread stands.
    pub fn forget_failure(&mut self) {
        drop(self.attempts.failure.take_if(|failure| failure.kind() != ErrorKind::Poisoned));
    }

    /// Returns true if the file belongs to one of the states of rule 6, or is of others.
    pub fn knows(&self, id: SegmentId) -> bool {
        self.states_of(id) > 0
    }
    /// Returns in how many of these states the file is: at most one.
    pub fn states_of(&self, id: SegmentId) -> usize {
        let full = self.retired.iter().map(|full| &full.segment);
        let files = self.ready.iter().chain(full).chain(self.history.segments());
        let others = self.excess.iter().chain(&self.foreign).chain(self.active.keys()).chain(&self.making);
        files.map(|segment| &segment.id).chain(others).filter(|known| **known == id).count()
    }

    /// Returns the bytes of ACTIVE and RETIRED segments.
    pub fn bytes_in_use(&self) -> u64 {
        self.active.values().chain(self.retired.iter().map(|full| &full.segment.len)).sum()
    }

    /// Returns the bytes that the last recycling retained for transactions in progress.
    pub fn bytes_retained(&self) -> u64 {
        self.retained.map_or(0, |(covered, checkpoint)| self.bytes_between(covered, checkpoint))
    }

    /// Returns the bytes of full segments whose newest record is above `above` and at or below
    /// `last`.
    pub fn bytes_between(&self, above: Csn, last: Csn) -> u64 {
        let between = self.retired.iter().filter(|full| full.max_csn > above && full.max_csn <= last);
        between.map(|full| full.segment.len).sum()
    }

    /// Returns true if the next checkpoint may free a full segment.
    pub fn can_be_freed(&self) -> bool {
        let is_retained =
            |csn: Csn| self.retained.is_some_and(|(covered, last)| csn > covered && csn <= last);
        self.retired.iter().any(|full| !is_retained(full.max_csn))
    }
}
