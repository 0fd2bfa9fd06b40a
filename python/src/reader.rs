//! What transactions and snapshots have in common: reads.

use crate::codec::Codec;
use crate::database::{Database, Shared, drop_detached, ended};
use crate::error::raise;
use crate::rows::{Columns, Rows, RowsOf, bounds};
use pyo3::prelude::*;
use quenchdb::{Error, Result, Row};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, TryLockError};

/// A longer buffer is not kept for the next read of the thread.
const KEPT_BYTES_MAX: usize = 64 << 10;

thread_local! {
    /// A buffer for values on their way to objects.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A table, and how its rows are written.
#[pyclass(frozen, subclass, module = "quenchdb._native")]
pub struct Table {
    /// The engine's handle.
    pub table: quenchdb::Table,
    /// How keys are written.
    pub key: Codec,
    /// How values are written.
    pub value: Codec,
}

#[pymethods]
impl Table {
    #[new]
    fn new(
        database: &Bound<'_, Database>,
        name: &str,
        create: bool,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<Table> {
        let (key, value) = (Codec::new(key)?, Codec::new(value)?);
        let shared = &database.get().shared;
        let open = || match create {
            true => shared.database().table_or_create(name),
            false => shared.database().table(name),
        };
        let table = database.py().detach(open).map_err(raise)?;
        Ok(Table { table, key, value })
    }

    /// The name of the table.
    #[getter]
    fn name(&self) -> String {
        self.table.name().to_string()
    }
}

/// What is read from.
pub enum SourceKind {
    /// A transaction, until it ends. One thread uses it at a time.
    Transaction(Mutex<Option<quenchdb::Transaction>>),
    /// A snapshot, until it is closed. Threads read from it side by side.
    Snapshot(RwLock<Option<quenchdb::Snapshot>>),
}

/// A transaction or snapshot, which its iterators share.
pub struct Source {
    kind: SourceKind,
    /// Counts changes, so that an iterator notices those since it fetched its rows; and the end.
    version: AtomicU64,
    /// The database.
    pub shared: Arc<Shared>,
}

impl Drop for Source {
    fn drop(&mut self) {
        match &mut self.kind {
            SourceKind::Transaction(lock) => {
                drop_detached(lock.get_mut().unwrap_or_else(PoisonError::into_inner).take())
            }
            SourceKind::Snapshot(lock) => {
                drop_detached(lock.get_mut().unwrap_or_else(PoisonError::into_inner).take())
            }
        }
    }
}

/// Returns the error of a call on a transaction that has ended.
pub fn transaction_ended() -> Error {
    ended("the transaction has ended", "begin another one")
}

fn snapshot_closed() -> Error {
    ended("the snapshot is closed", "take another one")
}

/// Evaluates an expression with the transaction or snapshot, without the interpreter lock.
macro_rules! with_reads {
    ($source:expr, $py:expr, |$reads:ident| $read:expr) => {{
        let source: &Source = $source;
        $py.detach(|| match &source.kind {
            SourceKind::Transaction(lock) => {
                let guard = source.shared.lock(lock)?;
                let $reads = guard.as_ref().ok_or_else(transaction_ended)?;
                $read
            }
            SourceKind::Snapshot(lock) => {
                let guard = source.read_lock(lock)?;
                let $reads = guard.as_ref().ok_or_else(snapshot_closed)?;
                $read
            }
        })
    }};
}

impl Source {
    /// Returns a count that changes with each change, and at the end.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    fn read_lock<'a, T>(&self, lock: &'a RwLock<T>) -> Result<RwLockReadGuard<'a, T>> {
        match lock.try_read() {
            Ok(guard) => Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {
                self.shared.check_waiting()?;
                Ok(lock.read().unwrap_or_else(PoisonError::into_inner))
            }
        }
    }

    /// Changes the transaction, without the interpreter lock.
    pub fn change<T: Send>(
        &self,
        py: Python<'_>,
        change: impl FnOnce(&mut quenchdb::Transaction) -> Result<T> + Send,
    ) -> PyResult<T> {
        let changed = py.detach(|| {
            let SourceKind::Transaction(lock) = &self.kind else { return Err(transaction_ended()) };
            let mut guard = self.shared.lock(lock)?;
            let changed = change(guard.as_mut().ok_or_else(transaction_ended)?);
            self.version.fetch_add(1, Ordering::Release);
            changed
        });
        changed.map_err(raise)
    }

    /// Takes the transaction, to end it; `None` if it has ended.
    ///
    /// # Errors
    /// `InvalidArgument` in a forked child.
    pub fn take(&self) -> Result<Option<quenchdb::Transaction>> {
        let SourceKind::Transaction(lock) = &self.kind else { return Ok(None) };
        let taken = self.shared.lock(lock)?.take();
        self.version.fetch_add(1, Ordering::Release);
        Ok(taken)
    }

    /// Reads rows from one end of a range.
    pub fn fill(&self, py: Python<'_>, rows: &mut RowsOf<'_>) -> PyResult<()> {
        with_reads!(self, py, |reads| rows.fill(reads)).map_err(raise)
    }

    /// Reads columns of rows.
    pub fn fill_columns(&self, py: Python<'_>, rows: &mut RowsOf<'_>, columns: &mut Columns) -> PyResult<()> {
        with_reads!(self, py, |reads| columns.fill(reads, rows)).map_err(raise)
    }
}

/// The reads of transactions and snapshots.
#[pyclass(frozen, subclass, module = "quenchdb._native")]
pub struct Reader {
    /// What is read from.
    pub source: Arc<Source>,
}

impl Reader {
    /// Returns a reader of a transaction or snapshot.
    pub fn new(shared: &Arc<Shared>, kind: SourceKind) -> Reader {
        let (version, shared) = (AtomicU64::new(0), shared.clone());
        Reader { source: Arc::new(Source { kind, version, shared }) }
    }

    /// Reads a row by `read`, which gets a buffer and returns whether the row exists.
    pub fn read<'py>(
        &self,
        table: &Bound<'py, Table>,
        default: Option<Bound<'py, PyAny>>,
        read: impl FnOnce(&quenchdb::Table, &mut Vec<u8>) -> PyResult<bool>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (py, table) = (table.py(), table.get());
        let mut value = BUFFER.try_with(Cell::take).unwrap_or_default();
        let found = read(&table.table, &mut value)?;
        let object = found.then(|| table.value.decode(py, &value)).transpose();
        if value.capacity() <= KEPT_BYTES_MAX {
            let _ = BUFFER.try_with(|kept| kept.set(value));
        }
        Ok(object?.or(default))
    }
}

