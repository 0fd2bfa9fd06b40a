//! How does a transaction get a record into several logs?
//!
//! With the layout `by-page` a change belongs to the log of its page. A transaction that changed
//! pages of several logs has a *fragment* in each (`log::fragment`), and is hardened when all of
//! them are durable.
//!
//! ```text
//!   1 latches of its logs, in the order of their ids;          may wait (without a latch)
//!     room in all                                              and fail
//!   2 preparing()                                              descriptor: PREPARING; may withdraw
//!   ---------------------------------------------------------- point of no return
//!   3 announce in all; draw the CSNs of all fragments          no allocation, system call,
//!     with one addition; append all                            user code
//!   4 unlatch; in mapped memory, one fence for all
//! ```
//!
//! The last fragment has the transaction's CSN, its ticket and its entry in a queue; each of the
//! others is the predecessor of the one after it. The ring of `papers::exact` says that it follows
//! the one before it. So "are all fragments durable" is a walk back along the ring, and the exact
//! rule needs nothing else.
//!
//! **Different from page-level partitioning in the literature** (Wang and Johnson, VLDB 2014):
//! there a transaction inserts a record for each change into the log of its page, while it runs.
//! Here it appends its fragments when it commits, under the latches of all its logs, so that their
//! CSNs follow each other. So it has one record for each log, not for each change.

use crate::base::{Csn, LogId, Result};
use crate::commit::core::append::{Appended, Appending, Preparing, large_buffer};
use crate::commit::core::levels::NEVER;
use crate::commit::core::pending::{DependsOn, Pending, Record, Ticket};
use crate::commit::core::rule::Drawn;
use crate::commit::core::watermark::DRAWN_AT_ONCE_MAX;
use crate::device::AlignedBuffer;
use crate::log::{DependencyRule, FRAGMENTS_MAX, LogGuard, RecordHeader, RecordKind, record_bytes};

const _: () = assert!(FRAGMENTS_MAX as usize <= DRAWN_AT_ONCE_MAX);

impl Appending {
    /// As [`Appending::precommit`], for a transaction with several `fragments`, one for each of
    /// their logs, which ascend.
    pub fn precommit_fragments(
        &self,
        fragments: &[(LogId, Record<'_>)],
        pending: &Pending,
        preparing: Preparing<'_>,
    ) -> Result<Option<Ticket>> {
        debug_assert!(fragments.windows(2).all(|two| two[0].0 < two[1].0));
        let mut latches = self.reserve_all(fragments, self.takes_entry(pending))?;
        let mut appended = Vec::with_capacity(fragments.len());
        if !preparing() {
            return Ok(None);
        }
        let ticket =
            self.environment.latched(|| self.append_all(fragments, &mut latches, pending, &mut appended));
        drop(latches);
        let logs: Vec<_> = fragments.iter().map(|(log, _)| self.durability.log(*log)).collect();
        self.medium.released(ticket, pending, &logs);
        for (((_, record), log), Appended { due, .. }) in fragments.iter().zip(logs).zip(&appended) {
            self.count_record(*record);
            if let Some(due) = due {
                self.protocol.appended(log, *due, pending.ready);
            }
        }
        Ok(Some(ticket))
    }

    /// The latches of the logs of all fragments, each with room. An entry in a queue is for the
    /// last one.
    fn reserve_all(&self, fragments: &[(LogId, Record<'_>)], entry: bool) -> Result<Vec<LogGuard<'_>>> {
        let mut large: Vec<Option<AlignedBuffer>> = Vec::with_capacity(fragments.len());
        for (log, record) in fragments {
            large.push(large_buffer(self.durability.log(*log), record_bytes(record.body.len())));
        }
        loop {
            let mut latches = Vec::with_capacity(fragments.len());
            let last = fragments.len() - 1;
            for (at, (log, record)) in fragments.iter().enumerate() {
                let bytes = record_bytes(record.body.len());
                let room = &mut Some((bytes, &mut large[at]));
                match self.try_reserve(self.durability.log(*log), room, entry && at == last)? {
                    Ok(latch) => latches.push(latch),
                    Err(_) => break,
                }
            }
            if latches.len() == fragments.len() {
                return Ok(latches);
            }
            // The other logs stay free while this one makes room.
            let at = latches.len();
            drop(latches);
            let (log, record) = &fragments[at];
            let bytes = record_bytes(record.body.len());
            drop(self.reserve(
                self.durability.log(*log),
                Some((bytes, &mut large[at])),
                entry && at == last,
            )?);
        }
    }

    /// Step 3.
    fn append_all(
        &self,
        fragments: &[(LogId, Record<'_>)],
        latches: &mut [LogGuard<'_>],
        pending: &Pending,
        appended: &mut Vec<Appended>,
    ) -> Ticket {
        let (count, dsn) = (fragments.len(), pending.dsn);
        let watermark = self.watermark_to_store();
        let first = self.durability.watermark.draw_all(fragments.iter().map(|(log, _)| *log), latches);
        let last = Csn(first.0 + count as u64 - 1);
        let rule = self.durability.rule_of(pending.depends_on());
        let mut gsn = fragments[0].1.gsn;
        for (at, ((log, record), latch)) in fragments.iter().zip(latches.iter_mut()).enumerate() {
            let (writer, csn) = (self.durability.log(*log), Csn(first.0 + at as u64));
            let on = if at == 0 { pending.depends_on() } else { DependsOn::Fragment };
            gsn = self.durability.drawn(&Drawn { log: *log, csn, gsn, on, alone: false }, latch);
            let header = RecordHeader {
                epoch: self.environment.epoch,
                csn,
                gsn,
                dsn,
                watermark,
                body_crc: record.body_crc,
                op_count: record.operations,
                // Where the first one cannot list what it depends on, none is judged by a list.
                rule: if rule == DependencyRule::Dsn { rule } else { self.durability.rule_of(on) },
                kind: RecordKind::Fragment,
            };
            let was_empty = !writer.has_unwritten();
            latch.append(&header, record.body);
            self.medium.appended(pending, writer, latch);
            let due = match (pending.waits, csn == last) {
                (true, true) => {
                    self.joined(writer, &header, pending, latch);
                    NEVER
                }
                (true, false) => NEVER,
                (false, true) => self.enqueue(writer, latch, &header, DependsOn::Fragment, pending),
                (false, false) => self.due_if_unawaited(writer, latch, pending.durability, pending.ready),
            };
            self.count_in_block(writer, latch);
            let due = writer.flush_request.due_after_append(due, was_empty);
            appended.push(Appended { csn, dsn, due });
        }
        debug_assert_eq!(appended.last().map(|fragment| fragment.csn), Some(last));
        Ticket { log: fragments[count - 1].0, csn: last, dsn, is_exact: false }
    }
}
