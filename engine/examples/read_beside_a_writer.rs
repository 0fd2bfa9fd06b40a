//! Read the newest checkpoint while another process, or this one, has the database open for
//! writing.

use quenchdb::{Database, Result};

fn main() -> Result<()> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("shared");
    let writer = Database::open(&path)?;
    let table = writer.create_table("table")?;
    writer.transact(|tx| tx.insert(&table, "key", "in the checkpoint"))?;
    writer.checkpoint()?;
    writer.transact(|tx| tx.insert(&table, "key", "only in the log"))?;

    let reader = Database::builder().open_checkpoint(&path)?;
    let seen = reader.begin_read()?.get(&reader.table("table")?, "key")?;
    assert_eq!(seen.as_deref(), Some(&b"in the checkpoint"[..]));
    assert!(reader.checkpoint_csn() > quenchdb::Csn::ZERO);
    Ok(())
}
