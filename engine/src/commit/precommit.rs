//! How does a record get its CSN and its place in a log?
//!
//! ```text
//!   1 latch; poisoned? closed?                           may fail
//!   2 room in ring, queue, buffer, segment?              may wait (without the latch) and fail
//!   3 preparing()                                        the descriptor becomes PREPARING
//!   ---------------------------------------------------- point of no return
//!   4 announce, draw, append, enqueue, due time          no allocation, no system call, no user code
//!   5 unlatch; wake the flusher if it sleeps too long
//! ```
//!
//! A panic in step 4 would leave a CSN without a record and freeze W for ever (rule 2). [`Core::latched`] turns it into poison, so that waiters
//! are told, and that of step 2, too; and it does so before the latch is free. So step 1 asks behind the latch, and so does whoever finds
//! out what is durable there: nothing is appended behind a hole, and no hole counts.

use super::exact::DependsOn;
use super::levels::{self, NEVER};
use super::queue::{Entry, Predecessors};
use super::writer::LogWriter;
use super::{Core, Ticket};
use crate::base::clock::{Nanos, WaitTimer};
use crate::base::planted::{self, Bug};
use crate::base::settings::{Dependency, Durability, Writer};
use crate::base::{Csn, Error, ErrorKind, Gsn, LogId, Result};
use crate::device::AlignedBuffer;
use crate::log::{DependencyRule, LogGuard, RecordHeader, RecordKind, Reserve, record_bytes};
use crate::sync::atomic::Ordering;
use std::time::Duration;

/// How long a committer waits for log space before it gives up: see [`WaitTimer`].
pub(super) const SPACE_WAIT: Duration = Duration::from_secs(5);
/// The same where no segment can be made because the device fails: waiting longer frees nothing.
const BROKEN_WAIT: Duration = Duration::from_millis(100);
/// How often it looks although nobody told it: segments are prepared by a thread that does not know of waiters.
const SPACE_LOOK: Duration = Duration::from_millis(1);

/// A redo record without its header. The checksum is computed before the latch is taken.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The encoded operations.
    pub body: &'a [u8],
    /// CRC-32C of `body`.
    pub body_crc: u32,
    /// Number of operations.
    pub operations: u32,
    /// Lamport clock of the transaction; 0 if the rule goes by none.
    pub gsn: Gsn,
    /// What it is of its transaction.
    pub kind: RecordKind,
}

/// How a transaction commits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pending {
    /// The highest CSN it depends on.
    pub dsn: Csn,
    /// Of what it depends on, that which may not be committed.
    pub predecessors: Predecessors,
    /// All that may not be committed of it, and what its pages met, is in its own log. Only a rule that goes by clocks asks.
    pub alone: bool,
    /// When its commit returns.
    pub durability: Durability,
    /// When it began.
    pub begun: Nanos,
    /// When it asked to commit.
    pub ready: Nanos,
    /// Its thread calls [`super::Commit::finish`] next, so that nobody else need write or count it.
    pub waits: bool,
}

impl Pending {
    /// As a DSN: the transaction depends on every one before it (a change of the catalog).
    pub const EVERYTHING: Csn = Csn::MAX;

    /// What it depends on. Of a change of the catalog the DSN is that of its CSN, once there is one.
    pub(super) fn depends_on(&self) -> DependsOn {
        if self.dsn == Pending::EVERYTHING || self.predecessors.all().is_none() {
            return DependsOn::UpTo(self.dsn);
        }
        DependsOn::Listed(self.predecessors)
    }

    fn dsn_of(&self, csn: Csn) -> Csn {
        if self.dsn == Pending::EVERYTHING { Csn(csn.0 - 1) } else { self.dsn }
    }
}

/// The rule that a record names, and whether it waits for no other log.
pub(super) type Terms = (DependencyRule, bool);

/// Bytes of a record, and a buffer for it if no log buffer is large enough.
pub(super) type Room<'a> = (usize, &'a mut Option<AlignedBuffer>);

/// What keeps a record from being appended.
pub(super) enum Obstacle {
    /// Every log buffer is full or in flight.
    Buffers,
    /// The record needs a buffer of its own, and the one that was brought has been used by others while there was no space.
    LargeBuffer,
    /// Too many transactions wait to be acknowledged.
    Undecided,
    /// The log has no space.
    Space,
}

/// A buffer for a record that no log buffer holds.
pub(super) fn large_buffer(writer: &LogWriter, bytes: usize) -> Option<AlignedBuffer> {
    (bytes > writer.log.block_payload_bytes()).then(|| writer.log.large_buffer(bytes))
}

