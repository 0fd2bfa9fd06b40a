//! Three levels of durability, chosen for each transaction.

use quenchdb::{Database, Durability, Result};
use std::time::Duration;

fn main() -> Result<()> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let db =
        Database::builder().loss_window(Duration::from_millis(20)).open(directory.path().join("mixed"))?;
    let table = db.create_table("table")?;
    // Survives a power cut when the call returns. The default.
    db.transact(|tx| tx.insert(&table, "payment", "100"))?;
    // Does not wait. A crash loses at most about the last 20 ms.
    db.transact_with(Durability::BoundedLoss, |tx| tx.insert(&table, "click", "1"))?;
    // Does not wait, and causes no write of its own.
    db.transact_with(Durability::Lazy, |tx| tx.insert(&table, "cursor", "3,4"))?;
    // A transaction that read one of these rows is never durable without it.
    let click = db.transact(|tx| tx.get(&table, "click"))?;
    assert_eq!(click.as_deref(), Some(&b"1"[..]));
    Ok(())
}
