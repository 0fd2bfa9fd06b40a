//! Refuses directories that hold no database to open, before anything is written to them.

use crate::backup::{BACKUP_PATH, RESTORING_PATH};
use crate::base::settings::Settings;
use crate::base::{Error, ErrorKind, Location, Result};
use crate::device::file::DIRECT_PROBE;
use crate::device::probe::METHOD_PROBE;
use crate::device::{LOCK_PATH, MONITOR_PATH, Storage};
use crate::log::{DIRECTORY, segment_id};
use crate::store::{MANIFEST_PATH, READERS_PATH, creation_state};

/// Refuses what can be refused before any file, the lock file included, is created in the
/// directory.
pub(super) fn early(storage: &dyn Storage, settings: &Settings) -> Result<()> {
    let names = storage.list("")?;
    copies(&names, settings.read_only)?;
    if names.iter().any(|name| name == MANIFEST_PATH) {
        return Ok(());
    }
    if !settings.create || settings.read_only {
        // A store of objects says so itself.
        if storage.pins().is_none() && has_files_of_database(storage)? {
            // A damaged database, unless the files are blank.
            creation_state(storage)?;
        }
        return Err(no_database());
    }
    foreign_files(&names)
}

/// Returns whether the directory has a file that only a database has.
fn has_files_of_database(storage: &dyn Storage) -> Result<bool> {
    let is_segment = |name: &String| matches!(segment_id(name), Ok(Some(_)));
    Ok(storage.list("pages")?.iter().any(|name| name == "data")
        || storage.list(DIRECTORY)?.iter().any(is_segment))
}

/// Returns the error for a directory without a database.
pub(super) fn no_database() -> Error {
    let what = "this directory holds no database: check the path, or open it with `create`";
    Error::new(ErrorKind::NotFound, what)
}

/// Refuses to write to a backup, which would no longer be one, and to open an unfinished restore.
fn copies(names: &[String], read_only: bool) -> Result<()> {
    let has = |name: &str| names.iter().any(|other| other == name);
    let place = |path: &str| Location::File { path: path.into(), offset: 0 };
    if has(RESTORING_PATH) {
        let what = "restoring into this directory was interrupted: remove its files and restore again";
        return Err(Error::corruption(what).at(place(RESTORING_PATH)));
    }
    if has(BACKUP_PATH) && !read_only {
        let what = "this is a backup: restore it to another directory, or open it read-only";
        return Err(Error::invalid(what).at(place(BACKUP_PATH)));
    }
    Ok(())
}

/// Files and directories of a database, and the directory of `mkfs`.
pub(super) const OWN_FILES: [&str; 8] =
    [LOCK_PATH, MANIFEST_PATH, DIRECTORY, "log-memory", "pages", READERS_PATH, MONITOR_PATH, "lost+found"];

/// Files that an interrupted open leaves.
pub(super) const PROBES: [&str; 2] = [DIRECT_PROBE, METHOD_PROBE];

/// Refuses to create a database among other files.
fn foreign_files(names: &[String]) -> Result<()> {
    let foreign = names.iter().find(|name| {
        let name = name.as_str();
        !OWN_FILES.contains(&name) && !PROBES.contains(&name)
    });
    match foreign {
        None => Ok(()),
        Some(name) => Err(Error::invalid(format!(
            "the directory holds no database, but other files ({name}): choose an empty directory"
        ))),
    }
}
