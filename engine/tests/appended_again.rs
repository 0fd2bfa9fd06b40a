//! What a recovery has to write to the log again: where there is no room for it, and when it is
//! interrupted.

use crate::support::processes::in_own_process;
use crate::support::{content, open};
use quenchdb::internals::device::simulated::{CrashKind, SimulatedStorage};
use quenchdb::{Durability, Isolation, Settings};
use std::sync::Barrier;
use std::time::Duration;

/// Two logs, the watermark held by one row that is nowhere durable, and about 700 KiB above it in
/// the other log, of at most a MiB. The recovery has to write all of that again.
fn held_watermark() -> (SimulatedStorage, Settings) {
    let settings = crate::support::patient_workers(2).with(|s| s.log_bytes_max = 1 << 20);
    for attempt in 0.. {
        let disk = SimulatedStorage::new(1);
        let killed = with_held_watermark(&disk, &settings, attempt);
        disk.stop();
        if let Some(killed) = killed {
            return (killed, settings);
        }
        assert!(attempt < 100, "the row was written each time");
    }
    unreachable!("it ends above")
}

/// `None` if both threads have the same log, or took so long that the row was written.
fn with_held_watermark(
    disk: &SimulatedStorage,
    settings: &Settings,
    attempt: u32,
) -> Option<SimulatedStorage> {
    let db = open(disk, settings);
    let create = || db.create_table("t").expect("new");
    // Where a thread of its own does it, the turns of those that follow are others.
    let of_its_own = || std::thread::scope(|scope| scope.spawn(create).join().expect("no panic"));
    let table = if attempt % 2 == 1 { of_its_own() } else { create() };
    let put = |key: u8, len: usize, durability| {
        let mut tx = db.begin_with(Isolation::Snapshot, durability).expect("free");
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
            // Before the first thread ends, which would write its row.
            let killed = disk.crash(CrashKind::Kill, disk.operations(), 1);
            ended.wait();
            killed
        });
        other.join().expect("no panic")
    });
    let roomy = settings.clone().with(|s| s.log_bytes_max = 64 << 20);
    (content(&open(&killed.duplicate(), &roomy)).len() == 40).then_some(killed)
}

/// In a process of its own, because it depends on the threads that live which log a thread gets.
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

/// Nobody but the recovery could have made room, by a checkpoint that comes after it: it waited for
/// ever.
fn has_room_in_a_log_at_its_bound(disk: SimulatedStorage, settings: Settings) {
    let (opened, opens) = std::sync::mpsc::channel();
    std::thread::spawn(move || opened.send(open(&disk, &settings)));
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
        let db = open(&copy, settings);
        let operations = copy.describe(0);
        copy.stop();
        drop(db);
        // Killed before either slot got the manifest, with all that was appended again behind it.
        let writes = operations.iter().enumerate().filter(|(_, what)| what.contains(" MANIFEST "));
        let (published, _) = writes.rev().nth(1).expect("two slots");
        let killed = copy.crash(CrashKind::Kill, published, attempt);
        let bytes = log_bytes(&killed);
        assert!(
            attempt > 0 || bytes > before + (500 << 10),
            "{before}, then {bytes}: it was not killed late"
        );
        // Once for what was found, once for what this one has added.
        assert!(bytes < 2 * before + (8 << 16), "attempt {attempt}: {before}, then {bytes}");
        disk = killed;
    }
    assert_eq!(content(&open(&disk, settings)).len(), 40);
}
