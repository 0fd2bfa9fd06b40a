//! Standbys: copies that follow the log of another process.

use crate::commit::wait_for;
use crate::database::{Shared, drop_detached};
use crate::error::{call, raise};
use crate::options;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use quenchdb::{Builder, Csn, Error, ErrorKind, Result};
use quenchdb_bindings::reports;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

/// A copy of a database in a store of objects that follows the process that writes.
#[pyclass(frozen, subclass, module = "quenchdb._native")]
pub struct Standby {
    /// Nothing once it was closed or promoted.
    standby: RwLock<Option<quenchdb::Standby>>,
    /// What its snapshots share.
    pub shared: Arc<Shared>,
}

impl Drop for Standby {
    fn drop(&mut self) {
        drop_detached(self.standby.get_mut().unwrap_or_else(PoisonError::into_inner).take());
    }
}

impl Standby {
    /// Calls the standby, without the interpreter lock.
    pub fn with<T: Send>(
        &self, py: Python<'_>, work: impl FnOnce(&quenchdb::Standby) -> Result<T> + Send,
    ) -> PyResult<T> {
        call(py, || self.read(work))
    }

    fn read<T>(&self, work: impl FnOnce(&quenchdb::Standby) -> Result<T>) -> Result<T> {
        let standby = self.standby.try_read();
        // Only its end takes the lock alone: then it has ended.
        let standby = standby.as_ref().ok().and_then(|standby| standby.as_ref());
        work(standby.ok_or_else(has_ended)?)
    }

    /// Ends the standby.
    pub fn take(&self) -> Result<quenchdb::Standby> {
        let standby = match self.standby.try_write() {
            Ok(mut standby) => standby.take(),
            Err(_) => {
                self.shared.check_waiting()?;
                self.standby.write().unwrap_or_else(PoisonError::into_inner).take()
            }
        };
        standby.ok_or_else(has_ended)
    }
}

fn has_ended() -> Error {
    Error::invalid("the standby has ended").with_advice("open it again")
}

#[pymethods]
impl Standby {
    #[new]
    fn new(py: Python<'_>, path: PathBuf, settings: &Bound<'_, PyDict>) -> PyResult<Standby> {
        let builder = Builder::default().settings(options::settings(settings)?);
        let standby = call(py, || builder.open_standby(path))?;
        Ok(Standby { standby: RwLock::new(Some(standby)), shared: Shared::new(None, true) })
    }

    /// New snapshots show every transaction up to this CSN.
    #[getter]
    fn csn(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |standby| Ok(standby.csn().0))
    }

    /// Waits until new snapshots show every transaction up to a CSN, at most so many seconds.
    /// Returns whether they do.
    #[pyo3(signature = (csn, timeout=None))]
    fn wait_for(&self, py: Python<'_>, csn: u64, timeout: Option<f64>) -> PyResult<bool> {
        let mut failure = None;
        let wait = |left| match self.read(|standby| standby.wait_for(Csn(csn), left)) {
            Err(error) if error.kind() == ErrorKind::InvalidArgument => Err(error),
            // The standby tries again, and so does this.
            Err(error) => {
                failure = Some(error);
                Ok(None)
            }
            Ok(is_there) => Ok(is_there.then_some(())),
        };
        let is_there = wait_for(py, timeout, wait)?.is_some();
        match failure {
            Some(failure) if !is_there => Err(raise(py, &failure)),
            _ => Ok(is_there),
        }
    }

    /// Returns how far the standby is, in JSON.
    fn _statistics(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |standby| Ok(reports::standby(&standby.statistics()).to_string()))
    }

    /// Ends the standby. Its snapshots can still be read.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        call(py, || {
            drop(self.take());
            Ok(())
        })
    }

    /// True after ``close`` and ``promote``.
    #[getter]
    fn closed(&self) -> bool {
        self.read(|_| Ok(())).is_err()
    }
}
