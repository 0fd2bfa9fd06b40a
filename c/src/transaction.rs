//! Transactions and snapshots.

use crate::boundary::{Answer, borrow, call, discard, give, hand_over, take_error};
use crate::database::{self, Database};
use crate::error::{Error, Failure};
use crate::settings::{Options, options};
use crate::table::{self, Table};
use crate::ticket::Ticket;
use quenchdb::{LockMode, Savepoint};
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// A transaction, or a snapshot, which is a view of one moment that does not change. Both are read
/// from with the same functions.
pub struct Transaction {
    /// What its cursors share.
    pub source: Arc<Source>,
}

/// The state of a transaction.
pub enum Slot {
    /// It is open.
    Owned(quenchdb::Transaction),
    /// It is open, and ends with the callback of `quench_transact`, which owns it.
    Lent(NonNull<quenchdb::Transaction>),
    /// It has ended.
    Ended,
}

// SAFETY: a transaction may move to another thread, and the slot is used under a lock.
unsafe impl Send for Slot {}

/// What is read from.
pub enum Kind {
    /// A transaction. One call uses it at a time.
    Transaction(Mutex<Slot>),
    /// A snapshot, which threads use side by side.
    Snapshot(quenchdb::Snapshot),
    /// A snapshot of a standby.
    OfStandby(quenchdb::StandbySnapshot),
}

/// A transaction or a snapshot, which its cursors share.
pub struct Source {
    /// Which of both.
    pub kind: Kind,
    /// Counts changes, so that a cursor notices those since it fetched its rows; and the end.
    version: AtomicU64,
    /// Keeps the database open.
    _database: Option<quenchdb::Database>,
    savepoints: Mutex<Vec<Savepoint>>,
    /// The next wait of the transaction ends, or the present one.
    is_interrupted: Arc<AtomicBool>,
}

/// Returns what a handle reads from.
#[inline]
pub fn source(handle: Option<&Transaction>) -> Answer<&Arc<Source>> {
    Ok(&borrow(handle, "transaction")?.source)
}

/// Locks what belongs to a handle, and never waits.
///
/// # Errors
/// `InvalidArgument` if another call has it.
#[inline]
pub fn lock<'a, T>(lock: &'a Mutex<T>, what: &str) -> Answer<MutexGuard<'a, T>> {
    match lock.try_lock() {
        Ok(guard) => Ok(guard),
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => Err(in_use(what)),
    }
}

#[cold]
fn in_use(what: &str) -> Failure {
    quenchdb::Error::invalid(format!("the {what} is in use by another thread, or by a callback"))
        .with_advice("let one call after the other use it")
        .into()
}

#[cold]
fn has_ended() -> quenchdb::Error {
    quenchdb::Error::invalid("the transaction has ended").with_advice("begin another one")
}

impl Slot {
    /// Returns the transaction.
    ///
    /// # Errors
    /// `InvalidArgument` after its end.
    pub fn get(&self) -> Result<&quenchdb::Transaction, quenchdb::Error> {
        match self {
            Slot::Owned(transaction) => Ok(transaction),
            // SAFETY: `quench_transact` ends the slot before its transaction ends.
            Slot::Lent(transaction) => Ok(unsafe { transaction.as_ref() }),
            Slot::Ended => Err(has_ended()),
        }
    }

    fn get_mut(&mut self) -> Result<&mut quenchdb::Transaction, quenchdb::Error> {
        match self {
            Slot::Owned(transaction) => Ok(transaction),
            // SAFETY: as above; the guard of the slot's lock is the only way to it.
            Slot::Lent(transaction) => Ok(unsafe { transaction.as_mut() }),
            Slot::Ended => Err(has_ended()),
        }
    }
}

impl Source {
    /// Returns what a new handle reads from.
    pub fn new(mut kind: Kind, database: Option<&quenchdb::Database>) -> Arc<Source> {
        let (version, savepoints, is_interrupted) = Default::default();
        if let Kind::Transaction(slot) = &mut kind
            && let Ok(transaction) = slot.get_mut().unwrap_or_else(PoisonError::into_inner).get_mut()
        {
            let is_interrupted: Arc<AtomicBool> = Arc::clone(&is_interrupted);
            transaction.interrupt_with(move || is_interrupted.swap(false, Ordering::Relaxed));
        }
        Arc::new(Source { kind, version, _database: database.cloned(), savepoints, is_interrupted })
    }

