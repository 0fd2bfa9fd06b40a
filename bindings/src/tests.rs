//! Rows beside a model, and settings by their names.

use crate::{Refused, Rows, Value, option, range, set};
use quenchdb::{Database, ErrorKind, Result, Settings, TransactionOptions};
use std::collections::BTreeMap;

/// Steps in both directions, seeks and changes, at random; the model is asked for the next row each
/// time.
#[test]
fn rows_are_those_of_a_model() -> Result<()> {
    let db = Database::builder().open_in_memory()?;
    let table = db.create_table("t")?;
    for seed in 0..200_u64 {
        let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut draw = move |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        let (mut tx, mut model, mut version) = (db.begin()?, BTreeMap::new(), 0);
        for _ in 0..draw(120) {
            let key = vec![draw(100) as u8];
            tx.insert(&table, &key, [seed as u8])?;
            model.insert(key, vec![seed as u8]);
        }
        let keys_only = seed % 3 == 0;
        let limits = range(Some((&[20], seed % 2 == 0)), Some((&[80], seed % 5 == 0)), None)?;
        let mut rows = Rows::new(limits.clone(), keys_only);
        // Where the rows stand: between two keys of the model, doubled, so that there is a place.
        let place_of = |key: &[u8]| 2 * u32::from(key[0]) + 1;
        let mut place = None;
        for _ in 0..300 {
            match draw(12) {
                0 => {
                    let key = vec![draw(100) as u8];
                    rows.seek(&key);
                    place = Some(place_of(&key) - 1);
                }
                1 => {
                    let key = vec![draw(100) as u8];
                    version += 1;
                    if draw(2) == 0 {
                        tx.insert(&table, &key, [7])?;
                        model.insert(key, vec![7]);
                    } else {
                        tx.remove(&table, &key)?;
                        model.remove(&key);
                    }
                }
                way => {
                    let back = way > 8;
                    let found = rows.step(version, back, |ahead| ahead.read(&tx, &table))?;
                    let mut inside = model.range(limits.clone());
                    let expected = match (place, back) {
                        (None, false) => inside.next(),
                        (None, true) => inside.next_back(),
                        (Some(at), false) => inside.find(|(key, _)| place_of(key) > at),
                        (Some(at), true) => inside.rfind(|(key, _)| place_of(key) < at),
                    };
                    let row = rows.row().map(|(key, value)| (key.to_vec(), value.to_vec()));
                    let value = |value: &Vec<u8>| if keys_only { Vec::new() } else { value.clone() };
                    assert_eq!(row, expected.map(|(key, of)| (key.clone(), value(of))), "seed {seed}");
                    assert_eq!(found, row.is_some());
                    place = Some(row.map_or(if back { 0 } else { 2 * 255 }, |(key, _)| place_of(&key)));
                }
            }
        }
        tx.abort();
    }
    Ok(())
}

#[test]
fn wrong_values_are_named() {
    let mut all = Settings::default();
    let cases = [
        ("memory", Value::Number(1), "no setting is called `memory`; there are create, read_only"),
        ("memory_bytes", Value::Name("1"), "memory_bytes: a text was given"),
        ("logs", Value::Number(-1), "logs: -1 is not an integer in the range"),
        ("lock_wait", Value::Text("-1"), "lock_wait: -1 is no number of seconds"),
        ("acknowledge", Value::Text("most"), "`acknowledge` cannot be most: there are majority, all"),
    ];
    for (name, value, text) in cases {
        let error = quenchdb::Error::from(set(&mut all, name, value).expect_err("wrong"));
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().contains(text), "{error}");
    }
    let refused = option(TransactionOptions::new(), "isolation", Value::Place(3)).expect_err("wrong");
    assert!(matches!(refused, Refused::Value(_)), "{refused:?}");
}
