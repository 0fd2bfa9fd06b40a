//! Take a part of a transaction back, and continue.

use quenchdb::{Database, Result};

fn main() -> Result<()> {
    let db = Database::builder().open_in_memory()?;
    let orders = db.create_table("orders")?;
    let mut tx = db.begin()?;
    tx.insert(&orders, "order 1", "bread")?;
    let before = tx.savepoint();
    tx.insert(&orders, "order 2", "caviar")?;
    tx.remove(&orders, "order 1")?;
    // Too expensive.
    tx.rollback_to(before)?;
    tx.insert(&orders, "order 2", "cheese")?;
    tx.commit()?;
    let snapshot = db.begin_read()?;
    let values: Vec<Vec<u8>> = snapshot.iter(&orders).map(|row| Ok(row?.1)).collect::<Result<_>>()?;
    assert_eq!(values, [&b"bread"[..], b"cheese"]);
    Ok(())
}
