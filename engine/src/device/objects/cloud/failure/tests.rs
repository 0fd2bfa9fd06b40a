//! What follows from answers and from their absence.

use super::*;
use object_store::client::{HttpError, HttpErrorKind};
use std::io;

fn place() -> Place {
    Place { bucket: "b".into(), endpoint: "https://account.blob.core.windows.net".into() }
}

fn answered(status: u16, code: &str) -> Failure {
    let body = format!("<?xml?><Error><Code>{code}</Code><Message>it says</Message></Error>");
    let refusal = Refusal::of_body(status, if code.is_empty() { "" } else { &body });
    failure(&place(), RequestKind::Put, "manifest", &refusal)
}

#[test]
fn each_answer_has_its_kind_and_advice() {
    use FailureKind::*;
    for (status, code, kind, advice) in [
        (409, "BlobAlreadyExists", Refused, ""),
        (412, "ConditionNotMet", Refused, ""),
        (412, "AppendPositionConditionNotMet", Refused, ""),
        (412, "", Refused, ""),
        (409, "BlockCountExceedsLimit", Full, ""),
        (409, "OperationTimedOut", Again, ""),
        (404, "BlobNotFound", Absent, ""),
        (404, "NoSuchKey", Absent, ""),
        (404, "", Absent, ""),
        (404, "ContainerNotFound", Denied, "create the bucket"),
        (404, "NoSuchBucket", Denied, "create the bucket"),
        (409, "InvalidBlobType", Denied, "blobs take appends"),
        (403, "AuthenticationFailed", Forbidden, "the clock of this machine"),
        (403, "AuthorizationFailure", Forbidden, "check the account key"),
        (403, "AuthorizationPermissionMismatch", Forbidden, "Storage Blob Data Contributor"),
        (401, "", Forbidden, "check the account key"),
        (400, "InvalidHeaderValue", Denied, "check the bucket"),
        (429, "", Throttled, ""),
        (503, "ServerBusy", Throttled, ""),
        (500, "InternalError", Unknown, ""),
        (408, "", Unknown, ""),
        (501, "", Denied, "use a store that knows"),
    ] {
        let failure = answered(status, code);
        assert_eq!(failure.kind, kind, "{status} {code}");
        assert!(failure.what.contains(advice) && failure.what.contains(&status.to_string()), "{failure:?}");
        assert!(failure.what.starts_with("put `manifest` in bucket `b` at https://account"), "{failure:?}");
    }
}

#[test]
fn only_a_refused_connection_proves_that_nothing_was_sent() {
    for (os, kind) in [
        (io::ErrorKind::ConnectionRefused, FailureKind::Again),
        (io::ErrorKind::ConnectionReset, FailureKind::Unknown),
        (io::ErrorKind::TimedOut, FailureKind::Unknown),
    ] {
        let error = HttpError::new(HttpErrorKind::Connect, io::Error::from(os));
        assert_eq!(failure(&place(), RequestKind::Append, "log/1", &error).kind, kind, "{os:?}");
    }
}

#[test]
fn message_of_the_store_is_one_short_line() {
    let long = format!("<Code>C</Code><Message>{}\nend</Message>", "x\n".repeat(1000));
    let failure = failure(&place(), RequestKind::Get, "a", &Refusal::of_body(400, &long));
    assert!(failure.what.len() < 500 && !failure.what.contains('\n'), "{}", failure.what);
}
