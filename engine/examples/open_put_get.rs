//! Open a database, write a row durably, read it back.

use quenchdb::{Database, Result};

fn main() -> Result<()> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    // Creates the database if the directory has none.
    let db = Database::open(directory.path().join("first"))?;
    let words = db.table_or_create("words")?;

    // Durable when this returns.
    db.transact(|tx| tx.insert(&words, "ant", "Ameise"))?;

    let snapshot = db.begin_read()?;
    assert_eq!(snapshot.get(&words, "ant")?.as_deref(), Some("Ameise".as_bytes()));
    assert!(!snapshot.contains_key(&words, "bee")?);
    drop(snapshot);
    // The next open needs no recovery. Dropping the last handle does the same, without the result.
    db.close()
}
