//! What was acknowledged and is gone is found, whichever way it was committed; what was not
//! acknowledged is not required.

use super::{Entry, Ledger, check};
use crate::checked::Checked;
use crate::driver::Run;
use crate::plan::{Checkpoints, CommitMode, Plan};
use crate::store::{Reader, Session, Step, Store};
use crate::tatp::Tatp;
use crate::watch::{Sample, Watch};
use crate::workload::{Seat, Workload};
use crate::ycsb::{Mix, Ycsb};
use quenchdb::{Database, Durability};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// A directory of its own, removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Directory {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("quench-ledger-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("created");
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn plan(commit: CommitMode, level: Durability) -> Plan {
    Plan {
        pins: false,
        prices: Default::default(),
        threads: 2,
        duration: Duration::from_secs(60),
        warm_up: Some(Duration::ZERO),
        interval: Duration::from_secs(1),
        commit,
        rate: None,
        level,
        snapshots: false,
        checkpoints: Checkpoints::Automatic,
        rows: 20,
        value_bytes: 40,
        field_bytes: None,
        operations: 2,
        read_percent: 50,
        zipf: 0.0,
        memory_bytes: 64 << 20,
        seed: 1,
    }
}

/// Ends the run when each row has been changed many times: changes of the last moments may not be
/// acknowledged below `durable`.
#[derive(Default)]
struct Enough(AtomicBool);

impl Watch for Enough {
    fn sampled(&self, sample: Sample) {
        self.0.fetch_or(sample.measuring && sample.sums.committed >= 5000, Ordering::Relaxed);
    }

