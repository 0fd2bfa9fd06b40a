//! Measurements by sensor and time: the newest first, ranges of time, and deleting what is old.

use quenchdb::{Database, Result, TypedTable};
use std::cmp::Reverse;

fn main() -> Result<()> {
    let db = Database::builder().open_in_memory()?;
    // The key of a row begins with the sensor; of each sensor, the newest row comes first.
    let values: TypedTable<(String, Reverse<u64>), f64> = db.typed_table("values")?;
    db.transact(|tx| -> Result<()> {
        for minute in 0..60_u64 {
            values.insert(tx, ("kitchen", Reverse(minute)), &(20.0 + minute as f64 / 10.0))?;
            values.insert(tx, ("cellar", Reverse(minute)), &12.5)?;
        }
        Ok(())
    })?;
    let snapshot = db.begin_read()?;
    let newest = values.prefix(&snapshot, ("kitchen",)).next().expect("a row")?;
    assert_eq!(newest, (("kitchen".into(), Reverse(59)), 25.9));
    // From minute 19 back to minute 10.
    let some = values.range(&snapshot, ("kitchen", Reverse(19))..=("kitchen", Reverse(10)));
    assert_eq!(some.count(), 10);
    drop(snapshot);

    let removed =
        db.transact(|tx| values.remove_range(tx, ("kitchen", Reverse(29))..=("kitchen", Reverse(0))))?;
    assert_eq!(removed, 30);
    Ok(())
}
