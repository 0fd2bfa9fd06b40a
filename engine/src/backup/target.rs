//! The directory that a backup, a restore or a salvage writes to, which must be empty.

use super::description::{BACKUP_PATH, Description};
use crate::base::{Error, ErrorKind, Location, Result};
use crate::device::file::DIRECT_PROBE;
use crate::device::{LOCK_PATH, Storage};
use crate::store::MANIFEST_PATH;

/// The file that marks the directory of a database while it is being restored.
pub const RESTORING_PATH: &str = "RESTORING";

/// Returns a function that adds the name of a storage to an error, for calls with several storages.
pub(super) fn error_of(whose: &str) -> impl Fn(Error) -> Error + Copy {
    move |error| error.of(whose)
}

/// Names that an empty directory may contain: the directory of `mkfs`, our own lock, and the file
/// that a process leaves when it is killed while it probes direct I/O.
const IGNORED: [&str; 3] = [LOCK_PATH, "lost+found", DIRECT_PROBE];

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
    match names.iter().find(|name| !IGNORED.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => {
            Err(Error::invalid("the directory holds other files: choose an empty one").at(place(name)))
        }
    }
}
