//! How does a record get its CSN and its place in a log?
//!
//! ```text
//!   1 latch; poisoned? closed?                           may fail
//!   2 room in ring, queue, buffer, segment?              may wait (without the latch) and fail
//!   3 preparing()                                        descriptor: PREPARING; may withdraw
//!   ---------------------------------------------------- point of no return
//!   4 announce, draw, append, enqueue, due time          no allocation, system call, user code
//!   5 unlatch; wake the flusher if it sleeps too long
//! ```
//!
//! A panic in step 4 would leave a CSN without a record and freeze W for ever (rule 2).
//! `Environment::latched` turns it into poison, and that of step 2, too, before the latch is free.
//! So step 1 asks under the latch, and so does a thread that finds out what is durable: nothing is
//! appended behind a hole, and no hole counts.

use super::acknowledge::Acknowledgments;
use super::durability::Durability;
use super::environment::Environment;
use super::levels::{self, NEVER, Waits};
use super::log_writer::LogWriter;
use super::medium::Medium;
use super::pending::{DependsOn, Pending, Record, Ticket};
use super::protocol::Protocol;
use super::rule::Drawn;
use super::waiting::Waiting;
use super::writes::Writes;
use crate::base::clock::{Nanos, WaitTimer};
use crate::base::planted::{self, Bug};
use crate::base::settings::{Axes, Durability as Level, Writer, WriterOptions};
use crate::base::{Csn, Error, ErrorKind, LogId, Result};
use crate::device::AlignedBuffer;
use crate::log::{LogGuard, RecordHeader, Reserve, SpaceTicket, record_bytes};
use crate::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

/// Time that a committer waits for log space before it gives up: see [`WaitTimer`].
pub const SPACE_WAIT: Duration = Duration::from_secs(5);
/// As `SPACE_WAIT`, if the device fails to make segments: a longer wait would free nothing.
const BROKEN_WAIT: Duration = Duration::from_millis(100);
/// Time after which such a committer looks again without a wake-up: the thread that prepares
/// segments does not know of waiters.
const SPACE_LOOK: Duration = Duration::from_millis(1);

/// Bytes of a record, and a buffer for it if no log buffer is large enough.
pub type Room<'a> = (usize, &'a mut Option<AlignedBuffer>);

/// A record that was appended.
pub struct Appended {
    pub csn: Csn,
    pub dsn: Csn,
    /// When the flusher has to write the log, if it may not know.
    pub due: Option<Nanos>,
}

/// A reason why a record cannot be appended yet.
pub enum Obstacle {
    /// Every log buffer is full or in flight.
    Buffers,
    /// The record needs a buffer of its own, and another thread has used the one that was brought.
    LargeBuffer,
    /// Too many transactions wait to be acknowledged.
    Undecided,
    /// The log has no space.
    Space,
}

/// Returns a buffer for a record that no log buffer holds.
pub fn large_buffer(log: &LogWriter, bytes: usize) -> Option<AlignedBuffer> {
    (bytes > log.log.block_payload_bytes()).then(|| log.log.large_buffer(bytes))
}

/// Another way to the latch of a log than to wait for it.
pub trait AppendPath: Send + Sync {
    /// As [`Appending::precommit`].
    ///
    /// # Errors
    /// As [`Appending::precommit`].
    fn precommit(
        &self,
        appending: &Appending,
        log: &LogWriter,
        record: Record<'_>,
        pending: &Pending,
        preparing: Preparing<'_>,
    ) -> Result<Option<Ticket>>;

    /// Returns how many threads wait for another one to append their records.
    #[cfg(all(test, not(any(loom, feature = "shuttle"))))]
    fn waiting(&self) -> usize;
}

/// Called under the latch, just before the draw: see `Commit::precommit`.
pub type Preparing<'a> = &'a mut (dyn FnMut() -> bool + Send);

/// Appends records. See the module's text.
pub struct Appending {
    pub axes: Axes,
    pub waits: Waits,
    pub environment: Arc<Environment>,
    pub durability: Arc<Durability>,
    pub acknowledgments: Arc<Acknowledgments>,
    pub writes: Arc<Writes>,
    pub medium: Arc<dyn Medium>,
    pub waiting: Arc<Waiting>,
    pub protocol: Arc<dyn Protocol>,
    /// None: a committer that finds the latch taken waits for it.
    pub path: Option<Box<dyn AppendPath>>,
}

