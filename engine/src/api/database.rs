//! A database: opening, tables, transactions, upkeep, closing.

use super::builder::{Builder, Progress};
use super::creation::{no_database, open_or_create, refuse_before_locking};
use super::statistics::{LatencySummary, Statistics};
use super::table::Table;
use super::transaction::{Snapshot, Transaction};
use super::verify::{self, VerifyReport};
use crate::base::clock::Clock;
use crate::base::random::Random;
use crate::base::settings::{Durability, MethodSetting, Settings};
use crate::base::{DatabaseId, Error, ErrorKind, Location, PageId, Result};
use crate::buffer::{PageSource, Pool};
use crate::checkpoint::{CheckpointReport, Checkpointer};
use crate::commit::{Commit, Hooks, Start, presets};
use crate::device::Storage;
use crate::device::memory::MemoryStorage;
use crate::log::{DumpedRecord, SegmentPool};
use crate::recovery::{Recovery, RecoveryReport};
use crate::store::{Manifest, ManifestFile, PageStore};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, thread};
use crate::transaction::{ActiveTransaction, Isolation, Limits, ReadSnapshot, TransactionSystem};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// An open database. Cloning gives another handle; the last one that is dropped closes it, as [`Database::close`] does.
#[derive(Clone, Debug)]
pub struct Database {
    inner: Arc<Shared>,
}

