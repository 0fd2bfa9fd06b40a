//! What does one log owe the device, and who is writing it?
//!
//! A [`LogWriter`] is one log as the commit room sees it. Its life in one picture:
//!
//! ```text
//!   append (latch)  ->  unsealed bytes  -- take_block (latch) -->  block in flight  -- complete (latch) -->  durable
//!                             \-- sealed at once if blocks are bounded --> sealed list --/
//! ```
//!
//! Invariants:
//! 1. `lead`: at most one thread at a time writes this log's blocks, unless committers write their own
//!    (`Writer::Committer`) or a worker left blocks in its queue; completion then comes in any order, and the log
//!    advances its durable CSN over the gap-free prefix of block sequences only, never by time.
//! 2. Whoever gives up the lead does so first and notifies `event` second. A waiter takes its event ticket before it
//!    tries to lead. So a waiter that found the lead taken is woken when it is free, and nobody is stranded between two
//!    leaders. [`Leader`] does both when it is dropped, whatever happened.
//! 3. `due` is lowered by appends and waiters, and raised to "never" only under the latch by the thread that takes
//!    everything there is: nothing appended is ever left without its due time.

use super::cohort::Cohort;
use super::levels::NEVER;
use super::presets::Axes;
use super::queue::{OutOfOrder, PendingQueue};
use super::stealing::Piggybacked;
use crate::base::clock::Nanos;
use crate::base::planted::{self, Bug};
use crate::base::{Csn, LogId, Result};
use crate::device::WriteQueue;
use crate::log::{Log, LogGuard, SealedBlock};
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::sync::{Event, Mutex};
use crossbeam_utils::CachePadded;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Blocks that may be sealed before anybody writes them; a log has fewer buffers than that.
const SEALED_BLOCKS: usize = 64;

/// Full buffers that committers seal ahead of the writer, at most. Records longer than a buffer bring their own memory,
/// so the number of log buffers alone would not bound them.
const SEALED_AHEAD_MAX: u32 = 3;

/// See the module's text.
pub(super) struct LogWriter {
    pub id: LogId,
    pub log: Arc<Log>,
    /// Transactions of this log that nobody waits with.
    pub queue: PendingQueue,
    /// Those of them that let others pass.
    pub out_of_order: OutOfOrder,
    /// Happens when blocks of this log became durable, or its lead is free.
    pub event: Event,
    /// Happens when a block is full, so that a leader need not gather any longer.
    pub full: Event,
    /// Who is expected to join the next write.
    pub cohort: Cohort,
    /// Written under the latch, except `due`, which waiters lower too.
    pub flush_request: CachePadded<FlushRequest>,
    lead: AtomicBool,
    sealed: Mutex<VecDeque<SealedBlock>>,
    /// Blocks in `sealed`.
    sealed_count: AtomicU32,
    last_write: [AtomicU64; 2],
    worker: Mutex<Option<Box<dyn WriteQueue>>>,
    /// Writes that it may have in flight.
    writes_in_flight: usize,
    /// Writes in `worker`. Written under its mutex.
    in_flight: AtomicU32,
    /// When a worker last looked for completions.
    polled: AtomicU64,
    /// How far this log was durable, and W, when a worker last looked whom to acknowledge.
    looked: [AtomicU64; 2],
    /// Blocks of this log in writes of others. Raised under the latch, lowered when such a write has completed.
    stolen: AtomicU32,
    /// What the writes in `worker` carry besides their own block, by token. Under the lead.
    piggybacked: Mutex<Vec<(u64, Vec<Piggybacked>)>>,
    /// Writes of this log's queue and threads that have begun, and of these, those that have ended. Not those of others that carry its blocks.
    writes: [AtomicU64; 2],
    /// The lowest CSN in `piggybacked` or about to be: lowered before the owner's latch is let go, raised when it has landed.
    lowest_piggybacked: AtomicU64,
}

/// What appends leave for those who write.
#[derive(Debug)]
pub(super) struct FlushRequest {
    due: AtomicU64,
    /// The highest DSN of a durable, asynchronous transaction of this log: somebody has to get W past it.
    needs: AtomicU64,
    /// The same for transactions of bounded loss, when the oldest of these is due: until then nobody writes for them.
    required_later: AtomicU64,
    requirement_due: AtomicU64,
    /// The newest CSN that was acknowledged to its caller before it was durable.
    told: AtomicU64,
    /// Records appended since the last seal.
    unsealed_records: AtomicU32,
}

