//! Change feeds.

use crate::commit::wait_for;
use crate::database::{Database, Shared};
use crate::error::call;
use crate::reader::Table;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use quenchdb::Csn;
use quenchdb_bindings::{Feed, KINDS};
use std::sync::{Arc, Mutex};

/// A change: its kind, the name of the table, key, value, and the offset of a patch.
type Fields<'py> =
    (&'static str, String, Option<Bound<'py, PyBytes>>, Option<Bound<'py, PyBytes>>, Option<u64>);

/// The committed transactions of a database, in order; with a table, the changes of some of its
/// rows.
#[pyclass(frozen, subclass, module = "quenchdb._native")]
pub struct Changes {
    shared: Arc<Shared>,
    feed: Mutex<Feed>,
}

#[pymethods]
impl Changes {
    #[new]
    #[pyo3(signature = (database, after, table=None, prefix=None))]
    fn new(
        database: &Bound<'_, Database>, after: u64, table: Option<&Bound<'_, Table>>,
        prefix: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Changes> {
        let (py, shared) = (database.py(), database.get().shared.clone());
        let feed = match table.map(Bound::get) {
            Some(table) => {
                let prefix = prefix.map(|prefix| table.key.encode(prefix)).transpose()?;
                let prefix = prefix.as_ref().map(|prefix| prefix.bytes()).transpose()?.unwrap_or(b"");
                call(py, || Ok(Feed::Watch(shared.database()?.watch(&table.table, prefix)?)))
            }
            None => call(py, || Ok(Feed::Changes(shared.database()?.changes(Csn(after))?))),
        };
        Ok(Changes { shared, feed: Mutex::new(feed?) })
    }

    /// Returns the next transaction, or the next change of a row: the CSN and the changes.
    fn fetch<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Option<(u64, Vec<Fields<'py>>)>> {
        let found = wait_for(py, timeout, |left| {
            let found = self.shared.lock(&self.feed)?.next(Some(left))?;
            Ok(if self.shared.is_closed() { Some(found) } else { found.map(Some) })
        })?;
        Ok(found.flatten().map(|(csn, changes)| {
            let bytes = |bytes: Option<&[u8]>| bytes.map(|bytes| PyBytes::new(py, bytes));
            let fields = changes.iter().map(quenchdb_bindings::fields).map(|change| {
                (
                    KINDS[change.kind],
                    change.table.into(),
                    bytes(change.key),
                    bytes(change.value),
                    change.offset,
                )
            });
            (csn.0, fields.collect())
        }))
    }

    /// Where a later feed continues: pass it to ``Database.changes``.
    #[getter]
    fn csn(&self, py: Python<'_>) -> PyResult<u64> {
        call(py, || Ok(self.shared.lock(&self.feed)?.csn().0))
    }
}
