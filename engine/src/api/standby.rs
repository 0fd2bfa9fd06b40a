//! A standby: a copy that follows the log of another process, for reading, and for taking over.

use super::builder::Builder;
use super::database::Database;
use super::open::Progress;
use super::place::{OtherStorage, Place};
use super::snapshot::Snapshot;
use super::table::Table;
use super::table_types::check_types;
use crate::base::clock::Clock;
use crate::base::settings::Settings;
use crate::base::{Csn, Error, ErrorKind, Location, Result, TableTypes};
use crate::device::Storage;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Event, Mutex, Process, thread};
use applier::{Applied, Applier, BASE_LOG_BYTES, Served, Shared};
use copy::{Copy, FollowingCopy};
use options::{CopyOptions, SharedProgress};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tables::View;

mod options;
mod tables;
mod kept;
mod copy;
mod handover;
mod applier;

/// What to follow, and how.
struct StandbyRequest {
    place: Place,
    /// The path that the caller named.
    path: PathBuf,
    /// The storage, open for reading.
    storage: Arc<dyn Storage>,
    /// As the caller set them.
    settings: Settings,
    scratch: PathBuf,
    directory: Option<PathBuf>,
    progress: Option<Progress>,
    clock: Clock,
}

/// A copy of a database that follows the log of the process that writes: on any machine, if the
/// database is in a store of objects, and in another process of this one, if it is in a directory.
/// It serves snapshots for reading, and can take the place of the writer.
///
/// Begins at the newest checkpoint, reads each page when it is first needed, and applies each
/// transaction soon after it is durable. What a snapshot shows is never taken back, by no crash of
/// the writer and no takeover. The writer does not wait for a standby, and does not know of it,
/// except for what keeps the pages of the checkpoint: a pin ([`Place::pins`]), or a slot of a
/// reader ([`Builder::open_checkpoint`]).
///
/// The copy needs the memory of an open database
/// ([`memory_bytes`](crate::Settings::memory_bytes)), and scratch space on a local disk for pages
/// that have changed since its checkpoint ([`Builder::scratch_directory`]). It takes a newer
/// checkpoint when the log above that is long, each hour, and when the writer has removed log that
/// the standby has not read. Meanwhile it needs both twice. Snapshots that are open keep the copy
/// that they read. [`Builder::copy_directory`] keeps the copy in a directory instead.
///
/// All methods may be called from any thread. Dropping a standby ends it.
///
/// ```
/// use quenchdb::Database;
///
/// # #[cfg(feature = "object-storage")]
/// # fn main() -> quenchdb::Result<()> {
/// # let directory = tempfile::tempdir().expect("a directory for temporary files");
/// # let url = format!("file://{}", directory.path().join("db").display());
/// // On one machine:
/// let db = Database::open(&url)?;
/// let users = db.create_table("users")?;
/// // On another one:
/// let standby = Database::builder().open_standby(&url)?;
///
/// let mut tx = db.begin()?;
/// tx.insert(&users, "alice", "Vienna")?;
/// let csn = tx.commit()?;
/// assert!(standby.wait_for(csn, std::time::Duration::from_secs(10))?);
/// let snapshot = standby.snapshot()?;
/// let users = snapshot.table("users")?;
/// assert_eq!(snapshot.get(&users, "alice")?.as_deref(), Some(&b"Vienna"[..]));
/// # drop(snapshot);
///
/// // The first machine is gone:
/// let db = standby.promote()?;
/// assert!(db.begin_read()?.csn() >= csn);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "object-storage"))]
/// # fn main() {}
/// ```
#[derive(Debug)]
pub struct Standby {
    shared: Arc<Shared>,
    applier: Mutex<Option<thread::JoinHandle<()>>>,
    place: Place,
    path: PathBuf,
    settings: Settings,
    clock: Clock,
    /// A forked child has no thread that applies, and is refused.
    process: Process,
}

