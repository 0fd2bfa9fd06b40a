//! Rank 4: when may we say committed?
//!
//! A transaction that asks to commit is **pre-committed** ([`Commit::precommit`]): it draws a CSN and its redo record is
//! in a log buffer; its effects are visible and it can no longer abort. It is **hardened** when its record is durable, and
//! **committed** when everything it depends on is durable as well: when its DSN is below the watermark W.
//!
//! ```text
//!             latch: draw, append, enqueue            write          W := min(..)
//!   precommit ------------------------------> log ----------> durable ----------> committed
//!                 blocking: the committer itself writes, or sleeps while another leads   (leader)
//!                 asynchronous: the flusher thread, or the worker's own queue            (flusher, worker)
//! ```
//!
//! One code path with different numbers serves all presets; see `presets`. The parts:
//!
//! | file | question |
//! |---|---|
//! | `presets` | which protocol runs, and what contradicts itself? |
//! | `layout`, `fragments` | how many logs are there, and how does a transaction get a record into several? |
//! | `dependency` | what does a transaction wait for besides its own record? |
//! | `exact` | which transactions above W are committed, by what they really depend on? |
//! | `gsn` | how far are all logs durable, by their clocks? |
//! | `watermark` | which CSNs are durable, everywhere? |
//! | `queue` | which transactions wait without a thread? |
//! | `writer` | what does one log owe the device, and who writes? |
//! | `precommit` | how does a record get its CSN and its place? |
//! | `chunks` | how does redo get into the log before its transaction asks to commit? |
//! | `leader` | how does a waiter cause the writes it needs? |
//! | `cohort` | is it worth waiting for those who come back? |
//! | `flusher` | who writes when nobody waits, or where committers only sleep? |
//! | `worker` | what does a worker do between transactions? |
//! | `stealing` | how does one write take the bytes of several logs? |
//! | `passive` | what if a record is durable in memory? |
//! | `acknowledge` | what happens when a write has completed, and who tells? |
//! | `sharing` | does one flush serve the writes of several logs? |
//! | `threads` | which threads has it of its own? |
//! | `deadline` | what if a write never completes? |
//! | `waiters`, `levels`, `poison`, `metrics` | how futures learn of it; due times; failure; cost |
//!
//! # Guarantees
//! 1. A call says "committed" only if the record and everything below the DSN is durable as the device promises (I1, I5).
//! 2. A waiter causes the writes it needs; no timer stands between it and the device (I14), but for those that were asked for: a
//!    leader's gather window, and the interval of `queued`. Bounded loss is flushed in time without further calls. Idle means asleep.
//! 3. After a failed write nothing is acknowledged but what was durable before: other waiters get `OutcomeUnknown`, new commits `Poisoned` (I11).
//! 4. After the CSN is drawn nothing can fail: whatever may be refused is refused before (I2, rule 2).
//!
//! Left out on purpose: barriers for idle logs. A log that has nothing volatile does not hold W back (see `watermark`); what idle workers left
//! is written by the flusher, or by a neighbour.

mod acknowledge;
mod chunks;
mod cohort;
mod deadline;
mod dependency;
mod exact;
mod flusher;
mod fragments;
mod gsn;
mod layout;
mod leader;
mod levels;
pub mod metrics;
mod passive;
mod poison;
mod precommit;
pub mod presets;
mod queue;
mod sharing;
mod stealing;
mod threads;
mod waiters;
mod watermark;
mod worker;
mod writer;

#[cfg(all(test, not(loom)))]
mod tests;

pub use chunks::Chunks;
pub use metrics::CommitMetrics;
pub use precommit::{Pending, Record};
pub use queue::Predecessors;
pub use threads::PoisonOnPanic;
pub use waiters::WakerPlace;

