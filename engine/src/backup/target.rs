//! The directory that a backup, a restore or a salvage writes to, which must be empty.

use super::description::{BACKUP_PATH, Description};
use crate::base::{Error, ErrorKind, Location, Result};
use crate::device::ownership::is_own;
use crate::device::{LOCK_PATH, Storage};
use crate::log::DIRECTORY as LOG_DIRECTORY;
use crate::store::{MANIFEST_PATH, PAGES_DIRECTORY, PAGES_PATH};

/// The file that marks the directory of a database while it is being restored.
pub const RESTORING_PATH: &str = "RESTORING";

/// Returns a function that adds the name of a storage to an error, for calls with several storages.
pub(super) fn error_of(whose: &str) -> impl Fn(Error) -> Error + Copy {
    move |error| error.of(whose)
}

/// Removes what a failed backup or restore has written to a directory, which was empty. The caller
/// has its lock, whose file goes last. Only files that these write are removed. Ignores errors: the
/// first failure is the one that matters. What stays is recognised as incomplete (K3), because the
/// marks go after all else. In a store of objects nothing can be removed this way.
pub fn clear(storage: &dyn Storage) {
    let Some(directory) = storage.directory() else { return };
    let names = || directory.list("").unwrap_or_default();
    let is_marked = names().iter().any(|name| [RESTORING_PATH, BACKUP_PATH].contains(&name.as_str()));
    // Without a mark another process may have begun to use the directory.
    if is_marked {
        let _ = directory.remove(MANIFEST_PATH);
        let _ = directory.remove(PAGES_PATH);
        for id in storage.segments().list().unwrap_or_default() {
            let _ = storage.segments().remove(id);
        }
        for subdirectory in [PAGES_DIRECTORY, LOG_DIRECTORY] {
            let _ = directory.remove_directory(subdirectory);
        }
        let _ = directory.flush_directory("");
        let _ = directory.remove(RESTORING_PATH);
        let _ = directory.remove(BACKUP_PATH);
    }
    if names().iter().all(|name| name == LOCK_PATH) {
        let _ = directory.remove(LOCK_PATH);
    }
}

const EMPTY_ADVICE: &str = "choose an empty directory";

/// Returns an error unless the directory is empty (K3): for backups, restores and salvage.
///
/// # Errors
/// `AlreadyExists` or `InvalidArgument` with the name of what the directory contains; I/O.
pub fn refuse_unless_empty(storage: &dyn Storage) -> Result<()> {
    let names = storage.names()?;
    let has = |name: &str| names.iter().any(|other| other == name);
    let place = |path: &str| Location::File { path: path.into(), offset: 0 };
    if has(BACKUP_PATH) {
        let (what, advice) = match Description::read(storage) {
            Ok(_) => ("there is a backup in this directory already", EMPTY_ADVICE),
            Err(_) => ("there is an interrupted or damaged backup in this directory", "remove it first"),
        };
        return Err(Error::new(ErrorKind::AlreadyExists, what).with_advice(advice).at(place(BACKUP_PATH)));
    }
    if has(RESTORING_PATH) {
        let what = "a restore into this directory was interrupted";
        return Err(Error::new(ErrorKind::AlreadyExists, what)
            .with_advice("remove what it left first")
            .at(place(RESTORING_PATH)));
    }
    if has(MANIFEST_PATH) {
        let what = "there is a database in this directory already";
        let error = Error::new(ErrorKind::AlreadyExists, what).with_advice(EMPTY_ADVICE);
        return Err(error.at(place(MANIFEST_PATH)));
    }
    let Some(directory) = storage.directory() else { return Ok(()) };
    for (name, kind) in directory.entries("")? {
        // Our own lock, or what a process left that was killed while it probed the device.
        if !is_own(directory, &name, kind)? {
            let what = format!("the directory holds other files ({name})");
            return Err(Error::invalid(what).with_advice(EMPTY_ADVICE).at(place(&name)));
        }
    }
    Ok(())
}