/// The right to write a log's blocks. Dropping it wakes whoever may want to lead next.
pub(super) struct Leader<'a> {
    writer: &'a LogWriter,
    release: &'a dyn LeaderObserver,
    /// The thread was unwinding already when it got the lead.
    unwinding: bool,
}

/// Who has to know that a lead is free.
pub(super) trait LeaderObserver {
    /// `writer`'s lead is free, and `woke` tells if waking its sleepers took a system call. `panicked`: whoever had it panicked in the middle.
    fn leader_resigned(&self, writer: &LogWriter, woke: bool, panicked: bool);
}

impl LogWriter {
    /// Nothing is appended to `log` yet.
    pub(super) fn new(log: Arc<Log>, axes: &Axes, queue_entries: usize) -> LogWriter {
        LogWriter {
            id: log.id(),
            log,
            queue: PendingQueue::new(axes.queue, queue_entries),
            out_of_order: OutOfOrder::default(),
            event: Event::new(),
            full: Event::new(),
            cohort: Cohort::new(),
            flush_request: CachePadded::new(FlushRequest::none()),
            lead: AtomicBool::new(false),
            sealed: Mutex::new(VecDeque::with_capacity(SEALED_BLOCKS)),
            sealed_count: AtomicU32::new(0),
            last_write: [AtomicU64::new(0), AtomicU64::new(0)],
            worker: Mutex::new(None),
            writes_in_flight: axes.writes_in_flight,
            in_flight: AtomicU32::new(0),
            polled: AtomicU64::new(0),
            looked: [AtomicU64::new(0), AtomicU64::new(0)],
            stolen: AtomicU32::new(0),
            piggybacked: Mutex::new(Vec::new()),
            writes: [AtomicU64::new(0), AtomicU64::new(0)],
            lowest_piggybacked: AtomicU64::new(Csn::MAX.0),
        }
    }

