//! A simulated disk with a volatile cache: the device of crash and fault tests.
//!
//! A journal keeps every operation that changes the disk. A crash replays the journal up to some
//! operation and decides by a seed what the disk holds:
//!
//! ```text
//!   write ──▶ visible, pending ──flush──▶ durable
//!                   │
//!                   ├─ power cut: each 512-byte sector of each pending write survives or not, in any
//!                   │  order; also of the operation after the cut, which was in flight
//!                   └─ SIGKILL: all stay visible and pending; writes in flight complete wholly, partly, or
//!                      later; of a synchronous write after the kill a prefix may be visible
//! ```
//!
//! 1. What was flushed before the crash always survives.
//! 2. The same journal, operation, kind and seed give the same storage.
//! 3. A failed flush dooms the pending writes: a later flush succeeds but does not make them
//!    durable, as on Linux.
//! 4. A journal can be crashed at each of its operations, so one run of a workload gives thousands
//!    of crashes.

mod device;
mod image;
mod faults;
mod change;
mod file_image;
mod memory_image;
mod written;
mod disk;
mod journaled_disk;
mod storage;
mod mapped;
mod file;
mod queue;

pub use super::fault_counts::FaultCounts;
pub use device::{Cache, Device};
pub use disk::CrashKind;
pub use faults::{EVENT_NAMES, Fault, FaultKind, Mishap, MishapKind, OperationKind};
pub use storage::SimulatedStorage;

use super::directory::MANIFEST_PATH;
use super::durability_method::DurabilityMethod;
use super::facts::DeviceFacts;
use super::mapped::{MapOptions, MappedMemory, map_file};
use super::memory::{OWN_MEMORY, files_in, lock_in_process, missing};
use super::storage::{Directory, EntryKind, File, OpenMode, Storage, WriteQueue};
use crate::base::settings::MemoryCache;
use crate::base::{Error, Location, Result};
use change::Change;
use std::path::{Path, PathBuf};
use std::sync::Arc;

impl SimulatedStorage {
    /// Returns what stands for the content of the manifest.
    fn note(&self) -> Option<storage::Note> {
        self.read_file(MANIFEST_PATH).map(|content| crate::base::checksum::crc(&content))
    }
}

impl Directory for SimulatedStorage {
    fn open(&self, path: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        let exists = self.shared.disk.lock().now.visible(path).is_some();
        if exists {
            self.inspect(OperationKind::Open, path, 0, 0)?;
        } else if mode.create {
            self.change(OperationKind::Open, path, 0, Change::Create { path: path.into() })?;
        } else {
            return Err(missing(path));
        }
        let direct = mode.direct && self.device().direct_io;
        Ok(Arc::new(file::SimulatedFile::new(self, path, direct)))
    }

    fn remove(&self, path: &str) -> Result<()> {
        self.change(OperationKind::Remove, path, 0, Change::Remove { path: path.into() })
    }

    fn entries(&self, directory: &str) -> Result<Vec<(String, EntryKind)>> {
        self.inspect(OperationKind::Read, directory, 0, 0)?;
        Ok(files_in(directory, self.files().iter()))
    }

    fn create_directory(&self, path: &str) -> Result<()> {
        self.inspect(OperationKind::Open, path, 0, 0)
    }

    fn flush_directory(&self, directory: &str) -> Result<()> {
        self.change(
            OperationKind::Flush,
            directory,
            0,
            Change::FlushDirectory { directory: directory.into() },
        )
    }
}

impl Storage for SimulatedStorage {
    fn lock(&self, exclusive: bool) -> Result<Box<dyn Send + Sync>> {
        let lock = lock_in_process(&self.shared.locked, exclusive)?;
        if exclusive {
            let mut notes = self.shared.notes.lock();
            *self.shared.note_found.lock() = notes.last().and_then(|(_, note)| *note);
            notes.push((self.operations(), None));
            *self.shared.epoch_noted.lock() = None;
        }
        Ok(lock)
    }

    fn note_durable(&self) {
        self.shared.notes.lock().push((self.operations(), self.note()));
    }

    fn is_noted_durable(&self) -> bool {
        let found = self.shared.note_found.lock();
        found.is_some() && *found == self.note()
    }

    fn note_epoch(&self, epoch: u32) {
        *self.shared.epoch_noted.lock() = Some(epoch);
    }

    fn noted_epoch(&self) -> Result<Option<u32>> {
        self.inspect(OperationKind::Read, "the note of the lock", 0, 0)?;
        Ok(*self.shared.epoch_noted.lock())
    }

    fn facts(&self) -> DeviceFacts {
        self.device().facts()
    }

    fn durability(&self) -> DurabilityMethod {
        self.device().method()
    }

    fn shares_flush(&self) -> bool {
        self.device().direct_io && self.durability() != DurabilityMethod::Plain
    }

    fn flush_together(&self, files: &[Arc<dyn File>]) -> Result<()> {
        if !self.device().direct_io {
            return files.iter().try_for_each(|file| file.flush());
        }
        let path = |file: &Arc<dyn File>| match file.location(0) {
            Location::File { path, .. } => Ok(path.into()),
            _ => Err(Error::invalid("the simulated disk was asked to flush a file of another storage")),
        };
        let paths: Vec<Arc<str>> = files.iter().map(path).collect::<Result<_>>()?;
        let Some(first) = paths.first().cloned() else { return Ok(()) };
        self.change(OperationKind::Flush, &first, 0, Change::Flush { paths: paths.into() })
    }

    fn write_queue(&self, depth: usize) -> Result<Box<dyn WriteQueue>> {
        Ok(Box::new(queue::SimulatedQueue::new(self.clone(), depth)))
    }

    fn own_memory(&self) -> Option<PathBuf> {
        Some(OWN_MEMORY.into())
    }

    fn map_memory(&self, path: &Path, options: MapOptions) -> Result<Arc<dyn MappedMemory>> {
        if path != Path::new(OWN_MEMORY) {
            return map_file(path, options);
        }
        let present = self.shared.disk.lock().now.memory().len();
        if present == 0 && !options.create {
            return Err(missing(OWN_MEMORY));
        }
        if present == 0 {
            let len = if options.bytes == 0 { options.new_bytes } else { options.bytes };
            self.change(OperationKind::Memory, OWN_MEMORY, 0, Change::MapMemory { len })?;
        }
        let has_durable_cache = options.cache == MemoryCache::Durable;
        let (storage, latency) = (self.clone(), options.latency);
        Ok(Arc::new(mapped::SimulatedMemory { storage, latency, has_durable_cache }))
    }
}

#[cfg(test)]
mod tests;
