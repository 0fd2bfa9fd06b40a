//! A storage whose log is on a modelled device of its own, as in a server with a disk for the log.
//!
//! ```text
//!   segments    ─▶ modelled device ─▶ the same directory, or memory of its own
//!   all others  ─▶ the device of the data
//! ```

use super::storage::ModelledStorage;
use quenchdb::internals::base::Result;
use quenchdb::internals::device::{
    Completion, DeviceFacts, Directory, DurabilityMethod, File, ManifestStore, Names, OpenMode, Roles,
    Segments, Storage, WriteQueue, WriteRequest,
};
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
}

impl Roles for SplitStorage {
    fn manifest(&self, mode: OpenMode) -> Result<ManifestStore> {
        self.data.manifest(mode)
    }

    fn segments(&self) -> &dyn Segments {
        self.log.segments()
    }

    fn pages(&self, mode: OpenMode) -> Result<Arc<dyn File>> {
        self.data.pages(mode)
    }

    fn small_file(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        self.data.small_file(name, mode)
    }

    fn remove_small_file(&self, name: &str) -> Result<()> {
        self.data.remove_small_file(name)
    }

    fn names(&self) -> Result<Vec<String>> {
        self.data.names()
    }

    fn flush_names(&self, of: Names) -> Result<()> {
        match of {
            Names::Segments => self.log.flush_names(of),
            Names::Root | Names::Pages => self.data.flush_names(of),
        }
    }

    fn directory(&self) -> Option<&dyn Directory> {
        self.data.directory()
    }
}

impl Storage for SplitStorage {
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
