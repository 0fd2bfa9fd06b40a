//! Unit tests of `range`.

use super::*;

#[test]
fn prefix_ends_before_its_successor() {
    let end = |prefix: &[u8]| prefix_range(prefix).1;
    assert_eq!(end(b"user:"), Bound::Excluded(b"user;".to_vec()));
    assert_eq!(end(&[7, 255, 255]), Bound::Excluded(vec![8]));
    assert_eq!(end(&[255, 255]), Bound::Unbounded);
    assert_eq!(prefix_range(b""), (Bound::Included(Vec::new()), Bound::Unbounded));
}

#[test]
fn all_ranges_of_rust_are_ranges_of_keys() {
    fn ends(range: impl KeyRange) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        (range.lower().map(<[u8]>::to_vec), range.upper().map(<[u8]>::to_vec))
    }
    let (a, b) = (b"a".to_vec(), b"b".to_vec());
    assert_eq!(ends(..), (Bound::Unbounded, Bound::Unbounded));
    assert_eq!(ends("a".."b"), (Bound::Included(a.clone()), Bound::Excluded(b.clone())));
    assert_eq!(ends([b'a']..=[b'b']), (Bound::Included(a.clone()), Bound::Included(b.clone())));
    assert_eq!(ends(a.clone()..), (Bound::Included(a.clone()), Bound::Unbounded));
    assert_eq!(ends(..&b[..]), (Bound::Unbounded, Bound::Excluded(b.clone())));
    assert_eq!(ends(..="b"), (Bound::Unbounded, Bound::Included(b.clone())));
    let bounds = (Bound::Excluded("a"), Bound::Included("b"));
    assert_eq!(ends(bounds), (Bound::Excluded(a), Bound::Included(b)));
}
