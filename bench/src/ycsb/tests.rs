//! Operations, rows and lengths of scans are distributed as the mixes say, and a check finds a
//! value that no transaction wrote.

use super::{INSERTED, Mix, Operation, Ycsb, YcsbWorker, inserted_key};
use crate::plan::{Checkpoints, CommitMode, Plan};
use crate::store::{QuenchTransaction, Store, Transaction};
use crate::tpcc::random::{chi_square, chi_square_bound};
use crate::workload::{Acknowledged, Seat, Worker, Workload};
use quenchdb::internals::base::random::Random;
use quenchdb::{Database, Durability, Table};
use std::collections::HashSet;
use std::time::Duration;

fn plan(rows: u64, threads: usize) -> Plan {
    Plan {
        pins: false,
        prices: Default::default(),
        threads,
        duration: Duration::from_millis(1),
        warm_up: None,
        interval: Duration::from_secs(1),
        commit: CommitMode::Blocking,
        rate: None,
        level: Durability::Durable,
        snapshots: false,
        checkpoints: Checkpoints::Automatic,
        rows,
        value_bytes: 80,
        field_bytes: Some(8),
        operations: 1,
        read_percent: 50,
        zipf: 0.99,
        memory_bytes: 64 << 20,
        seed: 1,
    }
}

fn named(plan: &Plan, name: &str) -> Ycsb {
    let (mix, access) = Mix::named(name).expect("a mix of the paper");
    Ycsb::new(plan, name, mix, access)
}

fn filled(ycsb: &Ycsb) -> Database {
    let database = Database::builder().memory_bytes(64 << 20).open_in_memory().expect("memory");
    ycsb.populate(&database, 2, &|_, _, _| {}).expect("populated");
    ycsb.begin(&database).expect("begun");
    database
}

/// Prepares and commits a transaction.
fn one(database: &Database, worker: &mut YcsbWorker<Table>) {
    worker.prepare();
    let mut transaction = QuenchTransaction::from(database.begin().expect("begun"));
    worker.run(&mut transaction).expect("run");
    transaction.commit().expect("committed");
    worker.committed();
}

#[test]
fn every_mix_has_the_shares_of_the_paper() {
    let shares = [
        ("a", [50.0, 50.0, 0.0, 0.0, 0.0]),
        ("b", [95.0, 5.0, 0.0, 0.0, 0.0]),
        ("c", [100.0, 0.0, 0.0, 0.0, 0.0]),
        ("d", [95.0, 0.0, 5.0, 0.0, 0.0]),
        ("e", [0.0, 0.0, 5.0, 95.0, 0.0]),
        ("f", [50.0, 0.0, 0.0, 0.0, 50.0]),
        ("rmw", [0.0, 0.0, 0.0, 0.0, 100.0]),
    ];
    for (name, percentages) in shares {
        let (mix, _) = Mix::named(name).expect("a mix");
        let (mut random, mut seen) = (Random::from_seed(3), [0u64; 5]);
        (0..100_000).for_each(|_| seen[mix.draw(&mut random) as usize] += 1);
        let (mut happened, mut expected) = (Vec::new(), Vec::new());
        for (seen, percent) in seen.into_iter().zip(percentages) {
            if percent == 0.0 {
                assert_eq!(seen, 0, "{name}");
            } else {
                happened.push(seen);
                expected.push(percent * 1000.0);
            }
        }
        let bound = chi_square_bound((happened.len() - 1).max(1));
        assert!(chi_square(&happened, &expected) < bound, "{name}: {happened:?}");
    }
}

#[test]
fn mix_per_transaction_gives_transactions_of_one_kind() {
    let plan = Plan { operations: 10, ..plan(1000, 1) };
    let ycsb = named(&plan, "b").with_mix_per_transaction(true).with_ahead(3);
    let database = filled(&ycsb);
    let mut worker = ycsb.worker(&database, Seat::of(0)).expect("a table");
    let mut seen = [0u64; 2];
    for at in 0..30_000 {
        let intent = worker.prepare();
        let planned = &worker.planned()[at % 3 * 10..][..10];
        assert!(planned.iter().all(|planned| planned.0 as usize == intent.kind), "{planned:?}");
        assert_eq!(intent.reads_only, planned[0].0 == Operation::Read);
        seen[intent.kind] += 1;
    }
    assert!(chi_square(&seen, &[28_500.0, 1_500.0]) < chi_square_bound(1), "{seen:?}");
    assert_eq!(ycsb.kinds()[..2], ["read", "update"]);
}

