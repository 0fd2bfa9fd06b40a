//! The native module of the Python package `quenchdb`: a thin layer over the engine's API.
//!
//! Classes that programs see are subclasses of these, in Python: `python/quenchdb`.
//!
//! 1. Every call of the engine that may wait, or read many rows, runs without the interpreter lock.
//!    A lock of this crate is taken only after the interpreter lock is released. It is released
//!    before the interpreter lock is taken again, except for signal handlers in a wait for a row,
//!    which are refused what they would wait for. So no thread with the interpreter lock waits for
//!    another lock.
//! 2. No object borrows from another one: handles of the engine are owned, so that Python may
//!    collect objects in any order.
//! 3. In a forked child every call is an error, and nothing is dropped: the engine sees to both.

mod error;
mod codec;
mod options;
mod database;
mod standby;
mod reader;
mod rows;
mod commit;
mod transaction;
mod changes;

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The module `sys` of the interpreter that has imported this module: its address. Each interpreter
/// has its own.
static INTERPRETER: AtomicUsize = AtomicUsize::new(0);

/// Refuses a second interpreter of the process, which would share classes with the first one.
fn refuse_second_interpreter(py: Python<'_>) -> PyResult<()> {
    let own = py.import("sys")?.as_ptr() as usize;
    match INTERPRETER.compare_exchange(0, own, Ordering::SeqCst, Ordering::SeqCst) {
        Err(first) if first != own => Err(PyImportError::new_err(
            "another interpreter of this process has imported quenchdb, which does not support subinterpreters; \
             use processes",
        )),
        _ => Ok(()),
    }
}

/// The module `quenchdb._native`. It asks free-threaded interpreters to turn the interpreter lock
/// on, which they say in a warning.
#[pymodule(gil_used = true)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    refuse_second_interpreter(module.py())?;
    module.add_class::<database::Database>()?;
    module.add_class::<reader::Table>()?;
    module.add_class::<reader::Reader>()?;
    module.add_class::<reader::Snapshot>()?;
    module.add_class::<rows::Rows>()?;
    module.add_class::<transaction::Transaction>()?;
    module.add_class::<transaction::Savepoint>()?;
    module.add_class::<commit::Commit>()?;
    module.add_class::<changes::Changes>()?;
    module.add_class::<standby::Standby>()?;
    module.add_function(wrap_pyfunction!(database::restore, module)?)?;
    module.add_function(wrap_pyfunction!(database::verify, module)?)?;
    module.add_function(wrap_pyfunction!(database::ask_statistics, module)?)?;
    module.add_function(wrap_pyfunction!(error::_panic, module)?)?;
    module.add("VALUE_BYTES_MAX", quenchdb::VALUE_BYTES_MAX)?;
    Ok(())
}