/// Returns a row as a pair of objects.
#[allow(clippy::type_complexity)]
pub fn pair<'py>(
    py: Python<'py>,
    table: &Table,
    row: Option<Row>,
) -> PyResult<Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
    row.map(|(key, value)| Ok((table.key.decode(py, &key)?, table.value.decode(py, &value)?))).transpose()
}

#[pymethods]
impl Reader {
    /// Returns the value of a key, or ``default``.
    #[pyo3(signature = (table, key, default=None))]
    fn get<'py>(
        &self,
        table: &Bound<'py, Table>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let key = table.get().key.encode(key)?;
        let key = key.bytes()?;
        let py = table.py();
        self.read(table, default, |table, value| {
            with_reads!(&self.source, py, |reads| reads.get_into(table, key, value)).map_err(raise)
        })
    }

    /// Returns whether a key exists.
    fn contains(&self, table: &Bound<'_, Table>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let (py, table) = (table.py(), table.get());
        let key = table.key.encode(key)?;
        let key = key.bytes()?;
        with_reads!(&self.source, py, |reads| reads.contains_key(&table.table, key)).map_err(raise)
    }

    /// Returns the row with the lowest key.
    fn first<'py>(
        &self,
        table: &Bound<'py, Table>,
    ) -> PyResult<Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
        let (py, table) = (table.py(), table.get());
        let row = with_reads!(&self.source, py, |reads| reads.first(&table.table)).map_err(raise)?;
        pair(py, table, row)
    }

    /// Returns the row with the highest key.
    fn last<'py>(
        &self,
        table: &Bound<'py, Table>,
    ) -> PyResult<Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
        let (py, table) = (table.py(), table.get());
        let row = with_reads!(&self.source, py, |reads| reads.last(&table.table)).map_err(raise)?;
        pair(py, table, row)
    }

    /// Brings the pages of rows into memory, many at once.
    fn prefetch(&self, table: &Bound<'_, Table>, keys: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
        let (py, table) = (table.py(), table.get());
        let keys = keys.iter().map(|key| Ok(table.key.encode(key)?.bytes()?.to_vec()));
        let keys = keys.collect::<PyResult<Vec<Vec<u8>>>>()?;
        with_reads!(&self.source, py, |reads| reads.prefetch(&table.table, &keys)).map_err(raise)
    }

    /// Returns an iterator of rows (`what` 0), keys (1) or values (2).
    #[pyo3(signature = (table, what, start, stop, prefix, include_start, include_stop, reverse))]
    #[allow(clippy::too_many_arguments)]
    fn rows<'py>(
        &self,
        table: &Bound<'py, Table>,
        what: u8,
        start: Option<Bound<'py, PyAny>>,
        stop: Option<Bound<'py, PyAny>>,
        prefix: Option<Bound<'py, PyAny>>,
        include_start: bool,
        include_stop: bool,
        reverse: bool,
    ) -> PyResult<Rows> {
        let range = bounds(table.get(), start, stop, prefix, (include_start, include_stop))?;
        Ok(Rows::new(self.source.clone(), table.clone().unbind(), what, range, reverse))
    }

    /// Counts the rows of a range.
    #[pyo3(signature = (table, start, stop, prefix, include_start, include_stop))]
    fn _count(
        &self,
        table: &Bound<'_, Table>,
        start: Option<Bound<'_, PyAny>>,
        stop: Option<Bound<'_, PyAny>>,
        prefix: Option<Bound<'_, PyAny>>,
        include_start: bool,
        include_stop: bool,
    ) -> PyResult<u64> {
        let (py, table) = (table.py(), table.get());
        let range = bounds(table, start, stop, prefix, (include_start, include_stop))?;
        let mut count = 0;
        let counted = with_reads!(&self.source, py, |reads| {
            reads.for_each(&table.table, &range, |_, _| {
                count += 1;
                Ok(())
            })
        });
        counted.map_err(raise)?;
        Ok(count)
    }
}

