//! Rows of a range: an iterator that fetches many at a time, and columns.

use crate::error::{invalid, raise};
use crate::reader::{Source, Table};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use quenchdb::{Error, Reads, Result};
use std::ops::Bound as Limit;
use std::sync::{Arc, Mutex, TryLockError};

/// Rows of the first fetch, and of the first one after a change.
const ROWS_FIRST: usize = 16;
/// Rows of the largest fetch.
const ROWS_MAX: usize = 2048;
/// A fetch ends with the row that makes it so long.
const BYTES_MAX: usize = 256 << 10;

/// The limits of a range of keys.
pub type Range = (Limit<Vec<u8>>, Limit<Vec<u8>>);

/// Returns the range that arguments name.
///
/// # Errors
/// `InvalidArgumentError` for a prefix beside other limits.
pub fn bounds(
    table: &Table,
    start: Option<Bound<'_, PyAny>>,
    stop: Option<Bound<'_, PyAny>>,
    prefix: Option<Bound<'_, PyAny>>,
    (include_start, include_stop): (bool, bool),
) -> PyResult<Range> {
    let own = |key: Bound<'_, PyAny>| Ok::<_, PyErr>(table.key.encode(&key)?.bytes()?.to_vec());
    if let Some(prefix) = prefix {
        if start.is_some() || stop.is_some() {
            return Err(invalid("a range has a prefix, or start and stop", "leave one of them out"));
        }
        let prefix = own(prefix)?;
        let end = behind_prefix(&prefix).map_or(Limit::Unbounded, Limit::Excluded);
        return Ok((Limit::Included(prefix), end));
    }
    let limit = |key: Option<Bound<'_, PyAny>>, include: bool| match key {
        None => Ok::<_, PyErr>(Limit::Unbounded),
        Some(key) if include => Ok(Limit::Included(own(key)?)),
        Some(key) => Ok(Limit::Excluded(own(key)?)),
    };
    Ok((limit(start, include_start)?, limit(stop, include_stop)?))
}

/// Returns the lowest key above all keys with a prefix; `None` if there is no such key.
fn behind_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// What an iterator returns.
#[derive(Clone, Copy, PartialEq)]
enum What {
    Rows,
    Keys,
    Values,
}

/// As the callers in Python number it.
impl From<u8> for What {
    fn from(number: u8) -> What {
        [What::Rows, What::Keys, What::Values][usize::from(number).min(2)]
    }
}

/// Some rows of a range, and where to continue.
pub struct RowsOf<'a> {
    table: &'a quenchdb::Table,
    range: &'a mut Range,
    reverse: bool,
    rows_max: usize,
    batch: &'a mut Batch,
}

impl RowsOf<'_> {
    /// Reads the next rows. The batch knows whether they are the last ones.
    pub fn fill(&mut self, source: &impl Reads) -> Result<()> {
        let batch = &mut *self.batch;
        batch.clear();
        let mut rows = source.range(self.table, &*self.range);
        while batch.ends.len() < self.rows_max && batch.bytes.len() < BYTES_MAX {
            let row = if self.reverse { rows.next_row_back() } else { rows.next_row() };
            let Some((key, value)) = row.transpose()? else {
                batch.is_last = true;
                return Ok(());
            };
            batch.push(key, value);
        }
        Ok(())
    }
}

/// Rows that were fetched together, one behind the other.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    /// Where the key and the value of each row end.
    ends: Vec<(usize, usize)>,
    /// Rows of it that were returned.
    returned: usize,
    /// The range has no row behind them.
    is_last: bool,
}

impl Batch {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        (self.returned, self.is_last) = (0, false);
    }

    fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len()));
    }

    fn row(&self, at: usize) -> (&[u8], &[u8]) {
        let begin = if at == 0 { 0 } else { self.ends[at - 1].1 };
        let (key_end, end) = self.ends[at];
        (&self.bytes[begin..key_end], &self.bytes[key_end..end])
    }
}

/// The state of an iterator.
struct State {
    range: Range,
    batch: Batch,
    rows_max: usize,
    /// The version of the transaction or snapshot at which the batch was fetched.
    version: Option<u64>,
    is_done: bool,
}

impl State {
    /// Continues behind the row that was returned last.
    fn advance(&mut self, reverse: bool) {
        let Some(last) = self.batch.returned.checked_sub(1) else { return };
        let key = Limit::Excluded(self.batch.row(last).0.to_vec());
        if reverse { self.range.1 = key } else { self.range.0 = key }
    }
}

/// The rows of a range, from one end to the other. What its transaction writes meanwhile, it
/// returns, if that is still ahead.
#[pyclass(frozen, module = "quenchdb._native")]
pub struct Rows {
    source: Arc<Source>,
    table: Py<Table>,
    what: What,
    reverse: bool,
    state: Mutex<State>,
}

