//! The space that a database takes on the disk, with default settings.

use quenchdb::Database;
use quenchdb::internals::base::random::Random;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// What the files and directories take: allocated bytes, and the sum of the lengths.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Space {
    allocated: u64,
    length: u64,
}

fn space_of(path: &Path) -> Space {
    let about = path.symlink_metadata().expect("a file");
    let mut space = Space { allocated: about.blocks() * 512, length: 0 };
    if !about.is_dir() {
        return Space { length: about.len(), ..space };
    }
    for entry in path.read_dir().expect("a directory") {
        // The preparer of segments may remove a file meanwhile, but none here.
        let part = space_of(&entry.expect("an entry").path());
        space = Space { allocated: space.allocated + part.allocated, length: space.length + part.length };
    }
    space
}

#[track_caller]
fn expect_at_most(directory: &Path, allocated: u64, length: u64) {
    let space = space_of(directory);
    assert!(space.allocated <= allocated && space.length <= length, "{space:?} {:?}", files(directory));
}

/// Paths and allocated bytes.
fn files(directory: &Path) -> Vec<(String, u64)> {
    let mut files = Vec::new();
    for entry in directory.read_dir().expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files.extend(self::files(&path));
        } else {
            files.push((path.display().to_string(), space_of(&path).allocated));
        }
    }
    files
}

/// On a file system that allocates what a file has, and no more.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary directory")
}

fn put_one(db: &Database) {
    let table = db.table_or_create("rows").expect("a table");
    db.transact(|tx| tx.insert(&table, "key", "value")).expect("commits");
}

#[test]
fn one_row_takes_little_space_open_and_closed() {
    let directory = directory();
    let path = directory.path();
    let db = Database::open(path).expect("opens");
    put_one(&db);
    expect_at_most(path, 2 * MIB, 4 * MIB);
    db.checkpoint().expect("space");
    expect_at_most(path, 2 * MIB, 4 * MIB);
    db.close().expect("closes");
    expect_at_most(path, 256 * KIB, 3 * MIB);
    for round in 0..3 {
        let db = Database::open(path).expect("opens");
        assert!(db.recovery().clean, "round {round}");
        expect_at_most(path, 2 * MIB, 4 * MIB);
        put_one(&db);
        expect_at_most(path, 2 * MIB, 4 * MIB);
        drop(db);
        expect_at_most(path, 256 * KIB, 3 * MIB);
    }
}

#[test]
fn removed_rows_take_no_space_after_the_close() {
    let directory = directory();
    let path = directory.path();
    let db = Database::open(path).expect("opens");
    put_one(&db);
    let table = db.table_or_create("many").expect("a table");
    let (batches, batch) = (20u32, 1024u32);
    let mut random = Random::from_seed(1);
    for n in 0..batches {
        let row = |i: u32| ((n * batch + i).to_be_bytes(), random.next_u64().to_le_bytes().repeat(128));
        let rows: Vec<_> = (0..batch).map(row).collect();
        db.transact(|tx| rows.iter().try_for_each(|(key, value)| tx.insert(&table, key, value)))
            .expect("commits");
    }
    db.checkpoint().expect("space");
    assert!(space_of(path).allocated > 20 * MIB);
    for n in 0..batches {
        let mut keys = (0..batch).map(|i| (n * batch + i).to_be_bytes());
        db.transact(|tx| keys.try_for_each(|key| tx.remove(&table, key).map(drop))).expect("commits");
    }
    db.close().expect("closes");
    expect_at_most(path, 2 * MIB, 4 * MIB);
}

#[test]
fn space_map_counts_what_the_statistics_count() {
    let directory = tempfile::tempdir().expect("room");
    let db = Database::open(directory.path()).expect("opens");
    let table = db.create_table("t").expect("new");
    for round in 0..3_u8 {
        for first in (0..4000_u32).step_by(500) {
            let rows = first..first + 500;
            db.transact(|tx| rows.clone().try_for_each(|n| tx.insert(&table, n.to_be_bytes(), [round; 300])))
                .expect("room");
        }
        db.checkpoint().expect("room");
    }
    let held = db.begin_read().expect("free");
    let statistics = db.statistics();
    for cells in [1, 7, 100, 1_000_000] {
        let (map, block_bytes) = db.space_map(cells);
        assert!(!map.is_empty() && map.len() <= cells);
        let bytes =
            |of: fn(&quenchdb::SpaceCell) -> u64| map.iter().map(of).sum::<u64>() * block_bytes as u64;
        assert_eq!(bytes(quenchdb::SpaceCell::blocks), statistics.store_bytes, "{cells} cells");
        assert_eq!(bytes(|cell| cell.free), statistics.store_free_bytes, "{cells} cells");
        assert!(bytes(|cell| cell.images) > 0 && bytes(|cell| cell.other) > 0, "{cells} cells");
    }
    drop(held);
}
