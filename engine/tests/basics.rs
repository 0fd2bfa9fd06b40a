//! A database as a user sees it: tables, transactions, isolation, closing and reopening.

use quenchdb::internals::device::memory::MemoryStorage;
use quenchdb::internals::device::simulated::{
    CrashKind, Mishap, MishapKind, OperationKind, SimulatedStorage,
};
use quenchdb::{Database, DeviceTrust, Durability, ErrorKind, Isolation, Preset, Result, Snapshot, Table};
use std::sync::Arc;
use std::time::Duration;

fn memory() -> Database {
    Database::builder().open_in_memory().expect("opens")
}

fn rows(db: &Database, table: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let table = db.table(table).expect("there");
    db.begin_read().expect("free").range(&table, ..).map(|row| row.expect("no I/O")).collect()
}

#[test]
fn what_is_committed_is_read_by_others() {
    let db = memory();
    let table = db.create_table("t").expect("new");
    let mut tx = db.begin().expect("free");
    tx.insert(&table, "a", "1").expect("free row");
    tx.insert(&table, "b", "2").expect("free row");
    assert_eq!(tx.get(&table, "a").expect("no I/O"), Some(b"1".to_vec()), "own writes are seen");
    assert_eq!(
        db.begin_read().expect("free").get(&table, "a").expect("no I/O"),
        None,
        "by no other transaction"
    );
    let csn = tx.commit().expect("durable");
    assert!(csn.0 > 0);
    let snapshot = db.begin_read().expect("free");
    assert_eq!(snapshot.get(&table, "a").expect("no I/O"), Some(b"1".to_vec()));
    assert_eq!(snapshot.first(&table).expect("no I/O").expect("rows").0, b"a");
    assert_eq!(snapshot.last(&table).expect("no I/O").expect("rows").0, b"b");
}

#[test]
fn a_snapshot_does_not_move() {
    let db = memory();
    let table = db.create_table("t").expect("new");
    let put = |key: &str, value: &str| {
        db.transact(|tx| tx.insert(&table, key, value)).expect("commits");
    };
    put("a", "1");
    let old = db.begin_read().expect("free");
    put("a", "2");
    put("b", "1");
    db.transact(|tx| tx.remove(&table, "a").map(drop)).expect("commits");
    assert_eq!(old.get(&table, "a").expect("no I/O"), Some(b"1".to_vec()));
    assert_eq!(old.range(&table, ..).count(), 1);
    assert_eq!(rows(&db, "t"), vec![(b"b".to_vec(), b"1".to_vec())]);
}

#[test]
fn an_abort_leaves_no_trace_and_dropping_is_aborting() {
    let db = memory();
    let table = db.create_table("t").expect("new");
    db.transact(|tx| tx.insert(&table, "a", "old")).expect("commits");
    for explicit in [true, false] {
        let mut tx = db.begin().expect("free");
        tx.insert(&table, "a", "new and longer").expect("free row");
        tx.insert(&table, "b", "x").expect("free row");
        tx.remove(&table, "a").expect("free row");
        if explicit {
            tx.abort()
        } else {
            drop(tx)
        }
        assert_eq!(rows(&db, "t"), vec![(b"a".to_vec(), b"old".to_vec())]);
    }
}

#[test]
fn the_first_updater_wins() {
    let db = memory();
    let table = db.create_table("t").expect("new");
    db.transact(|tx| tx.insert(&table, "a", "0")).expect("commits");
    let mut first = db.begin().expect("free");
    let mut second = db.begin().expect("free");
    first.insert(&table, "a", "1").expect("free row");
    let error = second.insert(&table, "a", "2").expect_err("held by a transaction of this thread");
    assert!(error.is_retryable() && error.kind() == ErrorKind::Deadlock, "{error}");
    first.commit().expect("commits");
    let error = second.insert(&table, "a", "2").expect_err("changed since the snapshot");
    assert!(error.is_retryable(), "{error}");
}

#[test]
fn a_writer_waits_for_a_locked_row_until_its_holder_aborts() {
    let db = memory();
    let table = db.create_table("t").expect("new");
    let mut first = db.begin().expect("free");
    first.insert(&table, "a", "1").expect("free row");
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let mut second = db.begin().expect("free");
            second.insert(&table, "a", "2").expect("continues after the abort");
            second.commit().expect("commits");
        });
        std::thread::sleep(Duration::from_millis(20));
        first.abort();
        waiter.join().expect("no panic");
    });
    assert_eq!(rows(&db, "t"), vec![(b"a".to_vec(), b"2".to_vec())]);
}