impl Core {
    pub(super) fn precommit(
        &self,
        log: LogId,
        record: Record<'_>,
        pending: Pending,
        preparing: impl FnOnce(),
    ) -> Result<Ticket> {
        let writer = self.writer(log);
        let latch = self.reserve_record(writer, record.body.len(), !pending.waits)?;
        Ok(self.precommit_reserved(writer, latch, record, pending, preparing))
    }

    pub(super) fn precommit_now(
        &self,
        log: LogId,
        record: Record<'_>,
        pending: Pending,
        preparing: impl FnOnce(),
    ) -> Result<Option<Ticket>> {
        let writer = self.writer(log);
        let bytes = record_bytes(record.body.len());
        let mut large = large_buffer(writer, bytes);
        match self.try_reserve(writer, &mut Some((bytes, &mut large)), !pending.waits)? {
            Ok(latch) => Ok(Some(self.precommit_reserved(writer, latch, record, pending, preparing))),
            Err(_) => Ok(None),
        }
    }

    pub(super) fn await_room(&self, log: LogId, body_len: usize, waits: bool) -> Result<()> {
        self.reserve_record(self.writer(log), body_len, !waits).map(drop)
    }

    /// The latch of a log that has room for a record with a body of `body_len` bytes.
    pub(super) fn reserve_record<'a>(
        &self,
        writer: &'a LogWriter,
        body_len: usize,
        entry: bool,
    ) -> Result<LogGuard<'a>> {
        let bytes = record_bytes(body_len);
        let mut large = large_buffer(writer, bytes);
        self.reserve(writer, Some((bytes, &mut large)), entry)
    }

    /// Steps 3 to 5.
    fn precommit_reserved(
        &self,
        writer: &LogWriter,
        mut latch: LogGuard<'_>,
        record: Record<'_>,
        pending: Pending,
        preparing: impl FnOnce(),
    ) -> Ticket {
        preparing();
        let (csn, due) = self.latched(|| self.append(writer, &mut latch, record, pending));
        drop(latch);
        self.count_record(record);
        if let Some(due) = due {
            self.wake_flusher_for(writer, due, pending.ready);
        }
        let ticket = Ticket { log: writer.id, csn, dsn: pending.dsn_of(csn), is_exact: false };
        if self.is_passive() {
            self.scan_for(ticket);
        }
        ticket
    }

    pub(super) fn count_record(&self, record: Record<'_>) {
        self.metrics.operations.add(record.operations.into());
        self.metrics.log_bytes.add(record_bytes(record.body.len()) as u64);
    }

    /// Step 4. Returns when the flusher has to write the log, if it may not know.
    fn append(
        &self,
        writer: &LogWriter,
        latch: &mut LogGuard<'_>,
        record: Record<'_>,
        pending: Pending,
    ) -> (Csn, Option<Nanos>) {
        let was_empty = !writer.has_unwritten();
        let RecordHeader { csn, dsn, watermark, .. } =
            self.append_record(writer, latch, record, self.terms_of(&pending), |csn| pending.dsn_of(csn));
        let on = match pending.depends_on() {
            DependsOn::UpTo(_) => DependsOn::UpTo(dsn),
            listed => listed,
        };
        self.undecided.publish(csn, writer.id, on, latch);
        let needed = self.needed_by(csn, dsn, &on);
        let pending = Pending { dsn, ..pending };
        if self.hardens_at_once(&pending) {
            self.fence(writer, latch);
        }
        let due = if pending.waits {
            if !self.is_passive() {
                writer.cohort.joined(csn, latch);
            }
            NEVER
        } else {
            self.enqueue(writer, latch, (csn, needed), watermark, pending)
        };
        self.seal_if_full(writer, latch);
        (csn, writer.flush_request.due_after_append(due, was_empty))
    }

    fn terms_of(&self, pending: &Pending) -> Terms {
        let rule = self.axes.rule_of(pending);
        let avoids = self.axes.dependency == Dependency::GsnRfa && rule != DependencyRule::Dsn;
        (rule, avoids && pending.alone)
    }

    /// Draws a CSN and copies the record. Returns its header.
    #[inline]
    pub(super) fn append_record(
        &self,
        writer: &LogWriter,
        latch: &mut LogGuard<'_>,
        record: Record<'_>,
        (rule, alone): Terms,
        dsn_of: impl FnOnce(Csn) -> Csn,
    ) -> RecordHeader {
        // As of before the draw: a stored watermark must not cover the record that holds it (rule 15).
        let watermark = self.watermark_to_store();
        let csn = self.watermark.draw(writer.id, latch);
        let gsn = match &self.clocks {
            Some(clocks) => clocks.draw(writer.id, csn, record.gsn, alone, latch),
            None => record.gsn,
        };
        let header = RecordHeader {
            epoch: self.epoch,
            csn,
            gsn,
            dsn: dsn_of(csn),
            watermark,
            body_crc: record.body_crc,
            op_count: record.operations,
            rule,
            kind: record.kind,
        };
        latch.append(&header, record.body);
        header
    }

    /// What a record says was durable before it was drawn.
    #[inline]
    pub(super) fn watermark_to_store(&self) -> Csn {
        if planted::is(Bug::WatermarkNotStored) { Csn::ZERO } else { self.watermark.get() }
    }

    /// Where the number of records in a block is bounded.
    #[inline]
    pub(super) fn seal_if_full(&self, writer: &LogWriter, latch: &mut LogGuard<'_>) {
        if let Some(most) = self.axes.records_per_block
            && writer.count_record(latch, most)
        {
            writer.full.notify_all();
        }
    }

    /// Leaves a transaction that nobody waits with to those who write and acknowledge. Returns when it is due.
    pub(super) fn enqueue(
        &self,
        writer: &LogWriter,
        latch: &LogGuard<'_>,
        (csn, needed): (Csn, Csn),
        watermark: Csn,
        pending: Pending,
    ) -> Nanos {
        let Pending { dsn, predecessors, durability, begun, ready, .. } = pending;
        writer.queue.push(Entry { csn, dsn, begun, ready, predecessors }, latch);
        match durability {
            _ if needed < watermark => {}
            Durability::Durable => writer.flush_request.require_watermark(needed),
            Durability::BoundedLoss => {
                let due = levels::due(durability, ready, ready, self.axes.flush_interval, &self.axes);
                writer.flush_request.require_watermark_later(needed, due);
            }
            Durability::Lazy => {}
        }
        if durability != Durability::Durable {
            writer.flush_request.acknowledge_early(csn);
            if !self.returned_early.load(Ordering::Relaxed) {
                self.returned_early.store(true, Ordering::SeqCst);
            }
        }
        self.due_if_left(writer, latch, durability, ready)
    }

    /// When a log is due because of a record that nobody waits for.
    pub(super) fn due_if_left(
        &self,
        writer: &LogWriter,
        latch: &LogGuard<'_>,
        durability: Durability,
        ready: Nanos,
    ) -> Nanos {
        if self.is_passive() {
            return self.passive_due(latch, durability, ready);
        }
        let unsealed = writer.log.unsealed_bytes();
        let unit_reached = durability != Durability::Lazy && unsealed >= self.axes.flush_unit_bytes;
        // Lazy records alone wait until half a buffer is full.
        let half = self.axes.flush_unit_bytes.max(writer.log.buffer_bytes() / 2);
        if unit_reached || unsealed >= half {
            return ready;
        }
        levels::due(durability, ready, writer.last_write().0, self.interval(writer), &self.axes)
    }

    /// Wakes the flusher if it would sleep past `due`. Where workers write, it gives them time to do it.
    pub(super) fn wake_flusher_for(&self, writer: &LogWriter, due: Nanos, ready: Nanos) {
        let at = match self.axes.writer {
            Writer::Worker => levels::after(due.max(ready), super::flusher::GRACE),
            _ => due,
        };
        self.flusher_of(writer).wake_for(at);
    }

    pub(super) fn enqueue_read_only(&self, log: LogId, pending: Pending) -> Result<()> {
        // As in `finish_read_only`.
        self.acknowledged_up_to(pending.dsn);
        if self.are_reader_dependencies_satisfied(&pending) {
            self.count_one(self.writer(log), pending, false);
            return Ok(());
        }
        let writer = self.writer(log);
        let latch = self.reserve(writer, None, true)?;
        let Pending { dsn, predecessors, begun, ready, .. } = pending;
        writer.queue.push(Entry { csn: Csn::ZERO, dsn, begun, ready, predecessors }, &latch);
        let needed = self.needed_by(Csn::ZERO, pending.dsn, &pending.depends_on());
        writer.flush_request.require_watermark(needed);
        drop(latch);
        self.rescan();
        if self.are_reader_dependencies_satisfied(&pending) {
            // It became so while it was queued, and whoever caused that may have found the queue empty.
            self.publish();
        } else {
            self.wake_flushers_behind(needed);
        }
        Ok(())
    }

    /// Whether everything that a transaction without a record read is committed.
    pub(super) fn are_reader_dependencies_satisfied(&self, pending: &Pending) -> bool {
        let Pending { dsn, predecessors, begun, ready, .. } = *pending;
        self.are_dependencies_satisfied(
            &Entry { csn: Csn::ZERO, dsn, begun, ready, predecessors },
            self.watermark.get(),
        )
    }

    /// Steps 1 and 2: the latch of a log that has room for a record of `bytes` and a queue entry.
    pub(super) fn reserve<'a>(
        &self,
        writer: &'a LogWriter,
        mut record: Option<Room<'_>>,
        entry: bool,
    ) -> Result<LogGuard<'a>> {
        let mut space_wanted = None;
        loop {
            // Tickets first, then the look: see `sync::event`.
            let tickets = (writer.event.ticket(), self.progress.ticket(), self.space.ticket());
            let obstacle = match self.try_reserve(writer, &mut record, entry)? {
                Ok(latch) => return Ok(latch),
                Err(obstacle) => obstacle,
            };
            self.metrics.backpressure_waits.add(1);
            match obstacle {
                Obstacle::Buffers => {
                    if !self.await_helper(writer, Csn::MAX, None)?
                        && !self.advance(writer, Csn::MAX, levels::NOW)
                        && !writer.is_only_piggybacked()
                    {
                        writer.event.wait(tickets.0, None);
                    }
                }
                Obstacle::LargeBuffer => {
                    if let Some((bytes, large)) = &mut record {
                        **large = Some(writer.log.large_buffer(*bytes));
                    }
                }
                Obstacle::Undecided => {
                    // Whoever acknowledges may be late; who fences for others tells nobody.
                    if self.acknowledge_all(true) {
                        continue;
                    }
                    if !self.advance_logs(self.watermark.newest_drawn()) {
                        self.progress.wait(tickets.1, None);
                    }
                }
                Obstacle::Space => {
                    let (wait_timer, ticket) = space_wanted.get_or_insert_with(|| {
                        (WaitTimer::start(&self.clock), self.segments.begin_waiting())
                    });
                    let (waited, ticket) = (wait_timer.elapsed(), *ticket);
                    if let Some(refusal) = self.segments.refusal(ticket) {
                        return Err(refusal);
                    }
                    let failure = self.segments.failure_since(ticket);
                    let broken = failure.as_ref().is_some_and(|error| error.kind() != ErrorKind::OutOfSpace);
                    if waited >= if broken { BROKEN_WAIT } else { SPACE_WAIT } {
                        return Err(failure.unwrap_or_else(|| self.segments.full()));
                    }
                    (self.hooks.on_log_pressure)();
                    self.space.wait(tickets.2, Some(SPACE_LOOK));
                }
            }
        }
    }

    /// The same without waiting.
    pub(super) fn try_reserve<'a>(
        &self,
        writer: &'a LogWriter,
        record: &mut Option<Room<'_>>,
        entry: bool,
    ) -> Result<Result<LogGuard<'a>, Obstacle>> {
        let mut latch = writer.log.lock();
        // Not before: who had the latch may have left a hole in the log.
        self.poison.check()?;
        if self.closing.load(Ordering::SeqCst) {
            return Err(Error::invalid("the database is closed"));
        }
        Ok(match self.latched(|| self.obstacle(writer, &mut latch, record, entry)) {
            None => Ok(latch),
            Some(obstacle) => Err(obstacle),
        })
    }

    /// Seals the filling buffer, which has no room for the next record, if another one is free. Returns
    /// false if all are in use: then the committer has to wait for a write.
    fn seal_full_buffer(&self, writer: &LogWriter, latch: &mut LogGuard<'_>) -> bool {
        if !self.is_passive() && !(latch.has_free_buffer() && writer.has_few_sealed()) {
            return false;
        }
        if !writer.seal_full(latch) {
            return false;
        }
        if self.is_passive() {
            self.settle(writer, latch);
        }
        writer.full.notify_all();
        match self.axes.writer {
            // The worker itself is at the end of its transaction soon.
            Writer::Worker => {}
            _ => self.have_written(writer, levels::NOW),
        }
        true
    }

    fn obstacle(
        &self,
        writer: &LogWriter,
        latch: &mut LogGuard<'_>,
        record: &mut Option<Room<'_>>,
        entry: bool,
    ) -> Option<Obstacle> {
        if !self.watermark.has_room() || entry && !writer.queue.has_room(latch) {
            return Some(Obstacle::Undecided);
        }
        let (bytes, large) = record.as_mut()?;
        let mut reserved = latch.reserve(*bytes, large);
        if reserved == Reserve::BuffersFull && self.seal_full_buffer(writer, latch) {
            reserved = latch.reserve(*bytes, large);
        }
        match reserved {
            Reserve::Ready => None,
            Reserve::BuffersFull => Some(Obstacle::Buffers),
            Reserve::NeedsLargeBuffer => Some(Obstacle::LargeBuffer),
            Reserve::NoSegment => Some(Obstacle::Space),
        }
    }
}
