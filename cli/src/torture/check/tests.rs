//! Tests of `check`.

use super::*;

#[test]
fn lines_are_counted_and_strange_ones_refused() {
    let mut acknowledged = Acknowledged::default();
    assert!(["S", "T 1 2", "I 1 3", "D 1 3"].iter().all(|line| acknowledged.line(line)));
    assert!(["", "X 1 2", "T 1", "T 1 x", "T 1 2 3"].iter().all(|line| !acknowledged.line(line)));
    assert!(acknowledged.setup);
    assert_eq!(acknowledged.len(), 3);
}
