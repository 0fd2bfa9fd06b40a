//! One public error: a kind that says what to do, a sentence that says what happened, a place, and
//! advice.
//!
//! Modules build errors with the constructor of the kind they mean and attach the place with
//! [`Error::at`]. What a device or a caller hands us is never a reason to panic (invariant I12); it
//! becomes one of these.

use super::ids::{Csn, LogId, PageId, SegmentId};
use std::borrow::Cow;
use std::fmt;

/// The result of every fallible operation of the engine.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What the caller can do about an error. The list is short on purpose; match on it, not on texts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Another transaction changed or holds the same row. Run the whole transaction again.
    Conflict,
    /// Transactions waited for one another in a cycle, and this one was chosen to abort. Run the
    /// whole transaction again.
    Deadlock,
    /// Other transactions held a row or a lock for too long, or the transaction was not to wait.
    /// Run the whole transaction again.
    LockTimeout,
    /// The call or a setting is wrong: fix it. Nothing was changed.
    InvalidArgument,
    /// The named table, row set or database does not exist.
    NotFound,
    /// The named table or database exists already.
    AlreadyExists,
    /// Another user has the database or the table, or a limit on open objects is reached. Try again
    /// later.
    Busy,
    /// The disk or the log space is full. Free space; reads still work.
    OutOfSpace,
    /// A limit of the database is reached, not of the disk: on memory (pages, versions) or on one
    /// transaction (its size, the log kept for it). End long transactions or raise the limit.
    OutOfMemory,
    /// The device failed to read or write, a reader passed to a call failed, or the system refused
    /// a thread.
    Io,
    /// An earlier write or flush of the log failed, or the engine panicked: commits fail, reads of
    /// committed data still work. Reopen to recover. From a checkpoint, a backup or a compaction it
    /// may also mean that only these fail, while commits still work. From a reader of a database in
    /// a store of objects: what it reads was deleted, because its pin ended.
    Poisoned,
    /// The commit may or may not survive. Reopen and check.
    OutcomeUnknown,
    /// Another process has opened the database, which lies in a store of objects, for writing. This
    /// process cannot write any more, and what it reads may be out of date.
    Fenced,
    /// A change feed needs transactions that the log no longer has. Read the tables from a
    /// snapshot, and begin the feed at its CSN.
    FellBehind,
    /// Bytes on storage are not what was written there. Restore from a backup.
    Corruption,
    /// A newer format, or something this build or this machine cannot do.
    Unsupported,
    /// The operation did not finish in the caller's time. No public call returns it now:
    /// `CommitHandle::wait_timeout` reports a timeout in its result.
    Timeout,
    /// The function of `Transaction::interrupt_with` ended the wait for a row or a lock. The call
    /// has changed nothing, and the transaction may continue.
    Interrupted,
}

impl ErrorKind {
    /// Returns the kind as a short word for programs and logs, such as `lock-timeout`. The words do
    /// not change from version to version.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            ErrorKind::Conflict => "conflict",
            ErrorKind::Deadlock => "deadlock",
            ErrorKind::LockTimeout => "lock-timeout",
            ErrorKind::InvalidArgument => "invalid-argument",
            ErrorKind::NotFound => "not-found",
            ErrorKind::AlreadyExists => "already-exists",
            ErrorKind::Busy => "busy",
            ErrorKind::OutOfSpace => "out-of-space",
            ErrorKind::OutOfMemory => "out-of-memory",
            ErrorKind::Io => "io",
            ErrorKind::Poisoned => "poisoned",
            ErrorKind::OutcomeUnknown => "outcome-unknown",
            ErrorKind::Fenced => "fenced",
            ErrorKind::FellBehind => "fell-behind",
            ErrorKind::Corruption => "corruption",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::Timeout => "timeout",
            ErrorKind::Interrupted => "interrupted",
        }
    }

    /// Returns what to do, in one sentence.
    #[must_use]
    pub fn advice(self) -> &'static str {
        match self {
            ErrorKind::Conflict | ErrorKind::Deadlock | ErrorKind::LockTimeout => "run the transaction again",
            ErrorKind::InvalidArgument => "fix the call or the setting",
            ErrorKind::NotFound => "check the name",
            ErrorKind::AlreadyExists => "open it, or choose another name",
            ErrorKind::Busy => "try again when it is free",
            ErrorKind::OutOfSpace => "free space; nothing acknowledged is lost",
            ErrorKind::OutOfMemory => "end long transactions, make them smaller, or raise the bound",
            ErrorKind::Io => "check the device",
            ErrorKind::Poisoned => "close and reopen the database to recover",
            ErrorKind::OutcomeUnknown => "reopen the database and check whether the transaction is there",
            ErrorKind::Fenced => "close this handle; to take the database back, open it again",
            ErrorKind::FellBehind => "read the tables again, and begin the feed behind that",
            ErrorKind::Corruption => "restore from a backup",
            ErrorKind::Unsupported => "use a build and a machine that support it",
            ErrorKind::Timeout => "wait again or give more time",
            ErrorKind::Interrupted => "continue the transaction, or abort it",
        }
    }
}

