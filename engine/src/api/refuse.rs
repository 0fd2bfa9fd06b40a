//! Refuses directories that hold no database to open, before anything is written to them.

use super::ownership::{LOG_MEMORY, holds_database, no_database};
use crate::backup::{BACKUP_PATH, RESTORING_PATH};
use crate::base::settings::Settings;
use crate::base::{Error, Location, Result};
use crate::device::ownership::LOST_AND_FOUND;
use crate::device::{LOCK_PATH, MONITOR_PATH, Storage};
use crate::log::DIRECTORY;
use crate::store::{MANIFEST_PATH, PAGES_DIRECTORY, READERS_PATH};

/// Refuses what can be refused before any file, the lock file included, is created in the
/// directory.
pub(super) fn early(storage: &dyn Storage, settings: &Settings) -> Result<()> {
    let names = storage.names()?;
    copies(&names, settings.read_only)?;
    if storage.directory().is_some() {
        return holds_database(storage, settings).map(drop);
    }
    // A store of objects says the rest itself.
    match names.iter().any(|name| name == MANIFEST_PATH) || settings.create && !settings.read_only {
        true => Ok(()),
        false => Err(no_database()),
    }
}

/// Refuses to write to a backup, which would no longer be one, and to open an unfinished restore.
fn copies(names: &[String], read_only: bool) -> Result<()> {
    let has = |name: &str| names.iter().any(|other| other == name);
    let place = |path: &str| Location::File { path: path.into(), offset: 0 };
    if has(RESTORING_PATH) {
        let what = "restoring into this directory was interrupted";
        return Err(Error::corruption(what)
            .with_advice("remove its files and restore again")
            .at(place(RESTORING_PATH)));
    }
    if has(BACKUP_PATH) && !read_only {
        let what = "this is a backup";
        return Err(Error::invalid(what)
            .with_advice("restore it to another directory, or open it read-only")
            .at(place(BACKUP_PATH)));
    }
    Ok(())
}

/// Files and directories of a database, and the directory of `mkfs`.
pub(super) const OWN_FILES: [&str; 8] = [
    LOCK_PATH,
    MANIFEST_PATH,
    DIRECTORY,
    LOG_MEMORY,
    PAGES_DIRECTORY,
    READERS_PATH,
    MONITOR_PATH,
    LOST_AND_FOUND,
];
