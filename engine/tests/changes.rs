//! Changes composed of a read and a write, and transactions that are repeated.

use crate::support::test_database::{TestDatabase, tiny};
use quenchdb::{Database, Error, ErrorKind, Isolation, Locking, Result, Table, TransactionOptions};
use std::cell::Cell;
use std::collections::BTreeSet;

const MEMORY_BYTES: u64 = 8 << 20;

fn memory() -> (Database, Table) {
    let db = tiny(MEMORY_BYTES).open_in_memory();
    let table = db.create_table("t").expect("new");
    (db, table)
}

/// Every isolation, optimistic and with locks.
fn all_options() -> Vec<TransactionOptions> {
    let mut all = Vec::new();
    for isolation in [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable] {
        for locking in [Locking::Optimistic, Locking::Pessimistic] {
            let options = TransactionOptions::new().isolation(isolation).locking(locking);
            // What contradicts itself is refused.
            if memory().0.begin_with(options).is_ok() {
                all.push(options);
            }
        }
    }
    assert!(all.len() >= 5, "{all:?}");
    all
}

/// Runs `work` in four threads, which begin together.
fn together(work: impl Fn(u32) + Sync) {
    let barrier = std::sync::Barrier::new(4);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (work, barrier) = (&work, &barrier);
            scope.spawn(move || {
                barrier.wait();
                work(thread);
            });
        }
    });
}

#[test]
fn no_concurrent_addition_is_lost_at_any_isolation() {
    for options in all_options() {
        let (db, table) = memory();
        together(|_| {
            for _ in 0..200 {
                db.transact_with(options, |tx| tx.add(&table, "sum", 3)).expect("commits in the end");
            }
        });
        let sum = db.transact(|tx| tx.add(&table, "sum", 0)).expect("free");
        assert_eq!(sum, 4 * 200 * 3, "{options:?}");
    }
}

#[test]
fn each_row_is_popped_once_at_any_isolation() {
    for options in all_options() {
        let (db, table) = memory();
        db.transact(|tx| (0..120_u32).try_for_each(|n| tx.insert(&table, n.to_be_bytes(), "job")))
            .expect("new rows");
        let popped = std::sync::Mutex::new(Vec::new());
        together(|thread| {
            loop {
                let row = db.transact_with(options, |tx| match thread % 2 {
                    0 => tx.pop_first(&table),
                    _ => tx.pop_last(&table),
                });
                let Some((key, value)) = row.expect("commits in the end") else { return };
                assert_eq!(value, b"job");
                popped.lock().expect("whole").push(key);
            }
        });
        let popped = popped.into_inner().expect("whole");
        let different: BTreeSet<_> = popped.iter().collect();
        assert_eq!((popped.len(), different.len()), (120, 120), "{options:?}");
    }
}

#[test]
fn one_of_many_inserts_of_an_absent_key_succeeds() {
    for options in all_options() {
        let (db, table) = memory();
        let winners = std::sync::atomic::AtomicU32::new(0);
        together(|thread| {
            for key in 0..50_u32 {
                let inserted = db.transact_with(options, |tx| {
                    tx.insert_if_absent(&table, key.to_be_bytes(), thread.to_be_bytes())
                });
                let inserted = inserted.expect("commits in the end");
                winners.fetch_add(inserted.into(), std::sync::atomic::Ordering::Relaxed);
            }
        });
        assert_eq!(winners.into_inner(), 50, "{options:?}");
    }
}

#[test]
fn composed_changes_see_own_changes_and_aborts() -> Result<()> {
    let (db, table) = memory();
    let mut tx = db.begin()?;
    assert_eq!(tx.take(&table, "a")?, None);
    assert_eq!(tx.replace(&table, "a", "1")?, None);
    assert_eq!(tx.update(&table, "a", |old| old.map(|old| [old, b"2"].concat()))?, Some(b"12".to_vec()));
    assert!(tx.compare_and_set(&table, "a", Some(b"12"), Some(b"3"))?);
    assert!(!tx.compare_and_set(&table, "a", None, None)?);
    assert!(tx.compare_and_set(&table, "b", None, None)?, "it does not exist, and need not");
    assert!(!tx.insert_if_absent(&table, "a", "4")?);
    let before = tx.savepoint();
    assert_eq!(tx.update(&table, "a", |_| None::<Vec<u8>>)?, None);
    assert!(!tx.contains_key(&table, "a")?);
    tx.rollback_to(before)?;
    assert_eq!(tx.get(&table, "a")?.as_deref(), Some(&b"3"[..]));
    drop(tx);
    assert!(db.begin_read()?.is_empty(&table)?);
    Ok(())
}

#[test]
fn counters_refuse_other_values_and_overflow() -> Result<()> {
    let (db, table) = memory();
    let mut tx = db.begin()?;
    tx.insert(&table, "text", "seven b")?;
    tx.insert(&table, "most", i64::MAX.to_be_bytes())?;
    for (key, reason) in [("text", "8 bytes, this one has 7"), ("most", "range of i64")] {
        let error = tx.add(&table, key, 1).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(reason), "{error}");
    }
    assert_eq!(tx.add(&table, "most", -1)?, i64::MAX - 1, "the transaction can continue");
    tx.commit().map(drop)
}

