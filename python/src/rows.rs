//! Rows of a range: an iterator that fetches many at a time, and columns.

use crate::error::{invalid, raise};
use crate::reader::{Any, Source, SourceKind, Table, with_reads};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use quenchdb_bindings::{Ahead, Range};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

/// Arguments that name a range: start, stop, prefix, include_start, include_stop.
pub type Limits<'py> = (Option<Any<'py>>, Option<Any<'py>>, Option<Any<'py>>, bool, bool);

/// Returns the range that arguments name.
///
/// # Errors
/// `InvalidArgumentError` for a prefix beside other limits.
pub fn bounds(py: Python<'_>, table: &Table, limits: Limits<'_>) -> PyResult<Range> {
    let (start, stop, prefix, include_start, include_stop) = limits;
    let own = |key: Option<Any<'_>>| {
        key.map(|key| Ok::<_, PyErr>(table.key.encode(&key)?.bytes()?.to_vec())).transpose()
    };
    let (start, stop, prefix) = (own(start)?, own(stop)?, own(prefix)?);
    let start = start.as_deref().map(|key| (key, include_start));
    let stop = stop.as_deref().map(|key| (key, include_stop));
    quenchdb_bindings::range(start, stop, prefix.as_deref()).map_err(|error| raise(py, &error))
}

/// What an iterator returns, as the callers in Python number it.
const KEYS: u8 = 1;
const VALUES: u8 = 2;

/// The rows of a range, from one end to the other. What its transaction writes meanwhile, it
/// returns, if that is still ahead.
#[pyclass(frozen, module = "quenchdb._native")]
pub struct Rows {
    source: Arc<Source>,
    table: Py<Table>,
    what: u8,
    reverse: bool,
    rows: Mutex<quenchdb_bindings::Rows>,
}

impl Rows {
    /// Returns an iterator that has read nothing yet.
    pub fn new(source: Arc<Source>, table: Py<Table>, what: u8, range: Range, reverse: bool) -> Rows {
        Rows {
            source,
            table,
            what,
            reverse,
            rows: Mutex::new(quenchdb_bindings::Rows::new(range, what == KEYS)),
        }
    }

    fn lock(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, quenchdb_bindings::Rows>> {
        match self.rows.try_lock() {
            Ok(rows) => Ok(rows),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {
                Err(invalid(py, "another thread is using the iterator", "give each thread its own"))
            }
        }
    }

    fn read(&self, py: Python<'_>, ahead: Ahead<'_>) -> PyResult<()> {
        let table = &self.table.get().table;
        with_reads!(&self.source, py, |reads| ahead.read(reads, table))
    }
}

#[pymethods]
impl Rows {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Any<'py>>> {
        let (mut rows, version) = (self.lock(py)?, self.source.version());
        if !rows.step_fetched(version, self.reverse)
            && !rows.step(version, self.reverse, |ahead| self.read(py, ahead))?
        {
            return Ok(None);
        }
        let (key, value) = rows.row().unwrap_or_default();
        let table = self.table.get();
        match self.what {
            KEYS => table.key.decode(py, key).map(Some),
            VALUES => table.value.decode(py, value).map(Some),
            _ => {
                let row = [table.key.decode(py, key)?, table.value.decode(py, value)?];
                PyTuple::new(py, row).map(|row| Some(row.into_any()))
            }
        }
    }

    /// Reads up to so many rows as columns: their number, and keys and values, each as offsets and
    /// bytes. The offsets are little-endian 64-bit numbers, one more than there are rows.
    #[allow(clippy::type_complexity)]
    fn columns<'py>(
        &self, py: Python<'py>, rows_max: usize,
    ) -> PyResult<(usize, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>)>
    {
        let (mut rows, version) = (self.lock(py)?, self.source.version());
        let (ends, keys, values) =
            rows.columns((version, self.reverse), rows_max, |ahead| self.read(py, ahead))?;
        let offsets = |end: fn(&(usize, usize)) -> usize| {
            PyBytes::new_with(py, 8 * (ends.len() + 1), |offsets| {
                // The first offset is 0, as the new bytes are.
                for (offset, row) in offsets.chunks_exact_mut(8).skip(1).zip(ends) {
                    offset.copy_from_slice(&(end(row) as u64).to_le_bytes());
                }
                Ok(())
            })
        };
        let (key_offsets, value_offsets) = (offsets(|row| row.0)?, offsets(|row| row.1)?);
        Ok((ends.len(), key_offsets, PyBytes::new(py, keys), value_offsets, PyBytes::new(py, values)))
    }
}
