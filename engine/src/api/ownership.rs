//! Does a directory hold a database, or what an interrupted creation left, or files of others?
//!
//! Content decides, because other programs have files called `MANIFEST` and `LOCK`, too. A database
//! is created only in a directory without files of others, so that nothing of them is overwritten
//! or deleted. What a creation that is cut short at any step leaves:
//!
//! | file | content |
//! |---|---|
//! | `LOCK`, files of probes | see `device/ownership` |
//! | `pages/data` | nothing, zeros, or the header of a page store |
//! | `MANIFEST` | nothing, or zeros |
//! | `log/*.seg` | nothing, or zeros |
//! | the file that `log_memory` names | nothing, zeros, or a memory-mapped log |
//!
//! In a directory and in its subdirectories, each of which may be a mount point, `lost+found` is of
//! the file system.

use crate::base::settings::Settings;
use crate::base::{Error, ErrorKind, Location, Result};
use crate::device::ownership::{LOST_AND_FOUND, is_blank, is_own};
use crate::device::{Directory, EntryKind, OpenMode, Storage};
use crate::log::memory::is_memory_file;
use crate::log::{self, DIRECTORY, SegmentContent, path_of, segment_id};
use crate::store::{
    LOST_MANIFEST_ADVICE, MANIFEST_PATH, ManifestState, PAGES_DIRECTORY, PAGES_PATH, PagesState,
    READERS_PATH, manifest_state, pages_state,
};

/// The default name of a memory-mapped log in the directory.
pub(super) const LOG_MEMORY: &str = "log-memory";

/// Returns whether the directory holds a database. If it does not, a database may be created in it.
///
/// # Errors
/// `Corruption` for a database without its manifest; without `create`, `NotFound`; otherwise
/// `InvalidArgument` for the first file that no creation left; I/O.
pub(super) fn holds_database(storage: &dyn Storage, settings: &Settings) -> Result<bool> {
    let manifest = look_at_manifest(storage)?;
    if manifest == ManifestState::Written {
        return Ok(true);
    }
    if let Some(data) = find_data(storage)? {
        let state = match manifest {
            // The error of the manifest says what is wrong with it.
            ManifestState::Foreign | ManifestState::Written => return Ok(true),
            ManifestState::Blank => "blank",
            ManifestState::Missing => "missing",
        };
        let what = format!("the manifest is {state}, but {data} holds data");
        let error = Error::corruption(what).with_advice(LOST_MANIFEST_ADVICE);
        return Err(error.at(Location::File { path: MANIFEST_PATH.into(), offset: 0 }));
    }
    if !settings.create || settings.read_only {
        return Err(no_database());
    }
    match find_foreign(storage, manifest, settings)? {
        None => Ok(false),
        Some(path) => Err(foreign_file(path)),
    }
}

/// Returns the content of the manifest. Only files are opened: a pipe would block.
fn look_at_manifest(storage: &dyn Storage) -> Result<ManifestState> {
    let Some(directory) = storage.directory() else { return manifest_state(storage) };
    match kind_of(directory, MANIFEST_PATH)? {
        None => Ok(ManifestState::Missing),
        Some(EntryKind::File | EntryKind::Link) => manifest_state(storage),
        Some(EntryKind::Directory | EntryKind::Other) => Ok(ManifestState::Foreign),
    }
}

/// Returns the kind of an entry of the directory, if it exists.
fn kind_of(directory: &dyn Directory, name: &str) -> Result<Option<EntryKind>> {
    let entries = directory.entries("")?;
    Ok(entries.into_iter().find(|(other, _)| other == name).map(|(_, kind)| kind))
}

/// Returns the error for a directory without a database.
pub(super) fn no_database() -> Error {
    let what = "this place holds no database";
    Error::new(ErrorKind::NotFound, what).with_advice("check the path, or open it with `create`")
}

fn foreign_file(path: String) -> Error {
    let what = format!("the directory holds no database, but other files ({path})");
    Error::invalid(what)
        .with_advice("choose an empty directory, or move them away")
        .at(Location::File { path, offset: 0 })
}

