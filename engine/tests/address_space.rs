//! Address space: many databases in one process, and a process that has little.

use crate::support::processes::in_own_process;
use quenchdb::{Database, ErrorKind};

const MIB: u64 = 1 << 20;

fn small() -> quenchdb::Builder {
    Database::builder()
        .memory_bytes(MIB)
        .segment_bytes(64 << 10)
        .log_bytes_max(MIB)
        .lab(|lab| lab.checkpoint_log_bytes = 0)
        .monitor(false)
}

/// Returns the address space of this process, in bytes.
fn address_space() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("linux");
    let pages: u64 = pages.split(' ').next().and_then(|text| text.parse().ok()).expect("a number");
    pages * rustix::param::page_size() as u64
}

/// Regression: each open database took 1 TiB of address space, so a process had room for 139.
#[test]
fn two_hundred_small_databases_open_in_one_process() {
    in_own_process(module_path!(), "two_hundred_small_databases_open_in_one_process", || {
        let mut open = Vec::new();
        for number in 0..200u32 {
            let db = small().open_in_memory().unwrap_or_else(|error| panic!("database {number}: {error}"));
            let table = db.create_table("t").expect("new");
            db.transact(|tx| tx.insert(&table, number.to_be_bytes(), "value")).expect("commits");
            open.push((db, table));
        }
        for (number, (db, table)) in (0u32..).zip(&open) {
            let snapshot = db.begin_read().expect("free");
            assert!(snapshot.contains_key(table, number.to_be_bytes()).expect("readable"));
        }
        assert!(address_space() < 40 << 30, "{} bytes", address_space());
    });
}

/// The pages of a database may be many more than fit in memory, and need more address space then.
#[test]
fn a_database_outgrows_the_address_space_of_its_memory() {
    let db = small().open_in_memory().expect("opens");
    let table = db.create_table("t").expect("new");
    // With 64 bytes of tables for a page, 1 MiB has them for 16,384 pages.
    const ROWS: u32 = 20_000;
    let value = |row: u32| vec![row as u8; 2500];
    for first in (0..ROWS).step_by(20) {
        db.transact(|tx| {
            (first..first + 20).try_for_each(|row| tx.insert(&table, row.to_be_bytes(), value(row)))
        })
        .expect("room");
    }
    assert!(db.table_report(&table).expect("readable").pages > 16_384);
    let snapshot = db.begin_read().expect("free");
    for row in (0..ROWS).step_by(97).chain(ROWS - 20..ROWS) {
        assert_eq!(snapshot.get(&table, row.to_be_bytes()).expect("readable"), Some(value(row)), "{row}");
    }
    assert!(db.verify(None).expect("works").problems.is_empty());
}

#[test]
fn a_limited_address_space_is_enough_for_little_memory() {
    in_own_process(module_path!(), "a_limited_address_space_is_enough_for_little_memory", || {
        let limit = rustix::process::Rlimit { current: Some(1 << 30), maximum: Some(1 << 30) };
        rustix::process::setrlimit(rustix::process::Resource::As, limit).expect("lower");
        let directory = tempfile::tempdir().expect("space");
        for memory in [64 * MIB, MIB] {
            let path = directory.path().join(memory.to_string());
            let open = || small().memory_bytes(memory).open(&path).expect("room");
            let db = open();
            let table = db.create_table("t").expect("new");
            for first in (0..3000u32).step_by(50) {
                db.transact(|tx| {
                    (first..first + 50).try_for_each(|row| tx.insert(&table, row.to_be_bytes(), [1; 1000]))
                })
                .expect("room");
            }
            db.close().expect("closes");
            assert_eq!(open().table("t").map(drop).map_err(|error| error.to_string()), Ok(()));
        }
        let error = small().memory_bytes(8 << 30).open(directory.path().join("large"));
        assert_eq!(error.expect_err("more than there is").kind(), ErrorKind::OutOfMemory);
    });
}