/// What all handles share. The last handle closes the database before it gives up its part, so that the thread for
/// upkeep, which borrows `Inner` now and then, is never the one that does it, later, behind the caller's back.
struct Shared(Arc<Inner>);

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::ops::Deref for Shared {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

pub(super) struct Inner {
    pub(super) system: Arc<TransactionSystem>,
    pub(super) pool: Arc<Pool>,
    pub(super) store: Arc<PageStore>,
    pub(super) storage: Arc<dyn Storage>,
    /// None if the database is open read-only.
    pub(super) checkpointer: Option<Checkpointer>,
    pub(super) segments: Arc<SegmentPool>,
    settings: Settings,
    logs: usize,
    recovery: RecoveryReport,
    path: String,
    upkeep: Mutex<Option<thread::JoinHandle<()>>>,
    closed: AtomicBool,
    /// Given back last.
    _lock: Box<dyn Send + Sync>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Pages of the store, checked before the tree sees them.
struct StoredPages(Arc<PageStore>);

impl PageSource for StoredPages {
    fn read_page(&self, page: PageId, into: &mut [u8]) -> Result<()> {
        self.0.read_page(page, into)?;
        crate::tree::image::validate_image(into).map_err(|error| error.at(Location::Page { page, offset: 0 }))
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

    pub(super) fn open_storage(
        storage: Arc<dyn Storage>,
        path: &Path,
        mut builder: Builder,
    ) -> Result<Database> {
        let mut settings = std::mem::take(&mut builder.settings);
        refuse_before_locking(&*storage, &settings)?;
        let lock = storage.lock(!settings.read_only)?;
        let (file, manifest) = open_or_create(&*storage, &mut settings)?;
        let page_bytes = manifest.page_bytes as usize;
        let (id, root) = (manifest.database, &manifest.store);
        let store = if settings.read_only {
            PageStore::open_read_only(&*storage, id, page_bytes, root)?
        } else {
            PageStore::open(&*storage, id, page_bytes, root)?
        };
        let pool = Pool::new(page_bytes, settings.memory_bytes, Arc::new(StoredPages(store.clone())))?;
        let limits = Limits::for_page(page_bytes, settings.transaction_bytes_max, settings.lock_wait);
        let clock = builder.clock.clone();
        let system =
            Arc::new(TransactionSystem::new(pool.clone(), limits, settings.version_bytes, clock.clone()));
        let path = path.display().to_string();
        let parts = Parts { path, storage, store, pool, system, settings, clock, lock };
        let opened = if parts.settings.read_only {
            parts.open_read_only(&manifest, builder.progress)?
        } else {
            parts.open_for_writing(file, manifest, builder.progress)?
        };
        let database = Database { inner: Arc::new(Shared(Arc::new(opened))) };
        database.start_upkeep()?;
        tracing::info!("{}", database.open_line());
        Ok(database)
    }

    /// Creates a table; durable when it returns.
    ///
    /// # Errors
    /// `AlreadyExists`; `InvalidArgument` for the name; `OutOfMemory`; those of a commit.
    pub fn create_table(&self, name: &str) -> Result<Table> {
        self.writable()?;
        self.inner.system.create_table(name).map(|state| Table { state })
    }

    /// The table called `name`.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn table(&self, name: &str) -> Result<Table> {
        self.inner.system.catalog().table(name).map(|state| Table { state })
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
        self.inner.system.drop_table(name)
    }

    /// Names of all tables, in order.
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
        ActiveTransaction::begin(&self.inner.system, isolation, durability)
            .map(|active| Transaction { active })
    }

    /// Begins a read-only snapshot of everything acknowledged so far, and of everything that this thread has committed.
    ///
    /// # Errors
    /// `Busy` at the limit of open snapshots.
    pub fn begin_read(&self) -> Result<Snapshot> {
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
                    std::thread::sleep(Duration::from_micros(random.below(most_us)));
                }
                done => return done,
            }
        }
        unreachable!("the loop ends at the last attempt")
    }

    /// Makes a checkpoint now: recovery will start from here, and the log before it is recycled. Commits go on meanwhile.
    ///
    /// # Errors
    /// `OutOfSpace`, I/O, `Poisoned`; `InvalidArgument` if the database is read-only or closed.
    pub fn checkpoint(&self) -> Result<CheckpointReport> {
        self.writable()?;
        self.checkpointer()?.checkpoint()
    }

    /// Everything committed so far, at whatever level, is durable when this returns.
    ///
    /// # Errors
    /// `Poisoned` if a write or flush failed.
    pub fn flush(&self) -> Result<()> {
        self.inner.system.commit().flush_all()
    }

    /// Checks the whole database: every stored page, every tree, the log. May run beside transactions; structure changes
    /// wait while their tree is checked.
    ///
    /// # Errors
    /// Only what keeps it from checking; damage is in the report.
    pub fn verify(&self, progress: Option<Progress>) -> Result<VerifyReport> {
        verify::run(&self.inner, progress)
    }

    /// This moment's numbers.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let inner = &self.inner;
        let commit = inner.system.commit();
        let metrics = commit.metrics();
        let counters = inner.system.counters();
        let (open_snapshots, oldest_snapshot) = inner.system.snapshots();
        Statistics {
            preset: inner.settings.preset,
            logs: inner.logs,
            device: inner.storage.facts(),
            durability_method: self.durability_method(),
            newest_csn: commit.newest_drawn(),
            watermark: commit.watermark(),
            checkpoint_csn: inner.checkpointer.as_ref().map_or_else(Default::default, Checkpointer::csn),
            tables: self.tables().len() as u64,
            committed: metrics.committed.get(),
            aborted: counters.aborted.get(),
            conflicts: counters.conflicts.get(),
            pages: inner.pool.resident_pages(),
            page_bytes: inner.pool.page_bytes() as u64,
            versions: inner.system.versions().count(),
            version_bytes: inner.system.versions().bytes().0,
            open_snapshots,
            oldest_snapshot,
            log_bytes: metrics.log_bytes.get(),
            log_bytes_in_use: commit.log_bytes(),
            device_bytes: metrics.device_bytes.get(),
            device_writes: metrics.device_writes.get(),
            device_flushes: metrics.flushes.get(),
            checkpoints: inner.checkpointer.as_ref().map_or(0, Checkpointer::count),
            wakeups: metrics.wake_ups.get(),
            group_size_mean: metrics.group_size(),
            execute: LatencySummary::of(&metrics.execute),
            commit: LatencySummary::of(&metrics.commit_latency),
            total: LatencySummary::of(&metrics.total_latency),
            flush: LatencySummary::of(&metrics.flush),
            acknowledge: LatencySummary::of(&metrics.acknowledge),
        }
    }

    /// Forgets counters and latencies, between a warm-up and a measurement.
    pub fn reset_statistics(&self) {
        self.inner.system.commit().metrics().reset();
        let counters = self.inner.system.counters();
        counters.aborted.reset();
        counters.conflicts.reset();
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
        for (what, state) in [("direct I/O", &facts.direct_io), ("io_uring", &facts.io_uring)] {
            if let Err(reason) = state {
                line.push_str(&format!(", no {what} ({reason})"));
            }
        }
        line
    }

    fn durability_method(&self) -> String {
        let method = self.inner.storage.durability().name();
        match self.inner.settings.durability_method {
            Some(MethodSetting::WorkerDsync | MethodSetting::WorkerFlush) => {
                format!("{method} by the worker")
            }
            _ => method.to_string(),
        }
    }

    /// Longest key in bytes.
    #[must_use]
    pub fn max_key_bytes(&self) -> usize {
        crate::tree::max_key_bytes(self.inner.pool.page_bytes())
    }

    /// Most bytes of a key and its value together.
    #[must_use]
    pub fn max_entry_bytes(&self) -> usize {
        crate::tree::max_entry_bytes(self.inner.pool.page_bytes())
    }

    /// Closes the database: makes everything committed durable and a last checkpoint, so that the next open replays
    /// nothing. Other handles can still read; their commits fail. Transactions still open count as aborted.
    ///
    /// # Errors
    /// I/O, `Poisoned`, `OutOfSpace`: then the next open recovers from the log.
    pub fn close(self) -> Result<()> {
        self.inner.close()
    }

    /// The records of the log of a database that nobody has open, in CSN order.
    ///
    /// # Errors
    /// As opening it read-only.
    pub fn dump_log(path: impl AsRef<Path>) -> Result<Vec<DumpedRecord>> {
        let settings = Settings::default();
        let storage =
            crate::device::file::FileStorage::open(path.as_ref(), settings.device_trust, false, false)?;
        let storage: Arc<dyn Storage> = Arc::new(storage);
        let _lock = storage.lock(false)?;
        let (_, manifest) = ManifestFile::open(&*storage, true).map_err(|error| no_database(error))?;
        crate::log::dump(&storage, manifest.database, manifest.checkpoint)
    }

    fn checkpointer(&self) -> Result<&Checkpointer> {
        self.inner.checkpointer.as_ref().ok_or_else(read_only)
    }

    fn writable(&self) -> Result<()> {
        self.checkpointer()?;
        if self.inner.closed.load(Ordering::SeqCst) {
            return Err(Error::invalid("the database is closed"));
        }
        Ok(())
    }

    /// Makes a checkpoint whenever the log has grown enough; asleep otherwise.
    fn start_upkeep(&self) -> Result<()> {
        if self.inner.checkpointer.is_none() {
            return Ok(());
        }
        let inner = Arc::downgrade(&self.inner.0);
        let segments = self.inner.segments.clone();
        let handle = thread::spawn("quench-upkeep", move || upkeep(&inner, &segments))
            .map_err(|error| Error::io("cannot start the thread that makes checkpoints", error))?;
        *self.inner.upkeep.lock() = Some(handle);
        Ok(())
    }
}