#[test]
fn read_committed_sees_the_newest_and_overwrites_it() {
    let db = memory();
    let table = db.create_table("t").expect("new");
    db.transact(|tx| tx.insert(&table, "a", "0")).expect("commits");
    let mut tx = db.begin_with(Isolation::ReadCommitted).expect("free");
    assert_eq!(tx.get(&table, "a").expect("no I/O"), Some(b"0".to_vec()));
    db.transact(|other| other.insert(&table, "a", "1")).expect("commits");
    assert_eq!(tx.get(&table, "a").expect("no I/O"), Some(b"1".to_vec()));
    tx.insert(&table, "a", "2").expect("no conflict");
    tx.commit().expect("commits");
    assert_eq!(rows(&db, "t"), vec![(b"a".to_vec(), b"2".to_vec())]);
}

#[test]
fn savepoints_take_back_what_came_after_them() {
    let db = memory();
    let table = db.create_table("t").expect("new");
    db.transact(|tx| tx.insert(&table, "a", "0")).expect("commits");
    let mut tx = db.begin().expect("free");
    tx.insert(&table, "a", "1").expect("free row");
    let savepoint = tx.savepoint();
    tx.insert(&table, "a", "22").expect("free row");
    tx.insert(&table, "b", "x").expect("free row");
    tx.remove(&table, "a").expect("free row");
    tx.rollback_to(savepoint).expect("own savepoint");
    assert_eq!(tx.get(&table, "a").expect("no I/O"), Some(b"1".to_vec()));
    assert_eq!(tx.get(&table, "b").expect("no I/O"), None);
    tx.insert(&table, "c", "3").expect("free row");
    tx.rollback_to(savepoint).expect("it stays valid");
    tx.insert(&table, "d", "4").expect("free row");
    tx.commit().expect("commits");
    assert_eq!(rows(&db, "t"), vec![(b"a".to_vec(), b"1".to_vec()), (b"d".to_vec(), b"4".to_vec())]);
    let mut other = db.begin().expect("free");
    assert_eq!(other.rollback_to(savepoint).expect_err("not its own").kind(), ErrorKind::InvalidArgument);
}

