//! A simulated disk with a volatile cache: the seeded device of crash and fault tests.
//!
//! Every operation that changes something is kept in a journal. A crash takes the journal up to some operation and
//! decides by a seed what the disk really holds:
//!
//! ```text
//!   write ──▶ visible, pending ──flush──▶ durable
//!                   │
//!                   ├─ power cut: each 512-byte sector of each pending write survives or not, in any order, and of the write that
//!                   │  was to be the next operation, durable or not: it was on its way
//!                   └─ SIGKILL: all stay visible and pending; writes in flight land wholly, partly, or during the life of the next
//!                      storage; of one that somebody waited for, which was to be the next operation, a beginning may be there
//! ```
//!
//! 1. What was flushed before the crash always survives.
//! 2. The same journal, operation, kind and seed give the same storage.
//! 3. After a failed flush the pending writes are doomed: a later flush does not make them durable, though it succeeds
//!    (what Linux does).
//! 4. One journal can be crashed at each of its operations, so one run of a workload gives thousands of crashes.

mod device;
mod faults;
mod file;
mod image;
mod journal;
mod kept;
mod memory;
mod mishaps;
mod queue;

pub use device::{Cache, Device};
pub use faults::{Fault, FaultCounts, FaultKind, HAPPENINGS, Mishap, MishapKind, OperationKind};
pub use journal::CrashKind;

use super::facts::{DeviceFacts, DurabilityMethod};
use super::locks::FileLocks;
use super::mapped::{MapOptions, MappedMemory, map_file};
use super::memory::{OWN_MEMORY, lock_in_process, missing, names_in};
use super::{File, OpenMode, Storage, WriteQueue};
use crate::base::random::Random;
use crate::base::{Error, Location, Result};
use crate::sync::Mutex;
use crate::sync::atomic::AtomicBool;
use device::Reach;
use faults::{Fate, Faults};
use image::Image;
use journal::{Change, Disk};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// See the module's text. Cloning shares the disk.
#[derive(Clone, Debug)]
pub struct SimulatedStorage {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    world: Mutex<World>,
    locked: Arc<AtomicBool>,
    /// Not part of the disk: they end with the processes.
    file_locks: Arc<FileLocks>,
    device: Device,
    /// A [`DurabilityMethod`]. No atomic of the simulation: asking for it is no operation.
    method: AtomicU8,
}

#[derive(Debug)]
struct World {
    /// The disk before the journal.
    base: Disk,
    /// The disk after so many operations of the journal, for crashes at that moment or later.
    past: BTreeMap<usize, Disk>,
    /// The disk now.
    disk: Disk,
    journal: Vec<Change>,
    faults: Faults,
    random: Random,
    delay: Duration,
    capacity: Option<u64>,
    stopped: bool,
    flushes: u64,
    ignore_fences: bool,
    holds_late_writes: bool,
    /// Stretches of files that cannot be read.
    unreadable: Vec<(String, std::ops::Range<u64>)>,
    /// What was stuck at a lower number goes on.
    releases: u64,
}

impl SimulatedStorage {
    /// An empty disk. `seed` decides the order of queue completions and the shape of faults.
    #[must_use]
    pub fn new(seed: u64) -> SimulatedStorage {
        SimulatedStorage::on(Disk::default(), seed)
    }

    /// An empty disk on such a device.
    #[must_use]
    pub fn on_device(device: Device, seed: u64) -> SimulatedStorage {
        SimulatedStorage::on(Disk::of(device), seed)
    }

    pub(super) fn device(&self) -> Device {
        self.shared.device
    }

    fn on(disk: Disk, seed: u64) -> SimulatedStorage {
        let device = disk.device();
        let world = World {
            base: disk.clone(),
            past: BTreeMap::new(),
            disk,
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
        };
        let locked = Arc::new(AtomicBool::new(false));
        let file_locks = Arc::default();
        let (world, method) = (Mutex::new(world), AtomicU8::new(device.method() as u8));
        SimulatedStorage { shared: Arc::new(Shared { world, locked, file_locks, device, method }) }
    }

    /// Operations in the journal so far. A crash at this number keeps them all.
    #[must_use]
    pub fn operations(&self) -> usize {
        self.shared.world.lock().journal.len()
    }

