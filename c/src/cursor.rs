//! Cursors: rows of a range, in both directions.

use crate::boundary::{Answer, borrow, bytes, call, discard, give, hand_over, optional, sized};
use crate::error::Error;
use crate::read::with_reads;
use crate::table::Table;
use crate::transaction::{Kind, Source, Transaction, lock};
use quenchdb::Reads;
use std::ffi::{c_int, c_void};
use std::ops::Bound;
use std::sync::{Arc, Mutex};

/// Rows of the first fetch, and of the first one after a change.
const ROWS_FIRST: usize = 16;
/// Rows of the largest fetch.
const ROWS_MAX: usize = 2048;
/// A fetch ends with the row that makes it so long.
const BYTES_MAX: usize = 256 << 10;

/// A range of keys. Begin with QUENCH_RANGE_INIT, which is all rows, and set fields.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Range {
    /// sizeof(quench_range).
    size: usize,
    /// The first key, or NULL.
    start: *const c_void,
    /// Its length.
    start_bytes: usize,
    /// The key at which the range ends, or NULL.
    stop: *const c_void,
    /// Its length.
    stop_bytes: usize,
    /// Instead of both: what all keys begin with, or NULL.
    prefix: *const c_void,
    /// Its length.
    prefix_bytes: usize,
    /// 1: without the key `start`.
    exclude_start: c_int,
    /// 1: with the key `stop`.
    include_stop: c_int,
}

/// The limits of a range, owned.
pub type Limits = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The limits of a part of a range.
type Part<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// Returns the range of a caller.
///
/// # Errors
/// `InvalidArgument` for a prefix beside other limits.
pub fn limits(given: *const Range) -> Answer<Limits> {
    let range = sized(given, "range")?;
    let start = optional(range.start, range.start_bytes, "start")?.map(<[u8]>::to_vec);
    let stop = optional(range.stop, range.stop_bytes, "stop")?.map(<[u8]>::to_vec);
    if let Some(prefix) = optional(range.prefix, range.prefix_bytes, "prefix")? {
        if start.is_some() || stop.is_some() {
            let error = quenchdb::Error::invalid("a range has a prefix, or start and stop");
            return Err(error.with_advice("leave one of them out").into());
        }
        return Ok((Bound::Included(prefix.to_vec()), behind_prefix(prefix)));
    }
    let excluded = |key| if range.exclude_start != 0 { Bound::Excluded(key) } else { Bound::Included(key) };
    let included = |key| if range.include_stop != 0 { Bound::Included(key) } else { Bound::Excluded(key) };
    Ok((start.map_or(Bound::Unbounded, excluded), stop.map_or(Bound::Unbounded, included)))
}

/// Returns the upper limit of all keys with a prefix.
fn behind_prefix(prefix: &[u8]) -> Bound<Vec<u8>> {
    let Some(last) = prefix.iter().rposition(|byte| *byte < u8::MAX) else { return Bound::Unbounded };
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Bound::Excluded(end)
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
    /// From the highest key to the lowest.
    back: bool,
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

    /// Returns the row that was returned last.
    fn row(&self) -> Option<(&[u8], &[u8])> {
        let at = self.returned.checked_sub(1)?;
        let begin = if at == 0 { 0 } else { self.ends[at - 1].1 };
        let (key_end, end) = self.ends[at];
        Some((&self.bytes[begin..key_end], &self.bytes[key_end..end]))
    }

    fn fill(
        &mut self, reads: &impl Reads, table: &quenchdb::Table, limits: Part<'_>, most: usize,
    ) -> quenchdb::Result<()> {
        self.clear();
        let mut rows = reads.range(table, limits);
        while self.ends.len() < most && self.bytes.len() < BYTES_MAX {
            let row = if self.back { rows.next_row_back() } else { rows.next_row() };
            let Some((key, value)) = row.transpose()? else {
                self.is_last = true;
                break;
            };
            self.push(key, value);
        }
        Ok(())
    }
}

/// Where a cursor stands, beside the rows that it has fetched.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// It was not moved.
    Start,
    /// At the row `key`.
    At,
    /// Before the first row whose key is `key` or higher.
    Before,
    /// Behind the last row, or, with true, before the first row.
    End(bool),
}

struct State {
    limits: Limits,
    place: Place,
    key: Vec<u8>,
    batch: Batch,
    rows_max: usize,
    /// The version of the transaction at which the batch was fetched.
    version: Option<u64>,
}