/// Regression: the savepoint of a state that was itself rolled back was accepted once the
/// transaction had made as many changes again. The rollback undid nothing and cut the redo inside
/// an operation. After a crash the database was unreadable.
#[test]
fn a_savepoint_of_a_state_that_was_rolled_back_is_refused() {
    let disk = SimulatedStorage::new(1);
    let open = |disk: &SimulatedStorage| {
        Database::builder().storage(Arc::new(disk.clone())).open("x").expect("what it wrote it can read")
    };
    let (db, elsewhere) = (open(&disk), memory());
    let table = db.create_table("t").expect("new");
    let mut tx = db.begin().expect("free");
    let first = tx.savepoint();
    tx.insert(&table, "a", "1").expect("free row");
    let second = tx.savepoint();
    tx.insert(&table, "gone", "x").expect("free row");
    let third = tx.savepoint();
    tx.rollback_to(first).expect("own savepoint");
    tx.insert(&table, "b", "a longer value than the other one").expect("free row");
    let fourth = tx.savepoint();
    tx.insert(&table, "gone", "x").expect("free row");
    for refused in [second, third] {
        let error = tx.rollback_to(refused).expect_err("that state is gone");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
    tx.rollback_to(fourth).expect("own savepoint");
    tx.rollback_to(fourth).expect("it stays valid");
    // A savepoint of another database's transaction with the same number.
    let other = elsewhere.begin().expect("free").savepoint();
    assert_eq!(tx.rollback_to(other).expect_err("not its own").kind(), ErrorKind::InvalidArgument);
    tx.commit().expect("commits");
    let disk = disk.crash(CrashKind::PowerCut, disk.operations(), 1);
    let row = (b"b".to_vec(), b"a longer value than the other one".to_vec());
    assert_eq!(rows(&open(&disk), "t"), [row]);
}

#[test]
fn get_for_update_locks_present_and_absent_rows() {
    let db = memory();
    let table = db.create_table("t").expect("new");
    db.transact(|tx| tx.insert(&table, "a", "0")).expect("commits");
    for key in ["a", "absent"] {
        let mut holder = db.begin().expect("free");
        holder.get_for_update(&table, key).expect("free row");
        let mut other = db.begin().expect("free");
        assert!(other.insert(&table, key, "x").expect_err("held").is_retryable());
        drop(other);
        holder.commit().expect("nothing to write");
        let mut other = db.begin().expect("free");
        other.insert(&table, key, "x").expect("a lock leaves no trace");
        other.abort();
    }
    assert_eq!(rows(&db, "t"), vec![(b"a".to_vec(), b"0".to_vec())]);
}

#[test]
fn ranges_run_from_both_ends_and_meet() {
    let db = memory();
    let table = db.create_table("t").expect("new");
    db.transact(|tx| (0..1000u32).try_for_each(|i| tx.insert(&table, i.to_be_bytes(), [i as u8])))
        .expect("commits");
    let tx = db.begin().expect("free");
    let key = |i: u32| i.to_be_bytes().to_vec();
    let mut range = tx.range(&table, key(100)..key(900));
    let (mut low, mut high) = (100, 899);
    while low <= high {
        assert_eq!(range.next().expect("more").expect("no I/O").0, key(low));
        low += 1;
        if low <= high {
            assert_eq!(range.next_back().expect("more").expect("no I/O").0, key(high));
            high -= 1;
        }
    }
    assert!(range.next().is_none() && range.next_back().is_none());
    assert_eq!(tx.range(&table, key(5)..=key(5)).count(), 1);
    assert_eq!(tx.range(&table, key(9)..key(3)).count(), 0);
    assert_eq!(tx.range(&table, key(990)..).rev().count(), 10);
}

#[test]
fn a_closed_database_replays_nothing_and_a_dropped_one_neither() {
    let storage = Arc::new(MemoryStorage::new());
    for explicit in [true, false] {
        let db = Database::builder().storage(storage.clone()).open("x").expect("opens");
        let table = db.table_or_create("t").expect("there");
        db.transact(|tx| tx.insert(&table, [u8::from(explicit)], "v")).expect("commits");
        if explicit { db.close().expect("closes") } else { drop((db, table)) }
    }
    let db = Database::builder().storage(storage).open("x").expect("opens");
    assert!(db.recovery().clean);
    assert_eq!(rows(&db, "t").len(), 2);
    assert!(db.verify(None).expect("runs").problems.is_empty());
}

/// Regression: the second call returned `Ok` although the first had failed.
#[test]
fn who_closes_a_database_again_is_told_what_the_first_was() {
    for fails in [false, true] {
        let disk = SimulatedStorage::new(1);
        let db = Database::builder().storage(Arc::new(disk.clone())).open("simulated").expect("opens");
        db.create_table("t").expect("new");
        if fails {
            disk.stop();
        }
        let other = db.clone();
        let told = [db, other].map(|db| db.close().err().map(|error| error.to_string()));
        assert_eq!((told[0].is_some(), &told[0]), (fails, &told[1]));
    }
}

#[test]
fn tables_are_created_dropped_listed_and_not_mixed_up() {
    let storage = Arc::new(MemoryStorage::new());
    let db = Database::builder().storage(storage.clone()).open("x").expect("opens");
    let a = db.create_table("a").expect("new");
    db.create_table("b").expect("new");
    assert_eq!(db.create_table("a").expect_err("there").kind(), ErrorKind::AlreadyExists);
    assert_eq!(db.table("c").expect_err("missing").kind(), ErrorKind::NotFound);
    assert_eq!(db.create_table("").expect_err("empty").kind(), ErrorKind::InvalidArgument);
    let mut tx = db.begin().expect("free");
    tx.insert(&a, "k", "v").expect("free row");
    assert_eq!(db.drop_table("a").expect_err("in use").kind(), ErrorKind::Busy);
    tx.commit().expect("commits");
    db.drop_table("a").expect("unused");
    let mut tx = db.begin().expect("free");
    assert_eq!(tx.insert(&a, "k", "v").expect_err("dropped").kind(), ErrorKind::NotFound);
    drop(tx);
    let again = db.create_table("a").expect("the name is free");
    assert_eq!(db.begin_read().expect("free").get(&again, "k").expect("no I/O"), None);
    assert_eq!(db.tables(), ["a", "b"]);
    drop((a, again));
    db.close().expect("closes");
    let db = Database::builder().storage(storage).open("x").expect("opens");
    assert_eq!(db.tables(), ["a", "b"]);
}

struct StopAtEnd<'a>(&'a SimulatedStorage);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Runs `change` without letting it become durable until `disk` is healed or stopped, and runs
/// `run` meanwhile.
fn while_it_is_not_durable(disk: &SimulatedStorage, change: impl FnOnce() + Send, run: impl FnOnce()) {
    disk.inject_mishap(Mishap { operation: OperationKind::DurableWrite, after: 0, kind: MishapKind::Stuck });
    std::thread::scope(|scope| {
        scope.spawn(change);
        let _stop = StopAtEnd(disk);
        while disk.fault_counts().of("stuck") == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        run();
    });
}