    /// The storage after a crash that follows operation number `operations` (clamped to what happened).
    #[must_use]
    pub fn crash(&self, kind: CrashKind, operations: usize, seed: u64) -> SimulatedStorage {
        let mut random = Random::from_seed(seed);
        let mut counts = FaultCounts::default();
        let mut disk = {
            let mut world = self.shared.world.lock();
            let mut disk = world.after(operations);
            if let Some(next) = world.journal.get(operations) {
                disk.begin(kind, next, &mut random, &mut counts);
            }
            disk
        };
        disk.crash(kind, &mut random, &mut counts);
        let crashed = SimulatedStorage::on(disk, random.next_u64());
        crashed.shared.world.lock().faults.counts = counts;
        crashed
    }

    /// From now on every operation fails: the machine is gone, its threads only do not know yet.
    pub fn stop(&self) {
        self.shared.world.lock().stopped = true;
    }

    /// Arms a fault.
    pub fn inject(&self, fault: Fault) {
        self.shared.world.lock().faults.arm(fault);
    }

    /// Arms a mishap.
    pub fn inject_mishap(&self, mishap: Mishap) {
        self.shared.world.lock().faults.arm_mishap(mishap);
    }

    /// The disk is well again: nothing is armed any more, and what was stuck goes on.
    pub fn heal(&self) {
        self.shared.world.lock().faults.disarm();
        self.release_stuck();
    }

    /// Operations that are stuck go on.
    pub fn release_stuck(&self) {
        self.shared.world.lock().releases += 1;
    }

    /// Everything that went wrong so far, and in the crash that made this disk.
    #[must_use]
    pub fn fault_counts(&self) -> FaultCounts {
        self.shared.world.lock().faults.counts.clone()
    }

    /// How many armed faults and mishaps have struck.
    #[must_use]
    pub fn faults_struck(&self) -> u64 {
        self.shared.world.lock().faults.struck()
    }

    /// Flushes that reached the disk, those of durable writes included.
    #[must_use]
    pub fn flushes(&self) -> u64 {
        self.shared.world.lock().flushes
    }

    /// Makes each durable write and flush take this long in real time.
    pub fn set_delay(&self, delay: Duration) {
        self.shared.world.lock().delay = delay;
    }

    /// Makes fences and barriers of the mapped memory do nothing: to see that a test would find out.
    pub fn ignore_fences(&self) {
        self.shared.world.lock().ignore_fences = true;
    }

    /// Keeps writes that a killed process left behind from landing, or has them all land now. Otherwise they land at random.
    pub fn hold_late_writes(&self, hold: bool) {
        let mut world = self.shared.world.lock();
        world.holds_late_writes = hold;
        while !hold && let Some(change) = world.disk.next_late_write() {
            world.land(change);
        }
    }

    /// Writes that a killed process left behind and that have not landed.
    #[must_use]
    pub fn late_writes(&self) -> usize {
        self.shared.world.lock().disk.late_writes()
    }

    /// Bytes of the mapped memory, as they are visible.
    #[must_use]
    pub fn read_memory(&self) -> Vec<u8> {
        self.shared.world.lock().disk.memory().visible().to_vec()
    }

    /// Whoever reads any of `bytes` of a file gets an I/O error.
    pub fn make_unreadable(&self, path: &str, bytes: std::ops::Range<u64>) {
        self.shared.world.lock().unreadable.push((path.to_string(), bytes));
    }

