//! When a worker counts as idle.

use super::*;
use crate::base::random::Random;

const MOST: u64 = 50_000;

/// A worker whose transactions take 2 us.
struct Worker {
    idle: Idle,
    now: u64,
    slept: u64,
}

impl Worker {
    fn new() -> Worker {
        let mut worker = Worker { idle: Idle::default(), now: 1, slept: 0 };
        worker.transact(0, false);
        worker
    }

    /// Runs a transaction after a pause, in which the thread slept or was preempted.
    fn transact(&mut self, pause: u64, sleeps: bool) {
        self.now += pause;
        self.slept += u64::from(sleeps);
        self.idle.begins(Nanos(self.now), MOST, || self.slept);
        self.now += 2_000;
        self.idle.ends(|| Nanos(self.now), || self.slept);
    }

    fn is_forced(&self, dice: u64) -> bool {
        self.idle.average > 0 && self.idle.average >= dice % MOST
    }
}

#[test]
fn the_odds_of_a_forced_commit_grow_with_idle_time() {
    let forced = |pause: u64| {
        let (mut worker, mut random, mut forced) = (Worker::new(), Random::from_seed(1), 0);
        for _ in 0..1000 {
            worker.transact(pause, true);
            forced += u32::from(worker.is_forced(random.next_u64()));
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
    let mut worker = Worker::new();
    worker.transact(10_000_000_000, true);
    assert!(worker.idle.average > 0);
    (1..200).for_each(|_| worker.transact(100, false));
    assert_eq!(worker.idle.average, 0);
}

#[test]
fn a_preempted_worker_is_not_idle() {
    let mut worker = Worker::new();
    for i in 0..1_000 {
        worker.transact(if i % 10 == 0 { 3_000_000 } else { 100 }, false);
        assert_eq!(worker.idle.average, 0, "transaction {i}");
    }
}

/// A worker that was idle lately, and waits for locks and devices during its transactions.
#[test]
fn a_sleep_during_work_makes_no_pause_idle() {
    let mut worker = Worker::new();
    worker.transact(10 * MOST, true);
    assert!(worker.idle.average > 0);
    for _ in 0..20 {
        let before = worker.idle.average;
        worker.slept += 1;
        let (idle, now, slept) = (&mut worker.idle, worker.now, worker.slept);
        idle.ends(|| Nanos(now), || slept);
        worker.transact(MOST, false);
        assert!(worker.idle.average < before);
    }
}

/// To ask the system takes time, which is no idle time: otherwise it would keep itself alive.
#[test]
fn asking_the_system_is_no_idle_time() {
    let mut worker = Worker::new();
    worker.transact(10 * MOST, true);
    for slept in 0..200 {
        let clock = Cell::new(worker.now);
        let ask = || {
            clock.set(clock.get() + MOST);
            slept
        };
        worker.idle.begins(Nanos(worker.now + 100), MOST, || slept);
        worker.idle.ends(|| Nanos(clock.get()), ask);
        worker.now = clock.get();
    }
    assert_eq!(worker.idle.average, 0);
}

#[test]
fn work_beside_other_work_is_no_idle_time() {
    let mut worker = Worker::new();
    let before = worker.idle;
    worker.idle.begins(Nanos(before.ended - 1_000), MOST, || 0);
    assert_eq!((worker.idle.average, worker.idle.ended), (before.average, before.ended));
}