/// Runs `run` while the creation of table "t" is not durable.
fn with_a_table_that_is_not_durable(run: impl FnOnce(&SimulatedStorage, &Database)) {
    let disk = SimulatedStorage::new(1);
    let db = Database::builder().storage(Arc::new(disk.clone())).open("x").expect("opens");
    while_it_is_not_durable(&disk, || drop(db.create_table("t")), || run(&disk, &db));
}

#[test]
fn a_table_exists_already_only_when_its_creation_is_durable() {
    with_a_table_that_is_not_durable(|disk, db| {
        let (told, answer) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || told.send(db.create_table("t").expect_err("there").kind()));
            answer.recv_timeout(Duration::from_millis(100)).expect_err("it could be lost");
            disk.heal();
            assert_eq!(answer.recv().expect("an answer"), ErrorKind::AlreadyExists);
        });
    });
}

/// Regression: a caller saw a table whose creation was not durable. After a power cut the table was
/// missing.
#[test]
fn a_table_is_there_only_when_its_creation_is_durable() {
    with_a_table_that_is_not_durable(|disk, db| {
        let (told, answer) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || told.send(db.table("t").map(drop)));
            answer.recv_timeout(Duration::from_millis(100)).expect_err("it could be lost");
            disk.heal();
            answer.recv().expect("an answer").expect("it is there");
        });
    });
}

/// Regression: a caller saw a drop that was not durable. After a power cut the table was there
/// again with all its rows.
#[test]
fn a_table_is_gone_only_when_its_drop_is_durable() {
    type Ask = fn(&Database, &Table, &Snapshot) -> Result<()>;
    let asks: [Ask; 5] = [
        |db, _, _| db.drop_table("t"),
        |db, _, _| db.table("t").map(drop),
        |db, table, _| db.begin_read()?.get(table, "a").map(drop),
        |_, table, before| before.get(table, "a").map(drop),
        |_, table, before| before.range(table, ..).next().expect("a row or an error").map(drop),
    ];
    let disk = SimulatedStorage::new(1);
    let db = Database::builder().storage(Arc::new(disk.clone())).open("x").expect("opens");
    let table = db.create_table("t").expect("new");
    db.transact(|tx| tx.insert(&table, "a", "1")).expect("commits");
    let before = db.begin_read().expect("free");
    let meanwhile = || {
        let (told, answers) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            for ask in asks {
                let (told, db, table, before) = (told.clone(), &db, &table, &before);
                scope.spawn(move || told.send(ask(db, table, before).expect_err("gone").kind()));
            }
            let _stop = StopAtEnd(&disk);
            let early = answers.recv_timeout(Duration::from_millis(100));
            early.expect_err("after a crash it could be there again");
            disk.heal();
            assert!(answers.iter().take(asks.len()).all(|kind| kind == ErrorKind::NotFound));
        });
    };
    while_it_is_not_durable(&disk, || db.drop_table("t").expect("no transaction uses it"), meanwhile);
}

/// The drop cannot become durable any more, so it must not be visible.
#[test]
fn nobody_is_told_of_a_drop_that_may_be_lost() {
    let disk = SimulatedStorage::new(1);
    let db = Database::builder().storage(Arc::new(disk.clone())).open("x").expect("opens");
    let table = db.create_table("t").expect("new");
    let meanwhile = || {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(50));
                disk.stop();
            });
            for _ in 0..2 {
                let kind = db.table("t").expect_err("not there now").kind();
                assert_eq!(kind, ErrorKind::Poisoned);
                let kind = db.begin_read().expect("free").get(&table, "a").expect_err("not there now").kind();
                assert_eq!(kind, ErrorKind::Poisoned);
            }
        });
    };
    while_it_is_not_durable(&disk, || drop(db.drop_table("t")), meanwhile);
}

