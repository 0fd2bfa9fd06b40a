//! Unit tests of `failure`.

use super::super::super::client::MESSAGE_CHARACTERS_MAX;
use super::*;

fn place() -> Place {
    Place { bucket: "b".into(), endpoint: "http://127.0.0.1:1".into() }
}

#[test]
fn each_code_has_its_consequence() {
    use FailureKind::*;
    for (status, code, kind) in [
        (412, "PreconditionFailed", Refused),
        (400, "InvalidWriteOffset", Refused),
        (404, "NoSuchKey", Absent),
        (404, "NotFound", Absent),
        (404, "NoSuchBucket", Denied),
        (404, "NoSuchUser", Denied),
        (400, "TooManyParts", Full),
        (409, "ConditionalRequestConflict", Again),
        (409, "OperationAborted", Again),
        (503, "SlowDown", Throttled),
        (503, "ServiceUnavailable", Throttled),
        (429, "TooManyRequests", Throttled),
        (400, "RequestTimeout", Unknown),
        (400, "BadDigest", Unknown),
        (500, "InternalError", Unknown),
        (502, "", Unknown),
        (504, "", Unknown),
        (200, "", Unknown),
        (501, "NotImplemented", Denied),
        (403, "AccessDenied", Forbidden),
        (401, "", Forbidden),
        (403, "InvalidAccessKeyId", Forbidden),
        (403, "SignatureDoesNotMatch", Forbidden),
        (403, "RequestTimeTooSkewed", Forbidden),
        (400, "ExpiredToken", Forbidden),
        (301, "PermanentRedirect", Denied),
        (400, "AuthorizationHeaderMalformed", Denied),
        (400, "InvalidRequest", Denied),
        (405, "MethodNotAllowed", Denied),
        (413, "EntityTooLarge", Denied),
    ] {
        assert_eq!(classify(status, code).0, kind, "{status} {code}");
    }
}

#[test]
fn status_alone_decides_where_no_code_is() {
    use FailureKind::*;
    let kinds =
        [(412, Refused), (404, Absent), (409, Again), (503, Throttled), (500, Unknown), (403, Forbidden)];
    for (status, kind) in kinds {
        assert_eq!(classify(status, "").0, kind, "{status}");
    }
}

#[test]
fn every_denial_says_what_to_do() {
    for status in 300..502 {
        let (kind, advice) = classify(status, "");
        let is_denied = matches!(kind, FailureKind::Denied | FailureKind::Forbidden);
        assert_eq!(is_denied, !advice.is_empty(), "{status}");
    }
    let codes = ["NoSuchBucket", "InvalidAccessKeyId", "ExpiredToken", "RequestTimeTooSkewed"];
    for code in codes {
        assert!(!classify(400, code).1.is_empty(), "{code}");
    }
}

fn answer(status: u16, headers: &[(&'static str, &'static str)]) -> HttpResponse {
    let body = aws_smithy_types::body::SdkBody::empty();
    let mut response = HttpResponse::new(status.try_into().unwrap(), body);
    for (name, value) in headers {
        response.headers_mut().insert(*name, *value);
    }
    response
}

#[test]
fn sentence_names_request_place_code_and_advice() {
    let raw = answer(404, &[("x-amz-request-id", "R1")]);
    let reason = place().answered(&raw, Some("NoSuchBucket"), Some("The bucket\ndoes not exist"));
    let failure = place().say(reason.kind, RequestKind::Put, "manifest", &reason.text);
    assert_eq!(
        failure.what,
        "put `manifest` in bucket `b` at http://127.0.0.1:1: NoSuchBucket (HTTP 404), The bucket does not \
         exist, request R1; create the bucket, or correct its name and the endpoint"
    );
    let raw = answer(301, &[("x-amz-bucket-region", "eu-west-1")]);
    let reason = place().answered(&raw, None, None);
    assert_eq!(
        (reason.kind, reason.text.ends_with("set AWS_REGION (eu-west-1)")),
        (FailureKind::Denied, true)
    );
}

#[test]
fn long_messages_are_cut() {
    let long = "x".repeat(5000);
    let reason = place().answered(&answer(500, &[]), Some(&long), Some(&long));
    assert!(reason.text.len() < 2 * MESSAGE_CHARACTERS_MAX + 50, "{}", reason.text.len());
}

type GetError = SdkError<aws_sdk_s3::operation::get_object::GetObjectError, HttpResponse>;

#[test]
fn missing_credentials_may_come_back() {
    let missing: GetError = SdkError::construction_failure(CredentialsError::not_loaded("hidden"));
    let failure = place().failure(RequestKind::Get, "x", &missing);
    assert_eq!(failure.kind, FailureKind::Forbidden);
    assert!(failure.what.contains("no credentials found") && !failure.what.contains("hidden"));
    let slow = CredentialsError::provider_timed_out(std::time::Duration::from_secs(1));
    let failure = place().failure(RequestKind::Get, "x", &GetError::construction_failure(slow));
    assert_eq!(failure.kind, FailureKind::Again);
}

#[test]
fn failed_session_means_that_nothing_was_sent() {
    let place = place();
    let session = |status| {
        let raw = answer(status, &[]);
        let error = CreateSessionError::generic(Default::default());
        GetError::construction_failure(SdkError::service_error(error, raw))
    };
    for (status, kind) in [
        (403, FailureKind::Forbidden),
        (404, FailureKind::Denied),
        (500, FailureKind::Again),
        (503, FailureKind::Throttled),
    ] {
        let failure = place.failure(RequestKind::Append, "x", &session(status));
        assert_eq!(failure.kind, kind, "{}", failure.what);
        assert!(failure.what.contains("no session"), "{}", failure.what);
        assert!(failure.what.contains("give the bucket another name"), "{}", failure.what);
    }
    let amazon = Place { endpoint: "Amazon S3 in us-east-1".into(), ..place };
    let failure = amazon.failure(RequestKind::Append, "x", &session(403));
    assert!(!failure.what.contains("another name"), "{}", failure.what);
}

#[test]
fn certificate_that_is_not_trusted_is_denied() {
    let error = GetError::construction_failure("invalid peer certificate: UnknownIssuer");
    let failure = place().failure(RequestKind::Put, "x", &error);
    assert_eq!(failure.kind, FailureKind::Denied);
    assert!(failure.what.contains("UnknownIssuer; name the file"), "{}", failure.what);
}

#[test]
fn undecodable_answers_leave_the_outcome_unknown() {
    for (status, kind) in [
        (200, FailureKind::Unknown),
        (500, FailureKind::Unknown),
        (503, FailureKind::Throttled),
        (403, FailureKind::Forbidden),
    ] {
        let error = GetError::response_error("odd", answer(status, &[]));
        assert_eq!(place().failure(RequestKind::Put, "x", &error).kind, kind, "{status}");
    }
    let error = GetError::timeout_error("late");
    assert_eq!(place().failure(RequestKind::Put, "x", &error).kind, FailureKind::Unknown);
}

/// Regression: a proxy cut an append, the server answered 400, and a database did not open.
#[test]
fn a_400_without_a_code_proves_nothing_about_a_body() {
    let error = GetError::response_error("cut", answer(400, &[]));
    let kind = |kind| place().failure(kind, "x", &error).kind;
    assert_eq!(
        (kind(RequestKind::Put), kind(RequestKind::Append)),
        (FailureKind::Unknown, FailureKind::Unknown)
    );
    assert_eq!(kind(RequestKind::Head), FailureKind::Denied);
}