    /// The lead, if it is free.
    pub(super) fn try_become_leader<'a>(&'a self, release: &'a dyn LeaderObserver) -> Option<Leader<'a>> {
        // The plain load keeps waiters that come in a herd from fighting for the cache line.
        let free = !self.lead.load(Ordering::SeqCst)
            && self.lead.compare_exchange(false, true, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        // Lazily: a `Leader` that is made and dropped would release the lead of whoever has it.
        free.then(|| Leader { writer: self, release, unwinding: std::thread::panicking() })
    }

    /// True while somebody leads.
    pub(super) fn has_leader(&self) -> bool {
        self.lead.load(Ordering::SeqCst)
    }

    /// The oldest block that nobody writes yet; everything unsealed becomes one if there is none.
    pub(super) fn take_block(&self) -> Option<SealedBlock> {
        self.take_block_and(|_, _| ()).map(|(block, ())| block)
    }

    /// The same; `then` sees the block before the latch is let go.
    pub(super) fn take_block_and<R>(
        &self,
        then: impl FnOnce(&mut LogGuard<'_>, &SealedBlock) -> R,
    ) -> Option<(SealedBlock, R)> {
        let mut latch = self.log.lock();
        let mut sealed = self.sealed.lock();
        let block = sealed.pop_front();
        let block = match block {
            Some(block) => {
                self.sealed_count.store(sealed.len() as u32, Ordering::SeqCst);
                Some(block)
            }
            // What is in mapped memory is sealed when its buffer is full.
            None if latch.is_in_memory() => None,
            None => self.seal(&mut latch),
        };
        let left = self.log.unsealed_bytes() > 0;
        if sealed.is_empty() && (!left || latch.is_in_memory() && latch.first_volatile_csn().is_none()) {
            self.flush_request.due.store(NEVER.0, Ordering::SeqCst);
        }
        drop(sealed);
        block.map(|block| {
            let result = then(&mut latch, &block);
            (block, result)
        })
    }

    /// All that was appended is in a block that another log carries.
    pub(super) fn stolen_from(&self, latch: &LogGuard<'_>) {
        self.cohort.leaves(latch);
        self.flush_request.unsealed_records.store(0, Ordering::Relaxed);
        self.flush_request.due.store(NEVER.0, Ordering::SeqCst);
        self.stolen.fetch_add(1, Ordering::SeqCst);
    }

    /// The write of a block of this log that another carries has ended.
    pub(super) fn stolen_ended(&self) {
        self.stolen.fetch_sub(1, Ordering::SeqCst);
    }

    /// True if all that is under way of this log is in writes of others, as far as one can see without the latch.
    pub(super) fn is_only_piggybacked(&self) -> bool {
        self.stolen.load(Ordering::SeqCst) > 0 && !self.has_unwritten() && self.in_flight() == 0
    }

    /// A block with this CSN is going to be piggybacked. Before the latch of its log is let go.
    pub(super) fn will_piggyback(&self, first_csn: Csn) {
        self.lowest_piggybacked.fetch_min(first_csn.0, Ordering::SeqCst);
    }

    /// The lowest CSN of other logs that this one's writes carry; the highest there is if they carry nothing.
    pub(super) fn lowest_piggybacked(&self) -> Csn {
        Csn(self.lowest_piggybacked.load(Ordering::SeqCst))
    }

    /// The write called `token` carries these. The caller leads.
    pub(super) fn load(&self, token: u64, piggybacked: Vec<Piggybacked>) {
        self.piggybacked.lock().push((token, piggybacked));
    }

    /// What the write called `token` carries.
    pub(super) fn unload(&self, token: u64) -> Vec<Piggybacked> {
        let mut all = self.piggybacked.lock();
        let at = all.iter().position(|(of, _)| *of == token);
        at.map(|at| all.swap_remove(at).1).unwrap_or_default()
    }

    /// What was unloaded has landed. The caller leads.
    pub(super) fn landed(&self) {
        let all = self.piggybacked.lock();
        let left = all.iter().flat_map(|(_, piggybacked)| piggybacked).map(Piggybacked::first_csn).min();
        self.lowest_piggybacked.store(left.unwrap_or(Csn::MAX).0, Ordering::SeqCst);
    }

    /// The sealed block that ends with `csn`, if nobody writes it yet; otherwise the oldest one below, because `csn` is
    /// durable only when that is.
    pub(super) fn take_block_for(&self, csn: Csn) -> Option<SealedBlock> {
        let _latch = self.log.lock();
        let mut sealed = self.sealed.lock();
        let own = sealed.iter().position(|block| block.last_csn == csn);
        let at = own.or_else(|| sealed.iter().position(|block| block.last_csn < csn))?;
        let block = sealed.remove(at);
        self.sealed_count.store(sealed.len() as u32, Ordering::SeqCst);
        if sealed.is_empty() && self.log.unsealed_bytes() == 0 {
            // Otherwise the next one would be due later than this, and nobody would be woken for it.
            self.flush_request.due.store(NEVER.0, Ordering::SeqCst);
        }
        block
    }

    fn seal(&self, latch: &mut LogGuard<'_>) -> Option<SealedBlock> {
        self.flush_request.unsealed_records.store(0, Ordering::Relaxed);
        self.cohort.leaves(latch);
        latch.seal()
    }

    /// Counts a record that was just appended; seals the block if it has enough. True if it did.
    pub(super) fn count_record(&self, latch: &mut LogGuard<'_>, records_per_block: u32) -> bool {
        let count = self.flush_request.unsealed_records.load(Ordering::Relaxed) + 1;
        self.flush_request.unsealed_records.store(count, Ordering::Relaxed);
        if count < records_per_block {
            return false;
        }
        self.seal_full(latch)
    }

    /// Seals what was appended, for whoever leads next; false if there is nothing. The block is counted before its bytes no longer are:
    /// a flusher that looks in between, without the latch, would find nothing to write, and sleep.
    pub(super) fn seal_full(&self, latch: &mut LogGuard<'_>) -> bool {
        let mut sealed = self.sealed.lock();
        let before = sealed.len();
        self.sealed_count.store(before as u32 + 1, Ordering::SeqCst);
        sealed.extend(self.seal(latch));
        self.sealed_count.store(sealed.len() as u32, Ordering::SeqCst);
        sealed.len() > before
    }

    /// True if there is something that nobody writes yet.
    pub(super) fn has_unwritten(&self) -> bool {
        self.log.unsealed_bytes() > 0 || self.has_sealed()
    }

    /// True if a block is sealed that nobody writes yet.
    pub(super) fn has_sealed(&self) -> bool {
        self.sealed_count.load(Ordering::SeqCst) > 0
    }

    /// True if a transaction waits that nobody waits with.
    pub(super) fn has_pending(&self) -> bool {
        !self.queue.is_empty() || !self.out_of_order.is_empty()
    }

    /// True if so few blocks wait to be written that another one may be sealed ahead.
    pub(super) fn has_few_sealed(&self) -> bool {
        self.sealed_count.load(Ordering::SeqCst) < SEALED_AHEAD_MAX
    }

    /// A write of this log begins.
    pub(super) fn write_begins(&self, now: Nanos) {
        self.writes[0].fetch_add(1, Ordering::SeqCst);
        self.piggyback_begins(now);
    }

    /// A write of this log has ended.
    pub(super) fn write_ended(&self, now: Nanos) {
        self.writes[1].fetch_add(1, Ordering::SeqCst);
        self.piggyback_ended(now);
    }

    /// A write of another log begins that carries a block of this one.
    pub(super) fn piggyback_begins(&self, now: Nanos) {
        self.last_write[0].store(now.0, Ordering::Relaxed);
    }

    /// Such a write has ended.
    pub(super) fn piggyback_ended(&self, now: Nanos) {
        self.last_write[1].store(now.0, Ordering::Relaxed);
    }

    /// Writes that have begun, and those of them that have ended.
    pub(super) fn writes(&self) -> (u64, u64) {
        // In this order: what has ended is not taken for under way.
        let ended = self.writes[1].load(Ordering::SeqCst);
        (self.writes[0].load(Ordering::SeqCst), ended)
    }

    /// When the last write began and when one last ended.
    pub(super) fn last_write(&self) -> (Nanos, Nanos) {
        let [begun, ended] = &self.last_write;
        (Nanos(begun.load(Ordering::Relaxed)), Nanos(ended.load(Ordering::Relaxed)))
    }

    /// Runs `f` on the worker's queue, made by `make` at first use.
    ///
    /// # Errors
    /// Those of `make` and `f`.
    pub(super) fn with_worker_queue<R>(
        &self,
        make: impl FnOnce(usize) -> Result<Box<dyn WriteQueue>>,
        f: impl FnOnce(&mut dyn WriteQueue) -> Result<R>,
    ) -> Result<R> {
        let mut worker = self.worker.lock();
        // Before the queue, so that it is dropped behind it, which waits for what is on its way.
        let lost = WithQueue(self);
        let mut queue = match worker.take() {
            Some(queue) => queue,
            None => make(self.writes_in_flight)?,
        };
        let result = f(&mut *queue);
        std::mem::forget(lost);
        self.in_flight.store(queue.in_flight() as u32, Ordering::SeqCst);
        *worker = Some(queue);
        result
    }

    /// Writes in the worker's queue.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::SeqCst) as usize
    }

    /// True if nobody has looked for completions for `every`; then somebody does now.
    pub(super) fn poll_is_due(&self, now: Nanos, every: Duration) -> bool {
        let due = now.since(Nanos(self.polled.load(Ordering::Relaxed))) >= every;
        if due {
            self.polled.store(now.0, Ordering::Relaxed);
        }
        due
    }

    /// True if this log is durable further than it was, or `others`, which tells how far the others are, is higher than when a worker
    /// asked last.
    pub(super) fn has_changed(&self, others: u64) -> bool {
        let now = [self.log.durable_csn().0, others];
        let news = self.looked.iter().zip(now).any(|(looked, now)| looked.load(Ordering::Relaxed) != now);
        if news {
            self.looked.iter().zip(now).for_each(|(looked, now)| looked.store(now, Ordering::Relaxed));
        }
        news
    }

    /// True if a worker may submit another write to its queue.
    pub(super) fn worker_may_submit(&self) -> bool {
        self.in_flight() < self.writes_in_flight
    }
}

impl FlushRequest {
    fn none() -> FlushRequest {
        let zero = || AtomicU64::new(0);
        let never = || AtomicU64::new(NEVER.0);
        FlushRequest {
            due: never(),
            needs: zero(),
            required_later: zero(),
            requirement_due: never(),
            told: zero(),
            unsealed_records: AtomicU32::new(0),
        }
    }

