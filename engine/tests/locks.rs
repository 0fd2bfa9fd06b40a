//! Locks as users see them: waiting, deadlocks, timeouts, lock modes, refused options, reports.

use crate::serializable::{kind, open, optimistic, pessimistic};
use crate::support::in_time;
use crate::support::test_database::TestDatabase;
use quenchdb::internals::base::depth::depth;
use quenchdb::internals::base::random::Random;
use quenchdb::{
    Database, Durability, ErrorKind, Isolation, LockMode, LockRelease, LockedKeys, Locking, Result, Settings,
    Transaction, TransactionOptions,
};
use std::io::Read;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Returns once as many requests wait as `count` says.
fn await_waiting(db: &Database, count: usize) {
    let began = Instant::now();
    while db.locks().iter().filter(|lock| !lock.waits_for.is_empty()).count() != count {
        assert!(began.elapsed() < Duration::from_secs(20), "not {count} requests wait");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn contradictory_options_are_refused_with_the_reason() {
    let (db, _) = open(&[]);
    let all = [
        (pessimistic().lock_timeout(Duration::ZERO), "no_wait"),
        (pessimistic().lock_timeout(Duration::from_secs(1)).no_wait(), "contradict"),
        (pessimistic().read_only(), "needs no locks"),
        (optimistic().lock_release(LockRelease::Commit), "pessimistic"),
        (pessimistic().lock_release(LockRelease::Commit).durability(Durability::Lazy), "durable"),
        (pessimistic().lock_release(LockRelease::Commit).durability(Durability::BoundedLoss), "durable"),
    ];
    for (options, reason) in all {
        let error = db.begin_with(options).map(drop).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{options:?}");
        assert!(error.to_string().contains(reason), "{error}");
        let error = db.transact_with(options, |_| -> quenchdb::Result<()> { Ok(()) }).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{options:?}");
    }
}

#[test]
fn a_late_release_refuses_an_asynchronous_commit() {
    let (db, table) = open(&[]);
    let mut tx = db.begin_with(pessimistic().lock_release(LockRelease::Commit)).expect("begins");
    tx.insert(&table, "a", "1").expect("free");
    assert_eq!(kind(tx.commit_async()), ErrorKind::InvalidArgument);
    assert_eq!(db.begin().expect("begins").get(&table, "a").expect("reads"), None, "it was aborted");
}

#[test]
fn a_read_only_transaction_refuses_writes_and_locks() {
    let (db, table) = open(&[("a", "1")]);
    let mut tx = db.begin_with(optimistic().read_only()).expect("begins");
    assert_eq!(kind(tx.insert(&table, "b", "2")), ErrorKind::InvalidArgument);
    assert_eq!(kind(tx.remove(&table, "a")), ErrorKind::InvalidArgument);
    assert_eq!(kind(tx.get_for_update(&table, "a")), ErrorKind::InvalidArgument);
    assert_eq!(kind(tx.get_for_share(&table, "a")), ErrorKind::InvalidArgument);
    assert_eq!(kind(tx.lock_table(&table, LockMode::Shared)), ErrorKind::InvalidArgument);
    let long = [7; 100_000];
    assert_eq!(kind(tx.insert(&table, "c", long)), ErrorKind::InvalidArgument);
    assert_eq!(tx.get(&table, "a").expect("reads"), Some(b"1".to_vec()));
    tx.commit().expect("commits");
}

#[test]
fn a_table_is_locked_shared_or_exclusive_only() {
    let (db, table) = open(&[]);
    let mut tx = db.begin_with(pessimistic()).expect("begins");
    for mode in [LockMode::Mark, LockMode::Update] {
        assert_eq!(kind(tx.lock_table(&table, mode)), ErrorKind::InvalidArgument);
    }
}

#[test]
fn no_wait_fails_at_once_and_names_table_and_key() {
    let (db, table) = open(&[("a", "1")]);
    let mut holder = db.begin().expect("begins");
    holder.insert(&table, "a", "2").expect("free");
    for options in [TransactionOptions::new().no_wait(), pessimistic().no_wait(), optimistic().no_wait()] {
        let mut tx = db.begin_with(options).expect("begins");
        let began = Instant::now();
        let error = tx.insert(&table, "a", "3").expect_err("held");
        assert!(error.kind() == ErrorKind::LockTimeout && error.is_retryable(), "{error}");
        assert!(
            error.to_string().contains("key \"a\"") && error.to_string().contains("table `t`"),
            "{error}"
        );
        assert!(began.elapsed() < Duration::from_secs(5));
    }
    assert_eq!(db.statistics().lock_timeouts, 3);
}

#[test]
fn a_lock_timeout_ends_the_wait_of_optimistic_transactions_too() {
    let (db, table) = open(&[("a", "1")]);
    let mut holder = db.begin().expect("begins");
    holder.insert(&table, "a", "2").expect("free");
    std::thread::scope(|scope| {
        for options in [TransactionOptions::new(), pessimistic()] {
            let (db, table) = (&db, &table);
            scope.spawn(move || {
                let limit = Duration::from_millis(30);
                let mut tx = db.begin_with(options.lock_timeout(limit)).expect("begins");
                let began = Instant::now();
                let error = tx.insert(table, "a", "3").expect_err("held");
                assert_eq!(error.kind(), ErrorKind::LockTimeout, "{error}");
                assert!(began.elapsed() >= limit);
            });
        }
    });
}

/// A pessimistic reader continues with the new value when the writer has committed.
#[test]
fn a_locking_read_waits_and_sees_the_newest_value() {
    let (db, table) = open(&[("a", "1")]);
    let mut writer = db.begin().expect("begins");
    writer.insert(&table, "a", "2").expect("free");
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let tx = db.begin_with(pessimistic()).expect("begins");
            let read = tx.get(&table, "a").expect("granted");
            tx.commit().expect("commits");
            read
        });
        await_waiting(&db, 1);
        writer.commit().expect("commits");
        assert_eq!(reader.join().expect("no panic"), Some(b"2".to_vec()));
    });
}

