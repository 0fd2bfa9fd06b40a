//! An open database: tables, single rows, reports.

use crate::error::{invalid, raise};
use crate::options;
use crate::reader::{Table, pair};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use quenchdb::{BackupOptions, Builder, Csn, Error, Place, Progress, RestoreOptions, Result, VerifyReport};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// The open database, which its objects share. The last of them closes the database.
pub struct Shared {
    database: Option<quenchdb::Database>,
    process: u32,
    is_closed: AtomicBool,
}

impl Shared {
    fn new(database: quenchdb::Database) -> Arc<Shared> {
        let (process, is_closed) = (std::process::id(), AtomicBool::new(false));
        Arc::new(Shared { database: Some(database), process, is_closed })
    }

    /// Returns the database.
    pub fn database(&self) -> &quenchdb::Database {
        self.database.as_ref().expect("only a drop takes the database")
    }

    /// Returns whether a program has closed the database.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// Takes a lock of the binding, without the interpreter lock. In a forked child a thread that
    /// does not exist may hold it.
    ///
    /// # Errors
    /// `InvalidArgument` in a forked child that would wait.
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

    /// Refuses to wait for a lock in a forked child.
    pub fn check_waiting(&self) -> Result<()> {
        if std::process::id() == self.process { Ok(()) } else { self.database().flush() }
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

/// A callback for the progress of long work, and the first exception that it raised.
struct Reported {
    callback: Option<Progress>,
    raised: Arc<Mutex<Option<PyErr>>>,
}

impl Reported {
    fn new(callback: Option<Py<PyAny>>) -> Reported {
        let raised = Arc::new(Mutex::new(None));
        let first = raised.clone();
        let callback = callback.map(|callback| -> Progress {
            Box::new(move |what: &str, done: u64, all: u64| {
                let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
                if first.is_none() {
                    *first = Python::try_attach(|py| callback.call1(py, (what, done, all)).err()).flatten();
                }
            })
        });
        Reported { callback, raised }
    }

    /// Runs work without the interpreter lock. An exception of the callback is raised at the end.
    fn run<T: Send>(
        mut self,
        py: Python<'_>,
        work: impl FnOnce(Option<Progress>) -> Result<T> + Send,
    ) -> PyResult<T> {
        let callback = self.callback.take();
        let done = py.detach(|| work(callback)).map_err(raise)?;
        let raised = self.raised.lock().unwrap_or_else(PoisonError::into_inner).take();
        raised.map_or(Ok(done), Err)
    }
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
    #[pyo3(signature = (path, how, settings, progress=None))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        how: &str,
        settings: &Bound<'_, PyDict>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Database> {
        let builder = Builder::default().settings(options::settings(settings)?);
        let open: fn(Builder, PathBuf) -> Result<quenchdb::Database> = match how {
            "memory" => |builder, _| builder.open_in_memory(),
            "checkpoint" => |builder, path| builder.open_checkpoint(path),
            _ => |builder, path| builder.open(path),
        };
        let database = Reported::new(progress).run(py, |progress| match progress {
            Some(progress) => open(builder.on_recovery(progress), path),
            None => open(builder, path),
        })?;
        Ok(Database { shared: Shared::new(database) })
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
    fn tables(&self, py: Python<'_>) -> Vec<String> {
        py.detach(|| self.shared.database().tables())
    }

    /// Reads a row in a snapshot of its own.
    #[pyo3(signature = (table, key, default))]
    fn _get<'py>(
        &self,
        table: &Bound<'py, Table>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (py, table) = (table.py(), table.get());
        let key = table.key.encode(key)?;
        let key = key.bytes()?;
        match self.run(py, |database| database.begin_read()?.get(&table.table, key))? {
            Some(value) => table.value.decode(py, &value).map(Some),
            None => Ok(default),
        }
    }

    fn _contains(&self, table: &Bound<'_, Table>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let (py, table) = (table.py(), table.get());
        let key = table.key.encode(key)?;
        let key = key.bytes()?;
        self.run(py, |database| database.begin_read()?.contains_key(&table.table, key))
    }

    /// Sets a row in a transaction of its own.
    fn _put(
        &self,
        table: &Bound<'_, Table>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (py, table) = (table.py(), table.get());
        let (key, value) = (table.key.encode(key)?, table.value.encode(value)?);
        let (key, value) = (key.bytes()?, value.bytes()?);
        self.change(py, |tx| tx.insert(&table.table, key, value))
    }

    /// Deletes a row in a transaction of its own. Returns whether the row existed.
    fn _delete(&self, table: &Bound<'_, Table>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let (py, table) = (table.py(), table.get());
        let key = table.key.encode(key)?;
        let key = key.bytes()?;
        self.change(py, |tx| tx.remove(&table.table, key))
    }

    /// Deletes a row in a transaction of its own. Returns its value.
    fn _pop<'py>(
        &self,
        table: &Bound<'py, Table>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (py, table) = (table.py(), table.get());
        let key = table.key.encode(key)?;
        let key = key.bytes()?;
        let value = self.change(py, |tx| tx.take(&table.table, key))?;
        value.map_or(Ok(default), |value| table.value.decode(py, &value).map(Some))
    }

