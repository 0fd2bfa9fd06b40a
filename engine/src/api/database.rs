//! An open database: tables, transactions, checkpoints, numbers, closing.

use super::engine::Owner;
use super::health::{Health, health};
use super::log_memory;
use super::open::{Progress, no_database, or_ignore, unless_written};
use super::place::Place;
use super::snapshot::Snapshot;
use super::statistics::{Statistics, open_line};
use super::table::Table;
use super::transaction::Transaction;
use super::typed::Check;
use crate::base::random::Random;
use crate::base::settings::Settings;
use crate::base::{Csn, Error, ErrorKind, Result, TableId};
use crate::checkpoint::{CheckpointReport, CheckpointTotals};
use crate::commit::PoisonOnPanic;
use crate::log::DumpedRecord;
use crate::recovery::RecoveryReport;
use crate::store::{CheckpointReader, ManifestFile};
use crate::sync::{Mutex, thread};
use crate::transaction::{ActiveTransaction, LockInfo, ReadSnapshot, TransactionOptions};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// An open database. Cloning returns another handle of the same database; all methods may be called
/// from any thread. Dropping the last handle closes the database, as [`Database::close`] does.
#[derive(Clone, Debug)]
pub struct Database {
    pub(super) inner: Arc<Owner>,
}

/// Attempts of [`Database::transact`].
const TRANSACT_ATTEMPTS: u32 = 100;
/// After this time [`Database::transact`] begins no further attempt, unless `transact_wait` is
/// longer.
const TRANSACT_TIME: Duration = Duration::from_secs(5);
/// The default of `transact_wait`, in times of `lock_wait`.
const LOCK_WAITS: u32 = 3;
/// The default of `transact_wait` where `lock_wait` is short.
const TRANSACT_WAIT_MIN: Duration = Duration::from_millis(100);

/// The outcome of an attempt that may be repeated.
enum Attempt<T, E> {
    Done(T),
    Retry(Retry<E>),
}

/// An attempt that met other transactions.
struct Retry<E> {
    error: E,
    /// It waited for a row or lock for as long as it may.
    timed_out: bool,
}

