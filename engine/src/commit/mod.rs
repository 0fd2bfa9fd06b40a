//! Rank 4: when may a transaction be called committed?
//!
//! **The life of a commit.** A transaction that asks to commit is *pre-committed*
//! ([`Commit::precommit`]): under its log's latch it draws a CSN and appends its redo record to a
//! log buffer. From here on it cannot abort; its effects are visible, and its locks are released.
//! Nothing is durable yet, so a transaction that reads or overwrites its versions depends on it. If
//! the thread waits ([`Commit::finish`]), it causes a write of its log, as the protocol says, or
//! sleeps until another thread has written. If not, the transaction is queued, and a flusher or a
//! worker writes. A write takes everything that was appended so far. When it has completed, the
//! transaction is *hardened*: the log's durable prefix has passed its record. The watermark W is
//! the CSN below which every record of every log is durable. A hardened transaction is *committed*
//! when its dependency rule says so: by default, when its DSN, the highest CSN it depends on, is
//! below W. Then it is *acknowledged*: its thread returns, its future is woken, its queue entry is
//! popped.
//!
//! ```text
//!             latch: draw, append, enqueue            write          W := min(..)
//!   precommit ------------------------------> log ----------> durable ----------> committed
//!                 blocking: the committer leads, follows, or sleeps             } see `protocol`
//!                 asynchronous: a flusher, or the worker's own queue            }
//! ```
//!
//! # Guarantees
//! 1. A call says "committed" only if the record and everything below the DSN is durable as the
//!    device promises (I1, I5).
//! 2. A waiter causes the writes it needs, and no timer stands between it and the device (I14),
//!    except those that were asked for: a leader's gather window, and the interval of `queued`.
//!    Bounded loss is flushed in time without further calls. An idle database has no awake thread.
//! 3. After a failed write nothing is acknowledged but what was durable before: other waiters get
//!    `OutcomeUnknown`, new commits `Poisoned` (I11).
//! 4. After the CSN is drawn nothing can fail: whatever may be refused is refused before (I2, rule
//!    2).
//!
//! A log that has nothing volatile does not hold W back (see `watermark`), so idle logs need no
//! barrier transactions; `stragglers` can bring those back to measure them.

mod axes;
mod levels;
mod poison;
pub mod metrics;
mod watermark;
mod predecessors;
mod dependency;
mod pending;
mod environment;
mod dice;
mod idle;
mod cohort;
mod unflushed;
mod log_writer;
mod stragglers;
mod durability;
mod flushers;
mod waiters;
mod failure;
mod acknowledge;
mod schedule;
mod sharing;
mod stealing;
mod deadline;
mod writes;
mod written;
mod side_by_side;
mod mapped;
mod workers;
mod protocol;
mod layout;
pub mod presets;
mod waiting;
mod feed_source;
mod append;
mod consolidate;
mod chunks;
mod fragments;
mod flusher;
mod threads;
mod start;

#[cfg(all(test, not(loom)))]
mod tests;

pub use chunks::{ChunkLog, Chunks};
pub use environment::Hooks;
pub use failure::PoisonOnPanic;
pub use feed_source::FeedSource;
pub use idle::IdleTimes;
pub use layout::Shares;
pub use metrics::CommitMetrics;
pub use pending::{Pending, Record, Ticket};
pub use predecessors::Predecessors;
pub use start::Start;
pub use waiters::WakerPlace;

use crate::base::clock::Nanos;
use crate::base::settings::{Durability as Level, Settings};
use crate::base::{Csn, Error, ErrorKind, Gsn, LogId, PageId, Result};
use crate::device::mapped::MemoryFacts;
use crate::log::{ChainEnd, SegmentPool};
use crate::sync::atomic::Ordering;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use acknowledge::Acknowledgments;
use append::Appending;
use axes::Axes;
use chunks::Pins;
use dependency::Clocks;
use durability::Durability;
use environment::Environment;
use failure::Failure;
use log_writer::LogWriter;
use mapped::MappedLogs;
use protocol::{Parts, Protocol};
use sharing::Sharing;
use threads::Threads;
use waiting::Waiting;
use workers::Workers;
use writes::Writes;
use written::Written;