/// Where something went wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Location {
    /// A byte of a file of the database directory.
    File {
        /// Path relative to the database directory.
        path: String,
        /// Byte offset in it.
        offset: u64,
    },
    /// A byte of a log segment.
    Segment {
        /// The log.
        log: LogId,
        /// The segment.
        segment: SegmentId,
        /// Byte offset in the segment's file.
        offset: u64,
    },
    /// A page, and the block of the page store it was read from.
    Page {
        /// The page.
        page: PageId,
        /// Byte offset in the page store.
        offset: u64,
    },
    /// A transaction.
    Transaction(Csn),
    /// A setting, by name.
    Setting(&'static str),
    /// A table, by name.
    Table(String),
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::File { path, offset } => write!(f, "{path}, byte {offset}"),
            Location::Segment { log, segment, offset } => {
                write!(f, "log {log}, segment {segment}, byte {offset}")
            }
            Location::Page { page, offset } => write!(f, "page {page}, byte {offset} of the page store"),
            Location::Transaction(csn) => write!(f, "transaction with CSN {csn}"),
            Location::Setting(name) => write!(f, "setting `{name}`"),
            Location::Table(name) => write!(f, "table `{name}`"),
        }
    }
}

/// An error of the engine: see [`ErrorKind`] for what to do about it.
///
/// `{}` and `{:?}` write one line: what happened, where, and what to do. So a `main` that returns
/// [`Result`] prints a line for people. `{:#?}` writes the parts.
pub struct Error {
    inner: Box<Inner>,
}

struct Inner {
    kind: ErrorKind,
    what: String,
    location: Option<Location>,
    source: Option<std::io::Error>,
    /// What to do, if that is more special than the advice of the kind.
    advice: Option<Cow<'static, str>>,
    /// The system refused this user access.
    denied: bool,
}

/// What to do if the system refuses access.
const DENIED_ADVICE: &str = "let this user read and write the files of the database, or run as their owner";

/// Returns what to do about an error of the system that says nothing about the device.
fn special_advice(source: &std::io::Error) -> Option<&'static str> {
    use std::io::ErrorKind as Os;
    /// `ENFILE`, `EMFILE`.
    const TOO_MANY_FILES: [i32; 2] = [23, 24];
    match source.kind() {
        Os::PermissionDenied => Some(DENIED_ADVICE),
        Os::FileTooLarge => {
            Some("raise the limit of the length of files (`ulimit -f`); nothing acknowledged is lost")
        }
        Os::ReadOnlyFilesystem => Some("mount the file system for writing, or open the database read-only"),
        _ if source.raw_os_error().is_some_and(|code| TOO_MANY_FILES.contains(&code)) => {
            Some("raise the limit of open files (`ulimit -n`)")
        }
        _ => None,
    }
}

impl Error {
    /// Returns an error of `kind`; `what` says what happened, without advice and place.
    #[must_use]
    pub fn new(kind: ErrorKind, what: impl Into<String>) -> Error {
        let what = what.into();
        let inner = Inner { kind, what, location: None, source: None, advice: None, denied: false };
        Error { inner: Box::new(inner) }
    }

    /// The call or a setting is wrong.
    #[must_use]
    pub fn invalid(what: impl Into<String>) -> Error {
        Error::new(ErrorKind::InvalidArgument, what)
    }

    /// Stored bytes are not what was written.
    #[must_use]
    pub fn corruption(what: impl Into<String>) -> Error {
        Error::new(ErrorKind::Corruption, what)
    }

    /// A device call failed. A full disk (`ENOSPC`, `EDQUOT`) becomes [`ErrorKind::OutOfSpace`]. So
    /// does a limit of the length of files (`EFBIG`).
    #[must_use]
    pub fn io(what: impl Into<String>, source: std::io::Error) -> Error {
        use std::io::ErrorKind as Os;
        let kind = match source.kind() {
            Os::StorageFull | Os::QuotaExceeded | Os::FileTooLarge => ErrorKind::OutOfSpace,
            Os::NotFound => ErrorKind::NotFound,
            _ => ErrorKind::Io,
        };
        let mut error = Error::new(kind, what);
        error.inner.denied = source.kind() == Os::PermissionDenied;
        error.inner.advice = special_advice(&source).map(Into::into);
        error.inner.source = Some(source);
        error
    }

    /// Returns the error with its place. An inner place wins over an outer one.
    #[must_use]
    pub fn at(mut self, location: Location) -> Error {
        self.inner.location.get_or_insert(location);
        self
    }

    /// Returns the error with a prefix that names the failed object: "the target: cannot write".
    #[must_use]
    pub(crate) fn of(mut self, whose: &str) -> Error {
        self.inner.what = format!("{whose}: {}", self.inner.what);
        self
    }

    /// Returns the error with another kind: a failed flush becomes "outcome unknown" for a waiter.
    /// Advice that was given for the kind before is dropped.
    #[must_use]
    pub fn with_kind(mut self, kind: ErrorKind) -> Error {
        if self.inner.kind != kind {
            self.inner.advice = None;
        }
        self.inner.kind = kind;
        self
    }

