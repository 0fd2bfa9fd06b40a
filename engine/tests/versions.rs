//! Memory for old versions: what keeps them, for how long, and what writers get when it is nearly
//! full.

use crate::support::test_database::TestDatabase;
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::memory::MemoryStorage;
use quenchdb::internals::device::simulated::{Mishap, MishapKind, OperationKind, SimulatedStorage};
use quenchdb::{
    Database, Durability, ErrorKind, Isolation, Preset, Result, Settings, Snapshot, Table, Transaction,
    TransactionOptions,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

const ROWS: u64 = 2000;
const VERSION_BYTES: u64 = 512 << 10;

fn open(disk: &SimulatedStorage) -> (Database, Table) {
    let settings = Settings::default().with(|s| {
        s.preset = Preset::Group;
        s.memory_bytes = 16 << 20;
        s.version_bytes = VERSION_BYTES;
        s.segment_bytes = 1 << 20;
        s.log_bytes_max = 256 << 20;
        s.lab.checkpoint_log_bytes = 0;
    });
    let db = settings.open(disk);
    let table = db.create_table("t").expect("new");
    for first in (0..ROWS).step_by(100) {
        let rows = first..first + 100;
        db.transact(|tx| rows.clone().try_for_each(|n| tx.insert(&table, n.to_be_bytes(), [0; 300])))
            .expect("room");
    }
    (db, table)
}

/// Changes `rows` without waiting for durability.
fn change(db: &Database, table: &Table, rows: impl Iterator<Item = u64>) -> Result<()> {
    let mut tx = db.begin_with(
        TransactionOptions::new().isolation(Isolation::ReadCommitted).durability(Durability::BoundedLoss),
    )?;
    rows.into_iter().try_for_each(|n| tx.insert(table, n.to_be_bytes(), [n as u8; 300]))?;
    tx.commit().map(drop)
}

/// Regression: the last flush of a checkpoint may take long. Versions of concurrent changes were
/// kept until it ended, and writers were refused.
#[test]
fn versions_go_while_a_checkpoint_waits_for_its_flush() {
    let disk = SimulatedStorage::new(1);
    let (db, table) = open(&disk);
    change(&db, &table, 0..100).expect("room");
    db.flush().expect("a whole disk");
    // The log's next segments are prepared meanwhile; it is not their flush that is to be stuck.
    let mut operations = 0;
    while std::mem::replace(&mut operations, disk.operations()) != disk.operations() {
        std::thread::sleep(Duration::from_millis(100));
    }
    disk.inject_mishap(Mishap { operation: OperationKind::Flush, after: 0, kind: MishapKind::Stuck });
    let (send, done) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let checkpoint = scope.spawn(|| db.checkpoint().expect("a whole disk"));
        while disk.fault_counts().of("stuck") == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let (db, table) = (&db, &table);
        let writer = scope.spawn(move || {
            let result = (0..100)
                .try_for_each(|round| change(db, table, (round * 100..round * 100 + 100).map(|n| n % ROWS)));
            let _ = send.send(result);
        });
        let result = done.recv_timeout(Duration::from_secs(40));
        assert!(!checkpoint.is_finished(), "its flush is stuck");
        disk.release_stuck();
        result.expect("writers wait for the checkpoint").expect("no snapshot needs the versions");
        writer.join().expect("no panic");
        checkpoint.join().expect("no panic");
    });
}

/// Runs threads that write far ahead of the device. Returns how many calls were refused, and how
/// many transactions waited.
fn refusals(db: &Database, table: &Table, threads: u64, rows: u64) -> (u64, u64) {
    let refused = std::thread::scope(|scope| {
        let work = |thread: u64| {
            let mut random = Random::from_seed(thread);
            let one = |random: &mut Random| {
                let first = random.below(ROWS / threads / rows) * rows + thread * (ROWS / threads);
                change(db, table, first..first + rows)
            };
            (0..300).filter(|_| one(&mut random).is_err()).count() as u64
        };
        let workers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        workers.into_iter().map(|worker| worker.join().expect("no panic")).sum()
    });
    (refused, db.statistics().version_waits)
}

