//! Unit tests of `random`.

use super::*;

#[test]
fn same_seed_same_numbers_and_bounds_hold() {
    let (mut a, mut b) = (Random::from_seed(7), Random::from_seed(7));
    for bound in 1..1000 {
        let x = a.below(bound);
        assert_eq!(x, b.below(bound));
        assert!(x < bound);
    }
    assert!((0..1000).all(|_| (0.0..1.0).contains(&a.unit())));
}
