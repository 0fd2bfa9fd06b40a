//! Errors of the engine as exceptions of Python, and how the engine is called.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use quenchdb::{Error, ErrorKind, Result};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The function of `quenchdb._errors` that returns the class of exceptions for a code.
static CLASS_OF: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

thread_local! {
    /// What a signal handler raised in a wait of the thread.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
    /// Signal handlers run in a wait of the thread.
    static IN_HANDLERS: Cell<bool> = const { Cell::new(false) };
}

/// Calls the engine without the interpreter lock. An error or a panic becomes an exception.
pub fn call<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
    match py.detach(|| catch_unwind(AssertUnwindSafe(work))) {
        Ok(done) => done.map_err(|error| raise(py, &error)),
        Err(payload) => {
            let text = quenchdb_bindings::panic_text(&*payload);
            // Its drop could panic, too.
            std::mem::forget(payload);
            Err(exception(py, &text, "panic", "report this, then close and reopen the database", None))
        }
    }
}

/// Returns the exception for an error of the engine, with its code, advice and place; that of a
/// signal handler which ended a wait.
pub fn raise(py: Python<'_>, error: &Error) -> PyErr {
    let raised = (error.kind() == ErrorKind::Interrupted).then(|| RAISED.take()).flatten();
    raised.unwrap_or_else(|| {
        let location = error.location().map(ToString::to_string);
        exception(py, &error.to_string(), quenchdb_bindings::code(error), error.advice(), location)
    })
}

fn exception(py: Python<'_>, text: &str, code: &str, advice: &str, location: Option<String>) -> PyErr {
    let made = || -> PyResult<PyErr> {
        let class_of = CLASS_OF.get_or_try_init(py, || -> PyResult<Py<PyAny>> {
            Ok(py.import("quenchdb._errors")?.getattr("class_of")?.unbind())
        })?;
        let class = class_of.bind(py).call1((code,))?.cast_into::<PyType>()?;
        Ok(PyErr::from_value(class.call1((text, code, advice, location))?))
    };
    made().unwrap_or_else(|failed| failed)
}

/// Returns the exception for a wrong argument of the binding's own.
pub fn invalid(py: Python<'_>, what: impl Into<String>, advice: &'static str) -> PyErr {
    raise(py, &Error::invalid(what).with_advice(advice))
}

/// Runs the handlers of signals that have come, in a wait of a transaction. Returns true if one of
/// them raised an exception, which ends the wait. Only the main thread runs handlers.
pub fn is_interrupted() -> bool {
    if !is_main_thread() {
        return false;
    }
    let in_handlers = IN_HANDLERS.replace(true);
    // If the interpreter has ended, there are no handlers.
    let raised = Python::try_attach(|py| py.check_signals().err()).flatten();
    IN_HANDLERS.set(in_handlers);
    let is_raised = raised.is_some();
    RAISED.set(raised);
    is_raised
}

/// Returns whether the thread is the one that runs signal handlers.
pub fn is_main_thread() -> bool {
    rustix::thread::gettid() == rustix::process::getpid()
}

/// Refuses to wait for a lock of the binding in a signal handler, whose thread may have it.
pub fn check_handlers() -> Result<()> {
    if !IN_HANDLERS.get() {
        return Ok(());
    }
    let error = Error::invalid("a signal handler cannot use a transaction in whose wait it runs");
    Err(error.with_advice("use another transaction, or raise an exception"))
}

/// Panics as a bug of the engine would, for a test of what becomes of it.
#[pyfunction]
pub fn _panic(py: Python<'_>, text: String) -> PyResult<()> {
    call(py, || panic!("{text}"))
}
