//! Reads values of 100 bytes from a snapshot: `get WAY COUNT`, as tools/get.c.

use quenchdb::{Database, Result};
use std::hint::black_box;

const ROWS: usize = 10_000;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let (way, count) = (arguments[1].as_str(), arguments[2].parse().expect("a number"));
    let db = Database::builder().open_in_memory()?;
    let table = db.create_table("t")?;
    let mut value = [0; 100];
    value[..5].copy_from_slice(b"value");
    db.transact(|tx| (0..ROWS).try_for_each(|n| tx.insert(&table, format!("{n:016}"), value)))?;
    let snapshot = db.begin_read()?;
    let keys: Vec<String> = (0..ROWS).map(|n| format!("{:016}", n * 7919 % ROWS)).collect();
    let (mut buffer, mut sum) = ([0; 128], 0);
    for n in 0..count {
        let key = &keys[n % ROWS];
        let found = match way {
            "into" => snapshot.get_with(&table, key, |value| {
                black_box(&mut buffer)[..value.len()].copy_from_slice(value);
                value.len()
            })?,
            "with" => snapshot.get_with(&table, key, |value| black_box(value).len())?,
            _ => snapshot.get(&table, key)?.map(|value| black_box(value).len()),
        };
        sum += found.expect("the key exists");
    }
    black_box(sum);
    Ok(())
}
