//! Threads that start and end, hundreds of snapshots, and handles dropped in any order.

use crate::support::{in_time, rows};
use quenchdb::{Database, Durability, ErrorKind, Preset, Result, Table, Transaction};
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn builder() -> quenchdb::Builder {
    Database::builder()
        .memory_bytes(4 << 20)
        .segment_bytes(1 << 20)
        .log_bytes_max(64 << 20)
        .lab(|lab| lab.checkpoint_log_bytes = 0)
}

fn put(db: &Database, table: &Table, key: &str, value: &str) {
    db.transact(|tx| tx.insert(table, key, value)).expect("commits");
}

#[test]
fn two_thousand_threads_of_one_transaction_each() {
    let directory = tempfile::tempdir().expect("space");
    let db = builder().open(directory.path()).expect("opens");
    let table = db.create_table("t").expect("new");
    in_time("the test", 300, {
        let (db, table) = (db.clone(), table.clone());
        move || {
            for wave in 0..40u32 {
                let threads: Vec<_> = (0..50u32)
                    .map(|n| {
                        let (db, table) = (db.clone(), table.clone());
                        std::thread::spawn(move || {
                            let durability =
                                if n % 2 == 0 { Durability::BoundedLoss } else { Durability::Durable };
                            let mut tx = db.begin_with(durability).expect("free");
                            tx.insert(&table, (wave * 50 + n).to_be_bytes(), "x").expect("free row");
                            tx.commit().expect("commits");
                        })
                    })
                    .collect();
                threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
            }
        }
    });
    assert_eq!(rows(&db, "t").len(), 2000);
    assert_eq!(db.statistics().open_snapshots, 0);
}

#[test]
fn three_hundred_open_snapshots_each_see_their_moment() {
    let db = builder().open_in_memory().expect("opens");
    let table = db.create_table("t").expect("new");
    let mut open = Vec::new();
    for i in 0..300u32 {
        put(&db, &table, "a", &i.to_string());
        match db.begin_read() {
            Ok(snapshot) => open.push((i, snapshot)),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
                break;
            }
        }
    }
    assert!(open.len() >= 200, "only {} snapshots", open.len());
    for (i, snapshot) in &open {
        assert_eq!(snapshot.get(&table, "a").expect("readable"), Some(i.to_string().into_bytes()));
    }
    let transactions: Vec<Result<Transaction>> = (0..100).map(|_| db.begin()).collect();
    assert!(transactions.iter().flatten().count() > 0);
    drop((open, transactions));
    assert_eq!(db.statistics().open_snapshots, 0);
    put(&db, &table, "a", "end");
}

#[test]
fn handles_may_be_dropped_in_any_order() {
    in_time("the test", 300, || {
        for order in 0..24 {
            let directory = tempfile::tempdir().expect("space");
            let db = builder().open(directory.path()).expect("opens");
            let table = db.create_table("t").expect("new");
            put(&db, &table, "a", "1");
            let snapshot = db.begin_read().expect("free");
            let mut tx = db.begin().expect("free");
            tx.insert(&table, "b", "2").expect("free row");
            let mut other = db.begin().expect("free");
            other.insert(&table, "c", "3").expect("free row");
            let handle = other.commit_async().expect("commits");
            let mut things: Vec<Option<Box<dyn std::any::Any>>> = vec![
                Some(Box::new(db)),
                Some(Box::new(snapshot)),
                Some(Box::new(tx)),
                Some(Box::new((table, handle))),
            ];
            let mut left: Vec<usize> = (0..4).collect();
            let mut rest = order;
            while !left.is_empty() {
                let next = left.remove(rest % left.len());
                rest /= left.len() + 1;
                things[next] = None;
            }
            let db =
                builder().open(directory.path()).unwrap_or_else(|error| panic!("order {order}: {error}"));
            let keys: Vec<_> = rows(&db, "t").into_keys().collect();
            assert_eq!(keys, [b"a", b"c"], "order {order}");
        }
    });
}

