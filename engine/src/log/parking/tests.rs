//! Blocks complete in any order.

use super::*;
use proptest::prelude::*;

#[test]
fn what_lands_early_waits_for_what_was_before_it() {
    let mut lot = ParkingLot::new();
    (1..=3).for_each(|n| lot.depart(n, Csn(10 * n), Csn(10 * n + 5), None, None));
    assert_eq!(lot.complete(3), None);
    assert_eq!(lot.complete(9), None, "never departed");
    assert_eq!(lot.complete(2), None);
    assert_eq!((lot.first_csn(), lot.first_sequence(), lot.len()), (Some(Csn(10)), Some(1), 3));
    assert_eq!(lot.complete(1), Some(Csn(35)));
    assert_eq!(lot.complete(1), None, "completed before");
    assert_eq!((lot.first_csn(), lot.len()), (None, 0));
}

proptest! {
    #[test]
    fn the_frontier_is_the_gap_free_prefix(order in Just((1..=20u64).collect::<Vec<_>>()).prop_shuffle()) {
        let mut lot = ParkingLot::new();
        (1..=20).for_each(|n| lot.depart(n, Csn(n), Csn(n), None, None));
        let (mut completed, mut frontier) = (std::collections::BTreeSet::new(), 0);
        for sequence in order {
            completed.insert(sequence);
            let moved = lot.complete(sequence);
            let prefix = (1..).take_while(|n| completed.contains(n)).last().unwrap_or(0);
            prop_assert_eq!(moved, (prefix > frontier).then_some(Csn(prefix)));
            frontier = prefix;
        }
    }
}
