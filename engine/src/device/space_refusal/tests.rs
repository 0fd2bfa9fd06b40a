//! Unit tests of `asked`.

use super::*;
use crate::base::clock::Clock;

#[test]
fn slow_answer_stays_valid_longer_than_quick_one() {
    let clock = Clock::manual();
    let begun = clock.now();
    clock.advance(Duration::from_millis(2));
    let quick = SpaceRefusal::new(begun, clock.now());
    clock.advance(Duration::from_millis(19));
    assert!(quick.is_recent(clock.now()));
    clock.advance(Duration::from_millis(1));
    assert!(!quick.is_recent(clock.now()));
    let slow = SpaceRefusal::new(begun, clock.now());
    clock.advance(Duration::from_millis(99));
    assert!(slow.is_recent(clock.now()));
    clock.advance(Duration::from_millis(1));
    assert!(!slow.is_recent(clock.now()));
}
