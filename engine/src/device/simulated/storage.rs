//! The handle of a simulated storage: everything that tests and the simulation do with it.

use super::change::{Change, log_of};
use super::device::{Device, Reach};
use super::disk::{CrashKind, Disk};
use super::faults::{EIO, Fate, Fault, Faults, Mishap, MishapKind, OperationKind};
use super::image::Image;
use super::journaled_disk::{JournaledDisk, failure};
use super::written::WrittenPages;
use crate::base::Result;
use crate::base::random::Random;
use crate::device::fault_counts::FaultCounts;
use crate::device::locks::FileLocks;
use crate::sync::Mutex;
use crate::sync::atomic::AtomicBool;
use crate::sync::thread;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// A simulated disk: see the text of `device::simulated`. Cloning shares the disk.
#[derive(Clone, Debug)]
pub struct SimulatedStorage {
    pub(super) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) disk: Mutex<JournaledDisk>,
    pub(super) locked: Arc<AtomicBool>,
    /// Not part of the disk: file locks end with their process.
    pub(super) file_locks: Arc<FileLocks>,
    pub(super) device: Device,
    /// Notes that the manifest is durable, by the number of operations before. Not part of the
    /// disk, so that they are no operations.
    pub(super) notes: Mutex<Vec<(usize, Option<Note>)>>,
    /// What the holder of the lock found.
    pub(super) note_found: Mutex<Option<Note>>,
    /// The epoch that the holder of the lock has noted for processes that follow the log.
    pub(super) epoch_noted: Mutex<Option<u32>>,
}

/// A note that the manifest is durable: the checksum of its content.
pub(super) type Note = u32;

/// The pause before an operation is retried.
const RETRY_PAUSE: Duration = Duration::from_micros(1);

impl SimulatedStorage {
    /// Returns an empty disk. `seed` decides the order of queue completions and the shape of
    /// faults.
    #[must_use]
    pub fn new(seed: u64) -> SimulatedStorage {
        SimulatedStorage::on(Disk::default(), seed)
    }

    /// Returns an empty disk on `device`.
    #[must_use]
    pub fn on_device(device: Device, seed: u64) -> SimulatedStorage {
        SimulatedStorage::on(Disk::of(device), seed)
    }

    /// Returns an empty disk that stores the file of pages in extents: see
    /// [`Device::extent_bytes`].
    #[must_use]
    pub fn with_extents(extent_bytes: u64, seed: u64) -> SimulatedStorage {
        let device = Device { extent_bytes: Some(extent_bytes), ..Device::default() };
        SimulatedStorage::on_device(device, seed)
    }

    /// Returns how many writes to extents were refused, because the bytes were written before and
    /// not discarded.
    #[must_use]
    pub fn overwrites(&self) -> u64 {
        self.shared.disk.lock().written.overwrites
    }

    pub(super) fn device(&self) -> Device {
        self.shared.device
    }

    fn on(disk: Disk, seed: u64) -> SimulatedStorage {
        let device = disk.device();
        let disk = JournaledDisk {
            base: disk.clone(),
            past: BTreeMap::new(),
            now: disk,
            journal: Vec::new(),
            faults: Faults::default(),
            random: Random::from_seed(seed),
            delay: Duration::ZERO,
            capacity: None,
            stopped: false,
            flushes: 0,
            ignore_fences: false,
            holds_late_writes: false,
            unreadable: Vec::new(),
            releases: 0,
            written: WrittenPages::default(),
        };
        let locked = Arc::new(AtomicBool::new(false));
        let file_locks = Arc::default();
        let disk = Mutex::new(disk);
        let (notes, note_found, epoch_noted) = (Mutex::default(), Mutex::default(), Mutex::default());
        let shared = Shared { disk, locked, file_locks, device, notes, note_found, epoch_noted };
        SimulatedStorage { shared: Arc::new(shared) }
    }

    /// Returns the number of operations in the journal. A crash at this number keeps all of them.
    #[must_use]
    pub fn operations(&self) -> usize {
        self.shared.disk.lock().journal.len()
    }

    /// Returns the storage after a crash that follows the first `operations` of the journal.
    #[must_use]
    pub fn crash(&self, kind: CrashKind, operations: usize, seed: u64) -> SimulatedStorage {
        let mut random = Random::from_seed(seed);
        let mut counts = FaultCounts::default();
        let mut disk = {
            let mut journaled = self.shared.disk.lock();
            let mut disk = journaled.after(operations);
            if let Some(next) = journaled.journal.get(operations) {
                disk.apply_in_flight(kind, next, &mut random, &mut counts);
            }
            disk
        };
        disk.crash(kind, &mut random, &mut counts);
        let crashed = SimulatedStorage::on(disk, random.next_u64());
        crashed.shared.disk.lock().faults.counts = counts;
        let notes = self.shared.notes.lock();
        let note = notes.iter().rev().find(|(before, _)| *before <= operations).and_then(|(_, note)| *note);
        // A power cut may take it away: it is in the page cache.
        if kind == CrashKind::Kill || seed.is_multiple_of(2) {
            crashed.shared.notes.lock().push((0, note));
        }
        crashed
    }