    fn ends(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

fn database() -> Database {
    Database::builder().memory_bytes(64 << 20).open_in_memory().expect("memory")
}

fn rows(database: &Database, table: &str) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let (mut session, mut rows) = (database.session(Durability::Durable).expect("open"), BTreeMap::new());
    let table = Store::table(database, table).expect("there");
    let mut snapshot = session.begin_read().expect("begun");
    let each = |key: &[u8], value: &[u8]| {
        rows.insert(key.to_vec(), value.to_vec());
        Step::Continue(())
    };
    snapshot.scan(&table, &[], &[u8::MAX; 20], each).expect("read");
    rows
}

/// Runs `workload` with a ledger; the rows of `table` before it.
fn work<W: Workload>(
    workload: &W,
    database: &Database,
    (plan, ledger): (&Plan, &Path),
    table: &str,
) -> BTreeMap<Vec<u8>, Vec<u8>> {
    workload.populate(database, 1, &|_, _, _| {}).expect("populated");
    let before = rows(database, table);
    let (parameters, ledger) = (BTreeMap::new(), Ledger::open(ledger).expect("opened"));
    let enough = Enough::default();
    let run = Run {
        workload: "test",
        parameters: &parameters,
        kinds: workload.kinds(),
        store: database,
        plan,
        progress: &|_, _, _| {},
        block_device: None,
        while_working: None,
        watch: Some(&enough),
        ledger: Some(&ledger),
    };
    let workers =
        (0..plan.threads).map(|index| workload.worker(database, Seat::of(index)).expect("a worker"));
    run.drive(workers.collect()).expect("run");
    before
}

fn put(database: &Database, table: &str, key: &[u8], value: Option<&[u8]>) {
    let table = database.table(table).expect("there");
    let change = |transaction: &mut quenchdb::Transaction| match value {
        Some(value) => transaction.insert(&table, key, value),
        None => transaction.remove(&table, key).map(drop),
    };
    database.transact(change).expect("committed");
}

/// Nothing is missing; then what was acknowledged is taken away, row by row, and every loss is
/// found.
fn expect_losses_found<W: Workload>(workload: &W, table: &str, plan: &Plan) {
    let (directory, database) = (Directory::new(), database());
    let before = work(workload, &database, (plan, &directory.0), table);
    let checked = check(&directory.0, &database).expect("checked");
    assert_eq!(checked.problems, Vec::<String>::new());
    assert!(checked.acknowledged_writes > 20, "{plan:?}: {checked:?}");
    let after = rows(&database, table);
    let changed = before.iter().filter(|(key, value)| after.get(*key) != Some(value));
    let [(old_key, old_value), (gone, _)] = changed.take(2).collect::<Vec<_>>()[..] else {
        panic!("two rows were changed: {plan:?}")
    };
    put(&database, table, old_key, Some(old_value));
    put(&database, table, gone, None);
    let Checked { problems, .. } = check(&directory.0, &database).expect("checked");
    let found = |what: &str| problems.iter().filter(|problem| problem.contains(what)).count();
    assert_eq!((problems.len(), found("older value"), found("absent")), (2, 1, 1), "{problems:?}");
    put(&database, table, old_key, after.get(old_key).map(Vec::as_slice));
    put(&database, table, gone, after.get(gone).map(Vec::as_slice));
    assert!(check(&directory.0, &database).expect("checked").is_sound());
}

#[test]
fn lost_acknowledged_change_is_found_at_every_level() {
    for (commit, level) in [
        (CommitMode::Blocking, Durability::Durable),
        (CommitMode::Async, Durability::Durable),
        (CommitMode::Blocking, Durability::BoundedLoss),
        (CommitMode::Async, Durability::BoundedLoss),
    ] {
        let plan = plan(commit, level);
        let mix = Mix { read: 0, update: 50, insert: 0, scan: 0, modify: 50 };
        let ycsb = Ycsb::new(&plan, "", mix, crate::distribution::Access::Uniform);
        expect_losses_found(&ycsb, "ycsb", &plan);
        let tatp = Tatp { subscribers: 30, uniform: true, only: None, population_seed: 1, seed: 1 };
        expect_losses_found(&tatp, "tatp.subscriber", &plan);
    }
}

#[test]
fn a_change_that_was_not_acknowledged_may_be_there_or_not() {
    let (directory, database) = (Directory::new(), database());
    database.create_table("t").expect("created");
    put(&database, "t", b"k", Some(b"loaded"));
    let write = |value: Option<&[u8]>| {
        let mut entry = Entry::default();
        entry.wrote("t", b"k", Some(b"overwritten in the same transaction"));
        entry.wrote("t", b"k", value);
        entry
    };
    let ledger = Ledger::open(&directory.0).expect("opened");
    let (mut one, mut other) = (ledger.writer().expect("made"), ledger.writer().expect("made"));
    let acknowledged = one.about_to_commit(&write(Some(b"old"))).expect("written");
    one.acknowledged(acknowledged);
    one.write().expect("written");
    let acknowledged = other.about_to_commit(&write(Some(b"acknowledged"))).expect("written");
    other.acknowledged(acknowledged);
    other.write().expect("written");
    one.about_to_commit(&write(Some(b"perhaps"))).expect("written");
    other.about_to_commit(&write(None)).expect("written");
    let sound = || check(&directory.0, &database).expect("checked").is_sound();
    for (value, expected) in [
        (Some(&b"acknowledged"[..]), true),
        (Some(b"perhaps"), true),
        (None, true),
        (Some(b"old"), false),
        (Some(b"loaded"), false),
        (Some(b"overwritten in the same transaction"), false),
    ] {
        put(&database, "t", b"k", value);
        assert_eq!(sound(), expected, "{value:?}");
    }
    // Cut off anywhere, as a kill does, there is nothing that cannot be read, and nothing more is
    // required.
    put(&database, "t", b"k", Some(b"acknowledged"));
    for file in super::files_of(&directory.0).expect("listed") {
        let whole = std::fs::read(&file).expect("read");
        for end in 0..whole.len() {
            std::fs::write(&file, &whole[..end]).expect("written");
            if file.ends_with("000000") {
                assert!(sound(), "cut off at {end}");
            } else {
                check(&directory.0, &database).expect("checked");
            }
        }
        std::fs::write(&file, &whole).expect("written");
    }
    // Another process continues where this one ended.
    let ledger = Ledger::open(&directory.0).expect("opened");
    let mut next = ledger.writer().expect("made");
    let number = next.about_to_commit(&write(Some(b"next"))).expect("written");
    assert!(number > acknowledged);
    next.acknowledged(number);
    next.write().expect("written");
    assert!(!sound());
    database.drop_table("t").expect("dropped");
    assert!(check(&directory.0, &database).expect("checked").problems[0].contains("gone"));
}
