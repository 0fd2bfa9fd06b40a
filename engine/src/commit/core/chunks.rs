//! How does redo get into the log before its transaction asks to commit, and how long does the log
//! keep it?
//!
//! ```text
//!   CSN      101       104        110       115                 130
//!            chunk 0   chunk 1              chunk 2             last part: the transaction commits
//!            │                    checkpoint                              next checkpoint
//!            └ pin: the log above 100 is kept, the checkpoint covers no more ┘
//! ```
//!
//! A chunk is a record with a CSN (see `log::part`), so W, waiters and recovery treat it like any.
//! It is written at once.
//!
//! **Pins.** A checkpoint contains nothing of a transaction in progress, so the log keeps its
//! chunks until a checkpoint contains the transaction, or it has aborted. A pin is announced before
//! the first chunk is drawn, with the newest CSN drawn by then: a checkpoint whose CSN is at or
//! above the chunk's finds the pin.
//!
//! # Bounds
//! 1. What pins alone keep is at most [`Pins::most`] bytes of segments after a checkpoint. To get
//!    there the oldest pin is *revoked*: its transaction cannot commit any more, and all others
//!    continue. A transaction that waits for log space to commit can still be revoked; one that has
//!    it cannot.
//! 2. A transaction waits before it appends a chunk until W has passed its [`AHEAD`]th before: so
//!    neither log buffers fill up with chunks, nor has recovery many of them to append again.

use super::append::{AppendNow, Appending, Preparing};
use super::levels;
use super::pending::{DependsOn, Pending, Record, Ticket};
use crate::base::planted::{self, Bug};
use crate::base::{Csn, Error, ErrorKind, Location, LogId, Result};
use crate::log::{SegmentPool, record_bytes};
use crate::sync::Mutex;
use std::sync::Arc;

/// Chunks of a transaction that may be above W.
const AHEAD: usize = 8;

/// The chunks of a transaction in progress. When it is dropped, the log need not keep them, unless
/// the transaction has committed.
pub struct Chunks {
    pins: Arc<Pins>,
    segments: Arc<SegmentPool>,
    /// The log of all parts of the transaction.
    log: LogId,
    pin: u64,
    newest: Csn,
    /// CSNs of the newest ones, in a ring.
    recent: [Csn; AHEAD],
    count: usize,
}

impl std::fmt::Debug for Chunks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Chunks({} in log {}, newest {})", self.count, self.log, self.newest)
    }
}

impl Drop for Chunks {
    fn drop(&mut self) {
        self.pins.release(self.pin);
        self.segments.let_go();
    }
}

/// The calls of transactions with chunks, and of checkpoints.
pub struct ChunkLog<'a> {
    pub(in crate::commit) appending: &'a Appending,
    pub(in crate::commit) pins: &'a Arc<Pins>,
}

