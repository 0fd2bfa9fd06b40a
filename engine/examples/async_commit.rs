//! Commits that do not wait: a thread continues, and learns later that its transactions are
//! durable. Here it waits for handles; a `CommitHandle` is a future, too.

use quenchdb::{Database, Result, TypedTable};

fn main() -> Result<()> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let db = Database::open(directory.path().join("events"))?;
    let events: TypedTable<u32, String> = db.typed_table("events")?;
    let mut in_flight = Vec::new();
    for n in 0..100 {
        let mut tx = db.begin()?;
        events.insert(&mut tx, n, "something happened")?;
        // Visible to others now.
        in_flight.push((n, tx.commit_async()?));
    }
    for (n, commit) in &in_flight {
        commit.wait()?;
        assert!(commit.is_committed(), "event {n} may be acknowledged to its sender");
    }
    Ok(())
}
