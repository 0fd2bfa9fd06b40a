//! Unit tests of `clocks`.

use super::*;
use crate::commit::core::watermark::tests::Held;

/// One transaction in log 0 met something at 100, far above its log's clock; another in log 1 met
/// the first.
#[test]
fn a_record_is_above_what_its_transaction_met_and_waits_for_it() {
    let clocks = Clocks::new(2, RingSize::MIN);
    // Log 0 has been written up to here.
    let earlier = clocks.draw(LogId(0), Csn(1), Gsn(0), false, &Held);
    let first = clocks.draw(LogId(0), Csn(2), Gsn(100), false, &Held);
    clocks.settle(LogId(0), Some(Csn(2)), &Held);
    let second = clocks.draw(LogId(1), Csn(3), first, false, &Held);
    assert!(earlier < first && first > Gsn(100) && second > first);
    clocks.settle(LogId(1), None, &Held);
    clocks.rescan();
    assert!(clocks.reach() < first, "it is not durable");
    assert!(clocks.needed_by(Csn(3)) > clocks.reach(), "what it met is not durable");
    assert!(clocks.holds_back(LogId(0), clocks.needed_by(Csn(3))));
    clocks.settle(LogId(0), None, &Held);
    clocks.rescan();
    assert!(clocks.needed_by(Csn(3)) <= clocks.reach() && clocks.of(Csn(3)) == second);
}

#[test]
fn a_lone_transaction_waits_for_earlier_ones_of_its_log() {
    let clocks = Clocks::new(2, RingSize::MIN);
    let first = clocks.draw(LogId(0), Csn(1), Gsn(50), false, &Held);
    let alone = clocks.draw(LogId(0), Csn(2), Gsn(0), true, &Held);
    assert!(alone > first);
    assert_eq!(clocks.needed_by(Csn(2)), first, "not its own");
    let other = clocks.draw(LogId(1), Csn(3), Gsn(0), true, &Held);
    assert!(clocks.needed_by(Csn(3)) < other, "no earlier one needs others");
}
