//! Unit tests of `poison`.

use super::*;

#[test]
fn the_first_failure_is_kept() {
    let poison = Poison::new();
    assert!(poison.check().is_ok());
    poison.raise(Error::invalid("first"));
    poison.raise(Error::invalid("second"));
    let error = poison.check().expect_err("poisoned");
    assert_eq!(error.kind(), ErrorKind::Poisoned);
    assert!(error.to_string().contains("first"), "{error}");
    assert_eq!(poison.error(ErrorKind::OutcomeUnknown).kind(), ErrorKind::OutcomeUnknown);
}
