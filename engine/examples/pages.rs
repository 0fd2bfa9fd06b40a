//! Pages of a list: each page begins behind the last key of the page before, so that no row is
//! shown twice or skipped when rows are inserted meanwhile.

use quenchdb::{Database, Result, TypedTable};
use std::ops::Bound;

fn page(
    db: &Database,
    names: &TypedTable<String, u32>,
    behind: Option<&str>,
    rows: usize,
) -> Result<Vec<String>> {
    let from = behind.map_or(Bound::Unbounded, Bound::Excluded);
    let snapshot = db.begin_read()?;
    names.range(&snapshot, (from, Bound::Unbounded)).take(rows).map(|row| Ok(row?.0)).collect()
}

fn main() -> Result<()> {
    let db = Database::builder().open_in_memory()?;
    let names = db.typed_table("names")?;
    db.transact(|tx| {
        ["ann", "bob", "eve", "kim", "lea"].iter().try_for_each(|name| names.insert(tx, name, &1))
    })?;
    let first = page(&db, &names, None, 2)?;
    assert_eq!(first, ["ann", "bob"]);
    db.transact(|tx| names.insert(tx, "amy", &1))?;
    assert_eq!(page(&db, &names, first.last().map(String::as_str), 2)?, ["eve", "kim"]);
    Ok(())
}