use crate::base::clock::{Clock, Nanos};
use crate::base::settings::{Dependency, Settings};
use crate::base::{Csn, Epoch, Error, ErrorKind, LogId, Result};
use crate::device::Storage;
use crate::device::mapped::MemoryFacts;
use crate::log::memory::LogMemory;
use crate::log::{ChainEnd, Log, SegmentPool};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Event, Mutex, thread};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use chunks::Pins;
use deadline::Deadline;
use exact::Undecided;
use flusher::Flusher;
use gsn::Clocks;
use poison::Poison;
use presets::Axes;
use sharing::Sharing;
use stealing::Neighbours;
use waiters::Wakers;
use watermark::Watermark;
use writer::LogWriter;

/// Most queue entries of all logs together. The default is as many transactions as the ring of CSNs lets be undecided, halved because
/// blocking committers need none. A model checker pays for every word.
const QUEUE_ENTRIES: usize = if cfg!(feature = "shuttle") { 64 } else { 32_768 };
/// All queues together take at most this part of all memory.
const QUEUE_PART: u64 = 128;
const QUEUE_ENTRIES_PER_LOG_MIN: usize = if cfg!(feature = "shuttle") { 16 } else { 1024 };

/// What a pre-committed transaction holds: enough to find out whether it is committed, now or later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket {
    /// The log that holds its record.
    pub log: LogId,
    /// Its own CSN.
    pub csn: Csn,
    /// The highest CSN it depends on.
    pub dsn: Csn,
    /// It has no record, and `dsn` is the only one it depends on.
    pub is_exact: bool,
}

/// What the room asks of those above it.
pub struct Hooks {
    /// Log space runs short: start a checkpoint or so. Called by committers that wait; must not block.
    pub on_log_pressure: Box<dyn Fn() + Send + Sync>,
    /// A checkpoint would give back a good part of the page store's reserve.
    pub is_checkpoint_worthwhile: Box<dyn Fn() -> bool + Send + Sync>,
    /// Read-write transactions in progress that have not asked to commit, about. Asked by a leader that may gather followers.
    pub in_progress: Box<dyn Fn() -> usize + Send + Sync>,
}

impl Default for Hooks {
    fn default() -> Self {
        Hooks {
            on_log_pressure: Box::new(|| ()),
            is_checkpoint_worthwhile: Box::new(|| false),
            in_progress: Box::new(|| usize::MAX),
        }
    }
}

/// What the room starts from.
pub struct Start {
    /// Where the logs lie.
    pub storage: Arc<dyn Storage>,
    /// The logs, in the order of their ids, which are 0, 1, 2...
    pub logs: Vec<Arc<Log>>,
    /// Mapped memory for their buffers, if they have it.
    pub memory: Option<Arc<LogMemory>>,
    /// Their segments.
    pub segments: Arc<SegmentPool>,
    /// The next CSN to be drawn; everything below is durable.
    pub first_csn: Csn,
    /// The epoch of the records.
    pub epoch: Epoch,
    /// Time.
    pub clock: Clock,
    /// What to ask of those above.
    pub hooks: Hooks,
}

/// The commit room of a database. See the module's text.
pub struct Commit {
    core: Arc<Core>,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
}

/// What committers, waiters and the flusher thread share.
struct Core {
    axes: Axes,
    /// See [`Core::delegates_to_flusher`].
    max_leader_waiters: usize,
    epoch: Epoch,
    clock: Clock,
    hooks: Hooks,
    storage: Arc<dyn Storage>,
    segments: Arc<SegmentPool>,
    memory: Option<Arc<LogMemory>>,
    watermark: Watermark,
    undecided: Undecided,
    /// For the rules that go by them.
    clocks: Option<Clocks>,
    /// Blocks that became durable.
    completions: AtomicU64,
    writers: Box<[LogWriter]>,
    neighbours: Neighbours,
    sharing: Sharing,
    poison: Poison,
    /// One, or one for each log.
    flushers: Box<[Flusher]>,
    /// When the first flusher has to acknowledge what others left. Lowered by whoever completes, raised by the flusher.
    acknowledge_due: AtomicU64,
    deadline: Deadline,
    wakers: Wakers,
    pins: Pins,
    /// Happens when any log's lead is free, hence after W may have risen.
    progress: Event,
    /// Happens when log space may have become free.
    space: Event,
    /// The newest CSN acknowledged as committed. Raised by whoever acknowledges.
    acknowledged: AtomicU64,
    /// A commit was acknowledged before it was durable, at least once.
    returned_early: AtomicBool,
    /// No new transaction may commit. Read under each latch.
    closing: AtomicBool,
    metrics: Arc<CommitMetrics>,
}