/// A large value that is opened under a lock is read piece by piece, and stays as it is.
#[test]
fn a_value_opened_under_a_lock_cannot_be_replaced() {
    let (db, table) = open(&[]);
    let value: Vec<u8> = (0..300_000u32).map(|n| (n % 251) as u8).collect();
    db.transact(|tx| tx.insert(&table, "large", &value)).expect("commits");
    let tx = db.begin_with(pessimistic()).expect("begins");
    let mut reader = tx.read_value(&table, "large").expect("granted").expect("there");
    let mut writer = db.begin_with(TransactionOptions::new().no_wait()).expect("begins");
    assert_eq!(kind(writer.insert(&table, "large", "small")), ErrorKind::LockTimeout);
    let mut read = Vec::new();
    reader.read_to_end(&mut read).expect("reads");
    assert!(read == value, "{} bytes", read.len());
    assert!(tx.read_value(&table, "absent").expect("granted").is_none());
    assert_eq!(kind(writer.insert(&table, "absent", "1")), ErrorKind::LockTimeout);
}

#[test]
fn shared_locks_let_readers_in_and_writers_wait() {
    let (db, table) = open(&[("a", "1")]);
    let first = db.begin_with(pessimistic()).expect("begins");
    let second = db.begin_with(pessimistic()).expect("begins");
    for tx in [&first, &second] {
        assert_eq!(tx.get(&table, "a").expect("shared"), Some(b"1".to_vec()));
    }
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut tx = db.begin().expect("begins");
            tx.insert(&table, "a", "2").expect("granted");
            tx.commit().expect("commits");
        });
        await_waiting(&db, 1);
        // A new reader queues behind the writer.
        let reader = scope.spawn(|| {
            let tx = db.begin_with(pessimistic()).expect("begins");
            tx.get(&table, "a").expect("granted")
        });
        await_waiting(&db, 2);
        first.commit().expect("commits");
        await_waiting(&db, 2);
        second.commit().expect("commits");
        writer.join().expect("no panic");
        assert_eq!(reader.join().expect("no panic"), Some(b"2".to_vec()));
    });
    assert!(db.locks().is_empty());
}

#[test]
fn an_interval_ends_at_the_row_that_was_returned() {
    let (db, table) = open(&[("b", "1"), ("d", "1"), ("f", "1")]);
    let reader = db.begin_with(pessimistic()).expect("begins");
    let first = reader.range(&table, ..).next().expect("a row").expect("reads");
    assert_eq!(first.0, b"b");
    let insert = |key: &str| {
        let mut tx = db.begin_with(TransactionOptions::new().no_wait()).expect("begins");
        tx.insert(&table, key, "2").and_then(|()| tx.commit())
    };
    // Before the row, and the row itself, are locked. Behind the row nothing is.
    assert_eq!(kind(insert("a")), ErrorKind::LockTimeout);
    assert_eq!(kind(insert("b")), ErrorKind::LockTimeout);
    for key in ["c", "d", "z"] {
        insert(key).expect("not locked");
    }
    drop(reader);
    let reader = db.begin_with(pessimistic()).expect("begins");
    assert_eq!(reader.range(&table, "d".."f").count(), 1);
    for (key, locked) in [("c", false), ("d", true), ("e", true), ("ez", true), ("f", false)] {
        assert_eq!(insert(key).is_err(), locked, "{key}");
    }
}

