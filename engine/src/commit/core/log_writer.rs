//! One log as the commit layer sees it: append, leader, writes in flight, flush requests.
//!
//! ```text
//!   append (latch) -> unsealed bytes -- take_block (latch) --> block in flight -- complete (latch) --> durable
//!                          \-- sealed ahead if the buffer is full --> sealed list --/
//! ```
//!
//! Invariants:
//! 1. At most one thread at a time writes this log's blocks: its leader. A worker may leave blocks
//!    in its queue and resign; completion then comes in any order, and the log advances its durable
//!    CSN over the gap-free prefix of block sequences only, never by time.
//! 2. A leader resigns first and notifies `event` second. A waiter takes its event ticket before it
//!    tries to become leader. So a waiter that found another leader is woken when that one resigns,
//!    and no waiter is stranded between two leaders. [`Leader`] does both when it is dropped,
//!    whatever happened.
//! 3. `due` is lowered by appends and waiters, and raised to "never" only under the latch by the
//!    thread that takes or seals everything there is: no appended record is ever left without its
//!    due time, and a sealed block is due at once.

use super::cohort::Cohort;
use super::levels::{NEVER, NOW};
use super::unflushed::Unflushed;
use crate::base::clock::Nanos;
use crate::base::planted::{self, Bug};
use crate::base::{Csn, LogId};
use crate::log::{Log, LogGuard, SealedBlock};
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::sync::{Event, Mutex};
use crossbeam_utils::CachePadded;
use std::collections::VecDeque;
use std::sync::Arc;

/// Sealed blocks that may wait to be written; a log has fewer buffers than that.
const SEALED_BLOCKS: usize = 64;

/// Full buffers that committers seal ahead of the writes, at most. Records longer than a buffer
/// bring their own memory, so the number of log buffers alone would not bound them.
const SEALED_AHEAD_MAX: u32 = 3;

/// See the module's text.
pub struct LogWriter {
    pub id: LogId,
    pub log: Arc<Log>,
    /// Notified when blocks of this log became durable, or when its leader has resigned.
    pub event: Event,
    /// Notified when a block is full, so that a leader need not gather any longer.
    pub full: Event,
    /// The commits that are expected to join the next write.
    pub cohort: Cohort,
    /// Written under the latch, except `due`, which waiters lower too.
    pub flush_request: CachePadded<FlushRequest>,
    /// Blocks that are written and not durable.
    pub unflushed: Unflushed,
    leader: AtomicBool,
    sealed: Mutex<VecDeque<SealedBlock>>,
    /// Blocks in `sealed`.
    sealed_count: AtomicU32,
    /// Writes that a thread left in flight. Written by the thread with their queue.
    in_flight: AtomicU32,
    /// Blocks in writes of other logs. Raised under the latch, lowered when such a write has
    /// completed.
    carried: AtomicU32,
    /// When the last write with a block of this log began.
    write_began: AtomicU64,
    /// When the write began that was the last to end, and when it ended.
    ended_began: AtomicU64,
    write_ended: AtomicU64,
    /// Bytes written to this log's segments, padding and blocks of other logs included.
    written_bytes: AtomicU64,
    /// Writes by this log's leader and queue. Not those of other logs that carry its blocks.
    writes_started: AtomicU64,
    writes_completed: AtomicU64,
}

/// The requests that appends leave for the threads that write.
#[derive(Debug)]
pub struct FlushRequest {
    /// When the log has to be written.
    due: AtomicU64,
    /// The highest CSN that W has to pass for a durable, asynchronous transaction of this log.
    required: AtomicU64,
    /// The watermark that bounded-loss transactions require, from `requirement_due` on.
    required_later: AtomicU64,
    requirement_due: AtomicU64,
    /// Records appended since the last seal.
    unsealed_records: AtomicU32,
    /// A sealed block is due at once, although `due` is later. Used under the latch.
    sealed_is_due: AtomicBool,
}

