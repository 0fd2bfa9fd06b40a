//! Tests of `instructions`.

use super::report::{Compared, Instructions, Unit};
use super::run::{Rows, run, run_own};
use super::{Measured, Operation};
use crate::engine::Engine;
use crate::store::Level;
use crate::tpcc::schema::Scale;
use crate::tpcc::{Home, Selection, Tpcc};
use quenchdb::Database;

fn measure(operation: Operation) -> Measured {
    let database = Database::builder().memory_bytes(256 << 20).open_in_memory().expect("opens");
    let tpcc = Tpcc {
        warehouses: 1,
        scale: Scale::SMALL,
        selection: Selection::Weighted,
        home: Home::Fixed,
        pace: 0.0,
        population_seed: 1,
        run_seed: 1,
    };
    let rows = Rows { count: 1_000, value_bytes: 100 };
    let measured = run_own(&database, operation, rows, &tpcc).expect("runs");
    database.close().expect("closes");
    measured
}

/// Each operation looks for its rows itself: one that is missing is an error.
#[test]
fn each_operation_runs_as_often_as_it_says() {
    for operation in Operation::ALL {
        let measured = measure(operation);
        assert_eq!(measured.operations, operation.count(1_000), "{operation:?}");
        assert!(measured.nanoseconds > 0, "{operation:?}");
        assert_eq!(Operation::named(operation.name()), Some(operation));
    }
}

#[test]
fn operation_of_quenchdb_alone_is_refused_for_a_store() {
    let database = Database::builder().memory_bytes(64 << 20).open_in_memory().expect("opens");
    let rows = Rows { count: 10, value_bytes: 8 };
    let error = run(&database, Operation::Payment, Level::Lazy, rows).expect_err("no store has it");
    assert!(error.to_string().contains("payment"), "{error}");
    assert!(!Operation::Payment.is_of(Engine::Lmdb) && Operation::Get.is_of(Engine::Lmdb));
}

fn report(numbers: &[(Operation, &str, u64)]) -> Instructions {
    let mut report = Instructions::new(Unit::Instructions, 300, 100);
    numbers.iter().for_each(|(operation, engine, number)| report.set(*operation, engine, *number));
    report
}

#[test]
fn number_above_the_recorded_one_is_found() {
    let recorded = report(&[(Operation::Get, "quenchdb", 1_000), (Operation::Scan, "quenchdb", 200)]);
    let judge = |get, scan| {
        let now = report(&[(Operation::Get, "quenchdb", get), (Operation::Scan, "quenchdb", scan)]);
        Compared::new(now, &recorded)
    };
    assert!(judge(1_030, 206).is_sound() && judge(500, 1).is_sound());
    assert!(!judge(1_031, 200).is_sound() && !judge(1_000, 207).is_sound());
    let text = judge(1_040, 200).to_string();
    assert!(text.contains("+4.0 % of 1,000  TOO MANY") && text.contains("by more than 3 %"), "{text}");
    let unknown = Compared::new(report(&[(Operation::Delete, "quenchdb", 1)]), &recorded);
    assert!(!unknown.is_sound() && unknown.to_string().contains("not recorded"), "{unknown}");
}

#[test]
fn renewal_replaces_measured_numbers_and_keeps_others() {
    let recorded = report(&[(Operation::Scan, "lmdb", 161), (Operation::Delete, "quenchdb", 9_000)]);
    let now = report(&[(Operation::Scan, "quenchdb", 150), (Operation::Get, "quenchdb", 900)]);
    let renewed = now.over(&recorded);
    let names: Vec<_> = renewed.operations.iter().map(|line| line.operation.as_str()).collect();
    assert_eq!(names, ["get", "scan", "delete"], "in the order of tables");
    assert_eq!(renewed.number("scan", "lmdb"), Some(161));
    assert_eq!(renewed.number("scan", "quenchdb"), Some(150));
    let text = serde_json::to_string(&renewed).expect("JSON");
    assert_eq!(serde_json::from_str::<Instructions>(&text).expect("the same"), renewed);
    assert!(renewed.has_table_of(&recorded));
    assert!(renewed.to_string().contains("  scan                     150       161"), "{renewed}");
}
