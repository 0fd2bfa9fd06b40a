//! Tests of the list of pages.

use super::*;

#[test]
fn pages_are_listed_until_their_value_is_committed() {
    let mut pages = Pages::default();
    for (owner, page) in [(1, 7), (2, 5), (1, 3)] {
        pages.by_owner.entry(owner).or_default().insert(PageId(page));
    }
    let mut list = |committed: u64| -> Vec<u64> {
        pages.list(&mut |owner| owner == committed).iter().map(|page| page.0).collect()
    };
    assert_eq!(list(9), [3, 5, 7]);
    assert_eq!(list(2), [3, 7]);
    assert_eq!(list(9), [3, 7], "the page of a committed value is forgotten");
}
