//! What several of these tests need.
#![allow(dead_code, reason = "no test needs everything")]

use quenchdb::device::simulated::SimulatedStorage;
use quenchdb::{Database, Place};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Rows by table and key.
pub type Content = BTreeMap<(String, Vec<u8>), Vec<u8>>;

/// Every row of every table.
pub fn content(db: &Database) -> Content {
    let snapshot = db.begin_read().expect("free");
    let mut content = Content::new();
    for name in db.tables() {
        let table = db.table(&name).expect("listed");
        for row in snapshot.range::<&[u8]>(&table, ..) {
            let (key, value) = row.expect("readable");
            content.insert((name.clone(), key), value);
        }
    }
    content
}

pub fn place(disk: &SimulatedStorage) -> Place {
    Place::Storage(Arc::new(disk.clone()))
}
