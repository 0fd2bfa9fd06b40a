//! Opens databases for tests: small settings, and a simulated disk.

use quenchdb::internals::device::simulated::{CrashKind, SimulatedStorage};
use quenchdb::{Builder, Database, Result, Settings};
use std::path::Path;
use std::sync::Arc;

/// Returns settings with small files and no automatic checkpoints.
pub fn tiny(memory_bytes: u64) -> Settings {
    Settings::default().with(|s| {
        s.memory_bytes = memory_bytes;
        s.segment_bytes = 64 << 10;
        s.lab.log_buffer_bytes = 64 << 10;
        s.log_bytes_max = 16 << 20;
        s.lab.checkpoint_log_bytes = 0;
        s.lab.flush_unit_bytes = 4096;
    })
}

/// Opens databases with these settings.
pub trait TestDatabase {
    /// Returns a builder for the database on `disk`.
    fn on(&self, disk: &SimulatedStorage) -> Builder;

    /// Opens the database on `disk`.
    fn try_open(&self, disk: &SimulatedStorage) -> Result<Database> {
        self.on(disk).open("simulated")
    }

    /// Opens the database on `disk`, which has no fault.
    #[track_caller]
    fn open(&self, disk: &SimulatedStorage) -> Database {
        self.try_open(disk).unwrap_or_else(|error| panic!("the database does not open: {error}"))
    }

    /// Opens the database in a real directory.
    #[track_caller]
    fn open_in(&self, directory: impl AsRef<Path>) -> Database;

    /// Creates a database in memory.
    #[track_caller]
    fn open_in_memory(&self) -> Database;

    /// Creates a database on a new disk, whose faults follow from `seed`.
    #[track_caller]
    fn create(&self, seed: u64) -> (SimulatedStorage, Database) {
        let disk = SimulatedStorage::new(seed);
        let db = self.open(&disk);
        (disk, db)
    }

    /// Crashes `disk` after all its operations, and opens the recovered database.
    #[track_caller]
    fn crash(&self, disk: &SimulatedStorage, kind: CrashKind, seed: u64) -> (SimulatedStorage, Database) {
        let left = disk.crash(kind, disk.operations(), seed);
        let db = self.open(&left);
        (left, db)
    }
}

impl TestDatabase for Settings {
    fn on(&self, disk: &SimulatedStorage) -> Builder {
        Database::builder().settings(self.clone()).storage(Arc::new(disk.clone()))
    }

    fn open_in(&self, directory: impl AsRef<Path>) -> Database {
        Database::builder().settings(self.clone()).open(directory).expect("the directory is sound")
    }

    fn open_in_memory(&self) -> Database {
        Database::builder().settings(self.clone()).open_in_memory().expect("there is memory")
    }
}