    /// Returns the error with this advice instead of the general advice of its kind: the rest of a
    /// sentence that says what to do, such as "open it again".
    #[must_use]
    pub fn with_advice(mut self, advice: impl Into<Cow<'static, str>>) -> Error {
        self.inner.advice = Some(advice.into());
        self
    }

    /// What the caller can do.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// Returns [`ErrorKind::code`] of the kind: a short word for programs and logs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.inner.kind.code()
    }

    /// Returns what to do, in one sentence: the advice of [`Error::with_advice`] if there is one,
    /// otherwise [`ErrorKind::advice`]. Never both.
    #[must_use]
    pub fn advice(&self) -> &str {
        self.inner.advice.as_deref().unwrap_or_else(|| self.inner.kind.advice())
    }

    /// Returns whether the system refused this user access.
    pub(crate) fn is_denied(&self) -> bool {
        self.inner.denied
    }

    /// Returns the error as text without advice: what happened, the system's reason, and the place.
    pub(crate) fn without_advice(&self) -> String {
        let source = self.inner.source.as_ref().map_or(String::new(), |source| format!(": {source}"));
        let place = self.inner.location.as_ref().map_or(String::new(), |place| format!(" (at {place})"));
        format!("{}{source}{place}", self.inner.what)
    }

    /// Returns the error as a problem of the report of `verify`, which ends with advice of its own:
    /// without the general advice of the kind, without that on access, which the report gives, and
    /// without advice to ask for such a report.
    pub(crate) fn as_problem(&self) -> String {
        match &self.inner.advice {
            Some(advice) if !self.inner.denied && !advice.contains("`quench verify`") => {
                format!("{}: {advice}", self.without_advice())
            }
            _ => self.without_advice(),
        }
    }

    /// What happened, without the place and without advice.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.inner.what
    }

    /// Where it happened, if that is known.
    #[must_use]
    pub fn location(&self) -> Option<&Location> {
        self.inner.location.as_ref()
    }

    /// Returns whether running the same transaction again may succeed: [`ErrorKind::Conflict`],
    /// [`ErrorKind::Deadlock`] and [`ErrorKind::LockTimeout`].
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self.inner.kind, ErrorKind::Conflict | ErrorKind::Deadlock | ErrorKind::LockTimeout)
    }

    /// Returns an error of `kind` caused by `earlier`, with the text and the place of `earlier`.
    #[must_use]
    pub fn after(kind: ErrorKind, what: &str, earlier: &Error) -> Error {
        let error = Error::new(kind, format!("{what}: {}", earlier.duplicate().inner.what));
        match &earlier.inner.location {
            Some(location) => error.at(location.clone()),
            None => error,
        }
    }

    /// Returns a copy without the operating system's error, for many waiters of one failure.
    #[must_use]
    pub fn duplicate(&self) -> Error {
        let what = match &self.inner.source {
            Some(source) => format!("{}: {source}", self.inner.what),
            None => self.inner.what.clone(),
        };
        Error {
            inner: Box::new(Inner {
                kind: self.inner.kind,
                what,
                location: self.inner.location.clone(),
                source: None,
                advice: self.inner.advice.clone(),
                denied: self.inner.denied,
            }),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.without_advice(), self.advice())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            return fmt::Display::fmt(self, f);
        }
        let inner = &*self.inner;
        f.debug_struct("Error")
            .field("kind", &inner.kind)
            .field("what", &inner.what)
            .field("location", &inner.location)
            .field("advice", &self.advice())
            .field("source", &inner.source)
            .finish()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.inner.source.as_ref().map(|e| e as _)
    }
}

/// Wraps the error, which [`std::io::Error::downcast`] returns again.
impl From<Error> for std::io::Error {
    fn from(error: Error) -> std::io::Error {
        use std::io::ErrorKind as Os;
        let kind = match error.kind() {
            ErrorKind::Deadlock => Os::Deadlock,
            ErrorKind::LockTimeout | ErrorKind::Timeout => Os::TimedOut,
            ErrorKind::InvalidArgument => Os::InvalidInput,
            ErrorKind::NotFound => Os::NotFound,
            ErrorKind::AlreadyExists => Os::AlreadyExists,
            ErrorKind::Busy => Os::ResourceBusy,
            ErrorKind::OutOfSpace => Os::StorageFull,
            ErrorKind::OutOfMemory => Os::OutOfMemory,
            ErrorKind::Corruption => Os::InvalidData,
            ErrorKind::Unsupported => Os::Unsupported,
            ErrorKind::Io => error.inner.source.as_ref().map_or(Os::Other, std::io::Error::kind),
            ErrorKind::FellBehind => Os::NotFound,
            // Not `Interrupted`, after which readers and writers of the standard library try again.
            ErrorKind::Conflict
            | ErrorKind::Poisoned
            | ErrorKind::OutcomeUnknown
            | ErrorKind::Fenced
            | ErrorKind::Interrupted => Os::Other,
        };
        std::io::Error::new(kind, error)
    }
}

#[cfg(test)]
mod tests;
