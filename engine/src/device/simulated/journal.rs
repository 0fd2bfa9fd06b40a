//! The disk: what is visible, what is pending, what is durable; and what a crash makes of it.

use super::device::{Device, Reach};
use super::faults::{CutLogs, FaultCounts, are_reordered};
use super::image::Image;
use super::kept::{FileImage, Pending, Unsure};
use super::memory::MemoryImage;
use crate::base::random::Random;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A power cut keeps or loses this much at a time.
pub(super) const SECTOR: usize = 512;

/// How the machine goes down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CrashKind {
    /// The device's cache is lost.
    PowerCut,
    /// Only the process is gone: caches stay, writes in flight may land late.
    Kill,
}

/// An operation that changed the disk.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Create {
        path: Arc<str>,
    },
    Remove {
        path: Arc<str>,
    },
    FlushDirectory {
        directory: Arc<str>,
    },
    Write {
        path: Arc<str>,
        offset: u64,
        bytes: Arc<[u8]>,
        reach: Reach,
    },
    /// Writes in flight end with their owner.
    Claim {
        path: Arc<str>,
    },
    /// A write was submitted; its completion follows as a `Write`.
    InFlight {
        path: Arc<str>,
        offset: u64,
        bytes: Arc<[u8]>,
    },
    Extend {
        path: Arc<str>,
        len: u64,
    },
    SetLen {
        path: Arc<str>,
        len: u64,
    },
    /// One flush, for one file or several.
    Flush {
        paths: Arc<[Arc<str>]>,
    },
    FailedFlush {
        paths: Arc<[Arc<str>]>,
    },
    /// A write will be done once more at some later time.
    Again {
        path: Arc<str>,
        offset: u64,
        bytes: Arc<[u8]>,
    },
    /// A write that was in flight was reported as done and never will be.
    Gone {
        path: Arc<str>,
        offset: u64,
        bytes: Arc<[u8]>,
    },
    /// A bit of a file flipped.
    Rot {
        path: Arc<str>,
        byte: u64,
        bit: u8,
    },
    /// The mapped memory is made so long.
    MapMemory {
        len: u64,
    },
    Store {
        thread: u64,
        offset: u64,
        bytes: Arc<[u8]>,
    },
    /// Of a thread, or of all.
    Fence {
        thread: Option<u64>,
    },
    FlushMemory,
}

/// One line, with a checksum in the place of bytes.
impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let crc = crate::base::checksum::crc;
        match self {
            Change::Create { path } => write!(f, "create {path}"),
            Change::Remove { path } => write!(f, "remove {path}"),
            Change::FlushDirectory { directory } => write!(f, "flush directory {directory:?}"),
            Change::Write { path, offset, bytes, reach } => {
                let how = match reach {
                    Reach::Cache => "write",
                    Reach::Device => "write to the device",
                    Reach::Through => "write through the cache",
                    Reach::Flushed => "durable write",
                };
                write!(f, "{how} {path} at {offset}, {} bytes, crc {:08x}", bytes.len(), crc(bytes))
            }
            Change::InFlight { path, offset, bytes } => {
                write!(f, "submitted {path} at {offset}, {} bytes, crc {:08x}", bytes.len(), crc(bytes))
            }
            Change::Store { thread, offset, bytes } => {
                write!(
                    f,
                    "store by thread {thread} at {offset}, {} bytes, crc {:08x}",
                    bytes.len(),
                    crc(bytes)
                )
            }
            Change::Again { path, offset, bytes } => {
                write!(f, "will be written again: {path} at {offset}, {} bytes", bytes.len())
            }
            Change::Gone { path, offset, bytes } => {
                write!(f, "will never be written: {path} at {offset}, {} bytes", bytes.len())
            }
            other => write!(f, "{other:?}"),
        }
    }
}

impl Change {
    /// Bytes that it moves.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Change::Write { bytes, .. } | Change::Store { bytes, .. } => bytes.len(),
            _ => 0,
        }
    }

    /// Whether the device empties its cache for it.
    pub(super) fn flushes(&self) -> bool {
        matches!(
            self,
            Change::Write { reach: Reach::Flushed, .. }
                | Change::Flush { .. }
                | Change::FlushDirectory { .. }
        )
    }

    fn is_write(&self, path: &str, offset: u64, bytes: &[u8]) -> bool {
        matches!(self, Change::Write { path: p, offset: o, bytes: b, .. } if &**p == path && *o == offset && &**b == bytes)
    }
}

/// The log whose block this is, by the header of blocks (`log::block`).
pub(super) fn log_of(bytes: &[u8]) -> Option<u32> {
    let is_block = bytes.get(4..8) == Some(b"QLOG");
    let log = bytes.get(12..16).filter(|_| is_block)?;
    log.try_into().ok().map(u32::from_le_bytes)
}

/// All files, and the writes that a killed process left behind.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    files: BTreeMap<String, FileImage>,
    late: Vec<Change>,
    memory: MemoryImage,
    /// Writes so far, those in flight among them.
    writes: u64,
    device: Device,
}

