//! A storage that takes as long as a modelled device would.
//!
//! 1. The storage inside does all work, and decides what is durable and what a failure means.
//! 2. An access returns when both the storage inside and the modelled device have completed it.
//! 3. A failed access returns at once.

use super::queue::ModelledQueue;
use super::schedule::{Access, Device};
use super::shared::{Files, Shared, locked, new_number};
use super::wait::wait_until;
use quenchdb::DeviceTrust;
use quenchdb::internals::base::clock::Clock;
use quenchdb::internals::base::{Location, Result};
use quenchdb::internals::device::mapped::{MapOptions, MappedMemory};
use quenchdb::internals::device::{
    DeviceFacts, Directory, DurabilityMethod, EntryKind, File, OpenMode, ReadDone, ReadRequest, Storage,
    WriteQueue,
};
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Bytes of zeros in one write.
const ZERO_CHUNK_BYTES: u64 = 1 << 20;

/// See the module.
#[derive(Debug)]
pub struct ModelledStorage {
    inner: Arc<dyn Directory>,
    volatile_cache: bool,
    shared: Arc<Shared>,
}

impl ModelledStorage {
    /// Gives `inner` the speed of `device`. The cache is volatile if one of both caches is, unless
    /// `trust` decides.
    #[must_use]
    pub fn new(inner: Arc<dyn Directory>, device: Device, trust: DeviceTrust) -> ModelledStorage {
        let volatile_cache = match trust {
            DeviceTrust::Auto => device.figures().flush_ns.is_some() || inner.facts().volatile_cache,
            DeviceTrust::Device => false,
            _ => true,
        };
        let method = if volatile_cache { DurabilityMethod::Dsync } else { inner.durability() };
        let shared = Shared { device, clock: Clock::real(), method, files: Mutex::new(Files::default()) };
        ModelledStorage { inner, volatile_cache, shared: Arc::new(shared) }
    }

    /// Returns whether `file` is open in this storage.
    pub(super) fn owns(&self, file: &dyn File) -> bool {
        self.shared.inside(file).is_some()
    }
}

impl Directory for ModelledStorage {
    fn open(&self, path: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        let inner = self.inner.open(path, mode)?;
        let number = new_number();
        locked(&self.shared.files).insert(number, Arc::downgrade(&inner));
        Ok(Arc::new(ModelledFile { inner, number, shared: self.shared.clone() }))
    }

    fn remove(&self, path: &str) -> Result<()> {
        self.inner.remove(path)
    }

    fn entries(&self, directory: &str) -> Result<Vec<(String, EntryKind)>> {
        self.inner.entries(directory)
    }

    fn create_directory(&self, path: &str) -> Result<()> {
        self.inner.create_directory(path)
    }

    fn flush_directory(&self, directory: &str) -> Result<()> {
        let shared = &self.shared;
        shared.until(shared.device.flushed(shared.clock.now()), || self.inner.flush_directory(directory))
    }
}

impl Storage for ModelledStorage {
    fn lock(&self, exclusive: bool) -> Result<Box<dyn Send + Sync>> {
        self.inner.lock(exclusive)
    }

    /// Reports `io_uring`, because the queue is asynchronous with any storage inside.
    fn facts(&self) -> DeviceFacts {
        let (inner, name) = (self.inner.facts(), self.shared.device.figures().name);
        // Its flushes are not those of the device inside.
        let number = |number: u64, byte: u8| number.rotate_left(7) ^ u64::from(byte);
        DeviceFacts {
            name: name.into(),
            volatile_cache: self.volatile_cache,
            fua: false,
            io_uring: Ok(()),
            device_number: name.bytes().fold(inner.device_number, number),
            ..inner
        }
    }

    fn durability(&self) -> DurabilityMethod {
        self.shared.method
    }

    fn own_memory(&self) -> Option<PathBuf> {
        self.inner.own_memory()
    }

    fn map_memory(&self, path: &Path, options: MapOptions) -> Result<Arc<dyn MappedMemory>> {
        self.inner.map_memory(path, options)
    }

    fn write_queue(&self, depth: usize) -> Result<Box<dyn WriteQueue>> {
        let inner = self.inner.write_queue(depth)?;
        Ok(Box::new(ModelledQueue::new(inner, self.shared.clone(), depth)))
    }
}

#[derive(Debug)]
struct ModelledFile {
    inner: Arc<dyn File>,
    number: RawFd,
    shared: Arc<Shared>,
}

impl Drop for ModelledFile {
    fn drop(&mut self) {
        locked(&self.shared.files).remove(&self.number);
    }
}

impl File for ModelledFile {
    fn location(&self, offset: u64) -> Location {
        self.inner.location(offset)
    }

    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let now = self.shared.clock.now();
        let done = self.shared.device.completion(now, Access::Read, buffer.len() as u64);
        self.shared.until(done, || self.inner.read_at(offset, buffer))
    }

    fn read_many(&self, reads: &mut [ReadRequest<'_>], done: &mut ReadDone<'_>) {
        let now = self.shared.clock.now();
        let completion = |read: &ReadRequest<'_>| {
            self.shared.device.completion(now, Access::Read, read.buffer.len() as u64)
        };
        let completions: Vec<_> = reads.iter().map(completion).collect();
        self.inner.read_many(reads, &mut |index, read| {
            wait_until(&self.shared.clock, completions[index]);
            done(index, read);
        });
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let done = self.shared.written(self.shared.clock.now(), bytes.len(), false);
        self.shared.until(done, || self.inner.write_at(offset, bytes))
    }

    fn write_durable_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let done = self.shared.written(self.shared.clock.now(), bytes.len(), true);
        self.shared.until(done, || self.inner.write_durable_at(offset, bytes))
    }

    fn flush(&self) -> Result<()> {
        let done = self.shared.device.flushed(self.shared.clock.now());
        self.shared.until(done, || self.inner.flush())
    }

    fn zero_extend(&self, len: u64, rest: &mut dyn FnMut(Duration)) -> Result<()> {
        let (shared, old) = (&self.shared, self.inner.len()?);
        self.inner.zero_extend(len, rest)?;
        let mut left = len.saturating_sub(old);
        if !shared.device.figures().zeros_are_written {
            left = left.min(1);
        }
        while left > 0 {
            let count = left.min(ZERO_CHUNK_BYTES);
            wait_until(&shared.clock, shared.device.completion(shared.clock.now(), Access::Write, count));
            left -= count;
        }
        wait_until(&shared.clock, shared.device.flushed(shared.clock.now()));
        Ok(())
    }

    fn reserve(&self, from: u64, to: u64) -> Result<()> {
        self.inner.reserve(from, to)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.inner.set_len(len)
    }

    fn claim(&self) -> Result<()> {
        self.inner.claim()
    }

    fn try_lock(&self) -> Result<bool> {
        self.inner.try_lock()
    }

    fn is_locked(&self) -> Result<bool> {
        self.inner.is_locked()
    }

    fn unclaim(&self) {
        self.inner.unclaim();
    }

    /// Returns a number that only a queue of the same storage understands.
    fn descriptor(&self) -> Option<RawFd> {
        Some(self.number)
    }
}

#[cfg(test)]
mod tests;
