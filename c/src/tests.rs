//! A panic never crosses the boundary: planted ones, in calls and in drops.

use crate::boundary::discard;
use crate::database::{Database, quench_database_free, quench_open_in_memory};
use crate::error::quench_code::{QUENCH_INTERRUPTED, QUENCH_OTHER, QUENCH_PANIC};
use crate::error::{Error, quench_error_code, quench_error_free, quench_error_message, quench_error_name};
use crate::read::quench_contains;
use crate::table::{Table, quench_open_table, quench_table_free};
use crate::transaction::{Transaction, quench_begin, quench_commit, quench_transaction_free};
use crate::write::quench_put;
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};
use std::ptr::null_mut;

thread_local! {
    static PLANTED: Cell<bool> = const { Cell::new(false) };
}

/// Called inside of each call, before its body.
pub fn panic_if_planted() {
    assert!(!PLANTED.take(), "a planted panic");
}

fn text(text: *const c_char) -> String {
    // SAFETY: it is one of an error that was not freed.
    unsafe { CStr::from_ptr(text) }.to_str().expect("UTF-8").to_string()
}

/// Checks that a call with a panic returns its code and describes it, and that the same call works
/// afterwards.
fn panics_once(call: &dyn Fn(*mut *mut Error) -> c_int) {
    PLANTED.set(true);
    assert_eq!(call(null_mut()), QUENCH_PANIC as c_int, "nobody wants the error");
    PLANTED.set(true);
    let mut raised = null_mut();
    assert_eq!(call(&raw mut raised), QUENCH_PANIC as c_int);
    // SAFETY: the call made it.
    let error = unsafe { Box::from_raw(raised) };
    assert_eq!(quench_error_code(Some(&error)), QUENCH_PANIC as c_int);
    assert_eq!(text(quench_error_name(Some(&error))), "panic");
    let message = text(quench_error_message(Some(&error)));
    assert!(message.contains("the library has a bug: a planted panic; report this"), "{message}");
    quench_error_free(Some(error));
    assert!(call(null_mut()) >= 0, "the handles are as before");
}

fn taken<T>(handle: *mut T) -> Box<T> {
    assert!(!handle.is_null());
    // SAFETY: a call made it, and nothing has freed it.
    unsafe { Box::from_raw(handle) }
}

#[test]
fn a_planted_panic_is_an_error_in_every_kind_of_call() {
    let mut db: *mut Database = null_mut();
    panics_once(&|error| quench_open_in_memory(std::ptr::null(), 0, &raw const db as *mut _, error));
    // The handle of the call that worked.
    assert_eq!(quench_open_in_memory(std::ptr::null(), 0, &raw mut db, null_mut()), 0);
    let db = taken(db);
    let (mut table, mut tx): (*mut Table, *mut Transaction) = (null_mut(), null_mut());
    assert_eq!(quench_open_table(Some(&db), c"t".as_ptr(), 1, 1, &raw mut table, null_mut()), 0);
    assert_eq!(quench_begin(Some(&db), std::ptr::null(), &raw mut tx, null_mut()), 0);
    let (table, tx) = (taken(table), taken(tx));
    let key = b"key".as_ptr().cast();
    panics_once(&|error| quench_put(Some(&tx), Some(&table), key, 3, key, 3, error));
    panics_once(&|error| quench_contains(Some(&tx), Some(&table), key, 3, error));
    assert_eq!(quench_contains(Some(&tx), Some(&table), key, 3, null_mut()), 1);
    panics_once(&|error| quench_commit(Some(&tx), null_mut(), error));
    quench_transaction_free(Some(tx));
    quench_table_free(Some(table));
    quench_database_free(Some(db));
}

#[test]
fn a_panic_in_a_drop_ends_there() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("a planted panic");
        }
    }
    discard(Some(Box::new(Panics)));
}

#[test]
fn each_code_of_the_engine_has_its_number() {
    use quenchdb::ErrorKind;
    let numbers = [
        (ErrorKind::Conflict, -1),
        (ErrorKind::InvalidArgument, -4),
        (ErrorKind::Timeout, -17),
        (ErrorKind::Interrupted, QUENCH_INTERRUPTED as c_int),
    ];
    for (kind, number) in numbers {
        assert_eq!(crate::error::Failure::from(quenchdb::Error::new(kind, "x")).code(), number);
        assert_ne!(number, QUENCH_OTHER as c_int);
    }
}
