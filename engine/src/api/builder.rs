//! Opening a database with settings.

use super::database::Database;
use super::open::{self, Progress, Request, or_ignore};
use super::place::{OtherStorage, Place};
use super::refuse;
use super::verify::{self, VerifyReport};
use crate::base::Result;
use crate::base::clock::Clock;
#[cfg(any(test, feature = "internals"))]
use crate::base::settings::Lab;
use crate::base::settings::{Acknowledge, Compression, DeviceTrust, Preset, Settings};
use crate::device::Storage;
use crate::device::memory::MemoryStorage;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Collects settings, then opens a database.
#[derive(Default)]
#[must_use = "a builder does nothing before `open`"]
pub struct Builder {
    pub(super) request: Request,
    pub(super) storage: Option<Arc<dyn Storage>>,
    pub(super) scratch: Option<PathBuf>,
    /// A bucket that is to be replaced, and the one that takes its place.
    replace: Option<(String, String)>,
    pub(super) copy_directory: Option<PathBuf>,
}

macro_rules! setters {
    ($($name:ident: $type:ty = $value:expr),* $(,)?) => {
        $(
            #[doc = concat!("Sets [`Settings::", stringify!($name), "`].")]
            pub fn $name(mut self, $name: $type) -> Builder {
                self.request.settings.$name = $value;
                self
            }
        )*
    };
}

/// Settings of general use.
impl Builder {
    setters! {
        create: bool = create,
        read_only: bool = read_only,
        memory_bytes: u64 = memory_bytes,
        page_bytes: usize = page_bytes,
        compression: Compression = compression,
        preset: Preset = preset,
        recovery_seconds: u32 = recovery_seconds,
        log_bytes_max: u64 = log_bytes_max,
        loss_window: Duration = loss_window,
        lock_wait: Duration = lock_wait,
        transact_wait: Duration = Some(transact_wait),
        slow_commit_log: Duration = Some(slow_commit_log),
    }
}

/// Settings for operators.
impl Builder {
    setters! {
        monitor: bool = monitor,
        version_bytes: u64 = version_bytes,
        logs: usize = logs,
        segment_bytes: u64 = segment_bytes,
        trim_log: bool = trim_log,
        change_history_bytes: u64 = change_history_bytes,
        write_deadline: Duration = write_deadline,
        device_trust: DeviceTrust = device_trust,
        io_uring: bool = io_uring,
        object_cache: impl Into<PathBuf> = Some(object_cache.into()),
        object_cache_bytes: u64 = object_cache_bytes,
        acknowledge: Acknowledge = acknowledge,
        log_memory: impl Into<PathBuf> = Some(log_memory.into()),
    }
}

impl Builder {
    /// Sets all settings at once.
    pub fn settings(mut self, settings: Settings) -> Builder {
        self.request.settings = settings;
        self
    }

    pub(super) fn in_storage(mut self, storage: Arc<dyn Storage>) -> Builder {
        self.storage = Some(storage);
        self
    }

    pub(super) fn in_time_of(mut self, clock: Clock) -> Builder {
        self.request.clock = clock;
        self
    }

    /// Sets a callback for the progress of recovery.
    pub fn on_recovery(mut self, progress: Progress) -> Builder {
        self.request.progress = Some(progress);
        self
    }

    /// Opens the database in the directory `path`, creating it if it is missing, and recovers it if
    /// it was not closed. Everything that recovery accepts is durable when this returns.
    ///
    /// With the feature `object-storage`, `path` may be the URL of a store of objects, such as
    /// `file:///path`. There, opening for writing takes the database from any process that has
    /// it: commits of that process fail, those in flight with
    /// [`OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown) and later ones with
    /// [`Fenced`](crate::ErrorKind::Fenced).
    ///
    /// # Errors
    /// `InvalidArgument` for settings that contradict each other, and for a directory with other
    /// files; `NotFound` if the database is missing and must not be created; `Busy` while another
    /// process has it open (in a store of objects: if it wrote while this one read the log);
    /// `Unsupported` for a newer format; `Corruption` with the place; I/O.
    pub fn open(mut self, path: impl AsRef<Path>) -> Result<Database> {
        self.request.settings.validate()?;
        let storage = self.open_storage(path.as_ref())?;
        open::open(storage, path.as_ref(), self.request).map(|inner| Database { inner })
    }

    /// Opens the newest durable checkpoint of the database in the directory `path` for reading,
    /// while another process (or this one) may have it open for writing. Snapshots see exactly that
    /// checkpoint: neither later checkpoints of the writer nor what is only in the log. Open again
    /// to see a newer one. [`Database::checkpoint_csn`] returns its CSN.
    ///
    /// Until the handle is closed, or it and its snapshots are dropped, the writer does not reuse
    /// the space of this checkpoint, so its file of pages may grow. The writer waits for no reader.
    /// Writes only a slot in the directory `readers`, and needs the right to write there. At most
    /// 64 readers at a time. Not for network file systems.
    ///
    /// In a store of objects the reader may be on any machine. It puts a pin, which ends after a
    /// week at the latest, or with [`Place::remove_pin`]: then reads fail with `Poisoned`.
    ///
    /// # Errors
    /// As [`Builder::open`] for reading; `Busy` at the limit of readers, or if checkpoints come
    /// faster than one can be opened.
    pub fn open_checkpoint(mut self, path: impl AsRef<Path>) -> Result<Database> {
        self.force_read_only();
        self.request.at_checkpoint = true;
        self.open(path)
    }