impl ChunkLog<'_> {
    /// Begins to keep what a transaction writes to `log` as chunks.
    #[must_use]
    pub fn begin(&self, log: LogId) -> Chunks {
        let Appending { durability, environment, .. } = self.appending;
        let pin = self.pins.announce(|| durability.watermark.newest_drawn());
        let (pins, segments) = (self.pins.clone(), environment.segments.clone());
        let (newest, recent) = (Csn::ZERO, [Csn::ZERO; AHEAD]);
        Chunks { pins, segments, log, pin, newest, recent, count: 0 }
    }

    /// Appends the next chunk. It has a CSN of its own and is written at once, but this does not
    /// wait for the write.
    ///
    /// # Errors
    /// `Poisoned`; `OutOfSpace` if no log space became free in time; `OutOfMemory` if the log could
    /// not be kept for this transaction any longer: it can only abort then; `InvalidArgument` for a
    /// closed database.
    pub fn append(&self, chunks: &mut Chunks, record: Record<'_>) -> Result<Csn> {
        chunks.pins.check(chunks.pin)?;
        let at = chunks.count % AHEAD;
        self.appending.waiting.await_settled(chunks.recent[at], ErrorKind::Poisoned)?;
        let csn = self.appending.append_one_chunk(chunks.log, record, chunks.newest)?;
        debug_assert!(csn > chunks.newest, "chunks of a transaction are in one log, in order");
        chunks.pins.count(chunks.pin, record);
        (chunks.newest, chunks.recent[at]) = (csn, csn);
        chunks.count += 1;
        Ok(csn)
    }

    /// As `Commit::precommit`, for the last part of a transaction with chunks. It goes to their
    /// log.
    ///
    /// # Errors
    /// As `Commit::precommit` and [`ChunkLog::append`].
    pub fn precommit_last(
        &self,
        chunks: &Chunks,
        record: Record<'_>,
        pending: &Pending,
        preparing: Preparing<'_>,
    ) -> Result<Option<Ticket>> {
        let appending = self.appending;
        // So that recovery finds the chunks wherever it finds the dependencies of the transaction.
        let pending = &Pending { dsn: pending.dsn.max(chunks.newest), ..*pending };
        loop {
            let begun = chunks.pins.begin_commit(chunks.pin)?;
            match appending.precommit_now(chunks.log, record, pending, preparing)? {
                AppendNow::Appended(ticket) => {
                    begun.committed(ticket.csn);
                    return Ok(Some(ticket));
                }
                AppendNow::Withdrawn => return Ok(None),
                AppendNow::NoRoom => {}
            }
            // The pin can be revoked meanwhile: the space may be what it keeps.
            drop(begun);
            let log = appending.durability.log(chunks.log);
            drop(appending.reserve_record(log, record.body.len(), appending.takes_entry(pending))?);
        }
    }

    /// Returns operations, and bytes of records, of the chunks of transactions in progress: what
    /// the next checkpoint does not take off the log.
    #[must_use]
    pub fn in_progress(&self) -> (u64, u64) {
        self.pins.in_progress()
    }

    /// Returns up to where a checkpoint at `checkpoint` covers the log: at or below it, so that the
    /// chunks of transactions that it does not contain are kept. Revokes pins that keep too much.
    /// To be called once everything up to `checkpoint` is durable.
    #[must_use]
    pub fn cover(&self, checkpoint: Csn) -> Csn {
        let segments = &self.appending.environment.segments;
        self.pins.cover(checkpoint, &|covered| segments.bytes_between(covered, checkpoint))
    }
}

impl Appending {
    fn append_one_chunk(&self, log: LogId, record: Record<'_>, previous: Csn) -> Result<Csn> {
        let log = self.durability.log(log);
        let mut latch = self.reserve_record(log, record.body.len(), false)?;
        let (header, is_durable) = self.environment.latched(|| {
            let header = self.append_record(log, &mut latch, record, DependsOn::Chunk, true, |_| previous);
            let is_durable = self.medium.harden(log, &mut latch);
            if !is_durable {
                log.flush_request.lower_due(levels::NOW);
            }
            self.count_in_block(log, &mut latch);
            (header, is_durable)
        });
        drop(latch);
        self.count_record(record);
        if !is_durable {
            self.writes.flushers.of(log).wake_for(levels::NOW);
        }
        Ok(header.csn)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Running,
    /// About to draw the CSN: the log stays.
    Committing,
    Committed(Csn),
    /// The log is not kept any more.
    Revoked,
}

#[derive(Debug)]
struct Pin {
    id: u64,
    /// The chunks have higher CSNs.
    above: Csn,
    phase: Phase,
    /// Row operations in all chunks.
    operations: u64,
    /// Bytes of their records.
    bytes: u64,
}

/// See the module's text.
#[derive(Debug)]
pub struct Pins {
    /// Most bytes that pins alone may keep after a checkpoint.
    most: u64,
    /// The pins in the order of announcement, so `above` ascends; and the number of pins ever made.
    pins: Mutex<(Vec<Pin>, u64)>,
}

impl Pins {
    pub fn new(most: u64) -> Pins {
        Pins { most, pins: Mutex::new((Vec::new(), 0)) }
    }

    fn announce(&self, newest_drawn: impl FnOnce() -> Csn) -> u64 {
        let mut pins = self.pins.lock();
        pins.1 += 1;
        let id = pins.1;
        debug_assert!(pins.0.last().is_none_or(|last| last.id < id), "pins are in the order of announcement");
        // Under the lock: the next cover finds the pin, and one before it covers no
        // more than has been drawn.
        let above = newest_drawn();
        debug_assert!(pins.0.last().is_none_or(|last| last.above <= above), "`above` ascends");
        pins.0.push(Pin { id, above, phase: Phase::Running, operations: 0, bytes: 0 });
        id
    }

