//! Transactions.

use crate::codec::Buffer;
use crate::commit::{Commit, commit};
use crate::database::Database;
use crate::error::{call, invalid};
use crate::options;
use crate::reader::{Any, Pair, Reader, SourceKind, Table, pair, transaction_ended};
use crate::rows::bounds;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use quenchdb::{LockMode, Result};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Rows that `put_many` collects before it releases the interpreter lock to write them.
const ROWS_AT_ONCE: usize = 1024;

/// A read-write transaction.
#[pyclass(frozen, subclass, extends = Reader, module = "quenchdb._native")]
pub struct Transaction {
    has_ended: AtomicBool,
    /// A commit waits until it is durable, and may be waited for in pieces.
    is_durable: bool,
}

/// A point to roll back to.
#[pyclass(frozen, module = "quenchdb._native")]
pub struct Savepoint {
    savepoint: quenchdb::Savepoint,
}

#[pymethods]
impl Transaction {
    #[new]
    #[pyo3(signature = (database, options=None))]
    fn new(
        database: &Bound<'_, Database>, options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<Transaction>> {
        let (py, shared) = (database.py(), &database.get().shared);
        let is = |name: &str, usual: &str| -> PyResult<bool> {
            let given = options.map(|options| options.get_item(name)).transpose()?.flatten();
            given.map_or(Ok(true), |given| given.eq(usual))
        };
        let is_durable = is("durability", "durable")? && is("lock_release", "pre-commit")?;
        let options = options::transaction(options)?;
        let transaction = call(py, || shared.begin(options))?;
        let reader = Reader::new(shared, SourceKind::Transaction(Mutex::new(Some(transaction))));
        let transaction = Transaction { has_ended: AtomicBool::new(false), is_durable };
        Ok(PyClassInitializer::from(reader).add_subclass(transaction))
    }

    /// True after a commit or rollback.
    #[getter]
    fn closed(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }

    /// Sets a row, whether it exists or not.
    fn put(slf: &Bound<'_, Self>, table: &Bound<'_, Table>, key: &Any<'_>, value: &Any<'_>) -> PyResult<()> {
        let table = table.get();
        let (key, value) = (table.key.encode(key)?, table.value.encode(value)?);
        let (key, value) = (key.bytes()?, value.bytes()?);
        Self::change(slf, |tx| tx.insert(&table.table, key, value))
    }

    /// Sets each row of an iterable of pairs. Returns their number.
    fn put_many(slf: &Bound<'_, Self>, table: &Bound<'_, Table>, rows: &Any<'_>) -> PyResult<u64> {
        let table = table.get();
        let (mut count, mut batch) = (0, Vec::with_capacity(ROWS_AT_ONCE));
        for row in rows.try_iter()? {
            let (key, value): (Any<'_>, Any<'_>) = row?.extract()?;
            batch.push((table.key.encode(&key)?, table.value.encode(&value)?));
            count += 1;
            if batch.len() == ROWS_AT_ONCE {
                put_batch(slf, table, &batch)?;
                batch.clear();
            }
        }
        put_batch(slf, table, &batch)?;
        Ok(count)
    }

    /// Sets a row if the key does not exist. Returns whether it did.
    fn put_new(
        slf: &Bound<'_, Self>, table: &Bound<'_, Table>, key: &Any<'_>, value: &Any<'_>,
    ) -> PyResult<bool> {
        let table = table.get();
        let (key, value) = (table.key.encode(key)?, table.value.encode(value)?);
        let (key, value) = (key.bytes()?, value.bytes()?);
        Self::change(slf, |tx| tx.insert_if_absent(&table.table, key, value))
    }

    /// Deletes a row. Returns whether it existed.
    fn delete(slf: &Bound<'_, Self>, table: &Bound<'_, Table>, key: &Any<'_>) -> PyResult<bool> {
        let (table, key) = (table.get(), table.get().key.encode(key)?);
        let key = key.bytes()?;
        Self::change(slf, |tx| tx.remove(&table.table, key))
    }

