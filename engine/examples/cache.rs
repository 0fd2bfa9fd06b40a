//! A cache whose entries expire: an index finds the oldest, and losing the last moments in a crash
//! is allowed.

use quenchdb::{Database, Durability, Index, Postcard, Result, TypedTable};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Entry {
    expires: u64,
    value: String,
}

struct Cache {
    db: Database,
    entries: TypedTable<String, Postcard<Entry>>,
    by_expiry: Index<u64, String, Postcard<Entry>>,
}

impl Cache {
    fn open(db: Database) -> Result<Cache> {
        let entries = db.typed_table("cache")?;
        let by_expiry = db.index(&entries, "by expiry", |entry: &Entry| [entry.expires])?;
        Ok(Cache { db, entries, by_expiry })
    }

    fn put(&self, key: &str, value: &str, expires: u64) -> Result<()> {
        let entry = Entry { expires, value: value.into() };
        // Written with the next durable commit, or after a while. Never blocks on the disk.
        self.db.transact_with(Durability::Lazy, |tx| self.entries.insert(tx, key, &entry))
    }

    fn get(&self, key: &str, now: u64) -> Result<Option<String>> {
        let entry = self.entries.get(&self.db.begin_read()?, key)?;
        Ok(entry.filter(|entry| entry.expires > now).map(|entry| entry.value))
    }

    /// Deletes what has expired.
    fn clean(&self, now: u64) -> Result<u64> {
        self.db.transact_with(Durability::Lazy, |tx| -> Result<u64> {
            let expired: Vec<String> =
                self.by_expiry.range(tx, ..=now).map(|row| Ok(row?.1)).collect::<Result<_>>()?;
            for key in &expired {
                self.entries.remove(tx, key)?;
            }
            Ok(expired.len() as u64)
        })
    }
}

fn main() -> Result<()> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let cache = Cache::open(Database::open(directory.path().join("cache"))?)?;
    cache.put("a", "first", 10)?;
    cache.put("b", "second", 20)?;
    cache.put("a", "third", 30)?;
    assert_eq!(cache.get("b", 15)?.as_deref(), Some("second"));
    assert_eq!(cache.get("b", 25)?, None);
    assert_eq!(cache.clean(25)?, 1);
    assert_eq!(cache.entries.len(&cache.db.begin_read()?)?, 1);
    Ok(())
}
