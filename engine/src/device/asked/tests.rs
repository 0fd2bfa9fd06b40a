//! Unit tests of `asked`.

use super::*;
use crate::base::clock::Clock;

#[test]
fn slow_answer_stays_valid_longer_than_quick_one() {
    let clock = Clock::manual();
    let begun = clock.now();
    clock.advance(Duration::from_millis(2));
    let quick = AskedInVain::new(begun, clock.now());
    clock.advance(Duration::from_millis(19));
    assert!(quick.is_fresh(clock.now()));
    clock.advance(Duration::from_millis(1));
    assert!(!quick.is_fresh(clock.now()));
    let slow = AskedInVain::new(begun, clock.now());
    clock.advance(Duration::from_millis(99));
    assert!(slow.is_fresh(clock.now()));
    clock.advance(Duration::from_millis(1));
    assert!(!slow.is_fresh(clock.now()));
}