    /// Deletes a row and returns its value, or ``default``.
    #[pyo3(signature = (table, key, default=None))]
    fn pop<'py>(
        slf: &Bound<'py, Self>, table: &Bound<'py, Table>, key: &Any<'py>, default: Option<Any<'py>>,
    ) -> PyResult<Option<Any<'py>>> {
        Self::read_to_change(slf, table, key, default, |tx, table, key| tx.take(table, key))
    }

    /// Sets a row and returns the value before.
    fn replace<'py>(
        slf: &Bound<'py, Self>, table: &Bound<'py, Table>, key: &Any<'py>, value: &Any<'py>,
    ) -> PyResult<Option<Any<'py>>> {
        let value = table.get().value.encode(value)?;
        let value = value.bytes()?;
        Self::read_to_change(slf, table, key, None, |tx, table, key| tx.replace(table, key, value))
    }

    /// Reads a row and locks it against other writers until the transaction ends.
    #[pyo3(signature = (table, key, default=None))]
    fn get_for_update<'py>(
        slf: &Bound<'py, Self>, table: &Bound<'py, Table>, key: &Any<'py>, default: Option<Any<'py>>,
    ) -> PyResult<Option<Any<'py>>> {
        Self::read_to_change(slf, table, key, default, |tx, table, key| tx.get_for_update(table, key))
    }

    /// Reads a row and locks it against changes until the transaction ends.
    #[pyo3(signature = (table, key, default=None))]
    fn get_for_share<'py>(
        slf: &Bound<'py, Self>, table: &Bound<'py, Table>, key: &Any<'py>, default: Option<Any<'py>>,
    ) -> PyResult<Option<Any<'py>>> {
        Self::read_to_change(slf, table, key, default, |tx, table, key| tx.get_for_share(table, key))
    }

    /// Deletes the first row, or the last one, and returns it.
    fn pop_end<'py>(slf: &Bound<'py, Self>, table: &Bound<'py, Table>, last: bool) -> Pair<'py> {
        let (py, table) = (slf.py(), table.get());
        let pop = |tx: &mut quenchdb::Transaction| match last {
            true => tx.pop_last(&table.table),
            false => tx.pop_first(&table.table),
        };
        pair(py, table, Self::change(slf, pop)?)
    }

    fn compare_and_set(
        slf: &Bound<'_, Self>, table: &Bound<'_, Table>, key: &Any<'_>, expected: Option<Any<'_>>,
        new: Option<Any<'_>>,
    ) -> PyResult<bool> {
        let table = table.get();
        let key = table.key.encode(key)?;
        let expected = expected.map(|value| table.value.encode(&value)).transpose()?;
        let new = new.map(|value| table.value.encode(&value)).transpose()?;
        let key = key.bytes()?;
        let expected = expected.as_ref().map(|value| value.bytes()).transpose()?;
        let new = new.as_ref().map(|value| value.bytes()).transpose()?;
        Self::change(slf, |tx| tx.compare_and_set(&table.table, key, expected, new))
    }

    /// Adds to a counter, a big-endian number of 64 bits, and returns the sum.
    fn add(slf: &Bound<'_, Self>, table: &Bound<'_, Table>, key: &Any<'_>, delta: i64) -> PyResult<i64> {
        let (table, key) = (table.get(), table.get().key.encode(key)?);
        let key = key.bytes()?;
        Self::change(slf, |tx| tx.add(&table.table, key, delta))
    }

    #[allow(clippy::too_many_arguments)]
    fn _delete_range(
        slf: &Bound<'_, Self>, table: &Bound<'_, Table>, start: Option<Any<'_>>, stop: Option<Any<'_>>,
        prefix: Option<Any<'_>>, include_start: bool, include_stop: bool,
    ) -> PyResult<u64> {
        let table = table.get();
        let range = bounds(slf.py(), table, (start, stop, prefix, include_start, include_stop))?;
        Self::change(slf, |tx| tx.remove_range(&table.table, range))
    }

    /// Locks all rows of a table, ``shared`` or ``exclusive``, until the transaction ends.
    fn lock_table(slf: &Bound<'_, Self>, table: &Bound<'_, Table>, mode: &str) -> PyResult<()> {
        let table = table.get();
        let mode = match mode {
            "shared" => LockMode::Shared,
            "exclusive" => LockMode::Exclusive,
            _ => {
                return Err(invalid(
                    slf.py(),
                    format!("there is no lock `{mode}`"),
                    "choose shared or exclusive",
                ));
            }
        };
        Self::change(slf, |tx| tx.lock_table(&table.table, mode))
    }

    /// Returns a point to roll back to.
    fn savepoint(slf: &Bound<'_, Self>) -> PyResult<Savepoint> {
        Self::change(slf, |tx| Ok(Savepoint { savepoint: tx.savepoint() }))
    }

    /// Takes back every change since a savepoint, which stays valid.
    fn rollback_to(slf: &Bound<'_, Self>, savepoint: &Bound<'_, Savepoint>) -> PyResult<()> {
        let savepoint = savepoint.get().savepoint;
        Self::change(slf, |tx| tx.rollback_to(savepoint))
    }

    /// Returns whether the transaction met another one, so that running it again may succeed.
    fn has_to_retry(slf: &Bound<'_, Self>) -> PyResult<bool> {
        Self::change(slf, |tx| Ok(tx.has_to_retry()))
    }

    /// Commits, and returns the CSN; 0 if nothing was written.
    fn commit(slf: &Bound<'_, Self>) -> PyResult<u64> {
        let source = &slf.as_super().get().source;
        slf.get().has_ended.store(true, Ordering::SeqCst);
        let take = || source.take()?.ok_or_else(transaction_ended);
        commit(slf.py(), &source.shared, slf.get().is_durable, take)
    }

    /// Commits, and returns the handle of the commit at once.
    fn submit(slf: &Bound<'_, Self>) -> PyResult<Commit> {
        let handle = Self::end(slf, |transaction| transaction.ok_or_else(transaction_ended)?.commit_async())?;
        Ok(Commit::new(handle, slf.as_super().get().source.shared.clone()))
    }

    /// Takes everything back. Does nothing if the transaction has ended.
    fn rollback(slf: &Bound<'_, Self>) -> PyResult<()> {
        Self::end(slf, |transaction| {
            drop(transaction);
            Ok(())
        })
    }

    /// Takes everything back, and returns once everything that the transaction read is durable.
    fn rollback_acknowledging(slf: &Bound<'_, Self>) -> PyResult<()> {
        Self::end(slf, |transaction| transaction.map_or(Ok(()), quenchdb::Transaction::abort_acknowledging))
    }
}

