//! The lock of a real directory: one writer, in this process or another, or any number of readers.
//!
//! Readers need no lock if the lock file cannot be created: every writer has created it.

use super::buffer::SECTOR_BYTES;
use super::descriptors::{open_to_read, open_with};
use crate::base::{Error, ErrorKind, Result};
use crate::sync::{NotInherited, PerProcess};
use std::collections::HashSet;
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The lock file of a directory.
pub(crate) const LOCK_PATH: &str = "LOCK";

/// Directories that this process has open: a file lock does not exclude the same process.
static OPEN_DIRECTORIES: PerProcess<std::sync::Mutex<HashSet<PathBuf>>> = PerProcess::new();

fn open_directories() -> std::sync::MutexGuard<'static, HashSet<PathBuf>> {
    OPEN_DIRECTORIES.get(Default::default).lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Attempts to take a lock that another process holds.
const LOCK_ATTEMPTS: u32 = 30;
const STEP: Duration = Duration::from_millis(1);

/// The lock of a directory: a file lock against other processes, and a set against the same
/// process.
pub(super) struct DirectoryLock {
    _not_inherited: Option<NotInherited>,
    directory: Option<PathBuf>,
    /// `None` for a reader if the file cannot be created.
    file: Option<std::fs::File>,
    /// The content that a writer found.
    pub(super) found: Vec<u8>,
}

impl DirectoryLock {
    /// Takes the lock.
    ///
    /// # Errors
    /// `Busy` if another holder has the lock; I/O.
    pub(super) fn take(directory: &Path, exclusive: bool) -> Result<DirectoryLock> {
        let path = directory.join(LOCK_PATH);
        let opened = open_or_make(&path, exclusive)
            .map_err(|e| Error::io(format!("cannot open the lock file {}", path.display()), e));
        let mut file = match opened? {
            Some(file) => file,
            None => {
                return Ok(DirectoryLock {
                    _not_inherited: None,
                    directory: None,
                    file: None,
                    found: Vec::new(),
                });
            }
        };
        let attempt = || if exclusive { file.try_lock() } else { file.try_lock_shared() };
        let mut taken = attempt();
        // A just forked process holds copies of all files until it executes its program.
        for _ in 0..LOCK_ATTEMPTS {
            if !matches!(taken, Err(std::fs::TryLockError::WouldBlock)) {
                break;
            }
            std::thread::sleep(STEP);
            taken = attempt();
        }
        if let Err(error) = taken {
            return Err(match error {
                // Readers leave no process id: the file contains the last writer's.
                std::fs::TryLockError::WouldBlock if exclusive && file.try_lock_shared().is_ok() => {
                    Error::new(
                        ErrorKind::Busy,
                        format!("the database {} is open for reading by others", directory.display()),
                    )
                }
                std::fs::TryLockError::WouldBlock => busy(directory, &mut file),
                std::fs::TryLockError::Error(e) => Error::io(format!("cannot lock {}", path.display()), e),
            });
        }
        let mut found = Vec::new();
        if exclusive {
            if !open_directories().insert(directory.to_path_buf()) {
                return Err(busy(directory, &mut file));
            }
            found = read_short(&mut file).unwrap_or_default();
            // For the error message of a second open. If a note of the previous holder cannot be
            // replaced, it still says the truth.
            let _ = write(&mut file, &std::process::id().to_string());
        }
        Ok(DirectoryLock {
            _not_inherited: Some(NotInherited::new(&file)),
            directory: exclusive.then(|| directory.to_path_buf()),
            file: Some(file),
            found,
        })
    }
}

/// Opens or creates the lock file. Returns `None` if a reader may not create it.
fn open_or_make(path: &Path, exclusive: bool) -> std::io::Result<Option<std::fs::File>> {
    use std::io::ErrorKind::{NotFound, PermissionDenied, ReadOnlyFilesystem};
    let mut options = std::fs::OpenOptions::new();
    let why = match open_with(options.read(true).write(true).create(true).truncate(false), path) {
        Ok(file) => return Ok(Some(file)),
        Err(why) => why,
    };
    // Readers need no write permission.
    match open_to_read(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) => {
            let refused = matches!(why.kind(), ReadOnlyFilesystem | PermissionDenied);
            if !exclusive && refused && error.kind() == NotFound { Ok(None) } else { Err(why) }
        }
    }
}

