//! Tests of the queue: order, wake-ups, deadlocks, timeouts.

use super::*;
use crate::transaction::locks::Held;
use std::sync::Barrier;
use std::thread;

/// Keys that are locked exclusively in this test, by their holders.
#[derive(Default)]
struct Rows(std::sync::Mutex<std::collections::HashMap<u8, DescriptorId>>);

struct World {
    descriptors: Arc<Descriptors>,
    waiters: Waiters,
    locks: TableLocks,
    name: TableName,
    rows: Rows,
}

impl World {
    fn new() -> World {
        let descriptors = Arc::<Descriptors>::default();
        World {
            waiters: Waiters::new(descriptors.clone()),
            descriptors,
            locks: TableLocks::default(),
            name: TableName::new("rows"),
            rows: Rows::default(),
        }
    }

    fn waiter(id: DescriptorId, begun: u64, limit: Duration) -> Waiter {
        Waiter { id, begun: Nanos(begun), priority: 0, limit: Some(limit) }
    }

    fn holder(&self, key: u8) -> Option<DescriptorId> {
        self.rows.0.lock().expect("no panic").get(&key).copied()
    }

    /// Takes the row `key`, waiting for it.
    fn take(&self, waiter: &Waiter, key: u8) -> Result<()> {
        let mut place = None;
        let access = Access::Change(Cow::Owned(vec![key]));
        let taken = loop {
            let ahead = self.waiters.ahead_of(waiter.id, TableId(1), &access, place, &|_| false);
            if ahead.is_empty() {
                let mut rows = self.rows.0.lock().expect("no panic");
                if rows.get(&key).is_none_or(|holder| *holder == waiter.id) {
                    rows.insert(key, waiter.id);
                    break Ok(());
                }
            }
            let look = Look {
                blockers: &|| self.holder(key).filter(|id| *id != waiter.id).into_iter().collect(),
                holds: &|access| match access {
                    Access::Change(key) => self.holder(key[0]) == Some(waiter.id),
                    _ => false,
                },
                is_upgrade: false,
                check_commits: &|| Ok(()),
            };
            let table = InTable { id: TableId(1), name: &self.name, locks: &self.locks };
            if let Err(error) = self.waiters.wait(waiter, table, &access, &mut place, &look) {
                break Err(error);
            }
        };
        if let Some(place) = place {
            self.waiters.leave(&self.locks, place, taken.is_ok());
        }
        taken
    }

    fn end(&self, id: DescriptorId) {
        self.rows.0.lock().expect("no panic").retain(|_, holder| *holder != id);
        self.descriptors.release(id);
        self.waiters.released(id);
    }

