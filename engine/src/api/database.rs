//! A database: opening, tables, transactions, upkeep, closing.

use super::builder::{Builder, Progress};
use super::log_memory;
use super::open::{no_database, upkeep};
use super::statistics::{LatencySummary, Statistics};
use super::table::Table;
use super::transaction::{Snapshot, Transaction};
use super::verify::{self, VerifyReport};
use crate::base::clock::Clock;
use crate::base::random::Random;
use crate::base::settings::{Durability, Settings, Writer};
use crate::base::{Charge, Csn, Error, ErrorKind, Location, Result};
use crate::buffer::{Pool, ReadAheadThread};
use crate::checkpoint::{CheckpointReport, CheckpointTotals, Checkpointer, Evictor, ReplayModel};
use crate::device::Storage;
use crate::device::mapped::MemoryFacts;
use crate::log::{DumpedRecord, Segment, SegmentPool};
use crate::recovery::RecoveryReport;
use crate::store::{CheckpointReader, Manifest, ManifestFile, PageStore};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, thread};
use crate::transaction::{ActiveTransaction, Isolation, ReadSnapshot, TransactionSystem};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// An open database. Cloning gives another handle; the last one that is dropped closes it, as [`Database::close`] does.
#[derive(Clone, Debug)]
pub struct Database {
    pub(super) inner: Arc<Owner>,
}

/// What the users' handles share. When the last one goes the database closes, in that thread: the upkeep thread, which may
/// be in the middle of a checkpoint, is waited for, and the lock is free when the drop returns.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) inner: Arc<Inner>,
}

impl std::ops::Deref for Owner {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.inner
    }
}

pub(super) struct Inner {
    pub(super) system: Arc<TransactionSystem>,
    pub(super) pool: Arc<Pool>,
    pub(super) store: Arc<PageStore>,
    pub(super) storage: Arc<dyn Storage>,
    /// What mapped memory held that the database needed; of use while it is open read-only.
    pub(super) memory_found: Option<Segment>,
    /// What is known of that memory.
    pub(super) memory_facts: Option<MemoryFacts>,
    /// None if the database is open read-only.
    pub(super) checkpointer: Option<Checkpointer>,
    /// Set if a checkpoint is open, beside whoever writes.
    pub(super) at_checkpoint: Option<Manifest>,
    pub(super) replay: Arc<ReplayModel>,
    pub(super) evictor: Evictor,
    pub(super) read_ahead: ReadAheadThread,
    pub(super) segments: Arc<SegmentPool>,
    pub(super) _always: Charge,
    pub(super) settings: Settings,
    pub(super) clock: Clock,
    pub(super) logs: usize,
    pub(super) recovery: RecoveryReport,
    pub(super) path: String,
    pub(super) upkeep: Mutex<Option<thread::JoinHandle<()>>>,
    pub(super) closed: AtomicBool,
    /// What the first [`Database::close`] found, when it has ended.
    pub(super) close_outcome: Mutex<Option<Result<()>>>,
    /// Given back last.
    pub(super) _lock: Option<Box<dyn Send + Sync>>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Database {
    /// Opens the database in the directory `path` with default settings, creating it if it is missing.
    ///
    /// Commits are durable on return, transactions see a snapshot, memory is bounded.
    ///
    /// # Errors
    /// As [`Builder::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Database> {
        Builder::default().open(path)
    }

    /// Settings, then [`Builder::open`].
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Creates a table; durable when it returns.
    ///
    /// # Errors
    /// `AlreadyExists`; `InvalidArgument` for the name; `OutOfMemory`; those of a commit.
    pub fn create_table(&self, name: &str) -> Result<Table> {
        self.writable()?;
        let _inside = self.inner.system.commit().inside(USER);
        self.inner.system.create_table(name).map(|state| Table { state })
    }

    /// The table called `name`, once its creation is durable. If there is none, which may be because somebody is dropping one, it says so once
    /// that is durable.
    ///
    /// # Errors
    /// `NotFound`; `Poisoned` if a table was created or dropped and that can no longer become durable.
    pub fn table(&self, name: &str) -> Result<Table> {
        let _inside = self.inner.system.commit().inside(USER);
        self.inner.system.table(name).map(|state| Table { state })
    }