impl Transaction {
    fn change<T: Send>(
        slf: &Bound<'_, Self>, change: impl FnOnce(&mut quenchdb::Transaction) -> Result<T> + Send,
    ) -> PyResult<T> {
        slf.as_super().get().source.change(slf.py(), change)
    }

    fn end<T: Send>(
        slf: &Bound<'_, Self>, end: impl FnOnce(Option<quenchdb::Transaction>) -> Result<T> + Send,
    ) -> PyResult<T> {
        let source = &slf.as_super().get().source;
        slf.get().has_ended.store(true, Ordering::SeqCst);
        call(slf.py(), || end(source.take()?))
    }

    fn read_to_change<'py>(
        slf: &Bound<'py, Self>, table: &Bound<'py, Table>, key: &Any<'py>, default: Option<Any<'py>>,
        read: impl FnOnce(&mut quenchdb::Transaction, &quenchdb::Table, &[u8]) -> Result<Option<Vec<u8>>> + Send,
    ) -> PyResult<Option<Any<'py>>> {
        let (py, table, key) = (slf.py(), table.get(), table.get().key.encode(key)?);
        let key = key.bytes()?;
        match Self::change(slf, |tx| read(tx, &table.table, key))? {
            Some(value) => table.value.decode(py, &value).map(Some),
            None => Ok(default),
        }
    }
}

fn put_batch(
    slf: &Bound<'_, Transaction>, table: &Table, batch: &[(Buffer<'_>, Buffer<'_>)],
) -> PyResult<()> {
    let rows = batch.iter().map(|(key, value)| Ok((key.bytes()?, value.bytes()?)));
    let rows = rows.collect::<PyResult<Vec<_>>>()?;
    Transaction::change(slf, |tx| {
        rows.iter().try_for_each(|(key, value)| tx.insert(&table.table, key, value))
    })
}
