//! A file of the simulated disk. Durable writes work as in `device::file`.

use super::change::Change;
use super::device::Reach;
use super::faults::{EIO, OperationKind};
use super::journaled_disk::failure;
use super::storage::SimulatedStorage;
use crate::base::{Error, ErrorKind, Location, Result};
use crate::device::directory::PAGES_PATH;
use crate::device::durability_method::DurabilityMethod;
use crate::device::locks::LockHandle;
use crate::device::memory::missing;
use crate::device::storage::{File, Storage};
use crate::sync::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// What discarded bytes read as.
const GARBAGE: u8 = 0xdb;

#[derive(Debug)]
pub(super) struct SimulatedFile {
    storage: SimulatedStorage,
    path: Arc<str>,
    /// Writes go past the page cache.
    direct: bool,
    /// A durable write through the page cache has failed: see [`SimulatedFile::flush_cache`].
    failed: Mutex<bool>,
    lock: LockHandle,
}

impl SimulatedFile {
    pub(super) fn new(storage: &SimulatedStorage, path: &str, direct: bool) -> SimulatedFile {
        let lock = storage.shared.file_locks.handle(path);
        SimulatedFile { storage: storage.clone(), path: path.into(), direct, failed: Mutex::new(false), lock }
    }

    fn stores_extents(&self) -> bool {
        self.storage.device().extent_bytes.is_some() && *self.path == *PAGES_PATH
    }

    fn write(&self, kind: OperationKind, offset: u64, bytes: &[u8], reach: Reach) -> Result<()> {
        let end = offset + bytes.len() as u64;
        if self.stores_extents() && !self.storage.shared.disk.lock().written.add(offset..end) {
            let what = "bytes of an extent are written again that were not discarded";
            return Err(Error::corruption(what).at(self.location(offset)));
        }
        let change = Change::Write { path: self.path.clone(), offset, bytes: bytes.into(), reach };
        self.storage.change(kind, &self.path, offset, change)
    }

    /// Flushes the page cache. As on a file system, the first flush after a lost write reports its
    /// error. So flushes are serialized, and after the first error all fail.
    fn flush_cache(&self) -> Result<()> {
        let mut failed = self.failed.lock();
        if *failed {
            let what = "an earlier durable write of the file failed";
            return Err(Error::new(ErrorKind::Io, what).at(self.location(0)));
        }
        let flushed = self.flush();
        *failed = flushed.is_err();
        flushed
    }
}

impl File for SimulatedFile {
    fn claim(&self) -> Result<()> {
        // What the next owner may write depends on the checkpoint that it opens.
        if self.stores_extents() {
            self.storage.shared.disk.lock().written.forget(0..u64::MAX);
        }
        self.storage.change(OperationKind::Open, &self.path, 0, Change::Claim { path: self.path.clone() })
    }

    fn location(&self, offset: u64) -> Location {
        Location::File { path: self.path.to_string(), offset }
    }

    fn len(&self) -> Result<u64> {
        self.storage.inspect(OperationKind::Read, &self.path, 0, 0)?;
        let disk = self.storage.shared.disk.lock();
        disk.now.visible(&self.path).map(|image| image.len() as u64).ok_or_else(|| missing(&self.path))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.storage.inspect(OperationKind::Read, &self.path, offset, buffer.len())?;
        let disk = self.storage.shared.disk.lock();
        let end = offset + buffer.len() as u64;
        let is_hit = |(path, bytes): &(String, std::ops::Range<u64>)| {
            **path == *self.path && bytes.start < end && offset < bytes.end
        };
        if disk.unreadable.iter().any(is_hit) {
            return Err(failure(&self.path, offset, std::io::Error::from_raw_os_error(EIO)));
        }
        let image = disk.now.visible(&self.path).ok_or_else(|| missing(&self.path))?;
        image.read(offset, buffer).map_err(|error| error.at(self.location(offset)))
    }

    fn is_direct(&self) -> bool {
        self.direct
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write(OperationKind::Write, offset, bytes, self.storage.device().reach(self.direct))
    }

    fn write_durable_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let (device, method) = (self.storage.device(), self.storage.durability());
        let reach = match method {
            DurabilityMethod::Dsync if self.direct => device.reach_of_dsync(),
            _ => device.reach(self.direct),
        };
        self.write(OperationKind::DurableWrite, offset, bytes, reach)?;
        match method {
            _ if !self.direct => self.flush_cache(),
            DurabilityMethod::WriteThenFlush => self.flush(),
            DurabilityMethod::Plain | DurabilityMethod::Dsync => Ok(()),
        }
    }

    fn flush(&self) -> Result<()> {
        self.storage.change(
            OperationKind::Flush,
            &self.path,
            0,
            Change::Flush { paths: [self.path.clone()].into() },
        )
    }

    fn zero_extend(&self, len: u64, _rest: &mut dyn FnMut(Duration)) -> Result<()> {
        let old = self.len()?;
        if old >= len {
            return self.flush();
        }
        let change = Change::Extend { path: self.path.clone(), len };
        self.storage.change(OperationKind::ZeroExtend, &self.path, old, change)
    }

    /// No file is sparse here: bytes inside a file have their space.
    fn reserve(&self, _from: u64, to: u64) -> Result<()> {
        if self.len()? >= to { Ok(()) } else { self.set_len(to) }
    }

    /// On a device that stores extents the bytes become garbage at once.
    fn discard(&self, from: u64, to: u64) -> Result<()> {
        if !self.stores_extents() {
            return Ok(());
        }
        let (bytes, reach) =
            (vec![GARBAGE; (to - from) as usize].into(), self.storage.device().reach(self.direct));
        let change = Change::Write { path: self.path.clone(), offset: from, bytes, reach };
        self.storage.change(OperationKind::Write, &self.path, from, change)?;
        self.storage.shared.disk.lock().written.forget(from..to);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let change = Change::SetLen { path: self.path.clone(), len };
        self.storage.change(OperationKind::Write, &self.path, len, change)?;
        if self.stores_extents() {
            self.storage.shared.disk.lock().written.forget(len..u64::MAX);
        }
        Ok(())
    }

    fn try_lock(&self) -> Result<bool> {
        Ok(self.lock.try_lock())
    }

    fn is_locked(&self) -> Result<bool> {
        Ok(self.lock.is_locked())
    }
}
