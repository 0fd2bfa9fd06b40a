//! Backups: making them, restoring them, and compacting a database.

use super::database::Database;
use super::log_memory::find_of_original;
use super::open::{Progress, or_ignore};
use super::place::Place;
use crate::backup::{self, BackupReport, Chain, CompactReport, Source};
use crate::base::clock::Clock;
use crate::base::settings::{Lab, Settings};
use crate::base::{Csn, Error, ErrorKind, Result};
use crate::device::Storage;
use crate::recovery::CopiedLog;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How to back up. Start from `BackupOptions::default()` and set fields.
#[derive(Default)]
#[non_exhaustive]
pub struct BackupOptions {
    /// An earlier backup of the same database, full or incremental. Then only what has changed
    /// since is copied, and restoring needs both.
    pub base: Option<Place>,
    /// Copy the newest existing checkpoint, instead of making one first.
    pub newest_checkpoint: bool,
    /// Gets the number of pages copied.
    pub progress: Option<Progress>,
}

/// How to restore. Start from `RestoreOptions::default()` and set fields.
#[derive(Default)]
#[non_exhaustive]
pub struct RestoreOptions {
    /// The original or a copy of it: a directory with its `log` and, if the original was reopened
    /// after the last backup, its `MANIFEST`. The log after the last backup is replayed, with what
    /// is only in the original's memory-mapped log. The directory is only read, and must not be
    /// open for writing.
    pub log: Option<Place>,
    /// The last transaction to be replayed; without it all that are found. Needs `log`, unless it
    /// is that of the last backup.
    pub to: Option<Csn>,
    /// Memory for replaying, compression of pages, trust in the device, and the like; with `log`
    /// also the path of the memory-mapped log of the original (`log_memory`), if it has moved.
    pub settings: Settings,
    /// Gets the numbers of pages and transactions restored.
    pub progress: Option<Progress>,
}

/// What was restored.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct RestoreReport {
    /// The database contains every transaction up to this one, and no other.
    pub csn: Csn,
    /// Pages copied from the backups.
    pub pages: u64,
    /// Bytes of these pages.
    pub bytes: u64,
    /// Transactions replayed from the log.
    pub replayed: u64,
    /// Duration in seconds.
    pub seconds: f64,
}

impl BackupOptions {
    /// Returns the options after `change`: `BackupOptions::default().with(|options| ...)`.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut BackupOptions)) -> BackupOptions {
        change(&mut self);
        self
    }
}

impl RestoreOptions {
    /// Returns the options after `change`: `RestoreOptions::default().with(|options| ...)`.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut RestoreOptions)) -> RestoreOptions {
        change(&mut self);
        self
    }
}

impl Database {
    /// Copies the database as of a checkpoint to `target`, an empty directory (created if it is
    /// missing) or an empty prefix in a store of objects. Transactions and checkpoints continue
    /// meanwhile. The copy of every page is verified and durable when this returns. A full backup
    /// can be opened read-only; [`Database::restore`] makes a writable database of it. Space that
    /// checkpoints free stays in use until the copy is complete. Of a checkpoint that is open
    /// beside a writer ([`Builder::open_checkpoint`](super::Builder::open_checkpoint)), copies that
    /// checkpoint.
    ///
    /// # Errors
    /// `AlreadyExists` or `InvalidArgument` if the target is not empty, or the base does not belong
    /// to this database; `InvalidArgument` if the target lies in the directory of the database or
    /// of the base, the database is open read-only and was not closed, or is closed meanwhile;
    /// `Corruption` if a page of the database, or the base, is damaged; `OutOfSpace`, I/O,
    /// `Poisoned`. Then what was written is removed; an incomplete copy that stays, after a crash
    /// for example, is recognised as such.
    pub fn backup(&self, target: impl Into<Place>, options: BackupOptions) -> Result<BackupReport> {
        self.inner.check_usable()?;
        let _span = tracing::info_span!("backup", increment = options.base.is_some()).entered();
        let clock = Clock::real();
        let start = clock.now();
        let mut progress = or_ignore(options.progress);
        // The device settings of this database need not hold for another device.
        let anywhere = Settings { io_uring: self.inner.settings.io_uring, ..Settings::default() };
        let target = target.into();
        let own = ("the database", self.directory());
        target
            .refuse_nested([Some(own), options.base.as_ref().map(|base| ("the base", base.directory()))])?;
        let base = options.base.map(|base| base.open_source(&anywhere)).transpose()?;
        // Before anything is created at the target.
        if let Some(base) = &base {
            backup::check_is_backup(&**base)?;
        }
        let target = target.open_target(&anywhere)?;
        let storage = &*self.inner.storage;
        let (manifest, _held) = match &self.inner.writing {
            Some(_) => {
                let (manifest, held) =
                    self.inner.check_writable()?.checkpointer.hold(!options.newest_checkpoint)?;
                (manifest, Some(held))
            }
            None => match &self.inner.at_checkpoint {
                // The open store keeps the blocks of the checkpoint.
                Some(manifest) => (manifest.clone(), None),
                // The read-only open locks out writers.
                None => (self.manifest_at_rest()?, None),
            },
        };
        let compression = self.inner.settings.compression;
        let source = Source { storage, manifest: &manifest, compression };
        let copied = backup::back_up(source, &*target, base.as_deref(), &mut *progress);
        // What was read after a close may be of the next owner.
        if let Err(error) = self.inner.check_usable() {
            if copied.is_ok()
                && let Ok(_lock) = target.lock(true)
            {
                backup::clear(&*target);
            }
            return Err(error);
        }
        let report = copied?;
        Ok(BackupReport { seconds: clock.now().since(start).as_secs_f64(), ..report })
    }