impl Commit {
    /// Starts the room and its flusher threads.
    ///
    /// # Errors
    /// `InvalidArgument` if the logs are not numbered 0, 1, 2...; I/O if no thread can be started.
    pub fn start(settings: &Settings, start: Start) -> Result<Arc<Commit>> {
        if start.logs.is_empty() || start.logs.iter().enumerate().any(|(i, log)| log.id().0 as usize != i) {
            return Err(Error::invalid("logs are numbered from 0 without gaps"));
        }
        let core = Arc::new(Core::new(settings, start));
        // If a later one cannot be started, the earlier ones are ended.
        let commit = Arc::new(Commit { core, threads: Mutex::new(Vec::new()) });
        commit.start_threads()?;
        Ok(commit)
    }

    /// Flushes everything, commits in flight included, refuses new ones, and ends the threads, but for what a hanging write holds. Handles can be waited for
    /// afterwards.
    ///
    /// # Errors
    /// `Poisoned` if a write or flush failed, now or earlier. The room is closed all the same.
    pub fn close(&self) -> Result<()> {
        self.core.closing.store(true, Ordering::SeqCst);
        // Whoever holds a latch may not have seen it; whoever takes one later does. So the newest CSN is final.
        self.core.writers.iter().for_each(|writer| drop(writer.log.lock()));
        let flushed = self.core.flush_all();
        self.end_threads();
        self.core.acknowledge_all(true);
        self.core.wake_all();
        self.core.wakers.end();
        flushed
    }

    /// Makes a transaction's redo record part of the log, under a new CSN. From here on the transaction cannot abort.
    ///
    /// `preparing` runs under the log's latch just before the draw (rule 8: the descriptor becomes PREPARING); it must
    /// not block, allocate, or panic.
    ///
    /// # Errors
    /// All before the draw, so that the transaction may still abort: `Poisoned`; `OutOfSpace` if no log space became free
    /// in time; `InvalidArgument` for a closed database.
    pub fn precommit(
        &self,
        log: LogId,
        record: Record<'_>,
        pending: Pending,
        preparing: impl FnOnce(),
    ) -> Result<Ticket> {
        self.core.precommit(log, record, pending, preparing)
    }

    /// As [`Commit::precommit`], for a caller that holds what others need: instead of waiting for room it returns `None`.
    /// Then let go, call [`Commit::await_room`], and try again.
    ///
    /// # Errors
    /// `Poisoned`; `InvalidArgument` for a closed database.
    pub fn precommit_now(
        &self,
        log: LogId,
        record: Record<'_>,
        pending: Pending,
        preparing: impl FnOnce(),
    ) -> Result<Option<Ticket>> {
        self.core.precommit_now(log, record, pending, preparing)
    }

    /// Waits until a record with a body of `body_len` bytes, whose committer waits, would find room. Others may take it first.
    ///
    /// # Errors
    /// As [`Commit::precommit`].
    pub fn await_room(&self, log: LogId, body_len: usize) -> Result<()> {
        self.core.await_room(log, body_len, true)
    }

    /// The disk is full: has a checkpoint made if it would make room for pages, and waits for it. False if there is no hope.
    #[must_use]
    pub fn await_checkpoint(&self) -> bool {
        if (self.core.hooks.is_checkpoint_worthwhile)() {
            return self.core.segments.await_checkpoint(precommit::SPACE_WAIT);
        }
        // Whoever makes checkpoints also asks a full disk again.
        self.core.segments.filled().notify_all();
        false
    }