    /// Returns a count that changes with each change, and at the end.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    fn slot(&self) -> Answer<MutexGuard<'_, Slot>> {
        match &self.kind {
            Kind::Transaction(slot) => lock(slot, "transaction"),
            Kind::Snapshot(_) | Kind::OfStandby(_) => {
                let error = quenchdb::Error::invalid("a snapshot can only be read and freed");
                Err(error.with_advice("begin a transaction").into())
            }
        }
    }

    fn take(&self) -> Answer<quenchdb::Transaction> {
        let mut slot = self.slot()?;
        match std::mem::replace(&mut *slot, Slot::Ended) {
            Slot::Owned(transaction) => {
                self.version.fetch_add(1, Ordering::Release);
                Ok(transaction)
            }
            Slot::Ended => Err(has_ended().into()),
            lent @ Slot::Lent(_) => {
                *slot = lent;
                let error = quenchdb::Error::invalid("quench_transact ends the transaction of its callback");
                Err(error.with_advice("return 0 to commit, a negative number to roll back").into())
            }
        }
    }
}

/// Changes a transaction.
pub fn change<T>(
    transaction: Option<&Transaction>, change: impl FnOnce(&mut quenchdb::Transaction) -> quenchdb::Result<T>,
) -> Answer<T> {
    let source = source(transaction)?;
    let mut slot = source.slot()?;
    let changed = change(slot.get_mut()?);
    source.version.fetch_add(1, Ordering::Release);
    Ok(changed?)
}

/// Begins a transaction. `options` may be NULL: snapshot isolation, durable.
/// Threads: any. One thread at a time may use the transaction; a second call meanwhile is an error.
#[unsafe(no_mangle)]
pub extern "C" fn quench_begin(
    database: Option<&Database>, options: *const Options, transaction: *mut *mut Transaction,
    error: *mut *mut Error,
) -> c_int {
    call(error, || {
        hand_over(transaction, "transaction", || {
            let database = database::of(database)?;
            let begun = Slot::Owned(database.begin_with(self::options(options)?)?);
            Ok(Transaction { source: Source::new(Kind::Transaction(Mutex::new(begun)), Some(database)) })
        })
    })
}

/// Takes a snapshot, to read from. It blocks no writer, and no crash takes back what it returns.
/// Threads: any. Many threads at a time may read from the snapshot.
#[unsafe(no_mangle)]
pub extern "C" fn quench_begin_read(
    database: Option<&Database>, snapshot: *mut *mut Transaction, error: *mut *mut Error,
) -> c_int {
    call(error, || {
        hand_over(snapshot, "snapshot", || {
            let database = database::of(database)?;
            Ok(Transaction { source: Source::new(Kind::Snapshot(database.begin_read()?), Some(database)) })
        })
    })
}

/// Returns the CSN of the newest transaction that a snapshot sees: a change feed may begin there.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_snapshot_csn(
    snapshot: Option<&Transaction>, csn: *mut u64, error: *mut *mut Error,
) -> c_int {
    call(error, || {
        let seen = match &borrow(snapshot, "snapshot")?.source.kind {
            Kind::Snapshot(snapshot) => snapshot.csn(),
            Kind::OfStandby(snapshot) => snapshot.csn(),
            Kind::Transaction(_) => {
                return Err(quenchdb::Error::invalid("a transaction is no snapshot").into());
            }
        };
        give(csn, seen.0);
        Ok(())
    })
}

/// Commits. Returns when the transaction is as durable as its options say, and gives its CSN, 0 if
/// it changed nothing. The transaction has ended then, also after an error, and has to be freed
/// still.
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub extern "C" fn quench_commit(
    transaction: Option<&Transaction>, csn: *mut u64, error: *mut *mut Error,
) -> c_int {
    call(error, || source(transaction)?.take()?.commit().map(|made| give(csn, made.0)).map_err(Failure::from))
}

/// Commits and returns at once: others see the changes. The ticket says when they are durable.
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub extern "C" fn quench_commit_async(
    transaction: Option<&Transaction>, ticket: *mut *mut Ticket, error: *mut *mut Error,
) -> c_int {
    call(error, || {
        hand_over(ticket, "ticket", || Ok(Ticket { handle: source(transaction)?.take()?.commit_async()? }))
    })
}

/// Takes everything back and ends the transaction. quench_transaction_free does so, too.
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub extern "C" fn quench_rollback(transaction: Option<&Transaction>, error: *mut *mut Error) -> c_int {
    call(error, || source(transaction)?.take().map(quenchdb::Transaction::abort))
}

/// Frees a transaction, and rolls it back if it has not ended; or a snapshot, which its cursors
/// keep until they are freed. NULL is allowed.
/// Threads: any; not while another call uses the handle.
#[unsafe(no_mangle)]
pub extern "C" fn quench_transaction_free(transaction: Option<Box<Transaction>>) {
    discard(transaction);
}