/// The result of [`Appending::precommit_now`].
pub enum AppendNow {
    Appended(Ticket),
    /// `preparing` withdrew the transaction.
    Withdrawn,
    /// The log has no room now.
    NoRoom,
}

impl Appending {
    /// Appends the record of a transaction; waits for room.
    pub fn precommit(
        &self,
        log: LogId,
        record: Record<'_>,
        pending: &Pending,
        preparing: Preparing<'_>,
    ) -> Result<Option<Ticket>> {
        let log = self.durability.log(log);
        if let Some(path) = &self.path {
            return path.precommit(self, log, record, pending, preparing);
        }
        let latch = self.reserve_record(log, record.body.len(), self.takes_entry(pending))?;
        Ok(self.precommit_reserved(log, latch, record, pending, preparing))
    }

    /// As `precommit`, without waiting for room.
    pub fn precommit_now(
        &self,
        log: LogId,
        record: Record<'_>,
        pending: &Pending,
        preparing: Preparing<'_>,
    ) -> Result<AppendNow> {
        let log = self.durability.log(log);
        let bytes = record_bytes(record.body.len());
        let mut large = large_buffer(log, bytes);
        match self.try_reserve(log, &mut Some((bytes, &mut large)), self.takes_entry(pending))? {
            Ok(latch) => Ok(match self.precommit_reserved(log, latch, record, pending, preparing) {
                Some(ticket) => AppendNow::Appended(ticket),
                None => AppendNow::Withdrawn,
            }),
            Err(_) => Ok(AppendNow::NoRoom),
        }
    }

    /// Steps 3 to 5. Returns none if `preparing` withdraws.
    pub fn precommit_reserved(
        &self,
        log: &LogWriter,
        mut latch: LogGuard<'_>,
        record: Record<'_>,
        pending: &Pending,
        preparing: Preparing<'_>,
    ) -> Option<Ticket> {
        if !preparing() {
            return None;
        }
        let appended = self.environment.latched(|| self.append(log, &mut latch, record, pending));
        drop(latch);
        Some(self.appended(log, record, pending, appended))
    }

    /// Step 5. Returns the ticket of the transaction.
    pub fn appended(
        &self,
        log: &LogWriter,
        record: Record<'_>,
        pending: &Pending,
        Appended { csn, dsn, due }: Appended,
    ) -> Ticket {
        let ticket = Ticket { log: log.id, csn, dsn, is_exact: false };
        self.medium.released(ticket, pending, &[log]);
        self.count_record(record);
        if let Some(due) = due {
            self.protocol.appended(log, due, pending.ready);
        }
        ticket
    }

    /// Returns whether a transaction takes a place in the queue.
    pub fn takes_entry(&self, pending: &Pending) -> bool {
        !pending.waits || self.axes.queues_waiters()
    }

    /// Counts a record that was appended.
    pub fn count_record(&self, record: Record<'_>) {
        self.environment.metrics.operations.add(record.operations.into());
        self.environment.metrics.log_bytes.add(record_bytes(record.body.len()) as u64);
    }

    /// Step 4.
    pub fn append(
        &self,
        log: &LogWriter,
        latch: &mut LogGuard<'_>,
        record: Record<'_>,
        pending: &Pending,
    ) -> Appended {
        let was_empty = !log.has_unwritten();
        let (on, alone) = (pending.depends_on(), pending.alone);
        let header = self.append_record(log, latch, record, on, alone, |csn| pending.dsn_of(csn));
        self.medium.appended(pending, log, latch);
        let due = if pending.waits {
            self.joined(log, &header, pending, latch);
            NEVER
        } else {
            self.enqueue(log, latch, &header, on, pending)
        };
        self.count_in_block(log, latch);
        let RecordHeader { csn, dsn, .. } = header;
        Appended { csn, dsn, due: log.flush_request.due_after_append(due, was_empty) }
    }

