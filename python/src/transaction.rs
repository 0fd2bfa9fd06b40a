//! Transactions.

use crate::codec::Buffer;
use crate::commit::Commit;
use crate::database::Database;
use crate::error::{invalid, raise};
use crate::options;
use crate::reader::{Reader, SourceKind, Table, pair, transaction_ended};
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
        database: &Bound<'_, Database>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<Transaction>> {
        let shared = &database.get().shared;
        let options = options::transaction(options)?;
        let transaction = database.py().detach(|| shared.database().begin_with(options)).map_err(raise)?;
        let reader = Reader::new(shared, SourceKind::Transaction(Mutex::new(Some(transaction))));
        Ok(PyClassInitializer::from(reader).add_subclass(Transaction { has_ended: AtomicBool::new(false) }))
    }

    /// True after a commit or rollback.
    #[getter]
    fn closed(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }

    /// Sets a row, whether it exists or not.
    fn put(
        slf: &Bound<'_, Self>,
        table: &Bound<'_, Table>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let table = table.get();
        let (key, value) = (table.key.encode(key)?, table.value.encode(value)?);
        let (key, value) = (key.bytes()?, value.bytes()?);
        Self::change(slf, |tx| tx.insert(&table.table, key, value))
    }

    /// Sets each row of an iterable of pairs. Returns their number.
    fn put_many(slf: &Bound<'_, Self>, table: &Bound<'_, Table>, rows: &Bound<'_, PyAny>) -> PyResult<u64> {
        let table = table.get();
        let (mut count, mut batch) = (0, Vec::with_capacity(ROWS_AT_ONCE));
        for row in rows.try_iter()? {
            let (key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = row?.extract()?;
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
        slf: &Bound<'_, Self>,
        table: &Bound<'_, Table>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let table = table.get();
        let (key, value) = (table.key.encode(key)?, table.value.encode(value)?);
        let (key, value) = (key.bytes()?, value.bytes()?);
        Self::change(slf, |tx| tx.insert_if_absent(&table.table, key, value))
    }

    /// Deletes a row. Returns whether it existed.
    fn delete(slf: &Bound<'_, Self>, table: &Bound<'_, Table>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let table = table.get();
        let key = table.key.encode(key)?;
        let key = key.bytes()?;
        Self::change(slf, |tx| tx.remove(&table.table, key))
    }

    /// Deletes a row and returns its value, or ``default``.
    #[pyo3(signature = (table, key, default=None))]
    fn pop<'py>(
        slf: &Bound<'py, Self>,
        table: &Bound<'py, Table>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Self::read_to_change(slf, table, key, default, |tx, table, key| tx.take(table, key))
    }

    /// Sets a row and returns the value before.
    fn replace<'py>(
        slf: &Bound<'py, Self>,
        table: &Bound<'py, Table>,
        key: &Bound<'py, PyAny>,
        value: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let value = table.get().value.encode(value)?;
        let value = value.bytes()?;
        Self::read_to_change(slf, table, key, None, |tx, table, key| tx.replace(table, key, value))
    }

    /// Reads a row and locks it against other writers until the transaction ends.
    #[pyo3(signature = (table, key, default=None))]
    fn get_for_update<'py>(
        slf: &Bound<'py, Self>,
        table: &Bound<'py, Table>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Self::read_to_change(slf, table, key, default, |tx, table, key| tx.get_for_update(table, key))
    }

    /// Reads a row and locks it against changes until the transaction ends.
    #[pyo3(signature = (table, key, default=None))]
    fn get_for_share<'py>(
        slf: &Bound<'py, Self>,
        table: &Bound<'py, Table>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Self::read_to_change(slf, table, key, default, |tx, table, key| tx.get_for_share(table, key))
    }

    /// Deletes the first row, or the last one, and returns it.
    fn pop_end<'py>(
        slf: &Bound<'py, Self>,
        table: &Bound<'py, Table>,
        last: bool,
    ) -> PyResult<Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
        let (py, table) = (slf.py(), table.get());
        let row =
            Self::change(
                slf,
                |tx| if last { tx.pop_last(&table.table) } else { tx.pop_first(&table.table) },
            )?;
        pair(py, table, row)
    }

    fn compare_and_set(
        slf: &Bound<'_, Self>,
        table: &Bound<'_, Table>,
        key: &Bound<'_, PyAny>,
        expected: Option<Bound<'_, PyAny>>,
        new: Option<Bound<'_, PyAny>>,
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
    fn add(
        slf: &Bound<'_, Self>,
        table: &Bound<'_, Table>,
        key: &Bound<'_, PyAny>,
        delta: i64,
    ) -> PyResult<i64> {
        let table = table.get();
        let key = table.key.encode(key)?;
        let key = key.bytes()?;
        Self::change(slf, |tx| tx.add(&table.table, key, delta))
    }

    #[pyo3(signature = (table, start, stop, prefix, include_start, include_stop))]
    fn _delete_range(
        slf: &Bound<'_, Self>,
        table: &Bound<'_, Table>,
        start: Option<Bound<'_, PyAny>>,
        stop: Option<Bound<'_, PyAny>>,
        prefix: Option<Bound<'_, PyAny>>,
        include_start: bool,
        include_stop: bool,
    ) -> PyResult<u64> {
        let table = table.get();
        let range = bounds(table, start, stop, prefix, (include_start, include_stop))?;
        Self::change(slf, |tx| tx.remove_range(&table.table, range))
    }

    /// Locks all rows of a table, ``shared`` or ``exclusive``, until the transaction ends.
    fn lock_table(slf: &Bound<'_, Self>, table: &Bound<'_, Table>, mode: &str) -> PyResult<()> {
        let table = table.get();
        let mode = match mode {
            "shared" => LockMode::Shared,
            "exclusive" => LockMode::Exclusive,
            _ => return Err(invalid(format!("there is no lock `{mode}`"), "choose shared or exclusive")),
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
        let csn = Self::end(slf, |transaction| transaction.ok_or_else(transaction_ended)?.commit())?;
        Ok(csn.0)
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
        slf: &Bound<'_, Self>,
        change: impl FnOnce(&mut quenchdb::Transaction) -> Result<T> + Send,
    ) -> PyResult<T> {
        slf.as_super().get().source.change(slf.py(), change)
    }

    fn end<T: Send>(
        slf: &Bound<'_, Self>,
        end: impl FnOnce(Option<quenchdb::Transaction>) -> Result<T> + Send,
    ) -> PyResult<T> {
        let source = &slf.as_super().get().source;
        slf.get().has_ended.store(true, Ordering::SeqCst);
        slf.py().detach(|| end(source.take()?)).map_err(raise)
    }

    fn read_to_change<'py>(
        slf: &Bound<'py, Self>,
        table: &Bound<'py, Table>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
        read: impl FnOnce(&mut quenchdb::Transaction, &quenchdb::Table, &[u8]) -> Result<Option<Vec<u8>>> + Send,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (py, table) = (slf.py(), table.get());
        let key = table.key.encode(key)?;
        let key = key.bytes()?;
        match Self::change(slf, |tx| read(tx, &table.table, key))? {
            Some(value) => table.value.decode(py, &value).map(Some),
            None => Ok(default),
        }
    }
}

fn put_batch(
    slf: &Bound<'_, Transaction>,
    table: &Table,
    batch: &[(Buffer<'_>, Buffer<'_>)],
) -> PyResult<()> {
    let rows = batch.iter().map(|(key, value)| Ok((key.bytes()?, value.bytes()?)));
    let rows = rows.collect::<PyResult<Vec<_>>>()?;
    Transaction::change(slf, |tx| {
        rows.iter().try_for_each(|(key, value)| tx.insert(&table.table, key, value))
    })
}
