//! What follows from the status of an answer.

use super::super::client::{Place, not_sent, shortened};
use super::super::request::{Failure, FailureKind, RequestKind};
use super::messages::RpcStatus;
use prost::Message;
use std::error::Error as StdError;
use tonic::{Code, Status};

/// A message above the limit of the service is refused whenever it is sent; a rate is not.
const TOO_LARGE: &str = "larger than max";

const ADVICE_ACCESS: &str =
    "allow these credentials to read, write, delete and list in the bucket (Storage Object User)";

const ADVICE_KEY: &str = "check the credentials, and the clock of this machine";

/// Returns the kind of a failure.
pub(super) fn kind_of(status: &Status) -> FailureKind {
    match status.code() {
        Code::FailedPrecondition | Code::AlreadyExists | Code::OutOfRange => FailureKind::Refused,
        Code::NotFound => FailureKind::Absent,
        Code::PermissionDenied | Code::Unauthenticated => FailureKind::Forbidden,
        Code::InvalidArgument | Code::Unimplemented => FailureKind::Denied,
        Code::ResourceExhausted if status.message().contains(TOO_LARGE) => FailureKind::Denied,
        Code::ResourceExhausted => FailureKind::Throttled,
        _ => FailureKind::Unknown,
    }
}

/// Returns the failure of a request.
pub(super) fn failure(place: &Place, kind: RequestKind, name: &str, status: &Status) -> Failure {
    let mut cause = status.source();
    while let Some(error) = cause {
        if let Some((is, why)) = not_sent(error) {
            return place.say(is, kind, name, &why);
        }
        cause = error.source();
    }
    let advice = match status.code() {
        Code::PermissionDenied => format!("; {ADVICE_ACCESS}"),
        Code::Unauthenticated => format!("; {ADVICE_KEY}"),
        _ => String::new(),
    };
    let text = format!("{:?}, {}{advice}", status.code(), shortened(status.message()));
    place.say(kind_of(status), kind, name, &text)
}

/// Returns where a stream is to be opened instead: a detail of the type with this name.
pub(super) fn redirect<M: Message + Default>(status: &Status, name: &str) -> Option<M> {
    let is_aborted = status.code() == Code::Aborted;
    is_aborted.then(|| RpcStatus::detail(status.details(), name))?
}

#[cfg(test)]
mod tests;