impl Drop for Transaction {
    fn drop(&mut self) {
        // Cursors may keep the source, but not the rows that a transaction has changed.
        if let Kind::Transaction(_) = self.source.kind {
            drop(self.source.take());
        }
    }
}

/// Changes rows for quench_transact. Returns 0 or more to commit, and a negative number to roll
/// back: what a function of this library returned, whose error it may have put in `error`, or -1000
/// or less for a reason of its own. It must not free the transaction.
pub type TransactFunction = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        transaction: *mut Transaction,
        error: *mut *mut Error,
    ) -> c_int,
>;

/// Calls `change` with a transaction, commits it, and returns what `change` returned. After a
/// conflict, a deadlock or a lock timeout everything is taken back, and `change` is called again,
/// so it must have no other effects that may not be repeated. `change` is called by the calling
/// thread.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_transact(
    database: Option<&Database>, options: *const Options, change: TransactFunction, context: *mut c_void,
    error: *mut *mut Error,
) -> c_int {
    call(error, || {
        let (database, options) = (database::of(database)?, self::options(options)?);
        let change = *borrow(change.as_ref(), "change")?;
        database.transact_with(options, |transaction| {
            let kind = Kind::Transaction(Mutex::new(Slot::Lent(NonNull::from(transaction))));
            let source = Source::new(kind, Some(database));
            let mut raised = std::ptr::null_mut();
            let mut handle = Transaction { source: source.clone() };
            // SAFETY: the header says how the callback is called.
            let answer = unsafe { change(context, &raw mut handle, &raw mut raised) };
            if let Kind::Transaction(slot) = &source.kind {
                // Another thread of the callback's may be in a call, which ends.
                *slot.lock().unwrap_or_else(PoisonError::into_inner) = Slot::Ended;
            }
            source.version.fetch_add(1, Ordering::Release);
            let raised = take_error(&mut raised);
            if answer >= 0 { Ok(answer) } else { Err(Failure::Callback(answer, raised)) }
        })
    })
}

/// Returns 1 if a call of this transaction met another transaction, so that running it again may
/// succeed.
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub extern "C" fn quench_has_to_retry(transaction: Option<&Transaction>, error: *mut *mut Error) -> c_int {
    call(error, || Ok(source(transaction)?.slot()?.get()?.has_to_retry()))
}

/// Returns a point to roll back to: a number, valid until the transaction ends.
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub extern "C" fn quench_savepoint(
    transaction: Option<&Transaction>, savepoint: *mut u64, error: *mut *mut Error,
) -> c_int {
    call(error, || {
        let point = change(transaction, |transaction| Ok(transaction.savepoint()))?;
        let mut points = lock(&source(transaction)?.savepoints, "transaction")?;
        points.push(point);
        give(savepoint, points.len() as u64);
        Ok(())
    })
}

/// Takes back every change since a savepoint, which stays valid.
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub extern "C" fn quench_rollback_to(
    transaction: Option<&Transaction>, savepoint: u64, error: *mut *mut Error,
) -> c_int {
    call(error, || {
        let points = lock(&source(transaction)?.savepoints, "transaction")?;
        let at = usize::try_from(savepoint).ok().and_then(|number| number.checked_sub(1));
        let missing = || quenchdb::Error::invalid(format!("the transaction has no savepoint {savepoint}"));
        let point = *at.and_then(|at| points.get(at)).ok_or_else(missing)?;
        change(transaction, |transaction| transaction.rollback_to(point))
    })
}

/// Locks all rows of a table until the transaction ends: against changes, or, with `exclusive` 1,
/// against locking reads as well.
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub extern "C" fn quench_lock_table(
    transaction: Option<&Transaction>, table: Option<&Table>, exclusive: c_int, error: *mut *mut Error,
) -> c_int {
    let mode = if exclusive != 0 { LockMode::Exclusive } else { LockMode::Shared };
    call(error, || {
        let table = table::of(table)?;
        change(transaction, |transaction| transaction.lock_table(table, mode))
    })
}

/// Ends the wait of a transaction for a row or a lock, or its next wait if it waits for none:
/// within about 10 ms that call returns QUENCH_INTERRUPTED and has changed nothing. The transaction
/// may continue. A commit is not ended: see quench_commit_async.
/// Threads: any, also while another call uses the transaction; not while it is freed.
#[unsafe(no_mangle)]
pub extern "C" fn quench_interrupt(transaction: Option<&Transaction>, error: *mut *mut Error) -> c_int {
    call(error, || {
        source(transaction)?.is_interrupted.store(true, Ordering::Relaxed);
        Ok(())
    })
}
