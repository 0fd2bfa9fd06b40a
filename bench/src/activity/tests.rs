//! Tests of `activity`.

use super::*;
use std::time::Duration;

#[test]
fn the_longest_span_without_any_finish_is_the_stall() {
    let activity = Activity::of(2, 1);
    std::thread::sleep(Duration::from_millis(40));
    let before = activity.now();
    activity.open_window();
    let opened = activity.now();
    let finish = |index| activity.finished(index, 0, Intent::default(), Ending::READ);
    let quiet = || std::thread::sleep(Duration::from_millis(30));
    let finishes = [(quiet(), finish(0)).1, (quiet(), finish(0)).1, finish(1)];
    let stall = activity.longest_stall_us() * 1e3;
    let asked = activity.now();
    // Thread 1 is quiet for the whole time, but thread 0 is not. Sleeps may be longer than asked
    // for.
    let longest = |window: u64| {
        let [first, second, last] = finishes;
        (first - window).max(second - first).max(last - second)
    };
    let (least, most) = (longest(opened), longest(before).max(asked - finishes[2]));
    assert!((least as f64 - 1.0..=most as f64 + 1.0).contains(&stall), "{stall}, not {least} to {most}");
    assert!(finishes[2] - before >= longest(before) + 30_000_000, "thread 1 was quiet for longer");
    std::thread::sleep(Duration::from_millis(80));
    assert!(activity.longest_stall_us() >= 80_000.0, "one that has not ended counts");
    finish(1);
    assert!(activity.longest_stall_us() >= 80_000.0);
    let before = activity.now();
    activity.open_window();
    let stall = activity.longest_stall_us() * 1e3;
    assert!(stall <= (activity.now() - before) as f64 + 1.0, "a new window forgets");
}

#[test]
fn sums_types_and_read_latencies_are_kept_apart() {
    let activity = Activity::of(2, 2);
    activity.finished(0, 0, Intent { kind: 0, reads_only: true }, Ending::READ);
    let write = Intent { kind: 1, reads_only: false };
    let now = activity.finished(1, 0, write, Ending::Commit { written_bytes: 108 });
    activity.finished(1, 0, write, Ending::RollBack);
    activity.conflicted(0, 1, now);
    activity.acknowledged(1, 1, now, now + 5000);
    let sums = Sums { committed: 2, rolled_back: 1, aborted: 1, written_bytes: 108 };
    assert_eq!(activity.sums(), sums);
    assert_eq!((activity.latencies().count(), activity.read_latencies().count()), (3, 1));
    assert_eq!(activity.committed_by_worker(), [1, 1]);
    let kinds = activity.kinds();
    assert_eq!((kinds[0].committed, kinds[0].acknowledged, kinds[0].latency.count()), (1, 0, 0));
    let writes = &kinds[1];
    assert_eq!((writes.committed, writes.rolled_back, writes.conflicts), (1, 1, 1));
    assert_eq!((writes.acknowledged, writes.latency.count()), (1, 2));
}

#[test]
#[ignore = "measures"]
fn cost_of_counting_a_transaction() {
    let (activity, rounds) = (Activity::of(1, 1), 10_000_000u64);
    let mut begun = activity.now();
    let first = begun;
    for _ in 0..rounds {
        let now = activity.finished(0, begun, Intent::default(), Ending::Commit { written_bytes: 108 });
        activity.acknowledged(0, 0, begun, now);
        begun = now;
    }
    println!("{:.1} ns a transaction", (begun - first) as f64 / rounds as f64);
    assert_eq!(activity.sums().committed, rounds);
}
