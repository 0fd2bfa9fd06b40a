//! Deleted rows in front of a scan: each is visited a few times, not by every scan, and nothing is
//! missed because of that.

use crate::support::Model;
use crate::support::test_database::TestDatabase;
use quenchdb::internals::base::depth::some;
use quenchdb::internals::base::random::Random;
use quenchdb::{
    Database, Durability, ErrorKind, Isolation, LockMode, Locking, Multimap, Result, Settings, Table,
    Transaction, TransactionOptions, TypedTable,
};
use std::sync::Mutex;

const ROWS: u64 = 5_000;
/// Rows of one measurement.
const BATCH: u64 = 1000;
/// Deleted rows visited for each row, at most, on average: a run of 16 is skipped.
const VISITED_MAX: u64 = 24;

fn in_memory() -> Database {
    Settings::default().with(|s| s.lab.checkpoint_log_bytes = 0).open_in_memory()
}

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

fn fill(db: &Database, table: &Table, rows: std::ops::Range<u64>) {
    for first in rows.clone().step_by(1000) {
        let rows = first..rows.end.min(first + 1000);
        db.transact_with(Durability::Lazy, |tx| {
            rows.clone().try_for_each(|n| tx.insert(table, key(n), [1; 20]))
        })
        .expect("room");
    }
}

/// Calls `work` so often, and fails if the deleted rows that it visits are too many.
#[track_caller]
fn assert_visits(db: &Database, context: &str, most: u64, times: u64, mut work: impl FnMut(u64)) {
    for batch in 0..times / BATCH {
        let before = db.statistics().deleted_rows_visited;
        (batch * BATCH..(batch + 1) * BATCH).for_each(&mut work);
        let visited = db.statistics().deleted_rows_visited - before;
        assert!(visited <= most * BATCH, "{context}, batch {batch}: {visited} deleted rows visited");
    }
}

fn pop(tx: &mut Transaction, table: &Table, last: bool) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    if last { tx.pop_last(table) } else { tx.pop_first(table) }
}

fn kinds() -> [TransactionOptions; 4] {
    let new = TransactionOptions::new;
    [
        new(),
        new().isolation(Isolation::ReadCommitted),
        new().isolation(Isolation::Serializable),
        new().isolation(Isolation::Serializable).locking(Locking::Pessimistic),
    ]
}

#[test]
fn pops_of_one_transaction_visit_few_deleted_rows() {
    for options in kinds() {
        for last in [false, true] {
            let db = in_memory();
            let table = db.create_table("t").expect("new");
            fill(&db, &table, 0..ROWS);
            let mut tx = db.begin_with(options).expect("free");
            let context = format!("{options:?}, last: {last}");
            assert_visits(&db, &context, VISITED_MAX, ROWS - BATCH, |n| {
                let n = if last { ROWS - 1 - n } else { n };
                let (popped, _) = pop(&mut tx, &table, last).expect("pops").expect("a row");
                assert_eq!(popped, key(n), "{context}");
            });
            tx.commit().expect("commits");
            let snapshot = db.begin_read().expect("free");
            assert_eq!(snapshot.range(&table, ..).count() as u64, BATCH, "{context}");
        }
    }
}

/// Lazy commits are not durable, and a snapshot needs what was deleted: neither makes pops slower.
#[test]
fn pops_of_many_transactions_visit_few_deleted_rows() {
    let ways = [(false, false), (false, true), (true, false), (true, true)];
    let combined: Vec<_> =
        kinds().into_iter().flat_map(|options| ways.map(|(last, keeps)| (options, last, keeps))).collect();
    // Each kind and each way occurs.
    for (options, last, keeps_snapshot) in some(&combined, 5) {
        let context = format!("{options:?}, last: {last}, snapshot: {keeps_snapshot}");
        let db = in_memory();
        let table = db.create_table("t").expect("new");
        fill(&db, &table, 0..ROWS);
        let snapshot = keeps_snapshot.then(|| db.begin_read().expect("free"));
        let options = options.durability(Durability::Lazy);
        assert_visits(&db, &context, VISITED_MAX, ROWS - BATCH, |_| {
            db.transact_with(options, |tx| pop(tx, &table, last)).expect("pops").expect("a row");
        });
        if let Some(snapshot) = snapshot {
            assert_eq!(snapshot.range(&table, ..).count() as u64, ROWS, "{context}");
        }
        db.flush().expect("whole storage");
        let bytes = db.statistics().version_bytes;
        assert!(bytes < 10_000, "{context}: {bytes} bytes of versions are left");
        let before = db.statistics().deleted_rows_visited;
        for _ in 0..20 {
            db.transact_with(options, |tx| pop(tx, &table, last)).expect("pops").expect("a row");
            db.flush().expect("whole storage");
        }
        assert_eq!(db.statistics().deleted_rows_visited, before, "{context}: no deleted row is left");
    }
}

