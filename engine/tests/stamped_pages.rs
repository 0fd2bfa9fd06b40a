//! A long snapshot on a full disk: pages written only for the snapshot's stamps take no space that
//! checkpoints need.

use crate::support::test_database::TestDatabase;
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::simulated::{CrashKind, SimulatedStorage};
use quenchdb::{Compression, Database, ErrorKind, Settings, Table};

const ROW_BYTES: usize = 500;
/// Approximate number of rows in a page.
const PER_PAGE: u32 = 6;

fn settings() -> Settings {
    Settings::default().with(|s| {
        s.logs = 1;
        s.page_bytes = 4096;
        s.memory_bytes = 8 << 20;
        s.version_bytes = 2 << 20;
        s.segment_bytes = 256 << 10;
        s.lab.log_buffer_bytes = 64 << 10;
        s.log_bytes_max = 8 << 20;
        s.lab.checkpoint_log_bytes = 0;
        s.compression = Compression::None;
    })
}

fn value(row: u32, fill: u8) -> Vec<u8> {
    let mut random = Random::from_seed(u64::from(row) << 8 | u64::from(fill));
    (0..63).flat_map(|_| random.next_u64().to_le_bytes()).take(ROW_BYTES).collect()
}

fn size(disk: &SimulatedStorage) -> u64 {
    disk.files().iter().filter_map(|path| disk.read_file(path)).map(|bytes| bytes.len() as u64).sum()
}

fn fill(db: &Database, name: &str, rows: u32) -> Table {
    let table = db.create_table(name).expect("a large disk");
    for first in (0..rows).step_by(100) {
        let few = first..rows.min(first + 100);
        db.transact(|tx| few.clone().try_for_each(|row| tx.insert(&table, row.to_be_bytes(), value(row, 0))))
            .expect("a large disk");
    }
    table
}

/// Reads every page of the table, so that other pages are evicted.
fn read_through(db: &Database, table: &Table, rows: u32) {
    for _ in 0..2 {
        let snapshot = db.begin_read().expect("there is room for one");
        let found = snapshot.range(table, ..).map(|entry| entry.expect("pages without stamps leave"));
        assert_eq!(found.count(), rows as usize);
    }
}

struct Scene {
    disk: SimulatedStorage,
    db: Database,
    /// In each page of this table a row has changed since the snapshot.
    seen: Table,
    held: Table,
    read: Table,
}

const SEEN: u32 = 2400;
const HELD: u32 = 6000;
const READ: u32 = 20_000;

fn scene(settings: Settings) -> Scene {
    let (disk, db) = settings.create(3);
    let [seen, held, read] =
        [("seen", SEEN), ("held", HELD), ("read", READ)].map(|(name, rows)| fill(&db, name, rows));
    // Releases the space that was reserved while the tables were filled.
    db.compact(None).expect("a large disk");
    Scene { disk, db, seen, held, read }
}

/// Regression: pages that a checkpoint had just written were clean. They were written again with
/// the stamps that a snapshot needs, into blocks reserved for the pages of a transaction in
/// progress.
#[test]
fn pages_written_for_stamps_take_no_checkpoint_block() {
    let Scene { disk, db, seen, held, read } = scene(settings());
    let snapshot = db.begin_read().expect("the first");
    for row in (0..SEEN).step_by(PER_PAGE as usize) {
        db.transact(|tx| tx.insert(&seen, row.to_be_bytes(), value(row, 1))).expect("a large disk");
    }
    db.checkpoint().expect("a large disk");
    disk.set_capacity(Some(size(&disk)));
    let mut tx = db.begin().expect("the only one");
    let mut changed = 0;
    for row in (0..HELD).step_by(PER_PAGE as usize) {
        match tx.insert(&held, row.to_be_bytes(), value(row, 1)) {
            Ok(_) => changed += 1,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
                break;
            }
        }
    }
    assert!(changed >= 100, "{changed} pages are dirty");
    // The log may have given up space for these pages: nothing more is left.
    disk.set_capacity(Some(size(&disk)));
    read_through(&db, &read, READ);
    for n in 0..3 {
        db.checkpoint().unwrap_or_else(|error| panic!("checkpoint {n}: no room was kept: {error}"));
        read_through(&db, &read, READ);
    }
    for row in 0..SEEN {
        let before = snapshot.get(&seen, row.to_be_bytes()).expect("it is in memory, or leaves for another");
        assert_eq!(before.as_deref(), Some(&value(row, 0)[..]), "{row}");
    }
    drop(snapshot);
    tx.commit().expect("its pages have blocks");
    read_through(&db, &read, READ);
    db.checkpoint().expect("room was kept");
    let crashed = disk.crash(CrashKind::PowerCut, usize::MAX, 7);
    let db = settings().open(&crashed);
    let report = db.verify(None).expect("readable");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    let (seen, held) = (db.table("seen").expect("there"), db.table("held").expect("there"));
    let snapshot = db.begin_read().expect("the first");
    for (table, rows) in [(&seen, SEEN), (&held, changed * PER_PAGE)] {
        for row in 0..rows {
            let found = snapshot.get(table, row.to_be_bytes()).expect("readable");
            assert_eq!(found, Some(value(row, u8::from(row % PER_PAGE == 0))), "{row}");
        }
    }
}
