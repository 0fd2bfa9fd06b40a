//! Commits, and waits that a signal ends.

use crate::database::Shared;
use crate::error::{call, is_main_thread};
use pyo3::prelude::*;
use quenchdb::{CommitHandle, Result};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// A thread that waits looks for signals so often.
const SLICE: Duration = Duration::from_millis(50);

/// Waits at most so many seconds until `next`, which gets a part of the time, returns something.
/// Between its calls signals are handled.
pub fn wait_for<T: Send>(
    py: Python<'_>, timeout: Option<f64>, mut next: impl FnMut(Duration) -> Result<Option<T>> + Send,
) -> PyResult<Option<T>> {
    let end = timeout
        .and_then(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).ok())
        .and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        let left = end.map_or(SLICE, |end| end.saturating_duration_since(Instant::now()).min(SLICE));
        let found = call(py, || next(left))?;
        if found.is_some() {
            return Ok(found);
        }
        py.check_signals()?;
        if end.is_some_and(|end| end <= Instant::now()) {
            return Ok(None);
        }
    }
}

/// Commits. In a store of objects, whose requests are slow, a signal ends the wait of the main
/// thread for durability; the commit continues.
pub fn commit(
    py: Python<'_>, shared: &Shared, is_durable: bool,
    take: impl FnOnce() -> Result<quenchdb::Transaction> + Send,
) -> PyResult<u64> {
    if !(is_durable && shared.is_store && is_main_thread()) {
        return call(py, || Ok(take()?.commit()?.0));
    }
    let mut handle = call(py, || take()?.commit_async())?;
    let alarm = Arc::new(Alarm::default());
    wait_for(py, None, |left| alarm.wait(&mut handle, left))?;
    Ok(handle.csn().0)
}

/// Wakes a thread that waits without causing writes itself: a thread of the engine does.
#[derive(Default)]
struct Alarm {
    rings: Mutex<bool>,
    changed: Condvar,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        *self.rings.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }
}

impl Alarm {
    /// Waits until the commit is durable. Nothing at the end of the time.
    fn wait(self: &Arc<Self>, handle: &mut CommitHandle, left: Duration) -> Result<Option<()>> {
        let waker = Waker::from(self.clone());
        let poll = |handle: &mut CommitHandle| Pin::new(handle).poll(&mut Context::from_waker(&waker));
        if let Poll::Ready(outcome) = poll(handle) {
            return outcome.map(Some);
        }
        let rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(rings, left, |rings| !*rings);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
        match poll(handle) {
            Poll::Ready(outcome) => outcome.map(Some),
            Poll::Pending => Ok(None),
        }
    }
}

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
        let wait = |left| Ok(self.handle.wait_timeout(left)?.then_some(()));
        Ok(wait_for(py, timeout, wait)?.is_some())
    }

    /// Returns whether the transaction is durable. If it is not, `callback` is called once, by
    /// another thread, when that may have changed.
    fn poll(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<bool> {
        call(py, || {
            let waker = Waker::from(Arc::new(Callback(Mutex::new(Some(callback)))));
            let mut handle = self.shared.lock(&self.polled)?;
            match Pin::new(&mut *handle).poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(outcome) => outcome.map(|()| true),
                Poll::Pending => Ok(false),
            }
        })
    }
}