/// The commit layer of a database: its components. See the module's text.
pub struct Commit {
    environment: Arc<Environment>,
    durability: Arc<Durability>,
    acknowledgments: Arc<Acknowledgments>,
    failure: Arc<Failure>,
    writes: Arc<Writes>,
    mapped: Arc<MappedLogs>,
    sharing: Arc<Sharing>,
    protocol: Arc<dyn Protocol>,
    waiting: Arc<Waiting>,
    feed_source: Arc<FeedSource>,
    appending: Appending,
    pins: Arc<Pins>,
    workers: Workers,
    threads: Threads,
}

impl Commit {
    /// Starts the commit layer and its flusher threads.
    ///
    /// # Errors
    /// `InvalidArgument` if the logs are not numbered 0, 1, 2...; I/O if no thread can be started.
    pub fn start(settings: &Settings, start: Start) -> Result<Arc<Commit>> {
        if start.logs.is_empty() || start.logs.iter().enumerate().any(|(i, log)| log.id().0 as usize != i) {
            return Err(Error::invalid("logs are numbered from 0 without gaps"));
        }
        let commit = Arc::new(Commit::new(settings, start));
        // If a later thread cannot be started, dropping this ends the earlier ones.
        commit.threads.start(&commit.mapped, &commit.sharing)?;
        Ok(commit)
    }

    fn new(settings: &Settings, start: Start) -> Commit {
        let count = start.logs.len();
        let mut axes = Axes::of(&Settings { logs: count, ..settings.clone() });
        axes.threads_in_a_row = Axes::of(settings).threads_in_a_row;
        if start.storage.facts().direct_io.is_err() {
            // The page cache reports the error of one write to another's flush.
            axes.writes_in_flight = 1;
        }
        let sharing = Arc::new(Sharing::new(axes.shared_flush, start.storage.shares_flush()));
        let writes = Arc::new(start::components(settings, start, &axes));
        let Writes { environment, durability, acknowledgments, failure, .. } = &*writes;
        let mapped = (environment.clone(), durability.clone(), acknowledgments.clone());
        let mapped = Arc::new(MappedLogs::new(mapped.0, mapped.1, mapped.2, axes.memory_fence));
        let parts =
            Parts { writes: writes.clone(), mapped: mapped.clone(), sharing: sharing.clone(), axes: &axes };
        let protocol = (protocol::page_of(settings, axes.writer).start)(parts);
        let waiting = Arc::new(Waiting {
            environment: environment.clone(),
            durability: durability.clone(),
            acknowledgments: acknowledgments.clone(),
            writes: writes.clone(),
            mapped: mapped.clone(),
            protocol: protocol.clone(),
            written: Written::new(writes.clone(), settings.durable_every),
            queues_waiters: axes.queues_waiters,
        });
        let appending = Appending {
            axes,
            environment: environment.clone(),
            durability: durability.clone(),
            acknowledgments: acknowledgments.clone(),
            writes: writes.clone(),
            mapped: mapped.clone(),
            waiting: waiting.clone(),
            protocol: protocol.clone(),
        };
        let feed_source = Arc::new(FeedSource {
            environment: environment.clone(),
            durability: durability.clone(),
            mapped: mapped.clone(),
            waiting: waiting.clone(),
        });
        Commit {
            feed_source,
            environment: environment.clone(),
            durability: durability.clone(),
            acknowledgments: acknowledgments.clone(),
            failure: failure.clone(),
            threads: Threads::new(writes.clone()),
            writes,
            mapped,
            sharing,
            protocol,
            waiting,
            appending,
            workers: Workers::default(),
            pins: Arc::new(Pins::new(settings.chunked_log_bytes(count))),
        }
    }

    /// Flushes everything, commits in flight included, refuses new ones, and ends the threads, but
    /// for what a hanging write holds. Handles can be waited for afterwards.
    ///
    /// # Errors
    /// `Poisoned` if a write or flush failed, now or earlier. The layer is closed all the same.
    pub fn close(&self) -> Result<()> {
        self.environment.closing.store(true, Ordering::SeqCst);
        // A thread that holds a latch may not have seen it, and one that takes a latch later does.
        // So the newest CSN is final.
        self.durability.logs.iter().for_each(|log| drop(log.log.lock()));
        let flushed = self.waiting.flush_all();
        self.threads.end();
        self.acknowledgments.acknowledge_all(true);
        self.failure.wake_all();
        self.writes.wakers.end();
        flushed
    }

