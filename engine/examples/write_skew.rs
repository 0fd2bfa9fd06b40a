//! Two doctors are on call, and each may leave if the other one stays. Snapshot isolation lets both
//! leave at once; serializable transactions do not.

use quenchdb::{Database, Isolation, Result, TransactionOptions, TypedTable};

fn leave_together(isolation: Isolation) -> Result<u64> {
    let db = Database::builder().open_in_memory()?;
    let on_call: TypedTable<String, bool> = db.typed_table("on call")?;
    db.transact(|tx| {
        on_call.insert(tx, "ann", &true)?;
        on_call.insert(tx, "bob", &true)
    })?;
    let others = |tx: &_, name: &str| -> Result<usize> {
        let rows = on_call.iter(tx).collect::<Result<Vec<_>>>()?;
        Ok(rows.iter().filter(|(other, is_on)| other != name && *is_on).count())
    };
    let options = TransactionOptions::new().isolation(isolation);
    let (mut ann, mut bob) = (db.begin_with(options)?, db.begin_with(options)?);
    for (tx, name) in [(&mut ann, "ann"), (&mut bob, "bob")] {
        if others(tx, name)? > 0 {
            on_call.insert(tx, name, &false)?;
        }
    }
    // A transaction that may not commit gets a conflict; `transact` would run it again.
    let _ = (ann.commit(), bob.commit());
    let snapshot = db.begin_read()?;
    Ok(on_call.iter(&snapshot).filter(|row| row.as_ref().is_ok_and(|(_, is_on)| *is_on)).count() as u64)
}

fn main() -> Result<()> {
    assert_eq!(leave_together(Isolation::Snapshot)?, 0, "no doctor is on call");
    assert_eq!(leave_together(Isolation::Serializable)?, 1, "one of both had to stay");
    Ok(())
}
