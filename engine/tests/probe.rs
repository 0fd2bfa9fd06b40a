//! The measurement of durability methods, which `autonomous` makes at the first open: its failure
//! affects nothing else.

use crate::support::small;
use quenchdb::internals::device::memory::MemoryStorage;
use quenchdb::internals::device::{
    DeviceFacts, DurabilityMethod, File, OpenMode, Storage, WriteQueue, probe,
};
use quenchdb::{Database, Error, ErrorKind, Preset, Result};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The file used for the measurement.
const PROBE: &str = "quench-probe.tmp";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trouble {
    None,
    /// No space for the measurement's file.
    FullDisk,
    /// Queues cannot be created.
    NoQueue,
    /// Queues can be created, but not of the promised kind.
    NoRing,
}

/// Memory that claims to be a device with a volatile cache and io_uring.
#[derive(Debug)]
struct Device {
    inner: MemoryStorage,
    trouble: Mutex<Trouble>,
    method: Mutex<DurabilityMethod>,
    probes: AtomicUsize,
    ring_refused: AtomicBool,
}

impl Device {
    fn new(trouble: Trouble) -> Arc<Device> {
        Arc::new(Device {
            inner: MemoryStorage::new(),
            trouble: Mutex::new(trouble),
            method: Mutex::new(DurabilityMethod::Plain),
            probes: AtomicUsize::new(0),
            ring_refused: AtomicBool::new(false),
        })
    }

    fn trouble(&self) -> Trouble {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Storage for Device {
    fn open(&self, path: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        if path == PROBE {
            self.probes.fetch_add(1, Ordering::SeqCst);
            if self.trouble() == Trouble::FullDisk {
                return Err(Error::new(ErrorKind::OutOfSpace, "no space for what is measured with"));
            }
        }
        self.inner.open(path, mode)
    }

    fn remove(&self, path: &str) -> Result<()> {
        self.inner.remove(path)
    }

    fn list(&self, directory: &str) -> Result<Vec<String>> {
        self.inner.list(directory)
    }

    fn create_directory(&self, path: &str) -> Result<()> {
        self.inner.create_directory(path)
    }

    fn flush_directory(&self, directory: &str) -> Result<()> {
        self.inner.flush_directory(directory)
    }

    fn lock(&self, exclusive: bool) -> Result<Box<dyn Send + Sync>> {
        self.inner.lock(exclusive)
    }

    fn facts(&self) -> DeviceFacts {
        let refused = self.ring_refused.load(Ordering::SeqCst);
        let io_uring = if refused { Err("a ring could not be made".into()) } else { Ok(()) };
        DeviceFacts { volatile_cache: true, io_uring, ..self.inner.facts() }
    }

    fn durability(&self) -> DurabilityMethod {
        *self.method.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_durability(&self, method: DurabilityMethod) {
        *self.method.lock().unwrap_or_else(PoisonError::into_inner) = method;
    }

    fn write_queue(&self, depth: usize) -> Result<Box<dyn WriteQueue>> {
        match self.trouble() {
            Trouble::NoQueue => return Err(Error::invalid("no queue")),
            Trouble::NoRing => self.ring_refused.store(true, Ordering::SeqCst),
            Trouble::None | Trouble::FullDisk => {}
        }
        self.inner.write_queue(depth)
    }
}

/// Opens, uses and closes a database. Returns how often methods have been measured.
fn open_and_close(device: &Arc<Device>) -> usize {
    let settings = small(Preset::Autonomous, 1);
    let opened = Database::builder().settings(settings).storage(device.clone()).open("x");
    let db = opened.expect("only the measurement is hindered");
    let table = db.table_or_create("t").expect("free");
    db.transact(|tx| tx.insert(&table, "a", "1")).expect("commits");
    db.close().expect("closes");
    device.probes.load(Ordering::SeqCst)
}

/// Regression: a database on a full disk could not be opened although its log had reserved space,
/// because the measurement needed 256 KiB.
#[test]
fn without_space_for_the_probe_it_runs_once_there_is_space() {
    let device = Device::new(Trouble::FullDisk);
    assert_eq!(open_and_close(&device), 1, "measured");
    assert_eq!(open_and_close(&device), 2, "nothing was kept of a measurement that failed");
    *device.trouble.lock().expect("no thread panicked") = Trouble::None;
    assert_eq!(open_and_close(&device), 3, "there is space");
    assert_eq!(open_and_close(&device), 3, "what was chosen is kept");
}

#[test]
fn a_failed_or_foreign_measurement_keeps_the_method() {
    for (trouble, kind) in
        [(Trouble::NoQueue, ErrorKind::InvalidArgument), (Trouble::NoRing, ErrorKind::Busy)]
    {
        let device = Device::new(trouble);
        let storage: Arc<dyn Storage> = device.clone();
        let error = probe::choose(&storage, 1, Duration::from_millis(1)).expect_err("hindered");
        assert_eq!(error.kind(), kind, "{trouble:?}: {error}");
        assert_eq!(device.durability(), DurabilityMethod::Plain, "{trouble:?}");
        assert!(storage.list("").expect("memory").is_empty(), "{trouble:?}: a file stays behind");
    }
}