    fn await_waiting(&self, count: usize) {
        while self.waiters.report().iter().filter(|waiting| !waiting.blockers.is_empty()).count() != count {
            thread::yield_now();
        }
    }
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_row_of_the_same_thread_is_a_deadlock() {
    let world = World::new();
    let (a, b) = (world.descriptors.take().expect("free"), world.descriptors.take().expect("free"));
    world.take(&World::waiter(a, 1, LONG), 7).expect("free");
    let error = world.take(&World::waiter(b, 2, LONG), 7).expect_err("would never end");
    assert_eq!(error.kind(), ErrorKind::Deadlock);
    assert!(error.to_string().contains("same thread"), "{error}");
    assert!(world.waiters.report().is_empty());
}

/// A call that panicked leaves its transaction in progress for ever.
#[test]
fn a_wait_checks_for_a_panic() {
    let world = World::new();
    let (me, other) = two_threads(&world);
    let asked = std::cell::Cell::new(0);
    let check_commits = || {
        asked.set(asked.get() + 1);
        if asked.get() < 3 { Ok(()) } else { Err(Error::new(ErrorKind::Poisoned, "a panic")) }
    };
    let look = Look {
        blockers: &|| vec![other],
        holds: &|_| false,
        is_upgrade: false,
        check_commits: &check_commits,
    };
    let (mut place, access) = (None, Access::Change(Cow::Borrowed(&[1])));
    let table = InTable { id: TableId(1), name: &world.name, locks: &world.locks };
    let error = world
        .waiters
        .wait(&World::waiter(me, 1, LONG), table, &access, &mut place, &look)
        .expect_err("the check fails");
    assert_eq!(error.kind(), ErrorKind::Poisoned);
}

/// Regression: a transaction belonged to the thread that began it. That thread got an error at once
/// on its rows, although another thread continued the transaction.
#[test]
fn a_transaction_belongs_to_the_thread_that_uses_it() {
    let world = World::new();
    let (a, b) = (world.descriptors.take().expect("free"), world.descriptors.take().expect("free"));
    world.take(&World::waiter(b, 1, LONG), 7).expect("free");
    thread::scope(|scope| {
        scope.spawn(|| world.descriptors.set_thread(b)).join().expect("no panic");
        scope.spawn(|| {
            world.await_waiting(1);
            world.end(b);
        });
        world.take(&World::waiter(a, 2, LONG), 7).expect("another thread continues it");
    });
}

/// Returns a transaction of this thread and one of another.
fn two_threads(world: &World) -> (DescriptorId, DescriptorId) {
    let other = thread::scope(|scope| {
        scope.spawn(|| world.descriptors.take_any().expect("free")).join().expect("no panic")
    });
    (world.descriptors.take_any().expect("free"), other)
}

#[test]
fn a_request_is_given_up_at_its_limit() {
    let world = World::new();
    let (me, holder) = two_threads(&world);
    world.rows.0.lock().expect("no panic").insert(7, holder);
    let error = world.take(&World::waiter(me, 1, Duration::from_millis(15)), 7).expect_err("held");
    assert_eq!(error.kind(), ErrorKind::LockTimeout);
    assert!(error.is_retryable() && error.to_string().contains("rows"), "{error}");
    let at_once = Waiter { limit: None, ..World::waiter(me, 1, LONG) };
    assert_eq!(world.take(&at_once, 7).expect_err("held").kind(), ErrorKind::LockTimeout);
    assert!(world.waiters.report().is_empty() && !world.locks.is_any());
}

/// Each transaction of a cycle waits for the row of the next one.
#[test]
fn the_youngest_of_a_cycle_is_aborted() {
    for count in 2..6u8 {
        let world = World::new();
        let ready = Barrier::new(count.into());
        let failed: Vec<u8> = thread::scope(|scope| {
            let threads: Vec<_> = (0..count)
                .map(|n| {
                    let (world, ready) = (&world, &ready);
                    scope.spawn(move || {
                        let id = world.descriptors.take_any().expect("free");
                        // The transaction in the middle began last.
                        let begun = if n == count / 2 { 100 } else { u64::from(n) };
                        let waiter = World::waiter(id, begun, LONG);
                        world.take(&waiter, n).expect("free");
                        ready.wait();
                        let taken = world.take(&waiter, (n + 1) % count);
                        world.end(id);
                        taken.err().map(|error| {
                            assert_eq!(error.kind(), ErrorKind::Deadlock);
                            let text = format!("a deadlock of {count} transactions");
                            assert!(error.to_string().contains(&text), "{error}");
                            n
                        })
                    })
                })
                .collect();
            threads.into_iter().filter_map(|thread| thread.join().expect("no panic")).collect()
        });
        assert_eq!(failed, [count / 2]);
        assert!(world.waiters.report().is_empty());
    }
}

#[test]
fn the_lowest_priority_is_aborted_first() {
    let world = World::new();
    let ready = Barrier::new(2);
    let failed = thread::scope(|scope| {
        let threads = [5, -5].map(|priority| {
            let (world, ready) = (&world, &ready);
            scope.spawn(move || {
                let id = world.descriptors.take_any().expect("free");
                let (own, other) = if priority > 0 { (1, 2) } else { (2, 1) };
                // The one of high priority is the younger one.
                let waiter = Waiter { priority, ..World::waiter(id, priority as u64 & 0xff, LONG) };
                world.take(&waiter, own).expect("free");
                ready.wait();
                let taken = world.take(&waiter, other);
                world.end(id);
                taken.is_err()
            })
        });
        threads.map(|thread| thread.join().expect("no panic"))
    });
    assert_eq!(failed, [false, true]);
}

/// Waiting transactions get a row in the order in which they came.
#[test]
fn a_queue_is_served_in_order() {
    let world = World::new();
    let first = thread::scope(|scope| {
        scope.spawn(|| world.descriptors.take_any().expect("free")).join().expect("no panic")
    });
    world.rows.0.lock().expect("no panic").insert(7, first);
    let order = std::sync::Mutex::new(Vec::new());
    thread::scope(|scope| {
        for n in 0..6 {
            let (world, order) = (&world, &order);
            scope.spawn(move || {
                let id = world.descriptors.take_any().expect("free");
                world.take(&World::waiter(id, n, LONG), 7).expect("no deadlock");
                order.lock().expect("no panic").push(n);
                world.end(id);
            });
            world.await_waiting(n as usize + 1);
        }
        world.end(first);
    });
    assert_eq!(*order.lock().expect("no panic"), [0, 1, 2, 3, 4, 5]);
}

/// Running transactions pass one that was woken, but not for ever.
#[test]
fn a_woken_request_is_passed_a_few_times_only() {
    let world = World::new();
    let ids: Vec<DescriptorId> = (0..2).map(|_| world.descriptors.take_any().expect("free")).collect();
    let access = Access::Change(Cow::Borrowed(&[7]));
    let look = Look { blockers: &Vec::new, holds: &|_| false, is_upgrade: false, check_commits: &|| Ok(()) };
    let table = InTable { id: TableId(1), name: &world.name, locks: &world.locks };
    let mut place = None;
    world
        .waiters
        .wait(&World::waiter(ids[0], 1, LONG), table, &access, &mut place, &look)
        .expect("nothing blocks it");
    for _ in 0..PASSES {
        assert_eq!(world.waiters.ahead_of(ids[1], TableId(1), &access, None, &|_| false), []);
    }
    assert_eq!(world.waiters.ahead_of(ids[1], TableId(1), &access, None, &|_| false), [ids[0]]);
    let other = Access::Change(Cow::Borrowed(&[8]));
    assert_eq!(world.waiters.ahead_of(ids[1], TableId(1), &other, None, &|_| false), []);
    assert_eq!(world.waiters.ahead_of(ids[1], TableId(2), &access, None, &|_| false), []);
    world.waiters.leave(&world.locks, place.expect("queued"), true);
    assert_eq!(world.waiters.ahead_of(ids[1], TableId(1), &access, None, &|_| false), []);
}

#[test]
fn accesses_exclude_each_other_symmetrically() {
    let key = |key: &'static [u8]| Cow::Borrowed(key);
    let interval = Interval {
        from: std::ops::Bound::Included(b"b".to_vec()),
        to: std::ops::Bound::Excluded(b"d".to_vec()),
    };
    let all = [
        Access::Change(key(b"b")),
        Access::Change(key(b"x")),
        Access::Key(key(b"b"), LockMode::Shared),
        Access::Key(key(b"b"), LockMode::Update),
        Access::Interval(Cow::Borrowed(&interval)),
        Access::Table(LockMode::Shared),
        Access::Table(LockMode::Exclusive),
    ];
    let excluded = |a: &Access<'_>| all.iter().map(|b| u8::from(a.excludes(b))).collect::<Vec<_>>();
    assert_eq!(excluded(&all[0]), [1, 0, 1, 1, 1, 1, 1]);
    assert_eq!(excluded(&all[1]), [0, 1, 0, 0, 0, 1, 1]);
    assert_eq!(excluded(&all[2]), [1, 0, 0, 0, 0, 0, 1]);
    assert_eq!(excluded(&all[3]), [1, 0, 0, 1, 0, 0, 1]);
    assert_eq!(excluded(&all[4]), [1, 0, 0, 0, 0, 0, 1]);
    assert_eq!(excluded(&all[5]), [1, 1, 0, 0, 0, 0, 1]);
    assert_eq!(excluded(&all[6]), [1; 7]);
}

#[test]
fn locks_of_a_table_are_counted_and_forbid() {
    let world = World::new();
    let ids: Vec<DescriptorId> = (0..2).map(|_| world.descriptors.take_any().expect("free")).collect();
    let held = |at: usize, mode| Held { id: ids[at], mode, since: Nanos(0) };
    let forbids = |key: &[u8], me: usize| {
        let mut found = Vec::new();
        world.locks.forbid_change(key, ids[me], &mut found);
        found
    };
    assert!(world.locks.lock_key(b"k", held(0, LockMode::Shared)));
    assert!(!world.locks.lock_key(b"k", held(0, LockMode::Shared)), "the transaction has it already");
    assert!(world.locks.lock_key(b"k", held(1, LockMode::Shared)));
    let place = world.locks.mark_key(b"m");
    assert_eq!((forbids(b"k", 0), forbids(b"k", 1)), (vec![ids[1]], vec![ids[0]]));
    assert_eq!(forbids(b"m", 0), [], "a mark forbids commits only");
    assert!(world.locks.has_marks());
    assert_eq!(world.locks.marks_at(place), 1);
    let number = world.locks.lock_interval(Interval::ALL, held(1, LockMode::Shared));
    assert_eq!(forbids(b"z", 0), [ids[1]]);
    world.locks.unlock_interval(number);
    world.locks.unlock_key(b"k", ids[1], LockMode::Shared);
    world.locks.unmark_key(place);
    assert_eq!(forbids(b"k", 1), [ids[0]]);
    world.locks.unlock_key(b"k", ids[0], LockMode::Shared);
    assert!(!world.locks.is_any() && !world.locks.has_marks());
}
