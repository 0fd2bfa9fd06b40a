//! The scheduler: the same again from the same seed, other orders from others.

use super::*;
use crate::base::clock::Clock;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::epoch::EpochCell;
use crate::sync::{Event, Mutex, thread};
use std::sync::Arc;

/// Three threads that pass each other a number through everything that `sync` has.
fn script() -> Vec<u64> {
    struct Shared {
        order: Mutex<Vec<u64>>,
        turns: AtomicU64,
        event: Event,
    }
    let shared = Shared { order: Mutex::new(Vec::new()), turns: AtomicU64::new(0), event: Event::new() };
    let shared = std::sync::Arc::new(shared);
    let clock = Clock::real();
    let threads: Vec<_> = (0..3)
        .map(|number| {
            let (shared, clock) = (shared.clone(), clock.clone());
            let work = move || {
                for _ in 0..20 {
                    shared.turns.fetch_add(1, Ordering::SeqCst);
                    shared.order.lock().push(number);
                    shared.event.notify_all();
                    if number == 0 {
                        thread::sleep(Duration::from_micros(50));
                    }
                }
                while shared.turns.load(Ordering::SeqCst) < 60 {
                    let ticket = shared.event.ticket();
                    if shared.turns.load(Ordering::SeqCst) < 60 {
                        shared.event.wait(ticket, None);
                    }
                }
                assert!(clock.now().0 > 0);
            };
            thread::spawn("counter", work).expect("a thread")
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    shared.order.lock().clone()
}

#[test]
fn a_seed_gives_one_order_and_seeds_give_many() {
    let mut orders = std::collections::BTreeSet::new();
    for seed in 0..50 {
        let (first, summary) = run(Plan::of(seed), script);
        let (second, again) = run(Plan::of(seed), script);
        assert_eq!((&first, summary), (&second, again), "seed {seed}");
        assert_eq!((first.len(), summary.threads, summary.panics), (60, 4, 0));
        assert!(summary.nanos >= 20 * 50_000, "thread 0 slept so long");
        orders.insert(first);
    }
    assert!(orders.len() > 25, "{} orders", orders.len());
}

#[test]
fn a_lost_update_is_found() {
    let lost = (0..200).filter(|seed| {
        let script = || {
            let counter = std::sync::Arc::new(AtomicU64::new(0));
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let counter = counter.clone();
                    let add = move || counter.store(counter.load(Ordering::SeqCst) + 1, Ordering::SeqCst);
                    thread::spawn("adder", add).expect("a thread")
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
            counter.load(Ordering::SeqCst)
        };
        run(Plan::of(*seed), script).0 == 1
    });
    let lost = lost.count();
    assert!((1..200).contains(&lost), "{lost} of 200");
}

#[test]
fn panicking_thread_is_joined_with_its_payload() {
    let (said, summary) = run(Plan::of(1), || {
        let thread = thread::spawn("unlucky", || std::panic::resume_unwind(Box::new("so it is")));
        *thread.expect("a thread").join().expect_err("it panics").downcast::<&str>().expect("text")
    });
    assert_eq!((said, summary.panics), ("so it is", 1));
}

#[test]
fn thread_outside_a_simulation_is_unaffected() {
    assert!(!is_simulated() && task().is_none());
    point();
    let lock = Mutex::new(5);
    let event = Event::new();
    event.wait(event.ticket(), Some(Duration::from_millis(1)));
    assert_eq!(*lock.lock(), 5);
    thread::spawn("real", || assert!(!is_simulated())).expect("a thread").join().expect("no panic");
}

#[test]
fn deferred_frees_of_a_simulation_run_at_its_end() {
    let value = Arc::new(());
    let copies = value.clone();
    run(Plan::of(7), move || {
        let cell = Arc::new(EpochCell::default());
        let own = cell.clone();
        let thread = thread::spawn("other", move || {
            let guard = crate::sync::epoch::pin();
            own.replace(Some(copies), &guard);
            own.replace(None, &guard);
        });
        let guard = crate::sync::epoch::pin();
        thread.expect("a thread").join().expect("no panic");
        assert!(cell.load(&guard).is_none());
    });
    assert_eq!(Arc::strong_count(&value), 1, "the process's epochs have it");
}