    /// Draws a CSN and copies the record. Returns its header.
    #[inline]
    pub fn append_record(
        &self,
        log: &LogWriter,
        latch: &mut LogGuard<'_>,
        record: Record<'_>,
        on: DependsOn<'_>,
        alone: bool,
        dsn_of: impl FnOnce(Csn) -> Csn,
    ) -> RecordHeader {
        // As of before the draw: a stored watermark must not cover the record that holds it (rule
        // 15).
        let watermark = self.watermark_to_store();
        let csn = self.durability.watermark.draw(log.id, latch);
        let dsn = dsn_of(csn);
        debug_assert!(watermark <= csn, "a stored watermark covers no record that holds it");
        debug_assert!(dsn < csn, "a transaction depends on earlier ones");
        // The DSN of a change of the catalog is known only now.
        let on = if let DependsOn::UpTo(_) = on { DependsOn::UpTo(dsn) } else { on };
        let gsn = self.durability.drawn(&Drawn { log: log.id, csn, gsn: record.gsn, on, alone }, latch);
        let header = RecordHeader {
            epoch: self.environment.epoch,
            csn,
            gsn,
            dsn,
            watermark,
            body_crc: record.body_crc,
            op_count: record.operations,
            rule: self.durability.rule_of(on),
            kind: record.kind,
        };
        latch.append(&header, record.body);
        header
    }

    /// Returns the CSN that a record says everything below was durable when it was drawn.
    #[inline]
    pub fn watermark_to_store(&self) -> Csn {
        if planted::is(Bug::WatermarkNotStored) { Csn::ZERO } else { self.durability.watermark.get() }
    }

    /// Counts a transaction whose thread waits.
    #[inline]
    pub fn joined(&self, log: &LogWriter, header: &RecordHeader, pending: &Pending, latch: &LogGuard<'_>) {
        if !self.medium.is_durable_memory() {
            log.cohort.joined(header.csn, latch);
        }
        if self.axes.queues_waiters() {
            self.acknowledgments.push(log.id, header.csn, header.dsn, pending, latch);
        }
    }

    /// Seals the block if each record has a block of its own. Otherwise cuts the leader's gather
    /// window short once the block holds `gather_max` records.
    #[inline]
    pub fn count_in_block(&self, log: &LogWriter, latch: &mut LogGuard<'_>) {
        if self.axes.writer == WriterOptions::Committer {
            log.seal_ahead(latch);
        } else if let Some(most) = self.axes.gather().most
            && log.count_record(latch) == most
        {
            log.full.notify_all();
        }
    }

    /// Queues a transaction that no thread waits for. Returns when it is due.
    pub fn enqueue(
        &self,
        log: &LogWriter,
        latch: &LogGuard<'_>,
        header: &RecordHeader,
        on: DependsOn<'_>,
        pending: &Pending,
    ) -> Nanos {
        let Pending { durability, ready, .. } = *pending;
        let RecordHeader { csn, dsn, watermark, .. } = *header;
        let required = self.durability.required_for_queued(csn, dsn, on);
        self.acknowledgments.push(log.id, csn, dsn, pending, latch);
        match durability {
            _ if required < watermark => {}
            Level::Durable => self.durability.require_watermark(log, required),
            Level::BoundedLoss | Level::Written => {
                let due = levels::due(durability, ready, ready, &self.waits);
                log.flush_request.require_watermark_later(required, due);
            }
            Level::Lazy => {}
        }
        if durability != Level::Durable {
            self.acknowledgments.returns_early(log.id, csn, latch);
        }
        self.due_if_unawaited(log, latch, durability, ready)
    }

    /// Returns when a log is due because of a record that no thread waits for.
    pub fn due_if_unawaited(
        &self,
        log: &LogWriter,
        latch: &LogGuard<'_>,
        level: Level,
        ready: Nanos,
    ) -> Nanos {
        if let Some(due) = self.medium.due(log, latch, level, ready) {
            return due;
        }
        let unsealed = log.log.unsealed_bytes();
        // A committer of level written writes by itself.
        let counts_units = !matches!(level, Level::Lazy | Level::Written);
        let unit_reached = counts_units && unsealed >= self.axes.flush_unit_bytes();
        // Lazy records alone wait until half a buffer is full.
        let half = self.axes.flush_unit_bytes().max(log.log.buffer_bytes() / 2);
        if unit_reached || unsealed >= half {
            return ready;
        }
        levels::due(level, ready, self.writes.schedule.interval_began(log), &self.waits)
    }

