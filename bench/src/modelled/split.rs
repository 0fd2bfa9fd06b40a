//! A storage whose log is on a modelled device of its own, as in a server with a disk for the log.
//!
//! ```text
//!   log/…       ─▶ modelled device ─▶ the same directory, or memory of its own
//!   all others  ─▶ the device of the data
//! ```

use super::storage::ModelledStorage;
use quenchdb::internals::base::Result;
use quenchdb::internals::device::{
    Completion, DeviceFacts, DurabilityMethod, File, OpenMode, Storage, WriteQueue, WriteRequest,
};
use quenchdb::internals::log::DIRECTORY;
use std::sync::Arc;

/// See the module.
#[derive(Debug)]
pub struct SplitStorage {
    data: Arc<dyn Storage>,
    log: Arc<ModelledStorage>,
}

impl SplitStorage {
    /// Puts the log of a database in `data` on `log`.
    #[must_use]
    pub fn new(data: Arc<dyn Storage>, log: Arc<ModelledStorage>) -> SplitStorage {
        SplitStorage { data, log }
    }

    fn of(&self, path: &str) -> &dyn Storage {
        let is_log = path.split('/').next() == Some(DIRECTORY);
        if is_log { &*self.log } else { &*self.data }
    }
}

impl Storage for SplitStorage {
    fn open(&self, path: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        self.of(path).open(path, mode)
    }

    fn remove(&self, path: &str) -> Result<()> {
        self.of(path).remove(path)
    }

    fn list(&self, directory: &str) -> Result<Vec<String>> {
        self.of(directory).list(directory)
    }

    fn create_directory(&self, path: &str) -> Result<()> {
        self.of(path).create_directory(path)
    }

    fn flush_directory(&self, directory: &str) -> Result<()> {
        self.of(directory).flush_directory(directory)
    }

    fn lock(&self, exclusive: bool) -> Result<Box<dyn Send + Sync>> {
        self.data.lock(exclusive)
    }

    fn facts(&self) -> DeviceFacts {
        let (data, log) = (self.data.facts(), self.log.facts());
        DeviceFacts {
            name: format!("{}, log on {}", data.name, log.name),
            volatile_cache: data.volatile_cache || log.volatile_cache,
            fua: data.fua && log.fua,
            append_only: log.append_only,
            extent_bytes: data.extent_bytes,
            device_number: data.device_number.rotate_left(13) ^ log.device_number,
            io_uring: log.io_uring,
            direct_io: log.direct_io,
        }
    }

    /// Returns the method of the log, which makes commits durable.
    fn durability(&self) -> DurabilityMethod {
        self.log.durability()
    }

    fn write_queue(&self, depth: usize) -> Result<Box<dyn WriteQueue>> {
        let (data, log) = (self.data.write_queue(depth)?, self.log.write_queue(depth)?);
        Ok(Box::new(SplitQueue { data, log, storage: self.log.clone() }))
    }
}

/// A queue for each device. In practice a user writes the log or the pages, never both.
struct SplitQueue {
    data: Box<dyn WriteQueue>,
    log: Box<dyn WriteQueue>,
    storage: Arc<ModelledStorage>,
}

impl WriteQueue for SplitQueue {
    fn submit(&mut self, request: WriteRequest) -> Result<()> {
        if self.storage.owns(&*request.file) { self.log.submit(request) } else { self.data.submit(request) }
    }

    fn reap(&mut self, wait: bool, done: &mut Vec<Completion>) -> Result<()> {
        let before = done.len();
        self.log.reap(false, done)?;
        self.data.reap(false, done)?;
        if !wait || done.len() > before {
            return Ok(());
        }
        let busy = if self.log.in_flight() > 0 { &mut self.log } else { &mut self.data };
        busy.reap(true, done)
    }

    fn in_flight(&self) -> usize {
        self.log.in_flight() + self.data.in_flight()
    }
}

#[cfg(test)]
mod tests;
