//! Threads that end or panic, too many threads, and a database that is closed under them. Nothing
//! acknowledged is lost, nothing hangs, and an ended thread's buffered records become durable.

use crate::support::test_database::TestDatabase;
use crate::support::{content, in_time, small};
use quenchdb::internals::device::simulated::{CrashKind, SimulatedStorage};
use quenchdb::{
    Acknowledger, Axes, Database, Dependency, Durability, ErrorKind, Preset, Settings, Table, Writer,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

fn settings(preset: Preset, logs: usize) -> Settings {
    let logs = if preset == Preset::PerTransaction { 1 } else { logs };
    small(preset, logs).with(|s| s.segment_bytes = 256 << 10)
}

/// Returns every preset, with two logs if possible, and the writers and acknowledgers that run in
/// the workers' threads.
fn protocols(logs: usize) -> Vec<Settings> {
    let mut all: Vec<Settings> = Preset::ALL.into_iter().map(|preset| settings(preset, logs)).collect();
    let autonomous = || settings(Preset::Autonomous, logs);
    all.push(autonomous().with_protocol(|axes| axes.set_writer(Writer::Worker)));
    all.push(autonomous().with_protocol(|axes| {
        axes.set_writer(Writer::Worker);
        axes.set_acknowledger(Acknowledger::Workers);
        axes.dependency = Some(Dependency::Exact);
    }));
    all.push(autonomous().with_protocol(|axes| axes.dependency = Some(Dependency::GsnRfa)));
    all
}

/// Waits until `count` transactions were acknowledged, without requesting it.
fn await_acknowledged(db: &Database, count: u64, what: &str) {
    let begun = Instant::now();
    while db.statistics().committed < count {
        let statistics = db.statistics();
        let late = begun.elapsed() >= Duration::from_secs(60);
        assert!(
            !late,
            "{what}: an ended thread's commits stay unacknowledged, {count} wanted: {statistics:?}"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn put(db: &Database, table: &Table, level: Durability, key: &[u8]) -> quenchdb::CommitHandle {
    let mut tx = db.begin_with(level).expect("free");
    tx.insert(table, key, key).expect("fits");
    tx.commit_async().expect("commits")
}

#[test]
fn what_a_thread_left_in_the_buffer_becomes_durable_without_it() {
    in_time("the test", 300, || {
        for settings in protocols(2) {
            for (level, panics) in [
                (Durability::Durable, false),
                (Durability::Durable, true),
                (Durability::BoundedLoss, false),
                (Durability::BoundedLoss, true),
            ] {
                let what =
                    format!("{} {:?} {level:?} panics {panics}", settings.preset, Axes::of(&settings).writer);
                let (disk, db) = settings.create(1);
                let table = db.create_table("t").expect("new");
                let left = Arc::new(Mutex::new(Vec::new()));
                let thread = {
                    let (db, table, left) = (db.clone(), table.clone(), left.clone());
                    std::thread::spawn(move || {
                        for n in 0..20u8 {
                            left.lock().expect("no panic").push(put(&db, &table, level, &[n]));
                        }
                        if panics {
                            // With a transaction open, whose rows must become free.
                            let mut tx = db.begin().expect("free");
                            tx.insert(&table, "open", "never committed").expect("fits");
                            std::panic::resume_unwind(Box::new("as a worker does that has a bug"));
                        }
                    })
                };
                assert_eq!(thread.join().is_err(), panics, "{what}");
                // The creation of the table, and twenty transactions.
                await_acknowledged(&db, 21, &what);
                let left = std::mem::take(&mut *left.lock().expect("no panic"));
                assert!(left.iter().all(|handle| handle.is_committed()), "{what}");
                let mut tx = db.begin().expect("free");
                assert!(tx.get(&table, "open").expect("readable").is_none(), "{what}");
                tx.insert(&table, "open", "now it is").expect("the row is free");
                tx.commit().expect("commits");
                let disk = disk.crash(CrashKind::PowerCut, disk.operations(), 7);
                let found = content(&settings.open(&disk));
                assert_eq!(found.len(), 21, "{what}");
                disk.stop();
                drop(table);
                db.close().expect("an ended thread blocks no other");
            }
        }
    });
}

/// Acknowledged rows, each with the number of disk operations at that time.
type Acknowledged = Mutex<Vec<(usize, [u8; 2])>>;

/// Runs one thread's workload: commits of all kinds. Records each outcome before the next commit.
fn work(
    db: &Database,
    disk: &SimulatedStorage,
    table: &Table,
    acknowledged: &Acknowledged,
    thread: u8,
    each: u8,
) {
    for n in 0..each {
        let key = [thread, n];
        let mut tx = db.begin_with(Durability::Durable).expect("free");
        // Reads another thread's row: a dependency, mostly across logs.
        let other = [thread.wrapping_mul(7).wrapping_add(n) % 24, n.saturating_sub(1)];
        tx.get(table, other).expect("readable");
        tx.insert(table, key, key).expect("fits");
        match n % 3 {
            0 => tx.commit().map(drop).expect("a whole disk"),
            1 => tx.commit_async().expect("commits").wait().expect("a whole disk"),
            _ => {
                drop(tx.commit_async().expect("commits"));
                continue;
            }
        }
        acknowledged.lock().expect("no panic").push((disk.operations(), key));
    }
}

/// Checks that every row acknowledged after some operation survives a power cut at that operation
/// or later.
fn judge_crashes(
    disk: &SimulatedStorage,
    settings: &Settings,
    acknowledged: &[(usize, [u8; 2])],
    crashes: usize,
) {
    let end = disk.operations();
    for crash in 1..=crashes {
        let at = end * crash / crashes;
        let after = disk.crash(CrashKind::PowerCut, at, crash as u64);
        let db = settings.open(&after);
        let found = content(&db);
        for (_, key) in acknowledged.iter().filter(|(by, _)| *by <= at) {
            let there = found.contains_key(&("t".to_string(), key.to_vec()));
            assert!(there, "{}: {key:?} is lost in a crash after {at} of {end}", settings.preset);
        }
        after.stop();
    }
}

#[test]
fn many_more_threads_than_logs_lose_nothing() {
    in_time("the test", 300, || {
        for settings in protocols(2) {
            let (disk, db) = settings.create(2);
            let (table, acknowledged) = (db.create_table("t").expect("new"), Acknowledged::default());
            std::thread::scope(|scope| {
                for thread in 0..24 {
                    let (db, disk, table, acknowledged) = (&db, &disk, &table, &acknowledged);
                    scope.spawn(move || work(db, disk, table, acknowledged, thread, 15));
                }
            });
            db.flush().expect("a whole disk");
            assert_eq!(content(&db).len(), 24 * 15, "{}", settings.preset);
            let acknowledged = acknowledged.into_inner().expect("no panic");
            assert_eq!(acknowledged.len(), 24 * 10);
            judge_crashes(&disk, &settings, &acknowledged, 6);
        }
    });
}

/// Half of the threads panic during their work. The others, and later threads in the same logs,
/// continue.
#[test]
fn threads_that_panic_hold_up_nobody() {
    in_time("the test", 300, || {
        for settings in protocols(2) {
            let (disk, db) = settings.create(3);
            let (table, acknowledged) = (db.create_table("t").expect("new"), Acknowledged::default());
            for round in 0..3u8 {
                let panicked = std::thread::scope(|scope| {
                    let threads: Vec<_> = (0..8u8)
                        .map(|thread| {
                            let (db, disk, table, acknowledged) = (&db, &disk, &table, &acknowledged);
                            scope.spawn(move || {
                                work(db, disk, table, acknowledged, round * 8 + thread, 12);
                                if thread % 2 == 0 {
                                    drop(put(db, table, Durability::Durable, &[round * 8 + thread, 99]));
                                    let mut tx = db.begin().expect("free");
                                    tx.insert(table, [round * 8 + thread, 100], "open").expect("fits");
                                    std::panic::resume_unwind(Box::new("as a worker does that has a bug"));
                                }
                            })
                        })
                        .collect();
                    threads.into_iter().map(|thread| u32::from(thread.join().is_err())).sum::<u32>()
                });
                assert_eq!(panicked, 4);
            }
            await_acknowledged(&db, 1 + 24 * 12 + 12, settings.preset.name());
            assert_eq!(content(&db).len(), 24 * 12 + 12, "{}", settings.preset);
            judge_crashes(&disk, &settings, &acknowledged.into_inner().expect("no panic"), 4);
        }
    });
}

/// One thread closes the database while others commit, with handles that no thread has waited for.
#[test]
fn closing_with_commits_in_flight_keeps_what_they_were_told() {
    in_time("the test", 300, || {
        for (round, settings) in protocols(2).into_iter().enumerate() {
            let what = format!("{} {:?}", settings.preset, Axes::of(&settings).writer);
            let (disk, db) = settings.create(4);
            let table = db.create_table("t").expect("new");
            let (started, closed) = (Barrier::new(7), AtomicBool::new(false));
            let (accepted, refused) = (Mutex::new(Vec::new()), AtomicU64::new(0));
            std::thread::scope(|scope| {
                for thread in 0..6u8 {
                    let (table, started, closed) = (&table, &started, &closed);
                    let (accepted, refused, db) = (&accepted, &refused, db.clone());
                    scope.spawn(move || {
                        started.wait();
                        let mut handles = Vec::new();
                        for n in 0u32.. {
                            let mut key = vec![thread];
                            key.extend(n.to_be_bytes());
                            let acknowledged = db.begin().and_then(|mut tx| {
                                tx.insert(table, &key, b"v")?;
                                if thread % 2 == 0 {
                                    tx.commit().map(|_| None)
                                } else {
                                    tx.commit_async().map(Some)
                                }
                            });
                            match acknowledged {
                                Ok(handle) => {
                                    handles.extend(handle);
                                    accepted.lock().expect("no panic").push(key);
                                }
                                Err(error) => {
                                    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
                                    refused.fetch_add(1, Ordering::SeqCst);
                                    break;
                                }
                            }
                        }
                        // Closing made these commits durable, whether the wait is before or after
                        // it.
                        if thread % 4 == 1 {
                            while !closed.load(Ordering::SeqCst) {
                                std::thread::yield_now();
                            }
                        }
                        for handle in handles {
                            handle.wait().expect("what was pre-committed is made durable");
                            assert!(handle.is_committed());
                        }
                    });
                }
                started.wait();
                std::thread::sleep(Duration::from_millis(3 + round as u64 % 3));
                db.clone().close().expect("a whole disk");
                closed.store(true, Ordering::SeqCst);
            });
            assert_eq!(refused.load(Ordering::SeqCst), 6, "{what}: all threads were refused in the end");
            drop((db, table));
            // A closed database needs no log, so a power cut loses nothing.
            let (_disk, db) = settings.crash(&disk, CrashKind::PowerCut, 9);
            assert!(db.recovery().clean, "{what}");
            let accepted = accepted.into_inner().expect("no panic");
            let found = content(&db);
            assert!(accepted.iter().all(|key| found.contains_key(&("t".to_string(), key.clone()))), "{what}");
            assert_eq!(found.len(), accepted.len(), "{what}: nothing that was refused is there");
        }
    });
}

/// A reader that panics after some bytes.
struct PanickingReader(usize);

impl std::io::Read for PanickingReader {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.0 = self.0.checked_sub(1).unwrap_or_else(|| std::panic::resume_unwind(Box::new("as planned")));
        let some = into.len().min(3000);
        into[..some].fill(7);
        Ok(some)
    }
}

/// Regression: half a value stayed in the transaction's redo, which could be committed. The owner
/// of the value's pages was never ended.
#[test]
fn a_panicking_reader_leaves_row_and_transaction_usable() {
    for settings in protocols(2) {
        let (disk, db) = settings.create(1);
        let table = db.create_table("t").expect("room");
        db.transact(|tx| tx.insert(&table, b"document", b"before")).expect("durable");
        for reads in [0, 1, 5, 40] {
            let mut tx = db.begin().expect("open");
            let long =
                std::panic::AssertUnwindSafe(|| tx.insert_from(&table, b"document", PanickingReader(reads)));
            let panic = std::panic::catch_unwind(long).expect_err("the reader panics");
            assert_eq!(panic.downcast_ref(), Some(&"as planned"), "the user's own panic continues");
            assert_eq!(tx.get(&table, b"document").expect("readable"), Some(b"before".to_vec()));
            tx.insert(&table, [reads as u8], b"after").expect("it continues");
            tx.commit().expect("it commits");
        }
        let (_left, db) = settings.crash(&disk, CrashKind::PowerCut, 1);
        assert_eq!(content(&db).len(), 5, "{}", settings.preset);
        let report = db.verify(None).expect("it runs");
        assert!(report.problems.is_empty(), "{:?}", report.problems);
    }
}

/// Commits when it goes out of scope.
struct Farewell<'a>(&'a Database, &'a Table);

impl Drop for Farewell<'_> {
    fn drop(&mut self) {
        self.0.transact(|tx| tx.insert(self.1, b"last words", b"")).expect("durable");
    }
}

/// Regression: a thread that wrote the log while unwinding counted as panicked during the write,
/// and the database was poisoned.
#[test]
fn a_destructor_that_commits_while_its_thread_panics_commits() {
    for settings in protocols(2) {
        let db = settings.open(&SimulatedStorage::new(1));
        let table = db.create_table("t").expect("room");
        std::thread::scope(|scope| {
            let (db, table) = (&db, &table);
            let thread = scope.spawn(move || {
                let _last = Farewell(db, table);
                std::panic::resume_unwind(Box::new("as planned"));
            });
            thread.join().expect_err("it panicked");
        });
        db.transact(|tx| tx.insert(&table, b"others", b"continue")).expect("not poisoned");
        assert_eq!(content(&db).len(), 2, "{}", settings.preset);
    }
}