    /// Makes every later operation fail: the machine is down, and its threads find out.
    pub fn stop(&self) {
        self.shared.disk.lock().stopped = true;
    }

    /// Arms a fault.
    pub fn inject(&self, fault: Fault) {
        self.shared.disk.lock().faults.arm(fault);
    }

    /// Arms a mishap.
    pub fn inject_mishap(&self, mishap: Mishap) {
        self.shared.disk.lock().faults.arm_mishap(mishap);
    }

    /// Disarms all faults and mishaps, and resumes stuck operations.
    pub fn heal(&self) {
        self.shared.disk.lock().faults.disarm();
        self.release_stuck();
    }

    /// Resumes stuck operations.
    pub fn release_stuck(&self) {
        self.shared.disk.lock().releases += 1;
    }

    /// Returns how often each event occurred on this disk and in the crash that made it.
    #[must_use]
    pub fn fault_counts(&self) -> FaultCounts {
        self.shared.disk.lock().faults.counts.clone()
    }

    /// Returns how many armed faults and mishaps have struck.
    #[must_use]
    pub fn faults_struck(&self) -> u64 {
        self.shared.disk.lock().faults.struck()
    }

    /// Returns the number of flushes that reached the disk, including those of durable writes.
    #[must_use]
    pub fn flushes(&self) -> u64 {
        self.shared.disk.lock().flushes
    }

    /// Makes each durable write and flush take this long in real time.
    pub fn set_delay(&self, delay: Duration) {
        self.shared.disk.lock().delay = delay;
    }

    /// Makes fences and barriers of the mapped memory do nothing, to check that a test notices.
    pub fn ignore_fences(&self) {
        self.shared.disk.lock().ignore_fences = true;
    }

    /// With `hold`, no orphaned write of a killed process completes; without, all complete now.
    /// By default they complete at random.
    pub fn hold_late_writes(&self, hold: bool) {
        let mut disk = self.shared.disk.lock();
        disk.holds_late_writes = hold;
        while !hold && let Some(change) = disk.now.pop_late_write() {
            disk.record(change);
        }
    }

    /// Returns the number of orphaned writes of a killed process that have not completed.
    #[must_use]
    pub fn late_writes(&self) -> usize {
        self.shared.disk.lock().now.late_writes()
    }

    /// Returns the visible bytes of the mapped memory.
    #[must_use]
    pub fn read_memory(&self) -> Vec<u8> {
        self.shared.disk.lock().now.memory().visible().to_vec()
    }

    /// Makes every read that touches `bytes` of a file fail with an I/O error.
    pub fn make_unreadable(&self, path: &str, bytes: std::ops::Range<u64>) {
        self.shared.disk.lock().unreadable.push((path.to_string(), bytes));
    }

