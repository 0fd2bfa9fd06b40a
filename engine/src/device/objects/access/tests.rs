//! Unit tests of `access`.

use super::*;
use crate::device::objects::request::Reply;

fn forbidden() -> Outcome {
    Err(Failure { kind: FailureKind::Forbidden, what: "AccessDenied (HTTP 403)".into() })
}

fn kind_of(outcome: Outcome) -> Option<FailureKind> {
    outcome.err().map(|failure| failure.kind)
}

#[test]
fn refusals_of_a_probed_store_may_pass() {
    let access = Access::new("a store", true);
    for kind in [RequestKind::Put, RequestKind::Append, RequestKind::List] {
        assert_eq!(kind_of(access.judge(kind, forbidden())), Some(FailureKind::Forbidden), "{kind:?}");
    }
}

#[test]
fn refusals_of_the_first_request_of_a_kind_are_final() {
    let access = Access::new("a store", false);
    assert_eq!(kind_of(access.judge(RequestKind::Get, forbidden())), Some(FailureKind::Denied));
    // An answer without an object is an answer, a lost connection is none.
    let fails = |kind| Err(Failure { kind, what: "no".into() });
    assert!(access.judge(RequestKind::Get, fails(FailureKind::Unknown)).is_err());
    assert_eq!(kind_of(access.judge(RequestKind::Get, forbidden())), Some(FailureKind::Denied));
    assert!(access.judge(RequestKind::Get, fails(FailureKind::Absent)).is_err());
    assert_eq!(kind_of(access.judge(RequestKind::Get, forbidden())), Some(FailureKind::Forbidden));
    assert_eq!(kind_of(access.judge(RequestKind::Put, forbidden())), Some(FailureKind::Denied));
    assert!(access.judge(RequestKind::Put, Ok(Reply::default())).is_ok());
    assert_eq!(kind_of(access.judge(RequestKind::Put, forbidden())), Some(FailureKind::Forbidden));
}