impl Rows {
    /// Returns an iterator that has read nothing yet.
    pub fn new(source: Arc<Source>, table: Py<Table>, what: u8, range: Range, reverse: bool) -> Rows {
        let (batch, rows_max) = (Batch::default(), ROWS_FIRST);
        let state = State { range, batch, rows_max, version: None, is_done: false };
        Rows { source, table, what: what.into(), reverse, state: Mutex::new(state) }
    }

    /// Fetches rows until there is one to return. Returns false at the end.
    fn fetch(&self, py: Python<'_>, state: &mut State) -> PyResult<bool> {
        let version = self.source.version();
        let is_unchanged = state.version == Some(version);
        if is_unchanged && state.batch.returned < state.batch.ends.len() {
            return Ok(true);
        }
        if state.is_done || (is_unchanged && state.batch.is_last) {
            state.is_done = true;
            state.batch.clear();
            return Ok(false);
        }
        state.advance(self.reverse);
        state.rows_max = if is_unchanged { (state.rows_max * 4).min(ROWS_MAX) } else { ROWS_FIRST };
        state.batch.clear();
        let State { range, batch, rows_max, .. } = state;
        let table = &self.table.get().table;
        let mut rows = RowsOf { table, range, reverse: self.reverse, rows_max: *rows_max, batch };
        self.source.fill(py, &mut rows)?;
        state.version = Some(version);
        state.is_done = state.batch.ends.is_empty();
        Ok(!state.is_done)
    }
}

#[pymethods]
impl Rows {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err(invalid("another thread is using the iterator", "give each thread its own"));
            }
        };
        let is_ready =
            state.version == Some(self.source.version()) && state.batch.returned < state.batch.ends.len();
        if !is_ready && !self.fetch(py, &mut state)? {
            return Ok(None);
        }
        let at = state.batch.returned;
        state.batch.returned += 1;
        let (key, value) = state.batch.row(at);
        let table = self.table.get();
        match self.what {
            What::Keys => table.key.decode(py, key).map(Some),
            What::Values => table.value.decode(py, value).map(Some),
            What::Rows => {
                let row = [table.key.decode(py, key)?, table.value.decode(py, value)?];
                PyTuple::new(py, row).map(|row| Some(row.into_any()))
            }
        }
    }

    /// Reads up to so many rows as columns: their number, and keys and values, each as offsets and
    /// bytes. The offsets are little-endian 64-bit numbers, one more than there are rows.
    fn columns<'py>(&self, py: Python<'py>, rows_max: usize) -> PyResult<ColumnsOfBytes<'py>> {
        let mut state = self.state.try_lock().map_err(|_| raise(Error::invalid("the iterator is in use")))?;
        state.advance(self.reverse);
        let mut columns = Columns::default();
        if !state.is_done {
            let State { range, batch, .. } = &mut *state;
            batch.clear();
            let table = &self.table.get().table;
            let mut rows = RowsOf { table, range, reverse: self.reverse, rows_max, batch };
            self.source.fill_columns(py, &mut rows, &mut columns)?;
            state.is_done = columns.is_last;
            state.version = None;
        }
        let count = columns.keys.ends.len();
        let (keys, values) = (columns.keys.objects(py)?, columns.values.objects(py)?);
        Ok((count, keys.0, keys.1, values.0, values.1))
    }
}

/// The number of rows; offsets and bytes of keys; those of values.
type ColumnsOfBytes<'py> =
    (usize, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

/// Keys or values, one behind the other.
#[derive(Default)]
struct Column {
    bytes: Vec<u8>,
    ends: Vec<u64>,
}

impl Column {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.ends.push(self.bytes.len() as u64);
    }

    /// Returns offsets and bytes.
    fn objects<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let offsets = PyBytes::new_with(py, 8 * (self.ends.len() + 1), |offsets| {
            // The first offset is 0, as the new bytes are.
            for (offset, end) in offsets.chunks_exact_mut(8).skip(1).zip(&self.ends) {
                offset.copy_from_slice(&end.to_le_bytes());
            }
            Ok(())
        })?;
        Ok((offsets, PyBytes::new(py, &self.bytes)))
    }
}

/// Rows as two columns.
#[derive(Default)]
pub struct Columns {
    keys: Column,
    values: Column,
    is_last: bool,
}

impl Columns {
    /// Reads rows, and moves the range behind them.
    pub fn fill(&mut self, source: &impl Reads, rows: &mut RowsOf<'_>) -> Result<()> {
        let mut last = None;
        let mut found = source.range(rows.table, &*rows.range);
        while self.keys.ends.len() < rows.rows_max {
            let row = if rows.reverse { found.next_row_back() } else { found.next_row() };
            let Some((key, value)) = row.transpose()? else {
                self.is_last = true;
                break;
            };
            self.keys.push(key);
            self.values.push(value);
            if self.keys.ends.len() == rows.rows_max {
                last = Some(key.to_vec());
            }
        }
        drop(found);
        if let Some(last) = last {
            let limit = Limit::Excluded(last);
            if rows.reverse { rows.range.1 = limit } else { rows.range.0 = limit }
        }
        Ok(())
    }
}
