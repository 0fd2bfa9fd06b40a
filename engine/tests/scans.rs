//! Every way to read many rows, against an exact model: iterators, borrowed rows and visitors, from
//! both ends, over keys with common prefixes of all lengths.

use quenchdb::internals::base::random::Random;
use quenchdb::{Database, Error, ErrorKind, Reads, Result, Table};
use std::collections::BTreeMap;
use std::ops::Bound;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// The prefixes of a table: their lengths lie around the places where a copy of a leaf changes.
const PREFIXES: [usize; 8] = [0, 1, 7, 15, 16, 17, 40, 300];

fn random_bounds(random: &mut Random, model: &Model) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let mut bound = || {
        let key = model.keys().nth(random.below(model.len() as u64) as usize).cloned().unwrap_or_default();
        match random.below(4) {
            0 => Bound::Unbounded,
            1 => Bound::Excluded(key),
            _ => Bound::Included(key),
        }
    };
    (bound(), bound())
}

/// Returns the rows of the model between two bounds, none if they are inverted.
fn between(model: &Model, (lower, upper): &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> Vec<(Vec<u8>, Vec<u8>)> {
    let is_inside = |key: &Vec<u8>| {
        (match lower {
            Bound::Included(bound) => key >= bound,
            Bound::Excluded(bound) => key > bound,
            Bound::Unbounded => true,
        }) && match upper {
            Bound::Included(bound) => key <= bound,
            Bound::Excluded(bound) => key < bound,
            Bound::Unbounded => true,
        }
    };
    model.iter().filter(|(key, _)| is_inside(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Reads a range in every way, and compares with the model.
fn check(reader: &impl Reads, table: &Table, model: &Model, random: &mut Random) -> Result<()> {
    let bounds = random_bounds(random, model);
    let expected = between(model, &bounds);
    let mut visited = Vec::new();
    reader.for_each(table, &bounds, |key, value| {
        visited.push((key.to_vec(), value.to_vec()));
        Ok(())
    })?;
    assert_eq!(visited, expected, "visitor");
    assert_eq!(reader.range(table, &bounds).collect::<Result<Vec<_>>>()?, expected, "forward");
    let mut backward = reader.range(table, &bounds).rev().collect::<Result<Vec<_>>>()?;
    backward.reverse();
    assert_eq!(backward, expected, "backward");
    // From both ends, in an order that changes.
    let (mut range, mut low, mut high) = (reader.range(table, &bounds), Vec::new(), Vec::new());
    loop {
        let back = random.below(3) == 0;
        let row = if back { range.next_row_back() } else { range.next_row() };
        let Some((key, value)) = row.transpose()? else { break };
        if back { &mut high } else { &mut low }.push((key.to_vec(), value.to_vec()));
    }
    assert!(range.next_row().is_none() && range.next_row_back().is_none());
    low.extend(high.into_iter().rev());
    assert_eq!(low, expected, "from both ends");
    Ok(())
}

#[test]
fn every_kind_of_scan_agrees_with_an_exact_model() -> Result<()> {
    let db = Database::builder().open_in_memory()?;
    for (seed, prefix_len) in PREFIXES.into_iter().enumerate() {
        let mut random = Random::from_seed(seed as u64);
        let table = db.create_table(&format!("prefix of {prefix_len}"))?;
        let prefix = vec![b'p'; prefix_len];
        let mut model = Model::new();
        let mut change = |model: &mut Model, rows: u64| {
            db.transact(|tx| {
                let mut changed = model.clone();
                for _ in 0..rows {
                    let mut key = prefix.clone();
                    key.extend(random.below(2000).to_string().bytes());
                    if random.below(4) == 0 {
                        tx.remove(&table, &key)?;
                        changed.remove(&key);
                    } else {
                        let len = [0, 1, 8, 100, 9000][random.below(100) as usize % 21 / 5];
                        let value = vec![random.below(256) as u8; len];
                        tx.insert(&table, &key, &value)?;
                        changed.insert(key, value);
                    }
                }
                Ok(changed)
            })
        };
        model = change(&mut model, 1500)?;
        let (old, snapshot) = (model.clone(), db.begin_read()?);
        // Rows of the snapshot get newer versions, and tombstones.
        model = change(&mut model, 700)?;
        let mut random = Random::from_seed(seed as u64 + 100);
        for _ in 0..8 {
            check(&snapshot, &table, &old, &mut random)?;
            check(&db.begin_read()?, &table, &model, &mut random)?;
            check(&db.begin()?, &table, &model, &mut random)?;
        }
        assert_eq!(db.begin_read()?.len(&table)?, model.len() as u64);
    }
    Ok(())
}

#[test]
fn a_visitor_that_fails_ends_the_scan_with_its_error() -> Result<()> {
    let db = Database::builder().open_in_memory()?;
    let table = db.create_table("t")?;
    db.transact(|tx| (0..100u8).try_for_each(|n| tx.insert(&table, [n], [n])))?;
    let mut seen = 0;
    let result = db.begin_read()?.for_each(&table, [10].., |key, value| {
        assert_eq!(key, value);
        seen += 1;
        if key == [15] { Err(Error::io("enough", std::io::Error::other("rows"))) } else { Ok(()) }
    });
    assert_eq!((result.expect_err("it failed").kind(), seen), (ErrorKind::Io, 6));
    // It may read and write meanwhile.
    db.begin_read()?.for_each(&table, .., |key, _| {
        db.transact(|tx| tx.insert(&table, [key, &[7]].concat(), "later"))?;
        Ok(())
    })?;
    assert_eq!(db.begin_read()?.len(&table)?, 200);
    Ok(())
}
