//! Keys and values: from Python's objects to bytes, and back.

use crate::error::invalid;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView, PyString, PyType};

/// How the keys or the values of a table are written.
pub enum Codec {
    /// As they are.
    Bytes,
    /// As UTF-8.
    Text,
    /// By two functions of the caller.
    Custom {
        /// From an object to bytes.
        encode: Py<PyAny>,
        /// From bytes to an object.
        decode: Py<PyAny>,
    },
}

/// The bytes of an argument, borrowed from its object where that cannot change.
pub enum Buffer<'py> {
    /// An object that is immutable.
    Bytes(Bound<'py, PyBytes>),
    /// A text, whose UTF-8 the object keeps.
    Text(Bound<'py, PyString>),
    /// A copy of an object that may change while the interpreter lock is released.
    Copied(Vec<u8>),
}

impl Buffer<'_> {
    /// Returns the bytes.
    ///
    /// # Errors
    /// `UnicodeEncodeError` for a text with surrogates.
    pub fn bytes(&self) -> PyResult<&[u8]> {
        match self {
            Buffer::Bytes(bytes) => Ok(bytes.as_bytes()),
            Buffer::Text(text) => text.to_str().map(str::as_bytes),
            Buffer::Copied(bytes) => Ok(bytes),
        }
    }
}

/// Returns the bytes of an object with a buffer: `bytes`, `bytearray`, `memoryview`, an array.
pub fn buffer<'py>(object: &Bound<'py, PyAny>) -> PyResult<Buffer<'py>> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(Buffer::Bytes(bytes.clone()));
    }
    if let Ok(bytes) = object.cast::<PyByteArray>() {
        return Ok(Buffer::Copied(bytes.to_vec()));
    }
    match PyMemoryView::from(object) {
        Ok(view) => {
            let copy = view.call_method0("tobytes")?.cast_into::<PyBytes>()?;
            Ok(Buffer::Bytes(copy))
        }
        Err(_) => {
            let what = format!(
                "a key or value is bytes, bytearray, memoryview or another buffer, not {}; for str open the \
                 table with key=str or value=str",
                object.get_type().name()?
            );
            Err(PyTypeError::new_err(what))
        }
    }
}

impl Codec {
    /// Returns the codec that an argument `key=` or `value=` names.
    ///
    /// # Errors
    /// `TypeError`.
    pub fn new(object: &Bound<'_, PyAny>) -> PyResult<Codec> {
        let py = object.py();
        if object.is(PyType::new::<PyBytes>(py)) {
            return Ok(Codec::Bytes);
        }
        if object.is(PyType::new::<PyString>(py)) {
            return Ok(Codec::Text);
        }
        match (object.getattr("encode"), object.getattr("decode")) {
            (Ok(encode), Ok(decode)) if !object.is_instance_of::<PyType>() => {
                Ok(Codec::Custom { encode: encode.unbind(), decode: decode.unbind() })
            }
            _ => Err(PyTypeError::new_err(
                "a codec is bytes, str, or an object with the methods encode and decode",
            )),
        }
    }

    /// Returns the bytes that stand for an object.
    ///
    /// # Errors
    /// `TypeError` for an object of another type; those of the codec.
    pub fn encode<'py>(&self, object: &Bound<'py, PyAny>) -> PyResult<Buffer<'py>> {
        match self {
            Codec::Bytes => buffer(object),
            Codec::Text => match object.cast::<PyString>() {
                Ok(text) => Ok(Buffer::Text(text.clone())),
                Err(_) => Err(PyTypeError::new_err(format!(
                    "the table was opened for str, and this is {}",
                    object.get_type().name()?
                ))),
            },
            Codec::Custom { encode, .. } => buffer(&encode.bind(object.py()).call1((object,))?),
        }
    }

    /// Returns the object that bytes stand for.
    ///
    /// # Errors
    /// `InvalidArgumentError` for bytes that are no text; those of the codec.
    pub fn decode<'py>(&self, py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Codec::Bytes => Ok(PyBytes::new(py, bytes).into_any()),
            Codec::Text => match std::str::from_utf8(bytes) {
                Ok(text) => Ok(PyString::new(py, text).into_any()),
                Err(error) => Err(invalid(
                    py,
                    format!("the table was opened for str, and a row is no UTF-8: {error}"),
                    "open the table for bytes",
                )),
            },
            Codec::Custom { decode, .. } => decode.bind(py).call1((PyBytes::new(py, bytes),)),
        }
    }
}
