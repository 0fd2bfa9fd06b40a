//! Files that end with the process: they have no name, so nothing remains after a crash.

use super::storage::{File, OpenMode, Segments};
use crate::base::{Error, ErrorKind, Location, Result, SegmentId};
use crate::device::{check_new, path_of};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use std::collections::BTreeMap;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Distinguishes the files of this process where the file system has no files without a name.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// A file without a name. Its writes are never made durable, because nothing can be opened after a
/// crash.
#[derive(Debug)]
pub(super) struct ScratchFile {
    file: std::fs::File,
    path: String,
    len: AtomicU64,
}

impl ScratchFile {
    /// Creates a file in `directory`; `path` is its name in error messages.
    ///
    /// # Errors
    /// I/O.
    pub(super) fn create(directory: &Path, path: &str) -> Result<ScratchFile> {
        let failed = |error| {
            let what = format!("cannot make a scratch file in {}", directory.display());
            Error::io(what, error).with_advice("name another directory for scratch files")
        };
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = match rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => std::fs::File::from(file),
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR) => {
                create_and_unlink(directory).map_err(failed)?
            }
            Err(error) => return Err(failed(error.into())),
        };
        Ok(ScratchFile { file, path: path.to_string(), len: AtomicU64::new(0) })
    }

    fn failed(&self, error: std::io::Error, offset: u64) -> Error {
        let what = "a scratch file cannot be used";
        let is_full =
            matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded);
        let error = Error::io(what, error).at(self.location(offset));
        if is_full { error.with_kind(ErrorKind::OutOfSpace) } else { error }
    }
}

fn create_and_unlink(directory: &Path) -> std::io::Result<std::fs::File> {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!(".quench-scratch-{}-{number}", crate::sync::thread::process_id());
    let path = directory.join(name);
    let file = std::fs::File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

impl File for ScratchFile {
    fn location(&self, offset: u64) -> Location {
        Location::File { path: self.path.clone(), offset }
    }

    fn len(&self) -> Result<u64> {
        Ok(self.len.load(Ordering::SeqCst))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(buffer, offset).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                Error::corruption("a scratch file is too short").at(self.location(offset))
            }
            _ => self.failed(error, offset),
        })
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, offset).map_err(|error| self.failed(error, offset))?;
        self.len.fetch_max(offset + bytes.len() as u64, Ordering::SeqCst);
        Ok(())
    }

    fn write_durable_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_at(offset, bytes)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn zero_extend(&self, len: u64, _rest: &mut dyn FnMut(Duration)) -> Result<()> {
        if len > self.len.load(Ordering::SeqCst) { self.set_len(len) } else { Ok(()) }
    }

    fn discard(&self, from: u64, to: u64) -> Result<()> {
        if from < to {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // Only saves space.
            let _ = rustix::fs::fallocate(&self.file, flags, from, to - from);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.file.set_len(len).map_err(|error| self.failed(error, len))?;
        self.len.store(len, Ordering::SeqCst);
        Ok(())
    }
}

/// Segments in scratch files.
#[derive(Debug)]
pub(super) struct ScratchSegments {
    directory: PathBuf,
    files: Mutex<BTreeMap<SegmentId, Arc<ScratchFile>>>,
}

impl ScratchSegments {
    pub(super) fn new(directory: &Path) -> ScratchSegments {
        ScratchSegments { directory: directory.to_path_buf(), files: Mutex::default() }
    }
}

impl Segments for ScratchSegments {
    fn prepare(&self) -> Result<()> {
        Ok(())
    }

    fn list(&self) -> Result<Vec<SegmentId>> {
        Ok(self.files.lock().keys().copied().collect())
    }

    fn open(&self, id: SegmentId, _mode: OpenMode) -> Result<Arc<dyn File>> {
        let missing = || Error::new(ErrorKind::NotFound, "the segment does not exist");
        Ok(self.files.lock().get(&id).cloned().ok_or_else(missing)?)
    }

    fn create(&self, id: SegmentId) -> Result<Arc<dyn File>> {
        check_new(id)?;
        let file = Arc::new(ScratchFile::create(&self.directory, &path_of(id))?);
        let mut files = self.files.lock();
        if files.contains_key(&id) {
            return Err(Error::new(ErrorKind::AlreadyExists, "the segment exists already"));
        }
        files.insert(id, file.clone());
        Ok(file)
    }

    fn remove(&self, id: SegmentId) -> Result<()> {
        self.files.lock().remove(&id);
        Ok(())
    }
}