impl Disk {
    /// An empty one.
    pub(super) fn of(device: Device) -> Disk {
        Disk { device, ..Disk::default() }
    }

    pub(super) fn device(&self) -> Device {
        self.device
    }

    /// Of a write that a killed process has left behind. Logs and pages are written past the page cache where that is possible.
    fn reach_of_left(&self) -> Reach {
        self.device.reach(self.device.direct_io)
    }

    pub(super) fn paths(&self) -> Vec<String> {
        self.files.iter().filter(|(_, file)| !file.removed).map(|(path, _)| path.clone()).collect()
    }

    pub(super) fn memory(&self) -> &MemoryImage {
        &self.memory
    }

    pub(super) fn visible(&self, path: &str) -> Option<&Image> {
        self.files.get(path).filter(|file| !file.removed).map(|file| &file.visible)
    }

    pub(super) fn put_file(&mut self, path: &str, bytes: &[u8]) {
        let bytes = Image::from_bytes(bytes);
        let image =
            FileImage { visible: bytes.clone(), durable: bytes, name_durable: true, ..FileImage::default() };
        self.files.insert(path.to_string(), image);
    }

    pub(super) fn remove_now(&mut self, path: &str) {
        self.files.remove(path);
    }

    /// Everything visible becomes durable.
    pub(super) fn settle(&mut self) {
        self.late.clear();
        self.memory.settle();
        self.files.retain(|_, file| !file.removed);
        for file in self.files.values_mut() {
            file.durable.clone_from(&file.visible);
            file.pending.clear();
            file.doomed.clear();
            file.in_flight.clear();
            file.name_durable = true;
        }
    }

    /// Bytes of all files.
    pub(super) fn size(&self) -> u64 {
        self.files.values().map(|file| file.visible.len() as u64).sum()
    }

    /// The same after `change`.
    pub(super) fn size_after(&self, change: &Change) -> u64 {
        let size = self.size();
        let grown = |path: &str, end: u64| {
            end.saturating_sub(self.visible(path).map_or(0, |image| image.len() as u64))
        };
        size + match change {
            Change::Write { path, offset, bytes, .. } => grown(path, offset + bytes.len() as u64),
            Change::Extend { path, len } | Change::SetLen { path, len } => grown(path, *len),
            _ => 0,
        }
    }

    pub(super) fn late_writes(&self) -> usize {
        self.late.len()
    }

    /// The next write left behind by a killed process.
    pub(super) fn next_late_write(&mut self) -> Option<Change> {
        self.late.pop()
    }

    /// A write left behind by a killed process that lands now.
    pub(super) fn take_late_write(&mut self, random: &mut Random) -> Option<Change> {
        if self.late.is_empty() || !random.chance(1, 8) {
            return None;
        }
        let chosen = random.below(self.late.len() as u64) as usize;
        Some(self.late.swap_remove(chosen))
    }

    pub(super) fn apply(&mut self, change: &Change) {
        match change {
            Change::Create { path } => {
                let file = self.files.entry(path.to_string()).or_default();
                if std::mem::take(&mut file.removed) {
                    *file = FileImage { name_durable: file.name_durable, ..FileImage::default() };
                }
            }
            Change::Remove { path } => {
                // Another file of that name is another file.
                self.late.retain(|late| !matches!(late, Change::Write { path: of, .. } if of == path));
                if let Some(file) = self.files.get_mut(&**path) {
                    file.removed = true;
                }
            }
            Change::FlushDirectory { directory } => self.flush_directory(directory),
            Change::Write { path, offset, bytes, reach } => self.write(path, *offset, bytes, *reach),
            Change::Claim { path } => {
                if let Some(file) = self.files.get_mut(&**path) {
                    file.claimed = true;
                }
            }
            Change::InFlight { path, offset, bytes } => {
                let order = self.next_write();
                if let Some(file) = self.files.get_mut(&**path) {
                    file.in_flight.push(Unsure { order, offset: *offset, bytes: bytes.clone() });
                }
            }
            Change::Extend { path, len } => {
                if let Some(file) = self.files.get_mut(&**path) {
                    // Somebody else may have made it longer.
                    let len = file.visible.len().max(*len as usize);
                    file.visible.resize(len);
                    file.pending.push(Pending::SetLen(len as u64));
                    file.make_durable();
                }
            }
            Change::SetLen { path, len } => {
                if let Some(file) = self.files.get_mut(&**path) {
                    file.visible.resize(*len as usize);
                    file.pending.push(Pending::SetLen(*len));
                }
            }
            Change::Again { path, offset, bytes } => {
                if self.visible(path).is_some() {
                    let (path, offset, bytes) = (path.clone(), *offset, bytes.clone());
                    self.late.push(Change::Write { path, offset, bytes, reach: Reach::Cache });
                }
            }
            Change::Gone { path, offset, bytes } => {
                if let Some(file) = self.files.get_mut(&**path) {
                    file.landed(*offset, bytes);
                }
            }
            Change::Rot { path, byte, bit } => {
                if let Some(file) = self.files.get_mut(&**path) {
                    file.flip(*byte as usize, *bit);
                }
            }
            Change::MapMemory { len } => self.memory.resize(*len),
            Change::Store { thread, offset, bytes } => self.memory.store(*thread, *offset, bytes),
            Change::Fence { thread } => self.memory.fence(*thread),
            Change::FlushMemory => self.memory.settle(),
            Change::Flush { paths } => {
                for path in &**paths {
                    if let Some(file) = self.files.get_mut(&**path) {
                        file.make_durable();
                    }
                }
            }
            Change::FailedFlush { paths } => {
                for path in &**paths {
                    if let Some(file) = self.files.get_mut(&**path) {
                        // Lengths are metadata, which a file system writes again.
                        let is_data = |pending: &mut Pending| matches!(pending, Pending::Write(_));
                        file.doomed.extend(file.pending.extract_if(.., is_data));
                    }
                }
            }
        }
    }

