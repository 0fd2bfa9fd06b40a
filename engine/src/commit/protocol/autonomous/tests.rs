//! When a worker counts as idle.

use super::*;
use crate::base::random::Random;

#[test]
fn the_odds_of_a_forced_commit_grow_with_idle_time() {
    let most = 50_000;
    let forced = |pause: u64| {
        let (mut idle, mut now, mut random, mut forced) = (Idle::default(), 1, Random::from_seed(1), 0);
        for _ in 0..1000 {
            idle.note(Nanos(now + pause), Nanos(now + pause + 2_000), most);
            now += pause + 2_000;
            forced += u32::from(idle.forces(most, random.next_u64()));
        }
        forced
    };
    assert_eq!(forced(0), 0);
    assert_eq!(forced(1_000), 0, "the time between two transactions of a loop");
    assert!((350..650).contains(&forced(25_000)), "{}", forced(25_000));
    assert!(forced(100_000) > 950);
    assert!(forced(60_000_000) > 950);
}

#[test]
fn a_pause_is_forgotten() {
    let (mut idle, most) = (Idle::default(), 50_000);
    idle.note(Nanos(1), Nanos(2), most);
    idle.note(Nanos(10_000_000_000), Nanos(10_000_001_000), most);
    assert!(idle.average > 0);
    for i in 1..200 {
        idle.note(Nanos(10_000_001_000 + 2_000 * i), Nanos(10_000_002_000 + 2_000 * i), most);
    }
    assert_eq!(idle.average, 0);
}