/// How far a standby is.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct StandbyStatistics {
    /// Snapshots show every transaction up to this CSN.
    pub csn: Csn,
    /// The highest CSN that was found in the log.
    pub newest_csn: Csn,
    /// How many CSNs are known and not visible yet.
    pub lag_csns: u64,
    /// Since when something is known that is not visible yet; 0 if everything is.
    pub lag: Duration,
    /// Transactions applied since the standby was opened, those included that were applied again
    /// after a newer checkpoint was taken.
    pub transactions: u64,
    /// How often a newer checkpoint was taken.
    pub new_bases: u64,
    /// The CSN of the checkpoint that is pinned.
    pub base_csn: Csn,
    /// Why the standby cannot follow at the moment. It tries again by itself, and snapshots show
    /// what they did.
    pub failure: Option<Arc<Error>>,
}

impl StandbyStatistics {
    /// Returns the numbers in the text format of Prometheus.
    #[must_use]
    pub fn prometheus(&self) -> String {
        let lag = format!("{:.6}", self.lag.as_secs_f64());
        let numbers = [
            ("csn", "gauge", "Snapshots show every transaction up to this CSN.", self.csn.0.to_string()),
            ("newest_csn", "gauge", "The highest CSN found in the log.", self.newest_csn.0.to_string()),
            ("lag_csns", "gauge", "CSNs that are known and not visible.", self.lag_csns.to_string()),
            ("lag_seconds", "gauge", "Since when something is known that is not visible.", lag),
            ("applied_total", "counter", "Transactions applied.", self.transactions.to_string()),
            ("new_bases_total", "counter", "Newer checkpoints taken.", self.new_bases.to_string()),
            ("base_csn", "gauge", "The CSN of the pinned checkpoint.", self.base_csn.0.to_string()),
            (
                "follows",
                "gauge",
                "1 if the standby follows, 0 if it cannot.",
                u8::from(self.failure.is_none()).to_string(),
            ),
        ];
        let line = |(name, kind, help, value): (&str, &str, &str, String)| {
            let name = format!("quenchdb_standby_{name}");
            format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n")
        };
        numbers.into_iter().map(line).collect()
    }
}

/// A snapshot of a standby: every transaction up to [`StandbySnapshot::csn`], and no other. Reads
/// are those of a [`Snapshot`].
///
/// `Send` and `Sync`, owned, and may outlive the standby. While it lives, its copy and the pin of
/// the copy's checkpoint stay.
#[derive(Debug)]
#[must_use = "a snapshot keeps old versions while it lives: read from it, then drop it"]
pub struct StandbySnapshot {
    snapshot: Snapshot,
    view: Arc<View>,
    csn: Csn,
    /// Dropped last.
    _copy: Arc<Copy>,
}

impl StandbySnapshot {
    /// Returns the table that was called `name` at the CSN of the snapshot. The handle is for
    /// snapshots of this standby only, and is to be taken from each of them.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn table(&self, name: &str) -> Result<Table> {
        let missing = || {
            let what = format!("there was no table of this name at CSN {}", self.csn);
            Error::new(ErrorKind::NotFound, what).at(Location::Table(name.to_string()))
        };
        self.view.names.get(name).cloned().ok_or_else(missing)
    }

    /// Returns the table that was called `name`, which has these types, or none.
    ///
    /// # Errors
    /// `NotFound`; `InvalidArgument` if the table has other types.
    pub(crate) fn table_with_types(&self, name: &str, types: &TableTypes) -> Result<Table> {
        let table = self.table(name)?;
        check_types(&table, types).map(|()| table)
    }

    /// Returns the names of all tables, in order.
    #[must_use]
    pub fn tables(&self) -> Vec<String> {
        self.view.names.keys().map(ToString::to_string).collect()
    }

    /// Returns the CSN, in the database that is followed, of the newest transaction that the
    /// snapshot shows.
    #[must_use]
    pub fn csn(&self) -> Csn {
        self.csn
    }
}

impl std::ops::Deref for StandbySnapshot {
    type Target = Snapshot;

    fn deref(&self) -> &Snapshot {
        &self.snapshot
    }
}

