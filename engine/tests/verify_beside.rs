//! `verify` beside writers: it finds all damage, and makes no thread wait. Also a checkpoint that
//! frees a dropped table.

use crate::support::interleaved::{Interleaved, Step, set_interrupt};
use crate::support::test_database::tiny;
use quenchdb::internals::device::simulated::SimulatedStorage;
use quenchdb::{Compression, Database, ErrorKind, Preset, Settings, VerifyReport};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

fn open(disk: &SimulatedStorage) -> Database {
    open_with(disk, 1 << 20)
}

fn open_with(disk: &SimulatedStorage, memory_bytes: u64) -> Database {
    open_as(disk, settings(memory_bytes))
}

fn open_as(disk: &SimulatedStorage, settings: Settings) -> Database {
    let storage = Arc::new(Interleaved(Arc::new(disk.clone())));
    Database::builder().settings(settings).storage(storage).open("simulated").expect("opens")
}

fn settings(memory_bytes: u64) -> Settings {
    tiny(memory_bytes).with(|s| {
        s.preset = Preset::Group;
        s.logs = 1;
        s.version_bytes = 1 << 20;
        s.log_bytes_max = 1 << 20;
        // So that tests find the rows that they damage.
        s.compression = Compression::None;
    })
}

/// Runs `action` before each read of this thread.
fn before_reads(mut action: impl FnMut() + 'static) {
    set_interrupt(Some(Box::new(move |step| {
        if step == Step::Read {
            action();
        }
    })));
}

fn fill(db: &Database, name: &str, rows: std::ops::Range<u32>) {
    let table = db.table_or_create(name).expect("a whole disk");
    for first in rows.clone().step_by(100) {
        let mut tx = db.begin().expect("free");
        for n in first..(first + 100).min(rows.end) {
            tx.insert(&table, format!("key {n:05}").as_bytes(), row(name, n)).expect("free row");
        }
        tx.commit().expect("a whole disk");
    }
}

/// Returns a row's content, which differs between tables.
fn row(table: &str, n: u32) -> String {
    format!("{table} {n:05} ").repeat(25)
}

#[track_caller]
fn assert_sound(report: &VerifyReport) {
    assert!(report.problems.is_empty(), "{:#?}", report.problems);
}

/// What the other threads have done.
#[derive(Default)]
struct Done {
    commits: AtomicU64,
    checkpoints: AtomicU64,
    stop: AtomicBool,
}

impl Done {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    fn so_far(&self) -> (u64, u64) {
        (self.commits.load(Ordering::SeqCst), self.checkpoints.load(Ordering::SeqCst))
    }
}

/// Runs `with` while other threads insert rows into the middle of table `t` and make checkpoints.
fn beside_writers<T>(db: &Database, done: &Arc<Done>, with: impl FnOnce() -> T) -> T {
    struct Stop<'a>(&'a Done);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.stop.store(true, Ordering::Relaxed);
        }
    }
    let table = db.table_or_create("t").expect("a whole disk");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in (0..).take_while(|_| done.goes_on()) {
                let mut tx = db.begin().expect("free");
                tx.insert(&table, format!("key 01000 {n:08}").as_bytes(), [1; 400]).expect("own row");
                match tx.commit() {
                    Ok(_) => drop(done.commits.fetch_add(1, Ordering::SeqCst)),
                    // On a busy machine a checkpoint may take longer than a commit waits for
                    // room. The test counts commits: it notices if no later one succeeds.
                    Err(error) => assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}"),
                }
            }
        });
        scope.spawn(|| {
            while done.goes_on() {
                db.checkpoint().expect("a whole disk");
                done.checkpoints.fetch_add(1, Ordering::SeqCst);
            }
        });
        let _stop = Stop(done);
        with()
    })
}

/// How often a read waits for progress of the other threads, and how long: less than a commit waits
/// for log space, which a checkpoint that needs the page cannot make.
const MISSED_MAX: u64 = 3;
const A_WHILE: Duration = Duration::from_secs(4);