    /// When this log has to be written although nobody waits.
    pub(super) fn due(&self) -> Nanos {
        Nanos(self.due.load(Ordering::SeqCst))
    }

    /// Makes the log due at `due`, unless it is earlier. True if that changed anything.
    pub(super) fn lower_due(&self, due: Nanos) -> bool {
        due.0 < self.due.load(Ordering::Relaxed) && self.due.fetch_min(due.0, Ordering::SeqCst) > due.0
    }

    /// A record was appended, which makes the log due at `due`; `was_empty` if nothing was unwritten before. Returns when the flusher
    /// has to write, if it may not know. A first record is told of even if it does not make the log due earlier: somebody may have demanded it
    /// between its draw and its append, when there was nothing to write yet and the flusher went to sleep again.
    pub(super) fn due_after_append(&self, due: Nanos, was_empty: bool) -> Option<Nanos> {
        if !was_empty {
            return self.lower_due(due).then_some(due);
        }
        // Behind the append, which whoever demands sees, or is seen here.
        let before = Nanos(self.due.fetch_min(due.0, Ordering::SeqCst));
        Some(due.min(before)).filter(|due| *due != NEVER)
    }

    /// A durable, asynchronous transaction waits for W to pass `dsn`.
    pub(super) fn require_watermark(&self, dsn: Csn) {
        if dsn.0 > self.needs.load(Ordering::Relaxed) {
            self.needs.fetch_max(dsn.0, Ordering::SeqCst);
        }
    }

