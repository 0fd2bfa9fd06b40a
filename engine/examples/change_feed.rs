//! A copy that follows a database: it stores how far it has read together with what it has copied,
//! and continues there after the database was closed.

use quenchdb::{Change, Csn, Database, Result, TypedTable};
use std::collections::BTreeMap;
use std::path::Path;

/// Stands for a search index, a cache, or another database.
#[derive(Default)]
struct Copy {
    cities: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Everything up to this commit is in the copy.
    csn: Csn,
}

impl Copy {
    /// Reads what was committed since, without waiting for more.
    fn follow(&mut self, db: &Database) -> Result<()> {
        let mut changes = db.changes(self.csn)?;
        while let Some(transaction) = changes.try_next()? {
            for change in transaction.changes() {
                match change? {
                    Change::Put { table, key, value } if table.name() == "cities" => {
                        self.cities.insert(key, value);
                    }
                    Change::Delete { table, key } if table.name() == "cities" => {
                        self.cities.remove(&key);
                    }
                    // Other tables, and creations of tables.
                    _ => {}
                }
            }
            self.csn = transaction.csn();
        }
        Ok(())
    }
}

fn open(path: &Path) -> Result<Database> {
    // Log for readers that are not connected, also while the database is closed.
    Database::builder().change_history_bytes(64 << 20).open(path)
}

fn main() -> Result<()> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("cities");
    let mut copy = Copy::default();

    let db = open(&path)?;
    let cities: TypedTable<String, String> = db.typed_table("cities")?;
    db.transact(|tx| cities.insert(tx, "Vienna", "Austria"))?;
    copy.follow(&db)?;
    assert_eq!(copy.cities.len(), 1);
    // The copy does not see these before the database is open again.
    db.transact(|tx| cities.insert(tx, "Lisbon", "Portugal"))?;
    db.transact(|tx| cities.remove(tx, "Vienna"))?;
    db.close()?;

    let db = open(&path)?;
    copy.follow(&db)?;
    assert_eq!(copy.cities.len(), 1);
    println!("the copy has {} city, up to commit {}", copy.cities.len(), copy.csn);

    // The changes of some rows, from now on.
    let cities: TypedTable<String, String> = db.typed_table("cities")?;
    let mut watch = db.watch(cities.untyped(), "L")?;
    db.transact(|tx| cities.insert(tx, "London", "England"))?;
    let (csn, change) = watch.next().expect("the database is open")?;
    println!("commit {csn} changed {:?}", change.key().map(String::from_utf8_lossy));
    Ok(())
}
