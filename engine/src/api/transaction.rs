//! Transactions and snapshots as users hold them.

use super::handle::CommitHandle;
use super::table::Table;
use super::value::{UserReader, ValueReader};
use crate::base::{Csn, Error, Result};
use crate::commit::PoisonOnPanic;
use crate::transaction::{ActiveTransaction, LockMode, RangeCursor, ReadSnapshot, Savepoint, USER};
use std::io::Read;
use std::ops::{Bound, RangeBounds};

type Row = (Vec<u8>, Vec<u8>);

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
    pub(super) active: ActiveTransaction,
}

impl Transaction {
    /// Returns the value of `key`, own changes included.
    ///
    /// # Errors
    /// `InvalidArgument` for a bad key, `NotFound` for a dropped table, I/O, `Corruption`.
    pub fn get(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(self.get_into(table, key, &mut value)?.then_some(value))
    }

    /// Reads `key` into a buffer that the caller reuses. Returns whether the key exists.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn get_into(&self, table: &Table, key: impl AsRef<[u8]>, value: &mut Vec<u8>) -> Result<bool> {
        let key = key.as_ref();
        self.active.guarded(|active| active.get(&table.state, key, value))
    }

    /// Reads `key` and locks the row, whether it exists or not, against other writers until this
    /// transaction ends. In a serializable pessimistic transaction others may still lock it shared,
    /// until this one changes it.
    ///
    /// # Errors
    /// `Conflict` as for a write; as [`Transaction::get`].
    pub fn get_for_update(&mut self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let (key, mut value) = (key.as_ref(), Vec::new());
        let found = self.active.guarded_mut(|active| active.get_for_update(&table.state, key, &mut value));
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
        let found = self.active.guarded_mut(|active| active.get_for_share(&table.state, key, &mut value));
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
        self.active.guarded_mut(|active| active.lock_table(&table.state, mode))
    }

    /// Sets `key` to `value`, whether the key exists or not.
    ///
    /// # Errors
    /// `Conflict` if another transaction changed the row since this one's snapshot; `LockTimeout`
    /// if others hold it too long; `Deadlock`; `InvalidArgument` for sizes, or if the database was
    /// closed; `OutOfMemory` at a bound.
    pub fn insert(&mut self, table: &Table, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.active.guarded_mut(|active| active.insert(&table.state, key, value))
    }

    /// Sets `key` to all bytes of `reader`, and returns their number. For values that should not be
    /// in memory as a whole: pieces of 64 KiB are copied one at a time.
    ///
    /// # Errors
    /// As [`Transaction::insert`]; `Io` if `reader` fails; `InvalidArgument` for more than
    /// [`VALUE_BYTES_MAX`](crate::VALUE_BYTES_MAX) bytes; `OutOfMemory` if no page is left. Then
    /// the row is unchanged, and the transaction can continue.
    pub fn insert_from(&mut self, table: &Table, key: impl AsRef<[u8]>, reader: impl Read) -> Result<u64> {
        let (key, mut source) = (key.as_ref(), UserReader::new(reader));
        let written = self.active.guarded_mut(|active| active.insert_from(&table.state, key, &mut source));
        source.resume_panic();
        written
    }

    /// Opens the value of `key` to be read piece by piece. The transaction cannot write while the
    /// reader lives.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn read_value(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<ValueReader<'_>>> {
        let key = key.as_ref();
        Ok(self.active.guarded(|active| active.open_value(&table.state, key))?.map(ValueReader::new))
    }

    /// Deletes `key`. Returns whether it existed.
    ///
    /// # Errors
    /// As [`Transaction::insert`].
    pub fn remove(&mut self, table: &Table, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        self.active.guarded_mut(|active| active.remove(&table.state, key))
    }

    /// Brings the pages of rows that are about to be read or written into memory, many at once
    /// instead of one after the other. The rows need not exist. Worth it with data larger than
    /// memory; has no other effect.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn prefetch<K: AsRef<[u8]>>(&self, table: &Table, keys: impl IntoIterator<Item = K>) -> Result<()> {
        let keys: Vec<K> = keys.into_iter().collect();
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        self.active.guarded(|active| active.prefetch(&table.state, keys.into_iter()))
    }

    /// Returns the rows of a range of keys in order; from both ends. An empty or inverted range has
    /// none.
    pub fn range<K: AsRef<[u8]>>(&self, table: &Table, range: impl RangeBounds<K>) -> Range<'_> {
        Range::new(Source::Transaction(&self.active), table, &range)
    }

    /// Returns the row with the lowest key.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn first(&self, table: &Table) -> Result<Option<Row>> {
        self.range::<&[u8]>(table, ..).next().transpose()
    }

    /// Returns the row with the highest key.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn last(&self, table: &Table) -> Result<Option<Row>> {
        self.range::<&[u8]>(table, ..).next_back().transpose()
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
        self.active.guarded_mut(|active| active.rollback_to(savepoint))
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
        self.active.commit()
    }

    /// Commits and returns at once: the changes are visible to others. [`CommitHandle`] says when
    /// they become durable.
    ///
    /// # Errors
    /// `Poisoned`, `OutOfSpace`, `OutOfMemory` (a long transaction that was given up),
    /// `InvalidArgument` (a closed database): then the transaction is aborted.
    pub fn commit_async(self) -> Result<CommitHandle> {
        let commit = self.active.system().commit().clone();
        self.active.commit_async().map(|submitted| CommitHandle::new(commit, submitted))
    }

    /// Takes everything back. Dropping the transaction does the same.
    pub fn abort(self) {
        drop(self.active);
    }

    /// Takes everything back because of `error`, and returns the error that the caller gets:
    /// `error` once everything that the transaction observed is durable, because an answer is an
    /// acknowledgment.
    pub(super) fn abort_after(self, error: Error) -> Error {
        self.active.abort_acknowledging().err().unwrap_or(error)
    }
}

