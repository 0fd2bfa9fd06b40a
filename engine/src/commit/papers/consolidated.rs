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

use crate::base::{Error, ErrorKind, Result};
use crate::commit::core::append::{AppendPath, Appended, Appending, Preparing, large_buffer};
use crate::commit::core::log_writer::LogWriter;
use crate::commit::core::pending::{Pending, Record, Ticket};
use crate::device::AlignedBuffer;
use crate::log::{Log, LogGuard, record_bytes};
use crate::sync::ConsolidationArray;
use crate::sync::consolidation::Work;

/// What became of a record under the latch.
enum Outcome {
    /// It was appended.
    Appended(Appended),
    /// `preparing` has withdrawn.
    Withdrawn,
    /// The log has no room now. `preparing` was not called.
    NoRoom,
}

/// A record for the holder of the latch.
struct Joining<'a> {
    appending: &'a Appending,
    log: &'a LogWriter,
    record: Record<'a>,
    pending: &'a Pending,
    /// For a record that no log buffer holds.
    large: Option<AlignedBuffer>,
    preparing: Preparing<'a>,
    /// None if appending it has panicked.
    outcome: Option<Result<Outcome>>,
}

impl Joining<'_> {
    fn append(&mut self, latch: &mut LogGuard<'_>) -> Result<Outcome> {
        let (appending, log) = (self.appending, self.log);
        let bytes = record_bytes(self.record.body.len());
        let room = &mut Some((bytes, &mut self.large));
        if appending.look_for_room(log, latch, room, appending.takes_entry(self.pending))?.is_some() {
            return Ok(Outcome::NoRoom);
        }
        if !(self.preparing)() {
            return Ok(Outcome::Withdrawn);
        }
        let step = || appending.append(log, latch, self.record, self.pending);
        Ok(Outcome::Appended(appending.environment.latched(step)))
    }
}

impl Work<Log> for Joining<'_> {
    fn run(&mut self, latch: &mut LogGuard<'_>) {
        self.outcome = Some(self.append(latch));
    }
}

/// Where committers that find the latch of the log taken form a group.
#[derive(Default)]
pub struct Consolidated(Box<ConsolidationArray<Log>>);

impl AppendPath for Consolidated {
    fn precommit(
        &self,
        appending: &Appending,
        log: &LogWriter,
        record: Record<'_>,
        pending: &Pending,
        preparing: Preparing<'_>,
    ) -> Result<Option<Ticket>> {
        let large = large_buffer(log, record_bytes(record.body.len()));
        let mut joining = Joining { appending, log, record, pending, large, preparing, outcome: None };
        if self.0.run(&*log.log, &mut joining) {
            appending.environment.metrics.consolidated.add(1);
        }
        let Joining { preparing, outcome, .. } = joining;
        let Some(outcome) = outcome else {
            let what = "the thread that appended the record of this commit has panicked";
            return Err(Error::new(ErrorKind::OutcomeUnknown, what).with_advice(
                "report this bug; reopen the database and check whether the transaction is there",
            ));
        };
        match outcome? {
            Outcome::Appended(appended) => Ok(Some(appending.appended(log, record, pending, appended))),
            Outcome::NoRoom => {
                let entry = appending.takes_entry(pending);
                let latch = appending.reserve_record(log, record.body.len(), entry)?;
                Ok(appending.precommit_reserved(log, latch, record, pending, preparing))
            }
            Outcome::Withdrawn => Ok(None),
        }
    }

    #[cfg(all(test, not(any(loom, feature = "shuttle"))))]
    fn waiting(&self) -> usize {
        self.0.waiting()
    }
}
