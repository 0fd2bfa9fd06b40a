//! A copy of a checkpoint to which the log is applied.
//!
//! ```text
//!   CSNs of the database   ... 40 │ 41  42  43 │ 44 │
//!   transactions here             └── one ─────┘└one┘     everything that was found, together
//! ```
//!
//! 1. The copy is a database of its own over the pages of a pinned checkpoint, whose writes go to
//!    scratch files. Nothing else writes to it, so applying meets no conflict.
//! 2. Transactions are applied in the order of their CSNs. Several may become one here: then no
//!    snapshot lies between them.
//! 3. After an error a part of a transaction may be missing: the copy is not applied to any more.

use super::kept::{self, Notes};
use super::options::CopyOptions;
use super::tables::{Tables, View};
use crate::api::builder::Builder;
use crate::api::database::Database;
use crate::api::open::no_database;
use crate::api::transaction::Transaction;
use crate::base::clock::{Clock, Nanos};
use crate::base::settings::{DeviceTrust, Lab, Preset, Settings};
use crate::base::{Csn, Error, ErrorKind, Location, Result};
use crate::device::{OverlayStorage, Storage};
use crate::feed::{Change, CommittedTransaction, DirectoryLog, LogTail, TailLog};
use crate::store::{Manifest, ManifestFile, PageStore};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

/// Changes that are applied in one transaction, unless one of the database has more.
const CHANGES_MAX: usize = 1024;
/// Bytes of keys and values of these changes.
const BYTES_MAX: usize = 1 << 20;
/// Segments of the copy's own log, in bytes, and their space.
const SEGMENT_BYTES: u64 = 16 << 20;
const LOG_BYTES_MAX: u64 = 256 << 20;

/// What a snapshot of a standby keeps: the copy, and with it its checkpoint.
#[derive(Debug)]
pub(super) struct Copy {
    pub(super) db: Database,
    /// The manifest of the checkpoint from which it was made.
    pub(super) base: Manifest,
    /// None for a copy in a directory.
    pub(super) overlay: Option<Arc<OverlayStorage>>,
    /// When it was made.
    pub(super) made: Nanos,
    /// Keeps the checkpoint of a directory. Dropped after the database.
    reader: Option<Arc<PageStore>>,
}

impl Copy {
    /// Returns the pages, if a pin in a store of objects keeps the checkpoint.
    pub(super) fn pinned(&self) -> Option<&Arc<OverlayStorage>> {
        self.overlay.as_ref().filter(|_| self.reader.is_none())
    }

    /// Removes the pin of the checkpoint, if there is one.
    pub(super) fn end_pin(&self) {
        if let Some(overlay) = self.pinned() {
            overlay.end_pin();
        }
    }
}

/// What came of a step.
pub(super) struct Published {
    pub(super) transaction: Option<Transaction>,
    pub(super) csn: Csn,
    /// Set if tables have changed.
    pub(super) view: Option<Arc<View>>,
    /// Transactions of the database that were applied so far.
    pub(super) transactions: u64,
}

/// Makes a step visible.
pub(super) type Publish<'p> = dyn FnMut(Published) -> Result<()> + 'p;

/// See the module's text.
#[derive(Debug)]
pub(super) struct FollowingCopy {
    pub(super) copy: Arc<Copy>,
    pub(super) tail: LogTail,
    pub(super) tables: Tables,
    pub(super) view: Arc<View>,
    /// Everything up to here is visible.
    pub(super) csn: Csn,
    pub(super) transactions: u64,
    /// Of a copy in a directory.
    notes: Option<Notes>,
    /// Tables are not those of the checkpoint.
    pub(super) has_other_tables: bool,
    /// The newest CSN of each look that found something not applied yet, and when that was.
    arrived: VecDeque<(Csn, Nanos)>,
    clock: Clock,
}