    /// Makes a transaction's redo record part of the log, under a new CSN. From here on the
    /// transaction cannot abort.
    ///
    /// `preparing` runs under the log's latch just before the draw (rule 8: the descriptor becomes
    /// PREPARING); it must not block, allocate, or panic. If it returns false, nothing is drawn and
    /// appended, and the result is `None`. With `append = consolidated` the thread that has the
    /// latch may call it.
    ///
    /// # Errors
    /// All before the draw, so that the transaction may still abort: `Poisoned`; `OutOfSpace` if no
    /// log space became free in time; `InvalidArgument` for a closed database. `OutcomeUnknown` if
    /// the thread that appends the record for this one panics.
    pub fn precommit(
        &self,
        log: LogId,
        record: Record<'_>,
        pending: Pending,
        preparing: impl FnOnce() -> bool + Send,
    ) -> Result<Option<Ticket>> {
        self.appending.precommit(log, record, pending, preparing)
    }

    /// As [`Commit::precommit`], for a caller that holds what other threads need. If the log has no
    /// room, returns `None` instead of waiting. The caller then releases what it holds, calls
    /// [`Commit::await_room`], and tries again.
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
        let preparing = || {
            preparing();
            true
        };
        self.appending.precommit_now(log, record, pending, preparing).map(Option::flatten)
    }

    /// Waits until a record with a body of `body_len` bytes, whose committer waits, would find
    /// room. Others may take it first.
    ///
    /// # Errors
    /// As [`Commit::precommit`].
    pub fn await_room(&self, log: LogId, body_len: usize) -> Result<()> {
        self.appending
            .reserve_record(self.durability.log(log), body_len, self.appending.axes.queues_waiters)
            .map(drop)
    }

    /// The disk is full: has a checkpoint made if it would make room for pages, and waits for it.
    /// False if there is no hope.
    #[must_use]
    pub fn await_checkpoint(&self) -> bool {
        self.appending.await_checkpoint()
    }

    /// The disk is full: gives up segments, and has logs leave long ones for the next checkpoint.
    pub fn give_up_log(&self) {
        self.appending.give_up_log();
    }

    /// Waits until a transaction that pre-committed with [`Pending::waits`] is committed, and
    /// counts it.
    ///
    /// # Errors
    /// `OutcomeUnknown` if a write or flush failed.
    pub fn finish(&self, ticket: Ticket, pending: Pending) -> Result<()> {
        self.waiting.finish(ticket, &pending)
    }

    /// Waits until a transaction of level written that pre-committed is written, and once in
    /// `durable_every` commits until it is durable.
    ///
    /// # Errors
    /// `OutcomeUnknown` if a write or flush failed.
    pub fn finish_written(&self, ticket: Ticket) -> Result<()> {
        self.waiting.finish_written(ticket)
    }

    /// Returns the level that a transaction of `level` has: written is durable where it would save
    /// nothing.
    #[inline]
    #[must_use]
    pub fn effective_level(&self, level: Level) -> Level {
        self.waiting.written.effective(level)
    }

    /// Waits until the transactions of all `tickets` are committed, at most `timeout`.
    ///
    /// # Errors
    /// `OutcomeUnknown` if a write or flush failed; `Timeout`: then it may be waited for again.
    pub fn wait(&self, tickets: impl IntoIterator<Item = Ticket>, timeout: Option<Duration>) -> Result<()> {
        let (deadline, _inside) =
            (self.environment.deadline(timeout), self.inside("a thread that waited for a commit"));
        tickets.into_iter().try_for_each(|ticket| self.waiting.await_committed(ticket, deadline))
    }

    /// Waits at level durable until everything that a read-write transaction without writes read is
    /// committed, and counts it.
    ///
    /// # Errors
    /// `Poisoned` if a write or flush failed.
    pub fn finish_read_only(&self, pending: Pending) -> Result<()> {
        self.waiting.finish_read_only(&pending)
    }

    /// Waits at level durable until everything that an aborted transaction observed is committed,
    /// because its caller learns something of it.
    ///
    /// # Errors
    /// `Poisoned` if that can no longer become durable.
    pub fn acknowledge_observed(&self, pending: &Pending) -> Result<()> {
        self.waiting.acknowledge_observed(pending)
    }

    /// Queues a transaction without a record, to be counted when what it read is committed.
    ///
    /// # Errors
    /// As [`Commit::precommit`].
    pub fn enqueue_read_only(&self, log: LogId, pending: Pending) -> Result<()> {
        self.appending.enqueue_read_only(log, &pending)
    }

    /// Returns the tickets that a transaction without a record, queued from `log`, waits for.
    #[must_use]
    pub fn tickets_of_reader(&self, log: LogId, pending: &Pending) -> Vec<Ticket> {
        let ticket = |dsn, is_exact| Ticket { log, csn: Csn::ZERO, dsn, is_exact };
        match pending.predecessors.all() {
            Some(read) if self.durability.lists_predecessors() => {
                read.iter().map(|csn| ticket(*csn, true)).collect()
            }
            _ => vec![ticket(pending.dsn, false)],
        }
    }

    /// Returns true if the transaction of `ticket` is committed.
    #[must_use]
    pub fn is_committed_ticket(&self, ticket: Ticket) -> bool {
        self.acknowledgments.is_committed(ticket)
    }

    /// For a future: the outcome if it is known; otherwise `waker` is woken when it is, instead of
    /// the one that was left at `place`, and the writes that this needs are caused.
    pub fn poll(&self, ticket: Ticket, waker: &Waker, place: &mut WakerPlace) -> Option<Result<()>> {
        self.waiting.poll(ticket, waker, place)
    }

    /// Waits until `csn`, whose version a transaction read, is committed. Causes the writes this
    /// needs (rule 5). From then on it counts as acknowledged.
    ///
    /// # Errors
    /// `Poisoned` if a write or flush failed; `InvalidArgument` if it was never drawn.
    pub fn wait_committed(&self, csn: Csn) -> Result<()> {
        self.waiting.await_version(csn)?;
        self.acknowledgments.acknowledged_up_to(csn);
        Ok(())
    }

    /// Waits until every CSN up to `csn` is durable, causing the writes that takes. From then on
    /// they count as acknowledged.
    ///
    /// # Errors
    /// `Poisoned` if a write or flush failed.
    pub fn wait_watermark(&self, csn: Csn) -> Result<()> {
        self.waiting.await_settled(csn, ErrorKind::Poisoned)?;
        self.acknowledgments.acknowledged_up_to(csn);
        if self.mapped.is_used() {
            // A thread that fences for others acknowledges nothing.
            self.acknowledgments.publish();
        }
        Ok(())
    }

    /// Returns true if `csn` is committed (rule 7).
    #[must_use]
    pub fn is_committed(&self, csn: Csn) -> bool {
        self.durability.is_committed(csn)
    }

    /// Returns whether a transaction that depends on `csn` may have to wait for it: not in one log.
    #[inline]
    #[must_use]
    pub fn may_be_waited_for(&self, csn: Csn) -> bool {
        self.durability.has_dependencies() && !self.durability.is_committed(csn)
    }

    /// Has the flushers write, now, what W needs to pass `csn`: see `Waiting::hasten`.
    pub fn hasten(&self, csn: Csn, is_urgent: bool) -> bool {
        self.waiting.hasten(csn, is_urgent)
    }

    /// The newest CSN that was drawn.
    #[must_use]
    pub fn newest_drawn(&self) -> Csn {
        self.durability.watermark.newest_drawn()
    }

    /// Returns a CSN at or above every acknowledged one, early returns included (rule 10).
    #[must_use]
    pub fn newest_acknowledged(&self) -> Csn {
        self.acknowledgments.newest_acknowledged()
    }

    /// W: every CSN strictly below is durable.
    #[must_use]
    pub fn watermark(&self) -> Csn {
        self.durability.watermark.get()
    }

    /// The newest CSN below W, in one order with the pins of snapshots. None that is taken from now
    /// on is older.
    #[must_use]
    pub fn newest_settled(&self) -> Csn {
        self.durability.watermark.newest_settled()
    }

    /// Every CSN strictly below is durable in a segment: W, unless log buffers are mapped.
    #[must_use]
    pub fn watermark_in_segments(&self) -> Csn {
        self.mapped.watermark_in_segments()
    }

    /// Returns the properties of the mapped memory that holds the log buffers, if they are mapped.
    #[must_use]
    pub fn memory_facts(&self) -> Option<MemoryFacts> {
        self.environment.memory.as_ref().map(|memory| memory.mapped().facts())
    }

    /// Lets another owner map the memory of the log buffers, after [`Commit::close`].
    pub fn release_memory(&self) {
        self.environment.memory.iter().for_each(|memory| memory.mapped().release());
    }

    /// Returns how far each log is durable in segments, for a check of what they hold.
    #[must_use]
    pub fn durable_ends(&self) -> Vec<ChainEnd> {
        let ends = self.durability.logs.iter().map(|log: &LogWriter| {
            let (sequence, last_csn) = log.log.lock().durable_end();
            ChainEnd { log: log.id, epoch: self.environment.epoch, sequence, last_csn, dense: true }
        });
        ends.collect()
    }

    /// To be called by a thread that uses `log` when it has ended a transaction that began at
    /// `begun`: reaps and submits writes where workers do that, and gives up the CPU now and then,
    /// unless it `waited` for the commit.
    pub fn end_of_transaction(&self, log: LogId, begun: Nanos, now: Nanos, waited: bool) {
        self.protocol.end_of_transaction(log, begun, now);
        self.workers.acknowledge(&self.acknowledgments, &self.appending.axes, log);
        workers::yield_now_and_then(&self.environment, &self.writes.neighbours, log, now, waited);
    }

    /// Returns the idle times of workers, which hear of all work in the engine.
    #[must_use]
    pub fn idle_times(&self) -> &IdleTimes {
        &self.writes.idle
    }

    /// Makes everything that was drawn so far durable. From then on it counts as acknowledged.
    ///
    /// # Errors
    /// `Poisoned` if a write or flush failed, now or earlier.
    pub fn flush_all(&self) -> Result<()> {
        self.waiting.flush_all()
    }

    /// The first failed write or flush, if there was one.
    #[cfg(all(test, not(any(loom, feature = "shuttle"))))]
    pub(super) fn poisoned(&self) -> Option<Error> {
        self.environment.poison.cause()
    }

    /// The point on the axes that runs.
    #[must_use]
    pub fn axes(&self) -> &Axes {
        &self.appending.axes
    }

    /// Logs that workers write for each other; 1 if they do not.
    #[must_use]
    pub fn stealing_group(&self) -> usize {
        self.writes.neighbours.group()
    }

    /// Returns the counters and latencies of commits.
    #[must_use]
    pub fn metrics(&self) -> &Arc<CommitMetrics> {
        &self.environment.metrics
    }

    /// Returns the segments of all logs.
    #[must_use]
    pub fn segments(&self) -> &SegmentPool {
        &self.environment.segments
    }

    /// Returns the bytes written to the segments of each log.
    #[must_use]
    pub fn written_bytes(&self) -> Vec<u64> {
        self.durability.logs.iter().map(LogWriter::written_bytes).collect()
    }

    /// Recycles log space up to `covered`, which the durable checkpoint at `checkpoint` covers, and
    /// wakes committers that wait for space.
    ///
    /// # Errors
    /// I/O of the segment pool.
    pub fn recycle(&self, covered: Csn, checkpoint: Csn) -> Result<()> {
        let recycled = self.environment.segments.recycle(covered, checkpoint);
        self.environment.space.notify_all();
        recycled
    }

    /// Returns what change feeds need.
    #[must_use]
    pub fn feed_source(&self) -> &Arc<FeedSource> {
        &self.feed_source
    }

    /// Returns whether transactions are to keep clocks.
    #[must_use]
    pub fn goes_by_clocks(&self) -> bool {
        self.durability.clocks().is_some()
    }

    /// Returns the GSN up to which all logs are durable.
    #[must_use]
    pub fn reach(&self) -> Gsn {
        self.durability.clocks().map_or(Gsn(0), Clocks::reach)
    }

    /// Returns the GSN of a transaction that may not be committed, and its log. None if it cannot
    /// list what it depends on: then a transaction that met it cannot either.
    #[must_use]
    pub fn clock_of(&self, csn: Csn) -> Option<(Gsn, LogId)> {
        match (self.durability.clocks(), self.durability.undecided.drawn_in(csn)) {
            (Some(clocks), Some((log, None))) => Some((clocks.of(csn), log)),
            _ => None,
        }
    }

    /// Returns the predecessors that the record of a transaction is to list at the end of its body,
    /// if there are any.
    #[inline]
    #[must_use]
    pub fn to_list<'a>(&self, pending: &'a Pending) -> Option<&'a [Csn]> {
        let lists = self.durability.lists_predecessors() && !pending.predecessors.is_empty();
        if lists { pending.predecessors.all() } else { None }
    }

    /// Returns the log of the changes of `page`, if the layout divides them by page.
    #[inline]
    #[must_use]
    pub fn log_of_page(&self, page: PageId) -> Option<LogId> {
        let logs = self.durability.logs.len() as u64;
        self.durability.is_by_page().then_some(LogId((page.0 % logs) as u32))
    }

    /// As [`Commit::precommit`], for a transaction with several `fragments`, one for each of their
    /// logs, which ascend.
    ///
    /// # Errors
    /// As [`Commit::precommit`].
    pub fn precommit_fragments(
        &self,
        fragments: &[(LogId, Record<'_>)],
        pending: Pending,
        preparing: impl FnOnce() -> bool,
    ) -> Result<Option<Ticket>> {
        self.appending.precommit_fragments(fragments, pending, preparing)
    }

    /// Returns the calls of transactions with chunks, and of checkpoints beside them.
    #[must_use]
    pub fn chunks(&self) -> ChunkLog<'_> {
        ChunkLog { appending: &self.appending, pins: &self.pins }
    }

    /// Returns a guard for the calling thread's work inside the engine. If a panic drops the guard,
    /// commits stop, and the error names `role`.
    #[inline]
    pub fn inside(&self, role: &'static str) -> PoisonOnPanic<'_> {
        self.failure.guard(role)
    }

    /// Stops commits, because the thread or task named `role` panicked inside the engine.
    pub fn panicked(&self, role: &str) {
        self.failure.panicked(role);
    }

    /// Refuses to make memory durable after a panic, which may have left something half done.
    ///
    /// # Errors
    /// `Poisoned`.
    pub fn check_whole(&self) -> Result<()> {
        self.environment.poison.check_whole()
    }

    /// Returns the log with a write that has not completed for `patience`, and since when.
    #[must_use]
    pub fn standing_write(&self, patience: Duration) -> Option<(LogId, Nanos)> {
        self.durability.standing_write(self.environment.clock.now(), patience)
    }

    /// Fails if no transaction can commit any more.
    ///
    /// # Errors
    /// `Poisoned`.
    pub fn check_commits(&self) -> Result<()> {
        self.environment.poison.check()
    }

    /// Returns what a write takes lately, of the log whose writes take longest.
    #[must_use]
    pub fn mean_write(&self) -> Duration {
        self.durability.logs.iter().map(|log| log.cohort.mean_write()).max().unwrap_or_default()
    }

    /// Returns the length of a log's next buffer in bytes, the longest of all logs.
    #[must_use]
    pub fn log_buffer_bytes(&self) -> usize {
        self.durability.logs.iter().map(|log| log.log.buffer_bytes()).max().unwrap_or(0)
    }

    /// Returns whether several logs share one flush at the moment; none if that is not known yet.
    #[must_use]
    pub fn shares_flush(&self) -> Option<bool> {
        self.sharing.usual()
    }
}

impl Drop for Commit {
    fn drop(&mut self) {
        if self.environment.process.is_forked() {
            return;
        }
        // A caller that wants to know called `close`; every waiter has the failure already.
        let _ = self.close();
    }
}

impl std::fmt::Debug for Commit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Commit").field("axes", self.axes()).field("w", &self.watermark()).finish()
    }
}