impl Builder {
    /// Opens a standby of the database at `path`, a directory or the URL of a store of objects: a
    /// copy for reading that follows the log of the process that writes, and that can take its
    /// place. See [`Standby`].
    ///
    /// The settings are those of the copy (above all `memory_bytes` and `object_cache`) and of
    /// [`Standby::promote`].
    ///
    /// # Errors
    /// `NotFound` if there is no database; `Unsupported` if it has a memory-mapped log;
    /// `InvalidArgument` for settings, for a list of buckets that are not those of the
    /// database, and for a [`copy_directory`](Builder::copy_directory) with something else;
    /// `Busy` if checkpoints come faster than one can be kept, or another process keeps the
    /// copy, or no manifest is known to be in a majority of several buckets; `Corruption` with
    /// the place; I/O.
    pub fn open_standby(mut self, path: impl AsRef<Path>) -> Result<Standby> {
        let settings = self.request.settings.clone();
        self.force_read_only();
        self.request.settings.create = false;
        let place = match self.storage.take() {
            Some(storage) => Place::Storage(OtherStorage(storage)),
            None => Place::from(path.as_ref()),
        };
        let storage = place.open_cached(false, true, &self.request.settings)?;
        let scratch = self.scratch.unwrap_or_else(std::env::temp_dir);
        let clock = self.request.clock;
        Standby::open(StandbyRequest {
            place,
            path: path.as_ref().to_path_buf(),
            storage,
            settings,
            scratch,
            directory: self.copy_directory,
            progress: self.request.progress,
            clock,
        })
    }
}

impl Standby {
    /// Opens a standby with default settings. See [`Builder::open_standby`].
    ///
    /// # Errors
    /// As [`Builder::open_standby`].
    pub fn open_url(url: &str) -> Result<Standby> {
        Builder::default().open_standby(url)
    }

    fn open(request: StandbyRequest) -> Result<Standby> {
        let StandbyRequest { place, path, storage, settings, scratch, directory, progress, clock } = request;
        settings.validate()?;
        let (base_log_bytes, copied) = (BASE_LOG_BYTES.min(settings.log_bytes_max / 16), settings.clone());
        let (progress, clock_of_copy) = (SharedProgress::new(progress), clock.clone());
        let options = CopyOptions {
            settings: copied,
            base_log_bytes,
            scratch,
            directory,
            progress,
            clock: clock_of_copy,
        };
        let following = FollowingCopy::open(&storage, &options)?;
        let (copy, view, csn) = (following.copy.clone(), following.view.clone(), following.csn);
        let newest = following.tail.newest();
        let shared = Arc::new(Shared {
            served: Mutex::new(Served { copy, view, csn }),
            changed: Event::new(),
            progress: Mutex::new(Applied { newest, ..Applied::default() }),
            left: Mutex::new(None),
            stopping: AtomicBool::new(false),
            wake: Event::new(),
        });
        let applier = Applier::new(shared.clone(), storage, options, following);
        let of_thread = shared.clone();
        let apply = move || {
            if catch_unwind(AssertUnwindSafe(|| applier.run())).is_err() {
                let error = Error::new(ErrorKind::Poisoned, "the thread of the standby panicked");
                of_thread.progress.lock().failure = Some(error);
            }
        };
        let thread = thread::spawn("quench-apply", apply)
            .map_err(|error| Error::io("cannot start the thread of a standby", error))?;
        Ok(Standby {
            shared,
            applier: Mutex::new(Some(thread)),
            place,
            path,
            settings,
            clock,
            process: Process::current(),
        })
    }

    /// Begins a snapshot of everything that was applied. Waits at most for the commit of a few
    /// transactions to the copy.
    ///
    /// # Errors
    /// `Busy` at the limit of open snapshots; `InvalidArgument` in a forked child.
    pub fn snapshot(&self) -> Result<StandbySnapshot> {
        self.process.check()?;
        // Under the lock no transaction of the copy commits.
        let served = self.shared.served.lock();
        let snapshot = served.copy.db.begin_read()?;
        Ok(StandbySnapshot {
            snapshot,
            view: served.view.clone(),
            csn: served.csn,
            _copy: served.copy.clone(),
        })
    }

    /// Returns the CSN up to which new snapshots show every transaction. It never falls. 0 in a
    /// forked child.
    #[must_use]
    pub fn csn(&self) -> Csn {
        if self.process.is_forked() {
            return Csn::ZERO;
        }
        self.shared.served.lock().csn
    }

