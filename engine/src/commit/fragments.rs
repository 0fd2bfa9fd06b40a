//! How does a transaction get a record into several logs?
//!
//! With the layout `by-page` a change belongs to the log of its page. A transaction that changed pages of several logs has a
//! *fragment* in each (`log::fragment`), and is hardened when all of them are durable.
//!
//! ```text
//!   1 latches of its logs, in the order of their ids; room in all          may wait (without any latch) and fail
//!   2 preparing()
//!   ---------------------------------------------------------------- point of no return
//!   3 announce in all, draw as many CSNs as fragments at once, append all
//!   4 unlatch
//! ```
//!
//! The last fragment has the transaction's CSN, its ticket and its entry in a queue; each of the others is the predecessor of the one after it.
//! The ring of [`super::exact`] says that it follows the one before it. So "are all fragments durable" is a walk back along the ring, and
//! the exact rule needs nothing else.

use super::exact::DependsOn;
use super::levels::{self, NEVER};
use super::precommit::{Pending, Record, large_buffer};
use super::watermark::DRAWN_AT_ONCE_MAX;
use super::writer::LogWriter;
use super::{Commit, Core, Ticket};
use crate::base::planted::{self, Bug};
use crate::base::settings::Layout;
use crate::base::{Csn, LogId, PageId, Result};
use crate::device::AlignedBuffer;
use crate::log::{DependencyRule, FRAGMENTS_MAX, LogGuard, RecordHeader, RecordKind, record_bytes};

const _: () = assert!(FRAGMENTS_MAX as usize <= DRAWN_AT_ONCE_MAX);

impl Commit {
    /// The log of the changes of `page`, if that is how they are divided.
    #[inline]
    #[must_use]
    pub fn log_of_page(&self, page: PageId) -> Option<LogId> {
        let logs = self.core.writers.len() as u64;
        self.core.is_by_page().then_some(LogId((page.0 % logs) as u32))
    }