/// Tries of [`Database::transact`].
const TRANSACT_ATTEMPTS: u32 = 100;

fn read_only() -> Error {
    Error::invalid("the database is open read-only").at(Location::Setting("read_only"))
}

fn upkeep(inner: &Weak<Inner>, segments: &SegmentPool) {
    loop {
        let ticket = segments.filled().ticket();
        {
            let Some(inner) = inner.upgrade() else { return };
            if inner.closed.load(Ordering::SeqCst) {
                return;
            }
            let limit = inner.settings.checkpoint_log_bytes;
            let pressed = segments.is_pressed();
            if (limit > 0 && segments.bytes_in_use() >= limit || pressed)
                && let Some(checkpointer) = &inner.checkpointer
                && let Err(error) = checkpointer.checkpoint()
            {
                tracing::warn!(%error, "an automatic checkpoint failed; the log is kept");
            }
        }
        segments.filled().wait(ticket, None);
    }
}

/// What opening has collected so far.
struct Parts {
    path: String,
    storage: Arc<dyn Storage>,
    store: Arc<PageStore>,
    pool: Arc<Pool>,
    system: Arc<TransactionSystem>,
    settings: Settings,
    clock: Clock,
    lock: Box<dyn Send + Sync>,
}

impl Parts {
    fn recovery(&self, logs: usize) -> Recovery<'_> {
        Recovery {
            storage: &self.storage,
            settings: &self.settings,
            store: &self.store,
            pool: &self.pool,
            system: &self.system,
            clock: self.clock.clone(),
            logs,
        }
    }

    fn open_for_writing(
        self,
        file: ManifestFile,
        manifest: Manifest,
        progress: Option<Progress>,
    ) -> Result<Inner> {
        let logs = presets::log_count(&self.settings, cores());
        let mut progress = progress.unwrap_or_else(|| Box::new(|_, _, _| ()));
        let recovered = self.recovery(logs).run(&file, manifest, &mut *progress)?;
        let in_progress = self.system.in_progress();
        let pressed = recovered.segments.clone();
        let commit = Commit::start(
            &self.settings,
            Start {
                storage: self.storage.clone(),
                logs: recovered.logs,
                segments: recovered.segments.clone(),
                first_csn: recovered.first_csn,
                epoch: recovered.manifest.epoch,
                clock: self.clock.clone(),
                hooks: Hooks {
                    on_log_pressure: Box::new(move || pressed.press()),
                    in_progress: Box::new(move || in_progress.load(Ordering::Relaxed)),
                },
            },
        )?;
        self.system.connect(commit, logs);
        let checkpointer = Checkpointer::new(
            self.system.clone(),
            self.pool.clone(),
            self.store.clone(),
            file,
            recovered.manifest,
            self.clock.clone(),
        );
        Ok(self.finish(Some(checkpointer), recovered.segments, logs, recovered.report))
    }

    /// Commits of a read-only database would go to memory; there are none.
    fn open_read_only(self, manifest: &Manifest, progress: Option<Progress>) -> Result<Inner> {
        let mut progress = progress.unwrap_or_else(|| Box::new(|_, _, _| ()));
        let (first_csn, report) = self.recovery(1).run_read_only(manifest, &mut *progress)?;
        let memory: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let segments = SegmentPool::new(memory.clone(), 64 << 10, 1 << 20, 0)?;
        let log = crate::log::Log::new(
            crate::base::LogId(0),
            DatabaseId(0),
            manifest.epoch,
            64 << 10,
            segments.clone(),
        );
        let start = Start {
            storage: memory,
            logs: vec![Arc::new(log)],
            segments: segments.clone(),
            first_csn,
            epoch: manifest.epoch,
            clock: self.clock.clone(),
            hooks: Hooks::default(),
        };
        self.system.connect(Commit::start(&self.settings, start)?, 1);
        Ok(self.finish(None, segments, 0, report))
    }

    fn finish(
        self,
        checkpointer: Option<Checkpointer>,
        segments: Arc<SegmentPool>,
        logs: usize,
        recovery: RecoveryReport,
    ) -> Inner {
        Inner {
            system: self.system,
            pool: self.pool,
            store: self.store,
            storage: self.storage,
            checkpointer,
            segments,
            settings: self.settings,
            logs,
            recovery,
            path: self.path,
            upkeep: Mutex::new(None),
            closed: AtomicBool::new(false),
            _lock: self.lock,
        }
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

impl Inner {
    fn close(&self) -> Result<()> {
        if self.closed.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        self.segments.filled().notify_all();
        if let Some(thread) = self.upkeep.lock().take() {
            let _ = thread.join();
        }
        let flushed = self.system.commit().close();
        let Some(checkpointer) = &self.checkpointer else { return Ok(()) };
        flushed?;
        checkpointer.checkpoint_and_close().map(drop)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!(%error, "the database was not closed cleanly; the next open recovers it");
        }
    }
}
