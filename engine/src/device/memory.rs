//! A database in memory: it exists as long as a handle or a [`MemoryStorage`] does.
//!
//! Reopening the same value sees what was written, so tests and caches can close and open. Nothing
//! survives the process; a "durable" write is durable in that sense only, and the facts say so.

use super::blocking_queue::BlockingQueue;
use super::durability_method::DurabilityMethod;
use super::facts::DeviceFacts;
use super::locks::{FileLocks, LockHandle};
use super::mapped::{MapOptions, MappedMemory, MemoryFacts, Primitive, Survives, map_file};
use super::storage::{Directory, EntryKind, File, OpenMode, Storage, WriteQueue};
use crate::base::{Error, ErrorKind, Location, Result};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A storage in memory. Cloning shares the files.
#[derive(Clone, Debug, Default)]
pub struct MemoryStorage {
    files: Arc<Mutex<BTreeMap<String, Bytes>>>,
    locks: Arc<FileLocks>,
    locked: Arc<AtomicBool>,
    own_memory: Bytes,
}

impl MemoryStorage {
    /// Returns an empty storage.
    #[must_use]
    pub fn new() -> MemoryStorage {
        MemoryStorage::default()
    }
}

/// Returns the files directly in `directory` among `paths`.
pub(super) fn files_in<'a>(
    directory: &str,
    paths: impl Iterator<Item = &'a String>,
) -> Vec<(String, EntryKind)> {
    let inside = |path: &'a String| {
        if directory.is_empty() {
            Some(path.as_str())
        } else {
            path.strip_prefix(directory)?.strip_prefix('/')
        }
    };
    let names = paths.filter_map(inside).filter(|name| !name.contains('/'));
    names.map(|name| (name.to_string(), EntryKind::File)).collect()
}

pub(super) fn missing(path: &str) -> Error {
    Error::new(ErrorKind::NotFound, "the file does not exist")
        .at(Location::File { path: path.to_string(), offset: 0 })
}

/// Exclusive use by one handle. A shared lock is no lock, because no other process can see the
/// memory.
#[derive(Debug)]
struct MemoryLock(Option<Arc<AtomicBool>>);

impl Drop for MemoryLock {
    fn drop(&mut self) {
        if let Some(locked) = &self.0 {
            locked.store(false, Ordering::SeqCst);
        }
    }
}

