//! Rows that a transaction only locks: their use of memory, and of a disk that may be full when the
//! transaction ends.

use crate::support::test_database::TestDatabase;
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::simulated::SimulatedStorage;
use quenchdb::{ErrorKind, Settings};

fn size(disk: &SimulatedStorage) -> u64 {
    disk.files().iter().filter_map(|path| disk.read_file(path)).map(|bytes| bytes.len() as u64).sum()
}

/// An incompressible value.
fn value(row: u32) -> Vec<u8> {
    let mut random = Random::from_seed(u64::from(row));
    (0..63).flat_map(|_| random.next_u64().to_le_bytes()).take(500).collect()
}

/// Regression: the transaction kept every locked key in full without counting it.
#[test]
fn the_keys_of_locked_rows_count_as_memory_of_the_transaction() {
    const MEMORY_BYTES: u64 = 4 << 20;
    let settings = Settings::default().with(|s| {
        s.memory_bytes = MEMORY_BYTES;
        s.version_bytes = 1 << 20;
    });
    let db = settings.open_in_memory();
    let table = db.create_table("t").expect("new");
    let mut tx = db.begin().expect("free");
    // Pages store common key prefixes once.
    let key = |n: u32| [&[7; 490][..], &n.to_be_bytes()].concat();
    let refused = (0..8000).find_map(|n| tx.get_for_update(&table, key(n)).err().map(|error| (n, error)));
    let (locked, error) = refused.expect("a quarter of the memory is for all transactions in progress");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    assert!((500..=2100).contains(&locked), "{locked} rows");
    // The rows stay locked until the transaction ends.
    let mut other = db.begin().expect("free");
    assert_eq!(other.insert(&table, key(0), "x").expect_err("locked").kind(), ErrorKind::Deadlock);
    drop(other);
    tx.abort();
    db.transact(|tx| tx.insert(&table, key(0), "x")).expect("the row is free");
}

/// Regression: a checkpoint imaged pages with locked rows and marked them clean. The transaction's
/// end made them dirty without a reserved block. If another process had filled the disk meanwhile,
/// no checkpoint could be made until there was space again.
#[test]
fn a_checkpoint_fits_on_a_full_disk_after_many_unlocks() {
    const ROWS: u32 = 4000;
    let settings = Settings::default().with(|s| {
        s.logs = 1;
        s.page_bytes = 4096;
        s.memory_bytes = 16 << 20;
        s.version_bytes = 2 << 20;
        s.segment_bytes = 64 << 10;
        s.lab.log_buffer_bytes = 64 << 10;
        s.log_bytes_max = 8 << 20;
        s.lab.checkpoint_log_bytes = 0;
    });
    for commits in [false, true] {
        let disk = SimulatedStorage::new(1);
        let database = settings.on(&disk);
        let db = database.open("simulated").expect("a whole disk");
        let table = db.create_table("t").expect("new");
        db.transact(|tx| (0..ROWS).try_for_each(|n| tx.insert(&table, n.to_be_bytes(), value(n))))
            .expect("a whole disk");
        db.checkpoint().expect("a whole disk");
        let mut tx = db.begin().expect("free");
        for n in 0..ROWS {
            assert!(tx.get_for_update(&table, n.to_be_bytes()).expect("free row").is_some());
        }
        db.checkpoint().expect("a whole disk");
        db.compact(None).expect("a whole disk");
        // Another process takes all the remaining space.
        disk.set_capacity(Some(size(&disk)));
        if commits {
            tx.commit().map(drop).expect("nothing was changed")
        } else {
            tx.abort()
        }
        db.checkpoint().expect("what is dirty has its blocks");
        db.verify(None).expect("readable");
        disk.stop();
    }
}
