//! Serializable transactions: what is read counts until the commit, in the order of CSNs.

use crate::support::in_time;
use crate::support::test_database::TestDatabase;
use quenchdb::internals::base::depth::depth;
use quenchdb::{
    Database, Durability, Error, ErrorKind, Isolation, Locking, Result, Settings, Table, Transaction,
    TransactionOptions,
};
use std::sync::Barrier;
use std::time::Duration;

pub fn pessimistic() -> TransactionOptions {
    TransactionOptions::new().isolation(Isolation::Serializable).locking(Locking::Pessimistic)
}

pub fn optimistic() -> TransactionOptions {
    TransactionOptions::new().isolation(Isolation::Serializable)
}

pub fn open(rows: &[(&str, &str)]) -> (Database, Table) {
    let db = Settings::default().with(|s| s.lock_wait = Duration::from_secs(20)).open_in_memory();
    let table = db.create_table("t").expect("new");
    for (key, value) in rows {
        db.transact(|tx| tx.insert(&table, key, value)).expect("commits");
    }
    (db, table)
}

pub fn kind<T>(result: Result<T>) -> ErrorKind {
    result.map(drop).expect_err("refused").kind()
}

#[test]
fn a_gap_in_a_range_is_validated() {
    let (db, table) = open(&[("b", "0"), ("f", "0")]);
    for (key, conflicts) in [("a", false), ("c", true), ("e", true), ("z", false)] {
        for back in [false, true] {
            let mut tx = db.begin_with(optimistic()).expect("begins");
            let range = tx.range(&table, "b".."f");
            assert_eq!(if back { range.rev().count() } else { range.count() }, 1);
            tx.insert(&table, "result", "1").expect("free");
            db.transact(|tx| tx.insert(&table, key, "1")).expect("commits");
            assert_eq!(tx.commit().is_err(), conflicts, "{key}, {back}");
            db.transact(|tx| tx.remove(&table, key)).expect("commits");
        }
    }
    // A removed row counts, too.
    let mut tx = db.begin_with(optimistic()).expect("begins");
    assert_eq!(tx.range(&table, "b".."f").count(), 1);
    tx.insert(&table, "result", "1").expect("free");
    db.transact(|tx| tx.remove(&table, "b")).expect("commits");
    assert_eq!(kind(tx.commit()), ErrorKind::Conflict);
    assert!(db.statistics().validation_range_failures > 0);
}

/// The range ends at the last row that the caller took.
#[test]
fn rows_behind_the_last_one_taken_are_not_validated() {
    let (db, table) = open(&[("b", "0"), ("d", "0"), ("f", "0")]);
    let mut tx = db.begin_with(optimistic()).expect("begins");
    assert!(tx.range(&table, ..).next().expect("a row").is_ok());
    tx.insert(&table, "result", "1").expect("free");
    db.transact(|tx| tx.insert(&table, "c", "1")).expect("commits");
    tx.commit().expect("its reads are as they were");
    let mut tx = db.begin_with(optimistic()).expect("begins");
    assert!(tx.range(&table, ..).next().expect("a row").is_ok());
    tx.insert(&table, "result", "1").expect("free");
    db.transact(|tx| tx.insert(&table, "a", "1")).expect("commits");
    assert_eq!(kind(tx.commit()), ErrorKind::Conflict, "before the row");
}

/// A transaction that wrote nothing has its place at its snapshot, and one that is declared
/// read-only validates nothing.
#[test]
fn readers_never_conflict() {
    let (db, table) = open(&[("a", "0")]);
    for options in [optimistic(), optimistic().read_only()] {
        let tx = db.begin_with(options).expect("begins");
        assert!(tx.get(&table, "a").expect("reads").is_some());
        assert_eq!(tx.range(&table, ..).count(), 1);
        db.transact(|tx| tx.insert(&table, "a", "1")).expect("commits");
        db.transact(|tx| tx.insert(&table, "b", "1").and_then(|()| tx.remove(&table, "b")).map(drop))
            .expect("commits");
        tx.commit().expect("commits");
    }
}