/// Regression: checkpoints waited while `verify` walked through the whole database again. A split
/// of a root's child waited until `verify` had walked through the table.
#[test]
fn while_verify_waits_for_a_read_commits_and_checkpoints_go_on() {
    let disk = SimulatedStorage::new(1);
    let db = open(&disk);
    fill(&db, "t", 0..8000);
    db.checkpoint().expect("a whole disk");
    let done = Arc::new(Done::default());
    let (waits, missed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let report = beside_writers(&db, &done, || {
        let (done, waits, missed) = (done.clone(), waits.clone(), missed.clone());
        let mut reads = 0;
        let before_read = move || {
            reads += 1;
            // The page that is read may be one that the writer needs.
            if reads % 25 != 0 || missed.load(Ordering::SeqCst) > MISSED_MAX {
                return;
            }
            let (begun, (commits, checkpoints)) = (Instant::now(), done.so_far());
            waits.fetch_add(1, Ordering::SeqCst);
            // The second checkpoint from now begins after this point.
            let enough = || {
                let now = done.so_far();
                now.0 >= commits + 150 && now.1 >= checkpoints + 2
            };
            while !enough() {
                if begun.elapsed() > A_WHILE {
                    missed.fetch_add(1, Ordering::SeqCst);
                    return;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        before_reads(before_read);
        let report = db.verify(None);
        set_interrupt(None);
        report.expect("runs")
    });
    assert_sound(&report);
    let (waits, missed) = (waits.load(Ordering::SeqCst), missed.load(Ordering::SeqCst));
    assert!(missed <= MISSED_MAX, "nothing went on while verify waited for a read, {missed} times");
    assert!(waits >= 20, "{waits} waits");
    assert_sound(&db.verify(None).expect("runs"));
}

#[test]
fn leaked_and_damaged_pages_are_found_beside_writers() {
    let disk = SimulatedStorage::new(1);
    let db = open(&disk);
    fill(&db, "t", 0..2000);
    fill(&db, "a", 0..100);
    fill(&db, "b", 0..100);
    db.close().expect("a whole disk");
    let place = |row: String| {
        let bytes = disk.read_file("pages/data").expect("a page store");
        let at = bytes.windows(row.len()).position(|bytes| bytes == row.as_bytes());
        at.expect("the row is stored")
    };
    let flip = |row: String| {
        let (at, mut bytes) = (place(row), disk.read_file("pages/data").expect("a page store"));
        bytes[at - 1] ^= 1;
        disk.write_file("pages/data", &bytes);
    };
    flip(row("a", 50));
    let db = open(&disk);
    // The pages below a damaged page are unknown, so it stays allocated when its table is dropped.
    db.drop_table("a").expect("not used");
    db.checkpoint().expect("the damage stops no caller");
    flip(row("a", 50));
    let leaked = db.verify(None).expect("runs").problems;
    assert!(leaked.len() == 1 && leaked[0].contains("leaked page"), "{leaked:#?}");
    beside_writers(&db, &Arc::default(), || {
        for _ in 0..5 {
            assert_eq!(db.verify(None).expect("runs").problems, leaked);
        }
        let at = place(row("b", 50)) as u64;
        disk.make_unreadable("pages/data", at..at + 1);
        for _ in 0..5 {
            let problems = db.verify(None).expect("runs").problems;
            assert!(problems.len() == 1 && problems[0].contains("table `b`"), "{problems:#?}");
        }
    });
}

/// Only the undo of the open transaction refers to the old value.
#[test]
fn a_value_replaced_by_an_open_transaction_is_not_leaked() {
    let disk = SimulatedStorage::new(1);
    let db = open(&disk);
    let table = db.table_or_create("t").expect("a whole disk");
    for n in 0..4u8 {
        db.transact(|tx| tx.insert(&table, [n], vec![n; 20_000])).expect("room");
    }
    db.checkpoint().expect("a whole disk");
    let mut tx = db.begin().expect("free");
    tx.insert(&table, [1], vec![9; 30_000]).expect("room");
    tx.insert(&table, [2], b"short").expect("room");
    tx.remove(&table, [3]).expect("there");
    assert_sound(&db.verify(None).expect("runs"));
    db.checkpoint().expect("a whole disk");
    assert_sound(&db.verify(None).expect("runs"));
    tx.abort();
    assert_sound(&db.verify(None).expect("runs"));
}

/// While `verify` looks for a large value, transactions replace the value and commit or abort. So
/// it belongs to an entry, to a transaction, or to the values that wait to be freed. Meanwhile,
/// tables with values are created and dropped.
#[test]
fn changing_values_and_dropped_tables_are_not_leaked() {
    let disk = SimulatedStorage::new(1);
    let db = open_with(&disk, 4 << 20);
    let table = db.table_or_create("values").expect("a whole disk");
    let seconds =
        std::env::var("QUENCH_VERIFY_SECONDS").map_or(2, |seconds| seconds.parse().expect("a number"));
    let (done, begun) = (Arc::new(Done::default()), Instant::now());
    let mut verified = 0;
    beside_writers(&db, &done, || {
        std::thread::scope(|scope| {
            let (db, table, done) = (&db, &table, &done);
            for thread in 0..2u8 {
                scope.spawn(move || {
                    for n in (0u32..).take_while(|_| done.goes_on()) {
                        let mut tx = db.begin().expect("free");
                        let len = 3000 + (n as usize * 7919) % 20_000;
                        let mut change = |n: u32| match n % 5 {
                            0 => tx.remove(table, [thread, n as u8 % 16]).map(drop),
                            _ => tx.insert(table, [thread, n as u8 % 16], vec![n as u8; len]),
                        };
                        // Without enough memory the transaction is aborted.
                        let done = change(n * 7).and_then(|()| change(n * 11));
                        if n % 3 == 0 || done.is_err() { tx.abort() } else { drop(tx.commit()) }
                    }
                });
            }
            scope.spawn(move || {
                for n in (0..).take_while(|_| done.goes_on()) {
                    let name = format!("short-lived {n}");
                    let short_lived = db.table_or_create(&name).expect("a whole disk");
                    let _ = db.transact(|tx| tx.insert(&short_lived, [1], vec![7; 30_000]));
                    std::thread::sleep(Duration::from_millis(5));
                    db.drop_table(&name).expect("not used");
                }
            });
            while begun.elapsed() < Duration::from_secs(seconds) || verified < 3 {
                let report = db.verify(None);
                verified += 1;
                if !report.as_ref().is_ok_and(|report| report.problems.is_empty()) {
                    done.stop.store(true, Ordering::Relaxed);
                }
                match report {
                    Ok(report) => assert_sound(&report),
                    Err(error) => panic!("{error}"),
                }
            }
            done.stop.store(true, Ordering::Relaxed);
        });
    });
    println!("{verified} times; {:?} commits and checkpoints", done.so_far());
    assert_sound(&db.verify(None).expect("runs"));
}

/// Regression: an aborted transaction gets no CSN. The pages that it had made behind the walk of
/// `verify` were reported as belonging to nothing.
#[test]
fn pages_of_an_aborted_transaction_are_not_leaked() {
    let disk = SimulatedStorage::new(1);
    let db = open(&disk);
    fill(&db, "t", 0..6000);
    db.checkpoint().expect("a whole disk");
    let (theirs, table, mut reads) = (db.clone(), db.table("t").expect("there"), 0);
    let made_before = db.verify(None).expect("runs").pages;
    before_reads(move || {
        reads += 1;
        if reads == 100 {
            // Far behind the walk. This thread may have a page to itself.
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut tx = theirs.begin().expect("free");
                    for n in 0..100 {
                        tx.insert(&table, format!("key 00000 {n}"), [7; 500]).expect("free row");
                    }
                    tx.abort();
                });
            });
        }
    });
    let report = db.verify(None).expect("runs");
    set_interrupt(None);
    assert_sound(&report);
    assert!(db.verify(None).expect("runs").pages > made_before, "no page was made");
}