#[test]
fn scans_read_one_to_a_hundred_rows_all_lengths_alike() {
    let (plan, mut lengths) = (plan(1000, 1), [0u64; 100]);
    let ycsb = named(&plan, "e");
    let database = filled(&ycsb);
    let mut worker = ycsb.worker(&database, Seat::of(0)).expect("a table");
    let mut scans = 0;
    for _ in 0..100_000 {
        worker.prepare();
        if let (Operation::Scan, _, length) = worker.planned()[0] {
            lengths[length as usize - 1] += 1;
            scans += 1;
        }
    }
    let even = [f64::from(scans) / 100.0; 100];
    assert!(chi_square(&lengths, &even) < chi_square_bound(99), "{lengths:?}");
}

#[test]
fn the_newest_rows_are_read_most_and_inserted_ones_are_found() {
    let plan = plan(1000, 2);
    let ycsb = named(&plan, "d");
    let database = filled(&ycsb);
    let mut workers: Vec<_> =
        (0..2).map(|index| ycsb.worker(&database, Seat::of(index)).expect("a table")).collect();
    let read = |worker: &mut YcsbWorker<Table>| -> Vec<u64> {
        let keys = (0..10_000).map(|_| {
            worker.prepare();
            worker.planned()[0]
        });
        keys.filter(|planned| planned.0 == Operation::Read).map(|planned| planned.1).collect()
    };
    // Nothing is inserted yet: the last rows that were loaded, the last of all most.
    let before = read(&mut workers[0]);
    let share = |keys: &[u64], of: &dyn Fn(u64) -> bool| {
        keys.iter().filter(|key| of(**key)).count() as f64 / keys.len() as f64
    };
    assert!(share(&before, &|key| key < 1000) == 1.0);
    // The first rank of Zipf's law over 1000 rows, theta 0.99, has 0.128; both workers' newest row
    // is this one.
    assert!(share(&before, &|key| key == 999) > 0.11, "{}", share(&before, &|key| key == 999));
    assert!(share(&before, &|key| key >= 900) > 0.6);
    for _ in 0..4000 {
        workers.iter_mut().for_each(|worker| one(&database, worker));
    }
    let after = read(&mut workers[1]);
    assert!(share(&after, &|key| key >= INSERTED) > 0.8, "{}", share(&after, &|key| key >= INSERTED));
    let acknowledged = |count| Acknowledged::from([("insert".to_string(), count)]);
    let inserted: u64 = workers.iter().map(YcsbWorker::inserted).sum();
    assert!(inserted > 300);
    let problems = |count| {
        ycsb.check(&database, 2, &acknowledged(count), &|_, _, _| {}).expect("checked").problems.len()
    };
    assert_eq!((problems(inserted), problems(inserted + 1)), (0, 1));
}

#[test]
fn check_finds_absent_rows_and_wrong_values() {
    let ycsb = named(&plan(500, 1), "rmw");
    let database = filled(&ycsb);
    let mut worker = ycsb.worker(&database, Seat::of(0)).expect("a table");
    (0..200).for_each(|_| one(&database, &mut worker));
    let problems =
        || ycsb.check(&database, 2, &Acknowledged::new(), &|_, _, _| {}).expect("checked").problems.len();
    assert_eq!(problems(), 0);
    let table = Store::table(&database, super::TABLE).expect("there");
    let change = |transaction: &mut quenchdb::Transaction| {
        let other = transaction.get(&table, 8u64.to_be_bytes())?.unwrap_or_default();
        transaction.insert(&table, 7u64.to_be_bytes(), other)
    };
    database.transact(change).expect("changed");
    // Its value belongs to another key, so it is no loaded row either.
    assert_eq!(problems(), 2);
}

#[test]
fn every_inserted_row_has_a_key_of_its_own() {
    let mut keys = HashSet::new();
    for run in [0, 1, 65_535] {
        for index in [0, 1, 2047] {
            for n in [0, 1, 2, 1000, (1 << 36) - 1] {
                let key = inserted_key(run, index, n);
                assert!(key >= INSERTED && keys.insert(key), "{run} {index} {n}");
            }
        }
    }
}

#[test]
fn workers_with_ahead_choose_rows_of_many_transactions() {
    let plan = Plan { operations: 3, ..plan(1000, 1) };
    let database = filled(&named(&plan, "a"));
    let seat = Seat { run: 0, index: 0 };
    let mut ahead = named(&plan, "a").with_ahead(5).worker(&database, seat).expect("a worker");
    let mut chosen = Vec::new();
    let before = database.statistics().log_bytes;
    for _ in 0..10 {
        one(&database, &mut ahead);
        chosen.push(ahead.planned().to_vec());
    }
    assert!(chosen.iter().all(|planned| planned.len() == 15));
    assert!(chosen[..5].iter().all(|planned| planned == &chosen[0]));
    assert!(chosen[5..].iter().all(|planned| planned == &chosen[5] && planned != &chosen[0]));
    assert!(database.statistics().log_bytes > before, "half of the operations update");
    let inserts = named(&plan, "d").with_ahead(5).worker(&database, seat).expect("a worker");
    assert_eq!(inserts.planned().len(), 3, "rows that are inserted are chosen by each transaction");
}
