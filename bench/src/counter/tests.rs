//! Tests of `counter`.

use super::*;
use crate::store::{Concurrency, Configured};
use quenchdb::{Database, Isolation, Locking};

fn filled(counter: Counter) -> Database {
    let database = Database::builder().memory_bytes(64 << 20).open_in_memory().expect("memory");
    counter.populate(&database, 1, &|_, _, _| {}).expect("populated");
    database
}

#[test]
fn pessimistic_threads_never_fail_and_lose_no_count() {
    let counter = Counter { counters: 1 };
    let database = filled(counter);
    for isolation in [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable] {
        let concurrency = Concurrency { isolation, locking: Locking::Pessimistic, ..Concurrency::default() };
        let store = Configured { database: &database, concurrency };
        std::thread::scope(|scope| {
            for index in 0..4 {
                scope.spawn(move || {
                    let mut worker = counter.worker(&store, Seat::of(index)).expect("a table");
                    let mut session = store.worker_session(Level::Durable).expect("open");
                    for _ in 0..200 {
                        let mut transaction = session.begin().expect("begun");
                        worker.run(&mut transaction).expect("waited");
                        transaction.commit().expect("committed");
                    }
                });
            }
        });
    }
    let problems = |promised: u64| {
        let acknowledged = Acknowledged::from([("increment".to_string(), promised)]);
        counter.check(&database, 1, &acknowledged, &|_, _, _| {}).expect("checked").problems
    };
    assert_eq!(problems(2400), Vec::<String>::new());
    assert_eq!(problems(2401), ["2401 increments were acknowledged, but 2400 are counted"]);
}

#[test]
fn threads_have_counters_of_their_own_if_there_are_enough() {
    let counter = Counter { counters: 3 };
    let database = filled(counter);
    let keys = [0, 1, 2, 3].map(|index| counter.worker(&database, Seat::of(index)).expect("a table").key);
    assert_eq!(keys.map(u64::from_be_bytes), [0, 1, 2, 0]);
}