/// A consistent read-only view of the database. `Send` and `Sync`, owned. What a snapshot returns
/// cannot be lost in a crash, so a read may wait for the commit of what it found.
///
/// While a snapshot lives, the versions that it may need are kept. After the database is closed the
/// snapshot stays readable until the database is opened again for writing; then reading a page that
/// is not in memory is an error (`InvalidArgument`).
#[derive(Debug)]
#[must_use = "a snapshot keeps old versions while it lives: read from it, then drop it"]
pub struct Snapshot {
    pub(super) snapshot: ReadSnapshot,
}

impl Snapshot {
    fn inside(&self) -> Option<PoisonOnPanic<'_>> {
        self.snapshot.system().committed.inside(USER)
    }

    /// Returns the CSN of the newest transaction that the snapshot sees.
    #[must_use]
    pub fn csn(&self) -> Csn {
        self.snapshot.csn()
    }

    /// Returns the value of `key`.
    ///
    /// # Errors
    /// `InvalidArgument` for a bad key, or if the database was closed and its pages have moved;
    /// `NotFound` for a dropped table, `Poisoned` where the answer could still be lost, I/O,
    /// `Corruption`.
    pub fn get(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(self.get_into(table, key, &mut value)?.then_some(value))
    }

    /// Reads `key` into a buffer that the caller reuses. Returns whether the key exists.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn get_into(&self, table: &Table, key: impl AsRef<[u8]>, value: &mut Vec<u8>) -> Result<bool> {
        let key = key.as_ref();
        let _inside = self.inside();
        self.snapshot.get(&table.state, key, value)
    }

    /// Opens the value of `key` to be read piece by piece.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn read_value(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<ValueReader<'_>>> {
        let key = key.as_ref();
        let _inside = self.inside();
        Ok(self.snapshot.open_value(&table.state, key)?.map(ValueReader::new))
    }

    /// Brings the pages of rows that are about to be read or written into memory, many at once
    /// instead of one after the other. The rows need not exist. Worth it with data larger than
    /// memory; has no other effect.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn prefetch<K: AsRef<[u8]>>(&self, table: &Table, keys: impl IntoIterator<Item = K>) -> Result<()> {
        let keys: Vec<K> = keys.into_iter().collect();
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        let _inside = self.inside();
        self.snapshot.prefetch(&table.state, keys.into_iter())
    }

    /// Returns the rows of a range of keys in order; from both ends.
    pub fn range<K: AsRef<[u8]>>(&self, table: &Table, range: impl RangeBounds<K>) -> Range<'_> {
        Range::new(Source::Snapshot(&self.snapshot), table, &range)
    }

    /// Returns the row with the lowest key.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn first(&self, table: &Table) -> Result<Option<Row>> {
        self.range::<&[u8]>(table, ..).next().transpose()
    }

    /// Returns the row with the highest key.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn last(&self, table: &Table) -> Result<Option<Row>> {
        self.range::<&[u8]>(table, ..).next_back().transpose()
    }
}

#[derive(Debug)]
enum Source<'a> {
    Transaction(&'a ActiveTransaction),
    Snapshot(&'a ReadSnapshot),
}

/// Rows in key order, from both ends. After an error the iterator ends.
#[derive(Debug)]
#[must_use = "a range reads nothing before `next`"]
pub struct Range<'a> {
    source: Source<'a>,
    cursor: RangeCursor,
    failed: bool,
}

impl<'a> Range<'a> {
    fn new<K: AsRef<[u8]>>(source: Source<'a>, table: &Table, range: &impl RangeBounds<K>) -> Range<'a> {
        let own = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        let cursor = RangeCursor::new(table.state.clone(), own(range.start_bound()), own(range.end_bound()));
        Range { source, cursor, failed: false }
    }

    /// Returns the next row, key and value, without the copies that [`Iterator::next`] makes.
    pub fn next_row(&mut self) -> Option<Result<(&[u8], &[u8])>> {
        self.step(false)
    }

    /// Returns the next row from the upper end, as [`Range::next_row`].
    pub fn next_row_back(&mut self) -> Option<Result<(&[u8], &[u8])>> {
        self.step(true)
    }

    fn step(&mut self, back: bool) -> Option<Result<(&[u8], &[u8])>> {
        if self.failed {
            return None;
        }
        let came = match &self.source {
            Source::Transaction(active) => active.guarded(|active| active.step(&mut self.cursor, back)),
            Source::Snapshot(snapshot) => {
                let _inside = snapshot.system().committed.inside(USER);
                snapshot.step(&mut self.cursor, back)
            }
        };
        self.failed = came.is_err();
        came.map(|came| came.then(|| self.cursor.row(back))).transpose()
    }
}

fn own((key, value): (&[u8], &[u8])) -> Row {
    (key.to_vec(), value.to_vec())
}

impl Iterator for Range<'_> {
    type Item = Result<Row>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(false).map(|row| row.map(own))
    }
}

impl DoubleEndedIterator for Range<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(true).map(|row| row.map(own))
    }
}