    /// Deletes the first or the last row in a transaction of its own. Returns the row.
    fn _pop_end<'py>(
        &self,
        table: &Bound<'py, Table>,
        last: bool,
    ) -> PyResult<Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
        let (py, table) = (table.py(), table.get());
        let row =
            self.change(py, |tx| if last { tx.pop_last(&table.table) } else { tx.pop_first(&table.table) })?;
        pair(py, table, row)
    }

    /// Makes everything committed so far durable, of all levels and threads.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, quenchdb::Database::flush)
    }

    fn _checkpoint<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let report = self.run(py, quenchdb::Database::checkpoint)?;
        let fields = PyDict::new(py);
        fields.set_item("csn", report.csn.0)?;
        fields.set_item("pages_written", report.pages_written)?;
        fields.set_item("pages_rewritten", report.pages_rewritten)?;
        fields.set_item("bytes_written", report.bytes_written)?;
        fields.set_item("seconds", report.seconds)?;
        Ok(fields)
    }

    fn _compact<'py>(&self, py: Python<'py>, progress: Option<Py<PyAny>>) -> PyResult<Bound<'py, PyDict>> {
        let report = Reported::new(progress).run(py, |progress| self.shared.database().compact(progress))?;
        let fields = PyDict::new(py);
        fields.set_item("bytes_before", report.bytes_before)?;
        fields.set_item("bytes_after", report.bytes_after)?;
        fields.set_item("bytes_used", report.bytes_used)?;
        fields.set_item("pages_moved", report.pages_moved)?;
        fields.set_item("seconds", report.seconds)?;
        Ok(fields)
    }

    fn _backup<'py>(
        &self,
        py: Python<'py>,
        target: PathBuf,
        base: Option<PathBuf>,
        newest_checkpoint: bool,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let report = Reported::new(progress).run(py, |progress| {
            let options = BackupOptions::default().with(|options| {
                options.base = base.map(Place::from);
                options.newest_checkpoint = newest_checkpoint;
                options.progress = progress;
            });
            self.shared.database().backup(target, options)
        })?;
        let fields = PyDict::new(py);
        fields.set_item("csn", report.csn.0)?;
        fields.set_item("pages", report.pages)?;
        fields.set_item("pages_copied", report.pages_copied)?;
        fields.set_item("bytes", report.bytes)?;
        fields.set_item("base_csn", report.base_csn.map(|csn| csn.0))?;
        fields.set_item("seconds", report.seconds)?;
        Ok(fields)
    }

    fn _verify<'py>(&self, py: Python<'py>, progress: Option<Py<PyAny>>) -> PyResult<Bound<'py, PyDict>> {
        let report = Reported::new(progress).run(py, |progress| self.shared.database().verify(progress))?;
        verify_fields(py, &report)
    }

    /// Returns the statistics in JSON.
    fn _statistics(&self, py: Python<'_>) -> PyResult<String> {
        let statistics = py.detach(|| self.shared.database().statistics());
        serde_json::to_string(&statistics).map_err(|error| invalid(error.to_string(), "report this as a bug"))
    }

    /// Returns the statistics in the format of Prometheus.
    fn prometheus(&self, py: Python<'_>) -> String {
        py.detach(|| self.shared.database().statistics().prometheus())
    }

    /// Resets latencies and some counters, between a warm-up and a measurement.
    fn reset_statistics(&self) {
        self.shared.database().reset_statistics();
    }

    fn _health(&self, py: Python<'_>) -> (&'static str, Vec<String>, u64) {
        let health = py.detach(|| self.shared.database().health());
        (health.state.name(), health.reasons, health.seconds)
    }

    /// Returns one line that says what was opened: device, durability method, preset, logs.
    fn open_line(&self) -> String {
        self.shared.database().open_line()
    }

    /// The newest checkpoint contains every transaction up to this CSN.
    #[getter]
    fn checkpoint_csn(&self) -> u64 {
        self.shared.database().checkpoint_csn().0
    }

    /// The length of the longest key.
    #[getter]
    fn max_key_bytes(&self) -> usize {
        self.shared.database().max_key_bytes()
    }
}

