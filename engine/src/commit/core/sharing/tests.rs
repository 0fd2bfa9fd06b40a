//! Unit tests of `sharing`.

use super::*;

/// Rounds of `blocks` on a device where a block takes so long; returns how many were shared.
fn run(sharing: &Sharing, blocks: usize, rounds: u32, [each, shared]: [u64; 2]) -> u32 {
    (0..rounds).fold(0, |count, _| {
        let shares = sharing.decide(blocks);
        sharing.note(blocks, shares, Duration::from_micros(if shares { shared } else { each }));
        count + u32::from(shares)
    })
}

#[test]
fn the_shorter_way_is_found_and_follows_the_device() {
    let sharing = Sharing::new(None, true);
    assert!(run(&sharing, 4, 1000, [300, 150]) > 950);
    assert_eq!(sharing.usual(), Some(true));
    // As good as the same: stays.
    assert!(run(&sharing, 4, 1000, [140, 150]) > 950);
    let rounds = run(&sharing, 4, 1000, [100, 400]);
    assert!((1..200).contains(&rounds), "{rounds}");
    assert_eq!(sharing.usual(), Some(false));
}

#[test]
fn each_class_of_counts_decides_for_itself() {
    let sharing = Sharing::new(None, true);
    run(&sharing, 2, 500, [100, 150]);
    run(&sharing, 8, 500, [400, 150]);
    assert!(run(&sharing, 2, 64, [100, 150]) <= 1 && run(&sharing, 7, 64, [400, 150]) >= 63);
    assert!(run(&sharing, 1000, 64, [400, 150]) > 0, "the last class has no end");
}

#[test]
fn what_was_said_holds_and_what_cannot_be_is_not() {
    assert_eq!(run(&Sharing::new(Some(false), true), 4, 100, [400, 150]), 0);
    assert_eq!(run(&Sharing::new(Some(true), true), 4, 100, [100, 500]), 100);
    assert_eq!(run(&Sharing::new(None, false), 4, 100, [400, 150]), 0);
    let one = Sharing::new(Some(true), true);
    assert!(!one.decide(1) && one.usual().is_none());
}
