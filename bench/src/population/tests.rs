//! Tests of `population`.

use super::*;
use crate::tpcb::{BranchUpdate, Tpcb};

#[test]
fn a_population_is_found_again_and_runs_are_counted() {
    let database = quenchdb::Database::builder().memory_bytes(64 << 20).open_in_memory().expect("memory");
    let tpcb =
        |accounts| Tpcb { branches: 1, accounts, skew: 0.5, branch_update: BranchUpdate::Last, seed: 1 };
    let prepare = |accounts, reuse| prepare(&tpcb(accounts), &database, 1, reuse, &|_, _, _| {});
    assert_eq!(found(&database).expect("read"), None);
    assert!(!prepare(50, true).expect("filled"));
    assert!(prepare(50, true).expect("found"));
    let error = prepare(60, true).expect_err("another one").to_string();
    assert!(error.contains("1 branches of 50 accounts"), "{error}");
    let begin = |runs| begin_runs(&database, runs).expect("counted");
    assert_eq!((begin(3), begin(1), begin(1)), (0, 3, 4));
}