    /// A transaction of bounded loss waits for W to pass `csn` from `due` on. Under the latch, before the flusher is told of the record.
    pub(super) fn require_watermark_later(&self, csn: Csn, due: Nanos) {
        self.required_later.fetch_max(csn.0, Ordering::SeqCst);
        self.requirement_due.fetch_min(due.0, Ordering::SeqCst);
    }

    /// When transactions of bounded loss begin to wait for W.
    pub(super) fn requirement_due(&self) -> Nanos {
        Nanos(self.requirement_due.load(Ordering::SeqCst))
    }

    /// They do now, if that is before `horizon`; whoever comes later has a time of his own. True if there were any.
    pub(super) fn take_due_requirement(&self, horizon: Nanos) -> bool {
        if self.requirement_due() > horizon {
            return false;
        }
        // In the other order than above: of one that comes just now the need or the time is found.
        self.requirement_due.store(NEVER.0, Ordering::SeqCst);
        if !planted::is(Bug::NeedsForgotten) {
            self.require_watermark(Csn(self.required_later.load(Ordering::SeqCst)));
        }
        true
    }

    /// The highest CSN that a transaction of this log waits for.
    pub(super) fn required_watermark(&self) -> Csn {
        Csn(self.needs.load(Ordering::SeqCst))
    }

    /// The caller of `csn` is told before it is durable. Under the latch.
    pub(super) fn acknowledge_early(&self, csn: Csn) {
        self.told.store(csn.0, Ordering::SeqCst);
    }

    /// The newest CSN whose caller was told before it was durable.
    pub(super) fn acknowledged_early(&self) -> Csn {
        Csn(self.told.load(Ordering::SeqCst))
    }
}

/// A worker's queue that panicked is gone, and nobody reaps what was in it.
struct WithQueue<'a>(&'a LogWriter);

impl Drop for WithQueue<'_> {
    fn drop(&mut self) {
        let lost = self.0.in_flight.swap(0, Ordering::SeqCst);
        self.0.writes[1].fetch_add(lost.into(), Ordering::SeqCst);
    }
}

impl<'a> Leader<'a> {
    /// The log whose blocks may be written.
    pub(super) fn writer(&self) -> &'a LogWriter {
        self.writer
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        self.writer.lead.store(false, Ordering::SeqCst);
        let woke = self.writer.event.notify_all();
        let panicked = std::thread::panicking() && !self.unwinding;
        self.release.leader_resigned(self.writer, woke, panicked);
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests {
    use super::*;

    #[test]
    fn whoever_makes_a_log_due_earlier_is_told_so() {
        let flush_request = FlushRequest::none();
        assert!(flush_request.lower_due(Nanos(50)));
        assert!(!flush_request.lower_due(Nanos(50)) && !flush_request.lower_due(Nanos(60)));
        assert_eq!(flush_request.due(), Nanos(50));
        assert!(flush_request.lower_due(Nanos(40)));
        assert_eq!(flush_request.due(), Nanos(40));
    }

    #[test]
    fn the_flusher_is_told_of_the_first_record_and_of_one_that_is_due_earlier() {
        let flush_request = FlushRequest::none();
        assert_eq!(flush_request.due_after_append(NEVER, true), None, "nobody waits");
        assert_eq!(flush_request.due_after_append(Nanos(50), false), Some(Nanos(50)));
        assert_eq!(flush_request.due_after_append(Nanos(60), false), None);
        assert_eq!(flush_request.due_after_append(Nanos(40), false), Some(Nanos(40)));
        // Demanded when there was nothing to write.
        assert_eq!(flush_request.due_after_append(Nanos(60), true), Some(Nanos(40)));
        assert_eq!(flush_request.due_after_append(NEVER, true), Some(Nanos(40)));
    }

    #[test]
    fn what_is_needed_only_rises() {
        let flush_request = FlushRequest::none();
        flush_request.require_watermark(Csn(5));
        flush_request.require_watermark(Csn(3));
        assert_eq!(flush_request.required_watermark(), Csn(5));
        flush_request.require_watermark(Csn(6));
        assert_eq!(flush_request.required_watermark(), Csn(6));
        flush_request.acknowledge_early(Csn(4));
        assert_eq!(flush_request.acknowledged_early(), Csn(4));
    }
}