    /// Waits until a transaction that pre-committed with [`Pending::waits`] is committed, and counts it.
    ///
    /// # Errors
    /// `OutcomeUnknown` if a write or flush failed.
    pub fn finish(&self, ticket: Ticket, pending: Pending) -> Result<()> {
        self.core.finish(ticket, pending)
    }

    /// Waits until the transactions of all `tickets` are committed, at most `timeout`.
    ///
    /// # Errors
    /// `OutcomeUnknown` if a write or flush failed; `Timeout`: then it may be waited for again.
    pub fn wait(&self, tickets: impl IntoIterator<Item = Ticket>, timeout: Option<Duration>) -> Result<()> {
        let (deadline, _inside) = (self.core.deadline(timeout), self.inside("who waited for a commit"));
        tickets.into_iter().try_for_each(|ticket| self.core.await_committed(ticket, deadline))
    }

    /// Waits at level durable until everything that a read-write transaction without writes read is committed, and counts it.
    ///
    /// # Errors
    /// `Poisoned` if a write or flush failed.
    pub fn finish_read_only(&self, pending: Pending) -> Result<()> {
        self.core.finish_read_only(pending)
    }

    /// Queues a transaction without a record, to be counted when what it read is committed.
    ///
    /// # Errors
    /// As [`Commit::precommit`].
    pub fn enqueue_read_only(&self, log: LogId, pending: Pending) -> Result<()> {
        self.core.enqueue_read_only(log, pending)
    }

    /// What a transaction without a record waits for that was queued from `log`.
    #[must_use]
    pub fn tickets_of_reader(&self, log: LogId, pending: &Pending) -> Vec<Ticket> {
        let ticket = |dsn, is_exact| Ticket { log, csn: Csn::ZERO, dsn, is_exact };
        match pending.predecessors.all() {
            Some(read) if self.core.axes.lists_predecessors() => {
                read.iter().map(|csn| ticket(*csn, true)).collect()
            }
            _ => vec![ticket(pending.dsn, false)],
        }
    }

    /// True if the transaction of `ticket` is committed.
    #[must_use]
    pub fn is_committed_ticket(&self, ticket: Ticket) -> bool {
        self.core.is_committed_ticket(ticket)
    }

    /// For a future: the outcome if it is known; otherwise `waker` is woken when it is, instead of the one that was left at `place`, and the
    /// writes that this needs are caused.
    pub fn poll(&self, ticket: Ticket, waker: &Waker, place: &mut WakerPlace) -> Option<Result<()>> {
        self.core.poll(ticket, waker, place)
    }

    /// Waits until `csn`, whose version somebody read, is committed. Causes the writes this needs (rule 5). From then on it counts as
    /// acknowledged: who read it may tell others.
    ///
    /// # Errors
    /// `Poisoned` if a write or flush failed; `InvalidArgument` if it was never drawn.
    pub fn wait_committed(&self, csn: Csn) -> Result<()> {
        self.core.await_version(csn)?;
        self.core.acknowledged_up_to(csn);
        Ok(())
    }

    /// Waits until every CSN up to `csn` is durable, causing the writes that takes. From then on they count as acknowledged.
    ///
    /// # Errors
    /// `Poisoned` if a write or flush failed.
    pub fn wait_watermark(&self, csn: Csn) -> Result<()> {
        self.core.await_settled(csn, ErrorKind::Poisoned, None)?;
        self.core.acknowledged_up_to(csn);
        if self.core.is_passive() {
            // Who fences for others tells nobody.
            self.core.publish();
        }
        Ok(())
    }

    /// True if `csn` is committed (rule 7).
    #[must_use]
    pub fn is_committed(&self, csn: Csn) -> bool {
        self.core.is_committed(csn)
    }

