//! Tests of `worker`.

use super::*;

#[test]
fn a_deck_has_its_cards_and_weights_their_shares() {
    let mut random = Random::from_seed(1);
    let mut deck = Draw::Deck(Vec::new());
    for _ in 0..10 {
        let mut seen = [0; 5];
        (0..23).for_each(|_| seen[deck.draw(&mut random) as usize] += 1);
        assert_eq!(seen, [10, 10, 1, 1, 1]);
    }
    let (mut seen, mut weighted) = ([0u64; 5], Draw::Weighted);
    (0..100_000).for_each(|_| seen[weighted.draw(&mut random) as usize] += 1);
    let expected = [45_000.0, 43_000.0, 4_000.0, 4_000.0, 4_000.0];
    let chi = crate::tpcc::random::chi_square(&seen, &expected);
    assert!(chi < crate::tpcc::random::chi_square_bound(4), "{seen:?}");
    assert!((0..10).all(|_| Draw::Only(Kind::Payment).draw(&mut random) == Kind::Payment));
}