pub fn transfers_from_many_threads_keep_the_sum(preset: Preset) {
    let db = Database::builder().preset(preset).open_in_memory().expect("opens");
    let table = db.create_table("accounts").expect("new");
    db.transact(|tx| (0..20u8).try_for_each(|i| tx.insert(&table, [i], 100u64.to_le_bytes())))
        .expect("commits");
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (db, table) = (&db, &table);
            scope.spawn(move || {
                let mut random = quenchdb::internals::base::random::Random::from_seed(thread);
                for _ in 0..300 {
                    let (from, to) = (random.below(20) as u8, random.below(20) as u8);
                    db.transact(|tx| -> quenchdb::Result<()> {
                        let read = |tx: &mut quenchdb::Transaction, key| {
                            let value = tx.get(table, [key])?.expect("there");
                            Ok::<_, quenchdb::Error>(u64::from_le_bytes(value.try_into().expect("8 bytes")))
                        };
                        let balance = read(tx, from)?;
                        if balance > 0 && from != to {
                            let other = read(tx, to)?;
                            tx.insert(table, [from], (balance - 1).to_le_bytes())?;
                            tx.insert(table, [to], (other + 1).to_le_bytes())?;
                        }
                        Ok(())
                    })
                    .expect("commits in the end");
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..50 {
                let snapshot = db.begin_read().expect("free");
                let sum: u64 = snapshot
                    .range(&table, ..)
                    .map(|row| u64::from_le_bytes(row.expect("no I/O").1.try_into().expect("8 bytes")))
                    .sum();
                assert_eq!(sum, 2000);
            }
        });
    });
    assert!(db.verify(None).expect("runs").problems.is_empty());
}

#[test]
fn a_long_snapshot_does_not_keep_what_nobody_sees() {
    // All versions together would take several times as much. The device may be many versions
    // behind.
    let db = Database::builder().version_bytes(16 << 20).open_in_memory().expect("opens");
    let table = db.create_table("t").expect("new");
    db.transact(|tx| tx.insert(&table, "hot", [0; 100])).expect("commits");
    let old = db.begin_read().expect("free");
    for i in 0..100_000u64 {
        let mut tx = db.begin_with(Durability::BoundedLoss).expect("free");
        tx.insert(&table, "hot", [i as u8; 100]).expect("versions of the middle are collected");
        tx.commit().expect("commits");
    }
    assert_eq!(old.get(&table, "hot").expect("no I/O"), Some(vec![0; 100]));
}

#[test]
fn version_memory_is_bounded_by_a_clear_error() {
    let db = Database::builder().version_bytes(1 << 20).open_in_memory().expect("opens");
    let table = db.create_table("t").expect("new");
    db.transact(|tx| (0..20_000u32).try_for_each(|i| tx.insert(&table, i.to_be_bytes(), [0; 10])))
        .expect_err("too many versions in one transaction");
    let error = {
        let mut tx = db.begin().expect("free");
        (0..20_000u32).find_map(|i| tx.insert(&table, i.to_be_bytes(), [0; 10]).err()).expect("full")
    };
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(error.to_string().contains("version_bytes"), "{error}");
    // Deferred frees of an abort run once no thread of this process can still read the memory.
    let goes_on = |_| {
        std::thread::sleep(Duration::from_millis(10));
        db.transact(|tx| tx.insert(&table, "k", "v")).is_ok()
    };
    assert!((0..500).any(goes_on), "continues after the abort");
}

/// A change of a row that the transaction had changed 16 changes before took another version, so
/// that a long sum over few rows filled `version_bytes`.
#[test]
fn rows_changed_again_and_again_need_one_version_each() {
    let db = Database::builder().version_bytes(1 << 20).open_in_memory().expect("opens");
    let table = db.create_table("t").expect("new");
    let row = |n: u32| (n % 1000).to_be_bytes();
    let sums = |of: &[u32]| -> Vec<u32> {
        let snapshot = db.begin_read().expect("free");
        let value = |n: &u32| snapshot.get(&table, row(*n)).expect("reads").expect("there");
        of.iter().map(|n| u32::from_be_bytes(value(n).try_into().expect("four bytes"))).collect()
    };
    db.transact(|tx| (0..1000).try_for_each(|n| tx.insert(&table, row(n), 0u32.to_be_bytes())))
        .expect("one version each");
    let add_all = |tx: &mut quenchdb::Transaction| {
        (0..50_000u32).try_for_each(|n| {
            let before =
                tx.get(&table, row(n))?.map_or(0, |sum| u32::from_be_bytes(sum.try_into().expect("four")));
            tx.insert(&table, row(n), (before + n).to_be_bytes())
        })
    };
    let mut tx = db.begin().expect("free");
    add_all(&mut tx).expect("no version for each change");
    tx.abort();
    assert_eq!(sums(&[0, 7, 999]), [0, 0, 0]);
    db.transact(add_all).expect("no version for each change");
    let expected = |n: u32| (0..50).map(|round| 1000 * round + n).sum::<u32>();
    assert_eq!(sums(&[0, 7, 999]), [0, 7, 999].map(expected));
}

