//! Unit tests of `planted`.

use super::*;

#[test]
fn names_are_different_and_find_their_bugs() {
    for bug in Bug::ALL {
        assert_eq!(Bug::named(bug.name()), Some(*bug));
        assert!(!bug.wrong().is_empty() && !bug.breaks().is_empty() && !bug.room().is_empty());
    }
    assert!(Bug::ALL.len() < usize::from(u8::MAX - 1));
}

/// What is behind the condition is not even compiled.
#[cfg(not(feature = "planted"))]
#[test]
fn no_bug_is_planted_without_the_feature() {
    const { assert!(!is(Bug::AcknowledgedBeforeFlush)) };
}
