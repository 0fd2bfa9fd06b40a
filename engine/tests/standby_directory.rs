//! A standby of a directory that another process writes to. The writer is killed under load, again
//! and again: nothing acknowledged is lost, and nothing that the standby has shown vanishes.
//!
//! The writers run this binary again with `QUENCH_CHILD` set: see [`child`].

use crate::standby::PATIENCE;
use crate::support::in_time;
use crate::support::processes::one_test;
use quenchdb::internals::base::depth::is_deep;
use quenchdb::internals::base::random::Random;
use quenchdb::{Csn, Database, ErrorKind, Preset, Snapshot, Standby, StandbySnapshot, Table};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

const THREADS: u64 = 3;

fn builder(logs: usize) -> quenchdb::Builder {
    let builder = Database::builder().memory_bytes(4 << 20).segment_bytes(256 << 10).log_bytes_max(8 << 20);
    match logs {
        1 => builder,
        _ => builder.preset(Preset::Group).logs(logs),
    }
}

/// A writer in another process, killed when it is dropped.
struct Writer(Child);

impl Writer {
    fn start(path: &Path, logs: usize) -> Writer {
        let mut command = one_test(module_path!(), "child");
        command
            .env("QUENCH_CHILD", "standby writer")
            .env("QUENCH_PATH", path)
            .env("QUENCH_LOGS", logs.to_string())
            .stdout(Stdio::piped())
            .stdin(Stdio::null());
        let mut child = command.spawn().expect("starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut said = lines.map_while(std::result::Result::ok);
        assert!(said.any(|line| line.contains("READY")), "the writer ended before it was ready");
        Writer(child)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Not a test: the code that tests run in another process until it is killed.
#[test]
fn child() {
    if std::env::var("QUENCH_CHILD").as_deref() != Ok("standby writer") {
        return;
    }
    let path = PathBuf::from(std::env::var_os("QUENCH_PATH").expect("set with the role"));
    let logs = std::env::var("QUENCH_LOGS").expect("set with the role").parse().expect("a number");
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).expect("linux");
    let db = builder(logs).open(&path).expect("opens");
    let table = db.table_or_create("t").expect("works");
    let acknowledged = std::fs::File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(acknowledged_in(&path))
        .expect("space");
    println!("READY");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (db, table, acknowledged) = (&db, &table, &acknowledged);
            scope.spawn(move || write(db, table, thread, acknowledged));
        }
        loop {
            std::thread::sleep(Duration::from_millis(150));
            db.checkpoint().expect("works");
        }
    });
}

/// Where a writer notes what was acknowledged: a number for each thread.
fn acknowledged_in(path: &Path) -> PathBuf {
    path.with_extension("acknowledged")
}

