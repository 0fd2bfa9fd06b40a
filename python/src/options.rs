//! Settings and options of transactions, from keyword arguments.

use crate::error::raise;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDelta, PyDict, PyFloat, PyInt, PyString};
use quenchdb::{Settings, TransactionOptions};
use quenchdb_bindings::{Refused, Value};
use std::time::Duration;

/// Calls `each` with the name and the value of each keyword argument.
fn keywords(
    given: &Bound<'_, PyDict>, mut each: impl FnMut(&str, Value<'_>) -> Result<(), Refused>,
) -> PyResult<()> {
    let py = given.py();
    for (name, object) in given.iter() {
        let name: String = name.extract()?;
        let wrong = |error: &PyErr| PyTypeError::new_err(format!("{name}: {}", error.value(py)));
        let text: String;
        let value = if object.is_instance_of::<PyBool>() {
            Value::Switch(object.is_truthy()?)
        } else if object.is_instance_of::<PyInt>() {
            Value::Number(object.extract().map_err(|error| wrong(&error))?)
        } else if object.is_instance_of::<PyFloat>() {
            Value::Seconds(object.extract()?)
        } else if object.is_instance_of::<PyDelta>() {
            let negative = |error| wrong(&error);
            Value::Seconds(object.extract::<Duration>().map_err(negative)?.as_secs_f64())
        } else {
            let path = py.import("os")?.call_method1("fspath", (&object,)).map_err(|error| wrong(&error))?;
            text = path.cast::<PyString>().map_err(|error| wrong(&error.into()))?.to_string();
            Value::Name(&text)
        };
        each(&name, value).map_err(|refused| match refused {
            Refused::Kind(what) => PyTypeError::new_err(what),
            Refused::Value(error) => raise(py, &error),
        })?;
    }
    Ok(())
}

/// Returns the settings that keyword arguments set.
///
/// # Errors
/// `TypeError` for an unknown name or a value of another type; `InvalidArgumentError`.
pub fn settings(given: &Bound<'_, PyDict>) -> PyResult<Settings> {
    let mut all = Settings::default();
    keywords(given, |name, value| quenchdb_bindings::set(&mut all, name, value))?;
    Ok(all)
}

/// Returns the options of a transaction that keyword arguments set.
///
/// # Errors
/// As [`settings`].
pub fn transaction(given: Option<&Bound<'_, PyDict>>) -> PyResult<TransactionOptions> {
    let mut all = TransactionOptions::new();
    if let Some(given) = given {
        keywords(given, |name, value| {
            all = quenchdb_bindings::option(all, name, value)?;
            Ok(())
        })?;
    }
    Ok(all)
}
