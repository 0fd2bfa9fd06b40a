//! The disk with its journal and its faults: performs operations, and repeats the journal up to any
//! of them.

use super::change::Change;
use super::device::{Reach, SECTOR};
use super::disk::Disk;
use super::faults::{EIO, ENOSPC, Fate, Faults, MishapKind, OperationKind};
use super::written::WrittenPages;
use crate::base::random::Random;
use crate::base::{Error, Location, Result};
use crate::device::buffer::SECTOR_BYTES;
use crate::device::mapped::WORD_BYTES;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A disk, its journal, and the faults that strike it.
#[derive(Debug)]
pub(super) struct JournaledDisk {
    /// The disk before the journal.
    pub(super) base: Disk,
    /// Copies of the disk by number of operations: a crash starts from the copy before it.
    pub(super) past: BTreeMap<usize, Disk>,
    /// The current disk.
    pub(super) now: Disk,
    pub(super) journal: Vec<Change>,
    pub(super) faults: Faults,
    pub(super) random: Random,
    /// Real time that each durable write and flush takes.
    pub(super) delay: Duration,
    /// The largest sum of file lengths, in bytes.
    pub(super) capacity: Option<u64>,
    /// Every operation fails.
    pub(super) stopped: bool,
    pub(super) flushes: u64,
    pub(super) ignore_fences: bool,
    pub(super) holds_late_writes: bool,
    /// Byte ranges of files whose reads fail.
    pub(super) unreadable: Vec<(String, std::ops::Range<u64>)>,
    /// How often stuck operations were resumed: an operation stuck at a lower number resumes.
    pub(super) releases: u64,
    /// Of a device that stores whole extents.
    pub(super) written: WrittenPages,
}

/// Returns the error of an operation that a fault strikes.
pub(super) fn failure(path: &str, offset: u64, error: std::io::Error) -> Error {
    Error::io("simulated failure", error).at(Location::File { path: path.to_string(), offset })
}

/// Operations between two copies of the disk.
const COPY_EVERY: usize = 64;

impl JournaledDisk {
    /// Returns the disk after the first `operations` of the journal.
    pub(super) fn after(&mut self, operations: usize) -> Disk {
        let end = operations.min(self.journal.len());
        let kept = self.past.range(..=end).next_back();
        let (mut at, mut disk) =
            kept.map_or_else(|| (0, self.base.clone()), |(at, disk)| (*at, disk.clone()));
        for change in &self.journal[at..end] {
            disk.apply(change);
            at += 1;
            if at.is_multiple_of(COPY_EVERY) {
                self.past.insert(at, disk.clone());
            }
        }
        disk
    }

    /// Returns the fate of an operation.
    ///
    /// # Errors
    /// The operation fails.
    pub(super) fn fate(
        &mut self,
        kind: OperationKind,
        path: &str,
        offset: u64,
        bytes: usize,
    ) -> Result<Fate> {
        if self.stopped {
            return Err(failure(path, offset, std::io::Error::from_raw_os_error(EIO)));
        }
        match self.faults.strikes(kind, bytes) {
            Fate::Error(error) => Err(failure(path, offset, std::io::Error::from_raw_os_error(error))),
            fate => Ok(fate),
        }
    }

    /// Performs `change` as `fate` says.
    pub(super) fn perform(
        &mut self,
        fate: Result<Fate>,
        path: &str,
        offset: u64,
        change: Change,
    ) -> Result<()> {
        self.apply_late_write();
        let fate = match fate {
            Ok(fate) => fate,
            Err(error) => {
                if !self.stopped {
                    self.fail(&change);
                }
                return Err(error);
            }
        };
        if let Some(capacity) = self.capacity
            && self.now.size_after(&change) > capacity.max(self.now.size())
        {
            self.faults.counts.count("full disk");
            return Err(failure(path, offset, std::io::Error::from_raw_os_error(ENOSPC)));
        }
        match fate {
            Fate::Mishap(mishap) => self.apply_mishap(mishap, change),
            _ => self.record(change),
        }
        Ok(())
    }

    /// Records a failed operation. A failed write may have written some sectors; a failed flush
    /// dooms the pending writes.
    fn fail(&mut self, change: &Change) {
        let partial = match change {
            Change::Write { path, offset, bytes, .. } => {
                let sectors = bytes.len() / SECTOR;
                let keep = self.random.below(sectors as u64 + 1) as usize * SECTOR;
                Change::Write {
                    path: path.clone(),
                    offset: *offset,
                    bytes: bytes[..keep].into(),
                    reach: Reach::Cache,
                }
            }
            Change::Flush { paths } => Change::FailedFlush { paths: paths.clone() },
            _ => return,
        };
        self.now.apply(&partial);
        self.journal.push(partial);
    }

