//! An open database: tables, single rows, reports.

use crate::error::{call, check_handlers, is_interrupted};
use crate::options;
use crate::reader::{Any, Table};
use crate::standby::Standby;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use quenchdb::{Builder, Csn, Error, Progress, Result};
use quenchdb_bindings::reports::{self, Restore};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// The open database, which its objects share. The last of them closes the database.
pub struct Shared {
    /// Nothing for a standby.
    database: Option<quenchdb::Database>,
    /// The database is in a store of objects.
    pub is_store: bool,
    process: u32,
    is_closed: AtomicBool,
}

impl Shared {
    /// Returns what the objects of a database, or of a standby, share.
    pub fn new(database: Option<quenchdb::Database>, is_store: bool) -> Arc<Shared> {
        let (process, is_closed) = (std::process::id(), AtomicBool::new(false));
        Arc::new(Shared { database, is_store, process, is_closed })
    }

    /// Returns the database.
    ///
    /// # Errors
    /// `InvalidArgument` for a standby.
    pub fn database(&self) -> Result<&quenchdb::Database> {
        self.database
            .as_ref()
            .ok_or_else(|| Error::invalid("a standby can only be read").with_advice("promote it"))
    }

    /// Returns whether a program has closed the database.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// Takes a lock of the binding, without the interpreter lock. In a forked child a thread that
    /// does not exist may hold it.
    ///
    /// # Errors
    /// `InvalidArgument` in a forked child, or in a signal handler, that would wait.
    pub fn lock<'a, T>(&self, lock: &'a Mutex<T>) -> Result<MutexGuard<'a, T>> {
        match lock.try_lock() {
            Ok(guard) => Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {
                self.check_waiting()?;
                Ok(lock.lock().unwrap_or_else(PoisonError::into_inner))
            }
        }
    }

    /// Refuses to wait for a lock in a forked child, and in a signal handler.
    pub fn check_waiting(&self) -> Result<()> {
        if std::process::id() != self.process {
            let error = Error::invalid("this process was forked from the one that opened the database");
            return Err(error.with_advice("open it again in the child"));
        }
        check_handlers()
    }

    /// Begins a transaction whose waits for rows signals end.
    pub fn begin(&self, options: quenchdb::TransactionOptions) -> Result<quenchdb::Transaction> {
        let mut transaction = self.database()?.begin_with(options)?;
        transaction.interrupt_with(is_interrupted);
        Ok(transaction)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        drop_detached(self.database.take());
    }
}

/// Drops what may wait, for a device or for another thread, without the interpreter lock.
pub fn drop_detached<T: Send>(value: T) {
    // If the interpreter has ended, the closure is dropped with the value.
    let _ = Python::try_attach(|py| py.detach(move || drop(value)));
}

/// Runs long work without the interpreter lock. An exception of the callback for its progress is
/// raised at the end.
fn report<T: Send>(
    py: Python<'_>, callback: Option<Py<PyAny>>, work: impl FnOnce(Option<Progress>) -> Result<T> + Send,
) -> PyResult<T> {
    let raised = Arc::new(Mutex::new(None));
    let first = raised.clone();
    let progress = callback.map(|callback| -> Progress {
        Box::new(move |what: &str, done: u64, all: u64| {
            let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
            if first.is_none() {
                *first = Python::try_attach(|py| callback.call1(py, (what, done, all)).err()).flatten();
            }
        })
    });
    let done = call(py, || work(progress))?;
    let raised = raised.lock().unwrap_or_else(PoisonError::into_inner).take();
    raised.map_or(Ok(done), Err)
}

/// An open database.
#[pyclass(frozen, subclass, module = "quenchdb._native")]
pub struct Database {
    /// What all objects of the database share.
    pub shared: Arc<Shared>,
}

#[pymethods]
impl Database {
    #[new]
    #[pyo3(signature = (place, how, settings, progress=None))]
    fn new(
        py: Python<'_>, place: &Bound<'_, PyAny>, how: &str, settings: &Bound<'_, PyDict>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Database> {
        if let Ok(standby) = place.cast::<Standby>() {
            let standby = standby.get();
            let database = call(py, || standby.take()?.promote())?;
            return Ok(Database { shared: Shared::new(Some(database), true) });
        }
        let path: PathBuf = place.extract()?;
        let is_store = path.to_str().is_some_and(|path| path.contains("://"));
        let builder = Builder::default().settings(options::settings(settings)?);
        let database = report(py, progress, |progress| match (how, progress) {
            ("memory", _) => builder.open_in_memory(),
            ("checkpoint", _) => builder.open_checkpoint(path),
            (_, Some(progress)) => builder.on_recovery(progress).open(path),
            (_, None) => builder.open(path),
        })?;
        Ok(Database { shared: Shared::new(Some(database), is_store) })
    }

