//! Unit tests of failures: every code of gRPC, and what it says to people.

use super::*;

#[test]
fn each_code_has_the_kind_of_other_stores() {
    use FailureKind::{Absent, Denied, Forbidden, Refused, Throttled, Unknown};
    let place = Place { bucket: "b".into(), endpoint: "https://here".into() };
    for (code, message, wanted, said) in [
        // As HTTP 403 and 401 of other stores.
        (Code::PermissionDenied, "no", Forbidden, "PermissionDenied, no; allow these credentials"),
        (Code::Unauthenticated, "expired", Forbidden, "Unauthenticated, expired; check the credentials"),
        (Code::FailedPrecondition, "another writer", Refused, "FailedPrecondition, another writer"),
        (Code::AlreadyExists, "", Refused, "AlreadyExists"),
        (Code::OutOfRange, "a gap", Refused, "a gap"),
        (Code::NotFound, "no such object", Absent, "no such object"),
        (Code::InvalidArgument, "wrong", Denied, "wrong"),
        (Code::Unimplemented, "unknown", Denied, "unknown"),
        (Code::ResourceExhausted, "too many", Throttled, "too many"),
        (Code::ResourceExhausted, "message larger than max", Denied, "larger than max"),
        (Code::Unavailable, "away", Unknown, "away"),
        (Code::Aborted, "elsewhere", Unknown, "elsewhere"),
        (Code::DeadlineExceeded, "late", Unknown, "late"),
        (Code::Internal, "bug", Unknown, "bug"),
        (Code::Cancelled, "cut", Unknown, "cut"),
    ] {
        let failed = failure(&place, RequestKind::Append, "log/1", &Status::new(code, message));
        assert_eq!(failed.kind, wanted, "{code:?}");
        assert!(failed.what.contains(said), "{}", failed.what);
        assert!(failed.what.contains("`log/1` in bucket `b` at https://here"), "{}", failed.what);
    }
}
