//! Waiting for rows that other transactions hold: when waiters wake up, and how long they wait.

use quenchdb::{Database, ErrorKind, Isolation, LockMode, Result, Table, Transaction, TransactionOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Regression: a waiter was not woken when the row's holder rolled back to a savepoint. It waited
/// for the full `lock_wait`, although the row was free.
#[test]
fn a_rollback_to_a_savepoint_hands_the_row_to_its_waiter() {
    type Ask = fn(&mut Transaction, &Table) -> Result<()>;
    let asks: [Ask; 2] =
        [|tx, table| tx.insert(table, "a", "2"), |tx, table| tx.get_for_update(table, "a").map(drop)];
    let db = Database::builder().lock_wait(Duration::from_secs(20)).open_in_memory().expect("opens");
    let table = db.create_table("t").expect("new");
    for ask in asks {
        let mut holder = db.begin().expect("free");
        let savepoint = holder.savepoint();
        holder.insert(&table, "a", "1").expect("free row");
        let (told, answer) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let (db, table) = (&db, &table);
            scope.spawn(move || {
                let mut waiter = db.begin().expect("free");
                let _ = told.send(ask(&mut waiter, table));
            });
            answer.recv_timeout(Duration::from_millis(100)).expect_err("the row is held");
            holder.rollback_to(savepoint).expect("its own");
            answer.recv().expect("an answer").expect("the row is free");
            holder.insert(table, "b", "1").expect("it continues");
        });
        holder.commit().expect("commits");
    }
}

/// The same, and the holder requests the row again at once. Regression: this was taken for a cycle.
#[test]
fn a_waiter_of_a_rolled_back_row_does_not_wait_for_commit() {
    let db = Database::builder().lock_wait(Duration::from_secs(20)).open_in_memory().expect("opens");
    let table = db.create_table("t").expect("new");
    for _ in 0..20 {
        let mut holder = db.begin_with(Isolation::ReadCommitted).expect("free");
        let savepoint = holder.savepoint();
        holder.insert(&table, "a", "1").expect("free row");
        let (told, has_row) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut waiter = db.begin().expect("free");
                waiter.insert(&table, "b", "2").expect("free row");
                told.send(()).expect("the receiver lives");
                waiter.insert(&table, "a", "2").expect("it is given back");
                waiter.abort();
            });
            has_row.recv().expect("it gets that far");
            std::thread::sleep(Duration::from_millis(25));
            holder.rollback_to(savepoint).expect("its own");
            holder.insert(&table, "b", "1").expect("its holder does not wait for this one");
        });
        holder.abort();
    }
}

/// Regression: `lock_wait` restarted with each new holder of the row. A waiter for a row with
/// changing holders waited forever.
#[test]
fn lock_wait_is_one_time_whoever_holds_the_row_meanwhile() {
    const LOCK_WAIT: Duration = Duration::from_millis(300);
    let db = Database::builder().lock_wait(LOCK_WAIT).open_in_memory().expect("opens");
    let table = db.create_table("t").expect("new");
    let begin = || {
        let mut tx = db.begin_with(Isolation::ReadCommitted).expect("free");
        tx.insert(&table, "a", "1").map(|()| tx)
    };
    // The waiter may be faster than the next holder, nearly always so on a busy machine; then its
    // request succeeds.
    for _ in 0..1_000 {
        let mut holder = begin().expect("free row");
        let answer = std::thread::scope(|scope| {
            let waiter = scope.spawn(|| begin().map(Transaction::abort).map_err(|error| error.kind()));
            for _ in 0..100 {
                std::thread::sleep(LOCK_WAIT / 10);
                if waiter.is_finished() {
                    break;
                }
                holder.abort();
                holder = begin().expect("no holder keeps it for long");
            }
            assert!(waiter.is_finished(), "it waits for ever");
            waiter.join().expect("no panic")
        });
        if let Err(kind) = answer {
            assert_eq!(kind, ErrorKind::LockTimeout);
            return;
        }
    }
    panic!("the waiter is always faster");
}

