//! Rows that are locked before they are read: for short transactions that change the same few rows.

use quenchdb::{Database, ErrorKind, Locking, Result, TransactionOptions};

fn main() -> Result<()> {
    let db = Database::builder().open_in_memory()?;
    let seats = db.create_table("seats")?;
    db.transact(|tx| tx.insert(&seats, "7A", "free"))?;

    let options = TransactionOptions::new().locking(Locking::Pessimistic);
    let mut first = db.begin_with(options)?;
    assert_eq!(first.get_for_update(&seats, "7A")?.as_deref(), Some(&b"free"[..]));
    // Another customer wants the same seat, and does not want to wait.
    let mut second = db.begin_with(options.no_wait())?;
    let error = second.get_for_update(&seats, "7A").expect_err("the first has it");
    assert_eq!(error.kind(), ErrorKind::LockTimeout);
    drop(second);
    first.insert(&seats, "7A", "ann")?;
    first.commit().map(drop)
}
