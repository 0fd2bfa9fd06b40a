//! Tests of `coordination`.

use super::*;

/// Its own switches only: the other tests' threads take theirs along when they end.
#[test]
fn a_thread_that_sleeps_is_switched() {
    let own = || Switches::of(Path::new("/proc/thread-self"));
    let before = own();
    for _ in 0..20 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    // One that finds its time already over is not switched.
    assert!(own().since(before).voluntary >= 10);
}

#[test]
fn all_threads_that_are_alive_are_counted() {
    let own = || Switches::of(Path::new("/proc/thread-self"));
    let (sender, receiver) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let sleeper = std::thread::spawn(move || {
        (0..20).for_each(|_| std::thread::sleep(std::time::Duration::from_millis(1)));
        sender.send(own()).expect("the test waits");
        ended.recv().expect_err("nothing is sent");
    });
    let others = receiver.recv().expect("sent").voluntary;
    let (own, all) = (own().voluntary, Switches::now().voluntary);
    assert!(others >= 10 && all >= own + others, "{all} of all, {own} and {others} of two");
    drop(end);
    sleeper.join().expect("no panic");
}

#[test]
fn counts_are_those_since_the_measurement_began() {
    let before = Waits { wakeups: 10, rule_waits: 3, false_waits: 2, ..Waits::default() };
    let now = Waits { wakeups: 30, rule_waits: 9, false_waits: 4, ..before };
    let c = Coordination::of("x", before, now, Switches { voluntary: 5, involuntary: 1 }, 10);
    assert_eq!((c.wakeups_per_transaction, c.rule_waits, c.false_waits), (2.0, 6, 2));
    assert_eq!((c.false_waits_percent, c.context_switches_per_transaction), (20.0, 0.5));
}