#[test]
fn rows_that_enter_a_queue_do_not_make_its_pops_slower() {
    let db = in_memory();
    let queues: Vec<Table> = (0..3).map(|n| db.create_table(&format!("q{n}")).expect("new")).collect();
    queues.iter().for_each(|queue| fill(&db, queue, 0..100));
    let snapshot = db.begin_read().expect("free");
    assert_visits(&db, "queues", VISITED_MAX, 10 * BATCH, |n| {
        let queue = &queues[n as usize % 3];
        db.transact_with(Durability::Lazy, |tx| {
            tx.insert(queue, key(1000 + n), "")?;
            tx.pop_first(queue)
        })
        .expect("pops")
        .expect("a row");
    });
    assert_eq!(snapshot.range(&queues[0], ..).count(), 100);
}

#[test]
fn scans_skip_what_was_removed_at_once() {
    let db = in_memory();
    let table = db.create_table("t").expect("new");
    fill(&db, &table, 0..ROWS);
    let snapshot = db.begin_read().expect("free");
    let cut = |tx: &mut Transaction| tx.remove_range(&table, key(100)..key(ROWS - 100));
    assert_eq!(db.transact_with(Durability::Lazy, cut).expect("room"), ROWS - 200);
    let looks = |n: u64| {
        let tx = db.begin().expect("free");
        let from = key(100 + n % 50);
        assert_eq!(tx.range(&table, from..).next().expect("a row").expect("readable").0, key(ROWS - 100));
        assert_eq!(tx.range(&table, ..from).next_back().expect("a row").expect("readable").0, key(99));
        assert_eq!(tx.range(&table, from..key(ROWS - 100)).count(), 0);
        assert_eq!(tx.range(&table, ..).count(), 200);
    };
    looks(0);
    assert_visits(&db, "removed at once", 4 * VISITED_MAX, BATCH, looks);
    assert_eq!(db.transact(|tx| tx.clear(&table)).expect("room"), 200);
    assert!(db.begin().expect("free").first(&table).expect("readable").is_none());
    assert_visits(&db, "cleared", VISITED_MAX, BATCH, |_| {
        let tx = db.begin().expect("free");
        assert!(tx.first(&table).expect("readable").is_none());
        assert!(tx.last(&table).expect("readable").is_none());
    });
    assert_eq!(snapshot.range(&table, ..).count() as u64, ROWS);
}

/// Many queues in one table, each a prefix.
#[test]
fn queues_that_share_a_table_are_skipped_one_by_one() {
    const QUEUES: u64 = 20;
    let db = in_memory();
    let table = db.create_table("t").expect("new");
    let row = |queue: u64, n: u64| [key(queue), key(n)].concat();
    for queue in 0..QUEUES {
        let rows = |tx: &mut Transaction| (0..500).try_for_each(|n| tx.insert(&table, row(queue, n), ""));
        db.transact_with(Durability::Lazy, rows).expect("room");
    }
    let snapshot = db.begin_read().expect("free");
    assert_visits(&db, "prefixes", VISITED_MAX, 9 * BATCH, |n| {
        let (queue, n) = (n % QUEUES, n / QUEUES);
        db.transact_with(Durability::Lazy, |tx| {
            let first = tx.range(&table, row(queue, 0)..row(queue + 1, 0)).next().expect("a row")?;
            assert_eq!(first.0, row(queue, n));
            tx.remove(&table, first.0)
        })
        .expect("pops");
    });
    assert_eq!(snapshot.range(&table, ..).count() as u64, QUEUES * 500);
}

#[test]
fn typed_queues_and_multimaps_skip_deleted_rows() {
    let db = in_memory();
    let queue: TypedTable<u64, u64> = db.typed_table("q").expect("new");
    let map: Multimap<u64, u64> = db.multimap("m").expect("new");
    db.transact_with(Durability::Lazy, |tx| {
        (0..5000).try_for_each(|n| queue.insert(tx, n, &n))?;
        (0..5000).try_for_each(|n| map.insert(tx, 1, n).map(drop))
    })
    .expect("room");
    let _snapshot = db.begin_read().expect("free");
    assert_visits(&db, "typed", 2 * VISITED_MAX, 4 * BATCH, |n| {
        db.transact_with(Durability::Lazy, |tx| {
            assert_eq!(queue.pop_first(tx)?, Some((n, n)));
            let first = map.get(tx, &1).next().expect("a value")?;
            assert_eq!(first, n);
            map.remove(tx, 1, first)
        })
        .expect("pops");
    });
}

