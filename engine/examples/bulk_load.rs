//! Load many rows fast: some thousand rows a transaction, in the order of the keys, without waiting
//! for each transaction.

use quenchdb::{Database, Durability, Result, TypedTable};

const ROWS: u64 = 50_000;
const ROWS_AT_ONCE: u64 = 5_000;

fn main() -> Result<()> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let db = Database::open(directory.path().join("loaded"))?;
    let rows: TypedTable<u64, String> = db.typed_table("rows")?;
    for first in (0..ROWS).step_by(ROWS_AT_ONCE as usize) {
        db.transact_with(Durability::Lazy, |tx| {
            (first..first + ROWS_AT_ONCE).try_for_each(|n| rows.insert(tx, n, &format!("row {n}")))
        })?;
    }
    // Everything is durable from here on.
    db.flush()?;
    assert_eq!(rows.len(&db.begin_read()?)?, ROWS);
    Ok(())
}