fn borrowed(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

impl State {
    /// Returns the part of the range that lies ahead; `None` if nothing does.
    fn ahead(&self, back: bool) -> Option<Part<'_>> {
        let (lower, upper) = (borrowed(&self.limits.0), borrowed(&self.limits.1));
        let key = self.key.as_slice();
        let is_below = match lower {
            Bound::Included(lower) => key < lower,
            Bound::Excluded(lower) => key <= lower,
            Bound::Unbounded => false,
        };
        let is_above = match upper {
            Bound::Included(upper) => key > upper,
            Bound::Excluded(upper) => key >= upper,
            Bound::Unbounded => false,
        };
        match (self.place, back) {
            (Place::End(at), _) if at == back => None,
            (Place::Start | Place::End(_), _) => Some((lower, upper)),
            // A place outside of the range: all of it is ahead, or nothing.
            (_, false) if is_below => Some((lower, upper)),
            (_, true) if is_above => Some((lower, upper)),
            (_, false) if is_above => None,
            (_, true) if is_below => None,
            (Place::At, false) => Some((Bound::Excluded(key), upper)),
            (Place::Before, false) => Some((Bound::Included(key), upper)),
            (_, true) => Some((lower, Bound::Excluded(key))),
        }
    }

    /// Moves to the next row of a direction. Returns false at the end.
    fn step(&mut self, source: &Source, table: &quenchdb::Table, back: bool) -> Answer<bool> {
        let version = source.version();
        let continues = self.version == Some(version) && self.batch.back == back;
        if continues && self.batch.returned < self.batch.ends.len() {
            self.batch.returned += 1;
            return Ok(true);
        }
        if let Some((key, _)) = self.batch.row() {
            self.key.clear();
            self.key.extend_from_slice(key);
            self.place = Place::At;
        }
        self.rows_max = if continues { (self.rows_max * 4).min(ROWS_MAX) } else { ROWS_FIRST };
        let is_over = continues && self.batch.is_last;
        let mut batch = std::mem::take(&mut self.batch);
        batch.clear();
        batch.back = back;
        let filled = match self.ahead(back).filter(|_| !is_over) {
            Some(ahead) => {
                with_reads!(source, |reads| batch.fill(reads, table, ahead, self.rows_max))
            }
            None => Ok(()),
        };
        self.batch = batch;
        self.version = Some(version);
        if let Err(error) = filled {
            self.batch.clear();
            return Err(error.into());
        }
        if self.batch.ends.is_empty() {
            self.place = Place::End(back);
            return Ok(false);
        }
        self.batch.returned = 1;
        Ok(true)
    }
}

/// Rows of a range of a transaction or a snapshot, fetched many at a time. It stands before the
/// first row, at a row, or behind the last one.
pub struct Cursor {
    source: Arc<Source>,
    table: quenchdb::Table,
    state: Mutex<State>,
}

/// Opens a cursor, which reads nothing yet. `range` may be NULL for all rows. It returns what its
/// transaction writes ahead of it, and rows may be changed and deleted in its loop. After the end
/// of its transaction its steps are errors; a snapshot stays until its cursors are freed.
/// Threads: as quench_get. One thread at a time may use the cursor.
#[unsafe(no_mangle)]
pub extern "C" fn quench_open_cursor(
    transaction: Option<&Transaction>, table: Option<&Table>, range: *const Range, cursor: *mut *mut Cursor,
    error: *mut *mut Error,
) -> c_int {
    call(error, || {
        hand_over(cursor, "cursor", || {
            let source = borrow(transaction, "transaction")?.source.clone();
            let (table, limits) = (borrow(table, "table")?.table.clone(), limits(range)?);
            let (place, key, batch) = (Place::Start, Vec::new(), Batch::default());
            let state = State { limits, place, key, batch, rows_max: ROWS_FIRST, version: None };
            Ok(Cursor { source, table, state: Mutex::new(state) })
        })
    })
}

/// Gives the row to which a cursor moves. Key and value belong to the cursor.
fn step(
    cursor: Option<&Cursor>, back: bool, (key, key_bytes): (*mut *const c_void, *mut usize),
    (value, value_bytes): (*mut *const c_void, *mut usize),
) -> Answer<bool> {
    let cursor = borrow(cursor, "cursor")?;
    let mut state = lock(&cursor.state, "cursor")?;
    let found = state.step(&cursor.source, &cursor.table, back)?;
    let (row_key, row_value) = state.batch.row().unwrap_or_default();
    give(key, row_key.as_ptr().cast());
    give(key_bytes, row_key.len());
    give(value, row_value.as_ptr().cast());
    give(value_bytes, row_value.len());
    Ok(found)
}

/// Moves to the next row; a new cursor, to the first row. Returns 1 and the row, whose key and
/// value are valid until the next call with the cursor; 0 behind the last row, where
/// quench_cursor_prev continues with the last row.
/// Threads: one at a time; so for all functions of cursors.
#[unsafe(no_mangle)]
pub extern "C" fn quench_cursor_next(
    cursor: Option<&Cursor>, key: *mut *const c_void, key_bytes: *mut usize, value: *mut *const c_void,
    value_bytes: *mut usize, error: *mut *mut Error,
) -> c_int {
    call(error, || step(cursor, false, (key, key_bytes), (value, value_bytes)))
}

/// Moves to the row before; a new cursor, to the last row. Returns as quench_cursor_next.
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub extern "C" fn quench_cursor_prev(
    cursor: Option<&Cursor>, key: *mut *const c_void, key_bytes: *mut usize, value: *mut *const c_void,
    value_bytes: *mut usize, error: *mut *mut Error,
) -> c_int {
    call(error, || step(cursor, true, (key, key_bytes), (value, value_bytes)))
}

/// Moves between two rows: quench_cursor_next goes to the first row whose key is `key` or higher,
/// quench_cursor_prev to the last row whose key is lower. Reads nothing.
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub extern "C" fn quench_cursor_seek(
    cursor: Option<&Cursor>, key: *const c_void, key_bytes: usize, error: *mut *mut Error,
) -> c_int {
    call(error, || {
        let key = bytes(key, key_bytes, "key")?;
        let mut state = lock(&borrow(cursor, "cursor")?.state, "cursor")?;
        // Before the batch goes: the key may be one of its own.
        state.key = key.to_vec();
        state.batch.clear();
        (state.place, state.version) = (Place::Before, None);
        Ok(())
    })
}

/// Frees a cursor. NULL is allowed.
/// Threads: any; not while another call uses the handle.
#[unsafe(no_mangle)]
pub extern "C" fn quench_cursor_free(cursor: Option<Box<Cursor>>) {
    discard(cursor);
}