    fn next_write(&mut self) -> u64 {
        self.writes += 1;
        self.writes
    }

    fn write(&mut self, path: &str, offset: u64, bytes: &Arc<[u8]>, reach: Reach) {
        let order = self.next_write();
        // When a journal is replayed: it has landed.
        self.late.retain(|late| !late.is_write(path, offset, bytes));
        let Some(file) = self.files.get_mut(path) else { return };
        file.landed(offset, bytes);
        file.put(Unsure { order, offset, bytes: bytes.clone() }, reach);
    }

    /// An operation is on its way when it happens. When the power is cut what a write of it has on the disk is as of one that was not
    /// flushed. When its process is killed nothing of it is there, or its beginning, or all, and none of it is durable; nothing comes later,
    /// because the process ends when the write does.
    pub(super) fn begin(
        &mut self,
        kind: CrashKind,
        change: &Change,
        random: &mut Random,
        counts: &mut FaultCounts,
    ) {
        let Change::Write { path, offset, bytes, .. } = change else { return };
        if kind == CrashKind::PowerCut {
            return self.write(path, *offset, bytes, Reach::Cache);
        }
        let kept = random.below((bytes.len() / SECTOR) as u64 + 1) as usize * SECTOR;
        if kept > 0 {
            self.write(path, *offset, &bytes[..kept].into(), self.reach_of_left());
            if kept < bytes.len() {
                counts.count("write torn by a kill");
            }
        }
    }

    fn flush_directory(&mut self, directory: &str) {
        self.files.retain(|path, file| {
            let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
            if parent == directory {
                file.name_durable = true;
                return !file.removed;
            }
            true
        });
    }

    pub(super) fn crash(&mut self, kind: CrashKind, random: &mut Random, counts: &mut FaultCounts) {
        match kind {
            CrashKind::PowerCut => self.power_cut(random, counts),
            CrashKind::Kill => self.kill(random, counts),
        }
    }

    fn power_cut(&mut self, random: &mut Random, counts: &mut FaultCounts) {
        counts.count("power cut");
        self.late.clear();
        // Sometimes nothing, sometimes nearly everything of the cache survives.
        let survives = [0, 4, 8, 12, 15, 16][random.below(6) as usize];
        if self.memory.power_cut(survives, random) {
            counts.count("memory words lost by a power cut");
        }
        let (mut lost, mut logs) = (Vec::new(), CutLogs::new());
        for (path, file) in &mut self.files {
            let name_survives = file.name_durable || random.chance(survives, 16);
            let removal_survives = file.removed && random.chance(survives, 16);
            if !name_survives || removal_survives {
                if !name_survives {
                    counts.count("name lost by a power cut");
                }
                lost.push(path.clone());
                continue;
            }
            file.cut(survives, random, counts, &mut logs);
            // What is on the disk after a power cut is durable, its name too.
            file.name_durable = true;
        }
        if are_reordered(&logs) {
            counts.count("writes reordered across logs by a power cut");
        }
        for path in lost {
            self.files.remove(&path);
        }
    }

    fn kill(&mut self, random: &mut Random, counts: &mut FaultCounts) {
        counts.count("kill");
        self.memory.kill();
        let reach = self.reach_of_left();
        for (path, file) in &mut self.files {
            for Unsure { order, offset, bytes } in std::mem::take(&mut file.in_flight) {
                let write =
                    |bytes: Arc<[u8]>| Change::Write { path: path.as_str().into(), offset, bytes, reach };
                let keep = match random.below(4) {
                    0 => continue,
                    1 => {
                        let keep = random.below((bytes.len() / SECTOR) as u64 + 1) as usize * SECTOR;
                        if keep > 0 && keep < bytes.len() {
                            counts.count("write torn by a kill");
                        }
                        keep
                    }
                    // A file that has no name any more is no other's that gets it.
                    2 if !file.claimed && !file.removed => {
                        self.late.push(write(bytes));
                        continue;
                    }
                    _ => bytes.len(),
                };
                let bytes: Arc<[u8]> = bytes[..keep].into();
                file.put(Unsure { order, offset, bytes }, reach);
            }
        }
        self.files.retain(|_, file| !file.removed || file.name_durable);
    }
}
