//! Which directories are refused, before anything is put into them?

use crate::backup::{BACKUP_PATH, RESTORING_PATH};
use crate::base::settings::Settings;
use crate::base::{Error, ErrorKind, Location, Result};
use crate::device::file::DIRECT_PROBE;
use crate::device::probe::METHOD_PROBE;
use crate::device::{LOCK_PATH, Storage};
use crate::store::{MANIFEST_PATH, READERS_PATH};

/// What can be refused before anything, the lock file included, is put into the directory.
pub(super) fn early(storage: &dyn Storage, settings: &Settings) -> Result<()> {
    let names = storage.list("")?;
    copies(&names, settings.read_only)?;
    if names.iter().any(|name| name == MANIFEST_PATH) {
        return Ok(());
    }
    if !settings.create || settings.read_only {
        return Err(Error::new(ErrorKind::NotFound, "there is no database in this directory"));
    }
    foreign_files(&names)
}

/// A backup that is written to would be none any more, and what a restore has not finished is not what was to be restored.
fn copies(names: &[String], read_only: bool) -> Result<()> {
    let has = |name: &str| names.iter().any(|other| other == name);
    let place = |path: &str| Location::File { path: path.into(), offset: 0 };
    if has(RESTORING_PATH) {
        let what = "restoring into this directory was interrupted: remove what is there";
        return Err(Error::corruption(what).at(place(RESTORING_PATH)));
    }
    if has(BACKUP_PATH) && !read_only {
        let what = "this is a backup: restore it to another directory, or open it read-only";
        return Err(Error::invalid(what).at(place(BACKUP_PATH)));
    }
    Ok(())
}

/// What an interrupted creation or probe leaves, and what `mkfs` does.
const NOT_FOREIGN: [&str; 9] = [
    LOCK_PATH,
    MANIFEST_PATH,
    "log",
    "log-memory",
    "pages",
    READERS_PATH,
    "lost+found",
    DIRECT_PROBE,
    METHOD_PROBE,
];

/// A new database is not put among files of something else.
fn foreign_files(names: &[String]) -> Result<()> {
    let foreign = names.iter().find(|name| !NOT_FOREIGN.contains(&name.as_str()));
    match foreign {
        None => Ok(()),
        Some(name) => Err(Error::invalid(format!(
            "the directory holds no database, but other files ({name}): choose an empty one"
        ))),
    }
}
