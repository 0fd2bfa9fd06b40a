//! A struct as a key: `#[derive(Key)]`, of the feature `derive`.

use quenchdb::{Database, Key, Result, TypedTable};

/// Ordered by tenant, then by number.
#[derive(Key, Clone, PartialEq, Debug)]
struct InvoiceKey {
    tenant: String,
    number: u32,
}

fn main() -> Result<()> {
    let db = Database::builder().open_in_memory()?;
    let invoices: TypedTable<InvoiceKey, i64> = db.typed_table("invoices")?;
    let key = |tenant: &str, number| InvoiceKey { tenant: tenant.into(), number };
    db.transact(|tx| {
        invoices.insert(tx, key("acme", 2), &250)?;
        invoices.insert(tx, key("acme", 1), &100)?;
        invoices.insert(tx, key("zoo", 1), &70)
    })?;
    let snapshot = db.begin_read()?;
    let of_acme = invoices.range(&snapshot, key("acme", 0)..=key("acme", u32::MAX));
    let amounts: Vec<i64> = of_acme.map(|row| Ok(row?.1)).collect::<Result<_>>()?;
    assert_eq!(amounts, [100, 250]);
    Ok(())
}
