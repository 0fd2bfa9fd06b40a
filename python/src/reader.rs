//! What transactions and snapshots have in common: reads.

use crate::codec::Codec;
use crate::database::{Database, Shared, drop_detached};
use crate::error::call;
use crate::rows::{Rows, bounds};
use crate::standby::Standby;
use pyo3::prelude::*;
use quenchdb::{Error, Result, Row};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, TryLockError};

/// An object of Python.
pub type Any<'py> = Bound<'py, PyAny>;
/// A row as objects.
pub type Pair<'py> = PyResult<Option<(Any<'py>, Any<'py>)>>;

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
    /// Opens a table of a database, or of a snapshot of a standby.
    #[new]
    fn new(of: &Any<'_>, name: &str, create: bool, key: &Any<'_>, value: &Any<'_>) -> PyResult<Table> {
        let (py, key, value) = (of.py(), Codec::new(key)?, Codec::new(value)?);
        let table = match of.cast::<Snapshot>() {
            Ok(snapshot) => {
                let source = &snapshot.as_super().get().source;
                call(py, || match &source.kind {
                    SourceKind::OfStandby(lock) => {
                        source.read_lock(lock)?.as_ref().ok_or_else(snapshot_closed)?.table(name)
                    }
                    _ => Err(Error::invalid("only a snapshot of a standby has tables of its own")),
                })?
            }
            Err(_) => {
                let shared = &of.cast::<Database>()?.get().shared;
                call(py, || match create {
                    true => shared.database()?.table_or_create(name),
                    false => shared.database()?.table(name),
                })?
            }
        };
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
    /// A snapshot of a standby.
    OfStandby(RwLock<Option<quenchdb::StandbySnapshot>>),
}

/// A transaction or snapshot, which its iterators share.
pub struct Source {
    /// Which of them.
    pub kind: SourceKind,
    /// Counts changes, so that an iterator notices those since it fetched its rows; and the end.
    version: AtomicU64,
    /// The database.
    pub shared: Arc<Shared>,
}

impl Drop for Source {
    fn drop(&mut self) {
        fn take<T>(lock: std::result::Result<&mut Option<T>, PoisonError<&mut Option<T>>>) -> Option<T> {
            lock.unwrap_or_else(PoisonError::into_inner).take()
        }
        match &mut self.kind {
            SourceKind::Transaction(lock) => drop_detached(take(lock.get_mut())),
            SourceKind::Snapshot(lock) => drop_detached(take(lock.get_mut())),
            SourceKind::OfStandby(lock) => drop_detached(take(lock.get_mut())),
        }
    }
}

/// Returns the error of a call on a transaction that has ended.
pub fn transaction_ended() -> Error {
    Error::invalid("the transaction has ended").with_advice("begin another one")
}

/// Returns the error of a read from a snapshot that was closed.
pub fn snapshot_closed() -> Error {
    Error::invalid("the snapshot is closed").with_advice("take another one")
}

/// Evaluates an expression with the transaction or snapshot, without the interpreter lock.
macro_rules! with_reads {
    ($source:expr, $py:expr, |$reads:ident| $read:expr) => {{
        let source: &crate::reader::Source = $source;
        crate::error::call($py, || match &source.kind {
            SourceKind::Transaction(lock) => {
                let guard = source.shared.lock(lock)?;
                let $reads = guard.as_ref().ok_or_else(crate::reader::transaction_ended)?;
                $read
            }
            SourceKind::Snapshot(lock) => {
                let guard = source.read_lock(lock)?;
                let $reads = guard.as_ref().ok_or_else(crate::reader::snapshot_closed)?;
                $read
            }
            SourceKind::OfStandby(lock) => {
                let guard = source.read_lock(lock)?;
                let $reads: &quenchdb::Snapshot =
                    guard.as_ref().ok_or_else(crate::reader::snapshot_closed)?;
                $read
            }
        })
    }};
}
pub(crate) use with_reads;

impl Source {
    /// Returns a count that changes with each change, and at the end.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Locks a snapshot for reading.
    pub fn read_lock<'a, T>(&self, lock: &'a RwLock<T>) -> Result<RwLockReadGuard<'a, T>> {
        match lock.try_read() {
            Ok(guard) => Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {
                self.shared.check_waiting()?;
                Ok(lock.read().unwrap_or_else(PoisonError::into_inner))
            }
        }
    }

    /// Closes a snapshot, once no thread reads from it.
    fn close<T>(&self, lock: &RwLock<Option<T>>) -> Result<()> {
        if lock.try_write().is_err() {
            self.shared.check_waiting()?;
        }
        drop(lock.write().unwrap_or_else(PoisonError::into_inner).take());
        self.version.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Changes the transaction, without the interpreter lock.
    pub fn change<T: Send>(
        &self, py: Python<'_>, change: impl FnOnce(&mut quenchdb::Transaction) -> Result<T> + Send,
    ) -> PyResult<T> {
        call(py, || {
            let SourceKind::Transaction(lock) = &self.kind else { return Err(transaction_ended()) };
            let mut guard = self.shared.lock(lock)?;
            let changed = change(guard.as_mut().ok_or_else(transaction_ended)?);
            self.version.fetch_add(1, Ordering::Release);
            changed
        })
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
}

/// Returns a row as a pair of objects.
pub fn pair<'py>(py: Python<'py>, table: &Table, row: Option<Row>) -> Pair<'py> {
    row.map(|(key, value)| Ok((table.key.decode(py, &key)?, table.value.decode(py, &value)?))).transpose()
}