    /// A chunk was appended.
    fn count(&self, id: u64, chunk: Record<'_>) {
        if let Some(pin) = self.pins.lock().0.iter_mut().find(|pin| pin.id == id) {
            pin.operations += u64::from(chunk.operations);
            pin.bytes += record_bytes(chunk.body.len()) as u64;
        }
    }

    /// Returns operations, and bytes of records, of the chunks of transactions in progress.
    pub fn in_progress(&self) -> (u64, u64) {
        let pins = self.pins.lock();
        let running = pins.0.iter().filter(|pin| matches!(pin.phase, Phase::Running | Phase::Committing));
        running.fold((0, 0), |(operations, bytes), pin| (operations + pin.operations, bytes + pin.bytes))
    }

    /// The transaction has ended. The pin of one that committed stays until a checkpoint contains
    /// it.
    fn release(&self, id: u64) {
        self.pins.lock().0.retain(|pin| pin.id != id || matches!(pin.phase, Phase::Committed(_)));
    }

    fn set(&self, id: u64, phase: Phase) {
        debug_assert!(
            self.pins.lock().0.iter().all(|pin| pin.id != id || pin.phase == Phase::Committing),
            "a pin that commits is not revoked meanwhile"
        );
        if let Some(pin) = self.pins.lock().0.iter_mut().find(|pin| pin.id == id) {
            pin.phase = phase;
        }
    }

    fn check(&self, id: u64) -> Result<()> {
        let pins = self.pins.lock();
        match pins.0.iter().find(|pin| pin.id == id).map(|pin| pin.phase) {
            Some(Phase::Revoked) | None => Err(self.revoked()),
            Some(_) => Ok(()),
        }
    }

    fn begin_commit(&self, id: u64) -> Result<Committing<'_>> {
        let mut pins = self.pins.lock();
        match pins.0.iter_mut().find(|pin| pin.id == id && pin.phase != Phase::Revoked) {
            Some(pin) => pin.phase = Phase::Committing,
            None => return Err(self.revoked()),
        }
        Ok(Committing { pins: self, id, phase: Phase::Running })
    }

    fn revoked(&self) -> Error {
        let what = format!(
            "the transaction was given up: more than {} bytes of log would have had to be kept for it until its end",
            self.most
        );
        Error::new(ErrorKind::OutOfMemory, what).at(Location::Setting("log_bytes_max"))
    }

    /// Returns up to where a checkpoint at `checkpoint` covers the log. `kept` returns how many
    /// bytes are kept because of a pin above some CSN alone.
    pub fn cover(&self, checkpoint: Csn, kept: &dyn Fn(Csn) -> u64) -> Csn {
        let pins = &mut self.pins.lock().0;
        pins.retain(|pin| !matches!(pin.phase, Phase::Committed(csn) if csn <= checkpoint));
        loop {
            let pinned = |pin: &&mut Pin| pin.phase != Phase::Revoked && !planted::is(Bug::ChunksNotPinned);
            let Some(oldest) = pins.iter_mut().find(pinned) else {
                return checkpoint;
            };
            let covered = oldest.above.min(checkpoint);
            debug_assert!(oldest.phase != Phase::Revoked, "the log is not kept for a revoked pin");
            if oldest.phase != Phase::Running || kept(covered) <= self.most {
                return covered;
            }
            oldest.phase = Phase::Revoked;
            tracing::warn!(above = covered.0, "a transaction that keeps too much of the log is given up");
        }
    }
}

/// While it lives the pin is not revoked.
struct Committing<'a> {
    pins: &'a Pins,
    id: u64,
    phase: Phase,
}

impl Committing<'_> {
    fn committed(mut self, csn: Csn) {
        self.phase = Phase::Committed(csn);
    }
}

impl Drop for Committing<'_> {
    fn drop(&mut self) {
        self.pins.set(self.id, self.phase);
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