/// Regression: `transact` repeated a transaction that met a held row 100 times, for 100 times
/// `lock_wait` in all.
#[test]
fn transact_gives_up_soon_after_three_times_lock_wait() {
    const LOCK_WAIT: Duration = Duration::from_millis(100);
    let waits = |builder: quenchdb::Builder, options: TransactionOptions| {
        let db = builder.lock_wait(LOCK_WAIT).open_in_memory().expect("opens");
        let table = db.create_table("t").expect("new");
        let mut holder = db.begin().expect("free");
        holder.insert(&table, "a", "1").expect("free row");
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let (begun, mut attempts) = (Instant::now(), 0);
                let outcome = db.transact_with(options, |tx| {
                    attempts += 1;
                    tx.insert(&table, "a", "2")
                });
                assert_eq!(outcome.expect_err("the row is held").kind(), ErrorKind::LockTimeout);
                (begun.elapsed(), attempts)
            });
            waiter.join().expect("no panic")
        })
    };
    let (default, options) = (Database::builder, TransactionOptions::new);
    let (time, attempts) = waits(default(), options());
    assert!(time >= 2 * LOCK_WAIT && attempts >= 2, "it is repeated: {time:?}, {attempts}");
    // On a machine that does nothing else: 300 ms.
    assert!(time < 10 * LOCK_WAIT && attempts <= 3, "{time:?}, {attempts}");
    let (time, attempts) = waits(default(), options().lock_timeout(Duration::from_millis(10)));
    assert!(time < 5 * LOCK_WAIT && attempts > 1, "the transaction's own time counts: {time:?}, {attempts}");
    let (_, attempts) = waits(default().transact_wait(Duration::ZERO), options());
    assert_eq!(attempts, 1, "not repeated");
    let (time, attempts) = waits(default().transact_wait(8 * LOCK_WAIT), options());
    assert!(time >= 8 * LOCK_WAIT && attempts > 3, "{time:?}, {attempts}");
}

/// An interrupt ends each kind of wait. The transaction keeps its earlier changes and commits, the
/// holder keeps its row, and no place in the queue is left behind.
#[test]
fn an_interrupt_ends_a_wait_and_leaves_the_transaction() {
    type Ask = fn(&mut Transaction, &Table) -> Result<()>;
    let asks: [Ask; 5] = [
        |tx, table| tx.insert(table, "held", "2"),
        |tx, table| tx.get_for_update(table, "held").map(drop),
        |tx, table| tx.remove_range(table, ..).map(drop),
        |tx, table| tx.lock_table(table, LockMode::Exclusive),
        |tx, table| tx.get(table, "held").map(drop),
    ];
    let db = Database::builder().lock_wait(Duration::from_secs(20)).open_in_memory().expect("opens");
    let table = db.create_table("t").expect("new");
    for ask in asks {
        db.transact(|tx| tx.insert(&table, "early", "0")).expect("no other writer");
        let mut holder = db.begin().expect("free");
        holder.insert(&table, "held", "1").expect("free row");
        let options = TransactionOptions::new()
            .isolation(Isolation::Serializable)
            .locking(quenchdb::Locking::Pessimistic);
        let waited = std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let mut tx = db.begin_with(options).expect("free");
                tx.insert(&table, "own", "1").expect("free row");
                let asked = Arc::new(AtomicU32::new(0));
                let count = asked.clone();
                tx.interrupt_with(move || count.fetch_add(1, Ordering::SeqCst) == 3);
                let begun = Instant::now();
                let error = ask(&mut tx, &table).expect_err("the row is held");
                let waited = begun.elapsed();
                assert_eq!(error.kind(), ErrorKind::Interrupted);
                assert!(!tx.has_to_retry(), "running it again is no cure");
                assert_eq!(tx.get(&table, "early").expect("no wait"), Some(b"0".to_vec()));
                tx.commit().expect("it goes on");
                waited
            });
            waiter.join().expect("no panic")
        });
        assert!(waited < Duration::from_secs(5), "{waited:?}");
        holder.insert(&table, "more", "1").expect("the holder continues");
        holder.abort();
        db.transact(|tx| {
            assert_eq!(tx.take(&table, "own")?, Some(b"1".to_vec()));
            tx.insert(&table, "held", "3")
        })
        .expect("no lock is left");
    }
}