    /// Limits the sum of all file lengths to `bytes`; `None` is no limit. Files beyond it do not
    /// shrink.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.shared.disk.lock().capacity = bytes;
    }

    /// Returns the paths of all files.
    #[must_use]
    pub fn files(&self) -> Vec<String> {
        self.shared.disk.lock().now.paths()
    }

    /// Returns the visible bytes of a file.
    #[must_use]
    pub fn read_file(&self, path: &str) -> Option<Vec<u8>> {
        self.shared.disk.lock().now.visible(path).map(Image::to_vec)
    }

    /// Returns one readable line for each operation of the journal from number `from` on.
    #[must_use]
    pub fn describe(&self, from: usize) -> Vec<String> {
        self.shared.disk.lock().journal.iter().skip(from).map(ToString::to_string).collect()
    }

    /// Returns a hash of the journal.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let disk = self.shared.disk.lock();
        let mix = |mixed: u32, change: &Change| {
            crate::base::checksum::crc_append(mixed, change.to_string().as_bytes())
        };
        u64::from(disk.journal.iter().fold(0, mix)) << 32 | disk.journal.len() as u64
    }

    /// Replaces a file, durably, outside the journal.
    pub fn write_file(&self, path: &str, bytes: &[u8]) {
        let mut disk = self.shared.disk.lock();
        disk.now.put_file(path, bytes);
        disk.base.put_file(path, bytes);
        disk.past.clear();
    }

    /// Removes a file, durably, outside the journal.
    pub fn remove_file(&self, path: &str) {
        let mut disk = self.shared.disk.lock();
        disk.now.remove_now(path);
        disk.base.remove_now(path);
        disk.past.clear();
    }

    /// Returns an independent copy of the disk on which everything visible is durable.
    #[must_use]
    pub fn duplicate(&self) -> SimulatedStorage {
        let mut disk = self.shared.disk.lock().now.clone();
        disk.make_all_durable();
        SimulatedStorage::on(disk, 0)
    }

    /// Performs `change` unless a fault strikes.
    pub(super) fn change(&self, kind: OperationKind, path: &str, offset: u64, change: Change) -> Result<()> {
        let (mut fate, releases) = self.fate(kind, path, offset, change.bytes());
        if let Ok(Fate::Mishap(mishap)) = fate {
            self.delay_operation(mishap, releases, path, offset, Some(&change))?;
        }
        let delay = {
            let mut disk = self.shared.disk.lock();
            if disk.stopped {
                fate = Err(failure(path, offset, std::io::Error::from_raw_os_error(EIO)));
            }
            let flushes = change.flushes();
            disk.perform(fate, path, offset, change)?;
            disk.flushes += u64::from(flushes);
            if kind == OperationKind::Flush || kind == OperationKind::DurableWrite {
                disk.delay
            } else {
                Duration::ZERO
            }
        };
        if !delay.is_zero() {
            thread::sleep(delay);
        }
        Ok(())
    }

    /// Performs an operation that changes nothing, unless a fault strikes.
    pub(super) fn inspect(&self, kind: OperationKind, path: &str, offset: u64, bytes: usize) -> Result<()> {
        let (fate, releases) = self.fate(kind, path, offset, bytes);
        if let Fate::Mishap(mishap) = fate? {
            self.delay_operation(mishap, releases, path, offset, None)?;
            if mishap == MishapKind::Rot {
                self.shared.disk.lock().rot(path, offset, bytes);
            }
        }
        Ok(())
    }

    /// Returns the positions in the journal at which blocks of several logs were written or in
    /// flight and not durable: a power cut there can lose one block and keep another.
    #[must_use]
    pub fn crash_points_between_logs(&self) -> Vec<usize> {
        let disk = self.shared.disk.lock();
        let mut in_flight: Vec<(&Arc<str>, u64, u32)> = Vec::new();
        let mut pending: Vec<(&Arc<str>, u32)> = Vec::new();
        let mut points = Vec::new();
        for (number, change) in disk.journal.iter().enumerate() {
            match change {
                Change::InFlight { path, offset, bytes } => {
                    in_flight.extend(log_of(bytes).map(|log| (path, *offset, log)));
                }
                Change::Write { path, offset, bytes, reach } => {
                    in_flight.retain(|(file, at, _)| *file != path || at != offset);
                    match reach {
                        Reach::Flushed => pending.retain(|(file, _)| *file != path),
                        Reach::Cache => pending.extend(log_of(bytes).map(|log| (path, log))),
                        Reach::Device | Reach::Through => {}
                    }
                }
                Change::Flush { paths } => pending.retain(|(file, _)| !paths.contains(file)),
                _ => {}
            }
            let logs = in_flight.iter().map(|(.., log)| log).chain(pending.iter().map(|(_, log)| log));
            if logs.collect::<BTreeSet<_>>().len() > 1 {
                points.push(number + 1);
            }
        }
        points
    }

    /// Returns the fate of an operation, and how often stuck operations had been resumed before.
    fn fate(&self, kind: OperationKind, path: &str, offset: u64, bytes: usize) -> (Result<Fate>, u64) {
        let mut disk = self.shared.disk.lock();
        (disk.fate(kind, path, offset, bytes), disk.releases)
    }

    /// Waits as the mishap demands, without the lock of the disk. `releases` is the number at the
    /// time the mishap struck: a thread that sees the strike may release the operation at once.
    fn delay_operation(
        &self,
        mishap: MishapKind,
        releases: u64,
        path: &str,
        offset: u64,
        change: Option<&Change>,
    ) -> Result<()> {
        match mishap {
            MishapKind::Slow(time) => thread::sleep(time),
            // Nothing has been done yet, and other operations may run first.
            MishapKind::TryAgain => thread::sleep(RETRY_PAUSE),
            MishapKind::Stuck => {
                // A crash meanwhile may find the write complete, partial or late.
                if let Some(Change::Write { path, offset, bytes, .. }) = change {
                    let (path, bytes) = (path.clone(), bytes.clone());
                    self.shared.disk.lock().record(Change::InFlight { path, offset: *offset, bytes });
                }
                loop {
                    let disk = self.shared.disk.lock();
                    if disk.stopped {
                        return Err(failure(path, offset, std::io::Error::from_raw_os_error(EIO)));
                    }
                    if disk.releases > releases {
                        return Ok(());
                    }
                    drop(disk);
                    thread::sleep(Duration::from_millis(1));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
