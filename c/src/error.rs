//! Errors: numbers for programs, texts for people.

use std::ffi::{CString, c_char, c_int};

/// What a function returns if it fails. Errors are negative; numbers do not change from version to
/// version, and later versions may add some. A callback that fails returns -1000 or less.
#[allow(non_camel_case_types, dead_code)] // of the header
#[repr(C)]
pub enum quench_code {
    /// It worked; for functions with an answer: no.
    QUENCH_OK = 0,
    /// Another transaction changed or holds the same row. Run the whole transaction again.
    QUENCH_CONFLICT = -1,
    /// Transactions waited for one another. Run the whole transaction again.
    QUENCH_DEADLOCK = -2,
    /// Others held a row or a lock for too long. Run the whole transaction again.
    QUENCH_LOCK_TIMEOUT = -3,
    /// The call or a setting is wrong: fix it. Nothing was changed.
    QUENCH_INVALID_ARGUMENT = -4,
    /// The named table or database does not exist.
    QUENCH_NOT_FOUND = -5,
    /// The named table or database exists already.
    QUENCH_ALREADY_EXISTS = -6,
    /// Another user has the database or the table, or a limit on open objects is reached.
    QUENCH_BUSY = -7,
    /// The disk or the log space is full. Free space; reads still work.
    QUENCH_OUT_OF_SPACE = -8,
    /// A limit on memory, or on the size of a transaction, is reached.
    QUENCH_OUT_OF_MEMORY = -9,
    /// The device failed to read or write.
    QUENCH_IO = -10,
    /// An earlier write of the log failed. Reopen the database to recover.
    QUENCH_POISONED = -11,
    /// The commit may or may not survive. Reopen the database and check.
    QUENCH_OUTCOME_UNKNOWN = -12,
    /// Another process has taken the database, which lies in a store of objects.
    QUENCH_FENCED = -13,
    /// The log no longer has what a change feed needs.
    QUENCH_FELL_BEHIND = -14,
    /// Stored bytes are not what was written. Restore from a backup.
    QUENCH_CORRUPTION = -15,
    /// A newer format, or something that this build or machine cannot do.
    QUENCH_UNSUPPORTED = -16,
    /// The operation did not finish in time.
    QUENCH_TIMEOUT = -17,
    /// The process was forked after the database was opened. Open it in the child.
    QUENCH_FORKED = -18,
    /// The library has a bug, and stopped the call. Report it; reopen the database.
    QUENCH_PANIC = -19,
    /// An error that this version of the interface has no number for.
    QUENCH_OTHER = -20,
    /// quench_interrupt ended the wait for a row or a lock. The transaction may continue.
    QUENCH_INTERRUPTED = -21,
}
use quench_code as Code;

/// A callback's own error is this number or less.
pub(crate) const CALLBACK: c_int = -1000;

/// An error: a code, a text, advice, and where it happened.
pub struct Error {
    code: c_int,
    name: CString,
    message: CString,
    advice: CString,
    location: Option<CString>,
}

/// Why a call failed.
pub enum Failure {
    /// The engine, or this layer, refused it.
    Engine(quenchdb::Error),
    /// A callback returned this number, and perhaps an error.
    Callback(c_int, Option<Box<Error>>),
    /// The call panicked.
    Panic(String),
}

impl From<quenchdb::Error> for Failure {
    fn from(error: quenchdb::Error) -> Failure {
        Failure::Engine(error)
    }
}

/// The codes, each at the place of its number in the header.
const CODES: [&str; 22] = [
    "ok",
    "conflict",
    "deadlock",
    "lock-timeout",
    "invalid-argument",
    "not-found",
    "already-exists",
    "busy",
    "out-of-space",
    "out-of-memory",
    "io",
    "poisoned",
    "outcome-unknown",
    "fenced",
    "fell-behind",
    "corruption",
    "unsupported",
    "timeout",
    "forked",
    "panic",
    "other",
    "interrupted",
];

