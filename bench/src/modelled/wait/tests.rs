//! Tests of `wait`.

use super::*;

#[test]
fn few_spin_some_sleep_and_many_give_way_to_each_other() {
    // Other tests may be waiting at the same time: the tolerance allows for them.
    let all: Vec<Waiting> = (0..3000).map(|_| Waiting::begin(2000)).collect();
    let ways = |way| all.iter().filter(|waiting| waiting.0 == way).count();
    let (spin, sleep, give_way) = (ways(Way::Spin), ways(Way::Sleep), ways(Way::Yield));
    assert!((950..=1000).contains(&spin), "{spin}");
    assert!((950..=1050).contains(&sleep), "{sleep}");
    assert!((1000..=1050).contains(&give_way), "{give_way}");
    drop(all);
    assert_eq!(Waiting::begin(1).0, Way::Sleep);
}

#[test]
fn a_wait_never_ends_early() {
    let clock = Clock::real();
    for us in [0, 1, 5, 40, 120, 1500] {
        let moment = Nanos(clock.now().0 + us * 1000);
        wait_until(&clock, moment);
        assert!(clock.now() >= moment, "{us}");
    }
}
