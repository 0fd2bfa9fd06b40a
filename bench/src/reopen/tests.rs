//! Tests of `reopen`.

use super::*;
use crate::plan::{Checkpoints, CommitMode};
use quenchdb::Durability;
use std::time::Duration;

fn plan(rows: u64) -> Plan {
    Plan {
        pins: false,
        prices: Default::default(),
        threads: 1,
        duration: Duration::from_millis(1),
        warm_up: None,
        interval: Duration::from_secs(1),
        commit: CommitMode::Blocking,
        rate: None,
        level: Durability::Durable,
        snapshots: false,
        checkpoints: Checkpoints::Automatic,
        rows,
        value_bytes: 40,
        field_bytes: None,
        operations: 1,
        read_percent: 50,
        zipf: 0.0,
        memory_bytes: 64 << 20,
        seed: 1,
    }
}

fn database() -> Database {
    Database::builder().memory_bytes(64 << 20).open_in_memory().expect("memory")
}

#[test]
fn a_sample_finds_rows_that_are_absent_and_rows_that_are_wrong() {
    let (database, plan) = (database(), plan(2000));
    let table = ycsb::prepare(&database, &plan, false, &|_, _, _| {}).expect("loaded");
    let check = || {
        let mut reopened = Reopened::default();
        check_sample(&database, &plan, Expected::Loaded, &mut reopened).expect("read");
        reopened
    };
    let before = check();
    assert_eq!((before.sampled, before.found, before.missing, before.wrong), (2000, 2000, 0, 0));
    assert!(before.is_sound());
    let change = |transaction: &mut quenchdb::Transaction| -> quenchdb::Result<()> {
        for row in 0..1000u64 {
            transaction.remove(&table, row.to_be_bytes())?;
            let other = transaction.get(&table, (row + 1000).to_be_bytes())?.unwrap_or_default();
            let place = (row + 1000) ^ 1;
            transaction.insert(&table, place.to_be_bytes(), other)?;
        }
        Ok(())
    };
    database.transact(change).expect("changed");
    let after = check();
    assert!(after.missing > 800 && after.wrong > 300 && !after.is_sound(), "{after:?}");
    assert_eq!(after.found + after.missing + after.wrong, after.sampled);
}

#[test]
fn inserted_rows_count_as_lost_only_if_they_were_durable() {
    let (database, plan) = (database(), plan(1));
    database.table_or_create(put::TABLE).expect("created");
    let missing = |durable| {
        let expected = Expected::Inserted { by_worker: &[3, 0, 4], durable };
        let mut reopened = Reopened::default();
        check_sample(&database, &plan, expected, &mut reopened).expect("read");
        (reopened.sampled, reopened.missing)
    };
    assert_eq!((missing(true), missing(false)), ((7, 7), (7, 0)));
    let rows = Numbered::of(Expected::Inserted { by_worker: &[3, 0, 4], durable: true }, &plan);
    assert_eq!((rows.key(2), rows.key(3)), (put::key(0, 2), put::key(2, 0)));
}

#[test]
fn a_soak_names_rows_that_are_absent_or_wrong() {
    let (database, plan) = (database(), plan(500));
    let table = ycsb::prepare(&database, &plan, true, &|_, _, _| {}).expect("loaded");
    let judge = || {
        let (run, space) = (crate::report::Report::default(), crate::soak::Space::default());
        crate::soak::judge(&database, &plan, run, space, None, None, &|_, _, _| {}).expect("checked")
    };
    let before = judge();
    assert!(before.problems.is_empty(), "{:?}", before.problems);
    assert_eq!(before.logical_bytes, crate::soak::loaded_bytes(&plan));
    let change = |transaction: &mut quenchdb::Transaction| {
        transaction.remove(&table, 7u64.to_be_bytes())?;
        transaction.insert(&table, 8u64.to_be_bytes(), [0; 40])
    };
    database.transact(change).expect("changed");
    let problems = judge().problems;
    assert_eq!(problems, ["499 rows, not 500", "1 rows with a value that no transaction wrote"]);
}