fn key(thread: u64, number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&thread.to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

fn number_in(value: Option<&[u8]>) -> u64 {
    value.map_or(0, |value| u64::from_be_bytes(value.try_into().expect("eight bytes")))
}

/// Raises a counter and inserts a row with its number and random bytes, for ever. Some commits are
/// not waited for.
fn write(db: &Database, table: &Table, thread: u64, acknowledged: &std::fs::File) {
    let mut random = Random::from_entropy();
    loop {
        let mut tx = db.begin().expect("free");
        let last = number_in(tx.get(table, key(thread, 0)).expect("readable").as_deref());
        let bytes = if random.below(200) == 0 { 100_000 } else { random.below(600) };
        let value: Vec<u8> = (0..bytes / 8 + 1).flat_map(|_| random.next_u64().to_be_bytes()).collect();
        tx.insert(table, key(thread, last + 1), value).expect("alone");
        tx.insert(table, key(thread, 0), (last + 1).to_be_bytes()).expect("alone");
        if random.below(3) == 0 {
            drop(tx.commit_async().expect("no fault"));
        } else {
            tx.commit().expect("no fault");
            acknowledged.write_all_at(&(last + 1).to_be_bytes(), thread * 8).expect("space");
        }
        if random.below(100) == 0 {
            std::thread::sleep(Duration::from_millis(random.below(20)));
        }
    }
}

/// What was shown: the counter of each thread, and rows.
#[derive(Default)]
struct Shown {
    csn: Csn,
    counters: BTreeMap<u64, u64>,
    rows: BTreeMap<[u8; 16], Vec<u8>>,
}

impl Shown {
    /// Adds what a snapshot shows, and checks that it is whole, and that nothing went back.
    fn add(&mut self, snapshot: &StandbySnapshot) {
        assert!(snapshot.csn() >= self.csn, "the CSN never falls");
        self.csn = snapshot.csn();
        let Ok(table) = snapshot.table("t") else { return };
        for thread in 0..THREADS {
            let before = self.counters.get(&thread).copied().unwrap_or(0);
            let counter = self.check(snapshot, &table, thread, before);
            for number in before + 1..=counter {
                let row = snapshot.get(&table, key(thread, number)).expect("readable").expect("is there");
                self.rows.insert(key(thread, number), row.to_vec());
            }
            self.counters.insert(thread, counter);
        }
    }

    /// Returns the counter of a thread, which is at least `least`. Its row is there, and not the
    /// next.
    fn check(&self, snapshot: &Snapshot, table: &Table, thread: u64, least: u64) -> u64 {
        let counter = number_in(snapshot.get(table, key(thread, 0)).expect("readable").as_deref());
        assert!(counter >= least, "thread {thread}: {counter} after {least}");
        let there = |number| snapshot.get(table, key(thread, number)).expect("readable").is_some();
        assert!(counter == 0 || there(counter), "thread {thread}: row {counter}");
        assert!(!there(counter + 1), "thread {thread}: row {}", counter + 1);
        counter
    }

    /// Checks that a database has everything that was shown and acknowledged, row by row.
    fn check_kept(&self, db: &Database, acknowledged: &Path, context: &str) {
        let snapshot = db.begin_read().expect("free");
        assert!(snapshot.csn() >= self.csn, "{context}: {} after {}", snapshot.csn(), self.csn);
        let Ok(table) = db.table("t") else { return };
        let mut noted = std::fs::read(acknowledged).unwrap_or_default();
        noted.resize(THREADS as usize * 8, 0);
        for thread in 0..THREADS {
            let shown = self.counters.get(&thread).copied().unwrap_or(0);
            let at = thread as usize * 8;
            let least = shown.max(number_in(Some(&noted[at..at + 8])));
            let counter = self.check(&snapshot, &table, thread, least);
            let rows = snapshot.range(&table, key(thread, 1)..=key(thread, u64::MAX)).count();
            assert_eq!(rows as u64, counter, "{context}: thread {thread}");
        }
        for (key, value) in &self.rows {
            let found = snapshot.get(&table, key).expect("readable");
            assert!(found.as_deref() == Some(&**value), "{context}: a row that was shown is another one");
        }
    }
}

#[test]
fn what_a_standby_showed_stays_when_the_writer_is_killed() {
    in_time("killed writers of a directory", 600, || {
        for logs in [1, 2] {
            kill_writers(logs, if is_deep() { 60 } else { 5 });
        }
    });
}

fn kill_writers(logs: usize, rounds: u32) {
    let directory = tempfile::tempdir().expect("space");
    let path = directory.path().join("db");
    builder(logs).open(&path).expect("new").close().expect("no fault");
    let (mut random, mut shown) = (Random::from_entropy(), Shown::default());
    let mut standby = follow(&path);
    for round in 0..rounds {
        let context = format!("{logs} logs, round {round}");
        let writer = Writer::start(&path, logs);
        let begun = std::time::Instant::now();
        let time = Duration::from_millis(100 + random.below(700));
        while begun.elapsed() < time {
            shown.add(&standby.snapshot().expect("free"));
            std::thread::sleep(Duration::from_millis(random.below(10)));
        }
        let before = shown.csn;
        if round % 3 == 0 {
            let reached = standby.wait_for(before.next(), PATIENCE).expect("follows");
            assert!(reached, "{context}: {:?}", standby.statistics());
        }
        drop(writer);
        if random.below(2) == 0 {
            std::thread::sleep(Duration::from_millis(random.below(100)));
            shown.add(&standby.snapshot().expect("free"));
        }
        if round % 4 == 3 {
            // The standby takes over, ends, and another one begins.
            let db = standby.promote().unwrap_or_else(|error| panic!("{context}: {error}"));
            shown.check_kept(&db, &acknowledged_in(&path), &context);
            db.close().expect("no fault");
            standby = follow(&path);
        } else if round % 4 == 1 {
            let db = builder(logs).open(&path).expect("recovers");
            shown.check_kept(&db, &acknowledged_in(&path), &context);
            let newest = db.begin_read().expect("free").csn();
            assert!(standby.wait_for(newest, PATIENCE).expect("follows"), "{:?}", standby.statistics());
            shown.add(&standby.snapshot().expect("free"));
            db.close().expect("no fault");
        }
    }
    let statistics = standby.statistics();
    assert!(shown.counters.values().all(|counter| *counter > 0), "{statistics:?}");
    standby.close();
    let db = builder(logs).open(&path).expect("recovers");
    shown.check_kept(&db, &acknowledged_in(&path), "at the end");
    assert!(db.verify(None).expect("runs").problems.is_empty());
}

fn follow(path: &Path) -> Standby {
    Database::builder().memory_bytes(4 << 20).open_standby(path).expect("a database")
}

#[test]
fn a_standby_of_a_directory_is_promoted_only_after_its_writer() {
    in_time("promotion beside a writer", 120, || {
        let directory = tempfile::tempdir().expect("space");
        let path = directory.path().join("db");
        let db = builder(1).open(&path).expect("new");
        let table = db.create_table("t").expect("new");
        let standby = follow(&path);
        // Nothing follows the last commit, so no watermark vouches for it.
        for number in 1..=3_u64 {
            let mut tx = db.begin().expect("free");
            tx.insert(&table, number.to_be_bytes(), b"x").expect("alone");
            let csn = tx.commit().expect("no fault");
            assert!(standby.wait_for(csn, PATIENCE).expect("follows"), "{:?}", standby.statistics());
        }
        let error = standby.promote().map(drop).expect_err("the writer lives");
        assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
        let standby = follow(&path);
        let newest = db.begin_read().expect("free").csn();
        assert!(standby.wait_for(newest, PATIENCE).expect("follows"), "{:?}", standby.statistics());
        let snapshot = standby.snapshot().expect("free");
        db.close().expect("no fault");
        let promoted = standby.promote().expect("the writer is gone");
        let table = promoted.table("t").expect("is there");
        assert_eq!(promoted.begin_read().expect("free").range(&table, ..).count(), 3);
        assert_eq!(snapshot.range(&snapshot.table("t").expect("is there"), ..).count(), 3);
    });
}

#[test]
fn a_standby_of_a_directory_outlives_closes_and_new_tables() {
    in_time("closes", 120, || {
        let directory = tempfile::tempdir().expect("space");
        let path = directory.path().join("db");
        let mut db = builder(1).open(&path).expect("new");
        let standby = follow(&path);
        for round in 0..6_u8 {
            let table = db.create_table(&format!("t{round}")).expect("new");
            for row in 0..200_u32 {
                db.transact(|tx| tx.insert(&table, row.to_be_bytes(), vec![round; 300])).expect("no fault");
            }
            if round % 2 == 0 {
                db.checkpoint().expect("no fault");
            }
            db.close().expect("no fault");
            db = builder(1).open(&path).expect("is there");
            let newest = db.begin_read().expect("free").csn();
            assert!(standby.wait_for(newest, PATIENCE).expect("follows"), "{:?}", standby.statistics());
            let snapshot = standby.snapshot().expect("free");
            let table = snapshot.table(&format!("t{round}")).expect("is there");
            assert_eq!(snapshot.range(&table, ..).count(), 200);
        }
    });
}

#[test]
fn nothing_new_is_shown_while_the_lock_names_another_epoch() {
    in_time("another epoch", 60, || {
        let directory = tempfile::tempdir().expect("space");
        let path = directory.path().join("db");
        let db = builder(1).open(&path).expect("new");
        let table = db.create_table("t").expect("new");
        let add = |key: &str| {
            let mut tx = db.begin().expect("free");
            tx.insert(&table, key, b"x").expect("alone");
            tx.commit().expect("no fault")
        };
        let standby = follow(&path);
        assert!(standby.wait_for(add("before"), PATIENCE).expect("follows"));
        // As a process that begins to recover the database does first.
        let (lock, shown) = (path.join("LOCK"), standby.csn());
        let note = std::fs::read(&lock).expect("is there");
        std::fs::write(&lock, "1\n").expect("space");
        let csn = add("meanwhile");
        assert!(!standby.wait_for(csn, Duration::from_millis(600)).expect("follows"));
        assert_eq!(standby.csn(), shown, "the block may be one that the recovery has not read");
        std::fs::write(&lock, note).expect("space");
        add("after");
        db.close().expect("no fault");
        let db = builder(1).open(&path).expect("is there");
        let newest = db.begin_read().expect("free").csn();
        assert!(standby.wait_for(newest, PATIENCE).expect("follows"), "{:?}", standby.statistics());
        let snapshot = standby.snapshot().expect("free");
        assert_eq!(snapshot.range(&snapshot.table("t").expect("is there"), ..).count(), 3);
    });
}

#[test]
fn tables_with_types_are_read_from_snapshots_of_a_standby() {
    in_time("types", 60, || {
        let directory = tempfile::tempdir().expect("space");
        let path = directory.path().join("db");
        let db = builder(1).open(&path).expect("new");
        let ages = db.typed_table::<String, u64>("ages").expect("new");
        let pairs = db.multimap::<String, u64>("pairs").expect("new");
        let standby = follow(&path);
        let mut tx = db.begin().expect("free");
        ages.insert(&mut tx, "alice", &42).expect("alone");
        pairs.insert(&mut tx, "a", 1).expect("alone");
        pairs.insert(&mut tx, "a", 2).expect("alone");
        assert!(standby.wait_for(tx.commit().expect("no fault"), PATIENCE).expect("follows"));
        let snapshot = standby.snapshot().expect("free");
        let ages = snapshot.typed_table::<String, u64>("ages").expect("its types");
        assert_eq!(ages.get(&*snapshot, "alice").expect("readable"), Some(42));
        let pairs = snapshot.multimap::<String, u64>("pairs").expect("its types");
        assert_eq!(pairs.get(&*snapshot, "a").count(), 2);
        let kind = |result: quenchdb::Result<_>| result.map(drop).expect_err("refused").kind();
        assert_eq!(kind(snapshot.typed_table::<u64, u64>("ages").map(drop)), ErrorKind::InvalidArgument);
        assert_eq!(kind(snapshot.typed_table::<String, u64>("none").map(drop)), ErrorKind::NotFound);
        db.rename_table("ages", "years").expect("is there");
        let csn = db.begin_read().expect("free").csn();
        assert!(standby.wait_for(csn, PATIENCE).expect("follows"));
        let later = standby.snapshot().expect("free");
        let years = later.typed_table::<String, u64>("years").expect("renamed with its types");
        assert_eq!(years.get(&*later, "alice").expect("readable"), Some(42));
        assert_eq!(ages.get(&*snapshot, "alice").expect("readable"), Some(42), "as it was called then");
    });
}
