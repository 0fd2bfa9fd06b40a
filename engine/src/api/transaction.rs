//! A read-write transaction as a user holds it. Its reads are in `reads`, its composed changes in
//! `changes`.

use super::handle::CommitHandle;
use super::range::Source;
use super::table::Table;
use super::value::UserReader;
use crate::base::{Csn, Error, ErrorKind, Result};
use crate::sync::Ours;
use crate::transaction::{ActiveTransaction, Interrupt, LockMode, OpenValue, RangeCursor, Savepoint};
use std::cell::Cell;
use std::io::Read;

/// A read-write transaction, with snapshot isolation by default. `Send`, and not tied to the
/// lifetime of the [`Database`] handle.
///
/// Dropping a transaction aborts it, also while the thread unwinds. After a panic of the user's own
/// code (a reader, a key, an iterator passed to a call, or code between two calls) its rows are
/// free again at once. A panic of the engine itself, or of a storage of the user, poisons the
/// database: then the rows of the transaction stay locked until the database is opened again.
///
/// [`Database`]: crate::Database
#[derive(Debug)]
#[must_use = "dropping a transaction aborts it: commit it"]
pub struct Transaction {
    active: Ours<Box<ActiveTransaction>>,
    /// A call failed in a way that running the transaction again may cure.
    has_to_retry: Cell<bool>,
    /// A call failed because it waited too long for a row or lock.
    has_timed_out: Cell<bool>,
}

impl Source for Transaction {
    fn read(&self, table: &Table, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.call(|active| active.get(&table.state, key, value))
    }

    fn open(&self, table: &Table, key: &[u8]) -> Result<Option<OpenValue>> {
        self.call(|active| active.open_value(&table.state, key))
    }

    fn prefetch_keys(&self, table: &Table, keys: &[&[u8]]) -> Result<()> {
        self.call(|active| active.prefetch(&table.state, keys.iter().copied()))
    }

    fn step(&self, cursor: &mut RangeCursor, back: bool) -> Result<bool> {
        self.call(|active| active.step(cursor, back))
    }

    fn visit_copied(
        &self,
        _cursor: &mut RangeCursor,
        _each: impl FnMut(&[u8], &[u8]) -> Result<()>,
    ) -> Result<()> {
        Ok(()) // each row is counted, and may be locked or remembered
    }
}

impl Transaction {
    pub(super) fn new(active: Box<ActiveTransaction>) -> Transaction {
        Transaction {
            active: Ours::new(active),
            has_to_retry: Cell::new(false),
            has_timed_out: Cell::new(false),
        }
    }

    #[inline]
    fn call<T>(&self, f: impl FnOnce(&ActiveTransaction) -> Result<T>) -> Result<T> {
        self.active.system().committed.check_usable()?;
        let result = self.active.guarded(f);
        self.note(&result);
        result
    }

    #[inline]
    fn call_mut<T>(&mut self, f: impl FnOnce(&mut ActiveTransaction) -> Result<T>) -> Result<T> {
        self.active.system().committed.check_usable()?;
        let result = self.active.guarded_mut(f);
        self.note(&result);
        result
    }

    #[inline]
    fn note<T>(&self, result: &Result<T>) {
        if let Err(error) = result
            && error.is_retryable()
        {
            self.has_to_retry.set(true);
            self.has_timed_out.set(error.kind() == ErrorKind::LockTimeout);
        }
    }

    pub(super) fn has_timed_out(&self) -> bool {
        self.has_timed_out.get()
    }

    /// Returns whether a call of this transaction returned a conflict, a deadlock or a lock
    /// timeout, so that running the transaction again may succeed.
    #[must_use]
    pub fn has_to_retry(&self) -> bool {
        self.has_to_retry.get()
    }