/// Deletes the rows 0 to 100 of a table with as many more, and has all later scans skip them.
fn with_dead_range() -> (Database, Table) {
    let db = in_memory();
    let table = db.create_table("t").expect("new");
    fill(&db, &table, 0..200);
    db.transact_with(Durability::Lazy, |tx| tx.remove_range(&table, ..key(100))).expect("room");
    assert_eq!(db.begin().expect("free").first(&table).expect("readable").expect("a row").0, key(100));
    let before = db.statistics().deleted_rows_visited;
    assert_eq!(db.begin().expect("free").range(&table, ..).count(), 100);
    assert_eq!(db.statistics().deleted_rows_visited, before, "the range is skipped");
    (db, table)
}

#[test]
fn row_inserted_into_a_dead_range_is_seen_by_every_reader() {
    for options in kinds() {
        let (db, table) = with_dead_range();
        let mut tx = db.begin_with(options).expect("free");
        tx.insert(&table, key(50), "new").expect("room");
        assert_eq!(tx.first(&table).expect("readable").expect("a row").0, key(50));
        assert_eq!(tx.range(&table, ..key(60)).rev().count(), 1);
        tx.commit().expect("commits");
        for later in kinds() {
            let tx = db.begin_with(later).expect("free");
            assert_eq!(
                tx.first(&table).expect("readable").expect("a row").0,
                key(50),
                "{options:?}, {later:?}"
            );
        }
        let snapshot = db.begin_read().expect("free");
        assert_eq!(snapshot.range(&table, ..key(100)).count(), 1, "{options:?}");
        db.transact(|tx| tx.remove(&table, key(50))).expect("room");
        assert_eq!(db.begin().expect("free").first(&table).expect("readable").expect("a row").0, key(100));
        assert_eq!(snapshot.range(&table, ..key(100)).count(), 1, "{options:?}");
    }
}

#[test]
fn rows_taken_back_in_a_dead_range_are_seen_again() {
    for options in kinds() {
        for (first, rolls_back) in [(100, true), (110, true), (100, false)] {
            let (db, table) = with_dead_range();
            let mut tx = db.begin_with(options).expect("free");
            tx.remove_range(&table, key(100)..key(first)).expect("room");
            assert_eq!(tx.first(&table).expect("readable").expect("a row").0, key(first));
            let savepoint = tx.savepoint();
            for rows in [5, 50] {
                tx.remove_range(&table, key(first)..key(first + rows)).expect("room");
                assert_eq!(tx.first(&table).expect("readable").expect("a row").0, key(first + rows));
                if rolls_back {
                    tx.rollback_to(savepoint).expect("takes back");
                    assert_eq!(tx.first(&table).expect("readable").expect("a row").0, key(first));
                    assert_eq!(tx.range(&table, ..).count() as u64, 200 - first);
                }
            }
            let other = db.begin().expect("free");
            assert_eq!(other.first(&table).expect("readable").expect("a row").0, key(100), "{options:?}");
            tx.abort();
            let later = db.begin_with(options).expect("free");
            assert_eq!(later.range(&table, ..).count(), 100, "{options:?}");
        }
    }
}

#[test]
fn older_snapshot_sees_rows_of_a_dead_range() {
    let db = in_memory();
    let table = db.create_table("t").expect("new");
    fill(&db, &table, 0..200);
    let mut snapshots = vec![(db.begin_read().expect("free"), 0)];
    for first in (0..100).step_by(10) {
        let rows = |tx: &mut Transaction| tx.remove_range(&table, key(first)..key(first + 10));
        db.transact_with(Durability::Lazy, rows).expect("room");
        snapshots.push((db.begin_read().expect("free"), first + 10));
        assert_eq!(db.begin().expect("free").range(&table, ..).count() as u64, 190 - first);
        for (snapshot, gone) in &snapshots {
            assert_eq!(snapshot.range(&table, ..).next().expect("a row").expect("readable").0, key(*gone));
            assert_eq!(snapshot.range(&table, ..).rev().count() as u64, 200 - gone);
        }
    }
}

