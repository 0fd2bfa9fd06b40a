//! Rename, clear and drop tables; check and compact the database.

use quenchdb::{Database, Result};

fn main() -> Result<()> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let db = Database::open(directory.path().join("kept"))?;
    let table = db.create_table("new users")?;
    db.transact(|tx| (0..5_000_u32).try_for_each(|n| tx.insert(&table, n.to_be_bytes(), "user")))?;
    // The handle stays valid.
    db.rename_table("new users", "users")?;
    assert_eq!(&*table.name(), "users");
    // The old handle does not: this is another, empty table.
    let users = db.clear_table("users")?;
    assert!(db.begin_read()?.is_empty(&users)?);

    let progress = |step: &str, done: u64, total: u64| println!("{step}: {done} of {total}");
    db.compact(Some(Box::new(progress)))?;
    let report = db.verify(None)?;
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    drop(users);
    db.drop_table("users")?;
    db.close()
}