#[test]
fn async_commits_are_waited_for_polled_and_timed() {
    let db = memory();
    let table = db.create_table("t").expect("new");
    let mut handles = Vec::new();
    for i in 0..100u8 {
        let mut tx = db.begin().expect("free");
        tx.insert(&table, [i], "v").expect("free row");
        handles.push(tx.commit_async().expect("pre-commits"));
    }
    let last = handles.pop().expect("100");
    last.wait().expect("durable");
    assert!(last.is_committed());
    for handle in handles {
        assert!(handle.wait_timeout(Duration::from_secs(5)).expect("durable"));
    }
    db.flush().expect("durable");
}

#[test]
fn wrong_sizes_and_settings_are_named() {
    let db = memory();
    let table = db.create_table("t").expect("new");
    let mut tx = db.begin().expect("free");
    for (key, value) in [(vec![], vec![]), (vec![0; 600], vec![]), (vec![], vec![0; 5000])] {
        let error = tx.insert(&table, &key, &value).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
    tx.insert(&table, vec![1; db.max_key_bytes()], "").expect("the longest key");
    tx.insert(&table, "k", vec![0; db.max_entry_bytes() - 1]).expect("the longest entry");
    tx.commit().expect("commits");
    let error = Database::builder().logs(999).open_in_memory().expect_err("refused");
    assert!(error.to_string().contains("setting `logs`"), "{error}");
}

#[test]
fn a_catalog_change_waiting_for_log_space_lets_checkpoints_run() {
    let db = Database::builder()
        .segment_bytes(64 << 10)
        .log_bytes_max(256 << 10)
        .lab(|lab| lab.log_buffer_bytes = 64 << 10)
        .lab(|lab| lab.checkpoint_log_bytes = 0)
        .open_in_memory()
        .expect("fits");
    // Each takes a block of its own, and the log holds 64.
    for n in 0..150 {
        let start = std::time::Instant::now();
        db.create_table(&format!("t{n}")).expect("a checkpoint makes room");
        db.drop_table(&format!("t{n}")).expect("a checkpoint makes room");
        assert!(start.elapsed() < Duration::from_secs(4), "waited for itself");
    }
    assert!(db.statistics().checkpoints >= 4);
}

/// Regression: the setting was refused as contradicting `read_only`, which the caller had not set.
#[test]
fn what_only_reads_goes_by_no_device_trust() {
    let directory = tempfile::tempdir_in(".").expect("a directory");
    let path = directory.path().join("db");
    let builder = || Database::builder().device_trust(DeviceTrust::Device);
    let db = builder().open(&path).expect("opens");
    db.create_table("t").expect("new");
    db.close().expect("closes");
    assert!(builder().verify(&path, None).expect("readable").problems.is_empty());
    builder().open_checkpoint(&path).expect("opens").table("t").expect("there");
    let error = builder().read_only(true).open(&path).expect_err("said by the caller");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn a_panicking_closure_aborts_its_transaction() {
    let db = memory();
    let table = db.create_table("t").expect("new");
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        db.transact(|tx| -> quenchdb::Result<()> {
            tx.insert(&table, "a", "1")?;
            panic!("the user's own");
        })
    }));
    assert!(result.is_err());
    assert!(rows(&db, "t").is_empty());
    db.transact(|tx| tx.insert(&table, "a", "2")).expect("the row is free");
}

#[test]
fn objects_may_be_dropped_in_any_order() {
    let db = memory();
    let table = db.create_table("t").expect("new");
    let mut tx = db.begin().expect("free");
    tx.insert(&table, "a", "1").expect("free row");
    let snapshot = db.begin_read().expect("free");
    let handle = {
        let mut tx = db.begin().expect("free");
        tx.insert(&table, "b", "1").expect("free row");
        tx.commit_async().expect("pre-commits")
    };
    drop(db);
    assert!(handle.is_committed(), "closing made it durable");
    assert!(tx.commit().is_err(), "the database is closed");
    drop(table);
    drop(snapshot);
}
