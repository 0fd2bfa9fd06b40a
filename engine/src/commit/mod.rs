//! Rank 4: when may a transaction be called committed?
//!
//! **The life of a commit.** A transaction that asks to commit is *pre-committed*
//! ([`Commit::precommit`]): under its log's latch it draws a CSN and appends its redo record to a
//! log buffer. From here on it cannot abort; its effects are visible, and its locks are released.
//! Nothing is durable yet, so a transaction that reads or overwrites its versions depends on it. If
//! the thread waits ([`Commit::waits`]), it causes a write of its log, as the protocol says, or
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

mod core;
mod pages;
mod papers;
mod protocols;
mod layout;
pub mod presets;
mod start;
mod views;

#[cfg(all(test, not(loom)))]
mod tests;

/// The constants of the protocols, for models of them.
#[cfg(feature = "internals")]
pub mod constants {
    pub use super::core::acknowledge::{BATCH as ACKNOWLEDGMENT_BATCH, GRACE};
    pub use super::core::cohort::{MEAN_OF, MISSES, PAUSE_MAX, WAIT_MAX, WRITE_MIN};
    pub use super::core::levels::PACE;
    pub use super::core::workers::SLEPT;
    pub use super::papers::autonomous::POLL_EVERY;
    pub use super::papers::autonomous::idle::WEIGHT as IDLE_WEIGHT;
    pub use super::start::{QUEUE_ENTRIES, QUEUE_ENTRIES_PER_LOG_MIN};
    pub use crate::log::BUFFERS;
}

pub use core::chunks::{ChunkLog, Chunks};
pub use core::environment::Hooks;
pub use core::failure::PoisonOnPanic;
pub use core::feed_source::FeedSource;
pub use core::metrics;
pub use core::metrics::CommitMetrics;
pub use core::pending::{Pending, Record, Ticket};
pub use core::predecessors::Predecessors;
pub use core::waiters::WakerPlace;
pub use layout::Shares;
pub use start::Start;
pub use views::{Inspection, Listing, LogSpace, Progress};

use crate::base::clock::Nanos;
use crate::base::settings::{Append, Axes, Settings, WriterOptions};
use crate::base::{Error, LogId, Result};
use crate::sync::atomic::Ordering;
use std::sync::Arc;

use core::acknowledge::Acknowledgments;
use core::append::{AppendNow, AppendPath, Appending};
use core::chunks::Pins;
use core::durability::Durability;
use core::environment::Environment;
use core::failure::Failure;
use core::levels::Waits;
use core::medium::Medium;
use core::protocol::{Parts, Protocol};
use core::sharing::Sharing;
use core::threads::Threads;
use core::waiting::Waiting;
use core::workers::{self, Workers};
use core::writes::Writes;
use core::written::Written;
use papers::autonomous;
use papers::clocks::ByClocks;
use papers::consolidated::Consolidated;
use start::Components;