/// Regression: the maintenance thread held the database for a moment. If the last handle was
/// dropped then, the drop returned while closing continued in that thread. An open directly after
/// was refused as `Busy`.
#[test]
fn a_database_is_closed_when_the_last_drop_returns() {
    let storage = Arc::new(quenchdb::internals::device::memory::MemoryStorage::new());
    for round in 0..200u32 {
        let db = builder()
            .storage(storage.clone())
            .open("x")
            .unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert!(db.recovery().clean, "round {round}");
        let table = db.table_or_create("t").expect("there");
        db.transact(|tx| tx.insert(&table, round.to_be_bytes(), "x")).expect("commits");
    }
}

/// All that a program may still have when another handle has closed the database.
#[test]
fn a_closed_database_leaves_its_directory_whatever_lives_on() {
    in_time("the test", 300, || {
        let directory = tempfile::tempdir().expect("space");
        let db = builder().monitor(true).open(directory.path()).expect("opens");
        let table = db.create_table("t").expect("new");
        put(&db, &table, "a", "1");
        db.transact(|tx| tx.insert(&table, "large", vec![3; 100_000])).expect("commits");
        let (snapshot, ranged, read) = (db.begin_read(), db.begin_read(), db.begin_read());
        let (snapshot, ranged, read) = (snapshot.expect("free"), ranged.expect("free"), read.expect("free"));
        let mut range = ranged.range(&table, ..);
        let mut value = read.read_value(&table, "large").expect("readable").expect("there");
        let mut changes = db.changes(snapshot.csn()).expect("begins");
        let mut tx = db.begin().expect("free");
        tx.insert(&table, "b", "2").expect("free row");
        let mut lazy = db.begin_with(Durability::Lazy).expect("free");
        lazy.insert(&table, "c", "3").expect("free row");
        let (handle, clone) = (lazy.commit_async().expect("commits"), db.clone());
        db.close().expect("closes though a transaction is open");

        let next = builder().open(directory.path()).expect("free");
        assert!(next.recovery().clean);
        handle.wait().expect("closing made it durable");
        let refused = |error: Option<quenchdb::Error>, what: &str| {
            let error = error.unwrap_or_else(|| panic!("{what}: the database is closed"));
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{what}: {error}");
            assert!(error.to_string().contains("closed"), "{what}: {error}");
        };
        refused(snapshot.get(&table, "a").err(), "a snapshot");
        refused(range.next().and_then(Result::err), "a range");
        refused(tx.get(&table, "a").err(), "a read");
        refused(tx.insert(&table, "d", "4").err(), "a write");
        refused(tx.commit().err(), "a commit");
        refused(clone.begin().err(), "a handle that begins");
        refused(clone.begin_read().err(), "a handle that reads");
        refused(clone.table("t").err(), "a handle that looks for a table");
        refused(clone.flush().err(), "a handle that flushes");
        refused(clone.checkpoint().err(), "a handle that makes a checkpoint");
        refused(clone.verify(None).err(), "a handle that verifies");
        assert!(changes.next().is_none(), "a feed ends");
        assert_eq!(clone.health().state, quenchdb::HealthState::Failed);
        if let Err(error) = value.read_at(0, &mut [0; 10]) {
            refused(Some(error), "a value");
        }
        put(&next, &next.table("t").expect("there"), "e", "5");
        drop((range, value, changes, clone, snapshot));
        assert!(Database::ask_statistics(directory.path()).is_ok(), "the socket is of the next one");
        assert_eq!(rows(&next, "t").len(), 4);
        next.close().expect("closes");
    });
}

