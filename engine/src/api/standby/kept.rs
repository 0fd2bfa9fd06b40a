//! A copy that is a database in a directory, and outlives the process.
//!
//! ```text
//!   db/               the copy, at each moment a database
//!   db.quench-new/    a newer copy while it is made; takes the place of `db` in one step
//! ```
//!
//! 1. A table of the copy notes how far it is, in the transaction that applies something. So after
//!    a crash the copy continues where it was.
//! 2. Creating, renaming and dropping a table are transactions of their own before the note. After
//!    a crash between the two each is done again: a table without a note is dropped at the open.
//! 3. If the log that the copy needs is gone, a copy of the newest checkpoint replaces it.

use super::options::CopyOptions;
use crate::api::builder::Builder;
use crate::api::database::Database;
use crate::api::open::no_database;
use crate::api::table::Table;
use crate::api::transaction::Transaction;
use crate::backup::{begin_restore, copy_checkpoint, finish_restore, refuse_unless_empty};
use crate::base::settings::{DeviceTrust, Settings};
use crate::base::{Csn, DatabaseId, Error, ErrorKind, Location, Result};
use crate::device::file::FileStorage;
use crate::device::{MANIFEST_PATH, Storage};
use crate::store::PageStore;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The table with the notes.
pub(super) const NOTES: &str = "quench: followed";
/// Its rows: the CSN and the database that is followed, and for each table the one in the copy.
const POSITION: &[u8] = b"position";
const TABLE: u8 = b't';

/// The notes of a copy.
#[derive(Debug)]
pub(super) struct Notes {
    table: Table,
    source: DatabaseId,
    /// The tables of the copy, by their numbers in the database that is followed.
    pub(super) ids: BTreeMap<u32, u32>,
}

impl Notes {
    fn create(db: &Database, source: DatabaseId, csn: Csn) -> Result<()> {
        let ids = db.inner.system.catalog.tables().into_iter().map(|table| (table.id.0, table.id.0));
        let (ids, table) = (ids.collect(), db.create_table(NOTES)?);
        let mut notes = Notes { table, source, ids: BTreeMap::new() };
        let mut transaction = db.begin()?;
        notes.write(&mut transaction, csn, Some(ids))?;
        transaction.commit().map(drop)
    }

    /// Returns the notes of a copy, and how far it is. `None` if the database is none.
    fn read(db: &Database) -> Result<Option<(Notes, Csn)>> {
        let Ok(table) = db.table(NOTES) else { return Ok(None) };
        let snapshot = db.begin_read()?;
        let damaged = || {
            let what = "the notes of a copy that follows a database are damaged";
            Error::corruption(what).at(Location::Table(NOTES.into()))
        };
        let (mut ids, mut position) = (BTreeMap::new(), None);
        for row in snapshot.range(&table, ..) {
            let (key, value) = row?;
            match (&key[..], &value[..]) {
                (POSITION, [csn @ .., _, _, _, _, _, _, _, _]) if csn.len() == 8 => {
                    let number = |bytes: &[u8]| bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
                    position = number(csn).zip(number(&value[8..]));
                }
                ([TABLE, id @ ..], local) => {
                    let number = |bytes: &[u8]| <[u8; 4]>::try_from(bytes).map(u32::from_be_bytes).ok();
                    let (id, local) = number(id).zip(number(local)).ok_or_else(damaged)?;
                    ids.insert(id, local);
                }
                _ => return Err(damaged()),
            }
        }
        let (csn, source) = position.ok_or_else(damaged)?;
        Ok(Some((Notes { table, source: DatabaseId(source), ids }, Csn(csn))))
    }

    /// Adds to a transaction that the copy has everything up to `csn`, with these tables if they
    /// have changed.
    pub(super) fn write(
        &mut self,
        transaction: &mut Transaction,
        csn: Csn,
        ids: Option<BTreeMap<u32, u32>>,
    ) -> Result<()> {
        let position = [csn.0.to_le_bytes(), self.source.0.to_le_bytes()].concat();
        transaction.insert(&self.table, POSITION, position)?;
        let Some(ids) = ids else { return Ok(()) };
        let key = |id: u32| [&[TABLE], &id.to_be_bytes()[..]].concat();
        for id in self.ids.keys().filter(|id| !ids.contains_key(id)) {
            transaction.remove(&self.table, key(*id))?;
        }
        for (id, local) in ids.iter().filter(|(id, local)| self.ids.get(id) != Some(local)) {
            transaction.insert(&self.table, key(*id), local.to_be_bytes())?;
        }
        self.ids = ids;
        Ok(())
    }
}

