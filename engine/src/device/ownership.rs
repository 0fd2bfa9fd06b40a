//! Which files in a directory are of this layer? Content decides, not the name: a file of another
//! program may have the name of one of ours.
//!
//! | file | content, if an open that was interrupted left it |
//! |---|---|
//! | `LOCK` | nothing, or the number of a process |
//! | `.quench-direct-probe` | zeros, at most a sector |
//!
//! `monitor.sock` appears when the database is open, so an interrupted creation does not leave it.

use super::buffer::SECTOR_BYTES;
use super::directory_lock::{self, LOCK_PATH};
use super::storage::{Directory, EntryKind, File, OpenMode};
use crate::base::Result;

/// The directory that `mkfs` makes in a file system: the directory of the database, or a directory
/// in it, may be a mount point.
pub(crate) const LOST_AND_FOUND: &str = "lost+found";

/// The file that is written to try direct I/O where there are no files without a name.
pub(crate) const DIRECT_PROBE: &str = ".quench-direct-probe";

/// Bytes that are read at once.
const PIECE_BYTES: usize = 64 << 10;

/// To read a file of any program, of any length.
const TO_READ: OpenMode = OpenMode { create: false, read_only: true, direct: false };

/// Returns whether this layer made the entry `name` of the database's directory, or `mkfs` did.
///
/// # Errors
/// I/O.
pub(crate) fn is_own(directory: &dyn Directory, name: &str, kind: EntryKind) -> Result<bool> {
    match (name, kind) {
        (LOST_AND_FOUND, EntryKind::Directory) => Ok(true),
        (LOCK_PATH, EntryKind::File) => read_short(directory, name, directory_lock::is_own),
        (DIRECT_PROBE, EntryKind::File) => {
            read_short(directory, name, |bytes| bytes.iter().all(|byte| *byte == 0))
        }
        _ => Ok(false),
    }
}

/// Returns whether a file holds at most `len_max` bytes, all of them zero.
///
/// # Errors
/// I/O.
pub(crate) fn is_blank(directory: &dyn Directory, path: &str, len_max: u64) -> Result<bool> {
    let file = directory.open(path, TO_READ)?;
    Ok(file.len()? <= len_max && all_bytes(&*file, |_, byte| byte == 0)?)
}

/// Returns the content of a file of at most `len_max` bytes; `None` of a longer one.
///
/// # Errors
/// I/O.
pub(crate) fn content(directory: &dyn Directory, path: &str, len_max: usize) -> Result<Option<Vec<u8>>> {
    let file = directory.open(path, TO_READ)?;
    let len = file.len()?;
    if len > len_max as u64 {
        return Ok(None);
    }
    let mut bytes = vec![0; len as usize];
    file.read_at(0, &mut bytes)?;
    Ok(Some(bytes))
}

/// Returns whether a file has at most a sector, and `is_own` is true of its bytes.
fn read_short(directory: &dyn Directory, path: &str, is_own: impl Fn(&[u8]) -> bool) -> Result<bool> {
    Ok(content(directory, path, SECTOR_BYTES)?.is_some_and(|bytes| is_own(&bytes)))
}

/// Returns whether `holds` is true of each byte of a file and its offset.
fn all_bytes(file: &dyn File, holds: impl Fn(usize, u8) -> bool) -> Result<bool> {
    let (len, mut piece) = (file.len()?, vec![0; PIECE_BYTES]);
    for offset in (0..len).step_by(PIECE_BYTES) {
        let bytes = &mut piece[..(len - offset).min(PIECE_BYTES as u64) as usize];
        file.read_at(offset, bytes)?;
        // Pieces are whole sectors.
        if !bytes.iter().enumerate().all(|(at, byte)| holds(at, *byte)) {
            return Ok(false);
        }
    }
    Ok(true)
}