    /// Makes everything durable and closes the database, so that the next open replays nothing.
    ///
    /// Open transactions count as aborted. Further calls of all objects are errors.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.shared.is_closed.store(true, Ordering::SeqCst);
        self.run(py, |database| database.clone().close())
    }

    /// True after ``close``.
    #[getter]
    fn closed(&self) -> bool {
        self.shared.is_closed()
    }

    /// Drops a table and its rows, durably.
    fn drop_table(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.run(py, |database| database.drop_table(name))
    }

    /// Gives a table another name, durably.
    fn rename_table(&self, py: Python<'_>, name: &str, new_name: &str) -> PyResult<()> {
        self.run(py, |database| database.rename_table(name, new_name))
    }

    /// Makes a table empty in one step, durably. Handles of the old table are errors from then
    /// on.
    fn clear_table(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.run(py, |database| database.clear_table(name).map(drop))
    }

    /// Returns the names of all tables, in order.
    fn tables(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.run(py, |database| Ok(database.tables()))
    }

    /// Reads a row in a snapshot of its own.
    #[pyo3(signature = (table, key, default))]
    fn _get<'py>(
        &self, table: &Bound<'py, Table>, key: &Any<'py>, default: Option<Any<'py>>,
    ) -> PyResult<Option<Any<'py>>> {
        let (py, table, key) = (table.py(), table.get(), table.get().key.encode(key)?);
        let key = key.bytes()?;
        let value = self.run(py, |database| database.begin_read()?.get(&table.table, key))?;
        value.map_or(Ok(default), |value| table.value.decode(py, &value).map(Some))
    }

    fn _contains(&self, table: &Bound<'_, Table>, key: &Any<'_>) -> PyResult<bool> {
        let (py, table, key) = (table.py(), table.get(), table.get().key.encode(key)?);
        let key = key.bytes()?;
        self.run(py, |database| database.begin_read()?.contains_key(&table.table, key))
    }

    /// Makes everything committed so far durable, of all levels and threads.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, quenchdb::Database::flush)
    }

    /// Returns a report in JSON: checkpoint, compact, verify, statistics, health or facts.
    fn _report(&self, py: Python<'_>, what: &str, progress: Option<Py<PyAny>>) -> PyResult<String> {
        report(py, progress, |progress| {
            let database = self.shared.database()?;
            let made = match what {
                "checkpoint" => reports::checkpoint(database)?,
                "compact" => reports::compact(database, progress)?,
                "verify" => reports::verify(database, progress)?,
                "statistics" => reports::statistics(database),
                "health" => reports::health(database),
                _ => reports::facts(database),
            };
            Ok(made.to_string())
        })
    }

    fn _backup(
        &self, py: Python<'_>, target: PathBuf, base: Option<PathBuf>, newest_checkpoint: bool,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<String> {
        report(py, progress, |progress| {
            let (database, base) = (self.shared.database()?, base.as_deref());
            Ok(reports::backup(database, &target, base, newest_checkpoint, progress)?.to_string())
        })
    }

    /// Returns the statistics in the format of Prometheus.
    fn prometheus(&self, py: Python<'_>) -> PyResult<String> {
        self.run(py, |database| Ok(database.statistics().prometheus()))
    }

    /// Resets latencies and some counters, between a warm-up and a measurement.
    fn reset_statistics(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |database| {
            database.reset_statistics();
            Ok(())
        })
    }
}

impl Database {
    /// Calls the engine without the interpreter lock.
    fn run<T: Send>(
        &self, py: Python<'_>, work: impl FnOnce(&quenchdb::Database) -> Result<T> + Send,
    ) -> PyResult<T> {
        call(py, || work(self.shared.database()?))
    }
}

/// Checks the database at a place, which no process has open for writing.
#[pyfunction]
#[pyo3(signature = (path, settings, progress=None))]
pub fn verify(
    py: Python<'_>, path: PathBuf, settings: &Bound<'_, PyDict>, progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let settings = options::settings(settings)?;
    report(py, progress, |progress| Ok(reports::verify_path(&path, settings, progress)?.to_string()))
}

/// Makes a database of backups.
#[pyfunction]
#[pyo3(signature = (backups, target, log, to, settings, progress=None))]
pub fn restore(
    py: Python<'_>, backups: Vec<PathBuf>, target: PathBuf, log: Option<PathBuf>, to: Option<u64>,
    settings: &Bound<'_, PyDict>, progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let (to, settings) = (to.map(Csn), options::settings(settings)?);
    report(py, progress, |progress| {
        Ok(reports::restore(backups, &target, Restore { log, to, settings, progress })?.to_string())
    })
}

/// Asks the process that has a database open for its statistics.
#[pyfunction]
pub fn ask_statistics(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    call(py, || quenchdb::Database::ask_statistics(path))
}
