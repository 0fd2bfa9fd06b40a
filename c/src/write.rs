//! Changing rows, in a transaction.

use crate::boundary::{Answer, borrow, bytes, call, give, give_copy, give_optional, optional};
use crate::cursor::{Range, limits};
use crate::database::{self, Database};
use crate::error::{Error, Failure};
use crate::table::{self, Table};
use crate::transaction::{Transaction, change};
use std::ffi::{c_int, c_void};

/// Changes a row of a transaction.
fn change_row<T>(
    transaction: Option<&Transaction>, table: Option<&Table>, (key, key_bytes): (*const c_void, usize),
    make: impl FnOnce(&mut quenchdb::Transaction, &quenchdb::Table, &[u8]) -> quenchdb::Result<T>,
) -> Answer<T> {
    let (table, key) = (table::of(table)?, bytes(key, key_bytes, "key")?);
    change(transaction, |transaction| make(transaction, table, key))
}

/// Sets a row, whether it exists or not.
/// Threads: one at a time; so for each change of a transaction.
#[unsafe(no_mangle)]
pub extern "C" fn quench_put(
    transaction: Option<&Transaction>, table: Option<&Table>, key: *const c_void, key_bytes: usize,
    value: *const c_void, value_bytes: usize, error: *mut *mut Error,
) -> c_int {
    call(error, || {
        let value = bytes(value, value_bytes, "value")?;
        change_row(transaction, table, (key, key_bytes), |tx, table, key| tx.insert(table, key, value))
    })
}

/// Sets a row if the key does not exist. Returns 1 if it did not.
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub extern "C" fn quench_put_new(
    transaction: Option<&Transaction>, table: Option<&Table>, key: *const c_void, key_bytes: usize,
    value: *const c_void, value_bytes: usize, error: *mut *mut Error,
) -> c_int {
    call(error, || {
        let value = bytes(value, value_bytes, "value")?;
        change_row(transaction, table, (key, key_bytes), |tx, table, key| {
            tx.insert_if_absent(table, key, value)
        })
    })
}

/// Sets a row. Returns 1 and the value before, for quench_free, or 0 and NULL if there was none.
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub extern "C" fn quench_replace(
    transaction: Option<&Transaction>, table: Option<&Table>, key: *const c_void, key_bytes: usize,
    value: *const c_void, value_bytes: usize, before: *mut *mut c_void, before_bytes: *mut usize,
    error: *mut *mut Error,
) -> c_int {
    give(before, std::ptr::null_mut());
    call(error, || {
        let value = bytes(value, value_bytes, "value")?;
        let replace = |tx: &mut quenchdb::Transaction, table: &_, key: &[u8]| tx.replace(table, key, value);
        let found = change_row(transaction, table, (key, key_bytes), replace)?;
        give_optional(found.as_deref(), before, before_bytes)
    })
}

/// Deletes a row. Returns 1 if it existed.
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub extern "C" fn quench_delete(
    transaction: Option<&Transaction>, table: Option<&Table>, key: *const c_void, key_bytes: usize,
    error: *mut *mut Error,
) -> c_int {
    call(error, || change_row(transaction, table, (key, key_bytes), |tx, table, key| tx.remove(table, key)))
}

/// Deletes a row. Returns 1 and its value, for quench_free, or 0 and NULL if it did not exist.
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub extern "C" fn quench_pop(
    transaction: Option<&Transaction>, table: Option<&Table>, key: *const c_void, key_bytes: usize,
    value: *mut *mut c_void, value_bytes: *mut usize, error: *mut *mut Error,
) -> c_int {
    give(value, std::ptr::null_mut());
    call(error, || {
        let found = change_row(transaction, table, (key, key_bytes), |tx, table, key| tx.take(table, key))?;
        give_optional(found.as_deref(), value, value_bytes)
    })
}

/// Deletes the row with the lowest key, or with the highest key if `last` is 1. Returns 1, the key
/// and the value, both for quench_free; 0 and NULL if the table is empty.
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub extern "C" fn quench_pop_end(
    transaction: Option<&Transaction>, table: Option<&Table>, last: c_int, key: *mut *mut c_void,
    key_bytes: *mut usize, value: *mut *mut c_void, value_bytes: *mut usize, error: *mut *mut Error,
) -> c_int {
    give(key, std::ptr::null_mut());
    give(value, std::ptr::null_mut());
    call(error, || {
        let table = table::of(table)?;
        let row = change(transaction, |tx| if last != 0 { tx.pop_last(table) } else { tx.pop_first(table) })?;
        let Some((found, row_value)) = row else { return Ok(false) };
        give_copy(&found, key, key_bytes)?;
        give_copy(&row_value, value, value_bytes)?;
        Ok(true)
    })
}