#[pymethods]
impl Reader {
    /// Returns the value of a key, or ``default``.
    #[pyo3(signature = (table, key, default=None))]
    fn get<'py>(
        &self, table: &Bound<'py, Table>, key: &Any<'py>, default: Option<Any<'py>>,
    ) -> PyResult<Option<Any<'py>>> {
        let (py, table, key) = (table.py(), table.get(), table.get().key.encode(key)?);
        let (key, mut value) = (key.bytes()?, BUFFER.try_with(Cell::take).unwrap_or_default());
        let found = with_reads!(&self.source, py, |reads| reads.get_into(&table.table, key, &mut value))?;
        let object = found.then(|| table.value.decode(py, &value)).transpose();
        if value.capacity() <= KEPT_BYTES_MAX {
            let _ = BUFFER.try_with(|kept| kept.set(value));
        }
        Ok(object?.or(default))
    }

    /// Returns whether a key exists.
    fn contains(&self, table: &Bound<'_, Table>, key: &Any<'_>) -> PyResult<bool> {
        let (py, table, key) = (table.py(), table.get(), table.get().key.encode(key)?);
        let key = key.bytes()?;
        with_reads!(&self.source, py, |reads| reads.contains_key(&table.table, key))
    }

    /// Returns the row with the lowest key.
    fn first<'py>(&self, table: &Bound<'py, Table>) -> Pair<'py> {
        let (py, table) = (table.py(), table.get());
        pair(py, table, with_reads!(&self.source, py, |reads| reads.first(&table.table))?)
    }

    /// Returns the row with the highest key.
    fn last<'py>(&self, table: &Bound<'py, Table>) -> Pair<'py> {
        let (py, table) = (table.py(), table.get());
        pair(py, table, with_reads!(&self.source, py, |reads| reads.last(&table.table))?)
    }

    /// Brings the pages of rows into memory, many at once.
    fn prefetch(&self, table: &Bound<'_, Table>, keys: &Any<'_>) -> PyResult<()> {
        let (py, table) = (table.py(), table.get());
        let keys = keys.try_iter()?.map(|key| Ok(table.key.encode(&key?)?.bytes()?.to_vec()));
        let keys = keys.collect::<PyResult<Vec<Vec<u8>>>>()?;
        with_reads!(&self.source, py, |reads| reads.prefetch(&table.table, &keys))
    }

    /// Returns an iterator of rows (`what` 0), keys (1) or values (2).
    #[allow(clippy::too_many_arguments)]
    fn rows<'py>(
        &self, table: &Bound<'py, Table>, what: u8, start: Option<Any<'py>>, stop: Option<Any<'py>>,
        prefix: Option<Any<'py>>, include_start: bool, include_stop: bool, reverse: bool,
    ) -> PyResult<Rows> {
        let range = bounds(table.py(), table.get(), (start, stop, prefix, include_start, include_stop))?;
        Ok(Rows::new(self.source.clone(), table.clone().unbind(), what, range, reverse))
    }

    /// Counts the rows of a range.
    fn _count(
        &self, table: &Bound<'_, Table>, start: Option<Any<'_>>, stop: Option<Any<'_>>,
        prefix: Option<Any<'_>>, include_start: bool, include_stop: bool,
    ) -> PyResult<u64> {
        let (py, table, mut count) = (table.py(), table.get(), 0);
        let range = bounds(py, table, (start, stop, prefix, include_start, include_stop))?;
        let each = |_: &[u8], _: &[u8]| {
            count += 1;
            Ok(())
        };
        with_reads!(&self.source, py, |reads| reads.for_each(&table.table, &range, each))?;
        Ok(count)
    }
}

/// A consistent view of the database.
#[pyclass(frozen, subclass, extends = Reader, module = "quenchdb._native")]
pub struct Snapshot {
    /// The CSN of the newest transaction that the snapshot sees.
    #[pyo3(get)]
    csn: u64,
}

#[pymethods]
impl Snapshot {
    /// Takes a snapshot of a database or of a standby.
    #[new]
    fn new(of: &Any<'_>) -> PyResult<PyClassInitializer<Snapshot>> {
        let (shared, csn, kind) = if let Ok(standby) = of.cast::<Standby>() {
            let snapshot = standby.get().with(of.py(), quenchdb::Standby::snapshot)?;
            let csn = snapshot.csn().0;
            (&standby.get().shared, csn, SourceKind::OfStandby(RwLock::new(Some(snapshot))))
        } else {
            let shared = &of.cast::<Database>()?.get().shared;
            let snapshot = call(of.py(), || shared.database()?.begin_read())?;
            (shared, snapshot.csn().0, SourceKind::Snapshot(RwLock::new(Some(snapshot))))
        };
        Ok(PyClassInitializer::from(Reader::new(shared, kind)).add_subclass(Snapshot { csn }))
    }

    /// Returns the names of the tables of a snapshot of a standby.
    fn _tables(slf: &Bound<'_, Self>) -> PyResult<Vec<String>> {
        let source = &slf.as_super().get().source;
        call(slf.py(), || match &source.kind {
            SourceKind::OfStandby(lock) => {
                Ok(source.read_lock(lock)?.as_ref().ok_or_else(snapshot_closed)?.tables())
            }
            _ => Ok(Vec::new()),
        })
    }

    /// Releases the snapshot. Its iterators and further reads are errors.
    fn close(slf: &Bound<'_, Self>) -> PyResult<()> {
        let source = &slf.as_super().get().source;
        call(slf.py(), || match &source.kind {
            SourceKind::Snapshot(lock) => source.close(lock),
            SourceKind::OfStandby(lock) => source.close(lock),
            SourceKind::Transaction(_) => Ok(()),
        })
    }

    /// True after ``close``.
    #[getter]
    fn closed(slf: &Bound<'_, Self>) -> bool {
        slf.as_super().get().source.version() != 0
    }
}