#[test]
fn without_snapshots_memory_for_versions_is_hardly_refused() {
    let (db, table) = open(&SimulatedStorage::new(2));
    for (threads, rows) in [(2, 100), (4, 50), (16, 20)] {
        db.reset_statistics();
        let begun = Instant::now();
        let (refused, waited) = refusals(&db, &table, threads, rows);
        println!("{threads} threads, {rows} rows: {refused} refused, {waited} waited, {:?}", begun.elapsed());
        // On a busy machine a thread may be stopped for longer than others wait for its epoch.
        assert!(refused <= threads / 4, "{threads} threads, {rows} rows: {refused} of {}", threads * 300);
    }
}

/// Regression: a busy machine stopped a thread within a transaction. Transactions that began waited
/// some milliseconds for it; then writers did not wait at all, and were refused.
#[test]
fn a_transaction_that_stands_still_for_a_moment_is_waited_for() {
    let (db, table) = open(&SimulatedStorage::new(3));
    let mut written = (0..ROWS).cycle();
    let (begun, other) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let snapshot = db.begin_read().expect("free");
            begun.send(()).expect("it is waited for");
            while db.statistics().version_waits == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(400));
            drop(snapshot);
        });
        other.recv().expect("it begins");
        for _ in 0..1000 {
            change(&db, &table, written.by_ref().take(4)).expect("the other transaction ends soon");
        }
    });
}

#[test]
fn the_holder_of_a_long_snapshot_is_refused_without_delay() {
    let (db, table) = open(&SimulatedStorage::new(3));
    let mut written = (0..ROWS).cycle();
    let mut write = || change(&db, &table, written.by_ref().take(4));
    // A snapshot of another thread is waited for a few times.
    for own in [false, true] {
        let begin = || db.begin_read().expect("free");
        let snapshot = if own {
            begin()
        } else {
            std::thread::scope(|scope| scope.spawn(begin).join().expect("no panic"))
        };
        write().expect("room");
        db.flush().expect("a whole disk");
        db.reset_statistics();
        let begun = Instant::now();
        let error = (0..1000).find_map(|_| write().err()).expect("the memory is full");
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
        let waited = db.statistics().version_waits;
        println!("own {own}: {waited} waited, refused after {:?}", begun.elapsed());
        assert!(if own { waited == 0 } else { waited > 0 && waited < 100 }, "own {own}: {waited} waited");
        drop(snapshot);
        write().expect("there is room again");
    }
}

/// Deletes all rows of a table at once, and returns a snapshot that still sees them.
fn deleted_at_once(db: &Database, table: &Table, rows: u64) -> Snapshot {
    let each = |f: &dyn Fn(&mut Transaction, [u8; 8]) -> Result<()>| {
        db.transact(|tx| (0..rows).try_for_each(|n| f(tx, n.to_be_bytes()))).expect("room");
    };
    each(&|tx, key| tx.insert(table, key, [0; 60]));
    let snapshot = db.begin_read().expect("free");
    each(&|tx, key| tx.remove(table, key).map(drop));
    snapshot
}

fn in_memory() -> (Database, Table) {
    let settings = Settings::default().with(|s| {
        s.preset = Preset::Group;
        s.lab.checkpoint_log_bytes = 0;
    });
    let db = Database::builder().settings(settings).storage(Arc::new(MemoryStorage::default()));
    let db = db.open("x").expect("opens");
    let table = db.create_table("t").expect("new");
    (db, table)
}

/// Returns the numbers of pages and rows, deleted ones included, once all garbage is freed.
fn left(db: &Database) -> (u64, u64) {
    db.flush().expect("whole storage");
    let report = db.verify(None).expect("runs");
    assert_eq!(report.problems, Vec::<String>::new());
    (report.pages, report.entries)
}

