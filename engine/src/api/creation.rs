//! Is there a database in this directory, and may one be created?
//!
//! A directory that is not ours is left exactly as it is. The first manifest is the last step of creating a database; what
//! an interrupted creation leaves behind is recognised and used again.

use crate::base::random::Random;
use crate::base::settings::{MethodSetting, Settings};
use crate::base::{DatabaseId, Error, ErrorKind, Result};
use crate::device::{DurabilityMethod, Storage};
use crate::store::{CreationState, Manifest, ManifestFile, PageStore, creation_state};

/// Opens the manifest, or creates the database. The durability method is set before any file is opened for writing.
pub(super) fn open_or_create(
    storage: &dyn Storage,
    settings: &mut Settings,
) -> Result<(ManifestFile, Manifest)> {
    if storage.facts().volatile_cache {
        storage.set_durability(match settings.durability_method {
            Some(MethodSetting::WorkerFlush) => DurabilityMethod::WriteThenFlush,
            _ => DurabilityMethod::Dsync,
        });
    }
    let state = creation_state(storage).map_err(|error| no_database(error))?;
    if state != CreationState::Complete {
        if !settings.create || settings.read_only {
            return Err(Error::new(ErrorKind::NotFound, "there is no database in this directory"));
        }
        if state == CreationState::Empty {
            refuse_foreign_files(storage)?;
        }
        let manifest =
            Manifest::new(DatabaseId(Random::from_entropy().next_u64()), settings.page_bytes as u32);
        PageStore::create(storage, manifest.database, settings.page_bytes)?;
        ManifestFile::create(storage, &manifest)?;
    }
    let (file, manifest) =
        ManifestFile::open(storage, settings.read_only).map_err(|error| no_database(error))?;
    settings.page_bytes = manifest.page_bytes as usize;
    Ok((file, manifest))
}

pub(super) fn no_database(error: Error) -> Error {
    if error.kind() == ErrorKind::NotFound {
        return Error::new(ErrorKind::NotFound, "there is no database in this directory");
    }
    error
}

/// A directory that is no database is left as it is: even a lock file would be one too many.
pub(super) fn refuse_before_locking(storage: &dyn Storage, settings: &Settings) -> Result<()> {
    if storage.list("")?.iter().any(|name| name == "LOCK" || name == "MANIFEST") {
        return Ok(());
    }
    if !settings.create || settings.read_only {
        return Err(Error::new(ErrorKind::NotFound, "there is no database in this directory"));
    }
    refuse_foreign_files(storage)
}

/// What may be in a directory before a database is created there: what an interrupted creation leaves, and what `mkfs` does.
const NOT_FOREIGN: [&str; 5] = ["LOCK", "MANIFEST", "log", "pages", "lost+found"];

/// A new database is not put among files of something else.
fn refuse_foreign_files(storage: &dyn Storage) -> Result<()> {
    let foreign = storage.list("")?.into_iter().find(|name| !NOT_FOREIGN.contains(&name.as_str()));
    match foreign {
        None => Ok(()),
        Some(name) => Err(Error::invalid(format!(
            "the directory holds no database, but other files ({name}): choose an empty one"
        ))),
    }
}
