//! A full disk beside a long snapshot: what it sees has to leave memory with its stamps, and takes space for that.

use quenchdb::base::random::Random;
use quenchdb::device::simulated::SimulatedStorage;
use quenchdb::{Compression, Database, ErrorKind, Preset, Result, Settings, Table};
use std::sync::Arc;

const ROWS: u32 = 21_000;

fn put(db: &Database, table: &Table, rows: std::ops::Range<u32>, fill: u64) -> Result<()> {
    let value = |row: u32| {
        let mut random = Random::from_seed(u64::from(row) << 8 | fill);
        (0..63).flat_map(|_| random.next_u64().to_le_bytes()).take(500).collect::<Vec<u8>>()
    };
    db.transact(|tx| rows.clone().try_for_each(|row| tx.insert(table, row.to_be_bytes(), value(row))))
}

/// Pages that a checkpoint has written, and that left memory once more for the stamps that the snapshot needs, took the blocks that are kept for
/// the next checkpoint: no checkpoint was possible any more.
#[test]
fn pages_that_leave_for_a_snapshot_take_nothing_that_a_checkpoint_needs() {
    let settings = Settings {
        preset: Preset::Group,
        logs: 1,
        page_bytes: 4096,
        memory_bytes: 12 << 20,
        version_bytes: 4 << 20,
        segment_bytes: 64 << 10,
        log_buffer_bytes: 64 << 10,
        log_bytes_max: 64 << 20,
        checkpoint_log_bytes: 0,
        compression: Compression::None,
        ..Settings::default()
    };
    let disk = SimulatedStorage::new(1);
    let db = Database::builder().settings(settings).storage(Arc::new(disk.clone())).open("x").expect("opens");
    let table = db.create_table("t").expect("a whole disk");
    let few = |from: u32, to: u32| (from..to).step_by(50).map(move |row| row..(row + 50).min(to));
    few(0, ROWS).for_each(|rows| put(&db, &table, rows, 1).expect("a whole disk"));
    db.checkpoint().expect("a whole disk");
    let size = |path: &String| disk.read_file(path).map_or(0, |bytes| bytes.len() as u64);
    disk.set_capacity(Some(disk.files().iter().map(size).sum()));
    let put_or_make_room = |rows: std::ops::Range<u32>, fill| {
        put(&db, &table, rows.clone(), fill).or_else(|_| {
            db.checkpoint().expect("room was kept");
            put(&db, &table, rows, fill)
        })
    };
    let mut next = ROWS;
    while put_or_make_room(next..next + 5, 1).is_ok() {
        next += 5;
        assert!(next < 2 * ROWS, "the disk never was full");
    }
    let snapshot = db.begin_read().expect("free");
    few(0, 4000).for_each(|rows| put_or_make_room(rows, 2).expect("room for changes in place"));
    db.checkpoint().expect("room was kept");
    // Everything else is looked at, so that the pages that changed have to leave.
    for _ in 0..3 {
        let newest = db.begin_read().expect("free");
        for row in (4000..next).step_by(7) {
            if let Err(error) = newest.get(&table, row.to_be_bytes()) {
                assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
                break;
            }
        }
        db.checkpoint().expect("room was kept");
    }
    put_or_make_room(0..1, 3).expect("room for changes in place");
    drop(snapshot);
    let newest = db.begin_read().expect("free");
    assert_eq!(newest.range::<[u8; 4]>(&table, ..).filter(|row| row.is_ok()).count(), next as usize);
    assert_eq!(db.verify(None).expect("runs").problems, [""; 0]);
}
