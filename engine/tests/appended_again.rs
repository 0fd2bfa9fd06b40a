//! Records that a recovery appends to the log again: without room for them, and interrupted.

use crate::support::content;
use crate::support::processes::in_own_process;
use crate::support::test_database::TestDatabase;
use quenchdb::internals::device::simulated::{CrashKind, SimulatedStorage};
use quenchdb::{Durability, Settings};
use std::sync::Barrier;
use std::time::Duration;

/// Returns a killed database with two logs. The first log's unwritten row holds the watermark down,
/// and the second has about 700 KiB above the watermark, of at most 1 MiB. Recovery has to append
/// all of that again.
fn held_watermark() -> (SimulatedStorage, Settings) {
    let settings = crate::support::patient_workers(2).with(|s| s.log_bytes_max = 1 << 20);
    for attempt in 0.. {
        let disk = SimulatedStorage::new(1);
        // With much room, because a checkpoint for want of log would write the row.
        let killed = with_held_watermark(&disk, &roomy(&settings), attempt);
        disk.stop();
        if let Some(killed) = killed {
            return (killed, settings);
        }
        assert!(attempt < 100, "the row was written each time");
    }
    unreachable!("it ends above")
}

/// Returns `None` if both threads have the same log, or were so slow that the row was written.
fn with_held_watermark(
    disk: &SimulatedStorage,
    settings: &Settings,
    attempt: u32,
) -> Option<SimulatedStorage> {
    let db = settings.open(disk);
    let create = || db.create_table("t").expect("new");
    // In a thread of its own, so that later threads get other logs.
    let of_its_own = || std::thread::scope(|scope| scope.spawn(create).join().expect("no panic"));
    let table = if attempt % 2 == 1 { of_its_own() } else { create() };
    let put = |key: u8, len: usize, durability| {
        let mut tx = db.begin_with(durability).expect("free");
        tx.insert(&table, [key], vec![key; len]).expect("fits");
        tx.commit().expect("a whole disk");
    };
    let (begun, ended) = (Barrier::new(2), Barrier::new(2));
    let killed = std::thread::scope(|scope| {
        scope.spawn(|| {
            put(100, 1, Durability::Lazy);
            begun.wait();
            ended.wait();
        });
        let other = scope.spawn(|| {
            begun.wait();
            (0..40).for_each(|n| put(n, 16 << 10, Durability::Durable));
            // Kills before the first thread ends, because its end would write its row.
            let killed = disk.crash(CrashKind::Kill, disk.operations(), 1);
            ended.wait();
            killed
        });
        other.join().expect("no panic")
    });
    (content(&settings.open(&killed.duplicate())).len() == 40).then_some(killed)
}

fn roomy(settings: &Settings) -> Settings {
    settings.clone().with(|s| s.log_bytes_max = 64 << 20)
}

/// Uses a process of its own, because a thread's log depends on which other threads live.
#[test]
fn reappended_records_fit_and_the_next_recovery_removes_them() {
    let name = "reappended_records_fit_and_the_next_recovery_removes_them";
    in_own_process(module_path!(), name, appended_again);
}

fn appended_again() {
    let (disk, settings) = held_watermark();
    has_room_in_a_log_at_its_bound(disk.duplicate(), settings.clone());
    is_removed_by_the_next(disk, &settings);
}

/// Regression: recovery waited forever for log space that only a checkpoint after it could free.
fn has_room_in_a_log_at_its_bound(disk: SimulatedStorage, settings: Settings) {
    let (opened, opens) = std::sync::mpsc::channel();
    std::thread::spawn(move || opened.send(settings.open(&disk)));
    let db = opens.recv_timeout(Duration::from_secs(30)).expect("it does not wait for ever");
    assert_eq!(content(&db).len(), 40);
    let table = db.table("t").expect("there");
    (0..50u8).for_each(|n| db.transact(|tx| tx.insert(&table, [n], [n; 16 << 10])).expect("room"));
}

fn is_removed_by_the_next(mut disk: SimulatedStorage, settings: &Settings) {
    let log_bytes = |disk: &SimulatedStorage| -> usize {
        let files = disk.files();
        let of_log = files.iter().filter(|path| path.starts_with("log/"));
        of_log.map(|path| disk.read_file(path).expect("there").len()).sum()
    };
    let before = log_bytes(&disk);
    for attempt in 0..5u64 {
        let copy = disk.duplicate();
        let db = settings.open(&copy);
        let operations = copy.describe(0);
        copy.stop();
        drop(db);
        // Kills before either slot gets the manifest, after everything was appended again.
        let writes = operations.iter().enumerate().filter(|(_, what)| what.contains(" MANIFEST "));
        let (published, _) = writes.rev().nth(1).expect("two slots");
        let killed = copy.crash(CrashKind::Kill, published, attempt);
        let bytes = log_bytes(&killed);
        assert!(
            attempt > 0 || bytes > before + (500 << 10),
            "{before}, then {bytes}: it was not killed late"
        );
        // Once for the log that was found, once for what this recovery has added.
        assert!(bytes < 2 * before + (8 << 16), "attempt {attempt}: {before}, then {bytes}");
        disk = killed;
    }
    assert_eq!(content(&settings.open(&disk)).len(), 40);
}
