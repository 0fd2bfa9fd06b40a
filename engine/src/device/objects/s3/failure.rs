//! What follows from an error of the SDK, and the sentence that says so.
//!
//! The sentence names the request, the bucket, the endpoint, the store's code and message. It never
//! quotes a header of the request, because headers hold signatures and tokens.

use super::super::client::{
    ADVICE_BUCKET, ADVICE_CHECK, ADVICE_REQUEST, Place, answer, classify_status, no_answer, not_sent, root,
    shortened,
};
use super::super::request::{Failure, FailureKind, RequestKind};
use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_s3::config::http::HttpResponse;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::operation::create_session::CreateSessionError;
use std::error::Error as StdError;

/// What the store said, or why it said nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Reason {
    kind: FailureKind,
    text: String,
}

impl Reason {
    fn new(kind: FailureKind, text: impl Into<String>) -> Reason {
        Reason { kind, text: text.into() }
    }
}

impl Place {
    /// Returns the failure that follows from an error of the SDK.
    pub fn failure<E>(&self, kind: RequestKind, name: &str, error: &SdkError<E, HttpResponse>) -> Failure
    where
        E: ProvideErrorMetadata + StdError + 'static,
    {
        let reason = self.reason(error);
        let was_cut = [RequestKind::Put, RequestKind::Append].contains(&kind) && has_no_code(error);
        let outcome = if was_cut { FailureKind::Unknown } else { reason.kind };
        self.say(outcome, kind, name, &reason.text)
    }

    fn reason<E>(&self, error: &SdkError<E, HttpResponse>) -> Reason
    where
        E: ProvideErrorMetadata + StdError + 'static,
    {
        match error {
            SdkError::ServiceError(service) => {
                let (error, raw) = (service.err(), service.raw());
                self.answered(raw, error.code(), error.message())
            }
            SdkError::ResponseError(response) if response.raw().status().as_u16() >= 400 => {
                self.answered(response.raw(), None, None)
            }
            SdkError::ResponseError(response) => {
                let status = response.raw().status().as_u16();
                Reason::new(FailureKind::Unknown, format!("the answer makes no sense (HTTP {status})"))
            }
            SdkError::TimeoutError(_) => Reason::new(FailureKind::Unknown, "no answer in time"),
            SdkError::ConstructionFailure(_) => self.not_answered(error).unwrap_or_else(|| {
                let text = format!("the request cannot be made: {}; check the settings", root(error));
                Reason::new(FailureKind::Denied, text)
            }),
            _ => self.not_answered(error).unwrap_or_else(|| {
                let (kind, text) = no_answer(error);
                Reason { kind, text }
            }),
        }
    }

