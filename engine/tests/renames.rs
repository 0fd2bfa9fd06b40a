//! Creating, dropping, renaming and clearing tables, with crashes: what recovery finds is a state
//! that the catalog had, and none before the last acknowledged change.

use crate::support::test_database::{TestDatabase, tiny};
use quenchdb::internals::base::depth::depth;
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::simulated::{CrashKind, SimulatedStorage};
use quenchdb::{Database, ErrorKind, Result};
use std::collections::BTreeMap;

const SEEDS: u64 = 400;
const CRASHES: u64 = 12;
const MEMORY_BYTES: u64 = 4 << 20;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// The tables, each with its only row, if it has one.
type Tables = BTreeMap<String, Option<Vec<u8>>>;

fn content(db: &Database) -> Tables {
    let snapshot = db.begin_read().expect("free");
    let row = |name: String| {
        let table = db.table(&name).expect("it is listed");
        assert_eq!(&*table.name(), name);
        let row = snapshot.first(&table).expect("whole").map(|(_, value)| value);
        (name, row)
    };
    db.tables().into_iter().map(row).collect()
}

/// Changes tables, and returns all states with the number of operations when each was durable.
fn work(db: &Database, disk: &SimulatedStorage, random: &mut Random) -> Vec<(usize, Tables)> {
    let mut now = Tables::new();
    let mut states = vec![(0, now.clone())];
    for n in 0..30_u32 {
        let name = NAMES[random.below(4) as usize];
        let other = NAMES[random.below(4) as usize];
        let refused = |error: quenchdb::Error| match error.kind() {
            ErrorKind::NotFound => assert!(!now.contains_key(name), "{error}"),
            ErrorKind::AlreadyExists => assert!(now.contains_key(name) || now.contains_key(other), "{error}"),
            _ => panic!("{error}"),
        };
        match random.below(8) {
            0 => db.checkpoint().map(drop).expect("no fault"),
            1 => match db.create_table(name) {
                Ok(_) => drop(now.insert(name.into(), None)),
                Err(error) => refused(error),
            },
            2 => match db.drop_table(name) {
                Ok(()) => drop(now.remove(name)),
                Err(error) => refused(error),
            },
            3 => match db.clear_table(name) {
                Ok(_) => drop(now.insert(name.into(), None)),
                Err(error) => refused(error),
            },
            4 | 5 => match db.rename_table(name, other) {
                Ok(()) => {
                    let rows = now.remove(name).expect("the model has it");
                    assert!(now.insert(other.into(), rows).is_none(), "{name} replaced {other}");
                }
                Err(error) => refused(error),
            },
            _ => {
                let table = db.table_or_create(name).expect("no fault");
                now.entry(name.into()).or_default();
                states.push((disk.operations(), now.clone()));
                db.transact(|tx| tx.insert(&table, "row", n.to_be_bytes())).expect("no conflict");
                now.insert(name.into(), Some(n.to_be_bytes().to_vec()));
            }
        }
        states.push((disk.operations(), now.clone()));
    }
    assert_eq!(content(db), now);
    states
}

#[test]
fn recovery_finds_a_state_of_the_catalog() {
    for seed in 0..depth(SEEDS) {
        let mut random = Random::from_seed(seed);
        let (disk, db) = tiny(MEMORY_BYTES).create(seed);
        let states = work(&db, &disk, &mut random);
        disk.stop();
        for _ in 0..CRASHES {
            let at = random.below(disk.operations() as u64 + 1) as usize;
            let kind = if random.chance(1, 2) { CrashKind::Kill } else { CrashKind::PowerCut };
            let left = disk.crash(kind, at, random.next_u64());
            let acknowledged = states.iter().rposition(|(operations, _)| *operations <= at).unwrap_or(0);
            let recovered = tiny(MEMORY_BYTES).open(&left);
            let found = content(&recovered);
            assert!(
                states[acknowledged..].iter().any(|(_, state)| *state == found),
                "seed {seed}, operation {at}: {found:?} is no state from {:?} on",
                states[acknowledged]
            );
            let report = recovered.verify(None).expect("runs");
            assert!(report.problems.is_empty(), "{report:?}");
        }
    }
}

#[test]
fn users_of_a_table_continue_while_it_is_renamed() -> Result<()> {
    let db = tiny(MEMORY_BYTES).open_in_memory();
    let table = db.create_table("old")?;
    let mut tx = db.begin()?;
    tx.insert(&table, "key", "value")?;
    let snapshot = db.begin_read()?;
    assert!(snapshot.is_empty(&table)?);
    db.rename_table("old", "new")?;
    assert_eq!(&*table.name(), "new");
    tx.insert(&table, "other", "value")?;
    tx.commit()?;
    assert!(snapshot.is_empty(&table)?);
    assert_eq!(db.begin_read()?.len(&db.table("new")?)?, 2);
    assert_eq!(db.table("old").expect_err("renamed").kind(), ErrorKind::NotFound);
    let error = db.rename_table("new", &"x".repeat(256)).expect_err("too long");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(db.rename_table("new", "new").expect_err("taken").kind(), ErrorKind::AlreadyExists);
    assert_eq!(db.tables(), ["new"]);
    Ok(())
}

#[test]
fn a_cleared_table_is_another_table() -> Result<()> {
    let db = tiny(MEMORY_BYTES).open_in_memory();
    let table = db.create_table("t")?;
    db.transact(|tx| tx.insert(&table, "key", "value"))?;
    let snapshot = db.begin_read()?;
    assert!(snapshot.contains_key(&table, "key")?);
    assert_eq!(db.clear_table("t").expect_err("used").kind(), ErrorKind::Busy);
    drop(snapshot);
    let cleared = db.clear_table("t")?;
    assert!(db.begin_read()?.is_empty(&cleared)?);
    let error = db.begin_read()?.get(&table, "key").expect_err("of the old table");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(db.clear_table("u").expect_err("none").kind(), ErrorKind::NotFound);
    Ok(())
}