/// Returns a text for C, which ends at the first NUL.
pub fn c_text(text: impl Into<Vec<u8>>) -> CString {
    let mut bytes = text.into();
    bytes.retain(|byte| *byte != 0);
    CString::new(bytes).unwrap_or_default()
}

impl Failure {
    /// Returns the failure of a callback that returned a number: its own, if the header allows it.
    pub fn of_callback(answer: c_int) -> Failure {
        Failure::Callback(answer.min(CALLBACK), None)
    }

    /// Returns the number that the call returns.
    pub fn code(&self) -> c_int {
        match self {
            Failure::Engine(error) => {
                let code = quenchdb_bindings::code(error);
                CODES
                    .iter()
                    .position(|known| *known == code)
                    .map_or(Code::QUENCH_OTHER as c_int, |at| -(at as c_int))
            }
            Failure::Callback(code, _) => *code,
            Failure::Panic(_) => Code::QUENCH_PANIC as c_int,
        }
    }

    /// Returns the object that describes the failure.
    pub fn into_error(self) -> Box<Error> {
        let code = self.code();
        let error = |name: &str, message: String, advice: &str, location: Option<String>| Error {
            code,
            name: c_text(name),
            message: c_text(message),
            advice: c_text(advice),
            location: location.map(c_text),
        };
        Box::new(match self {
            Failure::Callback(_, Some(error)) => return error,
            Failure::Callback(code, None) => {
                let message = format!("the callback returned {code}; see what the callback does");
                error("callback", message, "see what the callback does", None)
            }
            Failure::Panic(message) => {
                error("panic", message, "report this, then close and reopen the database", None)
            }
            Failure::Engine(engine) => {
                let location = engine.location().map(ToString::to_string);
                error(quenchdb_bindings::code(&engine), engine.to_string(), engine.advice(), location)
            }
        })
    }
}

/// Returns the code of an error, which the function returned, too. 0 for NULL.
/// Threads: any, also several at a time; so for all functions of errors.
#[unsafe(no_mangle)]
pub extern "C" fn quench_error_code(error: Option<&Error>) -> c_int {
    error.map_or(0, |error| error.code)
}

/// Returns the code as a word that does not change, such as "lock-timeout". It belongs to the
/// error.
#[unsafe(no_mangle)]
pub extern "C" fn quench_error_name(error: Option<&Error>) -> *const c_char {
    error.map_or(c"ok".as_ptr(), |error| error.name.as_ptr())
}

/// Returns one line: what happened, where, and what to do. It belongs to the error.
#[unsafe(no_mangle)]
pub extern "C" fn quench_error_message(error: Option<&Error>) -> *const c_char {
    error.map_or(c"no error".as_ptr(), |error| error.message.as_ptr())
}

/// Returns what to do. It belongs to the error.
#[unsafe(no_mangle)]
pub extern "C" fn quench_error_advice(error: Option<&Error>) -> *const c_char {
    error.map_or(c"".as_ptr(), |error| error.advice.as_ptr())
}

/// Returns where it happened: a file, a page, a table, a setting. NULL if that is not known.
#[unsafe(no_mangle)]
pub extern "C" fn quench_error_location(error: Option<&Error>) -> *const c_char {
    error.and_then(|error| error.location.as_ref()).map_or(std::ptr::null(), |location| location.as_ptr())
}

/// Frees an error. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn quench_error_free(error: Option<Box<Error>>) {
    drop(error);
}

/// Returns 1 if running the whole transaction again may succeed: a conflict, a deadlock, or a lock
/// timeout. quench_transact does so.
#[unsafe(no_mangle)]
pub extern "C" fn quench_is_retryable(code: c_int) -> c_int {
    c_int::from((Code::QUENCH_LOCK_TIMEOUT as c_int..=Code::QUENCH_CONFLICT as c_int).contains(&code))
}
