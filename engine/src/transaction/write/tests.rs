//! Tests of the smallest changed range and of key places.

use super::{changed_range, place_of_key};
use crate::base::ErrorKind;

#[test]
fn the_changed_range_is_the_smallest() {
    assert_eq!(changed_range(b"abcdef", b"abXdYf"), (2, 5));
    assert_eq!(changed_range(b"abc", b"abc"), (3, 3));
    assert_eq!(changed_range(b"abc", b"xyz"), (0, 3));
    assert_eq!(changed_range(b"", b""), (0, 0));
    assert_eq!(changed_range(b"aaaa", b"aaba"), (2, 3));
}

/// Places wrapped around to the front: a rollback restored other rows instead.
#[test]
fn keys_beyond_the_range_of_places_are_refused() {
    assert_eq!(place_of_key(0, 5).expect("little"), (0, 5));
    let most = u32::MAX as usize;
    assert_eq!(place_of_key(most - 5, 5).expect("the last ones"), (u32::MAX - 5, u32::MAX));
    for (before, len) in [(most - 4, 5), (most, 1), (most + 1, 1), (most * 2, 1)] {
        assert_eq!(place_of_key(before, len).expect_err("too much").kind(), ErrorKind::OutOfMemory);
    }
}