    /// The table called `name`, created if it is missing.
    ///
    /// # Errors
    /// As [`Database::create_table`].
    pub fn table_or_create(&self, name: &str) -> Result<Table> {
        loop {
            match self.table(name) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                found => return found,
            }
            match self.create_table(name) {
                // Somebody else was faster.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                created => return created,
            }
        }
    }

    /// Drops a table and all its rows; durable when it returns.
    ///
    /// # Errors
    /// `NotFound`; `Busy` while open transactions or snapshots use it; those of a commit.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        self.writable()?;
        let _inside = self.inner.system.commit().inside(USER);
        self.inner.system.drop_table(name)
    }

    /// Names of all tables, in order, as of now: creations and drops that are not durable yet count.
    #[must_use]
    pub fn tables(&self) -> Vec<String> {
        self.inner.system.catalog().names()
    }

    /// Begins a read-write transaction with snapshot isolation whose commit is durable.
    ///
    /// # Errors
    /// `Busy` at the limit of open transactions; `InvalidArgument` if the database is closed or read-only.
    pub fn begin(&self) -> Result<Transaction> {
        self.begin_with(Isolation::Snapshot, Durability::Durable)
    }

    /// Begins a read-write transaction.
    ///
    /// # Errors
    /// As [`Database::begin`].
    pub fn begin_with(&self, isolation: Isolation, durability: Durability) -> Result<Transaction> {
        self.writable()?;
        let _inside = self.inner.system.commit().inside(USER);
        ActiveTransaction::begin(&self.inner.system, isolation, durability)
            .map(|active| Transaction { active })
    }

    /// Begins a read-only snapshot of everything acknowledged so far, and of everything that this thread has committed.
    ///
    /// # Errors
    /// `Busy` at the limit of open snapshots.
    pub fn begin_read(&self) -> Result<Snapshot> {
        let _inside = self.inner.system.commit().inside(USER);
        ReadSnapshot::begin(&self.inner.system).map(|snapshot| Snapshot { snapshot })
    }

    /// Runs `f` in a transaction and commits it, durably. After a conflict everything is taken back and `f` runs again
    /// from the beginning, with growing pauses, at most 100 times; so `f` must have no effects outside the transaction
    /// that may not be repeated. Any other error, and a panic, aborts the transaction.
    ///
    /// # Errors
    /// What `f` returns; those of a commit; `Conflict` when the last try failed.
    pub fn transact<T>(&self, mut f: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        let mut random = Random::from_entropy();
        for attempt in 1.. {
            let mut transaction = self.begin()?;
            let result = match f(&mut transaction) {
                Ok(value) => transaction.commit().map(|_| value),
                Err(error) => {
                    transaction.abort();
                    Err(error)
                }
            };
            match result {
                Err(error) if error.is_retryable() && attempt < TRANSACT_ATTEMPTS => {
                    let most_us = 10u64 << attempt.min(10);
                    thread::sleep(Duration::from_micros(random.below(most_us)));
                }
                done => return done,
            }
        }
        unreachable!("the loop ends at the last attempt")
    }

    /// Makes a checkpoint now, as fast as the device allows: recovery will start from here, and the log before it is recycled.
    /// Commits go on meanwhile, more slowly; see [`Database::checkpoint_paced`].
    ///
    /// # Errors
    /// `OutOfSpace`, I/O, `Poisoned`; `InvalidArgument` if the database is read-only or closed.
    pub fn checkpoint(&self) -> Result<CheckpointReport> {
        self.writable()?;
        let _inside = self.inner.system.commit().inside(USER);
        self.checkpointer()?.checkpoint()
    }

    /// Makes a checkpoint now, at the pace of those that the engine makes by itself: slowly enough not to be noticed, and fast
    /// enough that `recovery_seconds` is kept.
    ///
    /// # Errors
    /// As [`Database::checkpoint`].
    pub fn checkpoint_paced(&self) -> Result<CheckpointReport> {
        self.writable()?;
        let _inside = self.inner.system.commit().inside(USER);
        self.checkpointer()?.checkpoint_paced(&self.inner.pacer())
    }

    /// Everything committed so far, at whatever level and by whichever thread, is durable when this returns, and every snapshot that begins
    /// then sees it.
    ///
    /// # Errors
    /// `Poisoned` if a write or flush failed.
    pub fn flush(&self) -> Result<()> {
        let _inside = self.inner.system.commit().inside(USER);
        self.inner.system.commit().flush_all()?;
        // What had to be remembered until it was durable can go.
        self.inner.system.collect_all();
        Ok(())
    }

    /// Checks the whole database: every tree, every stored page and its block, and the log from the checkpoint to where it is
    /// durable. May run beside transactions and checkpoints, and a table may be dropped
    /// meanwhile; what is appended behind the last row that there was need not be checked. [`Builder::verify`] checks a database that cannot be opened, too.
    ///
    /// # Errors
    /// Only what keeps it from checking; damage is in the report.
    pub fn verify(&self, progress: Option<Progress>) -> Result<VerifyReport> {
        verify::run(&self.inner, progress)
    }

    /// This moment's numbers. May be asked for many times a second: it reads counters and merges histograms, a fraction of a
    /// millisecond of one thread, and no file is touched.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let inner = &self.inner;
        let commit = inner.system.commit();
        let (metrics, axes) = (commit.metrics(), commit.axes());
        let (interval, mean_write) = commit.rhythm();
        let counters = inner.system.counters();
        let (open_snapshots, oldest_snapshot) = inner.system.snapshots();
        let checkpoints = self.checkpoints();
        let replay = inner.replay.estimate();
        let (traffic, usage) = (inner.store.traffic(), inner.store.usage());
        Statistics {
            preset: inner.settings.preset,
            logs: inner.logs,
            layout: axes.layout,
            writer: axes.writer,
            flush_interval_us: interval.as_micros() as u64,
            mean_write_us: mean_write.as_nanos() as f64 / 1000.0,
            shares_flush: commit.shares_flush(),
            shared_flushes: metrics.shared_flushes.get(),
            acknowledger: axes.acknowledger,
            acknowledgment_group: axes.acknowledgment_group,
            stealing_group: commit.stealing_group(),
            log_buffer_bytes: commit.log_buffer_bytes() as u64,
            stolen_blocks: metrics.stolen_blocks.get(),
            stolen_bytes: metrics.stolen_bytes.get(),
            idle_flushes: metrics.idle_flushes.get(),
            dependency: axes.dependency,
            queue: axes.queue,
            device: inner.storage.facts(),
            log_memory: self.log_memory(),
            durability_method: self.durability_method(),
            newest_csn: commit.newest_drawn(),
            watermark: commit.watermark(),
            checkpoint_csn: self.checkpoint_csn(),
            tables: self.tables().len() as u64,
            committed: metrics.committed.get(),
            aborted: counters.aborted.get(),
            conflicts: counters.conflicts.get(),
            version_waits: counters.version_waits.get(),
            row_waits: counters.row_waits.get(),
            row_wait_seconds: counters.row_wait_ns.get() as f64 / 1e9,
            log_insert_us_mean: counters.log_insert_us_mean(),
            log_inserts_timed: counters.log_inserts_timed.get(),
            pages: inner.pool.memory().resident_pages(),
            pages_evicted: inner.pool.eviction().pages_evicted(),
            evictions_in_vain: inner.pool.eviction().failed_passes(),
            pages_copied: inner.pool.pages_copied(),
            page_bytes: inner.pool.page_bytes() as u64,
            pages_max: inner.pool.memory().resident_pages_max(),
            memory_bytes: inner.settings.memory_bytes,
            versions: inner.system.versions().count(),
            version_bytes: inner.system.versions().bytes().0,
            open_snapshots,
            oldest_snapshot,
            log_bytes: metrics.log_bytes.get(),
            log_bytes_in_use: commit.log_bytes(),
            replay_seconds_estimate: replay.seconds,
            replay,
            device_bytes: metrics.device_bytes.get(),
            device_writes: metrics.device_writes.get(),
            device_flushes: metrics.flushes.get(),
            checkpoints: checkpoints.count,
            checkpoint_seconds: checkpoints.seconds,
            store_reads: traffic.reads.get(),
            store_read_bytes: traffic.read_bytes.get(),
            store_writes: traffic.writes.get(),
            store_bytes_written: traffic.written_bytes.get(),
            store_bytes: usage.blocks * usage.block_bytes as u64,
            store_free_bytes: usage.free_blocks * usage.block_bytes as u64,
            store_held_bytes: usage.held_blocks * usage.block_bytes as u64,
            store_reserved_bytes: inner.store.reserved_bytes(),
            packs: inner.store.packs(),
            disk_full: inner.store.is_disk_full() || inner.segments.is_disk_full(),
            wakeups: metrics.wake_ups.get(),
            commit_sleeps: metrics.sleeps.get(),
            flusher_wakeups: metrics.flusher_wake_ups.get(),
            rule_waits: metrics.rule_waits.get(),
            false_waits: metrics.false_waits.get(),
            fences: metrics.fences.get(),
            stragglers_drained: metrics.drained.get(),
            group_size_mean: metrics.group_size(),
            execute: LatencySummary::of(&metrics.execute),
            commit: LatencySummary::of(&metrics.commit_latency),
            total: LatencySummary::of(&metrics.total_latency),
            flush: LatencySummary::of(&metrics.flush),
            acknowledge: LatencySummary::of(&metrics.acknowledge),
        }
    }

    /// CSN of the newest durable checkpoint, or of the one that [`Builder::open_checkpoint`] opened: everything up to it is in it. 0
    /// if the database is open read-only in another way.
    #[must_use]
    pub fn checkpoint_csn(&self) -> Csn {
        match (&self.inner.checkpointer, &self.inner.at_checkpoint) {
            (Some(checkpointer), _) => checkpointer.csn(),
            (None, Some(manifest)) => manifest.checkpoint,
            (None, None) => Csn::ZERO,
        }
    }

    /// The checkpoints made since open, for whoever looks often: cheaper than [`Database::statistics`].
    #[must_use]
    pub fn checkpoints(&self) -> CheckpointTotals {
        self.inner.checkpointer.as_ref().map_or_else(Default::default, Checkpointer::totals)
    }

    /// Who has a checkpoint open ([`Builder::open_checkpoint`]), in any process. Opens a small file for each place that a reader
    /// ever took, 64 at most: not for whoever looks many times a second.
    #[must_use]
    pub fn checkpoint_readers(&self) -> Vec<CheckpointReader> {
        self.inner.store.checkpoint_readers()
    }

    /// Forgets latencies, aborts, conflicts, waits for rows and for versions, and how long inserts into the log took, between a warm-up and a measurement.
    pub fn reset_statistics(&self) {
        self.inner.system.commit().metrics().reset();
        self.inner.system.counters().reset();
    }

    /// What recovery did when the database was opened.
    #[must_use]
    pub fn recovery(&self) -> RecoveryReport {
        self.inner.recovery
    }

    /// One line that says what was opened: device, durability method, preset, logs.
    #[must_use]
    pub fn open_line(&self) -> String {
        let inner = &self.inner;
        let facts = inner.storage.facts();
        let cache = if facts.volatile_cache { "volatile cache" } else { "durable cache" };
        let mut line = format!(
            "opened {}: {}, {cache}, durable by {}, preset {}, {} log{}",
            inner.path,
            facts.name,
            self.durability_method(),
            inner.settings.preset.name(),
            inner.logs,
            if inner.logs == 1 { "" } else { "s" },
        );
        if let Some(memory) = self.log_memory() {
            line.push_str(&format!(", log in mapped memory {memory}"));
        }
        for (what, state) in [("direct I/O", &facts.direct_io), ("io_uring", &facts.io_uring)] {
            if let Err(reason) = state {
                line.push_str(&format!(", no {what} ({reason})"));
            }
        }
        line
    }

    /// The mapped memory that is used, or, open for reading, needed.
    fn log_memory(&self) -> Option<MemoryFacts> {
        self.inner.system.commit().memory_facts().or_else(|| self.inner.memory_facts.clone())
    }

    fn durability_method(&self) -> String {
        let method = self.inner.storage.durability().name();
        if let Some(memory) = self.inner.system.commit().memory_facts() {
            return format!(
                "{} in mapped memory ({}), survives {}",
                memory.primitive, memory.reason, memory.survives
            );
        }
        match self.inner.system.commit().axes().writer {
            Writer::Worker => format!("{method} by the worker"),
            _ => method.to_string(),
        }
    }

    /// Longest key in bytes.
    #[must_use]
    pub fn max_key_bytes(&self) -> usize {
        crate::tree::max_key_bytes(self.inner.pool.page_bytes())
    }

    /// Most bytes of a key and its value together that lie in one entry of a page. Longer values, up to
    /// [`VALUE_BYTES_MAX`](crate::VALUE_BYTES_MAX), go to pages of their own.
    #[must_use]
    pub fn max_entry_bytes(&self) -> usize {
        crate::tree::max_entry_bytes(self.inner.pool.page_bytes())
    }

    /// Closes the database: makes everything committed durable and a last checkpoint, so that the next open replays
    /// nothing. Other handles can still read; their commits fail. Transactions still open count as aborted.
    ///
    /// # Errors
    /// I/O, `Poisoned`, `OutOfSpace`: then the next open recovers from the log. Whoever closes it again gets the same, or `Busy` while that is
    /// going on in another thread.
    pub fn close(self) -> Result<()> {
        self.inner.close()
    }

    /// The records of the log of a database that nobody has open, in CSN order. `progress` hears of log bytes scanned.
    ///
    /// # Errors
    /// As opening it read-only.
    pub fn dump_log(path: impl AsRef<Path>, progress: Option<Progress>) -> Result<Vec<DumpedRecord>> {
        let settings = Settings::default();
        let storage =
            crate::device::file::FileStorage::open(path.as_ref(), settings.device_trust, false, false)?;
        let storage: Arc<dyn Storage> = Arc::new(storage);
        let open = || ManifestFile::open(&*storage, true).map_err(no_database);
        // Before the lock, so that nothing is put into a directory that is no database; and once more under it.
        open()?;
        let _lock = storage.lock(false)?;
        let (_, mut manifest) = open()?;
        let mut settings = Settings { read_only: true, ..settings };
        let memories = log_memory::open(&*storage, &mut settings, &mut manifest, 1, 0)?;
        let progress = Mutex::new(progress.unwrap_or_else(|| Box::new(|_, _, _| ())));
        let scanned = |done, total| (progress.lock())("log bytes scanned", done, total);
        crate::log::dump(&storage, memories.found.as_ref(), manifest.database, manifest.covered, &scanned)
    }

    pub(super) fn checkpointer(&self) -> Result<&Checkpointer> {
        self.inner.checkpointer.as_ref().ok_or_else(read_only)
    }

    pub(super) fn writable(&self) -> Result<()> {
        self.checkpointer()?;
        if self.inner.closed.load(Ordering::SeqCst) {
            return Err(Error::invalid("the database is closed"));
        }
        Ok(())
    }

    /// Makes a checkpoint whenever the log has grown enough; asleep otherwise.
    pub(super) fn start_upkeep(&self) -> Result<()> {
        if self.inner.checkpointer.is_none() {
            return Ok(());
        }
        let inner = Arc::downgrade(&self.inner.inner);
        let segments = self.inner.segments.clone();
        let handle = thread::spawn("quench-upkeep", move || {
            let _alive = Alive(inner.clone());
            upkeep(&inner, &segments);
        })
        .map_err(|error| Error::io("cannot start the thread that makes checkpoints", error))?;
        *self.inner.upkeep.lock() = Some(handle);
        Ok(())
    }
}

