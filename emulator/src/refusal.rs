//! Why the store refuses a request, as S3 says it.

use quenchdb::internals::device::objects::{Failure, FailureKind};
use s3s::{S3Error, S3ErrorCode};

/// A code of S3 with its HTTP status, and the sentence beside it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Refusal {
    pub code: &'static str,
    pub status: u16,
    pub message: String,
}

impl Refusal {
    pub fn new(code: &'static str, status: u16, message: impl Into<String>) -> Refusal {
        Refusal { code, status, message: message.into() }
    }

    pub fn no_bucket(bucket: &str) -> Refusal {
        Refusal::new("NoSuchBucket", 404, format!("there is no bucket {bucket}"))
    }

    pub fn no_key(key: &str) -> Refusal {
        Refusal::new("NoSuchKey", 404, format!("there is no object {key}"))
    }

    /// A condition of a read. Those of writes are the bucket's.
    pub fn precondition(what: &str) -> Refusal {
        Refusal::new("PreconditionFailed", 412, format!("the condition {what} does not hold"))
    }

    pub fn not_implemented(what: &str) -> Refusal {
        Refusal::new("NotImplemented", 501, what)
    }

    pub fn internal(what: impl std::fmt::Display) -> Refusal {
        Refusal::new("InternalError", 500, what.to_string())
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Refusal {
        let (code, status) = match failure.kind {
            FailureKind::Refused => ("PreconditionFailed", 412),
            FailureKind::Absent => ("NoSuchKey", 404),
            FailureKind::Full => ("TooManyParts", 400),
            FailureKind::Again => ("OperationAborted", 409),
            FailureKind::Throttled => ("SlowDown", 503),
            FailureKind::Unknown => ("InternalError", 500),
            FailureKind::Forbidden => ("AccessDenied", 403),
            FailureKind::Denied => ("NotImplemented", 501),
        };
        Refusal::new(code, status, failure.what)
    }
}

impl From<Refusal> for S3Error {
    fn from(refusal: Refusal) -> S3Error {
        let code = S3ErrorCode::from_bytes(refusal.code.as_bytes()).unwrap_or(S3ErrorCode::InternalError);
        let mut error = S3Error::with_message(code, refusal.message);
        if let Ok(status) = hyper::StatusCode::from_u16(refusal.status) {
            error.set_status_code(status);
        }
        error
    }
}
