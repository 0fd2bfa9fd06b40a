//! A writable copy of a checkpoint that costs nothing to make: pages are read from the checkpoint
//! until they are written, and what is written goes to scratch files.
//!
//! ```text
//!   read of sector 7 ──▶ written here? ──yes──▶ scratch file (no name, ends with the process)
//!                              └───────no───▶ pages of the checkpoint, which never change
//! ```
//!
//! 1. The view of the checkpoint is read only. It stays as it is until the overlay is dropped.
//! 2. Sectors that were written once are never read from the checkpoint again.
//! 3. Manifest and log of the copy are its own, and are gone with it.

use super::blocking_queue::BlockingQueue;
use super::durability_method::DurabilityMethod;
use super::scratch::{ScratchFile, ScratchSegments};
use super::storage::{
    Directory, File, ManifestStore, Names, OpenMode, ReadDone, ReadRequest, Register, Roles, Segments,
    Storage, WriteQueue,
};
use super::{DeviceFacts, MANIFEST_PATH, ObjectRequests, PAGES_PATH, SECTOR_BYTES};
use crate::base::{Account, Error, ErrorKind, Location, Result};
use crate::sync::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const SECTOR: u64 = SECTOR_BYTES as u64;
/// Sectors whose state lies together.
const GROUP: u64 = 4096;

/// See the module's text.
#[derive(Debug)]
pub struct OverlayStorage {
    /// Keeps the checkpoint.
    view: Arc<dyn Storage>,
    manifest: Arc<ScratchManifest>,
    segments: ScratchSegments,
    pages: Arc<OverlayPages>,
}

impl OverlayStorage {
    /// Returns a copy of the checkpoint that `view` shows, whose manifest is `manifest`. Scratch
    /// files are made in `directory`.
    ///
    /// # Errors
    /// `NotFound` if the view has no pages; I/O.
    pub fn new(view: Arc<dyn Storage>, manifest: Vec<u8>, directory: &Path) -> Result<OverlayStorage> {
        let base = view.pages(OpenMode { create: false, read_only: true, direct: true })?;
        let scratch = ScratchFile::create(directory, PAGES_PATH)?;
        let len = base.len()?;
        let state = Mutex::new(State { written: BTreeMap::new(), len, base_len: len });
        Ok(OverlayStorage {
            view,
            manifest: Arc::new(ScratchManifest(Mutex::new(manifest))),
            segments: ScratchSegments::new(directory),
            pages: Arc::new(OverlayPages { base, scratch, state }),
        })
    }
}

impl OverlayStorage {
    /// Returns whether one of these bytes of the pages was written.
    #[must_use]
    pub fn is_written(&self, bytes: Range<u64>) -> bool {
        let state = self.pages.state.lock();
        (bytes.start / SECTOR..bytes.end.div_ceil(SECTOR)).any(|sector| state.is_scratch(sector))
    }

    /// Removes the pin that keeps the checkpoint: what was not written can no longer be read.
    pub fn end_pin(&self) {
        self.view.end_pin();
    }
}

impl Roles for OverlayStorage {
    fn manifest(&self, _mode: OpenMode) -> Result<ManifestStore> {
        Ok(ManifestStore::Register(self.manifest.clone()))
    }

    fn segments(&self) -> &dyn Segments {
        &self.segments
    }

    fn pages(&self, _mode: OpenMode) -> Result<Arc<dyn File>> {
        Ok(self.pages.clone())
    }

    fn small_file(&self, name: &str, _mode: OpenMode) -> Result<Arc<dyn File>> {
        let place = Location::File { path: name.to_string(), offset: 0 };
        Err(Error::new(ErrorKind::NotFound, "the file does not exist").at(place))
    }

    fn remove_small_file(&self, _name: &str) -> Result<()> {
        Ok(())
    }

    fn names(&self) -> Result<Vec<String>> {
        Ok(vec![MANIFEST_PATH.into()])
    }

    fn flush_names(&self, _of: Names) -> Result<()> {
        Ok(())
    }

    fn directory(&self) -> Option<&dyn Directory> {
        None
    }
}

impl Storage for OverlayStorage {
    /// No other process can see the copy.
    fn lock(&self, _exclusive: bool) -> Result<Box<dyn Send + Sync>> {
        Ok(Box::new(()))
    }

    fn facts(&self) -> DeviceFacts {
        let nothing = || Err("scratch files are never durable".to_string());
        DeviceFacts {
            name: format!("scratch files over {}", self.view.facts().name),
            volatile_cache: false,
            fua: false,
            direct_io: nothing(),
            io_uring: nothing(),
            append_only: false,
            extent_bytes: None,
            device_number: 0,
        }
    }

    fn durability(&self) -> DurabilityMethod {
        DurabilityMethod::Plain
    }

    fn requests(&self) -> Option<ObjectRequests> {
        self.view.requests()
    }

    fn charge_to(&self, account: &Arc<Account>, memory_bytes: u64) {
        self.view.charge_to(account, memory_bytes);
    }

    fn write_queue(&self, _depth: usize) -> Result<Box<dyn WriteQueue>> {
        Ok(Box::new(BlockingQueue::new()))
    }
}

/// A manifest in memory.
#[derive(Debug)]
struct ScratchManifest(Mutex<Vec<u8>>);

impl Register for ScratchManifest {
    fn location(&self) -> Location {
        Location::File { path: MANIFEST_PATH.into(), offset: 0 }
    }

