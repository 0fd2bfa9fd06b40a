//! Unit tests of `patience`.

use super::*;

/// The general advice of an I/O error is about a device, which a store of objects is not.
#[test]
fn no_error_of_a_store_advises_to_check_the_device() {
    let all = [FailureKind::Unknown, FailureKind::Throttled, FailureKind::Forbidden, FailureKind::Denied];
    for kind in all {
        let error = error_of(&Failure { kind, what: "why".into() }, "cannot read", "manifest");
        let text = error.to_string();
        assert!(text.starts_with("cannot read: why") && !text.contains("device"), "{text}");
    }
}