    /// Makes a new database in `target`, an empty directory (created if it is missing) or an empty
    /// prefix in a store of objects. It is made of a full backup and the increments that follow it,
    /// in their order: as of the last one, or as of a later CSN that the original's log reaches.
    /// The new database has a new identity, so no log of the original can be mistaken for its log.
    /// Everything is durable when this returns.
    ///
    /// # Errors
    /// Before anything is written to the target: `AlreadyExists` or `InvalidArgument` if the target
    /// is not empty, the backups do not follow each other, the log is not theirs, or `to` cannot be
    /// reached from them; `NotFound` if a backup or the log is missing, or, without `to`, the
    /// memory-mapped log that continues it; `Busy` if the log's database is open for writing;
    /// `Corruption` if a description of a backup is damaged or not complete. Later: `Corruption` if
    /// a page of a backup is damaged, or the log lacks needed transactions (the error says how far
    /// a restore can go); `OutOfSpace`, I/O. Then what was written is removed; an incomplete target
    /// that stays cannot be opened.
    pub fn restore(
        backups: impl IntoIterator<Item = impl Into<Place>>,
        target: impl Into<Place>,
        options: RestoreOptions,
    ) -> Result<RestoreReport> {
        let clock = Clock::real();
        let start = clock.now();
        let RestoreOptions { log, to, settings, progress } = options;
        let mut progress = or_ignore(progress);
        // Refuse what can be refused before the target is written, so that it stays empty for the
        // next attempt.
        settings.validate()?;
        let target = target.into();
        let places: Vec<Place> = backups.into_iter().map(Into::into).collect();
        let sources = places.iter().map(|place| Some(("a backup", place.directory())));
        target.refuse_nested(sources.chain([log.as_ref().map(|log| ("the log", log.directory()))]))?;
        let backups = places.iter().map(|place| Ok((place.open_source(&settings)?, place.path())));
        let chain = Chain::open(&backups.collect::<Result<Vec<_>>>()?)?;
        let log = log.map(|log| open_log(&log, &chain, to, &settings)).transpose()?;
        let (copied, _lock) = log.unzip();
        let csn = chain.source().checkpoint;
        if copied.is_none() && to.is_some_and(|to| to != csn) {
            let what = format!("without a log the backups restore only CSN {csn}");
            return Err(Error::invalid(what).with_advice("set `log`, or leave out `to`"));
        }
        let target = target.open_target(&settings)?;
        // Before the lock, which would end a writer in a store of objects.
        let of_target = |error: Error| error.of("the target");
        backup::refuse_unless_empty(&*target).map_err(of_target)?;
        let lock = target.lock(true).map_err(of_target)?;
        backup::begin_restore(&*target).map_err(of_target)?;
        // Until the end the directory is marked, and cannot be opened.
        let restored = backup::restore_pages(&chain, &*target, settings.compression, &mut *progress);
        drop((lock, chain));
        let replayed = restored.and_then(|restored| match copied {
            Some(copied) => Ok((replay(copied, target.clone(), &settings, progress)?, restored)),
            None => Ok(((restored.csn(), 0), restored)),
        });
        let lock = target.lock(true).map_err(of_target)?;
        let ended = replayed
            .and_then(|all| backup::finish_restore(&*target).map_err(of_target).map(|()| all))
            .inspect_err(|_| backup::clear(&*target));
        drop(lock);
        let ((csn, replayed), restored) = ended?;
        Ok(RestoreReport {
            csn,
            replayed,
            pages: restored.pages,
            bytes: restored.bytes,
            seconds: clock.now().since(start).as_secs_f64(),
        })
    }