/// A consistent view of the database.
#[pyclass(frozen, subclass, extends = Reader, module = "quenchdb._native")]
pub struct Snapshot {
    csn: u64,
}

#[pymethods]
impl Snapshot {
    #[new]
    fn new(database: &Bound<'_, Database>) -> PyResult<PyClassInitializer<Snapshot>> {
        let shared = &database.get().shared;
        let snapshot = database.py().detach(|| shared.database().begin_read()).map_err(raise)?;
        let csn = snapshot.csn().0;
        let reader = Reader::new(shared, SourceKind::Snapshot(RwLock::new(Some(snapshot))));
        Ok(PyClassInitializer::from(reader).add_subclass(Snapshot { csn }))
    }

    /// The CSN of the newest transaction that the snapshot sees.
    #[getter]
    fn csn(&self) -> u64 {
        self.csn
    }

    /// Releases the snapshot. Its iterators and further reads are errors.
    fn close(slf: &Bound<'_, Self>) -> PyResult<()> {
        let source = &slf.as_super().get().source;
        let closed = slf.py().detach(|| -> Result<()> {
            let SourceKind::Snapshot(lock) = &source.kind else { return Ok(()) };
            if lock.try_write().is_err() {
                source.shared.check_waiting()?;
            }
            drop(lock.write().unwrap_or_else(PoisonError::into_inner).take());
            source.version.fetch_add(1, Ordering::Release);
            Ok(())
        });
        closed.map_err(raise)
    }

    /// True after ``close``.
    #[getter]
    fn closed(slf: &Bound<'_, Self>) -> bool {
        slf.as_super().get().source.version() != 0
    }
}