/// Only one of two validating transactions whose reads exclude each other commits, and the other
/// one commits when it is repeated.
#[test]
fn optimistic_transactions_have_no_write_skew() {
    in_time("the test", 120, || {
        let (db, table) = open(&[]);
        for round in 0..depth(4_000) {
            let (x, y) = (format!("x{round}"), format!("y{round}"));
            let both = Barrier::new(2);
            let failed: usize = std::thread::scope(|scope| {
                let threads = [(&x, &y), (&y, &x)].map(|(read, write)| {
                    let (db, table, both) = (&db, &table, &both);
                    scope.spawn(move || {
                        let options = optimistic().durability(Durability::Lazy);
                        let mut tx = db.begin_with(options).expect("begins");
                        assert_eq!(tx.get(table, read).expect("reads"), None);
                        tx.insert(table, write, "1").expect("free");
                        both.wait();
                        match tx.commit() {
                            Ok(_) => 0,
                            Err(error) => {
                                assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
                                1
                            }
                        }
                    })
                });
                threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
            });
            assert_eq!(failed, 1, "round {round}");
        }
        let failures = db.statistics();
        assert!(failures.validation_key_failures > 0 && failures.validation_range_failures == 0);
        assert!(db.locks().is_empty());
    });
}

/// A transaction that read more than it can remember exactly still finds what changed.
#[test]
fn reads_beyond_memory_are_remembered_as_one_interval() {
    let (db, table) = open(&[]);
    let key = |n: u32| [&[7; 200][..], &n.to_be_bytes()].concat();
    let begin = || db.begin_with(optimistic().durability(Durability::Lazy)).expect("begins");
    for changed in [Some(0), Some(9_000), None] {
        let mut tx = begin();
        for n in 0..10_000 {
            tx.get(&table, key(n)).expect("reads");
        }
        tx.insert(&table, "result", "1").expect("free");
        let other = changed.map_or_else(|| key(10_001), key);
        db.transact_with(Durability::Lazy, |tx| tx.insert(&table, &other, "1")).expect("commits");
        assert_eq!(tx.commit().is_err(), changed.is_some(), "{changed:?}");
    }
}

/// Regression: a range that ended just before a key that was read took the key out of the interval
/// that had replaced the exact reads.
#[test]
fn a_later_range_does_not_shorten_the_interval() {
    let (db, table) = open(&[]);
    let key = |n: u32| [&[7; 200][..], &n.to_be_bytes()].concat();
    db.transact(|tx| tx.insert(&table, key(5), "1")).expect("commits");
    let mut tx = db.begin_with(optimistic().durability(Durability::Lazy)).expect("begins");
    for n in 0..10_000 {
        tx.get(&table, key(n)).expect("reads");
    }
    assert_eq!(tx.range(&table, key(0)..key(9_999)).count(), 1);
    assert_eq!(tx.range(&table, key(0)..key(9_999)).rev().count(), 1);
    tx.insert(&table, "result", "1").expect("free");
    db.transact(|tx| tx.insert(&table, key(9_999), "1")).expect("commits");
    assert_eq!(kind(tx.commit()), ErrorKind::Conflict);
}

/// An answer is an acknowledgment, also as an error of the closure.
#[test]
fn transact_returns_an_error_once_its_reason_is_durable() {
    use quenchdb::internals::device::simulated::CrashKind;
    let settings = Settings::default().with(|s| s.loss_window = Duration::from_secs(60));
    let (disk, db) = settings.create(3);
    let table = db.create_table("names").expect("new");
    let mut tx = db.begin_with(Durability::Lazy).expect("begins");
    tx.insert(&table, "taken", "1").expect("free");
    tx.commit().expect("commits");
    let refused = db.transact(|tx| match tx.get(&table, "taken")? {
        Some(_) => Err(Error::new(ErrorKind::AlreadyExists, "the name is taken")),
        None => Ok(()),
    });
    assert_eq!(kind(refused), ErrorKind::AlreadyExists);
    let (_, after) = settings.crash(&disk, CrashKind::PowerCut, 5);
    let table = after.table("names").expect("there");
    assert!(after.begin().expect("begins").get(&table, "taken").expect("reads").is_some());
}

/// A commit beneath a change in progress is found: the newest stamp alone does not say what has
/// changed.
#[test]
fn a_validation_looks_beneath_changes_in_progress() {
    let (db, table) = open(&[("a", "0"), ("b", "0")]);
    let mut tx = db.begin_with(optimistic()).expect("begins");
    tx.get(&table, "a").expect("reads");
    assert_eq!(tx.range(&table, "b"..="b").count(), 1);
    tx.insert(&table, "result", "1").expect("free");
    db.transact(|tx| tx.insert(&table, "a", "1")).expect("commits");
    let mut later = db.begin().expect("begins");
    later.insert(&table, "a", "2").expect("free");
    assert_eq!(kind(tx.commit()), ErrorKind::Conflict);
    assert_eq!(db.statistics().validation_key_failures, 1);
    later.commit().expect("commits");
}