    /// Sets a function that ends waits. While a call of this transaction waits for a row or a lock,
    /// the waiting thread calls `is_interrupted` about every 10 ms. If it returns true, the call
    /// fails with [`ErrorKind::Interrupted`] and has changed nothing. The transaction keeps what it
    /// has changed and locked: continue it, commit it, or drop it.
    ///
    /// The function may use the database, but not this transaction, whose call it is in. It must
    /// not panic. The wait of a commit for the device is not ended: see
    /// [`Transaction::commit_async`].
    ///
    /// ```
    /// use quenchdb::{Database, ErrorKind};
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicBool, Ordering};
    ///
    /// # fn main() -> quenchdb::Result<()> {
    /// # let db = Database::builder().open_in_memory()?;
    /// # let table = db.create_table("words")?;
    /// let is_interrupted = Arc::new(AtomicBool::new(false));
    /// let mut holder = db.begin()?;
    /// holder.insert(&table, "ant", "1")?;
    ///
    /// let mut tx = db.begin()?;
    /// let flag = is_interrupted.clone();
    /// tx.interrupt_with(move || flag.swap(false, Ordering::SeqCst));
    /// let waiter = std::thread::spawn(move || tx.insert(&table, "ant", "2").map_err(|error| error.kind()));
    /// is_interrupted.store(true, Ordering::SeqCst);
    /// assert_eq!(waiter.join().expect("no panic"), Err(ErrorKind::Interrupted));
    /// # Ok(())
    /// # }
    /// ```
    pub fn interrupt_with(&mut self, is_interrupted: impl Fn() -> bool + Send + Sync + 'static) {
        self.active.interrupt_with(Interrupt::new(is_interrupted));
    }

    /// Refuses all further changes, and a commit, with `error`: the last change was made in part.
    pub(crate) fn can_only_abort(&mut self, error: &Error) {
        self.active.can_only_abort(error.duplicate());
    }

    /// Returns a conflict, after which the transaction can only abort.
    pub(crate) fn conflicts(&mut self, what: &str) -> Error {
        let error = Error::new(ErrorKind::Conflict, what);
        self.can_only_abort(&error);
        self.has_to_retry.set(true);
        error
    }

    /// Reads a row that is about to be changed: in a way that no other transaction can change it
    /// in between. Where a write of a row that is newer than the snapshot fails, a plain read is
    /// enough.
    pub(crate) fn read_to_change(&mut self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        let found = self.call_mut(|active| active.get_to_change(&table.state, key, &mut value));
        Ok(found?.then_some(value))
    }

    /// Reads `key` and locks the row, whether it exists or not, against other writers until this
    /// transaction ends. In a serializable pessimistic transaction others may still lock it shared,
    /// until this one changes it.
    ///
    /// # Errors
    /// `Conflict` as for a write; as [`Transaction::get`].
    pub fn get_for_update(&mut self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let (key, mut value) = (key.as_ref(), Vec::new());
        let found = self.call_mut(|active| active.get_for_update(&table.state, key, &mut value));
        Ok(found?.then_some(value))
    }

    /// Reads `key` and locks the row, whether it exists or not, against changes until this
    /// transaction ends. Others may read and lock it in the same way. A lock of this kind is
    /// allowed at every isolation.
    ///
    /// # Errors
    /// `Deadlock`, `LockTimeout`; `Conflict` if the row is newer than the snapshot; `OutOfMemory`
    /// at the bound of locks; `InvalidArgument` in a read-only transaction; as
    /// [`Transaction::get`].
    pub fn get_for_share(&mut self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let (key, mut value) = (key.as_ref(), Vec::new());
        let found = self.call_mut(|active| active.get_for_share(&table.state, key, &mut value));
        Ok(found?.then_some(value))
    }

    /// Locks all rows of a table until this transaction ends, rows that do not exist, too:
    /// [`LockMode::Shared`] against changes, [`LockMode::Exclusive`] against locking reads as well.
    /// Waits for transactions that have changed rows of the table. Reads that take no locks, those
    /// of snapshots among them, are not affected.
    ///
    /// # Errors
    /// `Deadlock`, `LockTimeout`; `NotFound` for a dropped table; `InvalidArgument` for another
    /// mode, or in a read-only transaction.
    pub fn lock_table(&mut self, table: &Table, mode: LockMode) -> Result<()> {
        self.call_mut(|active| active.lock_table(&table.state, mode))
    }

    /// Sets `key` to `value`, whether the key exists or not.
    ///
    /// # Errors
    /// `Conflict` if another transaction changed the row since this one's snapshot; `LockTimeout`
    /// if others hold it too long; `Deadlock`; `InvalidArgument` for sizes, or if the database was
    /// closed; `OutOfMemory` at a bound.
    pub fn insert(&mut self, table: &Table, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.call_mut(|active| active.insert(&table.state, key, value))
    }

    /// Sets `key` to all bytes of `reads`, and returns their number. For values that should not be
    /// in memory as a whole: pieces of 64 KiB are copied one at a time.
    ///
    /// # Errors
    /// As [`Transaction::insert`]; `Io` if `reads` fails; `InvalidArgument` for more than
    /// [`VALUE_BYTES_MAX`](crate::VALUE_BYTES_MAX) bytes; `OutOfMemory` if no page is left. Then
    /// the row is unchanged, and the transaction can continue.
    pub fn insert_from(&mut self, table: &Table, key: impl AsRef<[u8]>, reader: impl Read) -> Result<u64> {
        let (key, mut source) = (key.as_ref(), UserReader::new(reader));
        let written = self.call_mut(|active| active.insert_from(&table.state, key, &mut source));
        source.resume_panic();
        written
    }

    /// Deletes `key`. Returns whether it existed.
    ///
    /// # Errors
    /// As [`Transaction::insert`].
    pub fn remove(&mut self, table: &Table, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        self.call_mut(|active| active.remove(&table.state, key))
    }

    /// Creates a point to roll back to.
    pub fn savepoint(&mut self) -> Savepoint {
        self.active.savepoint()
    }

    /// Takes back every change made since `savepoint`, and keeps the savepoint valid.
    ///
    /// # Errors
    /// `InvalidArgument` for a savepoint of another transaction, or of a state that was rolled back
    /// itself. I/O, `Corruption` or `OutOfMemory` if a page cannot be read: then the transaction
    /// can only be aborted, and each further change, and a commit, returns that error again.
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()> {
        self.call_mut(|active| active.rollback_to(savepoint))
    }

    /// Commits. With [`Durability::Durable`](crate::Durability::Durable) (the default) the
    /// transaction survives a power cut once this returns `Ok` (with the log in mapped memory: what
    /// `Statistics::log_memory` says; a database in memory survives nothing); a transaction that
    /// only read returns once all it saw survives. Returns the commit sequence number, 0 if nothing
    /// was written.
    ///
    /// # Errors
    /// `OutcomeUnknown` if the device failed in between; `Poisoned`, `OutOfSpace`, `OutOfMemory` (a
    /// long transaction that was given up), `InvalidArgument` (a closed database) before anything
    /// happened: then the transaction is aborted.
    pub fn commit(self) -> Result<Csn> {
        self.active.into_inner()?.commit()
    }

    /// Commits and returns at once: the changes are visible to others. [`CommitHandle`] says when
    /// they become durable.
    ///
    /// # Errors
    /// `Poisoned`, `OutOfSpace`, `OutOfMemory` (a long transaction that was given up),
    /// `InvalidArgument` (a closed database): then the transaction is aborted.
    pub fn commit_async(self) -> Result<CommitHandle> {
        let active = self.active.into_inner()?;
        let commit = active.system().commit().clone();
        active.commit_async().map(|submitted| CommitHandle::new(commit, submitted))
    }

    /// Takes everything back. Dropping the transaction does the same.
    pub fn abort(self) {
        drop(self.active);
    }

    /// Takes everything back. At level durable, returns once everything that the transaction
    /// observed is durable, and at level written, once it is written. At other levels this waits
    /// for nothing. For programs that end a transaction with an answer of their own ("no such
    /// account"): what the answer says about the data is then as safe as a commit would be.
    /// [`Database::transact`] does this if its function returns an error.
    ///
    /// # Errors
    /// `Poisoned` if a write or flush failed.
    ///
    /// [`Database::transact`]: crate::Database::transact
    pub fn abort_acknowledging(self) -> Result<()> {
        self.active.into_inner()?.abort_acknowledging()
    }
}