/// If the thread that makes checkpoints ends by a panic, nobody makes any: the log would fill up.
struct Alive(std::sync::Weak<Inner>);

impl Drop for Alive {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(inner) = self.0.upgrade()
        {
            inner.system.commit().panicked("the thread that makes checkpoints");
        }
    }
}

/// What a thread of the user's is called in an error.
pub(super) const USER: &str = "a thread";

/// Tries of [`Database::transact`].
const TRANSACT_ATTEMPTS: u32 = 100;

fn read_only() -> Error {
    Error::invalid("the database is open read-only").at(Location::Setting("read_only"))
}

/// For another who asks.
fn same(outcome: &Result<()>) -> Result<()> {
    outcome.as_ref().map_err(Error::duplicate).copied()
}

impl Inner {
    fn close(&self) -> Result<()> {
        if self.closed.swap(true, Ordering::SeqCst) {
            return match &*self.close_outcome.lock() {
                Some(outcome) => same(outcome),
                None => Err(Error::new(ErrorKind::Busy, "the database is being closed")),
            };
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| self.close_first()));
        let panicked = || Err(Error::new(ErrorKind::Poisoned, "closing the database panicked"));
        *self.close_outcome.lock() = Some(outcome.as_ref().map_or_else(|_| panicked(), same));
        outcome.unwrap_or_else(|panic| resume_unwind(panic))
    }

    fn close_first(&self) -> Result<()> {
        self.segments.filled().notify_all();
        if let Some(thread) = self.upkeep.lock().take() {
            let _ = thread.join();
        }
        let flushed = self.system.commit().close();
        let Some(checkpointer) = &self.checkpointer else { return Ok(()) };
        flushed?;
        checkpointer.checkpoint_and_close(&self.segments).map(drop)
    }
}

impl Drop for Inner {
    /// Snapshots that outlive the database keep the page store open: it must not keep the next owner out.
    fn drop(&mut self) {
        self.read_ahead.stop();
        self.evictor.stop();
        self.store.release();
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if !self.inner.closed.load(Ordering::SeqCst)
            && let Err(error) = self.inner.close()
        {
            tracing::error!(%error, "the database was not closed cleanly; the next open recovers it");
        }
    }
}
