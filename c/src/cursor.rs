//! Cursors: rows of a range, in both directions.

use crate::boundary::{Answer, borrow, bytes, call, discard, give, hand_over, optional, sized};
use crate::error::Error;
use crate::read::with_reads;
use crate::table::{self, Table};
use crate::transaction::{Kind, Source, Transaction, lock, source};
use quenchdb_bindings::Rows;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex};

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
    /// 1: a cursor reads no values, and gives each one as empty.
    keys_only: c_int,
}

/// Returns the range of a caller.
///
/// # Errors
/// `InvalidArgument` for a prefix beside other limits.
pub fn limits(given: *const Range) -> Answer<quenchdb_bindings::Range> {
    let range = sized(given, "range")?;
    let start = optional(range.start, range.start_bytes, "start")?.map(|key| (key, range.exclude_start == 0));
    let stop = optional(range.stop, range.stop_bytes, "stop")?.map(|key| (key, range.include_stop != 0));
    let prefix = optional(range.prefix, range.prefix_bytes, "prefix")?;
    Ok(quenchdb_bindings::range(start, stop, prefix)?)
}

/// Rows of a range of a transaction or a snapshot, fetched many at a time. It stands before the
/// first row, at a row, or behind the last one.
pub struct Cursor {
    source: Arc<Source>,
    table: quenchdb::Table,
    rows: Mutex<Rows>,
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
            let (source, table) = (source(transaction)?.clone(), table::of(table)?.clone());
            let keys_only = sized(range, "range")?.keys_only != 0;
            Ok(Cursor { source, table, rows: Mutex::new(Rows::new(limits(range)?, keys_only)) })
        })
    })
}

/// Gives the row to which a cursor moves. Key and value belong to the cursor.
fn step(
    cursor: Option<&Cursor>, back: bool, (key, key_bytes): (*mut *const c_void, *mut usize),
    (value, value_bytes): (*mut *const c_void, *mut usize),
) -> Answer<bool> {
    let cursor = borrow(cursor, "cursor")?;
    let (mut rows, version) = (lock(&cursor.rows, "cursor")?, cursor.source.version());
    let found = rows.step(version, back, |ahead| -> Answer {
        with_reads!(cursor.source, |reads| ahead.read(reads, &cursor.table)?);
        Ok(())
    })?;
    let (row_key, row_value) = rows.row().unwrap_or_default();
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
        lock(&borrow(cursor, "cursor")?.rows, "cursor")?.seek(key);
        Ok(())
    })
}

/// Frees a cursor. NULL is allowed.
/// Threads: any; not while another call uses the handle.
#[unsafe(no_mangle)]
pub extern "C" fn quench_cursor_free(cursor: Option<Box<Cursor>>) {
    discard(cursor);
}
