//! Reading rows, from transactions and snapshots.

use crate::boundary::{Answer, array, borrow, bytes, call, fill, give, give_copy, give_optional};
use crate::cursor::{Range, limits};
use crate::database::{self, Database};
use crate::error::Error;
use crate::table::{self, Table};
use crate::transaction::{Kind, Source, Transaction, change, lock, source};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

/// Evaluates an expression with the transaction or the snapshot of a source.
macro_rules! with_reads {
    ($source:expr, |$reads:ident| $read:expr) => {
        match &$source.kind {
            Kind::Snapshot($reads) => $read,
            Kind::OfStandby(snapshot) => {
                let $reads: &quenchdb::Snapshot = snapshot;
                $read
            }
            Kind::Transaction(slot) => {
                let slot = lock(slot, "transaction")?;
                let $reads = slot.get()?;
                $read
            }
        }
    };
}
pub(crate) use with_reads;

/// A longer buffer is not kept for the next read of the thread.
const KEPT_BYTES_MAX: usize = 64 << 10;

thread_local! {
    /// A buffer for values on their way to the caller.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Reads from a transaction, or from a snapshot of a standby. Not inlined, so that reads from
/// snapshots stay short.
#[inline(never)]
fn read_other(source: &Source, table: &quenchdb::Table, key: &[u8], value: &mut Vec<u8>) -> Answer<bool> {
    Ok(with_reads!(source, |reads| reads.get_into(table, key, value)?))
}

/// Calls `visit` with the value of a key, if there is one. Does what the engine's `get_with` does,
/// with one look for the variable of the thread, which takes a call in a shared library.
#[inline(always)]
fn read_with<T>(
    (transaction, table): (Option<&Transaction>, Option<&Table>), key: &[u8], visit: impl FnOnce(&[u8]) -> T,
) -> Answer<Option<T>> {
    let (table, source) = (table::of(table)?, source(transaction)?);
    // A destructor of the thread may read, too.
    let spare = Cell::default();
    let kept = BUFFER.try_with(|kept| NonNull::from(kept));
    // SAFETY: the thread, whose variable it is, does not end during the call.
    let kept = kept.map_or(&spare, |kept| unsafe { kept.as_ref() });
    let mut buffer = kept.take();
    let found = match &source.kind {
        Kind::Snapshot(snapshot) => snapshot.get_into(table, key, &mut buffer)?,
        _ => read_other(source, table, key, &mut buffer)?,
    };
    let seen = found.then(|| visit(&buffer));
    if buffer.capacity() <= KEPT_BYTES_MAX {
        kept.set(buffer);
    }
    Ok(seen)
}

/// Gets a value, which is valid during the call and must not be changed.
pub type ValueFunction =
    Option<unsafe extern "C" fn(context: *mut c_void, value: *const c_void, value_bytes: usize)>;

/// Bytes of the caller, where a function takes many.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Bytes {
    /// Where they are.
    pub data: *const c_void,
    /// Their number.
    pub size: usize,
}

/// Reads the value of a key; in a transaction, own changes included. Returns 1 and the value, for
/// quench_free, or 0 and NULL if there is no such key. A NUL follows the value, and does not count.
/// Threads: any for a snapshot, one at a time for a transaction.
#[unsafe(no_mangle)]
pub extern "C" fn quench_get(
    transaction: Option<&Transaction>, table: Option<&Table>, key: *const c_void, key_bytes: usize,
    value: *mut *mut c_void, value_bytes: *mut usize, error: *mut *mut Error,
) -> c_int {
    give(value, std::ptr::null_mut());
    call(error, || {
        let key = bytes(key, key_bytes, "key")?;
        match read_with((transaction, table), key, |found| give_copy(found, value, value_bytes))? {
            Some(copied) => copied.map(|()| true),
            None => give_optional(None, value, value_bytes),
        }
    })
}

/// Reads the value of a key into a buffer, and allocates nothing for values up to 64 KiB. Returns 1
/// and the length of the value, of which the buffer gets as much as it has space for; 0 without
/// such a key.
/// Threads: as quench_get.
#[unsafe(no_mangle)]
pub extern "C" fn quench_get_into(
    transaction: Option<&Transaction>, table: Option<&Table>, key: *const c_void, key_bytes: usize,
    buffer: *mut c_void, buffer_bytes: usize, value_bytes: *mut usize, error: *mut *mut Error,
) -> c_int {
    call(error, || {
        let found = read_with((transaction, table), bytes(key, key_bytes, "key")?, |found| {
            fill(buffer, buffer_bytes, found);
            found.len()
        })?;
        give(value_bytes, found.unwrap_or(0));
        Ok(found.is_some())
    })
}

