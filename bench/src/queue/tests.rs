//! Tests of `queue`.

use super::*;
use crate::store::Configured;
use quenchdb::Database;

fn queue(producers: Option<usize>, long_snapshot: bool) -> Queue {
    Queue { queues: 2, backlog: 600, producers, value_bytes: 40, long_snapshot, next: Arc::default() }
}

fn filled(queue: &Queue) -> Database {
    let database = Database::builder().memory_bytes(64 << 20).open_in_memory().expect("memory");
    queue.populate(&database, 1, &|_, _, _| {}).expect("populated");
    queue.begin(&database).expect("begun");
    database
}

/// Runs so many transactions in each of four threads. Returns how many rows were put.
fn run(queue: &Queue, database: &Database, run: u64, times: usize) -> u64 {
    let store = Configured { database, concurrency: Default::default() };
    let work = |index: usize| {
        let mut worker = queue.worker(&store, Seat { run, index }).expect("tables");
        let mut session = store.worker_session(Level::Lazy).expect("open");
        let mut put = 0;
        for _ in 0..times {
            let kind = worker.prepare().kind;
            loop {
                let mut transaction = session.begin().expect("begun");
                match worker.run(&mut transaction).and_then(|_| transaction.commit()) {
                    Ok(()) => break put += u64::from(kind == PUT),
                    Err(Error::Conflict) => {}
                    Err(Error::Failed(error)) => panic!("{error}"),
                }
            }
        }
        put
    };
    queue
        .around(&store, || {
            Ok(std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|index| scope.spawn(move || work(index))).collect();
                threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
            }))
        })
        .expect("the snapshot stays as it is")
}

#[test]
fn rows_are_taken_once_and_in_order() {
    for (producers, long_snapshot) in [(None, false), (Some(2), true), (Some(0), true)] {
        let queue = queue(producers, long_snapshot);
        let database = filled(&queue);
        let put = run(&queue, &database, 0, 200) + run(&queue, &database, 1, 200);
        assert_eq!(put, if producers == Some(0) { 0 } else { 800 });
        let problems = |promised: u64| {
            let acknowledged = Acknowledged::from([("put".to_string(), promised)]);
            queue.check(&database, 1, &acknowledged, &|_, _, _| {}).expect("checked").problems
        };
        assert_eq!(problems(put), Vec::<String>::new());
        assert_eq!(problems(put + 1).len(), 1);
    }
}

#[test]
fn taking_a_row_visits_few_deleted_rows() {
    let queue = Queue { queues: 1, backlog: 5000, ..queue(Some(0), true) };
    let database = filled(&queue);
    run(&queue, &database, 0, 1000);
    let visited = database.statistics().deleted_rows_visited;
    assert!(visited < 40 * 4000, "{visited} deleted rows visited");
}