#[test]
fn ranges_of_many_rows_are_removed_exactly() -> Result<()> {
    let (db, table) = memory();
    let large = vec![7; 100_000];
    db.transact(|tx| {
        for n in 0..5000_u16 {
            tx.insert(&table, n.to_be_bytes(), "row")?;
        }
        for key in [&[255_u8, 255, 255][..], &[255, 255, 1], &[255, 254]] {
            tx.insert(&table, key, &large)?;
        }
        Result::Ok(())
    })?;
    let mut tx = db.begin()?;
    assert_eq!(tx.len(&table)?, 5003);
    assert_eq!(tx.remove_range(&table, 1000_u16.to_be_bytes()..4000_u16.to_be_bytes())?, 3000);
    assert_eq!(tx.remove_range(&table, 1000_u16.to_be_bytes()..4000_u16.to_be_bytes())?, 0);
    assert_eq!(tx.remove_prefix(&table, [255, 255])?, 2);
    assert_eq!(tx.prefix(&table, [255]).count(), 1);
    assert_eq!(tx.len(&table)?, 2001);
    let left: Vec<_> = tx.range(&table, ..[255]).map(|row| row.map(|row| row.0)).collect::<Result<_>>()?;
    let expected = (0..1000_u16).chain(4000..5000).map(|n| n.to_be_bytes().to_vec());
    assert!(left.into_iter().eq(expected));
    assert_eq!(tx.clear(&table)?, 2001);
    tx.commit()?;
    assert!(db.begin_read()?.is_empty(&table)?);
    Ok(())
}

#[test]
fn counting_rows_reads_no_large_value() -> Result<()> {
    let (_disk, db) = tiny(MEMORY_BYTES).create(31);
    let table = db.create_table("t")?;
    // Eight times the memory.
    for n in 0..64_u32 {
        db.transact(|tx| tx.insert(&table, n.to_be_bytes(), vec![n as u8; 1 << 20]))?;
    }
    db.checkpoint()?;
    let loaded = || db.statistics().store_read_bytes;
    let before = loaded();
    let snapshot = db.begin_read()?;
    assert_eq!(snapshot.len(&table)?, 64);
    assert!(!snapshot.is_empty(&table)?);
    assert!(snapshot.contains_key(&table, 63_u32.to_be_bytes())?);
    assert!(loaded() - before < 1 << 20, "{} bytes read", loaded() - before);
    // The first value has left memory.
    assert_eq!(snapshot.get_with(&table, 0_u32.to_be_bytes(), <[u8]>::len)?, Some(1 << 20));
    assert!(loaded() - before >= 1 << 20, "the values are in memory, so the test shows nothing");
    Ok(())
}

#[test]
fn a_look_at_a_value_may_look_at_others() -> Result<()> {
    let (db, table) = memory();
    db.transact(|tx| ["a", "b"].iter().try_for_each(|key| tx.insert(&table, key, format!("value {key}"))))?;
    let snapshot = db.begin_read()?;
    let both = snapshot.get_with(&table, "a", |a| {
        let inner = snapshot.get_with(&table, "b", |b| [a, b].concat());
        (a.to_vec(), inner)
    })?;
    let (a, inner) = both.expect("the key exists");
    assert_eq!((a, inner?), (b"value a".to_vec(), Some(b"value avalue b".to_vec())));
    Ok(())
}

#[test]
fn a_range_of_a_snapshot_moves_to_another_thread() -> Result<()> {
    let (db, table) = memory();
    db.transact(|tx| (0..500_u32).try_for_each(|n| tx.insert(&table, n.to_be_bytes(), "row")))?;
    let snapshot = db.begin_read()?;
    let mut rows = snapshot.iter(&table);
    let first = rows.next().expect("a row")?;
    let rest = std::thread::scope(|scope| scope.spawn(move || rows.count()).join()).expect("no panic");
    assert_eq!((&first.0[..], rest), (&0_u32.to_be_bytes()[..], 499));
    Ok(())
}

/// An error of the user that hides the engine's.
#[derive(Debug)]
struct Hidden;

impl From<Error> for Hidden {
    fn from(_: Error) -> Hidden {
        Hidden
    }
}

#[test]
fn transactions_repeat_by_what_they_met() -> Result<()> {
    let (db, table) = memory();
    let attempts = Cell::new(0);
    let sum = db.transact(|tx| {
        attempts.set(attempts.get() + 1);
        let sum = tx.add(&table, "sum", 1)?;
        if attempts.get() < 3 {
            // Another transaction changes a row that this one reads and then changes, too.
            tx.get(&table, "row")?;
            db.transact(|other| other.insert(&table, "row", "theirs"))?;
            tx.insert(&table, "row", "mine")?;
        }
        Ok::<_, Hidden>(sum)
    });
    assert_eq!((sum.expect("the third attempt commits"), attempts.get()), (1, 3));
    Ok(())
}

#[test]
fn a_made_up_conflict_is_not_repeated() -> Result<()> {
    let (db, table) = memory();
    let attempts = Cell::new(0);
    let error = db.transact(|tx| {
        attempts.set(attempts.get() + 1);
        tx.insert(&table, "row", "value")?;
        Err::<(), _>(Error::new(ErrorKind::Conflict, "of the user"))
    });
    assert_eq!((error.expect_err("the user's").kind(), attempts.get()), (ErrorKind::Conflict, 1));
    assert!(db.begin_read()?.is_empty(&table)?);
    Ok(())
}