/// Returns the first part that only a database that was complete has. In a directory only files are
/// opened.
fn find_data(storage: &dyn Storage) -> Result<Option<String>> {
    let is_file = |kind| matches!(kind, EntryKind::File | EntryKind::Link);
    let Some(directory) = storage.directory() else {
        if pages_state(storage)? == PagesState::Written {
            return Ok(Some(PAGES_PATH.into()));
        }
        for id in storage.segments().list()? {
            let segment = storage.segments().open(id, TO_LOOK)?;
            if log::content_of(&*segment)? == SegmentContent::Blocks {
                return Ok(Some(path_of(id)));
            }
        }
        return Ok(None);
    };
    for (name, kind) in entries_below(directory, PAGES_DIRECTORY)? {
        let is_pages = format!("{PAGES_DIRECTORY}/{name}") == PAGES_PATH && is_file(kind);
        if is_pages && pages_state(storage)? == PagesState::Written {
            return Ok(Some(PAGES_PATH.into()));
        }
    }
    for (name, kind) in entries_below(directory, DIRECTORY)? {
        let path = format!("{DIRECTORY}/{name}");
        // An impossible number is an error of a complete database.
        let is_segment = is_file(kind) && !matches!(segment_id(&name), Ok(None));
        if is_segment && log::content_of(&*directory.open(&path, TO_LOOK)?)? == SegmentContent::Blocks {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// How to open a file to look at it.
const TO_LOOK: OpenMode = OpenMode { create: false, read_only: true, direct: false };

/// Returns the entries of a subdirectory; none of something else with its name.
fn entries_below(directory: &dyn Directory, name: &str) -> Result<Vec<(String, EntryKind)>> {
    match kind_of(directory, name)? {
        // A storage without subdirectories lists files only.
        None | Some(EntryKind::Directory) => directory.entries(name),
        Some(_) => Ok(Vec::new()),
    }
}

/// Returns the path of the first entry that no interrupted creation left.
fn find_foreign(
    storage: &dyn Storage,
    manifest: ManifestState,
    settings: &Settings,
) -> Result<Option<String>> {
    let Some(directory) = storage.directory() else {
        // A store of objects refuses those of others itself.
        return Ok((manifest == ManifestState::Foreign).then(|| MANIFEST_PATH.into()));
    };
    for (name, kind) in directory.entries("")? {
        let is_ours = match (name.as_str(), kind) {
            (MANIFEST_PATH, EntryKind::File) => manifest == ManifestState::Blank,
            (PAGES_DIRECTORY | DIRECTORY | READERS_PATH, EntryKind::Directory) => true,
            (name, EntryKind::File) if is_log_memory(name, settings) => is_memory_file(directory, name)?,
            (name, kind) => is_own(directory, name, kind)?,
        };
        if !is_ours {
            return Ok(Some(name));
        }
    }
    for below in [PAGES_DIRECTORY, DIRECTORY, READERS_PATH] {
        for (name, kind) in entries_below(directory, below)? {
            if !is_left_below(directory, below, &name, kind)? {
                return Ok(Some(format!("{below}/{name}")));
            }
        }
    }
    Ok(None)
}

/// Returns whether an interrupted creation, or `mkfs`, left an entry of a subdirectory.
fn is_left_below(directory: &dyn Directory, below: &str, name: &str, kind: EntryKind) -> Result<bool> {
    let path = format!("{below}/{name}");
    match kind {
        EntryKind::Directory => Ok(name == LOST_AND_FOUND),
        EntryKind::File if path == PAGES_PATH => Ok(pages_state(directory)? == PagesState::Blank),
        EntryKind::File if below == DIRECTORY && matches!(segment_id(name), Ok(Some(_))) => {
            is_blank(directory, &path, log::FIRST_SEGMENT_BYTES)
        }
        _ => Ok(false),
    }
}

fn is_log_memory(name: &str, settings: &Settings) -> bool {
    let said = settings.log_memory.as_ref().and_then(|path| path.file_name());
    name == LOG_MEMORY || said.is_some_and(|said| said == name)
}
