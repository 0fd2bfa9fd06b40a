//! Change feeds.

use crate::commit::SLICE;
use crate::database::{Database, Shared};
use crate::error::raise;
use crate::reader::Table;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use quenchdb::{Change, Csn, Result};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A change: its kind, the name of the table, key, value, and the offset of a patch.
type Fields<'py> =
    (&'static str, String, Option<Bound<'py, PyBytes>>, Option<Bound<'py, PyBytes>>, Option<u64>);

fn fields(py: Python<'_>, change: Change) -> Fields<'_> {
    let name = change.table().name().to_string();
    let key = change.key().map(|key| PyBytes::new(py, key));
    match change {
        Change::Put { value, .. } => ("put", name, key, Some(PyBytes::new(py, &value)), None),
        Change::Patch { offset, bytes, .. } => {
            ("patch", name, key, Some(PyBytes::new(py, &bytes)), Some(offset as u64))
        }
        Change::Delete { .. } => ("delete", name, key, None, None),
        Change::CreateTable { .. } => ("create-table", name, None, None, None),
        Change::DropTable { .. } => ("drop-table", name, None, None, None),
        Change::RenameTable { .. } => ("rename-table", name, None, None, None),
        _ => ("set-types", name, None, None, None),
    }
}

/// Waits for the next result of a feed, and looks for signals meanwhile. `None` at the end of the
/// time, or if the database was closed.
fn wait<F: Send, T: Send>(
    py: Python<'_>,
    shared: &Shared,
    feed: &Mutex<F>,
    timeout: Option<f64>,
    next: impl Fn(&mut F, Duration) -> Result<Option<T>> + Send + Sync,
) -> PyResult<Option<T>> {
    let end = timeout
        .and_then(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).ok())
        .and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        let left = end.map_or(SLICE, |end| end.saturating_duration_since(Instant::now()).min(SLICE));
        let found = py.detach(|| next(&mut *shared.lock(feed)?, left)).map_err(raise)?;
        py.check_signals()?;
        if found.is_some() || shared.is_closed() || end.is_some_and(|end| end <= Instant::now()) {
            return Ok(found);
        }
    }
}

/// The committed transactions of a database, in order.
#[pyclass(frozen, subclass, module = "quenchdb._native")]
pub struct Changes {
    shared: Arc<Shared>,
    feed: Mutex<quenchdb::Changes>,
}

#[pymethods]
impl Changes {
    #[new]
    fn new(database: &Bound<'_, Database>, after: u64) -> PyResult<Changes> {
        let shared = database.get().shared.clone();
        let feed = database.py().detach(|| shared.database().changes(Csn(after))).map_err(raise)?;
        Ok(Changes { shared, feed: Mutex::new(feed) })
    }

    /// Returns the next transaction: its CSN and its changes.
    fn fetch<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Option<(u64, Vec<Fields<'py>>)>> {
        let next = |feed: &mut quenchdb::Changes, left| {
            let Some(transaction) = feed.next_timeout(left)? else { return Ok(None) };
            let changes = transaction.changes().collect::<Result<Vec<Change>>>()?;
            Ok(Some((transaction.csn().0, changes)))
        };
        let found = wait(py, &self.shared, &self.feed, timeout, next)?;
        Ok(found.map(|(csn, changes)| (csn, changes.into_iter().map(|change| fields(py, change)).collect())))
    }

    /// Where a later feed continues: pass it to ``Database.changes``.
    #[getter]
    fn csn(&self, py: Python<'_>) -> PyResult<u64> {
        let csn = py.detach(|| Ok(self.shared.lock(&self.feed)?.csn().0));
        csn.map_err(raise)
    }
}

/// The changes of some rows.
#[pyclass(frozen, subclass, module = "quenchdb._native")]
pub struct Watch {
    shared: Arc<Shared>,
    feed: Mutex<quenchdb::Watch>,
}

#[pymethods]
impl Watch {
    #[new]
    fn new(
        database: &Bound<'_, Database>,
        table: &Bound<'_, Table>,
        prefix: &Bound<'_, PyAny>,
    ) -> PyResult<Watch> {
        let (shared, table) = (database.get().shared.clone(), table.get());
        let prefix = table.key.encode(prefix)?;
        let prefix = prefix.bytes()?;
        let feed = database.py().detach(|| shared.database().watch(&table.table, prefix)).map_err(raise)?;
        Ok(Watch { shared, feed: Mutex::new(feed) })
    }

    /// Returns the next change, with the CSN of its transaction.
    fn fetch<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Option<(u64, Fields<'py>)>> {
        let found = wait(py, &self.shared, &self.feed, timeout, quenchdb::Watch::next_timeout)?;
        Ok(found.map(|(csn, change)| (csn.0, fields(py, change))))
    }
}