#[test]
fn an_empty_range_is_locked_too() {
    let (db, table) = open(&[("a", "1"), ("z", "1")]);
    for back in [false, true] {
        let reader = db.begin_with(pessimistic()).expect("begins");
        let mut range = reader.range(&table, "c".."f");
        assert!(if back { range.next_back() } else { range.next() }.is_none());
        drop(range);
        let insert = |key: &str| {
            let mut tx = db.begin_with(TransactionOptions::new().no_wait()).expect("begins");
            tx.insert(&table, key, "2").map(|()| tx.abort())
        };
        for (key, locked) in [("b", false), ("c", true), ("eee", true), ("f", false)] {
            assert_eq!(insert(key).is_err(), locked, "{key} from {back}");
        }
    }
}

/// Both read, then both want to change the row: one of them is aborted, the other one continues.
#[test]
fn of_two_upgrades_one_is_aborted() {
    let (db, table) = open(&[("a", "0")]);
    let both = Barrier::new(2);
    let outcomes: Vec<Result<(), ErrorKind>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut tx = db.begin_with(pessimistic()).expect("begins");
                    tx.get(&table, "a").expect("shared");
                    both.wait();
                    tx.insert(&table, "a", "1")
                        .and_then(|()| tx.commit().map(drop))
                        .map_err(|error| error.kind())
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let ends = [Ok(()), Err(ErrorKind::Deadlock)];
    assert!(outcomes == ends || outcomes == [ends[1], ends[0]], "{outcomes:?}");
    assert_eq!(db.statistics().deadlocks, 1);
}

/// An update lock is a promise to change: of two transactions with that promise one waits, and none
/// is aborted.
#[test]
fn update_locks_prevent_deadlocks_of_upgrades() {
    let (db, table) = open(&[("a", "0")]);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let mut tx = db.begin_with(pessimistic()).expect("begins");
                    let old = tx.get_for_update(&table, "a").expect("granted").expect("there");
                    let old: u32 = std::str::from_utf8(&old).expect("text").parse().expect("a number");
                    tx.insert(&table, "a", (old + 1).to_string()).expect("upgraded");
                    tx.commit().expect("commits");
                }
            });
        }
    });
    let db_value = db.begin().expect("begins").get(&table, "a").expect("reads");
    assert_eq!(db_value, Some(b"200".to_vec()));
    assert_eq!(db.statistics().deadlocks, 0);
}

#[test]
fn a_shared_lock_is_compatible_with_an_update_lock() {
    let (db, table) = open(&[("a", "0")]);
    let mut writer = db.begin_with(pessimistic().no_wait()).expect("begins");
    writer.get_for_update(&table, "a").expect("free");
    let reader = db.begin_with(pessimistic().no_wait()).expect("begins");
    reader.get(&table, "a").expect("shared beside update");
    assert_eq!(kind(writer.insert(&table, "a", "1")), ErrorKind::LockTimeout);
    let mut other = db.begin_with(pessimistic().no_wait()).expect("begins");
    assert_eq!(kind(other.get_for_update(&table, "a")), ErrorKind::LockTimeout);
    reader.commit().expect("commits");
    writer.insert(&table, "a", "1").expect("no other lock");
    writer.commit().expect("commits");
}

#[test]
fn a_locked_table_keeps_writers_out_and_snapshots_in() {
    let (db, table) = open(&[("a", "0")]);
    for mode in [LockMode::Shared, LockMode::Exclusive] {
        let mut holder = db.begin_with(pessimistic()).expect("begins");
        holder.lock_table(&table, mode).expect("free");
        let mut writer = db.begin_with(TransactionOptions::new().no_wait()).expect("begins");
        for key in ["a", "new"] {
            assert_eq!(kind(writer.insert(&table, key, "1")), ErrorKind::LockTimeout, "{mode:?}");
        }
        let reader = db.begin_with(pessimistic().no_wait()).expect("begins");
        assert_eq!(reader.get(&table, "a").is_ok(), mode == LockMode::Shared);
        let scan = db.begin_with(pessimistic().no_wait()).expect("begins");
        let scanned: Result<Vec<_>> = scan.range(&table, ..).collect();
        assert_eq!(scanned.is_ok(), mode == LockMode::Shared);
        assert_eq!(writer.get(&table, "a").expect("a snapshot"), Some(b"0".to_vec()));
        drop((reader, scan));
        holder.insert(&table, "a", "0").expect("its own");
    }
}