/// What a step came to.
#[derive(Debug)]
pub(super) enum Failure {
    /// Nothing is lost: the next step tries again.
    Look(Error),
    /// A part of a transaction may be missing in the copy.
    Copy(Error),
}

/// A local transaction that is not committed yet.
#[derive(Default)]
struct Batch {
    transaction: Option<Transaction>,
    changes: usize,
    bytes: usize,
}

impl FollowingCopy {
    /// Makes a copy of the newest checkpoint, or opens the one in the directory of the options.
    ///
    /// # Errors
    /// As [`Builder::open_standby`].
    pub(super) fn open(storage: &Arc<dyn Storage>, options: &CopyOptions) -> Result<FollowingCopy> {
        match &options.directory {
            None => FollowingCopy::open_scratch(storage, options),
            Some(directory) => FollowingCopy::open_kept(storage, options, directory),
        }
    }

    /// Copies the newest checkpoint again to the directory, because the log no longer has what the
    /// copy there lacks. Calls `before` when the new copy is complete.
    pub(super) fn copy_again(
        storage: &Arc<dyn Storage>,
        options: &CopyOptions,
        before: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        match &options.directory {
            None => Ok(()),
            Some(directory) => kept::make(storage, options, &kept_settings(options), directory, before),
        }
    }

    fn open_kept(
        storage: &Arc<dyn Storage>,
        options: &CopyOptions,
        directory: &Path,
    ) -> Result<FollowingCopy> {
        let manifest = ManifestFile::read_beside_writer(&**storage).map_err(no_database)?;
        let open = || kept::open(directory, kept_settings(options), options, manifest.database);
        let opened = match open()? {
            Some(opened) => opened,
            None => {
                kept::make(storage, options, &kept_settings(options), directory, &mut || Ok(()))?;
                open()?.ok_or_else(|| Error::corruption("the copy is gone"))?
            }
        };
        let (db, notes, csn) = opened;
        // Read again: a checkpoint that was copied is not newer.
        let manifest = ManifestFile::read_beside_writer(&**storage).map_err(no_database)?;
        let log = match storage.pins() {
            Some(_) => TailLog::Objects(storage.followed_log().ok_or_else(not_followed)?),
            None => TailLog::Directory(DirectoryLog::new(storage.clone(), &manifest)?),
        };
        let mut tables = Tables::resume(&db, &notes.ids, kept::NOTES)?;
        let tail = LogTail::begin_after(log, &manifest, tables.numbered(), csn)?;
        let (view, made) = (tables.view(), options.clock.now());
        Ok(FollowingCopy {
            copy: Arc::new(Copy { db, base: manifest, overlay: None, made, reader: None }),
            tail,
            tables,
            view,
            csn,
            transactions: 0,
            notes: Some(notes),
            has_other_tables: false,
            arrived: VecDeque::new(),
            clock: options.clock.clone(),
        })
    }

    fn open_scratch(storage: &Arc<dyn Storage>, options: &CopyOptions) -> Result<FollowingCopy> {
        let (view, base, log, reader) = match storage.pins() {
            Some(pins) => {
                let log = storage.followed_log().ok_or_else(not_followed)?;
                let view = pins.hold().map_err(no_database)?;
                let (_, base) = ManifestFile::open(&*view, true).map_err(no_database)?;
                (view, base, TailLog::Objects(log), None)
            }
            None => {
                let (base, reader) = PageStore::open_newest_checkpoint(storage).map_err(no_database)?;
                let log = DirectoryLog::new(storage.clone(), &base)?;
                (storage.clone(), base, TailLog::Directory(log), Some(reader))
            }
        };
        let manifest = as_closed(&base).encode()?;
        let overlay = Arc::new(OverlayStorage::new(view, manifest, &options.scratch)?);
        let builder = Builder::default().settings(settings_of(&options.settings)).in_storage(overlay.clone());
        let db = builder.in_time_of(options.clock.clone()).open(Path::new("standby"))?;
        let tables = db.inner.system.catalog.tables();
        let names = tables.into_iter().map(|table| (table.id, table.name.get()));
        let tail = LogTail::begin(log, &base, names)?;
        let mut tables = Tables::of(&db);
        let (view, made, csn) = (tables.view(), options.clock.now(), base.checkpoint);
        Ok(FollowingCopy {
            copy: Arc::new(Copy { db, base, overlay: Some(overlay), made, reader }),
            notes: None,
            tail,
            tables,
            view,
            csn,
            transactions: 0,
            has_other_tables: false,
            arrived: VecDeque::new(),
            clock: options.clock.clone(),
        })
    }