/// Returns in `after` what becomes of a value, which is NULL if there is no row: bytes that stay
/// valid until quench_update returns, or NULL to delete the row. Returns 0, or -1000 or less to
/// change nothing. It may use the transaction.
pub type UpdateFunction = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        before: *const c_void,
        before_bytes: usize,
        after: *mut *const c_void,
        after_bytes: *mut usize,
    ) -> c_int,
>;

/// Sets a row to what `update` makes of its value. No other transaction changes the row in between.
/// `update` is called once, by the calling thread. Returns what it returned.
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub extern "C" fn quench_update(
    transaction: Option<&Transaction>, table: Option<&Table>, key: *const c_void, key_bytes: usize,
    update: UpdateFunction, context: *mut c_void, error: *mut *mut Error,
) -> c_int {
    call(error, || {
        let (table, key) = (table::of(table)?, bytes(key, key_bytes, "key")?);
        let update = *borrow(update.as_ref(), "update")?;
        let before = change(transaction, |tx| tx.get_for_update(table, key))?;
        let (data, size) =
            before.as_ref().map_or((std::ptr::null(), 0), |value| (value.as_ptr(), value.len()));
        let (mut after, mut after_bytes) = (std::ptr::null(), 0);
        // SAFETY: the header says how the callback is called.
        let answer = unsafe { update(context, data.cast(), size, &raw mut after, &raw mut after_bytes) };
        if answer < 0 {
            return Err(Failure::of_callback(answer));
        }
        match optional(after, after_bytes, "after")? {
            Some(value) => change(transaction, |tx| tx.insert(table, key, value))?,
            None => drop(change(transaction, |tx| tx.remove(table, key))?),
        }
        Ok(answer)
    })
}

/// Sets a row to `after` if its value is `expected`. NULL stands for no row. Returns 1 if it was.
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub extern "C" fn quench_compare_and_set(
    transaction: Option<&Transaction>, table: Option<&Table>, key: *const c_void, key_bytes: usize,
    expected: *const c_void, expected_bytes: usize, after: *const c_void, after_bytes: usize,
    error: *mut *mut Error,
) -> c_int {
    call(error, || {
        let expected = optional(expected, expected_bytes, "expected")?;
        let after = optional(after, after_bytes, "after")?;
        let set = |tx: &mut quenchdb::Transaction, table: &_, key: &[u8]| {
            tx.compare_and_set(table, key, expected, after)
        };
        change_row(transaction, table, (key, key_bytes), set)
    })
}

/// Adds to a counter, a big-endian number of 64 bits that is 0 if the row does not exist, and gives
/// the sum.
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub extern "C" fn quench_add(
    transaction: Option<&Transaction>, table: Option<&Table>, key: *const c_void, key_bytes: usize,
    delta: i64, sum: *mut i64, error: *mut *mut Error,
) -> c_int {
    call(error, || {
        let added =
            change_row(transaction, table, (key, key_bytes), |tx, table, key| tx.add(table, key, delta));
        added.map(|added| give(sum, added))
    })
}

/// Deletes the rows of a range and gives their number. `range` may be NULL for all rows.
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub extern "C" fn quench_delete_range(
    transaction: Option<&Transaction>, table: Option<&Table>, range: *const Range, count: *mut u64,
    error: *mut *mut Error,
) -> c_int {
    call(error, || {
        let (table, range) = (table::of(table)?, limits(range)?);
        change(transaction, |tx| tx.remove_range(table, range)).map(|deleted| give(count, deleted))
    })
}

/// Sets a row in a transaction of its own, which is durable on return and is repeated after
/// conflicts.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_database_put(
    database: Option<&Database>, table: Option<&Table>, key: *const c_void, key_bytes: usize,
    value: *const c_void, value_bytes: usize, error: *mut *mut Error,
) -> c_int {
    call(error, || {
        let (table, key) = (table::of(table)?, bytes(key, key_bytes, "key")?);
        let value = bytes(value, value_bytes, "value")?;
        Ok(database::of(database)?.transact(|tx| tx.insert(table, key, value))?)
    })
}

/// Deletes a row in a transaction of its own, as quench_database_put. Returns 1 if it existed.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_database_delete(
    database: Option<&Database>, table: Option<&Table>, key: *const c_void, key_bytes: usize,
    error: *mut *mut Error,
) -> c_int {
    call(error, || {
        let (table, key) = (table::of(table)?, bytes(key, key_bytes, "key")?);
        Ok(database::of(database)?.transact(|tx| tx.remove(table, key))?)
    })
}