#[test]
fn a_table_lock_waits_for_writers_and_readers_of_the_table() {
    let (db, table) = open(&[("a", "0")]);
    let mut writer = db.begin().expect("begins");
    writer.insert(&table, "b", "1").expect("free");
    let reader = db.begin_with(pessimistic()).expect("begins");
    reader.get(&table, "a").expect("shared");
    let (send, granted) = channel();
    std::thread::scope(|scope| {
        let (db, table) = (&db, &table);
        scope.spawn(move || {
            let mut tx = db.begin_with(pessimistic()).expect("begins");
            tx.lock_table(table, LockMode::Exclusive).expect("granted");
            send.send(()).expect("receiver lives");
        });
        await_waiting(db, 1);
        let waiting = db.locks().into_iter().find(|lock| !lock.waits_for.is_empty()).expect("it waits");
        assert_eq!((waiting.keys, waiting.mode), (LockedKeys::Table, LockMode::Exclusive));
        assert_eq!(waiting.waits_for.len(), 2);
        writer.commit().expect("commits");
        assert!(granted.recv_timeout(Duration::from_millis(50)).is_err(), "the reader still has its lock");
        reader.commit().expect("commits");
        granted.recv().expect("granted");
    });
}

#[test]
fn many_locks_become_one_on_the_table() {
    let (db, table) = open(&[]);
    for n in 0..3000u32 {
        db.transact_with(Durability::Lazy, |tx| tx.insert(&table, n.to_be_bytes(), "1")).expect("commits");
    }
    let reader = db.begin_with(pessimistic()).expect("begins");
    for n in 0..3000u32 {
        reader.get(&table, n.to_be_bytes()).expect("granted");
    }
    assert_eq!(db.statistics().lock_escalations, 1);
    assert!(db.locks().len() < 100, "{}", db.locks().len());
    let mut writer = db.begin_with(TransactionOptions::new().no_wait()).expect("begins");
    assert_eq!(kind(writer.insert(&table, "new", "1")), ErrorKind::LockTimeout);
    drop(reader);
    // With a writer in the table the locks stay on keys, and nothing waits.
    writer.insert(&table, "new", "1").expect("free");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let reader = db.begin_with(pessimistic()).expect("begins");
            (0..3000u32).for_each(|n| _ = reader.get(&table, n.to_be_bytes()).expect("granted"));
            assert!(db.locks().len() >= 3000);
        });
    });
}

#[test]
fn locks_beyond_memory_are_refused() {
    let settings = Settings::default().with(|s| {
        s.memory_bytes = 4 << 20;
        s.version_bytes = 1 << 20;
    });
    let db = settings.open_in_memory();
    let table = db.create_table("t").expect("new");
    // A writer in the table keeps the reader from locking all of the table.
    let mut writer = db.begin().expect("begins");
    writer.insert(&table, "w", "1").expect("free");
    let reader = db.begin_with(pessimistic()).expect("begins");
    let refused = (0..100_000u32).find_map(|n| reader.get(&table, n.to_be_bytes()).err());
    let error = refused.expect("an eighth of the memory is for locks");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    assert!(error.to_string().contains("memory_bytes"), "{error}");
    writer.commit().expect("commits");
    drop(reader);
    assert!(db.locks().is_empty());
}

#[test]
fn dropped_transactions_release_their_locks_in_any_order() {
    let (db, table) = open(&[("a", "0"), ("b", "0")]);
    let mut random = Random::from_seed(7);
    for _ in 0..50 {
        let mut open: Vec<Transaction> =
            (0..4).map(|_| db.begin_with(pessimistic()).expect("begins")).collect();
        for tx in &mut open {
            tx.get(&table, "a").expect("shared");
            tx.get_for_share(&table, "b").expect("shared");
            assert_eq!(tx.range(&table, "c"..).count(), 0);
        }
        while !open.is_empty() {
            let tx = open.swap_remove(random.below(open.len() as u64) as usize);
            if random.chance(1, 2) {
                tx.commit().expect("commits");
            } else {
                drop(tx);
            }
        }
        assert!(db.locks().is_empty());
    }
}

