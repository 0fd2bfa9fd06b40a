//! Transactions of asynchronous programs.

use crate::support::test_database::{TestDatabase, tiny};
use quenchdb::internals::device::simulated::CrashKind;
use quenchdb::{
    Database, Error, ErrorKind, Isolation, Job, LockRelease, Locking, Result, TransactionOptions,
};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future, at most ten seconds.
fn block_on<F: Future>(future: F) -> F::Output {
    let (mut future, start) = (pin!(future), Instant::now());
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        assert!(start.elapsed() < Duration::from_secs(10), "nothing woke the future");
        thread::park_timeout(Duration::from_secs(10));
    }
}

fn memory() -> Database {
    tiny(8 << 20).open_in_memory()
}

#[test]
fn transactions_that_run_together_all_count() -> Result<()> {
    let db = memory();
    let table = db.create_table("t")?;
    let running: Vec<_> = (0..30)
        .map(|_| {
            let table = table.clone();
            db.transact_async(thread::spawn, move |tx| tx.add(&table, "sum", 1))
        })
        .collect();
    let mut sums = running.into_iter().map(block_on).collect::<Result<Vec<i64>>>()?;
    sums.sort_unstable();
    assert!(sums.into_iter().eq(1..=30));
    Ok(())
}

#[test]
fn a_ready_transaction_survives_a_power_cut() -> Result<()> {
    for seed in 0..20 {
        let (disk, db) = tiny(8 << 20).create(seed);
        let table = db.create_table("t")?;
        let handle = table.clone();
        block_on(db.transact_async(thread::spawn, move |tx| tx.insert(&handle, "key", "value")))?;
        let left = disk.crash(CrashKind::PowerCut, disk.operations(), seed);
        disk.stop();
        let recovered = tiny(8 << 20).open(&left);
        assert!(recovered.begin_read()?.contains_key(&recovered.table("t")?, "key")?, "seed {seed}");
    }
    Ok(())
}

#[derive(Debug)]
enum Refused {
    Taken,
    Failed(ErrorKind),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        Refused::Failed(error.kind())
    }
}

#[test]
fn errors_of_the_closure_come_back_and_nothing_changes() -> Result<()> {
    let db = memory();
    let table = db.create_table("t")?;
    let handle = table.clone();
    let refused = block_on(db.transact_async(thread::spawn, move |tx| {
        tx.insert(&handle, "key", "value")?;
        Err::<(), _>(Refused::Taken)
    }));
    assert!(matches!(refused, Err(Refused::Taken)), "{refused:?}");
    let late = TransactionOptions::new().locking(Locking::Pessimistic).isolation(Isolation::Serializable);
    let handle = table.clone();
    let refused =
        block_on(db.transact_async_with(late.lock_release(LockRelease::Commit), thread::spawn, move |tx| {
            Ok::<_, Refused>(tx.insert(&handle, "key", "value")?)
        }));
    assert!(matches!(refused, Err(Refused::Failed(ErrorKind::InvalidArgument))), "{refused:?}");
    assert!(db.begin_read()?.is_empty(&table)?);
    Ok(())
}

#[test]
fn work_that_panics_or_never_runs_is_an_error() -> Result<()> {
    let db = memory();
    let table = db.create_table("t")?;
    let handle = table.clone();
    let caught = |job: Job| thread::spawn(|| std::panic::catch_unwind(std::panic::AssertUnwindSafe(job)));
    let panicked = block_on(db.transact_async(caught, move |tx| -> Result<()> {
        tx.insert(&handle, "key", "value")?;
        panic!("as planned");
    }));
    let dropped = block_on(db.transact_async(drop, |_| Result::Ok(())));
    for error in [panicked.expect_err("it panicked"), dropped.expect_err("it did not run")] {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
    assert!(db.begin_read()?.is_empty(&table)?);
    db.transact(|tx| tx.insert(&table, "key", "value"))
}

#[test]
fn a_transaction_commits_although_its_future_is_dropped() -> Result<()> {
    let db = memory();
    let table = db.create_table("t")?;
    let (handle, mut thread) = (table.clone(), None);
    let spawn = |job: Job| thread = Some(thread::spawn(job));
    drop(db.transact_async(spawn, move |tx| tx.insert(&handle, "key", "value")));
    thread.expect("it was spawned").join().expect("no panic");
    db.flush()?;
    assert!(db.begin_read()?.contains_key(&table, "key")?);
    Ok(())
}
