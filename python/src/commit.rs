//! Commits that no thread waits for.

use crate::database::Shared;
use crate::error::raise;
use pyo3::prelude::*;
use quenchdb::CommitHandle;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// A thread that waits looks for signals so often.
pub const SLICE: Duration = Duration::from_millis(50);

/// Calls a function of Python once, when the engine wakes it.
struct Callback(Mutex<Option<Py<PyAny>>>);

impl Wake for Callback {
    fn wake(self: Arc<Self>) {
        let callback = self.0.lock().ok().and_then(|mut callback| callback.take());
        // If the interpreter has ended, no event loop waits any more.
        let _ = Python::try_attach(|py| {
            if let Some(callback) = callback
                && let Err(error) = callback.call0(py)
            {
                error.write_unraisable(py, Some(callback.bind(py)));
            }
        });
    }
}

/// A transaction on its way to the device.
#[pyclass(frozen, subclass, module = "quenchdb._native")]
pub struct Commit {
    handle: CommitHandle,
    /// The handle that is polled.
    polled: Mutex<CommitHandle>,
    shared: Arc<Shared>,
}

impl Commit {
    /// Returns the object of a handle.
    pub fn new(handle: CommitHandle, shared: Arc<Shared>) -> Commit {
        Commit { polled: Mutex::new(handle.clone()), handle, shared }
    }
}

#[pymethods]
impl Commit {
    #[getter]
    fn csn(&self) -> u64 {
        self.handle.csn().0
    }

    fn done(&self) -> bool {
        self.handle.is_committed()
    }

    /// Waits until the transaction is durable, at most so many seconds. Returns whether it is.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let end = timeout
            .and_then(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).ok())
            .and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let left = end.map_or(SLICE, |end| end.saturating_duration_since(Instant::now()).min(SLICE));
            if py.detach(|| self.handle.wait_timeout(left)).map_err(raise)? {
                return Ok(true);
            }
            py.check_signals()?;
            if end.is_some_and(|end| end <= Instant::now()) {
                return Ok(false);
            }
        }
    }

    /// Returns whether the transaction is durable. If it is not, `callback` is called once, by
    /// another thread, when that may have changed.
    fn poll(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<bool> {
        let polled = py.detach(|| {
            let waker = Waker::from(Arc::new(Callback(Mutex::new(Some(callback)))));
            let mut handle = self.shared.lock(&self.polled)?;
            match Pin::new(&mut *handle).poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(outcome) => outcome.map(|()| true),
                Poll::Pending => Ok(false),
            }
        });
        polled.map_err(raise)
    }
}
