//! The C interface of QuenchDB: a thin layer over the engine's API. `include/quenchdb.h` is written
//! from it, so each comment of a public item is one of that header.
//!
//! 1. Each call is made in [`boundary::call`]: no panic crosses the boundary. Each error becomes a
//!    negative number and, if the caller wants it, an object. There is no last error.
//! 2. No handle borrows from another one: children hold the database, so that a program may free
//!    handles in any order.
//! 3. No call waits for another call on the same handle: the second one is an error. So nothing
//!    hangs in a callback or in a forked child.
//! 4. What the header demands of callers is relied on in `boundary`, which has nearly all unsafe
//!    code.

#![warn(missing_docs)]

mod error;
mod boundary;
mod settings;
mod database;
mod table;
mod transaction;
mod read;
mod write;
mod cursor;
mod ticket;
mod changes;
mod maintenance;
mod standby;
#[cfg(test)]
mod tests;

use std::ffi::{CStr, c_char};

/// Returns the version of the library, such as "0.1.0". QUENCH_VERSION is that of the header.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("a version has no NUL"),
        };
    VERSION.as_ptr()
}

/// Frees bytes or a text that a function of this library allocated. NULL is allowed.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_free(memory: *mut std::ffi::c_void) {
    boundary::free(memory);
}