/// The right to write a log's blocks. Dropping it wakes the threads that may want to become leader.
pub struct Leader<'a> {
    log: &'a LogWriter,
    observer: &'a dyn LeaderObserver,
    /// The thread was unwinding already when it became leader.
    unwinding: bool,
}

/// Learns that a leader has resigned.
pub trait LeaderObserver {
    /// The leader of `log` has resigned. `woke`: waking its sleepers took a system call.
    /// `panicked`: the leader panicked during its work.
    fn leader_resigned(&self, log: &LogWriter, woke: bool, panicked: bool);
}

impl LogWriter {
    /// Returns the writer of `log`, to which nothing is appended yet.
    pub fn new(log: Arc<Log>) -> LogWriter {
        LogWriter {
            id: log.id(),
            log,
            event: Event::new(),
            full: Event::new(),
            cohort: Cohort::new(),
            flush_request: CachePadded::new(FlushRequest::none()),
            unflushed: Unflushed::new(),
            leader: AtomicBool::new(false),
            sealed: Mutex::new(VecDeque::with_capacity(SEALED_BLOCKS)),
            sealed_count: AtomicU32::new(0),
            in_flight: AtomicU32::new(0),
            carried: AtomicU32::new(0),
            write_began: AtomicU64::new(0),
            ended_began: AtomicU64::new(0),
            write_ended: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            writes_started: AtomicU64::new(0),
            writes_completed: AtomicU64::new(0),
        }
    }