#[test]
fn a_user_panic_releases_locks() {
    let (db, table) = open(&[("a", "0")]);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut tx = db.begin_with(pessimistic()).expect("begins");
        tx.get(&table, "a").expect("shared");
        tx.get_for_update(&table, "b").expect("free");
        panic!("the user's");
    }));
    assert!(panicked.is_err() && db.locks().is_empty());
    db.transact(|tx| tx.insert(&table, "a", "1")).expect("free");
}

/// A savepoint gives up changes, and keeps the rows as reads.
#[test]
fn a_rollback_to_a_savepoint_keeps_rows_locked_as_reads() {
    let (db, table) = open(&[("a", "0")]);
    let mut tx = db.begin_with(pessimistic()).expect("begins");
    let savepoint = tx.savepoint();
    tx.insert(&table, "a", "1").expect("free");
    tx.rollback_to(savepoint).expect("rolls back");
    let reader = db.begin_with(pessimistic().no_wait()).expect("begins");
    assert_eq!(reader.get(&table, "a").expect("shared"), Some(b"0".to_vec()));
    let mut writer = db.begin_with(TransactionOptions::new().no_wait()).expect("begins");
    assert_eq!(kind(writer.insert(&table, "a", "2")), ErrorKind::LockTimeout);
}

/// The snapshot of a pessimistic transaction contains the row that it locked first.
#[test]
fn a_hot_counter_that_is_locked_first_never_conflicts() {
    in_time("the test", 120, || {
        for isolation in [Isolation::Snapshot, Isolation::Serializable] {
            let (db, table) = open(&[("counter", "0")]);
            let options = TransactionOptions::new().isolation(isolation).locking(Locking::Pessimistic);
            let attempts = AtomicU64::new(0);
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        for _ in 0..50 {
                            let add = |tx: &mut Transaction| {
                                attempts.fetch_add(1, Ordering::Relaxed);
                                let old = tx.get_for_update(&table, "counter")?.expect("there");
                                let old: u64 =
                                    String::from_utf8(old).expect("text").parse().expect("a number");
                                tx.insert(&table, "counter", (old + 1).to_string())
                            };
                            db.transact_with(options, add).expect("no error reaches the caller");
                        }
                    });
                }
            });
            assert_eq!(attempts.load(Ordering::Relaxed), 400, "no attempt was repeated");
            let value = db.begin().expect("begins").get(&table, "counter").expect("reads");
            assert_eq!(value, Some(b"400".to_vec()));
        }
    });
}

#[test]
fn a_snapshot_refuses_to_share_a_newer_row() {
    let (db, table) = open(&[("a", "0")]);
    let mut old = db.begin().expect("begins");
    db.transact(|tx| tx.insert(&table, "a", "1")).expect("commits");
    assert_eq!(kind(old.get_for_share(&table, "a")), ErrorKind::Conflict);
    drop(old);
    let options = TransactionOptions::new().locking(Locking::Pessimistic);
    let mut late = db.begin_with(options).expect("begins");
    db.transact(|tx| tx.insert(&table, "a", "2")).expect("commits");
    assert_eq!(late.get_for_share(&table, "a").expect("its snapshot is taken now"), Some(b"2".to_vec()));
    db.transact(|tx| tx.insert(&table, "b", "2")).expect("commits");
    assert_eq!(late.get(&table, "b").expect("reads"), None, "not in the snapshot");
}

/// Every transaction takes two random rows out of a few, in random order. All end, and none is
/// aborted without a cycle: the counters of aborts and of repeated attempts agree.
#[test]
fn random_deadlocks_are_found_at_once() {
    in_time("the test", 300, || {
        let (db, table) = open(&[]);
        let longest = AtomicU64::new(0);
        let rounds = depth(20_000);
        std::thread::scope(|scope| {
            for thread in 0..6u64 {
                let (db, table, longest) = (&db, &table, &longest);
                scope.spawn(move || {
                    let mut random = Random::from_seed(thread);
                    for _ in 0..rounds / 6 {
                        let mut tx =
                            db.begin_with(pessimistic().durability(Durability::Lazy)).expect("begins");
                        let mut one = || -> Result<()> {
                            for _ in 0..2 {
                                let key = [random.below(3) as u8 + 1];
                                if random.chance(1, 2) {
                                    tx.get(table, key)?;
                                }
                                tx.insert(table, key, "x")?;
                                // Others run between the two rows.
                                std::thread::yield_now();
                            }
                            Ok(())
                        };
                        let began = Instant::now();
                        match one() {
                            Ok(()) => drop(tx.commit().expect("commits")),
                            Err(error) => assert_eq!(error.kind(), ErrorKind::Deadlock, "{error}"),
                        }
                        longest.fetch_max(began.elapsed().as_millis() as u64, Ordering::Relaxed);
                    }
                });
            }
        });
        assert!(db.statistics().deadlocks > 0, "the transactions never waited for one another");
        assert!(db.locks().is_empty());
        assert!(longest.load(Ordering::Relaxed) < 20_000, "a deadlock was found by its timeout only");
    });
}

