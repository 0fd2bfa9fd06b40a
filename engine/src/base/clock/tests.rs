//! Unit tests of `clock`.

use super::*;

#[test]
fn clock_jump_between_polls_counts_at_most_one_interval() {
    let (clock, ms) = (Clock::manual(), Duration::from_millis);
    let mut wait_timer = WaitTimer::start(&clock);
    let mut waited_after = |by| {
        clock.advance(by);
        wait_timer.elapsed()
    };
    assert_eq!(waited_after(Duration::ZERO), Duration::ZERO);
    assert_eq!(waited_after(ms(4)), ms(4));
    assert_eq!(waited_after(ms(5)), ms(9), "short ones add up");
    assert_eq!(waited_after(ms(3_600_000)), ms(19));
    assert_eq!(waited_after(ms(10)), ms(29));
}