/// Digits of a process, or of an epoch.
const DIGITS_MAX: usize = 10;
/// How a note begins.
const NOTE: &str = "durable";
const NOTE_BYTES_MAX: usize = 120;

/// Returns whether a lock file with this content is one of ours: empty, the number of a process, a
/// note, or the zeros that a power cut leaves of it.
pub(super) fn is_own(content: &[u8]) -> bool {
    let line = content.strip_suffix(b"\n").unwrap_or(content);
    let is_number =
        |part: &[u8]| (1..=DIGITS_MAX).contains(&part.len()) && part.iter().all(u8::is_ascii_digit);
    let is_holder =
        line.split(|byte| *byte == b' ').count() <= 2 && line.split(|byte| *byte == b' ').all(is_number);
    let is_note = content.len() <= NOTE_BYTES_MAX
        && line
            .strip_prefix(NOTE.as_bytes())
            .is_some_and(|rest| rest.iter().all(|byte| byte.is_ascii_digit() || b" -".contains(byte)));
    content.is_empty() || is_holder || is_note || content.iter().all(|byte| *byte == 0)
}

/// Returns the line of a holder that runs an epoch, for processes that follow its log.
pub(super) fn holder_note(process: u32, epoch: u32) -> String {
    format!("{process} {epoch}")
}

/// Returns the epoch that the holder runs, if it has noted one.
pub(super) fn epoch_of(content: &[u8]) -> Option<u32> {
    let line = std::str::from_utf8(content).ok()?.strip_suffix('\n')?;
    let (process, epoch) = line.split_once(' ')?;
    process.parse::<u32>().ok()?;
    epoch.parse().ok()
}

fn read_short(file: &mut std::fs::File) -> std::io::Result<Vec<u8>> {
    let mut content = Vec::new();
    file.rewind()?;
    file.take(SECTOR_BYTES as u64 + 1).read_to_end(&mut content)?;
    Ok(content)
}

/// Writes a line to the lock file, unless it is a file of others.
fn write(file: &mut std::fs::File, line: &str) -> std::io::Result<()> {
    let content = read_short(file)?;
    if content.len() <= SECTOR_BYTES && is_own(&content) {
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(format!("{line}\n").as_bytes())?;
    }
    Ok(())
}

/// Returns the note that all writes to a file are durable. It names the file by what no copy has,
/// and by the time of its last change, which every write changes.
pub(super) fn note_of(file: &Path) -> std::io::Result<String> {
    use std::os::unix::fs::MetadataExt;
    let found = std::fs::metadata(file)?;
    let (device, number) = (found.dev(), found.ino());
    Ok(format!("{NOTE} {device} {number} {} {} {}", found.len(), found.ctime(), found.ctime_nsec()))
}

/// Leaves a note in the lock file of a directory whose lock this process has.
pub(super) fn leave_note(directory: &Path, note: &str) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    write(&mut open_with(options.read(true).write(true), &directory.join(LOCK_PATH))?, note)
}

fn busy(directory: &Path, file: &mut std::fs::File) -> Error {
    let mut holder = String::new();
    let _ = file.rewind().and_then(|()| file.read_to_string(&mut holder));
    let holder = match holder.split_ascii_whitespace().next().unwrap_or_default() {
        "" => "another process".to_string(),
        pid if pid == std::process::id().to_string() => "this process".to_string(),
        pid if pid.bytes().all(|byte| byte.is_ascii_digit()) => format!("process {pid}"),
        // The holder is about to write its number.
        _ => "another process".to_string(),
    };
    Error::new(ErrorKind::Busy, format!("the database {} is open in {holder}", directory.display()))
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // A process that was just forked may have a copy of the file: closing this one alone would
        // leave the lock to it.
        let _ = self.file.as_ref().map(std::fs::File::unlock);
        if let Some(directory) = &self.directory {
            open_directories().remove(directory);
        }
    }
}
