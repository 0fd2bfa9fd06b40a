//! What follows from an error of the client or an answer of the store.
//!
//! The sentence names the request, the bucket, the endpoint, the store's code and message. It never
//! quotes the URL of a request, because that may hold a signature.

use super::super::client::{ADVICE_BUCKET, Place, answer, classify_status, no_answer, not_sent, root};
use super::super::request::{Failure, FailureKind, RequestKind};
use super::super::url::ObjectUrl;
use crate::base::Error;
#[cfg(feature = "azure")]
use object_store::client::HttpError;
use std::error::Error as StdError;
use std::fmt;

/// An answer that is no success. It is an error in the chain of causes of the client's error, which
/// shows no status itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Refusal {
    pub status: u16,
    /// The store's name for what is wrong; empty if it gives none.
    pub code: String,
    pub message: String,
}

impl Refusal {
    /// Returns the answer with the code and message of a body in XML, or in Google's JSON.
    pub fn of_body(status: u16, body: &str) -> Refusal {
        #[cfg(feature = "gcs")]
        if let Ok(json) = serde_json::from_str::<serde_json::Value>(body) {
            let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_string();
            let error = &json["error"];
            return Refusal {
                status,
                code: text(&error["errors"][0]["reason"]),
                message: text(&error["message"]),
            };
        }
        Refusal { status, code: element(body, "Code"), message: element(body, "Message") }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&answer(self.status, &self.code, &self.message))
    }
}

impl StdError for Refusal {}

/// Returns the text of the first element of this name.
fn element(body: &str, name: &str) -> String {
    let (begin, end) = (format!("<{name}>"), format!("</{name}>"));
    let text = body.split_once(&begin).and_then(|(_, rest)| rest.split_once(&end));
    text.map_or_else(String::new, |(text, _)| text.into())
}

/// Returns the answer that `error` is about, if there was one.
pub(super) fn refusal<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Refusal> {
    std::iter::successors(Some(error), |&error| error.source()).find_map(<dyn StdError>::downcast_ref)
}

/// Returns whether there was an answer that says that a range begins at the end of the object or
/// behind it. Not all servers say so by a status: then the client finds it in the answer.
#[cfg(feature = "azure")]
pub(super) fn may_be_behind_the_end(error: &object_store::Error) -> bool {
    let causes = || std::iter::successors(Some(error as &(dyn StdError + 'static)), |&error| error.source());
    match refusal(error) {
        Some(answer) => answer.status == 416,
        None => !causes().any(|cause| cause.is::<HttpError>()),
    }
}

/// Returns the failure that follows from an error of the client.
pub(super) fn failure(
    place: &Place,
    request: RequestKind,
    name: &str,
    error: &(dyn StdError + 'static),
) -> Failure {
    if let Some(answer) = refusal(error) {
        return refused(place, request, name, answer);
    }
    let mut causes = std::iter::successors(Some(error), |&error| error.source());
    let (kind, why) = causes.find_map(not_sent).unwrap_or_else(|| no_answer(error));
    place.say(kind, request, name, &why)
}

fn refused(place: &Place, request: RequestKind, name: &str, answer: &Refusal) -> Failure {
    let (kind, advice) = classify(answer.status, &answer.code);
    let why = if advice.is_empty() { answer.to_string() } else { format!("{answer}; {advice}") };
    place.say(kind, request, name, &why)
}

const ADVICE_ACCESS: &str = "allow these credentials to read, write, delete and list in the bucket (Storage \
                             Blob Data Contributor on Azure, Storage Object User on Google)";

const ADVICE_KEY: &str = "check the account key, the token and its end, the clock of this machine, and the firewall \
                          of the account";

/// Returns what follows from an answer, and what to do if the store refuses everything. A code
/// says more than a status; a reply to a head has a status only.
fn classify(status: u16, code: &str) -> (FailureKind, &'static str) {
    match code {
        "BlobAlreadyExists" => (FailureKind::Refused, ""),
        "BlockCountExceedsLimit" => (FailureKind::Full, ""),
        "ContainerNotFound" | "NoSuchBucket" | "ContainerBeingDeleted" => {
            (FailureKind::Denied, ADVICE_BUCKET)
        }
        "InvalidBlobType" | "BlobTypeNotSupported" | "FeatureNotSupported" => {
            (FailureKind::Denied, "use an account whose blobs take appends")
        }
        "LeaseIdMissing" | "BlobImmutableDueToPolicy" => {
            (FailureKind::Denied, "end the lease or the policy that protects the object")
        }
        "AuthenticationFailed"
        | "AuthorizationFailure"
        | "InvalidAuthenticationInfo"
        | "NoAuthenticationInformation" => (FailureKind::Forbidden, ADVICE_KEY),
        _ if [401, 407].contains(&status) => (FailureKind::Forbidden, ADVICE_KEY),
        _ => classify_status(status, ADVICE_ACCESS),
    }
}

/// Returns the error for settings that the client refuses. It quotes the innermost cause only.
pub(super) fn wrong_settings(url: &ObjectUrl, error: &object_store::Error, advice: &str) -> Error {
    Error::invalid(format!("{url} cannot be used: {}; {advice}", root(error)))
}

#[cfg(test)]
mod tests;
