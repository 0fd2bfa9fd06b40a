//! Did a write or flush fail? Then nothing is acknowledged any more (I11).
//!
//! After a failed flush it is unknown which bytes the device holds, and a second flush proves
//! nothing: the kernel may have dropped the pages and reported the error once. So the first failure
//! is kept, the database stops committing, and reopening finds out what is durable.

use crate::base::planted::{self, Bug};
use crate::base::{Error, ErrorKind, Result};
use crate::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;

/// The first failure, if there was one.
#[derive(Debug)]
pub(super) struct Poison {
    /// Raised after `cause` was stored, never lowered. Written by the thread that meets the
    /// failure.
    raised: AtomicBool,
    cause: OnceLock<Error>,
    /// A thread panicked inside the engine. Never lowered.
    panicked: AtomicBool,
    /// The failure is in the program's log.
    reported: AtomicBool,
}

impl Poison {
    pub(super) fn new() -> Poison {
        let no = || AtomicBool::new(false);
        Poison { raised: no(), cause: OnceLock::new(), panicked: no(), reported: no() }
    }

    /// Keeps `error` if it is the first. From here on nothing is acknowledged.
    pub(super) fn raise(&self, error: Error) {
        let _ = self.cause.set(error);
        self.raised.store(true, Ordering::SeqCst);
    }

    /// Returns true for the first caller after the failure, which reports it.
    pub(super) fn take_unreported(&self) -> bool {
        !self.reported.swap(true, Ordering::SeqCst)
    }

    /// A thread panicked inside the engine; [`Poison::raise`] follows.
    pub(super) fn note_panic(&self) {
        self.panicked.store(true, Ordering::SeqCst);
    }

    /// Fails after a panic inside the engine, for a caller that makes memory durable.
    pub(super) fn check_whole(&self) -> Result<()> {
        if self.panicked.load(Ordering::SeqCst) { Err(self.error(ErrorKind::Poisoned)) } else { Ok(()) }
    }

    pub(super) fn is_raised(&self) -> bool {
        self.raised.load(Ordering::SeqCst)
    }

    /// For a call that has not changed anything yet.
    pub(super) fn check(&self) -> Result<()> {
        let refused = self.is_raised() && !planted::is(Bug::CommitsAfterFailure);
        if refused { Err(self.error(ErrorKind::Poisoned)) } else { Ok(()) }
    }

    /// The first failure as an error of `kind`, with its place. If another process has taken the
    /// database, a call that has not changed anything yet says so by its kind.
    pub(super) fn error(&self, kind: ErrorKind) -> Error {
        let Some(cause) = self.cause.get() else {
            return Error::new(kind, "a write or flush failed");
        };
        let is_taken = cause.kind() == ErrorKind::Fenced && kind == ErrorKind::Poisoned;
        let kind = if is_taken { ErrorKind::Fenced } else { kind };
        Error::after(kind, "a write or flush failed", cause)
    }

    /// The first failure itself.
    #[cfg(all(test, not(any(loom, feature = "shuttle"))))]
    pub(super) fn cause(&self) -> Option<Error> {
        self.cause.get().map(Error::duplicate)
    }
}

/// Returns the error of a panic in the thread or task named `role`.
pub(super) fn panic_of(role: &str) -> Error {
    Error::new(ErrorKind::Poisoned, format!("{role} panicked inside the engine: this is a bug"))
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