    /// Returns the reason that stands in the chain of causes, if it is one that proves something:
    /// a session or credentials that could not be had, or a refused connection.
    fn not_answered(&self, error: &(dyn StdError + 'static)) -> Option<Reason> {
        for cause in std::iter::successors(error.source(), |&error| error.source()) {
            if let Some(session) = cause.downcast_ref::<SdkError<CreateSessionError, HttpResponse>>() {
                return Some(self.no_session(session));
            }
            if let Some(credentials) = cause.downcast_ref::<CredentialsError>() {
                return Some(no_credentials(credentials));
            }
            if let Some((kind, text)) = not_sent(cause) {
                return Some(Reason::new(kind, text));
            }
        }
        None
    }

    /// Without a session the request itself was not sent.
    fn no_session(&self, error: &SdkError<CreateSessionError, HttpResponse>) -> Reason {
        let reason = self.reason(error);
        let kind = match reason.kind {
            FailureKind::Denied | FailureKind::Absent | FailureKind::Refused | FailureKind::Full => {
                FailureKind::Denied
            }
            FailureKind::Throttled => FailureKind::Throttled,
            FailureKind::Forbidden => FailureKind::Forbidden,
            FailureKind::Again | FailureKind::Unknown => FailureKind::Again,
        };
        let advice = if self.endpoint.starts_with(AMAZON) { "" } else { ADVICE_NO_EXPRESS };
        let text = format!("no session for the directory bucket: {}{advice}", reason.text);
        Reason { kind, text }
    }

    /// Returns what follows from an answer of the store.
    fn answered(&self, raw: &HttpResponse, code: Option<&str>, message: Option<&str>) -> Reason {
        let (status, headers) = (raw.status().as_u16(), raw.headers());
        let (kind, advice) = classify(status, code.unwrap_or(""));
        let mut text = answer(status, code.unwrap_or(""), message.unwrap_or(""));
        if let Some(id) = headers.get("x-amz-request-id") {
            text = format!("{text}, request {}", shortened(id));
        }
        if let Some(region) = headers.get("x-amz-bucket-region").filter(|_| advice == ADVICE_REGION) {
            return Reason::new(kind, format!("{text}; {advice} ({})", shortened(region)));
        }
        if advice.is_empty() {
            return Reason::new(kind, text);
        }
        Reason::new(kind, format!("{text}; {advice}"))
    }
}

/// How the endpoint is called if none is set.
pub(super) const AMAZON: &str = "Amazon S3 in ";

const ADVICE_NO_EXPRESS: &str = "; a name that ends in --x-s3 means a directory bucket of S3 Express One Zone: if this \
                                 server has none, give the bucket another name; if it has some without sessions, set \
                                 AWS_S3_DISABLE_EXPRESS_SESSION_AUTH=true";

const ADVICE_REGION: &str = "the bucket lies in another region: set AWS_REGION";

const ADVICE_ACCESS: &str = "allow these credentials to read, write, delete and list in the bucket, and to \
                             create sessions if it is a directory bucket";

/// Returns what follows from an answer, and what to do if the store refuses everything. A code
/// says more than a status; a reply to a head has a status only.
fn classify(status: u16, code: &str) -> (FailureKind, &'static str) {
    match code {
        "PreconditionFailed" | "InvalidWriteOffset" => (FailureKind::Refused, ""),
        "NoSuchKey" | "NotFound" => (FailureKind::Absent, ""),
        "TooManyParts" => (FailureKind::Full, ""),
        "ConditionalRequestConflict" | "OperationAborted" => (FailureKind::Again, ""),
        "SlowDown"
        | "Throttling"
        | "ThrottlingException"
        | "TooManyRequests"
        | "RequestLimitExceeded"
        | "BandwidthLimitExceeded" => (FailureKind::Throttled, ""),
        "RequestTimeout" | "IncompleteBody" | "BadDigest" | "InternalError" => (FailureKind::Unknown, ""),
        "NoSuchBucket" => (FailureKind::Denied, ADVICE_BUCKET),
        "InvalidAccessKeyId" => (FailureKind::Forbidden, "check AWS_ACCESS_KEY_ID and the profile"),
        "SignatureDoesNotMatch" => (FailureKind::Forbidden, "check AWS_SECRET_ACCESS_KEY and the profile"),
        "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired" => {
            (FailureKind::Forbidden, "get new credentials: these have expired or are incomplete")
        }
        "RequestTimeTooSkewed" | "RequestExpired" => {
            (FailureKind::Forbidden, "set the clock of this machine: it differs from the store's")
        }
        "PermanentRedirect"
        | "TemporaryRedirect"
        | "AuthorizationHeaderMalformed"
        | "IllegalLocationConstraintException" => (FailureKind::Denied, ADVICE_REGION),
        "NotImplemented" | "MethodNotAllowed" => (FailureKind::Denied, ADVICE_REQUEST),
        // Not the object, but something else that the request needs.
        _ if status == 404 && !code.is_empty() => (FailureKind::Denied, ADVICE_CHECK),
        _ if [301, 302, 307, 308].contains(&status) => (FailureKind::Denied, ADVICE_REGION),
        _ => classify_status(status, ADVICE_ACCESS),
    }
}

/// Returns whether the answer is a 400 without a code. A store names a code. What reads HTTP in
/// front of it has none, and answers so to a request whose connection broke within its body.
fn has_no_code<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> bool {
    let code = match error {
        SdkError::ServiceError(service) => service.err().code(),
        _ => None,
    };
    code.is_none() && error.raw_response().is_some_and(|raw| raw.status().as_u16() == 400)
}

/// Without credentials the request itself was not sent.
fn no_credentials(error: &CredentialsError) -> Reason {
    match error {
        CredentialsError::CredentialsNotLoaded(_) => Reason::new(
            FailureKind::Forbidden,
            "no credentials found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
        ),
        CredentialsError::InvalidConfiguration(_) => Reason::new(
            FailureKind::Forbidden,
            "the configuration of the credentials is wrong; check ~/.aws/config and AWS_PROFILE",
        ),
        _ => Reason::new(FailureKind::Again, "the source of the credentials does not answer"),
    }
}

#[cfg(test)]
mod tests;
