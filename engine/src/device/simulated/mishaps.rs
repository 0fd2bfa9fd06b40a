//! What mishaps do to an operation; which there are is said in `faults`.

use super::device::Reach;
use super::faults::Fate;
use super::journal::{Change, SECTOR};
use super::{EIO, MishapKind, OperationKind, SimulatedStorage, World, failure};
use crate::base::Result;
use crate::device::SECTOR_BYTES;
use crate::device::mapped::WORD_BYTES;
use crate::sync::thread;
use std::sync::Arc;
use std::time::Duration;

/// What an operation that is to be tried again waits for.
const A_MOMENT: Duration = Duration::from_micros(1);

impl SimulatedStorage {
    /// What becomes of an operation, and how often what is stuck was released before.
    pub(super) fn fate(
        &self,
        kind: OperationKind,
        path: &str,
        offset: u64,
        bytes: usize,
    ) -> (Result<Fate>, u64) {
        let mut world = self.shared.world.lock();
        (world.fate(kind, path, offset, bytes), world.releases)
    }

    /// What takes time, outside of the disk's lock. `releases` is as it was when the mishap struck: who has seen that may release it at once.
    pub(super) fn hold_up(
        &self,
        (mishap, releases): (MishapKind, u64),
        path: &str,
        offset: u64,
        change: Option<&Change>,
    ) -> Result<()> {
        match mishap {
            MishapKind::Slow(time) => thread::sleep(time),
            // Nothing is done before, and others may come first.
            MishapKind::TryAgain => thread::sleep(A_MOMENT),
            MishapKind::Stuck => {
                // A crash meanwhile may find it done, or partly, or late.
                if let Some(Change::Write { path, offset, bytes, .. }) = change {
                    let (path, bytes) = (path.clone(), bytes.clone());
                    self.shared.world.lock().land(Change::InFlight { path, offset: *offset, bytes });
                }
                loop {
                    let world = self.shared.world.lock();
                    if world.stopped {
                        return Err(failure(path, offset, std::io::Error::from_raw_os_error(EIO)));
                    }
                    if world.releases > releases {
                        return Ok(());
                    }
                    drop(world);
                    thread::sleep(Duration::from_millis(1));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl World {
    /// Performs `change`, but not as it should be.
    pub(super) fn go_wrong(&mut self, mishap: MishapKind, change: Change) {
        match (mishap, change) {
            (MishapKind::Short | MishapKind::Interrupted, Change::Write { path, offset, bytes, reach }) => {
                let part = self.some_sectors(&bytes);
                self.land(Change::Write { path: path.clone(), offset, bytes: part, reach: Reach::Cache });
                self.land(Change::Write { path, offset, bytes, reach });
            }
            (MishapKind::Duplicated, Change::Write { path, offset, bytes, reach }) => {
                self.land(Change::Write { path: path.clone(), offset, bytes: bytes.clone(), reach });
                self.land(Change::Again { path, offset, bytes });
            }
            (MishapKind::Lost, Change::Write { path, offset, bytes, .. }) => {
                self.land(Change::Gone { path, offset, bytes });
            }
            (MishapKind::Torn, Change::Write { path, offset, bytes, reach }) => {
                let part = self.some_sectors(&bytes);
                self.land(Change::Gone { path: path.clone(), offset, bytes });
                self.land(Change::Write { path, offset, bytes: part, reach });
            }
            (MishapKind::Misdirected, Change::Write { path, offset, bytes, reach }) => {
                self.land(Change::Gone { path: path.clone(), offset, bytes: bytes.clone() });
                let (path, offset) = self.another_place(path, offset, bytes.len() as u64);
                self.land(Change::Write { path, offset, bytes, reach });
            }
            (MishapKind::LyingFlush, Change::Write { path, offset, bytes, .. }) => {
                self.land(Change::Write { path, offset, bytes, reach: Reach::Cache });
            }
            (MishapKind::Lost, Change::Store { .. }) => {}
            (MishapKind::Torn, Change::Store { thread, offset, bytes }) => {
                let lost = self.random.below((bytes.len() / WORD_BYTES) as u64) as usize * WORD_BYTES;
                let after = lost + WORD_BYTES;
                self.land(Change::Store { thread, offset, bytes: bytes[..lost].into() });
                let rest = offset + after as u64;
                self.land(Change::Store { thread, offset: rest, bytes: bytes[after..].into() });
            }
            (_, change @ Change::MapMemory { .. }) => self.land(change),
            (MishapKind::LyingFlush, _) => {}
            (_, change) => self.land(change),
        }
    }

    /// At least one sector of it and not the last, if there are two.
    fn some_sectors(&mut self, bytes: &[u8]) -> Arc<[u8]> {
        let sectors = bytes.len() / SECTOR;
        let kept = if sectors > 1 { 1 + self.random.below(sectors as u64 - 1) as usize } else { 0 };
        bytes[..kept * SECTOR].into()
    }

    /// Where `len` bytes fit, in this file or else in another, but not where they belong.
    fn another_place(&mut self, path: Arc<str>, offset: u64, len: u64) -> (Arc<str>, u64) {
        let unit = SECTOR_BYTES as u64;
        let mut places = Vec::new();
        for name in self.disk.paths() {
            let end = self.disk.visible(&name).map_or(0, |bytes| bytes.len() as u64);
            let fits = (0..=end.saturating_sub(len) / unit).map(|n| n * unit);
            let right = |at: &u64| at + len <= end && (name != *path || *at != offset);
            let found: Vec<u64> = fits.filter(right).collect();
            // A disk mistakes a sector, and most are in the same file.
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

    /// A bit of these bytes flips.
    pub(super) fn rot(&mut self, path: &str, offset: u64, bytes: usize) {
        let byte = offset + self.random.below(bytes as u64);
        let bit = self.random.below(8) as u8;
        self.land(Change::Rot { path: path.into(), byte, bit });
    }
}