/// Regression: a snapshot that outlived its database read blocks that the next open had reused. The
/// error called the database damaged and advised to restore a backup.
#[test]
fn a_snapshot_that_outlives_its_database_sees_no_damage() {
    const ROWS: u32 = 8_000;
    let value = |fill: u32, n: u32| (0..300u32).map(|at| (fill + n * at) as u8).collect::<Vec<u8>>();
    let storage = Arc::new(quenchdb::internals::device::memory::MemoryStorage::new());
    let open = || builder().storage(storage.clone()).open("x").expect("free");
    let change = |db: &Database, fill: u32| {
        let table = db.table_or_create("t").expect("there");
        for first in (0..ROWS).step_by(100) {
            let rows = first..first + 100;
            db.transact(|tx| {
                rows.clone().try_for_each(|n| tx.insert(&table, n.to_be_bytes(), value(fill, n)))
            })
            .expect("commits");
        }
    };
    let db = open();
    change(&db, 1);
    db.close().expect("closes");
    // No page is in memory yet.
    let db = open();
    let (table, snapshot) = (db.table("t").expect("there"), db.begin_read().expect("free"));
    drop(db);
    let db = open();
    for fill in 2..4 {
        change(&db, fill);
        db.checkpoint().expect("works");
    }
    let mut refused = 0;
    for n in (0..ROWS).step_by(40) {
        match snapshot.get(&table, n.to_be_bytes()) {
            Ok(found) => assert_eq!(found, Some(value(1, n)), "{n}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{n}: {error}");
                assert!(error.to_string().contains("the database was closed"), "{n}: {error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 0, "no block was used again");
}

#[test]
fn closing_while_others_commit_keeps_what_was_acknowledged() {
    in_time("the test", 300, || {
        for round in 0..6 {
            let directory = tempfile::tempdir().expect("space");
            let db = builder()
                .preset(quenchdb::Preset::ALL[round % quenchdb::Preset::ALL.len()])
                .open(directory.path())
                .expect("opens");
            let table = db.create_table("t").expect("new");
            let counters: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(0)).collect();
            std::thread::scope(|scope| {
                for (thread, counter) in counters.iter().enumerate() {
                    let (db, table) = (db.clone(), table.clone());
                    scope.spawn(move || {
                        for n in 1.. {
                            let done = db.begin().and_then(|mut tx| {
                                tx.insert(&table, [thread as u8], u64::to_be_bytes(n))?;
                                if n % 3 == 0 { tx.commit_async()?.wait() } else { tx.commit().map(drop) }
                            });
                            match done {
                                Ok(()) => counter.store(n, Ordering::SeqCst),
                                Err(error) => {
                                    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
                                    return;
                                }
                            }
                        }
                    });
                }
                let db = db.clone();
                scope.spawn(move || {
                    std::thread::sleep(Duration::from_millis(30));
                    db.close().expect("closes");
                });
            });
            drop((db, table));
            let db = builder().open(directory.path()).expect("opens");
            assert!(db.recovery().clean, "round {round}");
            let found = rows(&db, "t");
            for (thread, counter) in counters.iter().enumerate() {
                let told = counter.load(Ordering::SeqCst);
                let there = found
                    .get(&vec![thread as u8])
                    .map_or(0, |v| u64::from_be_bytes(v[..].try_into().expect("eight bytes")));
                assert_eq!(there, told, "round {round}, thread {thread}");
            }
        }
    });
}

#[test]
fn a_database_may_be_dropped_beside_an_open_transaction() {
    in_time("the test", 300, || {
        let directory = tempfile::tempdir().expect("space");
        for round in 0..10 {
            let db = builder().open(directory.path()).expect("opens");
            let table = db.table_or_create("t").expect("there");
            let mut tx = db.begin().expect("free");
            tx.insert(&table, "open", "x").expect("free row");
            let dropper = std::thread::spawn(move || drop(db));
            if round % 2 == 0 {
                dropper.join().expect("no panic");
                assert!(tx.commit().is_err(), "the database is gone");
            } else {
                let _ = tx.get(&table, "open");
                drop(tx);
                dropper.join().expect("no panic");
            }
        }
        let db = builder().open(directory.path()).expect("opens");
        assert!(rows(&db, "t").is_empty());
    });
}

#[test]
fn a_panic_in_a_closure_aborts_its_transaction_and_nothing_else() {
    let db = builder().open_in_memory().expect("opens");
    let table = db.create_table("t").expect("new");
    put(&db, &table, "other", "x");
    let stop = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (db_too, table_too, stop_too) = (db.clone(), table.clone(), stop.clone());
        scope.spawn(move || {
            while !stop_too.load(Ordering::Relaxed) {
                put(&db_too, &table_too, "other", "x");
            }
        });
        for _ in 0..20 {
            let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                db.transact(|tx| -> Result<()> {
                    tx.insert(&table, "mine", "x")?;
                    std::panic::resume_unwind(Box::new("as if the user's code had panicked"))
                })
            }));
            assert!(panicked.is_err());
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(rows(&db, "t").into_keys().collect::<Vec<_>>(), [b"other"]);
    put(&db, &table, "mine", "y");
    assert_eq!(db.statistics().open_snapshots, 0);
}