impl Database {
    /// Calls the engine without the interpreter lock.
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&quenchdb::Database) -> Result<T> + Send,
    ) -> PyResult<T> {
        py.detach(|| call(self.shared.database())).map_err(raise)
    }

    /// Changes rows in a durable transaction of their own, once: after a conflict the caller looks
    /// for signals, and repeats it.
    fn change<T: Send>(
        &self,
        py: Python<'_>,
        change: impl FnOnce(&mut quenchdb::Transaction) -> Result<T> + Send,
    ) -> PyResult<T> {
        self.run(py, |database| {
            let mut transaction = database.begin()?;
            let changed = change(&mut transaction)?;
            transaction.commit()?;
            Ok(changed)
        })
    }
}

fn verify_fields<'py>(py: Python<'py>, report: &VerifyReport) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    fields.set_item("result", report.class().name())?;
    fields.set_item("advice", report.advice())?;
    fields.set_item("tables", report.tables)?;
    fields.set_item("pages", report.pages)?;
    fields.set_item("large_values", report.large_values)?;
    fields.set_item("entries", report.entries)?;
    fields.set_item("stored_pages", report.stored_pages)?;
    fields.set_item("log_blocks", report.log_blocks)?;
    fields.set_item("log_records", report.log_records)?;
    fields.set_item("weaknesses", &report.weaknesses)?;
    fields.set_item("problems", &report.problems)?;
    Ok(fields)
}

/// Checks the database at a place, which no process has open for writing.
#[pyfunction]
#[pyo3(signature = (path, settings, progress=None))]
pub fn verify<'py>(
    py: Python<'py>,
    path: PathBuf,
    settings: &Bound<'py, PyDict>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let builder = Builder::default().settings(options::settings(settings)?);
    let report = Reported::new(progress).run(py, |progress| builder.verify(path, progress))?;
    verify_fields(py, &report)
}

/// Makes a database of backups.
#[pyfunction]
#[pyo3(signature = (backups, target, log, to, settings, progress=None))]
pub fn restore<'py>(
    py: Python<'py>,
    backups: Vec<PathBuf>,
    target: PathBuf,
    log: Option<PathBuf>,
    to: Option<u64>,
    settings: &Bound<'py, PyDict>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let settings = options::settings(settings)?;
    let report = Reported::new(progress).run(py, |progress| {
        let options = RestoreOptions::default().with(|options| {
            options.log = log.map(Place::from);
            options.to = to.map(Csn);
            options.settings = settings;
            options.progress = progress;
        });
        quenchdb::Database::restore(backups, target, options)
    })?;
    let fields = PyDict::new(py);
    fields.set_item("csn", report.csn.0)?;
    fields.set_item("pages", report.pages)?;
    fields.set_item("bytes", report.bytes)?;
    fields.set_item("replayed", report.replayed)?;
    fields.set_item("seconds", report.seconds)?;
    Ok(fields)
}

/// Asks the process that has a database open for its statistics.
#[pyfunction]
pub fn ask_statistics(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    py.detach(|| quenchdb::Database::ask_statistics(path)).map_err(raise)
}

/// Returns the error of a call on something that has ended.
pub fn ended(what: &str, advice: &'static str) -> Error {
    Error::invalid(what).with_advice(advice)
}
