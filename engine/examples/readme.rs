//! The program of the README. Prints what the README says.

use quenchdb::{Database, Postcard, Result, TypedTable};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct User {
    name: String,
    city: String,
}

fn main() -> Result<()> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let db = Database::open(directory.path().join("shop"))?;

    // A table with types, and an index that every change keeps.
    let users: TypedTable<u64, Postcard<User>> = db.typed_table("users")?;
    let by_city = db.index(&users, "by city", |user: &User| [user.city.clone()])?;

    // Durable when `transact` returns. Runs again if another transaction changed the same rows.
    db.transact(|tx| {
        users.insert(tx, 1, &User { name: "Alice".into(), city: "Vienna".into() })?;
        users.insert(tx, 2, &User { name: "Bob".into(), city: "Graz".into() })
    })?;

    // A consistent view that does not move and blocks no writer.
    let snapshot = db.begin_read()?;
    for row in by_city.get(&snapshot, "Vienna") {
        let (city, id, user) = row?;
        println!("{} ({id}) lives in {city}", user.name);
    }
    for row in users.range(&snapshot, 1..10) {
        println!("user {}", row?.0);
    }

    // Visible to others at once; durable when `wait` returns, or the handle has been awaited.
    let mut tx = db.begin()?;
    users.remove(&mut tx, 2)?;
    tx.commit_async()?.wait()?;

    // Every committed transaction, in order, for a copy elsewhere; resumes at a stored CSN.
    let mut changes = db.changes(snapshot.csn())?;
    if let Some(transaction) = changes.try_next()? {
        println!("commit {} made {} changes", transaction.csn(), transaction.changes().count());
    }

    drop(snapshot);
    db.close()
}