    fn read(&self) -> Result<Vec<u8>> {
        Ok(self.0.lock().clone())
    }

    fn replace(&self, bytes: &[u8]) -> Result<()> {
        *self.0.lock() = bytes.to_vec();
        Ok(())
    }
}

#[derive(Debug)]
struct State {
    /// A bit for each sector that was written, by groups.
    written: BTreeMap<u64, Box<[u64]>>,
    len: u64,
    /// Behind it nothing is read from the checkpoint.
    base_len: u64,
}

impl State {
    fn mark(&mut self, sectors: Range<u64>) {
        for sector in sectors {
            let group =
                self.written.entry(sector / GROUP).or_insert_with(|| vec![0; GROUP as usize / 64].into());
            let bit = sector % GROUP;
            group[(bit / 64) as usize] |= 1 << (bit % 64);
        }
    }

    /// Returns whether the sector is read from the scratch file.
    fn is_scratch(&self, sector: u64) -> bool {
        let bit = sector % GROUP;
        let is_written = |word: u64| word >> (bit % 64) & 1 == 1;
        let group = self.written.get(&(sector / GROUP));
        let is_written = group.is_some_and(|group| is_written(group[(bit / 64) as usize]));
        is_written || (sector + 1) * SECTOR > self.base_len
    }

    /// Divides a range of bytes by where they are read from: true is the scratch file.
    fn divide(&self, bytes: Range<u64>) -> Vec<(Range<u64>, bool)> {
        let mut parts: Vec<(Range<u64>, bool)> = Vec::new();
        let mut at = bytes.start;
        while at < bytes.end {
            let to = ((at / SECTOR + 1) * SECTOR).min(bytes.end);
            let is_scratch = self.is_scratch(at / SECTOR);
            match parts.last_mut().filter(|last| last.1 == is_scratch) {
                Some(last) => last.0.end = to,
                None => parts.push((at..to, is_scratch)),
            }
            at = to;
        }
        parts
    }
}

/// The pages.
#[derive(Debug)]
struct OverlayPages {
    base: Arc<dyn File>,
    scratch: ScratchFile,
    state: Mutex<State>,
}

impl OverlayPages {
    /// Returns where the bytes are.
    fn divide(&self, offset: u64, len: usize) -> Result<Vec<(Range<u64>, bool)>> {
        let (state, end) = (self.state.lock(), offset + len as u64);
        if end > state.len {
            let what = format!("the file ends {} bytes early", end - state.len.max(offset));
            return Err(Error::corruption(what).at(self.base.location(offset)));
        }
        Ok(state.divide(offset..end))
    }
}

impl File for OverlayPages {
    fn location(&self, offset: u64) -> Location {
        self.base.location(offset)
    }

    fn len(&self) -> Result<u64> {
        Ok(self.state.lock().len)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let mut rest = buffer;
        for (range, is_scratch) in self.divide(offset, rest.len())? {
            let (part, behind) = rest.split_at_mut((range.end - range.start) as usize);
            rest = behind;
            let file: &dyn File = if is_scratch { &self.scratch } else { &*self.base };
            file.read_at(range.start, part)?;
        }
        Ok(())
    }

    /// Reads that lie in the checkpoint as a whole are in flight together.
    fn read_many(&self, reads: &mut [ReadRequest<'_>], done: &mut ReadDone<'_>) {
        let (mut of_base, mut others): (Vec<_>, Vec<_>) = (Vec::new(), Vec::new());
        for (index, read) in reads.iter_mut().enumerate() {
            let parts = self.divide(read.offset, read.buffer.len());
            let is_base = matches!(parts.as_deref(), Ok([(_, false)]));
            if is_base { of_base.push((index, read)) } else { others.push((index, read)) }
        }
        for (index, read) in others {
            read.result = self.read_at(read.offset, read.buffer);
            done(index, read);
        }
        let mut requests: Vec<ReadRequest<'_>> = Vec::with_capacity(of_base.len());
        let mut indexes = Vec::with_capacity(of_base.len());
        for (index, read) in &mut of_base {
            indexes.push(*index);
            requests.push(ReadRequest { offset: read.offset, buffer: &mut *read.buffer, result: Ok(()) });
        }
        self.base.read_many(&mut requests, &mut |at, read| done(indexes[at], read));
        let results: Vec<Result<()>> = requests.into_iter().map(|read| read.result).collect();
        for ((_, read), result) in of_base.into_iter().zip(results) {
            read.result = result;
        }
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        debug_assert!(offset.is_multiple_of(SECTOR) && bytes.len().is_multiple_of(SECTOR_BYTES));
        self.scratch.write_at(offset, bytes)?;
        let (mut state, end) = (self.state.lock(), offset + bytes.len() as u64);
        state.mark(offset / SECTOR..end / SECTOR);
        state.len = state.len.max(end);
        Ok(())
    }

    fn write_durable_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_at(offset, bytes)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn zero_extend(&self, len: u64, _rest: &mut dyn FnMut(Duration)) -> Result<()> {
        if len > self.state.lock().len { self.set_len(len) } else { Ok(()) }
    }

    fn discard(&self, from: u64, to: u64) -> Result<()> {
        self.scratch.discard(from, to)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let mut state = self.state.lock();
        self.scratch.set_len(len)?;
        (state.len, state.base_len) = (len, state.base_len.min(len));
        Ok(())
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
