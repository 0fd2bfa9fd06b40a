//! Did a write or flush fail? Then nothing is acknowledged any more (I11).
//!
//! After a failed flush it is unknown which bytes the device holds, and a second flush proves
//! nothing: the kernel may have dropped the pages and reported the error once. So the first failure
//! is kept, the database stops committing, and reopening finds out what is durable.

use crate::base::planted::{self, Bug};
use crate::base::{Csn, Error, ErrorKind, LogId, Result};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;

/// The first failure, if there was one.
#[derive(Debug)]
pub struct Poison {
    /// Raised after `cause` was stored, never lowered. Written by the thread that meets the
    /// failure.
    raised: AtomicBool,
    cause: OnceLock<Error>,
    /// No record of this log with this CSN or a higher one will ever be durable.
    unwritten: Mutex<Vec<(LogId, Csn)>>,
    /// A thread panicked inside the engine. Never lowered.
    panicked: AtomicBool,
    /// The failure is in the program's log.
    reported: AtomicBool,
}

impl Poison {
    pub fn new() -> Poison {
        let no = || AtomicBool::new(false);
        Poison {
            raised: no(),
            cause: OnceLock::new(),
            unwritten: Mutex::default(),
            panicked: no(),
            reported: no(),
        }
    }

    /// Keeps `error` if it is the first. From here on nothing is acknowledged.
    pub fn raise(&self, error: Error) {
        let _ = self.cause.set(error);
        self.raised.store(true, Ordering::SeqCst);
        debug_assert!(self.cause.get().is_some(), "who finds the poison raised finds its cause");
    }

    /// Keeps `error` if it is the first. It says that the device refused the block of `log` that
    /// begins with the record of `csn`: this record and all later ones of the log are not durable
    /// and never will be, because a log ends at its first gap.
    pub fn raise_unwritten(&self, error: Error, log: LogId, csn: Csn) {
        self.unwritten.lock().push((log, csn));
        self.raise(error);
    }

    /// Returns true for the first caller after the failure, which reports it.
    pub fn take_unreported(&self) -> bool {
        !self.reported.swap(true, Ordering::SeqCst)
    }

    /// A thread panicked inside the engine; [`Poison::raise`] follows.
    pub fn note_panic(&self) {
        self.panicked.store(true, Ordering::SeqCst);
    }

    /// Fails after a panic inside the engine, for a caller that makes memory durable.
    pub fn check_whole(&self) -> Result<()> {
        if self.panicked.load(Ordering::SeqCst) { Err(self.error(ErrorKind::Poisoned)) } else { Ok(()) }
    }

    pub fn is_raised(&self) -> bool {
        self.raised.load(Ordering::SeqCst)
    }

    /// For a call that has not changed anything yet.
    pub fn check(&self) -> Result<()> {
        let refused = self.is_raised() && !planted::is(Bug::CommitsAfterFailure);
        if refused { Err(self.error(ErrorKind::Poisoned)) } else { Ok(()) }
    }

    /// The first failure as an error of `kind`, with its place. If another process has taken the
    /// database, a call that has not changed anything yet says so by its kind.
    pub fn error(&self, kind: ErrorKind) -> Error {
        let Some(cause) = self.cause.get() else {
            return Error::new(kind, "a write or flush failed");
        };
        let is_taken = cause.kind() == ErrorKind::Fenced && kind == ErrorKind::Poisoned;
        let kind = if is_taken { ErrorKind::Fenced } else { kind };
        Error::after(kind, "a write or flush failed", cause)
    }

    /// The first failure as the error of a commit whose record is not known to be durable: `Io` if
    /// the record certainly is not.
    pub fn outcome(&self, log: LogId, csn: Csn) -> Error {
        let is_known = self.unwritten.lock().iter().any(|(there, first)| *there == log && *first <= csn);
        self.error(if is_known { ErrorKind::Io } else { ErrorKind::OutcomeUnknown })
    }

    /// The first failure itself.
    #[cfg(all(test, not(any(loom, feature = "shuttle"))))]
    pub fn cause(&self) -> Option<Error> {
        self.cause.get().map(Error::duplicate)
    }
}

/// Returns the error of a panic in the thread or task named `role`.
pub fn panic_of(role: &str) -> Error {
    Error::new(ErrorKind::Poisoned, format!("{role} panicked inside the engine"))
        .with_advice("report this bug, and reopen the database to recover")
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
