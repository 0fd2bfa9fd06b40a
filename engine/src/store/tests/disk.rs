//! A disk in memory: keeps what is durable apart from what was only written, by sector.

use crate::base::random::Random;
use crate::base::{Error, ErrorKind, Location, Result};
use crate::device::{DeviceFacts, DurabilityMethod, File, OpenMode, SECTOR_BYTES, Storage, WriteQueue};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

#[derive(Debug, Default)]
struct Contents {
    durable: Vec<u8>,
    visible: Vec<u8>,
}

#[derive(Debug)]
struct Controls {
    files: BTreeMap<String, Arc<Mutex<Contents>>>,
    /// Writes and flushes that still work.
    operations_left: u64,
    /// Length beyond which writes find the disk full.
    bytes_max: u64,
}

/// The disk; clones share it.
#[derive(Clone, Debug)]
pub struct Disk(Arc<Mutex<Controls>>);

impl Disk {
    pub fn new() -> Disk {
        let controls = Controls { files: BTreeMap::new(), operations_left: u64::MAX, bytes_max: u64::MAX };
        Disk(Arc::new(Mutex::new(controls)))
    }

    /// After this many more writes and flushes everything fails.
    pub fn fail_after(&self, operations: u64) {
        self.0.lock().expect("no panic").operations_left = operations;
    }

    /// True if nothing had to fail.
    pub fn works(&self) -> bool {
        self.0.lock().expect("no panic").operations_left > 0
    }

    pub fn limit_files_to(&self, bytes: u64) {
        self.0.lock().expect("no panic").bytes_max = bytes;
    }

    /// A power cut: of what was not flushed each sector is there or not. The disk works again.
    pub fn crash(&self, random: &mut Random) {
        self.fail_after(u64::MAX);
        for file in self.0.lock().expect("no panic").files.values() {
            let contents = &mut *file.lock().expect("no panic");
            let (durable, visible) = (&mut contents.durable, &mut contents.visible);
            durable.resize(visible.len(), 0);
            for (old, new) in durable.chunks_mut(SECTOR_BYTES).zip(visible.chunks_mut(SECTOR_BYTES)) {
                if random.chance(1, 2) { old.copy_from_slice(new) } else { new.copy_from_slice(old) }
            }
        }
    }

    /// The bytes of a file, to look at or to damage.
    pub fn edit<T>(&self, path: &str, edit: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let file = self.0.lock().expect("no panic").files[path].clone();
        let contents = &mut *file.lock().expect("no panic");
        let result = edit(&mut contents.visible);
        contents.durable = contents.visible.clone();
        result
    }

    fn operation(&self) -> Result<()> {
        let mut controls = self.0.lock().expect("no panic");
        if controls.operations_left == 0 {
            return Err(Error::new(ErrorKind::Io, "the disk fails"));
        }
        controls.operations_left -= 1;
        Ok(())
    }
}

impl Storage for Disk {
    fn open(&self, path: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        let files = &mut self.0.lock().expect("no panic").files;
        if !mode.create && !files.contains_key(path) {
            return Err(Error::new(ErrorKind::NotFound, "no such file"));
        }
        let contents = files.entry(path.into()).or_default().clone();
        Ok(Arc::new(DiskFile { path: path.into(), disk: self.clone(), contents }))
    }

    fn remove(&self, path: &str) -> Result<()> {
        self.0.lock().expect("no panic").files.remove(path);
        Ok(())
    }

    fn list(&self, directory: &str) -> Result<Vec<String>> {
        let prefix = format!("{directory}/");
        let controls = self.0.lock().expect("no panic");
        Ok(controls.files.keys().filter_map(|path| path.strip_prefix(&prefix)).map(Into::into).collect())
    }

    fn create_directory(&self, _path: &str) -> Result<()> {
        Ok(())
    }

    fn flush_directory(&self, _directory: &str) -> Result<()> {
        Ok(())
    }

    fn lock(&self, _exclusive: bool) -> Result<Box<dyn Send + Sync>> {
        Ok(Box::new(()))
    }

    fn facts(&self) -> DeviceFacts {
        unimplemented!("the store does not ask")
    }

    fn durability(&self) -> DurabilityMethod {
        DurabilityMethod::WriteThenFlush
    }

    fn set_durability(&self, _method: DurabilityMethod) {}

    fn write_queue(&self, _depth: usize) -> Result<Box<dyn WriteQueue>> {
        unimplemented!("the store does not use one")
    }
}

#[derive(Debug)]
struct DiskFile {
    path: String,
    disk: Disk,
    contents: Arc<Mutex<Contents>>,
}

impl DiskFile {
    fn check_aligned(offset: u64, bytes: &[u8]) {
        let aligned = |value: usize| value.is_multiple_of(SECTOR_BYTES);
        assert!(aligned(offset as usize) && aligned(bytes.len()) && aligned(bytes.as_ptr() as usize));
    }
}

impl File for DiskFile {
    fn location(&self, offset: u64) -> Location {
        Location::File { path: self.path.clone(), offset }
    }

    fn len(&self) -> Result<u64> {
        Ok(self.contents.lock().expect("no panic").visible.len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        Self::check_aligned(offset, buffer);
        let contents = self.contents.lock().expect("no panic");
        let end = (offset as usize).saturating_add(buffer.len());
        let Some(bytes) = contents.visible.get(offset as usize..end) else {
            return Err(Error::corruption("the file ends").at(self.location(offset)));
        };
        buffer.copy_from_slice(bytes);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        Self::check_aligned(offset, bytes);
        let end = offset as usize + bytes.len();
        if end as u64 > self.disk.0.lock().expect("no panic").bytes_max {
            return Err(Error::new(ErrorKind::OutOfSpace, "the disk is full"));
        }
        let allowed = self.disk.operation();
        let contents = &mut *self.contents.lock().expect("no panic");
        contents.visible.resize(contents.visible.len().max(end), 0);
        // A failing write leaves half of its bytes.
        let written =
            if allowed.is_ok() { bytes.len() } else { bytes.len() / SECTOR_BYTES / 2 * SECTOR_BYTES };
        contents.visible[offset as usize..][..written].copy_from_slice(&bytes[..written]);
        allowed
    }

    fn write_durable_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_at(offset, bytes)?;
        self.flush()
    }

    fn flush(&self) -> Result<()> {
        self.disk.operation()?;
        let contents = &mut *self.contents.lock().expect("no panic");
        contents.durable = contents.visible.clone();
        Ok(())
    }

    fn zero_extend(&self, len: u64) -> Result<()> {
        self.set_len(len)?;
        self.flush()
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.contents.lock().expect("no panic").visible.resize(len as usize, 0);
        Ok(())
    }
}