    /// True if a transaction that depends on `csn` might have to wait for it by the dependency rule. One log orders them anyway.
    #[inline]
    #[must_use]
    pub fn may_be_waited_for(&self, csn: Csn) -> bool {
        self.core.axes.dependency != Dependency::LogOrder && !self.core.is_committed(csn)
    }

    /// The newest CSN that was drawn.
    #[must_use]
    pub fn newest_drawn(&self) -> Csn {
        self.core.watermark.newest_drawn()
    }

    /// A CSN at or above every one whose committer was told that it committed, early returns included (rule 10).
    #[must_use]
    pub fn newest_acknowledged(&self) -> Csn {
        self.core.newest_acknowledged()
    }

    /// W: every CSN strictly below is durable.
    #[must_use]
    pub fn watermark(&self) -> Csn {
        self.core.watermark.get()
    }

    /// The newest CSN below W, in one order with the pins of snapshots. None that is taken from now on is older.
    #[must_use]
    pub fn newest_settled(&self) -> Csn {
        self.core.watermark.newest_settled()
    }

    /// Every CSN strictly below is durable in a segment: W, unless log buffers are in mapped memory.
    #[must_use]
    pub fn watermark_in_segments(&self) -> Csn {
        self.core.watermark_in_segments()
    }

    /// What is known of the mapped memory that log buffers are in, if they are.
    #[must_use]
    pub fn memory_facts(&self) -> Option<MemoryFacts> {
        self.core.memory.as_ref().map(|memory| memory.mapped().facts())
    }

    /// How far each log is durable in segments: for whoever checks what they hold.
    #[must_use]
    pub fn durable_ends(&self) -> Vec<ChainEnd> {
        let ends = self.core.writers.iter().map(|writer| {
            let (sequence, last_csn) = writer.log.lock().durable_end();
            ChainEnd { log: writer.id, epoch: self.core.epoch, sequence, last_csn, dense: true }
        });
        ends.collect()
    }

    /// The epoch of the records written now.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.core.epoch
    }

    /// To be called by a thread that uses `log` when it has ended a transaction that began at `begun`: reaps and submits writes where
    /// workers do that, and gives up the CPU now and then, unless it `waited` for the commit.
    pub fn end_of_transaction(&self, log: LogId, begun: Nanos, now: Nanos, waited: bool) {
        self.core.end_of_transaction(log, begun, now);
        // A wait that short was none: the device answered at once.
        let slept = waited && self.core.clock.now().since(now) >= worker::SLEPT;
        if !slept {
            self.core.yield_now_and_then(log, now);
        }
    }

    /// Makes everything that was drawn so far durable. From then on it counts as acknowledged.
    ///
    /// # Errors
    /// `Poisoned` if a write or flush failed, now or earlier.
    pub fn flush_all(&self) -> Result<()> {
        self.core.flush_all()
    }

    /// The first failed write or flush, if there was one.
    #[must_use]
    pub fn poisoned(&self) -> Option<Error> {
        self.core.poison.cause()
    }

    /// The point on the axes that runs.
    #[must_use]
    pub fn axes(&self) -> &Axes {
        &self.core.axes
    }

    /// Logs that workers write for each other; 1 if they do not.
    #[must_use]
    pub fn stealing_group(&self) -> usize {
        self.core.neighbours.group()
    }

    /// What commits cost.
    #[must_use]
    pub fn metrics(&self) -> &Arc<CommitMetrics> {
        &self.core.metrics
    }

    /// Log bytes in use.
    #[must_use]
    pub fn log_bytes(&self) -> u64 {
        self.core.segments.bytes_in_use()
    }

    /// Bytes of all files of the log: what recovery would read.
    #[must_use]
    pub fn log_file_bytes(&self) -> u64 {
        self.core.segments.file_bytes()
    }

    /// Gives back log space up to `covered`, of the durable checkpoint at `checkpoint`, and lets committers go on that wait for space.
    ///
    /// # Errors
    /// I/O of the segment pool.
    pub fn recycle(&self, covered: Csn, checkpoint: Csn) -> Result<()> {
        let recycled = self.core.segments.recycle(covered, checkpoint);
        self.core.space.notify_all();
        recycled
    }
}