/// With `LockRelease::Commit` another pessimistic transaction gets the row when it is durable.
#[test]
fn a_late_release_keeps_rows_until_they_are_durable() {
    let (db, table) = open(&[("a", "0")]);
    for options in [pessimistic(), TransactionOptions::new().locking(Locking::Pessimistic)] {
        let late = options.lock_release(LockRelease::Commit);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..30 {
                        let add = |tx: &mut Transaction| -> Result<()> {
                            let old = tx.get_for_update(&table, "a")?.expect("there");
                            let old: u64 = String::from_utf8(old).expect("text").parse().expect("a number");
                            tx.insert(&table, "a", (old + 1).to_string())
                        };
                        db.transact_with(late, add).expect("commits");
                    }
                });
            }
        });
    }
    let value = db.begin().expect("begins").get(&table, "a").expect("reads");
    assert_eq!(value, Some(b"240".to_vec()));
    assert!(db.locks().is_empty());
}

/// What a pessimistic transaction reads of another one that releases its locks at its commit is
/// durable.
#[test]
fn a_row_released_at_commit_is_durable_when_it_is_read() {
    use quenchdb::internals::device::simulated::CrashKind;
    in_time("the test", 120, || {
        let settings = Settings::default().with(|s| {
            s.preset = quenchdb::Preset::Group;
            s.protocol_mut().gather_mut().expect("leaders gather").window = Duration::from_millis(20);
            s.protocol_mut().gather_mut().expect("leaders gather").siblings = 0;
        });
        let (disk, db) = settings.create(3);
        let table = db.create_table("t").expect("new");
        db.transact(|tx| tx.insert(&table, "a", "0")).expect("commits");
        for round in 1..=5u32 {
            let (_, after) = std::thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    let late = pessimistic().lock_release(LockRelease::Commit);
                    db.transact_with(late, |tx| tx.insert(&table, "a", round.to_string()))
                });
                let crashed = loop {
                    let tx = db.begin_with(pessimistic().durability(Durability::Lazy)).expect("begins");
                    let seen = tx.get(&table, "a").expect("granted");
                    if seen == Some(round.to_string().into_bytes()) {
                        break settings.crash(&disk, CrashKind::PowerCut, u64::from(round));
                    }
                };
                writer.join().expect("no panic").expect("commits");
                crashed
            });
            let table = after.table("t").expect("there");
            let kept = after.begin().expect("begins").get(&table, "a").expect("reads");
            assert_eq!(kept, Some(round.to_string().into_bytes()));
        }
    });
}

/// A device that takes 20 ms for a write shows which locks last until the commit is durable.
#[test]
fn how_long_locks_are_held_is_counted() {
    let write = Duration::from_millis(20);
    let (disk, db) = crate::support::small(quenchdb::Preset::Group, 1).create(1);
    let table = db.create_table("rows").expect("new");
    let held = |release: LockRelease| {
        db.reset_statistics();
        disk.set_delay(write);
        for key in 0..3_u8 {
            let options = TransactionOptions::new().locking(Locking::Pessimistic).lock_release(release);
            let mut tx = db.begin_with(options).expect("free");
            tx.insert(&table, [key], "value").expect("no conflict");
            tx.commit().expect("a whole disk");
        }
        disk.set_delay(Duration::ZERO);
        db.statistics().lock_holds
    };
    let (early, late) = (held(LockRelease::PreCommit), held(LockRelease::Commit));
    assert_eq!((early.count, late.count), (3, 3));
    let write_us = write.as_micros() as f64;
    assert!(late.mean_us >= write_us, "{late:?}");
    assert!(early.p50_us < write_us, "{early:?}");
    db.transact(|tx| tx.insert(&table, "optimistic", "value")).expect("commits");
    assert_eq!(db.statistics().lock_holds.count, 3, "only pessimistic transactions are timed");
}
