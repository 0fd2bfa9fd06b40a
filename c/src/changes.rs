//! Change feeds: the committed transactions of a database, in order.

use crate::boundary::{borrow, bytes, call, discard, fill_sized, give, hand_over};
use crate::database::{self, Database};
use crate::error::Error;
use crate::table::{self, Table};
use crate::transaction::lock;
use quenchdb::{Change, Csn};
use quenchdb_bindings::{Feed, Fields, fields};
use std::ffi::{c_char, c_int, c_void};
use std::sync::Mutex;
use std::time::Duration;

/// What a change did.
#[allow(non_camel_case_types, dead_code)] // of the header
#[repr(C)]
pub enum quench_change_kind {
    /// Set a row to a value.
    QUENCH_PUT = 0,
    /// Set the bytes of a value from `offset` on.
    QUENCH_PATCH = 1,
    /// Deleted a row.
    QUENCH_DELETE = 2,
    /// Created a table.
    QUENCH_CREATE_TABLE = 3,
    /// Dropped a table.
    QUENCH_DROP_TABLE = 4,
    /// Renamed a table, to `table`.
    QUENCH_RENAME_TABLE = 5,
    /// Set the types of a table, or something that this version of the interface has no number for.
    QUENCH_OTHER_CHANGE = 6,
}

/// A change. Set `size` before a call; what it points to is valid until the next call with the
/// feed.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ChangedRow {
    /// sizeof(quench_change).
    size: usize,
    /// A quench_change_kind.
    kind: c_int,
    /// The name of the table, without NUL at its end.
    table: *const c_char,
    /// Its length.
    table_bytes: usize,
    /// The key; NULL for a change of a table.
    key: *const c_void,
    /// Its length.
    key_bytes: usize,
    /// The value, or the bytes of a patch; otherwise NULL.
    value: *const c_void,
    /// Its length.
    value_bytes: usize,
    /// Where a patch begins in the value.
    offset: u64,
}

struct State {
    feed: Feed,
    found: Vec<Change>,
}

/// A feed of the committed transactions of a database, or of the changes of some rows.
pub struct Changes {
    state: Mutex<State>,
}

impl Changes {
    fn new(feed: Feed) -> Changes {
        Changes { state: Mutex::new(State { feed, found: Vec::new() }) }
    }
}

/// Opens a feed of the transactions that committed after the CSN `after`; 0: from the first one on.
/// Threads: any. One thread at a time may use the feed. It does not keep the database open.
#[unsafe(no_mangle)]
pub extern "C" fn quench_open_changes(
    database: Option<&Database>, after: u64, changes: *mut *mut Changes, error: *mut *mut Error,
) -> c_int {
    call(error, || {
        hand_over(changes, "changes", || {
            Ok(Changes::new(Feed::Changes(database::of(database)?.changes(Csn(after))?)))
        })
    })
}

/// Opens a feed of the changes, from now on, of rows whose keys begin with `prefix`, one at a time.
/// Threads: as quench_open_changes.
#[unsafe(no_mangle)]
pub extern "C" fn quench_open_watch(
    database: Option<&Database>, table: Option<&Table>, prefix: *const c_void, prefix_bytes: usize,
    changes: *mut *mut Changes, error: *mut *mut Error,
) -> c_int {
    call(error, || {
        hand_over(changes, "changes", || {
            let (table, prefix) = (table::of(table)?, bytes(prefix, prefix_bytes, "prefix")?);
            Ok(Changes::new(Feed::Watch(database::of(database)?.watch(table, prefix)?)))
        })
    })
}

/// Waits for the next transaction, at most so many microseconds; without limit if the number is
/// negative. Returns 1, its CSN and the number of its changes; 0 if there was none in this time, or
/// if the database was closed.
/// Threads: one at a time; so for all functions of feeds.
#[unsafe(no_mangle)]
pub extern "C" fn quench_changes_next(
    changes: Option<&Changes>, timeout_us: i64, csn: *mut u64, count: *mut usize, error: *mut *mut Error,
) -> c_int {
    call(error, || {
        let mut state = lock(&borrow(changes, "changes")?.state, "feed")?;
        state.found.clear();
        let next = state.feed.next(u64::try_from(timeout_us).ok().map(Duration::from_micros))?;
        let is_some = next.is_some();
        let (found, changes) = next.unwrap_or_default();
        give(csn, found.0);
        give(count, changes.len());
        state.found = changes;
        Ok(is_some)
    })
}

/// Gives one of the changes of the transaction; the first one is 0.
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub extern "C" fn quench_changes_get(
    changes: Option<&Changes>, index: usize, change: *mut ChangedRow, error: *mut *mut Error,
) -> c_int {
    call(error, || {
        let state = lock(&borrow(changes, "changes")?.state, "feed")?;
        let missing = || format!("there is no change {index}, but {} of them", state.found.len());
        let found = state.found.get(index).ok_or_else(|| quenchdb::Error::invalid(missing()))?;
        let Fields { kind, table, key, value, offset } = fields(found);
        let parts = |bytes: Option<&[u8]>| {
            bytes.map_or((std::ptr::null(), 0), |bytes| (bytes.as_ptr().cast(), bytes.len()))
        };
        let (key, key_bytes) = parts(key);
        let (value, value_bytes) = parts(value);
        let row = ChangedRow {
            size: 0,
            kind: kind as c_int,
            table: table.as_ptr().cast(),
            table_bytes: table.len(),
            key,
            key_bytes,
            value,
            value_bytes,
            offset: offset.unwrap_or(0),
        };
        fill_sized(change, row, "change")
    })
}

/// Returns the CSN after which a later feed continues, for quench_open_changes. Kept with what was
/// made of the changes, it brings each transaction once, also after a crash. 0 for a feed of rows.
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub extern "C" fn quench_changes_csn(
    changes: Option<&Changes>, csn: *mut u64, error: *mut *mut Error,
) -> c_int {
    call(error, || {
        give(csn, lock(&borrow(changes, "changes")?.state, "feed")?.feed.csn().0);
        Ok(())
    })
}

/// Frees a feed. NULL is allowed.
/// Threads: any; not while another call uses the handle.
#[unsafe(no_mangle)]
pub extern "C" fn quench_changes_free(changes: Option<Box<Changes>>) {
    discard(changes);
}