    /// Waits until new snapshots show every transaction up to `csn`, at most for `timeout`. Returns
    /// whether they do.
    ///
    /// # Errors
    /// Why the standby cannot follow, if it cannot when the time is over; `InvalidArgument` in a
    /// forked child.
    pub fn wait_for(&self, csn: Csn, timeout: Duration) -> Result<bool> {
        self.process.check()?;
        let begun = self.clock.now();
        loop {
            let ticket = self.shared.changed.ticket();
            if self.csn() >= csn {
                return Ok(true);
            }
            let waited = self.clock.now().since(begun);
            if waited >= timeout {
                let failure = self.shared.progress.lock().failure.as_ref().map(Error::duplicate);
                return failure.map_or(Ok(false), Err);
            }
            self.shared.changed.wait(ticket, Some(timeout - waited));
        }
    }

    /// Returns how far the standby is. Waits at most for the commit of a few transactions to the
    /// copy. All 0 in a forked child.
    #[must_use]
    pub fn statistics(&self) -> StandbyStatistics {
        if self.process.is_forked() {
            return StandbyStatistics::default();
        }
        let (csn, base_csn) = {
            let served = self.shared.served.lock();
            (served.csn, served.copy.base.checkpoint)
        };
        let progress = self.shared.progress.lock();
        let newest_csn = progress.newest.max(csn);
        let lag_csns = newest_csn.0 - csn.0;
        let since = progress.behind_since.filter(|_| lag_csns > 0);
        StandbyStatistics {
            csn,
            newest_csn,
            lag_csns,
            lag: since.map_or(Duration::ZERO, |since| self.clock.now().since(since)),
            transactions: progress.transactions,
            new_bases: progress.bases,
            base_csn,
            failure: progress.failure.as_ref().map(|failure| Arc::new(failure.duplicate())),
        }
    }

    /// Ends the standby, and opens the database for writing with the settings of the standby. In a
    /// store of objects the writer before is ended, if it is still alive. Its commits that are in
    /// flight then end as [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) or
    /// [`Fenced`](ErrorKind::Fenced), and all later ones as `Fenced`. Everything that it has
    /// acknowledged is there, and everything that this standby has shown.
    ///
    /// In a store of objects recovery takes over the pages of the copy
    /// ([`RecoveryReport::adopted_pages`](crate::RecoveryReport::adopted_pages)), and reads only
    /// the log that the standby had not applied. If tables have changed since the checkpoint, a
    /// newer checkpoint has just been made, or change history is kept, and in a directory, it reads
    /// the log since the newest checkpoint, as after a crash. Snapshots of the standby that are
    /// open can be read meanwhile, and afterwards.
    ///
    /// # Errors
    /// As [`Builder::open`]: `Busy` as long as the writer of a directory lives. `InvalidArgument`
    /// in a forked child. The standby has ended, too: open it again.
    pub fn promote(self) -> Result<Database> {
        self.process.check()?;
        self.stop();
        let shown = self.csn();
        let left = self.shared.left.lock().take();
        let builder = Builder::default().settings(Settings { create: false, ..self.settings.clone() });
        let builder = builder.in_time_of(self.clock.clone());
        let mut builder = match &self.place {
            Place::Storage(storage) => builder.in_storage(storage.0.clone()),
            Place::Directory(_) | Place::Url(_) => builder,
        };
        builder.request.handover = left.and_then(|left| handover::begin(left, &self.settings));
        let db = builder.open(&self.path)?;
        let recovered = db.begin_read()?.csn();
        if recovered < shown {
            let what = format!("the log ends at CSN {recovered}, and the standby has shown CSN {shown}");
            return Err(Error::corruption(what).at(Location::Transaction(recovered.next())));
        }
        self.end_pin();
        // Closing the copy writes what nothing needs. Without a thread it ends here.
        let _ = thread::spawn("quench-end-copy", move || drop(self));
        Ok(db)
    }

    /// Removes the pin of the copy, unless a snapshot needs it. The checkpoint that it keeps is no
    /// longer read.
    fn end_pin(&self) {
        let copy = &self.shared.served.lock().copy;
        if Arc::strong_count(copy) == 1 {
            copy.end_pin();
        }
    }

    /// Ends the standby. Snapshots that are open can still be read.
    pub fn close(self) {
        self.stop();
    }

    /// Returns when the thread has ended, which may be in the middle of a request to the store.
    fn stop(&self) {
        if self.process.is_forked() {
            return;
        }
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.shared.wake.notify_all();
        let thread = self.applier.lock().take();
        thread.into_iter().for_each(|thread| drop(thread.join()));
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        self.stop();
    }
}