/// Opens the copy in `directory` of the database `source`. `None` if there is nothing.
///
/// # Errors
/// `InvalidArgument` if something else is there; those of [`Builder::open`].
pub(super) fn open(
    directory: &Path,
    settings: Settings,
    options: &CopyOptions,
    source: DatabaseId,
) -> Result<Option<(Database, Notes, Csn)>> {
    remove_unfinished(directory)?;
    if !directory.join(MANIFEST_PATH).exists() {
        if directory.exists() {
            refuse_unless_empty(&FileStorage::open(directory, DeviceTrust::Auto, false, false)?)?;
        }
        return Ok(None);
    }
    let builder = Builder::default().settings(settings).in_time_of(options.clock.clone());
    let db = builder.open(directory)?;
    let refuse = |what: &str| {
        let what = format!("{} {what}", directory.display());
        Err(Error::invalid(what).with_advice("name another directory"))
    };
    match Notes::read(&db)? {
        Some((notes, csn)) if notes.source == source => Ok(Some((db, notes, csn))),
        Some(_) => refuse("has a copy of another database"),
        None => refuse("holds a database that follows none"),
    }
}

/// Copies the newest checkpoint of the database in `storage`, and puts the copy in the place of
/// `directory`. Calls `before` when the copy is complete, to close the one that is there.
///
/// # Errors
/// `AlreadyExists`, `InvalidArgument` if the directory has something else; `Unsupported` if the
/// database has a table that is called as that of the notes; those of a backup.
pub(super) fn make(
    storage: &Arc<dyn Storage>,
    options: &CopyOptions,
    settings: &Settings,
    directory: &Path,
    before: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    let io = |what: &str, path: &Path, error| Error::io(format!("cannot {what} {}", path.display()), error);
    let (view, manifest, store) = match storage.pins() {
        Some(pins) => {
            let view = pins.hold().map_err(no_database)?;
            let (manifest, store) = PageStore::open_pinned_checkpoint(&view).map_err(no_database)?;
            (Some(view), manifest, store)
        }
        None => {
            let (manifest, store) = PageStore::open_newest_checkpoint(storage).map_err(no_database)?;
            (None, manifest, store)
        }
    };
    remove_unfinished(directory)?;
    let unfinished = unfinished_of(directory);
    let target = FileStorage::open(&unfinished, settings.device_trust, settings.io_uring, true)?;
    {
        let _lock = target.lock(true)?;
        begin_restore(&target)?;
        let mut progress = options.progress.lock();
        copy_checkpoint(&store, &manifest, &target, settings.compression, &mut *progress)?;
        finish_restore(&target)?;
    }
    drop((store, view));
    let builder = Builder::default().settings(settings.clone()).in_time_of(options.clock.clone());
    let db = builder.open(&unfinished)?;
    Notes::create(&db, manifest.database, manifest.checkpoint).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            let what = format!("the database has a table called `{NOTES}`, in which a copy keeps its notes");
            Error::new(ErrorKind::Unsupported, what).with_advice("rename that table")
        }
        _ => error,
    })?;
    db.close()?;
    before()?;
    replace(&unfinished, directory).map_err(|error| io("make the copy", directory, error))?;
    remove_unfinished(directory)
}

fn unfinished_of(directory: &Path) -> PathBuf {
    let mut name = directory.file_name().unwrap_or_default().to_os_string();
    name.push(".quench-new");
    directory.with_file_name(name)
}

fn remove_unfinished(directory: &Path) -> Result<()> {
    let unfinished = unfinished_of(directory);
    if !unfinished.exists() {
        return Ok(());
    }
    // Another process may be at work there.
    let found = FileStorage::open(&unfinished, DeviceTrust::Auto, false, false)?;
    let _lock = found.lock(true)?;
    match std::fs::remove_dir_all(&unfinished) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io(format!("cannot remove {}", unfinished.display()), error))
        }
        _ => Ok(()),
    }
}

/// Puts `new` in the place of `directory` in one step, durably. What was there has the name of
/// `new` then.
fn replace(new: &Path, directory: &Path) -> std::io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    if directory.join(MANIFEST_PATH).exists() {
        renameat_with(CWD, new, CWD, directory, RenameFlags::EXCHANGE)?;
    } else {
        // Takes the place of an empty directory, and of no other.
        std::fs::rename(new, directory)?;
    }
    let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty());
    std::fs::File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}
