//! Tests of `range`.

use super::*;

#[test]
fn end_of_a_prefix_is_the_next_key_that_does_not_have_it() {
    assert_eq!(after_prefix(b"ab"), Bound::Excluded(b"ac".to_vec()));
    assert_eq!(after_prefix(b"a\xff"), Bound::Excluded(b"b".to_vec()));
    assert_eq!(after_prefix(b"\xff\xff"), Bound::Unbounded);
}