/// Calls `visit` with the value of a key, and allocates nothing for values up to 64 KiB. Returns 1;
/// 0 without such a key, and then does not call it. `visit` is called by the calling thread, and
/// may use the transaction and the database.
/// Threads: as quench_get.
#[unsafe(no_mangle)]
pub extern "C" fn quench_get_with(
    transaction: Option<&Transaction>, table: Option<&Table>, key: *const c_void, key_bytes: usize,
    visit: ValueFunction, context: *mut c_void, error: *mut *mut Error,
) -> c_int {
    call(error, || {
        let visit = *borrow(visit.as_ref(), "visit")?;
        let found = read_with((transaction, table), bytes(key, key_bytes, "key")?, |found| {
            // SAFETY: the header says how the callback is called.
            unsafe { visit(context, found.as_ptr().cast(), found.len()) }
        })?;
        Ok(found.is_some())
    })
}

/// Returns 1 if a key exists. Of a large value nothing is read.
/// Threads: as quench_get.
#[unsafe(no_mangle)]
pub extern "C" fn quench_contains(
    transaction: Option<&Transaction>, table: Option<&Table>, key: *const c_void, key_bytes: usize,
    error: *mut *mut Error,
) -> c_int {
    call(error, || {
        let (table, key) = (table::of(table)?, bytes(key, key_bytes, "key")?);
        Ok(with_reads!(source(transaction)?, |reads| reads.contains_key(table, key)?))
    })
}

/// Reads a row as quench_get and locks it, whether it exists or not, until the transaction ends:
/// against changes, or, with `exclusive` 1, against other writers' reads with a lock as well.
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub extern "C" fn quench_get_locked(
    transaction: Option<&Transaction>, table: Option<&Table>, key: *const c_void, key_bytes: usize,
    exclusive: c_int, value: *mut *mut c_void, value_bytes: *mut usize, error: *mut *mut Error,
) -> c_int {
    give(value, std::ptr::null_mut());
    call(error, || {
        let (table, key) = (table::of(table)?, bytes(key, key_bytes, "key")?);
        let found = change(transaction, |tx| match exclusive {
            0 => tx.get_for_share(table, key),
            _ => tx.get_for_update(table, key),
        })?;
        give_optional(found.as_deref(), value, value_bytes)
    })
}

/// Counts the rows of a range, all of which it reads. `range` may be NULL for all rows.
/// Threads: as quench_get.
#[unsafe(no_mangle)]
pub extern "C" fn quench_count(
    transaction: Option<&Transaction>, table: Option<&Table>, range: *const Range, count: *mut u64,
    error: *mut *mut Error,
) -> c_int {
    call(error, || {
        let (table, range, mut rows) = (table::of(table)?, limits(range)?, 0);
        let each = |_: &[u8], _: &[u8]| {
            rows += 1;
            Ok(())
        };
        with_reads!(source(transaction)?, |reads| reads.for_each(table, &range, each)?);
        give(count, rows);
        Ok(())
    })
}

/// Brings the pages of rows that are about to be read or written into memory, many at once.
/// Threads: as quench_get.
#[unsafe(no_mangle)]
pub extern "C" fn quench_prefetch(
    transaction: Option<&Transaction>, table: Option<&Table>, keys: *const Bytes, keys_count: usize,
    error: *mut *mut Error,
) -> c_int {
    call(error, || {
        let keys = array(keys, keys_count, "keys")?.iter().map(|key| bytes(key.data, key.size, "keys"));
        let (table, keys) = (table::of(table)?, keys.collect::<Answer<Vec<_>>>()?);
        with_reads!(source(transaction)?, |reads| reads.prefetch(table, &keys)?);
        Ok(())
    })
}

/// Reads a row in a snapshot of its own, as quench_get.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_database_get(
    database: Option<&Database>, table: Option<&Table>, key: *const c_void, key_bytes: usize,
    value: *mut *mut c_void, value_bytes: *mut usize, error: *mut *mut Error,
) -> c_int {
    give(value, std::ptr::null_mut());
    call(error, || {
        let (table, key) = (table::of(table)?, bytes(key, key_bytes, "key")?);
        let found = database::of(database)?.begin_read()?.get(table, key)?;
        give_optional(found.as_deref(), value, value_bytes)
    })
}