/// Regression: transactions that outlived their database extended the page file of its next owner.
/// This undid the owner's truncation. On file systems that cannot reserve space, it also overwrote
/// the owner's data with zeros.
#[test]
fn a_transaction_of_a_closed_database_writes_to_no_file() {
    let directory = tempfile::tempdir().expect("space");
    let db = builder().open(directory.path()).expect("opens");
    let table = db.create_table("t").expect("new");
    put(&db, &table, "a", "first");
    // No transaction writes so much that chunks go to the log before its commit.
    let mut stale: Vec<_> = (0..40).map(|_| db.begin().expect("free")).collect();
    db.close().expect("closes");
    let next = builder().open(directory.path()).expect("the transactions do not keep it");
    let pages = directory.path().join("pages/data");
    let length = || std::fs::metadata(&pages).expect("there").len();
    let before = length();
    let insert = |(number, tx): (usize, &mut Transaction)| {
        (0..50u8).try_for_each(|row| tx.insert(&table, [number as u8, row], [1; 1000]))
    };
    let results: Vec<_> = stale.iter_mut().enumerate().map(insert).collect();
    assert_eq!(length(), before);
    for result in results {
        assert_eq!(result.expect_err("closed").kind(), ErrorKind::InvalidArgument);
    }
    drop(stale);
    assert_eq!(rows(&next, "t").len(), 1);
    next.close().expect("closes");
}

/// Regression: an async task may own the database of its commit and end with it. The thread that
/// wrote the log woke the task, closed the database, and waited for its own end.
#[test]
fn a_waker_may_have_the_last_handle() {
    struct Owns(Mutex<Option<Database>>);
    impl std::task::Wake for Owns {
        fn wake(self: Arc<Self>) {
            drop(self.0.lock().expect("no panic").take());
        }
    }
    // With the other presets nearly every commit is durable when the call returns.
    for preset in [Preset::Group, Preset::Queued, Preset::Pipelined, Preset::Autonomous, Preset::Restricted] {
        let directory = tempfile::tempdir().expect("space");
        let open = || builder().preset(preset).open(directory.path());
        let db = open().expect("opens");
        let table = db.create_table("t").expect("new");
        // Until a commit was not durable at once.
        loop {
            let mut tx = db.begin().expect("free");
            tx.insert(&table, "a", "1").expect("free row");
            let mut handle = tx.commit_async().expect("commits");
            let waker = std::task::Waker::from(Arc::new(Owns(Mutex::new(Some(db.clone())))));
            let polled = std::pin::Pin::new(&mut handle).poll(&mut std::task::Context::from_waker(&waker));
            if polled.is_pending() {
                break;
            }
        }
        drop((db, table));
        let begun = std::time::Instant::now();
        // The waker closes the database when it is called.
        while let Err(error) = open() {
            assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
            assert!(begun.elapsed() < Duration::from_secs(30), "{preset}: {error}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
