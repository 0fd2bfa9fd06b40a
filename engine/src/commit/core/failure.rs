//! The end of all commits: a write or flush failed, or a thread panicked inside the engine.

use super::durability::Durability;
use super::environment::Environment;
use super::flushers::Flushers;
use super::poison::panic_of;
use super::waiters::Wakers;
use crate::base::{Csn, Error, ErrorKind, LogId, Result};
use crate::device::File;
use std::sync::Arc;

/// Raises the poison and wakes every thread, so that each finds it.
pub struct Failure {
    pub(in crate::commit) environment: Arc<Environment>,
    pub(in crate::commit) durability: Arc<Durability>,
    pub(in crate::commit) flushers: Arc<Flushers>,
    pub(in crate::commit) wakers: Arc<Wakers>,
}

impl Failure {
    /// A write or flush failed: from here on nothing is acknowledged.
    pub(in crate::commit) fn fail(&self, error: Error) {
        self.environment.poison.raise(error);
        self.stop();
    }

    /// The write to `file` of a block of `log` that begins with the record of `csn` failed.
    pub(in crate::commit) fn fail_write(&self, file: &dyn File, log: LogId, csn: Csn, error: Error) {
        match file.knows_outcome() && error.kind() == ErrorKind::Io {
            true => self.environment.poison.raise_unwritten(error, log, csn),
            false => self.environment.poison.raise(error),
        }
        self.stop();
    }

    fn stop(&self) {
        let poison = &self.environment.poison;
        self.wake_all();
        if poison.take_unreported() {
            tracing::error!(cause = %poison.error(ErrorKind::Poisoned), "commits stop");
        }
    }

    /// Stops commits, because the thread or task named `role` panicked inside the engine.
    #[cold]
    pub fn panicked(&self, role: &str) {
        self.environment.poison.note_panic();
        self.fail(panic_of(role));
    }

    /// Refuses to make memory durable after a panic, which may have left something half done.
    ///
    /// # Errors
    /// `Poisoned`.
    pub fn check_whole(&self) -> Result<()> {
        self.environment.poison.check_whole()
    }

    /// Fails if no transaction can commit any more.
    ///
    /// # Errors
    /// `Poisoned`.
    pub fn check_commits(&self) -> Result<()> {
        self.environment.poison.check()
    }

    /// Wakes every thread and future that waits.
    pub(in crate::commit) fn wake_all(&self) {
        for log in &self.durability.logs {
            log.event.notify_all();
            log.full.notify_all();
        }
        self.environment.progress.notify_all();
        self.environment.space.notify_all();
        self.flushers.wake_all();
        self.wakers.wake(|_| true);
    }

    /// Returns a guard for the calling thread's work inside the engine. If a panic drops the guard,
    /// commits stop, and the error names `role`.
    #[inline]
    pub fn guard(&self, role: &'static str) -> PoisonOnPanic<'_> {
        PoisonOnPanic { failure: self, role, unwinding: std::thread::panicking() }
    }
}

/// Stops commits if it is dropped by a panic that began after it was made: the panic left something
/// half done. A panic of the user's own code does not count.
#[must_use]
pub struct PoisonOnPanic<'a> {
    failure: &'a Failure,
    role: &'static str,
    unwinding: bool,
}

impl Drop for PoisonOnPanic<'_> {
    #[inline]
    fn drop(&mut self) {
        if std::thread::panicking() && !self.unwinding {
            self.failure.panicked(self.role);
        }
    }
}
