//! Unit tests of `out_of_order`.

use super::super::super::predecessors::Predecessors;
use super::*;
use crate::base::Csn;
use crate::base::clock::Nanos;

#[test]
fn there_are_at_most_so_many_and_each_is_taken_once() {
    let entry = |csn| {
        let (begun, ready, predecessors) = (Nanos(csn), Nanos(csn), Predecessors::default());
        Entry { csn: Csn(csn), dsn: Csn::ZERO, begun, ready, predecessors }
    };
    let out_of_order = OutOfOrder::default();
    let put = (0..100).take_while(|csn| out_of_order.put(entry(*csn))).count();
    assert_eq!(put, ENTRIES_MAX);
    let mut taken = Vec::new();
    for round in [3, 1] {
        out_of_order.take(true, |entry| {
            let accepted = entry.csn.0.is_multiple_of(round);
            taken.extend(accepted.then_some(entry.csn.0));
            accepted
        });
    }
    assert!(out_of_order.is_empty() && taken.len() == ENTRIES_MAX);
    taken.sort_unstable();
    assert_eq!(taken, (0..ENTRIES_MAX as u64).collect::<Vec<_>>());
}