/// That a removal found no row is an answer: a row that appears afterwards is a conflict, or waits.
#[test]
fn a_removal_that_finds_nothing_is_a_read() {
    let (db, table) = open(&[]);
    let mut tx = db.begin_with(optimistic()).expect("begins");
    assert!(!tx.remove(&table, "a").expect("no row"));
    tx.insert(&table, "result", "1").expect("free");
    db.transact(|tx| tx.insert(&table, "a", "1")).expect("commits");
    assert_eq!(kind(tx.commit()), ErrorKind::Conflict);
    let mut tx = db.begin_with(pessimistic()).expect("begins");
    assert!(!tx.remove(&table, "b").expect("no row"));
    let mut other = db.begin_with(TransactionOptions::new().no_wait()).expect("begins");
    assert_eq!(kind(other.insert(&table, "b", "1")), ErrorKind::LockTimeout);
}

/// A rollback to a savepoint of an optimistic transaction keeps the rows as reads.
#[test]
fn rows_taken_back_are_validated() {
    let (db, table) = open(&[("a", "0")]);
    let mut tx = db.begin_with(optimistic()).expect("begins");
    let savepoint = tx.savepoint();
    tx.insert(&table, "a", "1").expect("free");
    tx.rollback_to(savepoint).expect("rolls back");
    tx.insert(&table, "result", "1").expect("free");
    db.transact(|tx| tx.insert(&table, "a", "2")).expect("commits");
    assert_eq!(kind(tx.commit()), ErrorKind::Conflict);
}

#[test]
fn increments_by_locked_reads_are_not_lost() {
    in_time("the test", 120, || {
        let (db, table) = open(&[("a", "0")]);
        let rounds = depth(4_000);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        let add = |tx: &mut Transaction| -> Result<()> {
                            let old = tx.get(&table, "a")?.expect("there");
                            let old: u64 = String::from_utf8(old).expect("text").parse().expect("a number");
                            tx.insert(&table, "a", (old + 1).to_string())
                        };
                        let options = pessimistic().durability(Durability::Lazy);
                        while let Err(error) = db.transact_with(options, add) {
                            assert!(error.is_retryable(), "{error}");
                        }
                    }
                });
            }
        });
        let value = db.begin().expect("begins").get(&table, "a").expect("reads").expect("there");
        assert_eq!(String::from_utf8(value).expect("text"), (3 * rounds).to_string());
    });
}

/// Each reader of a row whose values count up returns the value of the newest writer with a lower
/// CSN. So every snapshot, checkpoint and backup is a state of a serial execution.
#[test]
fn the_order_of_csns_is_the_serial_order() {
    in_time("the test", 300, || {
        for options in [optimistic(), pessimistic()] {
            let options = options.durability(Durability::Lazy);
            let (db, table) = open(&[("x", "0")]);
            let rounds = depth(40_000) as u64;
            let (mut written, read) = std::thread::scope(|scope| {
                let (db, table) = (&db, &table);
                let writer = scope.spawn(move || {
                    let mut written = Vec::new();
                    for n in 1..=rounds {
                        let mut tx = db.begin_with(Durability::Lazy).expect("begins");
                        tx.insert(table, "x", n.to_string()).expect("granted");
                        written.push((tx.commit().expect("commits"), n));
                    }
                    written
                });
                let readers: Vec<_> = (0..2)
                    .map(|reader: u32| {
                        scope.spawn(move || {
                            let mut read = Vec::new();
                            for _ in 0..rounds {
                                let mut tx = db.begin_with(options).expect("begins");
                                let mut once = || -> Result<u64> {
                                    let value = tx.get(table, "x")?.expect("there");
                                    tx.insert(table, format!("y{reader}"), &value)?;
                                    Ok(String::from_utf8(value).expect("text").parse().expect("a number"))
                                };
                                match once().and_then(|value| tx.commit().map(|csn| (csn, value))) {
                                    Ok(done) => read.push(done),
                                    Err(error) => assert!(error.is_retryable(), "{error}"),
                                }
                            }
                            read
                        })
                    })
                    .collect();
                let read: Vec<_> =
                    readers.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect();
                (writer.join().expect("no panic"), read)
            });
            written.sort_unstable();
            assert!(!read.is_empty());
            for (csn, value) in read {
                let newest = written.partition_point(|(other, _)| *other < csn);
                let expected = newest.checked_sub(1).map_or(0, |at| written[at].1);
                assert_eq!(value, expected, "{options:?}: CSN {csn}");
            }
        }
    });
}