    /// Lets the bucket `new` take the place of `old` in a database in several buckets. The list of
    /// URLs of [`Builder::open`] names `new` and not `old`.
    ///
    /// The database opens without `old`, so a majority must be reachable without it. It copies
    /// everything to `new` in the background; [`Statistics::buckets`](crate::Statistics::buckets)
    /// shows how far that is. From the moment at which `new` counts, the database is in the new
    /// list of buckets, and the old list is refused. If the process ends earlier, the database is
    /// still in the old list. Does nothing if `new` has taken that place already.
    ///
    /// ```no_run
    /// # fn main() -> quenchdb::Result<()> {
    /// let db = quenchdb::Database::builder()
    ///     .replace_bucket("s3://lost/db", "s3://new/db")
    ///     .open("s3://a/db,s3://b/db,s3://new/db")?;
    /// # Ok(()) }
    /// ```
    pub fn replace_bucket(mut self, old: impl Into<String>, new: impl Into<String>) -> Builder {
        self.replace = Some((old.into(), new.into()));
        self.request.settings.create = false;
        self
    }

    /// Sets the directory for the scratch files of [`Builder::open_standby`], on a local disk. The
    /// default is the directory of the system for temporary files. The files have no names, so
    /// nothing remains of them, however the process ends.
    pub fn scratch_directory(mut self, directory: impl Into<PathBuf>) -> Builder {
        self.scratch = Some(directory.into());
        self
    }

    /// Keeps the copy of [`Builder::open_standby`] in a directory, as a database of its own: a
    /// backup that is kept up to date. At each moment, also after a kill, the directory opens as a
    /// database with everything up to some CSN, and at most one newer change of tables. The next
    /// standby with this directory continues from there.
    ///
    /// The first time the newest checkpoint is copied, before `open_standby` returns;
    /// [`Builder::on_recovery`] hears of the pages. The directory must be missing or empty then.
    /// The copy has a table of its own, `quench: followed`, which notes how far it is. If the log
    /// no longer has what the copy lacks, the newest checkpoint is copied again, to a directory
    /// beside this one with `.quench-new` at the end of its name, which then takes its place; open
    /// snapshots end. Do not write to the copy.
    pub fn copy_directory(mut self, directory: impl Into<PathBuf>) -> Builder {
        self.copy_directory = Some(directory.into());
        self
    }

    /// Sets read-only access without a contradiction to a setting of the caller.
    pub(super) fn force_read_only(&mut self) {
        (self.request.settings.read_only, self.request.settings.device_trust) = (true, DeviceTrust::Auto);
    }

    fn open_storage(&mut self, path: &Path) -> Result<Arc<dyn Storage>> {
        let settings = &self.request.settings;
        let place = match self.storage.take() {
            Some(storage) => Place::Storage(OtherStorage(storage)),
            None => Place::from(path),
        };
        if let Some(replace) = &self.replace {
            return place.open_replacing(replace, settings);
        }
        if matches!(place, Place::Url(_)) && !settings.create && !settings.read_only {
            // Opening a store to write to it creates an object, so look first.
            refuse::early(&*place.open(false, true, settings)?, settings)?;
        }
        place.open_cached(settings.create && !settings.read_only, settings.read_only, settings)
    }

    /// Opens the database in the directory `path` without writing anything, checks it as
    /// [`Database::verify`] does, and closes it. If the open is refused because of damage, or
    /// because a file in a directory cannot be read, the report contains this, and what else is
    /// found in log and pages.
    ///
    /// # Errors
    /// As [`Builder::open`], except `Corruption`, and except I/O if the manifest can be read.
    pub fn verify(mut self, path: impl AsRef<Path>, mut progress: Option<Progress>) -> Result<VerifyReport> {
        self.force_read_only();
        // What a cache has says nothing about the store.
        self.request.settings.object_cache = None;
        self.request.settings.validate()?;
        let storage = self.open_storage(path.as_ref())?;
        let mut settings = self.request.settings.clone();
        match open::open(storage.clone(), path.as_ref(), self.request) {
            Ok(inner) => Database { inner }.verify(progress),
            Err(error) => {
                let mut progress = or_ignore(progress.take());
                verify::run_refused(&*storage, error, &mut settings, &mut progress)
            }
        }
    }

    /// Opens a new database in memory, which is gone with its last handle.
    ///
    /// # Errors
    /// `InvalidArgument` for settings; `OutOfMemory`.
    pub fn open_in_memory(self) -> Result<Database> {
        self.in_storage(Arc::new(MemoryStorage::new())).open("memory")
    }
}

impl Database {
    /// Opens the database in the directory `path` with default settings, creating it if it is
    /// missing: commits are durable on return, transactions see a snapshot, memory is bounded.
    ///
    /// # Errors
    /// As [`Builder::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Database> {
        Builder::default().open(path)
    }

    /// Returns a builder, to set what differs from the defaults before [`Builder::open`].
    pub fn builder() -> Builder {
        Builder::default()
    }
}

/// For the engine's own tools and tests.
#[cfg(any(test, feature = "internals"))]
impl Builder {
    /// Changes settings that only experiments change.
    pub fn lab(mut self, change: impl FnOnce(&mut Lab)) -> Builder {
        change(&mut self.request.settings.lab);
        self
    }

    /// Sets where the database is stored, instead of in a directory. `open` then uses its path only
    /// in messages.
    pub fn storage(self, storage: Arc<dyn Storage>) -> Builder {
        self.in_storage(storage)
    }

    /// Sets the time source, instead of the machine's clock.
    pub fn clock(self, clock: Clock) -> Builder {
        self.in_time_of(clock)
    }
}
