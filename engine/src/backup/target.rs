//! The directory that a backup, a restore or a salvage writes to, which must be empty.

use super::description::{BACKUP_PATH, Description};
use crate::base::{Error, ErrorKind, Location, Result};
use crate::device::Storage;
use crate::device::ownership::is_own;
use crate::store::MANIFEST_PATH;

/// The file that marks the directory of a database while it is being restored.
pub const RESTORING_PATH: &str = "RESTORING";

/// Returns a function that adds the name of a storage to an error, for calls with several storages.
pub(super) fn error_of(whose: &str) -> impl Fn(Error) -> Error + Copy {
    move |error| error.of(whose)
}

/// Returns an error unless the directory is empty (K3): for backups, restores and salvage.
///
/// # Errors
/// `AlreadyExists` or `InvalidArgument` with the name of what the directory contains; I/O.
pub fn refuse_unless_empty(storage: &dyn Storage) -> Result<()> {
    let names = storage.list("")?;
    let has = |name: &str| names.iter().any(|other| other == name);
    let place = |path: &str| Location::File { path: path.into(), offset: 0 };
    if has(BACKUP_PATH) {
        let what = match Description::read(storage) {
            Ok(_) => "there is a backup in this directory already",
            Err(_) => "there is an interrupted or damaged backup in this directory: remove it first",
        };
        return Err(Error::new(ErrorKind::AlreadyExists, what).at(place(BACKUP_PATH)));
    }
    if has(RESTORING_PATH) {
        let what = "a restore into this directory was interrupted: remove what it left first";
        return Err(Error::new(ErrorKind::AlreadyExists, what).at(place(RESTORING_PATH)));
    }
    if has(MANIFEST_PATH) {
        let what = "there is a database in this directory already";
        return Err(Error::new(ErrorKind::AlreadyExists, what).at(place(MANIFEST_PATH)));
    }
    for (name, kind) in storage.entries("")? {
        // Our own lock, or what a process left that was killed while it probed the device.
        if !is_own(storage, &name, kind)? {
            let what = format!("the directory holds other files ({name}): choose an empty one");
            return Err(Error::invalid(what).at(place(&name)));
        }
    }
    Ok(())
}
