//! A memory-mapped log that is used, then unused, and then used again.

use crate::support::test_database::TestDatabase;
use crate::support::{content, small};
use quenchdb::internals::device::simulated::{CrashKind, SimulatedStorage};
use quenchdb::{Database, Preset, Settings};

/// Without log memory.
fn without() -> Settings {
    small(Preset::Group, 1)
}

fn with(logs: usize, log_buffer_bytes: usize) -> Settings {
    let segment_bytes = log_buffer_bytes as u64;
    small(Preset::Passive, logs).with(|s| {
        s.lab.log_buffer_bytes = log_buffer_bytes;
        s.segment_bytes = segment_bytes;
        s.lab.log_memory_bytes = 1 << 20;
    })
}

/// Commits rows durably in three threads.
fn work(db: &Database) {
    let table = db.create_table("t").expect("new");
    std::thread::scope(|scope| {
        for thread in 0..3u8 {
            let table = &table;
            scope.spawn(move || {
                for n in 0..12u8 {
                    db.transact(|tx| tx.insert(table, [thread, n], [n; 300])).expect("fenced");
                }
            });
        }
    });
}

/// Returns what a kill leaves after every second operation of an open of `left`.
fn killed_while_opened(left: &SimulatedStorage, settings: &Settings) -> Vec<SimulatedStorage> {
    let disk = left.duplicate();
    let db = settings.open(&disk);
    let operations = disk.operations();
    disk.stop();
    drop(db);
    (0..=operations).step_by(2).map(|at| disk.crash(CrashKind::Kill, at, at as u64)).collect()
}

/// Regression (seeds 702942, 713646, 725062, 725774): an open without the memory moved its content
/// to segments, and was killed. The next one divided the memory again under its old id, and was
/// killed, too. Then the old content was found at other places, and an undamaged database was
/// refused.
#[test]
fn old_content_of_unused_log_memory_is_not_found_again() {
    let (disk, db) = with(3, 64 << 10).create(1);
    work(&db);
    let expected = content(&db);
    assert_eq!(expected.len(), 36);
    disk.stop();
    drop(db);
    let first = disk.crash(CrashKind::Kill, disk.operations(), 1);
    let divided_otherwise = with(2, 128 << 10);
    for second in killed_while_opened(&first, &without()) {
        for third in killed_while_opened(&second, &divided_otherwise) {
            let db = divided_otherwise.open(&third);
            assert_eq!(content(&db), expected);
            third.stop();
        }
    }
}