/// Takes the lock of a storage that is private to this process.
pub(super) fn lock_in_process(locked: &Arc<AtomicBool>, exclusive: bool) -> Result<Box<dyn Send + Sync>> {
    let free = if exclusive {
        locked.compare_exchange(false, true, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    } else {
        !locked.load(Ordering::SeqCst)
    };
    if free {
        return Ok(Box::new(MemoryLock(exclusive.then(|| locked.clone()))));
    }
    Err(Error::new(ErrorKind::Busy, "the database is open in this process"))
}

impl Directory for MemoryStorage {
    fn open(&self, path: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        let mut files = self.files.lock();
        if !files.contains_key(path) && !mode.create {
            return Err(missing(path));
        }
        let bytes = files.entry(path.to_string()).or_default().clone();
        Ok(Arc::new(MemoryFile { path: path.to_string(), bytes, lock: self.locks.handle(path) }))
    }

    fn remove(&self, path: &str) -> Result<()> {
        self.files.lock().remove(path);
        Ok(())
    }

    fn entries(&self, directory: &str) -> Result<Vec<(String, EntryKind)>> {
        Ok(files_in(directory, self.files.lock().keys()))
    }

    fn create_directory(&self, _path: &str) -> Result<()> {
        Ok(())
    }

    fn flush_directory(&self, _directory: &str) -> Result<()> {
        Ok(())
    }
}

impl Storage for MemoryStorage {
    fn lock(&self, exclusive: bool) -> Result<Box<dyn Send + Sync>> {
        lock_in_process(&self.locked, exclusive)
    }

    fn facts(&self) -> DeviceFacts {
        DeviceFacts {
            name: "memory (gone with the process)".into(),
            volatile_cache: false,
            fua: false,
            direct_io: Err("there is no device".into()),
            io_uring: Err("there is no device".into()),
            append_only: false,
            extent_bytes: None,
            device_number: 0,
        }
    }

    fn durability(&self) -> DurabilityMethod {
        DurabilityMethod::Plain
    }

    fn write_queue(&self, _depth: usize) -> Result<Box<dyn WriteQueue>> {
        Ok(Box::new(BlockingQueue::new()))
    }

    fn own_memory(&self) -> Option<PathBuf> {
        Some(OWN_MEMORY.into())
    }

    fn map_memory(&self, path: &Path, options: MapOptions) -> Result<Arc<dyn MappedMemory>> {
        if path != Path::new(OWN_MEMORY) {
            return map_file(path, options);
        }
        let bytes = self.own_memory.clone();
        if bytes.lock().is_empty() {
            if !options.create {
                return Err(missing(OWN_MEMORY));
            }
            let len = if options.bytes == 0 { options.new_bytes } else { options.bytes };
            bytes.lock().resize(len as usize, 0);
        }
        Ok(Arc::new(OwnMemory { bytes }))
    }
}

/// The path of the built-in mapped memory of a storage without a directory.
pub(super) const OWN_MEMORY: &str = "mapped-memory";

/// Mapped memory that ends with the storage.
#[derive(Debug)]
struct OwnMemory {
    bytes: Bytes,
}

impl MappedMemory for OwnMemory {
    fn facts(&self) -> MemoryFacts {
        MemoryFacts {
            path: OWN_MEMORY.into(),
            bytes: self.bytes(),
            survives: Survives::ProcessCrash,
            reason: "memory of the process: gone with it".into(),
            primitive: Primitive::Unknown,
            latency: Duration::ZERO,
        }
    }

    fn bytes(&self) -> u64 {
        self.bytes.lock().len() as u64
    }

    fn load(&self, offset: u64, into: &mut [u8]) {
        let start = offset as usize;
        into.copy_from_slice(&self.bytes.lock()[start..start + into.len()]);
    }

    fn store(&self, offset: u64, bytes: &[u8]) {
        let start = offset as usize;
        self.bytes.lock()[start..start + bytes.len()].copy_from_slice(bytes);
    }

    fn fence(&self) {}

    fn barrier(&self) {}

    fn flush(&self) {}
}

/// Content of a file, shared by its handles.
type Bytes = Arc<Mutex<Vec<u8>>>;

#[derive(Debug)]
struct MemoryFile {
    path: String,
    bytes: Bytes,
    lock: LockHandle,
}

impl File for MemoryFile {
    fn location(&self, offset: u64) -> Location {
        Location::File { path: self.path.clone(), offset }
    }

    fn len(&self) -> Result<u64> {
        Ok(self.bytes.lock().len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        read_from(&self.bytes.lock(), offset, buffer).map_err(|error| error.at(self.location(offset)))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        write_to(&mut self.bytes.lock(), offset, bytes);
        Ok(())
    }

    fn write_durable_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_at(offset, bytes)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn zero_extend(&self, len: u64, _rest: &mut dyn FnMut(Duration)) -> Result<()> {
        let mut bytes = self.bytes.lock();
        if bytes.len() < len as usize {
            bytes.resize(len as usize, 0);
        }
        Ok(())
    }

    /// Does nothing: memory is allocated by the write.
    fn reserve(&self, _from: u64, _to: u64) -> Result<()> {
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.bytes.lock().resize(len as usize, 0);
        Ok(())
    }

    fn try_lock(&self) -> Result<bool> {
        Ok(self.lock.try_lock())
    }

    fn is_locked(&self) -> Result<bool> {
        Ok(self.lock.is_locked())
    }
}

/// Copies from a file image.
pub(super) fn read_from(image: &[u8], offset: u64, buffer: &mut [u8]) -> Result<()> {
    let start = usize::try_from(offset).unwrap_or(usize::MAX);
    let end = start.saturating_add(buffer.len());
    let Some(bytes) = image.get(start..end) else {
        return Err(Error::corruption(format!(
            "the file is truncated: {} bytes are missing",
            end - image.len().min(end)
        )));
    };
    buffer.copy_from_slice(bytes);
    Ok(())
}

/// Copies into a file image, which grows as needed.
pub(super) fn write_to(image: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let (start, end) = (offset as usize, offset as usize + bytes.len());
    if image.len() < end {
        image.resize(end, 0);
    }
    image[start..end].copy_from_slice(bytes);
}