/// The commit layer of a database: its components. See the module's text.
pub struct Commit {
    environment: Arc<Environment>,
    durability: Arc<Durability>,
    acknowledgments: Arc<Acknowledgments>,
    failure: Arc<Failure>,
    writes: Arc<Writes>,
    medium: Arc<dyn Medium>,
    sharing: Arc<Sharing>,
    protocol: Arc<dyn Protocol>,
    waiting: Arc<Waiting>,
    feed_source: Arc<FeedSource>,
    appending: Appending,
    pins: Arc<Pins>,
    acknowledging: Workers,
    threads: Threads,
    /// Where workers write.
    workers: Option<Arc<autonomous::Workers>>,
    /// Where the rule goes by clocks.
    clocks: Option<Arc<ByClocks>>,
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
        commit.threads.start(&commit.medium, &commit.sharing)?;
        Ok(commit)
    }

    fn new(settings: &Settings, start: Start) -> Commit {
        let count = start.logs.len();
        let mut axes = Axes::with_logs(settings, count);
        if let (WriterOptions::Worker(options), Err(_)) = (&mut axes.writer, &start.storage.facts().direct_io)
        {
            // The page cache reports the error of one write to another's flush.
            options.writes_in_flight = 1;
        }
        let sharing = Arc::new(Sharing::new(axes.shared_flush, start.storage.shares_flush()));
        let Components { writes, medium, workers, clocks } = start::components(settings, start, &axes);
        let Writes { environment, durability, acknowledgments, failure, .. } = &*writes;
        let parts =
            Parts { writes: writes.clone(), medium: medium.clone(), sharing: sharing.clone(), axes: &axes };
        let protocol = protocols::start(&parts, workers.clone());
        let waiting = Arc::new(Waiting {
            environment: environment.clone(),
            durability: durability.clone(),
            acknowledgments: acknowledgments.clone(),
            writes: writes.clone(),
            medium: medium.clone(),
            protocol: protocol.clone(),
            written: Written::new(writes.clone(), &*medium, settings.lab.durable_every),
            queues_waiters: axes.queues_waiters(),
        });
        let path = || Box::new(Consolidated::default()) as Box<dyn AppendPath>;
        let appending = Appending {
            axes,
            waits: Waits::new(&axes, settings),
            environment: environment.clone(),
            durability: durability.clone(),
            acknowledgments: acknowledgments.clone(),
            writes: writes.clone(),
            medium: medium.clone(),
            waiting: waiting.clone(),
            protocol: protocol.clone(),
            path: (axes.append == Append::Consolidated).then(path),
        };
        let feed_source = Arc::new(FeedSource {
            environment: environment.clone(),
            durability: durability.clone(),
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
            medium,
            sharing,
            protocol,
            waiting,
            appending,
            acknowledging: Workers::default(),
            pins: Arc::new(Pins::new(settings.chunked_log_bytes(count))),
            workers,
            clocks,
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
        pending: &Pending,
        mut preparing: impl FnMut() -> bool + Send,
    ) -> Result<Option<Ticket>> {
        self.appending.precommit(log, record, pending, &mut preparing)
    }

    /// As [`Commit::precommit`], for a caller that holds what other threads need. If the log has no
    /// room, returns `None` instead of waiting. The caller then releases what it holds, calls
    /// [`LogSpace::await_room`], and tries again.
    ///
    /// # Errors
    /// `Poisoned`; `InvalidArgument` for a closed database.
    pub fn precommit_now(
        &self,
        log: LogId,
        record: Record<'_>,
        pending: &Pending,
        mut preparing: impl FnMut() + Send,
    ) -> Result<Option<Ticket>> {
        let mut preparing = || {
            preparing();
            true
        };
        match self.appending.precommit_now(log, record, pending, &mut preparing)? {
            AppendNow::Appended(ticket) => Ok(Some(ticket)),
            AppendNow::Withdrawn | AppendNow::NoRoom => Ok(None),
        }
    }

    /// Queues a transaction without a record, to be counted when what it read is committed.
    ///
    /// # Errors
    /// As [`Commit::precommit`].
    pub fn enqueue_read_only(&self, log: LogId, pending: &Pending) -> Result<()> {
        self.appending.enqueue_read_only(log, pending)
    }

    /// Lets another owner map the memory of the log buffers, after [`Commit::close`].
    pub fn release_memory(&self) {
        self.medium.release();
    }

    /// To be called by a thread that uses `log` when it has ended a transaction that began at
    /// `begun` and was ready at `ready`: reaps and submits writes where workers do that, and gives
    /// up the CPU now and then, unless it waited for the commit, until `committed`.
    pub fn end_of_transaction(&self, log: LogId, begun: Nanos, ready: Nanos, committed: Option<Nanos>) {
        self.protocol.end_of_transaction(log, begun, ready);
        self.acknowledging.acknowledge(&self.acknowledgments, &self.appending.axes, log);
        workers::yield_now_and_then(&self.environment, &*self.protocol, log, ready, committed);
    }

    /// Returns the moment, to be given to [`Commit::worked`] later, if the idle time of threads is
    /// measured.
    #[inline]
    #[must_use]
    pub fn work_begins(&self) -> Option<Nanos> {
        self.workers.as_ref().and_then(|workers| workers.idle.work_begins())
    }

    /// The calling thread has worked in the engine since `begun`, and what follows is idle time. To
    /// be called last, at the end of each transaction, abort and snapshot.
    #[inline]
    pub fn worked(&self, begun: Nanos) {
        if let Some(workers) = &self.workers {
            workers.idle.worked(begun);
        }
    }

    /// The first failed write or flush, if there was one.
    #[cfg(all(test, not(any(loom, feature = "shuttle"))))]
    pub(super) fn poisoned(&self) -> Option<Error> {
        self.environment.poison.cause()
    }

    /// Returns what change feeds need.
    #[must_use]
    pub fn feed_source(&self) -> &Arc<FeedSource> {
        &self.feed_source
    }

    /// As [`Commit::precommit`], for a transaction with several `fragments`, one for each of their
    /// logs, which ascend.
    ///
    /// # Errors
    /// As [`Commit::precommit`].
    pub fn precommit_fragments(
        &self,
        fragments: &[(LogId, Record<'_>)],
        pending: &Pending,
        mut preparing: impl FnMut() -> bool + Send,
    ) -> Result<Option<Ticket>> {
        self.appending.precommit_fragments(fragments, pending, &mut preparing)
    }

    /// Returns the calls that wait for commits.
    #[inline]
    #[must_use]
    pub fn waits(&self) -> &Waiting {
        &self.waiting
    }

    /// Returns the calls about the end of all commits: by a failure, or by a panic.
    #[inline]
    #[must_use]
    pub fn failure(&self) -> &Failure {
        &self.failure
    }

    /// Returns how far commits have come.
    #[inline]
    #[must_use]
    pub fn progress(&self) -> Progress<'_> {
        Progress {
            durability: &self.durability,
            acknowledgments: &self.acknowledgments,
            waiting: &self.waiting,
            epoch: self.environment.epoch,
        }
    }

    /// Returns what transactions have to note of those that they depend on.
    #[inline]
    #[must_use]
    pub fn listing(&self) -> Listing<'_> {
        Listing { durability: &self.durability, clocks: self.clocks.as_deref() }
    }

    /// Returns the space of the log.
    #[must_use]
    pub fn space(&self) -> LogSpace<'_> {
        LogSpace { appending: &self.appending }
    }

    /// Returns facts and figures.
    #[must_use]
    pub fn inspect(&self) -> Inspection<'_> {
        Inspection {
            environment: &self.environment,
            durability: &self.durability,
            medium: &*self.medium,
            sharing: &self.sharing,
            axes: &self.appending.axes,
            workers: self.workers.as_deref(),
        }
    }

    /// Returns the calls of transactions with chunks, and of checkpoints beside them.
    #[must_use]
    pub fn chunks(&self) -> ChunkLog<'_> {
        ChunkLog { appending: &self.appending, pins: &self.pins }
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
        f.debug_struct("Commit")
            .field("axes", &self.appending.axes)
            .field("w", &self.progress().watermark())
            .finish()
    }
}
