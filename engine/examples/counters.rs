//! Counters that many threads change at once.

use quenchdb::{Database, Isolation, Locking, Result, TransactionOptions, TypedTable};

fn main() -> Result<()> {
    let db = Database::builder().open_in_memory()?;
    let visits: TypedTable<String, i64> = db.typed_table("visits")?;
    // A counter that all threads change: transactions wait for each other instead of failing.
    let hot = TransactionOptions::new().isolation(Isolation::ReadCommitted).locking(Locking::Pessimistic);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..250 {
                    db.transact_with(hot, |tx| visits.add(tx, "home", 1)).expect("commits");
                }
            });
        }
    });
    assert_eq!(visits.get(&db.begin_read()?, "home")?, Some(1000));
    Ok(())
}
