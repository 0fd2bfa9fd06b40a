//! Opening and closing databases.

use crate::boundary::{Answer, Context, borrow, bytes, call, discard, hand_over};
use crate::error::Error;
use crate::settings::{Setting, settings};
use quenchdb::{Builder, Progress};
use std::ffi::{CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// An open database.
pub struct Database {
    /// The engine's handle.
    pub database: quenchdb::Database,
}

/// Returns the engine's handle.
#[inline]
pub fn of(database: Option<&Database>) -> Answer<&quenchdb::Database> {
    Ok(&borrow(database, "database")?.database)
}

/// Returns a builder with settings of a caller.
pub fn builder(given: *const Setting, count: usize) -> Answer<Builder> {
    Ok(Builder::default().settings(settings(given, count)?))
}

/// Called now and then during long work with a text that names the work and its unit, how much is
/// done, and how much there is. It must not use the database, and is called by the calling thread
/// or by threads of the library, one at a time.
pub type ProgressFunction =
    Option<unsafe extern "C" fn(context: *mut c_void, what: *const c_char, done: u64, all: u64)>;

/// Returns the engine's form of a callback.
pub fn progress(function: ProgressFunction, context: *mut c_void) -> Option<Progress> {
    let (function, context) = (function?, Context(context));
    Some(Box::new(move |what: &str, done, all| {
        let what = CString::new(what).unwrap_or_default();
        let context = context;
        // SAFETY: the header says how the callback is called.
        unsafe { function(context.0, what.as_ptr(), done, all) }
    }))
}

/// Returns the path that a caller names.
///
/// # Errors
/// `InvalidArgument`.
pub fn path<'a>(data: *const c_char, size: usize, name: &str) -> Answer<&'a Path> {
    let path = bytes(data.cast(), size, name)?;
    if path.is_empty() {
        return Err(quenchdb::Error::invalid(format!("the argument `{name}` is empty")).into());
    }
    Ok(Path::new(OsStr::from_bytes(path)))
}

/// Opens the database in a directory and recovers it if it was not closed; creates it if it is
/// missing, unless the setting `create` is "false". The path may be a URL such as "file:///path".
/// `progress` may be NULL; it gets the progress of recovery.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_open(
    path: *const c_char, path_bytes: usize, settings: *const Setting, settings_count: usize,
    progress: ProgressFunction, context: *mut c_void, database: *mut *mut Database, error: *mut *mut Error,
) -> c_int {
    call(error, || {
        hand_over(database, "database", || {
            let mut builder = builder(settings, settings_count)?;
            if let Some(progress) = self::progress(progress, context) {
                builder = builder.on_recovery(progress);
            }
            Ok(Database { database: builder.open(self::path(path, path_bytes, "path")?)? })
        })
    })
}

/// Opens a new database in memory, which is gone with its last handle.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_open_in_memory(
    settings: *const Setting, settings_count: usize, database: *mut *mut Database, error: *mut *mut Error,
) -> c_int {
    call(error, || {
        hand_over(database, "database", || {
            Ok(Database { database: builder(settings, settings_count)?.open_in_memory()? })
        })
    })
}

/// Opens the newest checkpoint for reading, while another process has the database open for
/// writing.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_open_checkpoint(
    path: *const c_char, path_bytes: usize, settings: *const Setting, settings_count: usize,
    database: *mut *mut Database, error: *mut *mut Error,
) -> c_int {
    call(error, || {
        hand_over(database, "database", || {
            let path = self::path(path, path_bytes, "path")?;
            Ok(Database { database: builder(settings, settings_count)?.open_checkpoint(path)? })
        })
    })
}

/// Makes everything durable and closes the database, so that the next open replays nothing. Open
/// transactions count as aborted, and further calls are errors. All handles have to be freed still.
/// Threads: any, also while others use the database.
#[unsafe(no_mangle)]
pub extern "C" fn quench_close(database: Option<&Database>, error: *mut *mut Error) -> c_int {
    call(error, || Ok(of(database)?.clone().close()?))
}

/// Frees a database. NULL is allowed. The database is closed with the last of its transactions,
/// snapshots and cursors; call quench_close to learn of errors.
/// Threads: any; not while another call uses the handle, as for all functions that free.
#[unsafe(no_mangle)]
pub extern "C" fn quench_database_free(database: Option<Box<Database>>) {
    discard(database);
}