    /// Gives space back: shortens the file of pages to its used blocks, with at most a twentieth
    /// more (or what the next checkpoint needs, if that is more), while transactions continue.
    /// Makes several checkpoints. Does not move what a running backup needs.
    ///
    /// # Errors
    /// As [`Database::checkpoint`]; `Corruption` if a page that should move is damaged.
    pub fn compact(&self, progress: Option<Progress>) -> Result<CompactReport> {
        let checkpointer = &self.inner.check_writable()?.checkpointer;
        let clock = Clock::real();
        let start = clock.now();
        let mut progress = or_ignore(progress);
        let report = backup::compact(checkpointer, &self.inner.store, &mut *progress)?;
        Ok(CompactReport { seconds: clock.now().since(start).as_secs_f64(), ..report })
    }

    /// Returns the real directory of the database, also of a store of objects that is one.
    fn directory(&self) -> Option<PathBuf> {
        let url = || match Place::from(&self.inner.opened.path) {
            place @ Place::Url(_) => place.directory(),
            _ => None,
        };
        self.inner
            .storage
            .directory()
            .and_then(|directory| directory.path())
            .map(Path::to_path_buf)
            .or_else(url)
    }

    fn manifest_at_rest(&self) -> Result<crate::store::Manifest> {
        let (_, manifest) = crate::store::ManifestFile::open(&*self.inner.storage, true)?;
        if !manifest.clean {
            let what = "the database was not closed, and its checkpoint lacks what is in the log";
            return Err(Error::invalid(what).with_advice("open it for writing once, then close it"));
        }
        Ok(manifest)
    }
}

/// Opens the log to be replayed, with the lock that keeps writers out meanwhile.
fn open_log(
    place: &Place,
    chain: &Chain,
    to: Option<Csn>,
    settings: &Settings,
) -> Result<(CopiedLog, Option<Box<dyn Send + Sync>>)> {
    let storage = place.open_source(settings)?;
    let lock = place.lock_for_reading(&*storage).map_err(|error| {
        let advice = "close it with trim_log = false, or restore with a copy of its files made then";
        match error.kind() {
            ErrorKind::Busy => {
                Error::new(ErrorKind::Busy, format!("the log's directory: {}", error.message()))
                    .with_advice(advice)
            }
            _ => error.of("the log's directory"),
        }
    })?;
    let memory = storage.clone();
    let map = |database, needed: &_| find_of_original(&*memory, settings, database, needed);
    Ok((CopiedLog::new(storage, chain.source(), to, &map)?, lock))
}

/// Returns the settings for replaying a log. The database is closed before any commit, so settings
/// of commits do not matter, and the mapped memory in `settings` is the original's.
fn settings_for_replay(settings: &Settings) -> Settings {
    let checkpoint_log_bytes = settings.lab.checkpoint_log_bytes;
    Settings {
        memory_bytes: settings.memory_bytes,
        version_bytes: settings.version_bytes,
        compression: settings.compression,
        logs: 1,
        segment_bytes: settings.segment_bytes,
        log_bytes_max: settings.log_bytes_max,
        write_deadline: settings.write_deadline,
        device_trust: settings.device_trust,
        io_uring: settings.io_uring,
        lab: Lab { checkpoint_log_bytes, ..Lab::default() },
        ..Settings::default()
    }
}

/// Replays a log over the restored pages, and closes the database. Returns its newest CSN, and the
/// number of transactions replayed.
fn replay(
    copied: CopiedLog,
    target: Arc<dyn Storage>,
    settings: &Settings,
    progress: Progress,
) -> Result<(Csn, u64)> {
    let mut builder =
        Database::builder().settings(settings_for_replay(settings)).in_storage(target).on_recovery(progress);
    builder.request.copied = Some(copied);
    let database = builder.open("a database that is being restored")?;
    let (csn, replayed) = (database.statistics().newest_csn, database.recovery().replayed);
    database.close()?;
    Ok((csn, replayed))
}

#[cfg(test)]
mod tests;
