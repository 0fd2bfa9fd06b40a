//! The disk: what is visible, what is pending, what is durable; and what a crash makes of it.

use super::change::Change;
use super::device::{Device, Reach, SECTOR};
use super::faults::{CutLogs, are_reordered};
use super::file_image::{FileImage, Unsure};
use super::image::Image;
use super::memory_image::MemoryImage;
use crate::base::random::Random;
use crate::device::fault_counts::FaultCounts;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How the machine goes down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CrashKind {
    /// The device's cache is lost.
    PowerCut,
    /// Only the process ends: caches stay, writes in flight may complete late.
    Kill,
}

/// All files, and the orphaned writes of a killed process.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    files: BTreeMap<String, FileImage>,
    /// Orphaned writes that may still complete.
    late: Vec<Change>,
    memory: MemoryImage,
    /// Number of writes so far, including those in flight.
    writes: u64,
    device: Device,
}

impl Disk {
    /// Returns an empty disk on `device`.
    pub(super) fn of(device: Device) -> Disk {
        Disk { device, ..Disk::default() }
    }

    pub(super) fn device(&self) -> Device {
        self.device
    }

    /// Returns the reach of an orphaned write. Logs and pages use direct I/O where the device has
    /// it.
    fn reach_of_orphan(&self) -> Reach {
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

    /// Makes everything visible durable.
    pub(super) fn make_all_durable(&mut self) {
        self.late.clear();
        self.memory.make_all_durable();
        self.files.retain(|_, file| !file.removed);
        for file in self.files.values_mut() {
            file.durable.clone_from(&file.visible);
            file.pending.clear();
            file.doomed.clear();
            file.in_flight.clear();
            file.name_durable = true;
        }
    }

    /// Returns the sum of all file lengths, in bytes.
    pub(super) fn size(&self) -> u64 {
        self.files.values().map(|file| file.visible.len() as u64).sum()
    }

    /// Returns the sum of all file lengths after `change`, in bytes.
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

    /// Removes and returns an orphaned write.
    pub(super) fn pop_late_write(&mut self) -> Option<Change> {
        self.late.pop()
    }

    /// Removes and returns an orphaned write that completes now, at random.
    pub(super) fn take_late_write(&mut self, random: &mut Random) -> Option<Change> {
        if self.late.is_empty() || !random.chance(1, 8) {
            return None;
        }
        let chosen = random.below(self.late.len() as u64) as usize;
        Some(self.late.swap_remove(chosen))
    }

    /// Applies an operation.
    pub(super) fn apply(&mut self, change: &Change) {
        match change {
            Change::Create { path } => self.create(path),
            Change::Remove { path } => self.remove(path),
            Change::FlushDirectory { directory } => self.flush_directory(directory),
            Change::Write { path, offset, bytes, reach } => self.write(path, *offset, bytes, *reach),
            Change::Claim { path } => self.change_file(path, |file| file.claimed = true),
            Change::InFlight { path, offset, bytes } => {
                let order = self.next_write();
                let write = Unsure { order, offset: *offset, bytes: bytes.clone() };
                self.change_file(path, |file| file.in_flight.push(write));
            }
            Change::Extend { path, len } => self.change_file(path, |file| file.extend(*len)),
            Change::SetLen { path, len } => self.change_file(path, |file| file.set_len(*len)),
            Change::Again { path, offset, bytes } => {
                if self.visible(path).is_some() {
                    let (path, offset, bytes) = (path.clone(), *offset, bytes.clone());
                    self.late.push(Change::Write { path, offset, bytes, reach: Reach::Cache });
                }
            }
            Change::Gone { path, offset, bytes } => {
                self.change_file(path, |file| file.remove_in_flight(*offset, bytes));
            }
            Change::Rot { path, byte, bit } => {
                self.change_file(path, |file| file.flip(*byte as usize, *bit));
            }
            Change::MapMemory { len } => self.memory.resize(*len),
            Change::Store { thread, offset, bytes } => self.memory.store(*thread, *offset, bytes),
            Change::Fence { thread } => self.memory.fence(*thread),
            Change::FlushMemory => self.memory.make_all_durable(),
            Change::Flush { paths } => {
                paths.iter().for_each(|path| self.change_file(path, FileImage::make_durable));
            }
            Change::FailedFlush { paths } => {
                paths.iter().for_each(|path| self.change_file(path, FileImage::fail_flush));
            }
        }
    }

    /// Changes the file `path` if it exists.
    fn change_file(&mut self, path: &str, change: impl FnOnce(&mut FileImage)) {
        if let Some(file) = self.files.get_mut(path) {
            change(file);
        }
    }

    fn create(&mut self, path: &str) {
        let file = self.files.entry(path.to_string()).or_default();
        if std::mem::take(&mut file.removed) {
            *file = FileImage { name_durable: file.name_durable, ..FileImage::default() };
        }
    }

    fn remove(&mut self, path: &str) {
        // A file that is created later under this name is another file.
        self.late.retain(|late| !matches!(late, Change::Write { path: of, .. } if **of == *path));
        self.change_file(path, |file| file.removed = true);
    }

    fn next_write(&mut self) -> u64 {
        self.writes += 1;
        self.writes
    }

    fn write(&mut self, path: &str, offset: u64, bytes: &Arc<[u8]>, reach: Reach) {
        let order = self.next_write();
        // A replayed journal contains the completed write.
        self.late.retain(|late| !late.is_write(path, offset, bytes));
        let Some(file) = self.files.get_mut(path) else { return };
        file.remove_in_flight(offset, bytes);
        file.put(Unsure { order, offset, bytes: bytes.clone() }, reach);
    }

    /// Applies an operation that was in flight at the crash. At a power cut its write is a write
    /// that was not flushed. At a kill nothing, a prefix or all of it is visible and none is
    /// durable; nothing completes later, because the process ends when the write does.
    pub(super) fn apply_in_flight(
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
            self.write(path, *offset, &bytes[..kept].into(), self.reach_of_orphan());
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
        // Of the cache sometimes nothing survives, sometimes nearly everything.
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
            // What a power cut leaves is durable, including the name.
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
        let reach = self.reach_of_orphan();
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
                    // A removed file is not the file that gets its name later.
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
