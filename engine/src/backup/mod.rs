//! Rank 8: what can be copied and brought back?
//!
//! A **backup** is a copy of one checkpoint, made while the writer runs. It has its own page store, in which the images are the
//! same to the last bit, and a description (`BACKUP`) that says where each image was in the source:
//!
//! ```text
//!   source     pages/data   [A1][B1][C1]      [A1][  ][C1][B2][D1]       [  ][D2][C1][B2][  ]
//!   full       (at csn 10)   A1  B1  C1
//!   increment  (at csn 20)                                 B2  D1        source pages: A B C D
//!   increment  (at csn 30)                                                    D2      B C D
//! ```
//!
//! An increment holds the images whose place or checksum differs from what the description of its base says. What to restore
//! is what the last description lists, each page from the newest backup of the chain that has it, and each checked against
//! the checksum in that list.
//!
//! # Invariants
//! - K1: the blocks of a checkpoint that is being copied are not used again (`PageStore::hold`), and the checkpoint does not change
//!   between being chosen and being held.
//! - K2: every image is verified (checksum, identity, structure) while it is copied. A damaged source gives no backup.
//! - K3: nothing that is there is overwritten. An interrupted backup has an empty description, an interrupted restore the
//!   file `RESTORING`: neither can be taken for what it was to become.
//! - K4: what was restored is another database: it has a new identity, so that no block of the source's log, and no backup
//!   of it, can be taken for its own.

mod compact;
mod description;
mod full_or_increment;
mod restore;
mod salvage;

pub use compact::{CompactReport, compact};
pub use description::{BACKUP_PATH, BackupId, Base, Description};
pub use full_or_increment::{BackupReport, Source, back_up};
pub use restore::{Chain, RESTORING_PATH, Restored, finish_restore, restore_pages};
pub use salvage::{LostRange, SalvageReport, SalvageSink, SalvagedTable, salvage};

use crate::base::{Error, ErrorKind, Location, Result};
use crate::device::file::DIRECT_PROBE;
use crate::device::{LOCK_PATH, Storage};
use crate::store::MANIFEST_PATH;

/// Progress: what, how much is done, how much there is.
pub type ProgressFn<'a> = &'a mut (dyn FnMut(&str, u64, u64) + Send);

/// Pages between two words of progress.
const PROGRESS_PAGES: u64 = 256;

/// Says whose an error is, where there are several storages.
fn error_of(whose: &str) -> impl Fn(Error) -> Error + Copy {
    move |error| error.of(whose)
}

/// What an empty directory may hold: what `mkfs` leaves, our own lock, and what a kill leaves of finding out about direct I/O.
const NOTHING: [&str; 3] = [LOCK_PATH, "lost+found", DIRECT_PROBE];

/// K3, for backups, restores and what is salvaged.
///
/// # Errors
/// `AlreadyExists` or `InvalidArgument` that names what is there; I/O.
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
    match names.iter().find(|name| !NOTHING.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => {
            Err(Error::invalid("the directory holds other files: choose an empty one").at(place(name)))
        }
    }
}