    /// Queues a transaction without a record.
    pub fn enqueue_read_only(&self, log: LogId, pending: &Pending) -> Result<()> {
        let (durability, acknowledgments) = (&self.durability, &self.acknowledgments);
        // As in `Waiting::finish_read_only`.
        acknowledgments.acknowledged_up_to(pending.dsn);
        let is_satisfied = || {
            let w = durability.watermark.get();
            durability.are_satisfied_for_queued(Csn::ZERO, pending.dsn, &pending.predecessors, w)
        };
        let log = durability.log(log);
        if is_satisfied() {
            acknowledgments.count_one(log, pending, Csn::ZERO);
            return Ok(());
        }
        let latch = self.reserve(log, None, true)?;
        acknowledgments.push(log.id, Csn::ZERO, pending.dsn, pending, &latch);
        let required = durability.required_for_queued(Csn::ZERO, pending.dsn, pending.depends_on());
        durability.require_watermark(log, required);
        drop(latch);
        durability.rescan();
        if is_satisfied() {
            // It became so while it was queued, and the thread that caused that may have found the
            // queue empty.
            acknowledgments.publish();
        } else {
            acknowledgments.wake_flushers_behind(required);
        }
        Ok(())
    }

    /// Waits until there is room for a record with a body of `body_len` bytes, and returns the
    /// latch.
    pub fn reserve_record<'a>(
        &self,
        log: &'a LogWriter,
        body_len: usize,
        entry: bool,
    ) -> Result<LogGuard<'a>> {
        let bytes = record_bytes(body_len);
        let mut large = large_buffer(log, bytes);
        self.reserve(log, Some((bytes, &mut large)), entry)
    }

    /// Steps 1 and 2: returns the latch of a log that has room for a record and, with `entry`, for
    /// a queue entry.
    pub fn reserve<'a>(
        &self,
        log: &'a LogWriter,
        mut record: Option<Room<'_>>,
        entry: bool,
    ) -> Result<LogGuard<'a>> {
        match self.try_reserve(log, &mut record, entry)? {
            Ok(latch) => Ok(latch),
            Err(_) => self.await_room(log, record, entry),
        }
    }

    /// As [`Appending::reserve`], where there was no room.
    #[cold]
    fn await_room<'a>(
        &self,
        log: &'a LogWriter,
        mut record: Option<Room<'_>>,
        entry: bool,
    ) -> Result<LogGuard<'a>> {
        let environment = &self.environment;
        let mut space_wanted = None;
        loop {
            // Tickets first, then the look: see `sync::event`.
            let (wrote, space) = (log.event.ticket(), environment.space.ticket());
            let progress = environment.progress.ticket();
            let obstacle = match self.try_reserve(log, &mut record, entry)? {
                Ok(latch) => return Ok(latch),
                Err(obstacle) => obstacle,
            };
            environment.metrics.backpressure_waits.add(1);
            match obstacle {
                Obstacle::Buffers => {
                    if !self.writes.queued.await_carrier(&self.writes, log, Csn::MAX, None)?
                        && !self.protocol.advance(log, Csn::MAX, levels::NOW)
                        && !log.is_only_carried()
                    {
                        log.event.wait(wrote, None);
                    }
                }
                Obstacle::LargeBuffer => {
                    if let Some((bytes, large)) = &mut record {
                        **large = Some(log.log.large_buffer(*bytes));
                    }
                }
                Obstacle::Undecided => {
                    // The acknowledger may be late, and a thread that fences for others wakes no
                    // committer.
                    let newest = self.durability.watermark.newest_drawn();
                    if !self.acknowledgments.acknowledge_all(true) && !self.waiting.advance_watermark(newest)
                    {
                        environment.progress.wait(progress, None);
                    }
                }
                Obstacle::Space => {
                    let (timer, ticket) = space_wanted.get_or_insert_with(|| {
                        (WaitTimer::start(&environment.clock), environment.segments.begin_waiting())
                    });
                    self.check_space_wait(timer.elapsed(), *ticket)?;
                    (environment.hooks.on_log_pressure)();
                    environment.space.wait(space, Some(SPACE_LOOK));
                }
            }
        }
    }

    /// Fails if a committer has waited long enough for log space.
    fn check_space_wait(&self, waited: Duration, ticket: SpaceTicket) -> Result<()> {
        let segments = &self.environment.segments;
        let frees_pages = (self.environment.hooks.is_checkpoint_worthwhile)();
        if let Some(refusal) = segments.refusal(ticket, frees_pages) {
            return Err(refusal);
        }
        let failure = segments.failure_since(ticket);
        let broken = failure.as_ref().is_some_and(|error| error.kind() != ErrorKind::OutOfSpace);
        if waited >= if broken { BROKEN_WAIT } else { SPACE_WAIT } {
            return Err(failure.unwrap_or_else(|| segments.full()));
        }
        Ok(())
    }

    /// See `LogSpace::await_checkpoint`.
    pub fn await_checkpoint(&self) -> bool {
        let segments = &self.environment.segments;
        if (self.environment.hooks.is_checkpoint_worthwhile)() || segments.can_give_up() {
            return segments.await_checkpoint(SPACE_WAIT);
        }
        // The thread that makes checkpoints also asks a full disk again.
        segments.filled().notify_all();
        false
    }

    /// See `LogSpace::give_up_log`.
    pub fn give_up_log(&self) {
        self.environment.segments.give_up();
        self.durability.logs.iter().for_each(|log| log.log.lock().leave_long_segment());
        self.environment.space.notify_all();
    }

    /// As [`Appending::reserve`], without waiting.
    pub fn try_reserve<'a>(
        &self,
        log: &'a LogWriter,
        record: &mut Option<Room<'_>>,
        entry: bool,
    ) -> Result<Result<LogGuard<'a>, Obstacle>> {
        let mut latch = log.log.lock();
        Ok(match self.look_for_room(log, &mut latch, record, entry)? {
            None => Ok(latch),
            Some(obstacle) => Err(obstacle),
        })
    }

    /// Steps 1 and 2 under the latch. Returns why there is no room, if so.
    #[inline]
    pub fn look_for_room(
        &self,
        log: &LogWriter,
        latch: &mut LogGuard<'_>,
        record: &mut Option<Room<'_>>,
        entry: bool,
    ) -> Result<Option<Obstacle>> {
        // Not before the latch: its last holder may have left a hole in the log.
        self.environment.poison.check()?;
        if self.environment.closing.load(Ordering::SeqCst) {
            return Err(Error::invalid("the database is closed"));
        }
        Ok(self.environment.latched(|| self.obstacle(log, latch, record, entry)))
    }

    /// Seals the filling buffer, which has no room for the next record, if another one is free.
    /// Returns false if all are in use: then the committer has to wait for a write.
    fn seal_full_buffer(&self, log: &LogWriter, latch: &mut LogGuard<'_>) -> bool {
        let may_seal = self.medium.is_durable_memory() || latch.has_free_buffer() && log.has_few_sealed();
        if !may_seal || !log.seal_ahead(latch) {
            return false;
        }
        self.medium.sealed(log, latch);
        log.full.notify_all();
        if self.axes.flushers_write_sealed() {
            log.flush_request.all_sealed(latch);
            self.writes.flushers.of(log).wake_for(levels::NOW);
        } else if !matches!(self.axes.writer.kind(), Writer::Worker | Writer::Collector) {
            // A worker is at the end of its transaction soon.
            self.writes.flushers.delegate(log, levels::NOW);
        }
        true
    }

    fn obstacle(
        &self,
        log: &LogWriter,
        latch: &mut LogGuard<'_>,
        record: &mut Option<Room<'_>>,
        entry: bool,
    ) -> Option<Obstacle> {
        if !self.durability.watermark.has_room() || entry && !self.acknowledgments.has_room(log.id, latch) {
            return Some(Obstacle::Undecided);
        }
        let (bytes, large) = record.as_mut()?;
        let mut reserved = latch.reserve(*bytes, large);
        if reserved == Reserve::BuffersFull && self.seal_full_buffer(log, latch) {
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