impl Core {
    fn new(settings: &Settings, start: Start) -> Core {
        let logs = start.logs.len();
        let affordable = (settings.memory_bytes / QUEUE_PART / queue::ENTRY_BYTES) as usize;
        let most = QUEUE_ENTRIES.min(settings.queue_entries).min(affordable);
        let entries = (most / logs).max(QUEUE_ENTRIES_PER_LOG_MIN);
        let mut axes = Axes::of(&Settings { logs, ..settings.clone() });
        if start.storage.facts().direct_io.is_err() {
            // The page cache tells the error of one write to another's flush.
            axes.writes_in_flight = 1;
        }
        if let Some(memory) = &start.memory {
            start.logs.iter().for_each(|log| log.attach(memory.buffers_of(log.id(), logs, start.epoch)));
        }
        let writer = |log| LogWriter::new(log, &axes, entries);
        Core {
            sharing: Sharing::new(axes.shared_flush, start.storage.shares_flush(crate::log::DIRECTORY)),
            epoch: start.epoch,
            clock: start.clock,
            hooks: start.hooks,
            storage: start.storage,
            segments: start.segments,
            memory: start.memory,
            watermark: Watermark::new(logs, start.first_csn),
            undecided: Undecided::new(if axes.dependency == Dependency::LogOrder { 0 } else { logs }),
            writers: start.logs.into_iter().map(writer).collect(),
            neighbours: Neighbours::new(&axes, logs),
            clocks: axes.goes_by_clocks().then(|| Clocks::new(logs)),
            completions: AtomicU64::new(0),
            poison: Poison::new(),
            flushers: (0..axes.flushers(logs)).map(|_| Flusher::new()).collect(),
            acknowledge_due: AtomicU64::new(levels::NEVER.0),
            deadline: Deadline::new(settings.write_deadline),
            wakers: Wakers::default(),
            pins: Pins::new(settings.chunked_log_bytes(logs)),
            progress: Event::new(),
            space: Event::new(),
            acknowledged: AtomicU64::new(start.first_csn.0.saturating_sub(1)),
            returned_early: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            metrics: Arc::new(CommitMetrics::default()),
            max_leader_waiters: leader::max_leader_waiters(&axes),
            axes,
        }
    }

    /// How often `writer`'s log is written at the moment if nobody waits.
    fn interval(&self, writer: &LogWriter) -> Duration {
        levels::interval(&self.axes, writer.cohort.mean_write())
    }

    fn writer(&self, log: LogId) -> &LogWriter {
        &self.writers[log.0 as usize]
    }

    fn flusher_of(&self, writer: &LogWriter) -> &Flusher {
        &self.flushers[writer.id.0 as usize % self.flushers.len()]
    }

    /// False once they were told to stop: waiters then write for themselves.
    fn flushers_run(&self) -> bool {
        self.flushers[0].is_running()
    }

    fn wake_flushers(&self) {
        self.flushers.iter().for_each(|flusher| flusher.wake_for(levels::NOW));
    }

    /// Wakes those that write logs which hold W back at or below `csn`, for transactions in queues. The first flusher looks for these again, soon:
    /// a log that has announced itself below may be about to draw above, or to be fenced or appended to, and whoever does so tells nobody.
    fn wake_flushers_behind(&self, csn: Csn) {
        self.schedule_acknowledgment(levels::after(self.clock.now(), flusher::GRACE));
        if let [the_only] = &*self.flushers {
            return the_only.wake_for(levels::NOW);
        }
        for writer in self.writers.iter().filter(|writer| self.watermark.holds_back(writer.id, csn)) {
            self.flusher_of(writer).wake_for(levels::NOW);
        }
    }

    fn deadline(&self, timeout: Option<Duration>) -> Option<Nanos> {
        timeout.map(|t| levels::after(self.clock.now(), t))
    }
}