/// Regression: a checkpoint announced its snapshot before it freed dropped tables, which may take
/// as long as reading all their pages. Meanwhile no version could be freed, and writers were
/// refused.
#[test]
fn while_a_checkpoint_frees_a_dropped_table_versions_go() {
    let disk = SimulatedStorage::new(6);
    let db = open_as(&disk, settings(1 << 20).with(|s| s.log_bytes_max = 64 << 20));
    fill(&db, "dropped", 0..4000);
    fill(&db, "kept", 0..100);
    db.checkpoint().expect("a whole disk");
    db.drop_table("dropped").expect("no transaction uses it");
    let ((begins, has_begun), (go_on, may_go_on)) = (mpsc::channel(), mpsc::channel());
    let checkpoint = {
        let db = db.clone();
        std::thread::spawn(move || {
            let mut before_first_read = Some((begins, may_go_on));
            before_reads(move || {
                if let Some((begins, may_go_on)) = before_first_read.take() {
                    begins.send(()).expect("the test waits");
                    may_go_on.recv().expect("the test says so");
                }
            });
            let done = db.checkpoint();
            set_interrupt(None);
            done
        })
    };
    has_begun.recv_timeout(Duration::from_secs(60)).expect("a table larger than memory is read to be freed");
    let table = db.table("kept").expect("there");
    let fills_versions = 3 * (1 << 20) / row("kept", 0).len() as u32;
    for n in 0..fills_versions {
        let mut tx = db.begin().expect("free");
        tx.insert(&table, format!("key {:05}", n % 100).as_bytes(), row("kept", n)).expect("versions go");
        tx.commit().expect("a whole disk");
    }
    go_on.send(()).expect("it waits");
    checkpoint.join().expect("no panic").expect("a whole disk");
}
