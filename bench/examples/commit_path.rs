//! Counts the instructions of a commit with a given number of logs.
//!
//! One thread puts one small row in each transaction, asynchronously, into a database in memory.
//! Callgrind counts the instructions of that thread between begin and the return of the commit;
//! divide by the number of transactions:
//!
//! ```text
//!   cargo build --release -p quench-bench --example commit_path
//!   valgrind --tool=callgrind --toggle-collect='commit_path::transaction*' \
//!       --callgrind-out-file=/dev/null target/release/examples/commit_path 64 10000
//! ```

use quenchdb::internals::device::memory::MemoryStorage;
use quenchdb::{Axes, Database, Error, Layout, Preset, Table};
use std::sync::Arc;

#[inline(never)]
fn transaction(db: &Database, table: &Table, n: u64) -> Result<(), Error> {
    let mut tx = db.begin()?;
    tx.insert(table, (n % 1000).to_be_bytes(), n.to_le_bytes())?;
    tx.commit_async().map(drop)
}

fn main() -> Result<(), Error> {
    let number = |n: usize, default: usize| {
        std::env::args().nth(n).and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (logs, transactions) = (number(1, 1), number(2, 1000));
    let db = Database::builder()
        .storage(Arc::new(MemoryStorage::new()))
        .preset(Preset::Auto)
        .logs(if logs == 1 { 0 } else { logs })
        .memory_bytes(256 << 20)
        .segment_bytes(1 << 20)
        .lab(|lab| {
            let layout = if logs == 1 { Layout::One } else { Layout::ThreadsPerLog };
            lab.protocol = Some(Axes { layout: layout.into(), ..Preset::Auto.axes() });
            lab.log_buffer_bytes = 64 << 10;
        })
        .open("in memory")?;
    let table = db.create_table("rows")?;
    for n in 0..transactions as u64 {
        transaction(&db, &table, n)?;
    }
    db.close()
}