/// The end of a small transaction frees some versions of a large one. Regression: it also walked
/// through all rows that the large one had deleted. Most of these could not be purged yet, and were
/// forgotten.
#[test]
fn rows_deleted_at_once_are_purged_by_small_transactions() {
    let (db, table) = in_memory();
    drop(deleted_at_once(&db, &table, 30_000));
    let other = db.create_table("other").expect("new");
    for n in 0..500u64 {
        db.transact(|tx| tx.insert(&other, n.to_be_bytes(), [0; 8])).expect("room");
    }
    let (pages, rows) = left(&db);
    assert!(pages < 20 && rows == 500, "{pages} pages, {rows} rows");
}

/// Regression: a deleted row that was locked or temporarily overwritten when it was due to be
/// purged was never purged.
#[test]
fn deleted_rows_that_were_held_meanwhile_are_gone_in_the_end() {
    type Hold = fn(&mut Transaction, &Table, [u8; 8]) -> Result<()>;
    let lock: Hold = |tx, table, key| tx.get_for_update(table, key).map(drop);
    let set: Hold = |tx, table, key| tx.insert(table, key, b"again");
    let abort: fn(&Database, Transaction) = |_, tx| drop(tx);
    let commit: fn(&Database, Transaction) = |_, tx| {
        tx.commit().expect("commits");
    };
    let commit_other: fn(&Database, Transaction) = |db, mut tx| {
        let other = db.create_table("other").expect("new");
        tx.insert(&other, b"k", b"v").expect("room");
        tx.commit().expect("commits");
    };
    for (hold, end) in [(lock, abort), (lock, commit), (lock, commit_other), (set, abort)] {
        let (db, table) = in_memory();
        let snapshot = deleted_at_once(&db, &table, 10_000);
        let mut tx = db.begin().expect("free");
        (0..10_000u64).try_for_each(|n| hold(&mut tx, &table, n.to_be_bytes())).expect("free rows");
        drop(snapshot);
        db.flush().expect("whole storage");
        end(&db, tx);
        let (pages, rows) = left(&db);
        assert!(pages < 20 && rows < 2, "{pages} pages, {rows} rows");
    }
}

/// Waits until the versions take at most so many bytes, without a call that collects them.
#[track_caller]
fn await_version_bytes(db: &Database, most: u64, context: &str) {
    let begun = Instant::now();
    while db.statistics().version_bytes > most {
        let bytes = db.statistics().version_bytes;
        assert!(begun.elapsed() < Duration::from_secs(30), "{context}: {bytes} bytes of versions are left");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// No transaction follows that could give the versions back.
#[test]
fn versions_of_large_transactions_go_without_later_ones() {
    const LARGE: u64 = 20_000;
    for durability in [Durability::Durable, Durability::BoundedLoss, Durability::Lazy] {
        let (db, table) = in_memory();
        let rows =
            |tx: &mut Transaction| (0..LARGE).try_for_each(|n| tx.insert(&table, n.to_be_bytes(), [0; 60]));
        db.transact(rows).expect("room");
        let all = |tx: &mut Transaction| tx.clear(&table);
        assert_eq!(db.transact_with(durability, all).expect("room"), LARGE);
        await_version_bytes(&db, 1000, &format!("{durability:?}"));
    }
    let (db, table) = in_memory();
    let snapshot = deleted_at_once(&db, &table, LARGE);
    assert!(db.statistics().version_bytes > LARGE * 100, "the snapshot keeps them");
    drop(snapshot);
    await_version_bytes(&db, 1000, "after a snapshot");
    let snapshot = db.begin().expect("free");
    assert_eq!(snapshot.range(&table, ..).count(), 0);
    for n in 0..LARGE {
        db.transact_with(Durability::Lazy, |tx| tx.insert(&table, n.to_be_bytes(), [0; 60])).expect("room");
    }
    assert!(db.statistics().version_bytes > LARGE * 50, "the transaction keeps them");
    drop(snapshot);
    await_version_bytes(&db, 300 << 10, "after a transaction");
}
