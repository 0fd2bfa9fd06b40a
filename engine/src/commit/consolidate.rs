//! How do threads that share a log append their records in groups?
//!
//! With `append = consolidated` a committer that finds the latch of the log taken leaves its record
//! in a consolidation array ([`crate::sync::consolidation`]). The holder of the latch takes steps 1
//! to 4 of `append` for the group, one member after the other, before it releases the latch. So a
//! group costs one turn at the latch, and no member sleeps for it.
//!
//! ```text
//!   holder     latch  1-4 own   1-4 member   1-4 member  unlatch  5
//!   member            record ┈┈┈┈┈┈┈┈┈┈┈┈┈┘ 5
//! ```
//!
//! Only committers serve a group. Any other thread with the latch just makes the group wait. Room
//! is waited for alone: a member without room takes the latch in its turn. Records of transactions
//! in several parts are not appended in groups, nor are changes of the catalog.
//!
//! If the holder panics while it appends for a member, commits stop, as after any panic under the
//! latch. The outcome of the member is unknown then, because the record may be in the log.

use super::append::{Appending, large_buffer};
use super::log_writer::LogWriter;
use super::pending::{Pending, Record, Ticket};
use crate::base::clock::Nanos;
use crate::base::{Csn, Error, ErrorKind, Result};
use crate::device::AlignedBuffer;
use crate::log::{Log, LogGuard, record_bytes};
use crate::sync::ConsolidationArray;
use crate::sync::consolidation::Work;

/// What became of a record under the latch.
enum Outcome {
    /// It was appended; as [`Appending::append`] returns it.
    Appended(Csn, Option<Nanos>),
    /// `preparing` has withdrawn.
    Withdrawn,
    /// The log has no room now. `preparing` was not called.
    NoRoom,
}

/// A record for the holder of the latch.
struct Joining<'a, P> {
    appending: &'a Appending,
    log: &'a LogWriter,
    record: Record<'a>,
    pending: Pending,
    /// For a record that no log buffer holds.
    large: Option<AlignedBuffer>,
    /// Until it is called.
    preparing: Option<P>,
    /// None if appending it has panicked.
    outcome: Option<Result<Outcome>>,
}

impl<P: FnOnce() -> bool> Joining<'_, P> {
    fn append(&mut self, latch: &mut LogGuard<'_>) -> Result<Outcome> {
        let (appending, log) = (self.appending, self.log);
        let bytes = record_bytes(self.record.body.len());
        let room = &mut Some((bytes, &mut self.large));
        if appending.look_for_room(log, latch, room, appending.takes_entry(&self.pending))?.is_some() {
            return Ok(Outcome::NoRoom);
        }
        if !self.preparing.take().is_some_and(|preparing| preparing()) {
            return Ok(Outcome::Withdrawn);
        }
        let step = || appending.append(log, latch, self.record, self.pending);
        let (csn, due) = appending.environment.latched(step);
        Ok(Outcome::Appended(csn, due))
    }
}

impl<P: FnOnce() -> bool> Work<Log> for Joining<'_, P> {
    fn run(&mut self, latch: &mut LogGuard<'_>) {
        self.outcome = Some(self.append(latch));
    }
}

impl Appending {
    /// As [`Appending::precommit`], in a group if the latch is taken.
    pub(super) fn precommit_in_group(
        &self,
        array: &ConsolidationArray<Log>,
        log: &LogWriter,
        record: Record<'_>,
        pending: Pending,
        preparing: impl FnOnce() -> bool + Send,
    ) -> Result<Option<Ticket>> {
        let large = large_buffer(log, record_bytes(record.body.len()));
        let (preparing, outcome) = (Some(preparing), None);
        let mut joining = Joining { appending: self, log, record, pending, large, preparing, outcome };
        if array.run(&*log.log, &mut joining) {
            self.environment.metrics.consolidated.add(1);
        }
        let Joining { preparing, outcome, .. } = joining;
        let Some(outcome) = outcome else {
            let what = "the thread that appended the record of this commit has panicked";
            return Err(Error::new(ErrorKind::OutcomeUnknown, what).with_advice(
                "report this bug; reopen the database and check whether the transaction is there",
            ));
        };
        match (outcome?, preparing) {
            (Outcome::Appended(csn, due), _) => Ok(Some(self.appended(log, record, &pending, csn, due))),
            (Outcome::NoRoom, Some(preparing)) => {
                let latch = self.reserve_record(log, record.body.len(), self.takes_entry(&pending))?;
                Ok(self.precommit_reserved(log, latch, record, pending, preparing))
            }
            (Outcome::Withdrawn | Outcome::NoRoom, _) => Ok(None),
        }
    }
}