    /// As [`Commit::precommit`], for a transaction with several `fragments`, one for each of their logs, which ascend.
    ///
    /// # Errors
    /// As [`Commit::precommit`].
    pub fn precommit_fragments(
        &self,
        fragments: &[(LogId, Record<'_>)],
        pending: Pending,
        preparing: impl FnOnce(),
    ) -> Result<Ticket> {
        self.core.precommit_fragments(fragments, pending, preparing)
    }
}

/// A fragment that was appended.
struct Appended {
    csn: Csn,
    /// When its log is due, if that became earlier.
    due: Option<crate::base::clock::Nanos>,
}

impl Core {
    #[inline]
    pub(super) fn is_by_page(&self) -> bool {
        self.axes.layout == Layout::ByPage
    }

    fn precommit_fragments(
        &self,
        fragments: &[(LogId, Record<'_>)],
        pending: Pending,
        preparing: impl FnOnce(),
    ) -> Result<Ticket> {
        debug_assert!(fragments.windows(2).all(|two| two[0].0 < two[1].0));
        let mut latches = self.reserve_all(fragments, !pending.waits)?;
        let mut appended = Vec::with_capacity(fragments.len());
        preparing();
        let ticket = self.latched(|| self.append_all(fragments, &mut latches, pending, &mut appended));
        drop(latches);
        for ((log, record), Appended { due, .. }) in fragments.iter().zip(&appended) {
            self.count_record(*record);
            if let Some(due) = due {
                self.wake_flusher_for(self.writer(*log), *due, pending.ready);
            }
        }
        if self.is_passive() {
            self.scan_for(ticket);
        }
        Ok(ticket)
    }

    /// The latches of the logs of all fragments, each with room. An entry in a queue is for the last one.
    fn reserve_all(&self, fragments: &[(LogId, Record<'_>)], entry: bool) -> Result<Vec<LogGuard<'_>>> {
        let mut large: Vec<Option<AlignedBuffer>> = Vec::with_capacity(fragments.len());
        for (log, record) in fragments {
            large.push(large_buffer(self.writer(*log), record_bytes(record.body.len())));
        }
        loop {
            let mut latches = Vec::with_capacity(fragments.len());
            let last = fragments.len() - 1;
            for (at, (log, record)) in fragments.iter().enumerate() {
                let bytes = record_bytes(record.body.len());
                let room = &mut Some((bytes, &mut large[at]));
                match self.try_reserve(self.writer(*log), room, entry && at == last)? {
                    Ok(latch) => latches.push(latch),
                    Err(_) => break,
                }
            }
            if latches.len() == fragments.len() {
                return Ok(latches);
            }
            // Nobody is kept from the other logs while this one makes room.
            let at = latches.len();
            drop(latches);
            let (log, record) = &fragments[at];
            let bytes = record_bytes(record.body.len());
            drop(self.reserve(self.writer(*log), Some((bytes, &mut large[at])), entry && at == last)?);
        }
    }

    /// Step 3.
    fn append_all(
        &self,
        fragments: &[(LogId, Record<'_>)],
        latches: &mut [LogGuard<'_>],
        pending: Pending,
        appended: &mut Vec<Appended>,
    ) -> Ticket {
        let count = fragments.len();
        let watermark = self.watermark_to_store();
        let first = self.watermark.draw_all(fragments.iter().map(|(log, _)| *log), latches);
        let last = Csn(first.0 + count as u64 - 1);
        let dsn = pending.dsn;
        let listed = match self.axes.rule_of(&pending) {
            DependencyRule::Exact { listed } => Some(listed),
            DependencyRule::Dsn => None,
        };
        let mut gsn = fragments[0].1.gsn;
        for (at, ((log, record), latch)) in fragments.iter().zip(latches.iter_mut()).enumerate() {
            let (writer, csn) = (self.writer(*log), Csn(first.0 + at as u64));
            if let Some(clocks) = &self.clocks {
                gsn = clocks.draw(*log, csn, gsn, false, latch);
            }
            let rule = match listed {
                Some(listed) => DependencyRule::Exact { listed: if at == 0 { listed } else { 0 } },
                None => DependencyRule::Dsn,
            };
            let header = RecordHeader {
                epoch: self.epoch,
                csn,
                gsn,
                dsn,
                watermark,
                body_crc: record.body_crc,
                op_count: record.operations,
                rule,
                kind: RecordKind::Fragment,
            };
            let was_empty = !writer.has_unwritten();
            latch.append(&header, record.body);
            if at == 0 {
                self.undecided.publish(csn, *log, pending.depends_on(), latch);
            } else {
                self.undecided.publish_follower(csn, *log, latch);
            }
            if self.hardens_at_once(&pending) {
                self.fence(writer, latch);
            }
            let due = if pending.waits {
                if csn == last && !self.is_passive() {
                    writer.cohort.joined(csn, latch);
                }
                NEVER
            } else if csn == last {
                let before = DependsOn::after(Csn(csn.0 - 1));
                let needed = self.needed_by(csn, dsn, &before);
                self.enqueue(writer, latch, (csn, needed), watermark, pending)
            } else {
                self.due_if_left(writer, latch, pending.durability, pending.ready)
            };
            self.seal_if_full(writer, latch);
            appended.push(Appended { csn, due: writer.flush_request.due_after_append(due, was_empty) });
        }
        debug_assert_eq!(appended.last().map(|fragment| fragment.csn), Some(last));
        Ticket { log: fragments[count - 1].0, csn: last, dsn, is_exact: false }
    }

    /// Whether the fragments of the transaction `csn` besides its last one are durable. Of one that has none it is true.
    #[inline]
    pub(super) fn has_durable_fragments(&self, csn: Csn) -> bool {
        !self.is_by_page() || planted::is(Bug::FragmentsNotAwaited) || self.volatile_fragment(csn).is_none()
    }

    /// A fragment of the transaction `csn` before its last one that is not durable, and its log.
    fn volatile_fragment(&self, csn: Csn) -> Option<(&LogWriter, Csn)> {
        let mut at = csn;
        while self.undecided.follows(at) {
            at = Csn(at.0 - 1);
            if at < self.watermark.get() {
                return None;
            }
            // What the ring has forgotten W has passed.
            let writer = self.writer(self.undecided.log_of(at)?);
            if at > writer.log.durable_csn() {
                return Some((writer, at));
            }
        }
        None
    }

    /// Has others write, now, the fragments of the transaction of `ticket` besides its last one.
    pub(super) fn demand_fragments(&self, ticket: Ticket) {
        if !self.is_by_page() {
            return;
        }
        let mut at = ticket.csn;
        while self.undecided.follows(at) {
            at = Csn(at.0 - 1);
            let Some(log) = self.undecided.log_of(at) else { return };
            let writer = self.writer(log);
            if at > writer.log.durable_csn() {
                self.have_written(writer, levels::NOW);
            }
        }
    }

    /// Does something for a fragment that is not durable; none if all are. False if others are at it.
    pub(super) fn advance_fragments(&self, ticket: Ticket) -> Option<bool> {
        if !self.is_by_page() {
            return None;
        }
        let (writer, csn) = self.volatile_fragment(ticket.csn)?;
        Some(self.advance(writer, csn, levels::NOW))
    }
}