    /// Lets files take at most `bytes` together; `None` for no limit. Files that take more already do not grow.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.shared.world.lock().capacity = bytes;
    }

    /// Paths of all files.
    #[must_use]
    pub fn files(&self) -> Vec<String> {
        self.shared.world.lock().disk.paths()
    }

    /// A file's visible bytes.
    #[must_use]
    pub fn read_file(&self, path: &str) -> Option<Vec<u8>> {
        self.shared.world.lock().disk.visible(path).map(Image::to_vec)
    }

    /// The journal from operation number `from` on, a line for each, for people to read.
    #[must_use]
    pub fn describe(&self, from: usize) -> Vec<String> {
        self.shared.world.lock().journal.iter().skip(from).map(ToString::to_string).collect()
    }

    /// A number that follows from every operation so far.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let world = self.shared.world.lock();
        let mix = |mixed: u32, change: &Change| {
            crate::base::checksum::crc_append(mixed, change.to_string().as_bytes())
        };
        u64::from(world.journal.iter().fold(0, mix)) << 32 | world.journal.len() as u64
    }

    /// Replaces a file, durably, outside the journal.
    pub fn write_file(&self, path: &str, bytes: &[u8]) {
        let mut world = self.shared.world.lock();
        world.disk.put_file(path, bytes);
        world.base.put_file(path, bytes);
        world.past.clear();
    }

    /// Removes a file, durably, outside the journal.
    pub fn remove_file(&self, path: &str) {
        let mut world = self.shared.world.lock();
        world.disk.remove_now(path);
        world.base.remove_now(path);
        world.past.clear();
    }

    /// An independent copy of the disk, everything visible durable.
    #[must_use]
    pub fn duplicate(&self) -> SimulatedStorage {
        let mut disk = self.shared.world.lock().disk.clone();
        disk.settle();
        SimulatedStorage::on(disk, 0)
    }

    /// Performs `change` unless a fault strikes.
    fn change(&self, kind: OperationKind, path: &str, offset: u64, change: Change) -> Result<()> {
        let (mut fate, releases) = self.fate(kind, path, offset, change.bytes());
        if let Ok(Fate::Mishap(mishap)) = fate {
            self.hold_up((mishap, releases), path, offset, Some(&change))?;
        }
        let delay = {
            let mut world = self.shared.world.lock();
            if world.stopped {
                fate = Err(failure(path, offset, std::io::Error::from_raw_os_error(EIO)));
            }
            let flushes = change.flushes();
            world.perform(fate, path, offset, change)?;
            world.flushes += u64::from(flushes);
            if kind == OperationKind::Flush || kind == OperationKind::DurableWrite {
                world.delay
            } else {
                Duration::ZERO
            }
        };
        if !delay.is_zero() {
            crate::sync::thread::sleep(delay);
        }
        Ok(())
    }

    /// An operation that changes nothing.
    fn look(&self, kind: OperationKind, path: &str, offset: u64, bytes: usize) -> Result<()> {
        let (fate, releases) = self.fate(kind, path, offset, bytes);
        if let Fate::Mishap(mishap) = fate? {
            self.hold_up((mishap, releases), path, offset, None)?;
            if mishap == MishapKind::Rot {
                self.shared.world.lock().rot(path, offset, bytes);
            }
        }
        Ok(())
    }
}

fn failure(path: &str, offset: u64, error: std::io::Error) -> Error {
    Error::io("simulated failure", error).at(Location::File { path: path.to_string(), offset })
}

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// So many operations lie between moments whose disk is kept.
const KEPT_EVERY: usize = 64;

impl World {
    /// The disk after the first `operations` of the journal.
    fn after(&mut self, operations: usize) -> Disk {
        let end = operations.min(self.journal.len());
        let kept = self.past.range(..=end).next_back();
        let (mut at, mut disk) =
            kept.map_or_else(|| (0, self.base.clone()), |(at, disk)| (*at, disk.clone()));
        for change in &self.journal[at..end] {
            disk.apply(change);
            at += 1;
            if at.is_multiple_of(KEPT_EVERY) {
                self.past.insert(at, disk.clone());
            }
        }
        disk
    }

    /// What befalls an operation; an error if it fails.
    fn fate(&mut self, kind: OperationKind, path: &str, offset: u64, bytes: usize) -> Result<Fate> {
        if self.stopped {
            return Err(failure(path, offset, std::io::Error::from_raw_os_error(EIO)));
        }
        match self.faults.strikes(kind, bytes) {
            Fate::Error(error) => Err(failure(path, offset, std::io::Error::from_raw_os_error(error))),
            fate => Ok(fate),
        }
    }

    fn perform(&mut self, fate: Result<Fate>, path: &str, offset: u64, change: Change) -> Result<()> {
        self.land_late_writes();
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
            && self.disk.size_after(&change) > capacity.max(self.disk.size())
        {
            self.faults.counts.count("full disk");
            return Err(failure(path, offset, std::io::Error::from_raw_os_error(ENOSPC)));
        }
        match fate {
            Fate::Mishap(mishap) => self.go_wrong(mishap, change),
            _ => self.land(change),
        }
        Ok(())
    }

