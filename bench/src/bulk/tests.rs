//! Tests of `bulk`.

use super::*;
use crate::plan::{Checkpoints, CommitMode};
use quenchdb::{Database, Durability};
use std::time::Duration;

fn plan(rows: u64) -> Plan {
    Plan {
        pins: false,
        prices: Default::default(),
        threads: 2,
        duration: Duration::from_secs(1),
        warm_up: None,
        interval: Duration::from_secs(1),
        commit: CommitMode::Blocking,
        rate: None,
        level: Durability::Durable,
        snapshots: false,
        checkpoints: Checkpoints::Automatic,
        rows,
        value_bytes: 100,
        field_bytes: None,
        operations: 1,
        read_percent: 0,
        zipf: 0.0,
        memory_bytes: 64 << 20,
        seed: 1,
    }
}

#[test]
fn load_in_either_order_is_exact_and_check_finds_a_missing_row() {
    for order in [Order::Key, Order::Random] {
        let database = Database::builder().memory_bytes(64 << 20).open_in_memory().expect("memory");
        // Not a multiple of the batch, nor of a part.
        let (plan, bulk) = (plan(60_123), Bulk { order, batch: 70 });
        let report = run(&database, &plan, bulk, &|_, _, _| {}).expect("loaded");
        assert_eq!((report.rows, report.order), (60_123, order.name()));
        assert!(report.log_bytes > 60_123 * 108 && report.device_bytes >= report.log_bytes, "{report:?}");
        assert!(report.with_checkpoint_seconds >= report.seconds && report.store_bytes_written > 6_000_000);
        let check = || check(&database, &plan, order, &|_, _, _| {}).expect("checked").problems.len();
        assert_eq!(check(), 0);
        let table = database.table(TABLE).expect("there");
        database.transact(|tx| tx.remove(&table, order.key(60_122).to_be_bytes())).expect("removed");
        assert_eq!(check(), 2, "the count, and the last row");
    }
}
