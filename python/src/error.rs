//! Errors of the engine as exceptions of Python.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use quenchdb::{Error, ErrorKind};

/// The beginning of the engine's error for every call in a forked child.
const FORKED: &str = "this process was forked";

/// The function of `quenchdb._errors` that returns the class of exceptions for a code.
static CLASS_OF: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Returns the exception for an error of the engine, with its code, advice and place.
pub fn raise(error: Error) -> PyErr {
    Python::attach(|py| exception(py, &error).unwrap_or_else(|failed| failed))
}

fn exception(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let class_of = CLASS_OF.get_or_try_init(py, || -> PyResult<Py<PyAny>> {
        Ok(py.import("quenchdb._errors")?.getattr("class_of")?.unbind())
    })?;
    let is_forked = error.kind() == ErrorKind::InvalidArgument && error.message().starts_with(FORKED);
    let code = if is_forked { "forked" } else { error.code() };
    let class = class_of.bind(py).call1((code,))?.cast_into::<PyType>()?;
    let location = error.location().map(ToString::to_string);
    let instance = class.call1((error.to_string(), code, error.advice(), location))?;
    Ok(PyErr::from_value(instance))
}

/// Returns the exception for a wrong argument of the binding's own.
pub fn invalid(what: impl Into<String>, advice: &'static str) -> PyErr {
    raise(Error::invalid(what).with_advice(advice))
}