    /// A failed write may have written some sectors; a failed flush dooms what was pending.
    fn fail(&mut self, change: &Change) {
        let partial = match change {
            Change::Write { path, offset, bytes, .. } => {
                let sectors = bytes.len() / journal::SECTOR;
                let keep = self.random.below(sectors as u64 + 1) as usize * journal::SECTOR;
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
        self.disk.apply(&partial);
        self.journal.push(partial);
    }

    fn land_late_writes(&mut self) {
        if !self.holds_late_writes
            && let Some(change) = self.disk.take_late_write(&mut self.random)
        {
            self.faults.counts.count("late write");
            self.land(change);
        }
    }

    fn land(&mut self, change: Change) {
        self.disk.apply(&change);
        self.journal.push(change);
    }
}

impl Storage for SimulatedStorage {
    fn open(&self, path: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        let exists = self.shared.world.lock().disk.visible(path).is_some();
        if exists {
            self.look(OperationKind::Open, path, 0, 0)?;
        } else if mode.create {
            self.change(OperationKind::Open, path, 0, Change::Create { path: path.into() })?;
        } else {
            return Err(missing(path));
        }
        let direct = mode.direct && self.device().direct_io;
        Ok(Arc::new(file::SimulatedFile::new(self, path, direct)))
    }

    fn remove(&self, path: &str) -> Result<()> {
        self.change(OperationKind::Remove, path, 0, Change::Remove { path: path.into() })
    }

    fn list(&self, directory: &str) -> Result<Vec<String>> {
        self.look(OperationKind::Read, directory, 0, 0)?;
        Ok(names_in(directory, self.files().iter()))
    }

    fn create_directory(&self, path: &str) -> Result<()> {
        self.look(OperationKind::Open, path, 0, 0)
    }

    fn flush_directory(&self, directory: &str) -> Result<()> {
        self.change(
            OperationKind::Flush,
            directory,
            0,
            Change::FlushDirectory { directory: directory.into() },
        )
    }

    fn lock(&self, exclusive: bool) -> Result<Box<dyn Send + Sync>> {
        lock_in_process(&self.shared.locked, exclusive)
    }

    fn facts(&self) -> DeviceFacts {
        self.device().facts()
    }

    fn durability(&self) -> DurabilityMethod {
        DurabilityMethod::from_code(self.shared.method.load(Ordering::Relaxed))
    }

    fn set_durability(&self, method: DurabilityMethod) {
        self.shared.method.store(method as u8, Ordering::Relaxed);
    }

    fn shares_flush(&self, _directory: &str) -> bool {
        self.device().direct_io && self.durability() != DurabilityMethod::Plain
    }

    fn flush_together(&self, files: &[Arc<dyn File>]) -> Result<()> {
        if !self.device().direct_io {
            return files.iter().try_for_each(|file| file.flush());
        }
        let path = |file: &Arc<dyn File>| match file.location(0) {
            Location::File { path, .. } => Ok(path.into()),
            _ => Err(Error::invalid("this disk flushes only its own files")),
        };
        let paths: Vec<Arc<str>> = files.iter().map(path).collect::<Result<_>>()?;
        let Some(first) = paths.first().cloned() else { return Ok(()) };
        self.change(OperationKind::Flush, &first, 0, Change::Flush { paths: paths.into() })
    }

    fn write_queue(&self, depth: usize) -> Result<Box<dyn WriteQueue>> {
        Ok(Box::new(queue::SimulatedQueue::new(self.clone(), depth)))
    }

    fn own_memory(&self) -> Option<PathBuf> {
        Some(OWN_MEMORY.into())
    }

    fn map_memory(&self, path: &Path, options: MapOptions) -> Result<Arc<dyn MappedMemory>> {
        if path != Path::new(OWN_MEMORY) {
            return map_file(path, options);
        }
        let there = self.shared.world.lock().disk.memory().len();
        if there == 0 && !options.create {
            return Err(missing(OWN_MEMORY));
        }
        if there == 0 {
            let len = if options.bytes == 0 { options.new_bytes } else { options.bytes };
            self.change(OperationKind::Memory, OWN_MEMORY, 0, Change::MapMemory { len })?;
        }
        Ok(Arc::new(memory::SimulatedMemory { storage: self.clone(), latency: options.latency }))
    }
}

#[cfg(test)]
mod tests;
