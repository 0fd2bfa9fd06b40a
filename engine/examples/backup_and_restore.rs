//! Back up a database while it is used, then only what has changed, and restore both.

use quenchdb::{BackupOptions, Database, Place, RestoreOptions, Result};

fn main() -> Result<()> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let [original, full, second, restored] =
        ["original", "full", "second", "restored"].map(|name| directory.path().join(name));
    let db = Database::open(&original)?;
    let table = db.create_table("table")?;
    db.transact(|tx| (0..1000_u32).try_for_each(|n| tx.insert(&table, n.to_be_bytes(), "old")))?;
    db.backup(full.as_path(), BackupOptions::default())?;

    db.transact(|tx| tx.insert(&table, 7_u32.to_be_bytes(), "new"))?;
    let base = Place::from(full.as_path());
    let report = db.backup(second.as_path(), BackupOptions::default().with(|o| o.base = Some(base)))?;
    println!("{report:?}");
    drop(table);
    db.close()?;

    let chain = [Place::from(full.as_path()), Place::from(second.as_path())];
    Database::restore(chain, restored.as_path(), RestoreOptions::default())?;
    let copy = Database::open(&restored)?;
    let snapshot = copy.begin_read()?;
    let table = copy.table("table")?;
    assert_eq!(snapshot.get(&table, 7_u32.to_be_bytes())?.as_deref(), Some(&b"new"[..]));
    assert_eq!(snapshot.len(&table)?, 1000);
    Ok(())
}