    fn apply_late_write(&mut self) {
        if !self.holds_late_writes
            && let Some(change) = self.now.take_late_write(&mut self.random)
        {
            self.faults.counts.count("late write");
            self.record(change);
        }
    }

    /// Applies `change` and appends it to the journal.
    pub(super) fn record(&mut self, change: Change) {
        self.now.apply(&change);
        self.journal.push(change);
    }

    /// Performs `change` wrongly, as `mishap` says.
    fn apply_mishap(&mut self, mishap: MishapKind, change: Change) {
        match (mishap, change) {
            (MishapKind::Short | MishapKind::Interrupted, Change::Write { path, offset, bytes, reach }) => {
                let part = self.some_sectors(&bytes);
                self.record(Change::Write { path: path.clone(), offset, bytes: part, reach: Reach::Cache });
                self.record(Change::Write { path, offset, bytes, reach });
            }
            (MishapKind::Duplicated, Change::Write { path, offset, bytes, reach }) => {
                self.record(Change::Write { path: path.clone(), offset, bytes: bytes.clone(), reach });
                self.record(Change::Again { path, offset, bytes });
            }
            (MishapKind::Lost, Change::Write { path, offset, bytes, .. }) => {
                self.record(Change::Gone { path, offset, bytes });
            }
            (MishapKind::Torn, Change::Write { path, offset, bytes, reach }) => {
                let part = self.some_sectors(&bytes);
                self.record(Change::Gone { path: path.clone(), offset, bytes });
                self.record(Change::Write { path, offset, bytes: part, reach });
            }
            (MishapKind::Misdirected, Change::Write { path, offset, bytes, reach }) => {
                self.record(Change::Gone { path: path.clone(), offset, bytes: bytes.clone() });
                let (path, offset) = self.another_place(path, offset, bytes.len() as u64);
                self.record(Change::Write { path, offset, bytes, reach });
            }
            (MishapKind::LyingFlush, Change::Write { path, offset, bytes, .. }) => {
                self.record(Change::Write { path, offset, bytes, reach: Reach::Cache });
            }
            (MishapKind::Lost, Change::Store { .. }) => {}
            (MishapKind::Torn, Change::Store { thread, offset, bytes }) => {
                let lost = self.random.below((bytes.len() / WORD_BYTES) as u64) as usize * WORD_BYTES;
                let after = lost + WORD_BYTES;
                self.record(Change::Store { thread, offset, bytes: bytes[..lost].into() });
                let rest = offset + after as u64;
                self.record(Change::Store { thread, offset: rest, bytes: bytes[after..].into() });
            }
            (_, change @ Change::MapMemory { .. }) => self.record(change),
            (MishapKind::LyingFlush, _) => {}
            (_, change) => self.record(change),
        }
    }

    /// Returns a random prefix of whole sectors: at least one sector, and not all.
    fn some_sectors(&mut self, bytes: &[u8]) -> Arc<[u8]> {
        let sectors = bytes.len() / SECTOR;
        let kept = if sectors > 1 { 1 + self.random.below(sectors as u64 - 1) as usize } else { 0 };
        bytes[..kept * SECTOR].into()
    }

    /// Returns a random wrong place for `len` bytes, most often in the same file.
    fn another_place(&mut self, path: Arc<str>, offset: u64, len: u64) -> (Arc<str>, u64) {
        let unit = SECTOR_BYTES as u64;
        let mut places = Vec::new();
        for name in self.now.paths() {
            let end = self.now.visible(&name).map_or(0, |bytes| bytes.len() as u64);
            let fits = (0..=end.saturating_sub(len) / unit).map(|n| n * unit);
            let right = |at: &u64| at + len <= end && (name != *path || *at != offset);
            let found: Vec<u64> = fits.filter(right).collect();
            // Most misdirected writes stay in their file.
            let weight = if name == *path { 4 } else { 1 };
            if !found.is_empty() {
                places.extend(std::iter::repeat_n((name, found), weight));
            }
        }
        if places.is_empty() {
            return (path, offset + unit);
        }
        let (name, found) = &places[self.random.below(places.len() as u64) as usize];
        (name.as_str().into(), found[self.random.below(found.len() as u64) as usize])
    }

    /// Flips a random bit of a byte range.
    pub(super) fn rot(&mut self, path: &str, offset: u64, bytes: usize) {
        let byte = offset + self.random.below(bytes as u64);
        let bit = self.random.below(8) as u8;
        self.record(Change::Rot { path: path.into(), byte, bit });
    }
}