    /// Notes that a look has found something.
    pub(super) fn note_arrival(&mut self) {
        let newest = self.tail.newest();
        if newest > self.csn && self.arrived.back().is_none_or(|(csn, _)| *csn < newest) {
            self.arrived.push_back((newest, self.clock.now()));
        }
    }

    /// Returns since when something is known that is not visible.
    pub(super) fn behind_since(&self) -> Option<Nanos> {
        self.arrived.front().map(|(_, since)| *since)
    }

    /// Applies everything that was found. Returns whether there was anything.
    ///
    /// # Errors
    /// `FellBehind` if the log no longer has a transaction; those of the copy.
    pub(super) fn apply_found(&mut self, publish: &mut Publish<'_>) -> std::result::Result<bool, Failure> {
        let before = self.csn;
        let mut unread = None;
        self.apply_readable(publish, &mut unread).map_err(Failure::Copy)?;
        match unread {
            Some(error) => Err(Failure::Look(error)),
            None => Ok(self.csn > before),
        }
    }

    /// Applies everything that was found and can be read. If the store does not answer, `unread`
    /// gets the error, and nothing is lost.
    fn apply_readable(&mut self, publish: &mut Publish<'_>, unread: &mut Option<Error>) -> Result<()> {
        let mut batch = Batch::default();
        loop {
            let transaction = match self.tail.next() {
                Ok(Some(transaction)) => transaction,
                Ok(None) => break,
                Err(error) if error.kind() == ErrorKind::Io => {
                    *unread = Some(error);
                    break;
                }
                Err(error) => return Err(error),
            };
            self.transactions += 1;
            match self.apply(&mut batch, &transaction, publish) {
                Ok(()) => {}
                Err(error) => return Err(self.tail.explain(error)),
            }
            if batch.changes >= CHANGES_MAX || batch.bytes >= BYTES_MAX {
                self.publish(&mut batch, None, self.tail.csn(), publish)?;
            }
        }
        // Chunks, and CSNs that a recovery discarded, change nothing.
        if self.tail.csn() > self.csn {
            self.publish(&mut batch, None, self.tail.csn(), publish)?;
        }
        self.tables.drop_unseen(&self.copy.db)
    }

    fn apply(
        &mut self,
        batch: &mut Batch,
        transaction: &CommittedTransaction,
        publish: &mut Publish<'_>,
    ) -> Result<()> {
        let mut changes_tables = false;
        for change in transaction.changes() {
            let change = change?;
            if change.key().is_some() {
                self.apply_row(batch, &change, transaction.csn())?;
                continue;
            }
            if !std::mem::replace(&mut changes_tables, true) && batch.transaction.is_some() {
                // Changes of tables are transactions of their own.
                self.publish(batch, None, Csn(transaction.csn().0 - 1), publish)?;
            }
            self.apply_table(change)?;
        }
        if changes_tables {
            let view = Some(self.tables.view());
            self.publish(batch, view, transaction.csn(), publish)?;
        }
        Ok(())
    }