impl Database {
    pub(super) fn enter(&self) -> Result<Option<PoisonOnPanic<'_>>> {
        self.inner.system.committed.enter()
    }

    /// Creates a table, durably.
    ///
    /// # Errors
    /// `AlreadyExists`; `InvalidArgument` for the name; `OutOfMemory`; those of a commit.
    pub fn create_table(&self, name: &str) -> Result<Table> {
        self.inner.check_writable()?;
        let _inside = self.enter()?;
        self.inner.system.create_table(name).map(|state| Table { state })
    }

    /// Returns the table called `name`, once its creation is durable, and its name.
    ///
    /// # Errors
    /// `NotFound` if no table has this name, once the drop or rename of an earlier one is durable;
    /// `Poisoned` if such a change can no longer become durable.
    pub fn table(&self, name: &str) -> Result<Table> {
        let _inside = self.enter()?;
        self.inner.system.table(name).map(|state| Table { state })
    }

    /// Returns the table called `name`; creates it, durably, if it is missing.
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
                // Another thread was faster.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                created => return created,
            }
        }
    }

    /// Drops a table and all its rows, durably.
    ///
    /// # Errors
    /// `NotFound`; `Busy` while open transactions or snapshots use it; those of a commit.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        self.inner.check_writable()?;
        let _inside = self.enter()?;
        self.inner.system.drop_table(name)
    }

    /// Returns the table with this identifier, once its creation is durable.
    pub(crate) fn table_with_id(&self, id: u32) -> Result<Table> {
        self.inner.check_usable()?;
        let state = self.inner.system.catalog.lock().find_id(TableId(id));
        match state {
            Some(state) => self.table(&state.name.get()),
            None => Err(Error::new(ErrorKind::NotFound, format!("there is no table with identifier {id}"))),
        }
    }

    pub(crate) fn forget_shared(&self, table: &Table) {
        self.inner.typed.forget(table.id());
    }

    /// Has [`Database::verify`] run `check`, too.
    pub(crate) fn add_check(&self, check: Check) {
        self.inner.typed.add_check(check);
    }

    /// Gives a table another name, durably. Handles of the table, and transactions and snapshots
    /// that use it, continue to work.
    ///
    /// ```
    /// # use quenchdb::Database;
    /// # let db = Database::builder().open_in_memory()?;
    /// let table = db.create_table("people")?;
    /// db.rename_table("people", "customers")?;
    /// assert_eq!(db.tables(), ["customers"]);
    /// db.transact(|tx| tx.insert(&table, "alice", "Vienna"))?;
    /// # Ok::<(), quenchdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// `NotFound`; `AlreadyExists` if a table has the new name; `InvalidArgument` for the new name;
    /// those of a commit.
    pub fn rename_table(&self, name: &str, new_name: &str) -> Result<()> {
        self.inner.check_writable()?;
        let _inside = self.enter()?;
        self.inner.system.rename_table(name, new_name)
    }

    /// Drops a table and creates an empty one of the same name, in one durable step, whose time
    /// does not depend on the number of rows. Handles of the old table return `NotFound` from then
    /// on. [`Transaction::clear`] deletes the rows in a transaction.
    ///
    /// ```
    /// # use quenchdb::Database;
    /// # let db = Database::builder().open_in_memory()?;
    /// let cache = db.create_table("cache")?;
    /// db.transact(|tx| tx.insert(&cache, "key", "value"))?;
    /// let cache = db.clear_table("cache")?;
    /// assert!(db.begin_read()?.is_empty(&cache)?);
    /// # Ok::<(), quenchdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Database::drop_table`] and [`Database::create_table`].
    pub fn clear_table(&self, name: &str) -> Result<Table> {
        self.inner.check_writable()?;
        let _inside = self.enter()?;
        self.inner.system.clear_table(name).map(|state| Table { state })
    }

    /// Returns the names of all tables, in order. Creations and drops that are not durable yet
    /// count. None in a forked child.
    #[must_use]
    pub fn tables(&self) -> Vec<String> {
        if self.inner.is_forked() {
            return Vec::new();
        }
        self.inner.system.catalog.names()
    }

    /// Begins a read-write transaction with snapshot isolation and durable commit.
    ///
    /// # Errors
    /// `Busy` at the limit of open transactions; `InvalidArgument` if the database is closed or
    /// read-only.
    pub fn begin(&self) -> Result<Transaction> {
        self.begin_with(TransactionOptions::new())
    }

    /// Begins a transaction with the given options. An [`Isolation`] or a [`Durability`] alone is
    /// enough for the usual cases.
    ///
    /// ```
    /// use quenchdb::{Database, Durability, Isolation, TransactionOptions};
    ///
    /// # fn main() -> quenchdb::Result<()> {
    /// let db = Database::builder().open_in_memory()?;
    /// let table = db.create_table("accounts")?;
    /// let mut tx = db.begin_with(TransactionOptions::new().isolation(Isolation::ReadCommitted))?;
    /// tx.insert(&table, "alice", "100")?;
    /// tx.commit()?;
    /// let lazy = db.begin_with(Durability::Lazy)?;
    /// # lazy.abort();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` for options that contradict each other; as [`Database::begin`].
    ///
    /// [`Isolation`]: crate::Isolation
    /// [`Durability`]: crate::Durability
    pub fn begin_with(&self, options: impl Into<TransactionOptions>) -> Result<Transaction> {
        let options = options.into();
        options.check()?;
        self.inner.check_writable()?;
        let _inside = self.enter()?;
        ActiveTransaction::begin(&self.inner.system, options).map(Transaction::new)
    }

    /// Begins a read-only snapshot of everything acknowledged so far, and of everything that this
    /// thread has committed.
    ///
    /// # Errors
    /// `Busy` at the limit of open snapshots.
    pub fn begin_read(&self) -> Result<Snapshot> {
        let _inside = self.enter()?;
        ReadSnapshot::begin(&self.inner.system).map(Snapshot::new)
    }

    /// Runs `f` in a transaction and commits it, durably. If the transaction met a conflict, a
    /// deadlock or a lock timeout, takes everything back and runs `f` again from the beginning,
    /// with growing pauses. So `f` must have no effects outside the transaction that may not be
    /// repeated. Any other error, and a panic, aborts the transaction.
    ///
    /// The error is returned after 100 attempts. An attempt is the last one, too, if it ends more
    /// than 5 s after the first one began, or with a lock timeout after
    /// [`transact_wait`](crate::Settings::transact_wait): three times `lock_wait`, 3 s by default.
    ///
    /// The error is the caller's own, as long as it can hold one of the engine. Whether `f` runs
    /// again depends on what the transaction met ([`Transaction::has_to_retry`]), whatever `f` made
    /// of it.
    ///
    /// ```
    /// use quenchdb::{Database, Table};
    ///
    /// #[derive(Debug)]
    /// enum Refused {
    ///     Overdrawn { balance: i64 },
    ///     Failed(quenchdb::Error),
    /// }
    ///
    /// impl From<quenchdb::Error> for Refused {
    ///     fn from(error: quenchdb::Error) -> Refused {
    ///         Refused::Failed(error)
    ///     }
    /// }
    ///
    /// fn withdraw(db: &Database, table: &Table, owner: &str, amount: i64) -> Result<i64, Refused> {
    ///     db.transact(|tx| {
    ///         let balance = tx.add(table, owner, -amount)?;
    ///         if balance < 0 {
    ///             return Err(Refused::Overdrawn { balance: balance + amount });
    ///         }
    ///         Ok(balance)
    ///     })
    /// }
    ///
    /// # let db = Database::builder().open_in_memory()?;
    /// let accounts = db.create_table("accounts")?;
    /// db.transact(|tx| tx.add(&accounts, "alice", 70))?;
    /// assert!(matches!(withdraw(&db, &accounts, "alice", 50), Ok(20)));
    /// let refused = withdraw(&db, &accounts, "alice", 50);
    /// assert!(matches!(refused, Err(Refused::Overdrawn { balance: 20 })));
    /// # Ok::<(), quenchdb::Error>(())
    /// ```
    ///
    /// A closure that ends with `Ok(..)` and uses `?` has to name its error, if nothing else does:
    /// `|tx| -> quenchdb::Result<_> { .. }`.
    ///
    /// An error of `f` is returned once everything that `f` observed is durable: a caller that
    /// learns that a name is taken can rely on it, also after a power cut.
    ///
    /// # Errors
    /// What `f` returns; those of a commit; a retryable error when the last attempt failed.
    pub fn transact<T, E: From<Error>>(
        &self,
        f: impl FnMut(&mut Transaction) -> Result<T, E>,
    ) -> Result<T, E> {
        self.transact_with(TransactionOptions::new(), f)
    }

    /// Does the same as [`Database::transact`] in a transaction with the given options. An error of
    /// `f` waits for what `f` observed at level durable only.
    ///
    /// # Errors
    /// As [`Database::begin_with`] and [`Database::transact`].
    pub fn transact_with<T, E: From<Error>>(
        &self,
        options: impl Into<TransactionOptions>,
        mut f: impl FnMut(&mut Transaction) -> Result<T, E>,
    ) -> Result<T, E> {
        self.run(options.into(), &mut f, Transaction::commit).map(|(value, _)| value)
    }

    /// Runs `f` in transactions until one ends with `commit`. Returns what both returned.
    pub(super) fn run<T, C, E: From<Error>>(
        &self,
        options: TransactionOptions,
        f: &mut impl FnMut(&mut Transaction) -> Result<T, E>,
        commit: fn(Transaction) -> Result<C>,
    ) -> Result<(T, C), E> {
        let mut random = Random::from_entropy();
        let begun = self.inner.clock.now();
        let lock_wait = options.own_lock_timeout().unwrap_or(self.inner.settings.lock_wait);
        let usual = (LOCK_WAITS * lock_wait).max(TRANSACT_WAIT_MIN);
        let patience = self.inner.settings.transact_wait.unwrap_or(usual);
        for attempt in 1.. {
            match self.attempt(options, f, commit)? {
                Attempt::Retry(retry) if attempt >= TRANSACT_ATTEMPTS => return Err(retry.error),
                Attempt::Retry(retry) => {
                    let most = if retry.timed_out { patience } else { patience.max(TRANSACT_TIME) };
                    if self.inner.clock.now().since(begun) >= most {
                        return Err(retry.error);
                    }
                    let most_us = 10u64 << attempt.min(10);
                    thread::sleep(Duration::from_micros(random.below(most_us)));
                }
                Attempt::Done(done) => return Ok(done),
            }
        }
        unreachable!("the loop ends at the last attempt")
    }

    /// Runs `f` in a transaction once, and ends it with `commit`.
    fn attempt<T, C, E: From<Error>>(
        &self,
        options: TransactionOptions,
        f: &mut impl FnMut(&mut Transaction) -> Result<T, E>,
        commit: fn(Transaction) -> Result<C>,
    ) -> Result<Attempt<(T, C), E>, E> {
        let mut transaction = self.begin_with(options)?;
        match f(&mut transaction) {
            Ok(value) => match commit(transaction) {
                Ok(committed) => Ok(Attempt::Done((value, committed))),
                Err(error) if error.is_retryable() => {
                    let timed_out = error.kind() == ErrorKind::LockTimeout;
                    Ok(Attempt::Retry(Retry { error: error.into(), timed_out }))
                }
                Err(error) => Err(error.into()),
            },
            Err(error) if transaction.has_to_retry() => {
                let timed_out = transaction.has_timed_out();
                transaction.abort();
                Ok(Attempt::Retry(Retry { error, timed_out }))
            }
            Err(error) => {
                transaction.abort_acknowledging()?;
                Err(error)
            }
        }
    }

    /// Makes a checkpoint now, as fast as the device allows. The next recovery starts from it, and
    /// the log before it is recycled. Commits continue meanwhile, more slowly; see
    /// [`Database::checkpoint_paced`].
    ///
    /// # Errors
    /// `OutOfSpace`, I/O, `Poisoned`; `InvalidArgument` if the database is read-only or closed.
    pub fn checkpoint(&self) -> Result<CheckpointReport> {
        self.inner.check_writable()?;
        let _inside = self.enter()?;
        self.inner.checkpointer()?.checkpoint()
    }

    /// Makes a checkpoint now, at the pace of automatic checkpoints: slowly, to spare the device
    /// for commits, and fast enough for `recovery_seconds`.
    ///
    /// # Errors
    /// As [`Database::checkpoint`].
    pub fn checkpoint_paced(&self) -> Result<CheckpointReport> {
        self.inner.check_writable()?;
        let _inside = self.enter()?;
        self.inner.checkpointer()?.checkpoint_paced(&self.inner.pacer())
    }

    /// Makes everything committed so far durable, of all levels and threads. Every snapshot that
    /// begins afterwards sees it.
    ///
    /// # Errors
    /// `Poisoned` if a write or flush failed.
    pub fn flush(&self) -> Result<()> {
        let _inside = self.enter()?;
        if let Some(commit) = self.inner.system.committed.running() {
            commit.waits().flush_all()?;
        }
        // Versions that were kept until their transactions were durable can be given back.
        self.inner.system.versions.collect_all();
        Ok(())
    }

    /// Returns whether the database works, why not, and since when, without using the device. Takes
    /// microseconds, so it can answer the probe of an orchestrator. Degraded, too, while commits
    /// wait for seconds, or fail, for a reason that may pass.
    #[must_use]
    pub fn health(&self) -> Health {
        health(&self.inner)
    }

    /// Returns the numbers of this moment. May be called many times a second: it reads counters and
    /// merges histograms, which takes a fraction of a millisecond of one thread, and touches no
    /// file. In a forked child the numbers are 0.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        Statistics::of(&self.inner)
    }

    /// Returns the statistics of the database in the directory `path` that a process has open for
    /// writing, as [`Statistics::prometheus`] writes them. The process answers on the socket
    /// `monitor.sock` in the directory, if [`Settings::monitor`](crate::Settings::monitor) is set;
    /// only its own user and root can ask. Opens nothing, and disturbs no transaction.
    ///
    /// ```
    /// # fn main() -> quenchdb::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory for temporary files");
    /// # let path = directory.path();
    /// let db = quenchdb::Database::open(path)?;
    /// // In another process:
    /// let text = quenchdb::Database::ask_statistics(path)?;
    /// assert!(text.contains("quenchdb_committed_total 0"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NotFound` if no process answers; I/O.
    pub fn ask_statistics(path: impl AsRef<Path>) -> Result<String> {
        crate::device::ask(path.as_ref())
    }

    /// Returns the CSN of the newest durable checkpoint, or of the one that
    /// [`Builder::open_checkpoint`](crate::Builder::open_checkpoint) opened: the checkpoint
    /// contains everything up to this CSN. 0 if the database is open read-only in another way.
    #[must_use]
    pub fn checkpoint_csn(&self) -> Csn {
        self.inner.checkpoint_csn()
    }

    /// Returns the number and the time of the checkpoints made since open. Cheaper than
    /// [`Database::statistics`].
    #[must_use]
    pub fn checkpoints(&self) -> CheckpointTotals {
        self.inner.checkpoints()
    }

    /// Returns the readers that have a checkpoint open
    /// ([`Builder::open_checkpoint`](crate::Builder::open_checkpoint)), in any process. Opens a
    /// small file for each place that a reader ever took, 64 at most, so do not call it many times
    /// a second. In a store of objects it reads all pins, and knows only the number of the readers:
    /// [`Place::pins`](crate::Place::pins) returns more.
    #[must_use]
    pub fn checkpoint_readers(&self) -> Vec<CheckpointReader> {
        if self.inner.is_forked() {
            return Vec::new();
        }
        if let Some(pins) = self.inner.storage.pins() {
            let unknown = CheckpointReader { generation: 0, csn: Csn::ZERO, process: 0 };
            return pins.list_pins().map_or(Vec::new(), |pins| vec![unknown; pins.len()]);
        }
        self.inner.store.disk_space().checkpoint_readers()
    }

    /// Resets latencies, aborts, conflicts, waits for rows and for versions, and the times of
    /// inserts into the log: between a warm-up and a measurement.
    pub fn reset_statistics(&self) {
        if self.inner.is_forked() {
            return;
        }
        if let Some(commit) = self.inner.system.committed.running() {
            commit.inspect().metrics().reset();
        }
        self.inner.system.counters.reset();
    }

    /// Returns the locks that transactions hold besides the rows that they have changed, and all
    /// requests that wait. Looks at each lock, so do not call it many times a second if there are
    /// many.
    #[must_use]
    pub fn locks(&self) -> Vec<LockInfo> {
        if self.inner.is_forked() { Vec::new() } else { self.inner.system.lock_report() }
    }

    /// Returns what recovery did when the database was opened.
    #[must_use]
    pub fn recovery(&self) -> RecoveryReport {
        self.inner.opened.recovery
    }

    /// Returns one line that says what was opened: device, durability method, preset, logs.
    #[must_use]
    pub fn open_line(&self) -> String {
        open_line(&self.inner)
    }

    /// Returns the length of the longest key, in bytes.
    #[must_use]
    pub fn max_key_bytes(&self) -> usize {
        crate::tree::max_key_bytes(self.inner.pool.page_bytes())
    }

    /// Returns how long a key and its value together may be to lie in one entry of a page, in
    /// bytes. Longer values, up to [`VALUE_BYTES_MAX`](crate::VALUE_BYTES_MAX), go to pages of
    /// their own.
    #[must_use]
    pub fn max_entry_bytes(&self) -> usize {
        crate::tree::max_entry_bytes(self.inner.pool.page_bytes())
    }

    /// Closes the database: makes everything committed durable, and makes a last checkpoint, so
    /// that the next open replays nothing. Then the directory is free for the next open, also while
    /// other handles, snapshots, transactions or tables live; their further calls fail.
    /// Transactions still open count as aborted.
    ///
    /// # Errors
    /// I/O, `Poisoned`, `OutOfSpace`: then the next open recovers from the log. A second close
    /// returns the outcome of the first, or `Busy` while another thread is closing.
    pub fn close(self) -> Result<()> {
        self.inner.close()
    }

    /// Returns the records of the log, in CSN order, of a database in a directory that is not open,
    /// or in a store of objects. There a writer continues, and the records are those of a recent
    /// moment. `progress` gets the log bytes scanned.
    ///
    /// # Errors
    /// As a read-only open; `Busy` if a writer in a store of objects removed or added to the log
    /// while it was read, so that it looks damaged: then try again.
    pub fn dump_log(path: impl AsRef<Path>, progress: Option<Progress>) -> Result<Vec<DumpedRecord>> {
        let settings = Settings { io_uring: false, ..Settings::default() };
        let storage = Place::from(path.as_ref()).open_source(&settings)?;
        let open = || ManifestFile::open(&*storage, true).map_err(no_database);
        // Opened before the lock, so that no lock file is created in other directories; and once
        // more under the lock.
        open()?;
        let _lock = storage.lock(false)?;
        let (_, mut manifest) = open()?;
        let mut settings = Settings { read_only: true, ..settings };
        let memories = log_memory::open(&*storage, &mut settings, &mut manifest, 1, 0)?;
        let progress = Mutex::new(or_ignore(progress));
        let scanned = |done, total| (progress.lock())("log bytes scanned", done, total);
        crate::log::dump(&storage, memories.old.found.as_ref(), manifest.database, manifest.covered, &scanned)
            .map_err(|error| unless_written(&*storage, error))
    }
}