/// A locking scan that skips rows waits for a row that another transaction has put among them, and
/// keeps others from putting one.
#[test]
fn locks_hold_in_a_dead_range() {
    let (db, table) = with_dead_range();
    let pessimistic =
        TransactionOptions::new().isolation(Isolation::Serializable).locking(Locking::Pessimistic);
    let mut writer = db.begin().expect("free");
    writer.insert(&table, key(50), "new").expect("room");
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let tx = db.begin_with(pessimistic).expect("free");
            tx.first(&table).expect("readable").expect("a row").0
        });
        std::thread::sleep(std::time::Duration::from_millis(50));
        writer.commit().expect("commits");
        assert_eq!(reader.join().expect("no panic"), key(50));
    });
    let (db, table) = with_dead_range();
    let reader = db.begin_with(pessimistic).expect("free");
    assert_eq!(reader.first(&table).expect("readable").expect("a row").0, key(100));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut tx =
                db.begin_with(TransactionOptions::new().lock_timeout(std::time::Duration::from_millis(20)))?;
            tx.insert(&table, key(50), "new")
        });
        let error = writer.join().expect("no panic").expect_err("the range is locked");
        assert_eq!(error.kind(), ErrorKind::LockTimeout);
    });
    drop(reader);
    let mut tx = db.begin().expect("free");
    tx.lock_table(&table, LockMode::Shared).expect("free");
    assert_eq!(tx.first(&table).expect("readable").expect("a row").0, key(100));
}

/// A gap that was skipped is validated, and a validation skips what has not changed.
#[test]
fn dead_range_that_was_read_is_validated() {
    for inserts in [false, true] {
        let (db, table) = with_dead_range();
        let mut reader = db.begin_with(Isolation::Serializable).expect("free");
        assert_eq!(reader.first(&table).expect("readable").expect("a row").0, key(100));
        if inserts {
            db.transact(|tx| tx.insert(&table, key(50), "new")).expect("room");
        }
        let before = db.statistics().deleted_rows_visited;
        reader.insert(&table, key(1000), "x").expect("room");
        let committed = reader.commit();
        assert_eq!(committed.is_err(), inserts, "{committed:?}");
        assert_eq!(db.statistics().deleted_rows_visited, before);
    }
}

/// Threads pop, insert, take back and scan a small table. After each step a thread compares what a
/// scan finds with single reads, which know no dead ranges.
#[test]
fn scans_beside_writers_agree_with_single_reads() {
    const KEYS: u64 = 120;
    let db = in_memory();
    let table = db.create_table("t").expect("new");
    fill(&db, &table, 0..KEYS);
    let failures = Mutex::new(Vec::new());
    let keys: Vec<[u8; 8]> = (0..KEYS).map(key).collect();
    let compare = |tx: &Transaction| -> Result<()> {
        let scanned: Model = tx.range(&table, ..).collect::<Result<_>>()?;
        let single: Result<Vec<_>> = keys.iter().map(|key| Ok((key, tx.get(&table, key)?))).collect();
        let single = single?.into_iter().filter_map(|(key, value)| Some((key.to_vec(), value?)));
        let single: Model = single.collect();
        if scanned != single {
            failures.lock().expect("no panic").push((scanned.len(), single.len()));
        }
        Ok(())
    };
    let work = |thread: u64| {
        let mut random = Random::from_seed(thread);
        for _ in 0..400 {
            let isolation = if random.below(2) == 0 { Isolation::Snapshot } else { Isolation::Serializable };
            let Ok(mut tx) =
                db.begin_with(TransactionOptions::new().isolation(isolation).durability(Durability::Lazy))
            else {
                continue;
            };
            let first = random.below(KEYS);
            let mut step = || -> Result<()> {
                match random.below(5) {
                    0 => drop(tx.remove_range(&table, key(first)..key(first + 40))?),
                    1 => {
                        (first..KEYS.min(first + 20)).try_for_each(|n| tx.insert(&table, key(n), "again"))?
                    }
                    2 => tx.insert(&table, key(first), "one")?,
                    3 => (0..20).try_for_each(|n| pop(&mut tx, &table, n % 2 == 1).map(drop))?,
                    _ => {
                        let savepoint = tx.savepoint();
                        tx.remove_range(&table, key(first)..)?;
                        compare(&tx)?;
                        tx.rollback_to(savepoint)?;
                    }
                }
                compare(&tx)
            };
            if step().is_ok() && random.below(4) > 0 {
                drop(tx.commit());
            }
        }
    };
    std::thread::scope(|scope| (0..4).for_each(|thread| drop(scope.spawn(move || work(thread)))));
    let failures = failures.into_inner().expect("no panic");
    assert!(failures.is_empty(), "rows scanned and read one by one: {failures:?}");
}