    fn apply_row(&self, batch: &mut Batch, change: &Change, csn: Csn) -> Result<()> {
        let Some(key) = change.key() else { return Ok(()) };
        let table = self.tables.get(change.table().id())?;
        let local = match &mut batch.transaction {
            Some(local) => local,
            none => none.insert(self.copy.db.begin()?),
        };
        batch.changes += 1;
        batch.bytes += key.len();
        match change {
            Change::Put { value, .. } => {
                batch.bytes += value.len();
                local.insert(table, key, value)?;
            }
            Change::Patch { offset, bytes, .. } => {
                let misfit = || {
                    Error::corruption("the log changes bytes of a row that has none there")
                        .at(Location::Transaction(csn))
                };
                let mut value = local.read_to_change(table, key)?.ok_or_else(misfit)?;
                let end = offset.checked_add(bytes.len()).ok_or_else(misfit)?;
                value.get_mut(*offset..end).ok_or_else(misfit)?.copy_from_slice(bytes);
                local.insert(table, key, value)?;
            }
            _ => drop(local.remove(table, key)?),
        }
        Ok(())
    }

    fn apply_table(&mut self, change: Change) -> Result<()> {
        self.has_other_tables = true;
        let db = &self.copy.db;
        match change {
            Change::CreateTable { table } => self.tables.create(db, table.id(), table.name()),
            Change::RenameTable { table } => self.tables.rename(db, table.id(), table.name()),
            Change::DropTable { table } => self.tables.drop(db, table.id()),
            Change::SetTypes { table, types } => {
                let name = self.tables.get(table.id())?.name();
                db.inner.system.set_types(&name, &types, true).map(drop)
            }
            _ => Ok(()),
        }
    }

    fn publish(
        &mut self,
        batch: &mut Batch,
        view: Option<Arc<View>>,
        csn: Csn,
        publish: &mut Publish<'_>,
    ) -> Result<()> {
        debug_assert!(csn >= self.csn, "what is visible stays visible");
        let mut transaction = std::mem::take(batch).transaction;
        if let Some(notes) = &mut self.notes {
            let mut noted = transaction.map_or_else(|| self.copy.db.begin(), Ok)?;
            notes.write(&mut noted, csn, view.is_some().then(|| self.tables.ids()))?;
            transaction = Some(noted);
        }
        if let Some(view) = &view {
            self.view = view.clone();
        }
        publish(Published { transaction, csn, view, transactions: self.transactions })?;
        self.csn = csn;
        while self.arrived.front().is_some_and(|(newest, _)| *newest <= csn) {
            self.arrived.pop_front();
        }
        Ok(())
    }
}

fn not_followed() -> Error {
    let what = "a database in a storage of this kind cannot be followed";
    Error::new(ErrorKind::Unsupported, what).with_advice("open its newest checkpoint for reading")
}

/// Returns the settings of a copy in a directory.
fn kept_settings(options: &CopyOptions) -> Settings {
    let recovery_seconds = Settings::default().recovery_seconds;
    Settings { create: true, recovery_seconds, ..settings_of(&options.settings) }
}

/// Returns the manifest of a database that was closed at the checkpoint: it needs no log.
fn as_closed(base: &Manifest) -> Manifest {
    Manifest {
        epoch: base.reserved_epoch,
        clean: true,
        covered: base.checkpoint,
        first_csn: base.checkpoint.next(),
        next_csn: base.checkpoint.next(),
        log_memory: None,
        epochs: Vec::new(),
        history: Vec::new(),
        ..base.clone()
    }
}

/// Returns the settings of a copy.
fn settings_of(settings: &Settings) -> Settings {
    Settings {
        create: false,
        read_only: false,
        preset: Preset::default(),
        logs: 1,
        segment_bytes: SEGMENT_BYTES,
        log_bytes_max: LOG_BYTES_MAX,
        recovery_seconds: 3600,
        trim_log: true,
        change_history_bytes: 0,
        monitor: false,
        device_trust: DeviceTrust::Auto,
        object_cache: None,
        log_memory: None,
        lab: Lab::default(),
        ..settings.clone()
    }
}