    /// Makes the caller the leader if the log has none.
    pub fn try_become_leader<'a>(&'a self, observer: &'a dyn LeaderObserver) -> Option<Leader<'a>> {
        // The plain load keeps waiters that arrive together from fighting for the cache line.
        let free = !self.leader.load(Ordering::SeqCst)
            && self.leader.compare_exchange(false, true, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        // Lazily: a `Leader` that is made and dropped would depose the leader that there is.
        free.then(|| Leader { log: self, observer, unwinding: std::thread::panicking() })
    }

    /// Returns whether a thread leads this log.
    pub fn has_leader(&self) -> bool {
        self.leader.load(Ordering::SeqCst)
    }

    /// Takes the oldest block that waits to be written. If there is none, seals everything appended
    /// and takes that.
    pub fn take_block(&self) -> Option<SealedBlock> {
        self.take_block_and(|_, _| ()).map(|(block, ())| block)
    }

    /// As [`LogWriter::take_block`], for a write after which the log is due as before, or at once:
    /// the block does not become durable with it.
    pub fn take_block_and_keep_due(&self) -> Option<SealedBlock> {
        self.take(false, |_, _| ()).map(|(block, ())| block)
    }

    /// As [`LogWriter::take_block`]; `then` sees the block under the latch.
    pub fn take_block_and<R>(
        &self,
        then: impl FnOnce(&mut LogGuard<'_>, &SealedBlock) -> R,
    ) -> Option<(SealedBlock, R)> {
        self.take(true, then)
    }

    fn take<R>(
        &self,
        becomes_durable: bool,
        then: impl FnOnce(&mut LogGuard<'_>, &SealedBlock) -> R,
    ) -> Option<(SealedBlock, R)> {
        let mut latch = self.log.lock();
        let mut sealed = self.sealed.lock();
        let block = match sealed.pop_front() {
            Some(block) => {
                self.sealed_count.store(sealed.len() as u32, Ordering::SeqCst);
                if self.flush_request.sealed_is_due.load(Ordering::SeqCst) {
                    self.flush_request.sealed_is_due.store(!sealed.is_empty(), Ordering::SeqCst);
                    if !becomes_durable {
                        // It was due at once as a sealed block, and after its write only this says
                        // so.
                        self.flush_request.lower_due(NOW);
                    }
                }
                Some(block)
            }
            // Records in mapped memory are sealed when their buffer is full.
            None if latch.is_in_memory() => None,
            None => self.seal(&mut latch),
        };
        let left = self.log.unsealed_bytes() > 0;
        let takes_all =
            sealed.is_empty() && (!left || latch.is_in_memory() && latch.first_volatile_csn().is_none());
        if takes_all && becomes_durable {
            self.flush_request.due.store(NEVER.0, Ordering::SeqCst);
        }
        drop(sealed);
        block.map(|block| {
            let result = then(&mut latch, &block);
            (block, result)
        })
    }

    /// Takes the sealed block that ends with `csn`, if it waits to be written; otherwise the oldest
    /// one below, because `csn` is durable only when that block is.
    pub fn take_block_for(&self, csn: Csn) -> Option<SealedBlock> {
        let _latch = self.log.lock();
        let mut sealed = self.sealed.lock();
        let own = sealed.iter().position(|block| block.last_csn == csn);
        debug_assert!(
            sealed.iter().is_sorted_by(|a, b| a.sequence < b.sequence && a.last_csn < b.first_csn),
            "sealed blocks wait in the order of their sequences"
        );
        let at = own.or_else(|| sealed.iter().position(|block| block.last_csn < csn))?;
        let block = sealed.remove(at);
        self.sealed_count.store(sealed.len() as u32, Ordering::SeqCst);
        if sealed.is_empty() && self.log.unsealed_bytes() == 0 {
            // Otherwise the next record would not make the log due earlier, and would wake no
            // flusher.
            self.flush_request.due.store(NEVER.0, Ordering::SeqCst);
        }
        block
    }

    fn seal(&self, latch: &mut LogGuard<'_>) -> Option<SealedBlock> {
        self.flush_request.unsealed_records.store(0, Ordering::Relaxed);
        self.cohort.sealed(latch);
        latch.seal()
    }

    /// Counts a record that was just appended. Returns how many there are since the last seal.
    pub fn count_record(&self, _latch: &LogGuard<'_>) -> u32 {
        let count = self.flush_request.unsealed_records.load(Ordering::Relaxed) + 1;
        self.flush_request.unsealed_records.store(count, Ordering::Relaxed);
        count
    }

    /// Returns how many records were counted since the last seal.
    pub fn counted_records(&self) -> u32 {
        self.flush_request.unsealed_records.load(Ordering::Relaxed)
    }

    /// Seals everything appended, to be written by the next leader. Returns false if there is
    /// nothing. The block is counted before its bytes no longer are: otherwise a flusher that looks
    /// in between, without the latch, would find nothing to write, and sleep.
    pub fn seal_ahead(&self, latch: &mut LogGuard<'_>) -> bool {
        let mut sealed = self.sealed.lock();
        let before = sealed.len();
        self.sealed_count.store(before as u32 + 1, Ordering::SeqCst);
        sealed.extend(self.seal(latch));
        debug_assert!(
            sealed.iter().is_sorted_by(|a, b| a.sequence < b.sequence),
            "sealed blocks wait in the order of their sequences"
        );
        self.sealed_count.store(sealed.len() as u32, Ordering::SeqCst);
        sealed.len() > before
    }

    /// Returns the CSN up to which every record is written, durable or not.
    pub fn written_csn(&self) -> Csn {
        self.log.durable_csn().max(self.unflushed.written())
    }

    /// Returns whether something waits to be written.
    pub fn has_unwritten(&self) -> bool {
        self.log.unsealed_bytes() > 0 || self.has_sealed()
    }

    /// Returns whether a sealed block waits to be written.
    pub fn has_sealed(&self) -> bool {
        self.sealed_count.load(Ordering::SeqCst) > 0
    }

    /// Returns whether so few sealed blocks wait that another one may be sealed ahead.
    pub fn has_few_sealed(&self) -> bool {
        self.sealed_count.load(Ordering::SeqCst) < SEALED_AHEAD_MAX
    }

    /// Everything appended is in a block that another log's write carries.
    pub fn is_carried(&self, latch: &LogGuard<'_>) {
        self.cohort.sealed(latch);
        self.flush_request.unsealed_records.store(0, Ordering::Relaxed);
        self.flush_request.due.store(NEVER.0, Ordering::SeqCst);
        self.carried.fetch_add(1, Ordering::SeqCst);
    }

    /// The write of another log with a block of this one has ended.
    pub fn carried_ended(&self) {
        let before = self.carried.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0, "a block that is carried was counted");
    }

    /// Returns whether all that is in flight of this log is in writes of others, as far as can be
    /// seen without the latch.
    pub fn is_only_carried(&self) -> bool {
        self.carried.load(Ordering::SeqCst) > 0 && !self.has_unwritten() && self.in_flight() == 0
    }

    /// A write of this log begins.
    pub fn write_begins(&self, now: Nanos) {
        self.writes_started.fetch_add(1, Ordering::SeqCst);
        self.carrier_begins(now);
    }

    /// A write of this log that began at `begun` has ended.
    pub fn write_ends(&self, begun: Nanos, now: Nanos) {
        self.writes_completed.fetch_add(1, Ordering::SeqCst);
        debug_assert!(begun <= now, "a write ends after it began");
        debug_assert!(
            self.writes_completed.load(Ordering::SeqCst) <= self.writes_started.load(Ordering::SeqCst),
            "a write that ends was started"
        );
        self.carrier_ends(begun, now);
    }

    /// A write of another log begins that carries a block of this one.
    pub fn carrier_begins(&self, now: Nanos) {
        self.write_began.store(now.0, Ordering::Relaxed);
    }

    /// Such a write has ended.
    pub fn carrier_ends(&self, begun: Nanos, now: Nanos) {
        self.ended_began.store(begun.0, Ordering::Relaxed);
        self.write_ended.store(now.0, Ordering::Relaxed);
    }

    /// Counts the bytes of a write to this log's segments.
    pub fn count_written(&self, bytes: usize) {
        self.written_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Returns the bytes written to this log's segments.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }

    /// Returns how many writes were started, and how many of them have ended.
    pub fn writes(&self) -> (u64, u64) {
        // In this order: a write that has ended is not taken for one in flight.
        let completed = self.writes_completed.load(Ordering::SeqCst);
        (self.writes_started.load(Ordering::SeqCst), completed)
    }

    /// Returns since when no write has completed although one is in flight; `None` if none is.
    pub fn stands_since(&self) -> Option<Nanos> {
        let (started, completed) = self.writes();
        let last = self.write_began.load(Ordering::Relaxed).max(self.write_ended.load(Ordering::Relaxed));
        (started > completed).then_some(Nanos(last))
    }

    /// Returns when the last write began.
    pub fn last_write_began(&self) -> Nanos {
        Nanos(self.write_began.load(Ordering::Relaxed))
    }

    /// Returns when the last write that has ended began and ended.
    pub fn last_ended_write(&self) -> (Nanos, Nanos) {
        (Nanos(self.ended_began.load(Ordering::Relaxed)), Nanos(self.write_ended.load(Ordering::Relaxed)))
    }

    /// Returns how many writes a thread left in flight, in a queue.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::SeqCst) as usize
    }

    /// So many writes are in the queue now.
    pub fn set_in_flight(&self, writes: usize) {
        self.in_flight.store(writes as u32, Ordering::SeqCst);
    }

    /// The queue is gone, and no thread will complete its writes.
    pub fn lose_writes_in_flight(&self) {
        let lost = self.in_flight.swap(0, Ordering::SeqCst);
        self.writes_completed.fetch_add(lost.into(), Ordering::SeqCst);
    }
}

impl FlushRequest {
    fn none() -> FlushRequest {
        let zero = || AtomicU64::new(0);
        let never = || AtomicU64::new(NEVER.0);
        FlushRequest {
            due: never(),
            required: zero(),
            required_later: zero(),
            requirement_due: never(),
            unsealed_records: AtomicU32::new(0),
            sealed_is_due: AtomicBool::new(false),
        }
    }

    /// Returns when the log has to be written although no thread waits.
    pub fn due(&self) -> Nanos {
        Nanos(self.due.load(Ordering::SeqCst))
    }

    /// Makes the log due at `due`, unless it is due earlier. Returns whether that changed anything.
    pub fn lower_due(&self, due: Nanos) -> bool {
        due.0 < self.due.load(Ordering::Relaxed) && self.due.fetch_min(due.0, Ordering::SeqCst) > due.0
    }

    /// Makes the log due at `due` because of a record that was appended; `was_empty`: nothing was
    /// unwritten before. Returns when the flusher has to write, if it may not know. A first record
    /// is reported even if it does not make the log due earlier: a waiter may have demanded it
    /// between its draw and its append, when the flusher found nothing to write and went back to
    /// sleep.
    pub fn due_after_append(&self, due: Nanos, was_empty: bool) -> Option<Nanos> {
        if !was_empty {
            return self.lower_due(due).then_some(due);
        }
        // After the append: a waiter that demands it sees the record, or its demand is seen here.
        let before = Nanos(self.due.fetch_min(due.0, Ordering::SeqCst));
        Some(due.min(before)).filter(|due| *due != NEVER)
    }

    /// Everything appended is sealed, and sealed blocks are due at once: what is appended next has
    /// a due time of its own, so that a full buffer causes no write of the next one.
    pub fn all_sealed(&self, _latch: &LogGuard<'_>) {
        self.due.store(NEVER.0, Ordering::SeqCst);
        self.sealed_is_due.store(true, Ordering::SeqCst);
    }

    /// A durable, asynchronous transaction waits for W to pass `csn`.
    pub fn require_watermark(&self, csn: Csn) {
        if csn.0 > self.required.load(Ordering::Relaxed) {
            self.required.fetch_max(csn.0, Ordering::SeqCst);
        }
    }

    /// A transaction of bounded loss waits for W to pass `csn` from `due` on. Under the latch,
    /// before the flusher is woken for the record.
    pub fn require_watermark_later(&self, csn: Csn, due: Nanos) {
        self.required_later.fetch_max(csn.0, Ordering::SeqCst);
        self.requirement_due.fetch_min(due.0, Ordering::SeqCst);
    }

    /// Returns when transactions of bounded loss begin to wait for W.
    pub fn requirement_due(&self) -> Nanos {
        Nanos(self.requirement_due.load(Ordering::SeqCst))
    }

    /// Turns the requirement of bounded loss into one for now, if it is due before `horizon`.
    /// Returns whether it was.
    pub fn take_due_requirement(&self, horizon: Nanos) -> bool {
        if self.requirement_due() > horizon {
            return false;
        }
        // In the other order than above: of a concurrent transaction the CSN or the time is found.
        self.requirement_due.store(NEVER.0, Ordering::SeqCst);
        if !planted::is(Bug::NeedsForgotten) {
            self.require_watermark(Csn(self.required_later.load(Ordering::SeqCst)));
        }
        true
    }

    /// Returns the highest CSN that W has to pass for a queued transaction of this log.
    pub fn required_watermark(&self) -> Csn {
        Csn(self.required.load(Ordering::SeqCst))
    }
}

impl<'a> Leader<'a> {
    /// Returns the log whose blocks the caller may write.
    pub fn log(&self) -> &'a LogWriter {
        self.log
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        debug_assert!(self.log.leader.load(Ordering::Relaxed), "only the leader resigns");
        self.log.leader.store(false, Ordering::SeqCst);
        let woke = self.log.event.notify_all();
        let panicked = std::thread::panicking() && !self.unwinding;
        self.observer.leader_resigned(self.log, woke, panicked);
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
