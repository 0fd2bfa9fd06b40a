//! Tables: rows of bytes, in the order of the bytes of their keys.

use crate::boundary::{Answer, borrow, call, discard, give_copy, hand_over, text};
use crate::database::{self, Database};
use crate::error::Error;
use std::ffi::{c_char, c_int, c_void};

/// A table of a database. The handle may outlive the table and the database: its use is an error
/// then.
pub struct Table {
    /// The engine's handle.
    pub table: quenchdb::Table,
}

/// Returns the engine's handle.
#[inline]
pub fn of(table: Option<&Table>) -> Answer<&quenchdb::Table> {
    Ok(&borrow(table, "table")?.table)
}

/// Gets the name of a table, which is valid during the call and does not end with NUL.
pub type NameFunction =
    Option<unsafe extern "C" fn(context: *mut c_void, name: *const c_char, name_bytes: usize)>;

/// Opens a table. If the table is missing, it is created, durably, with `create` 1, and otherwise
/// QUENCH_NOT_FOUND.
/// Threads: any. A handle may be used by many threads at a time.
#[unsafe(no_mangle)]
pub extern "C" fn quench_open_table(
    database: Option<&Database>, name: *const c_char, name_bytes: usize, create: c_int,
    table: *mut *mut Table, error: *mut *mut Error,
) -> c_int {
    call(error, || {
        hand_over(table, "table", || {
            let (database, name) = (database::of(database)?, text(name, name_bytes, "name")?);
            let table = if create != 0 { database.table_or_create(name) } else { database.table(name) };
            Ok(Table { table: table? })
        })
    })
}

/// Frees a handle of a table. NULL is allowed. The table stays.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_table_free(table: Option<Box<Table>>) {
    discard(table);
}

/// Returns the current name of a table: a text with NUL at its end, for quench_free, and its
/// length.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_table_name(
    table: Option<&Table>, name: *mut *mut c_char, name_bytes: *mut usize, error: *mut *mut Error,
) -> c_int {
    call(error, || give_copy(of(table)?.name().as_bytes(), name.cast(), name_bytes))
}

/// Calls `each` with the name of each table, in order.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_tables(
    database: Option<&Database>, each: NameFunction, context: *mut c_void, error: *mut *mut Error,
) -> c_int {
    call(error, || {
        let (database, each) = (database::of(database)?, *borrow(each.as_ref(), "each")?);
        // The list of a closed database, or in a forked child, is an error and not empty.
        drop(database.begin_read()?);
        for name in database.tables() {
            // SAFETY: the header says how the callback is called.
            unsafe { each(context, name.as_ptr().cast(), name.len()) }
        }
        Ok(())
    })
}

/// Drops a table and its rows, durably. QUENCH_BUSY while open transactions or snapshots use it.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_drop_table(
    database: Option<&Database>, name: *const c_char, name_bytes: usize, error: *mut *mut Error,
) -> c_int {
    call(error, || Ok(database::of(database)?.drop_table(text(name, name_bytes, "name")?)?))
}

/// Gives a table another name, durably. Handles of the table continue to work.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_rename_table(
    database: Option<&Database>, name: *const c_char, name_bytes: usize, new_name: *const c_char,
    new_name_bytes: usize, error: *mut *mut Error,
) -> c_int {
    call(error, || {
        let names = (text(name, name_bytes, "name")?, text(new_name, new_name_bytes, "new_name")?);
        Ok(database::of(database)?.rename_table(names.0, names.1)?)
    })
}

/// Makes a table empty in one step, durably. Handles of the old table are errors from then on.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_clear_table(
    database: Option<&Database>, name: *const c_char, name_bytes: usize, error: *mut *mut Error,
) -> c_int {
    call(error, || Ok(database::of(database)?.clear_table(text(name, name_bytes, "name")?).map(drop)?))
}
