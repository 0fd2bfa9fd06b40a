//! Tables with types, their indexes, and multimaps.

use crate::support::test_database::{TestDatabase, tiny};
use quenchdb::internals::base::depth::depth;
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::simulated::{CrashKind, SimulatedStorage};
use quenchdb::{
    AsKey, Database, ErrorKind, Index, Isolation, Locking, Multimap, Postcard, Result, TransactionOptions,
    TypedTable, UniqueIndex,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

const MEMORY_BYTES: u64 = 8 << 20;

/// Email and groups.
type User = (String, Vec<u8>);
type Users = TypedTable<u32, Postcard<User>>;
type ByEmail = UniqueIndex<String, u32, Postcard<User>>;
type ByGroup = Index<u8, u32, Postcard<User>>;

fn user(email: &str, groups: &[u8]) -> User {
    (email.to_string(), groups.to_vec())
}

fn by_email(db: &Database, users: &Users) -> Result<ByEmail> {
    // A user without email is in no entry.
    db.unique_index(users, "by email", |user: &User| Some(user.0.clone()).filter(|email| !email.is_empty()))
}

fn by_group(db: &Database, users: &Users) -> Result<ByGroup> {
    db.index(users, "by group", |user: &User| user.1.clone())
}

fn open(db: &Database) -> (Users, ByEmail, ByGroup) {
    let users = db.typed_table("users").expect("new or the same");
    let (by_email, by_group) = (by_email(db, &users), by_group(db, &users));
    (users, by_email.expect("unique"), by_group.expect("there is room"))
}

fn memory() -> Database {
    tiny(MEMORY_BYTES).open_in_memory()
}

#[track_caller]
fn check(db: &Database, by_email: &ByEmail, by_group: &ByGroup) {
    let snapshot = db.begin_read().expect("free");
    let reports =
        [by_email.verify(&snapshot), by_group.verify(&snapshot)].map(|report| report.expect("whole"));
    assert!(reports.iter().all(|report| report.problems.is_empty()), "{reports:?}");
}

#[test]
fn every_change_keeps_the_indexes() -> Result<()> {
    let db = tiny(64 << 20).open_in_memory();
    let (users, by_email, by_group) = open(&db);
    let mut tx = db.begin()?;
    users.insert(&mut tx, 1, &user("a@x", &[7, 9]))?;
    assert!(users.insert_if_absent(&mut tx, 2, &user("b@x", &[7, 7]))?);
    assert!(!users.insert_if_absent(&mut tx, 2, &user("c@x", &[]))?);
    assert_eq!(users.replace(&mut tx, 1, &user("z@x", &[9]))?, Some(user("a@x", &[7, 9])));
    assert_eq!(by_email.get(&tx, "a@x")?, None);
    assert_eq!(by_email.get(&tx, "z@x")?, Some((1, user("z@x", &[9]))));
    let in_group =
        |tx: &_, group: u8| -> Result<Vec<u32>> { by_group.get(tx, group).map(|row| Ok(row?.1)).collect() };
    assert_eq!((in_group(&tx, 7)?, in_group(&tx, 9)?), (vec![2], vec![1]));
    users.update(&mut tx, 2, |old| old.map(|old| (old.0.clone(), vec![9])))?;
    assert_eq!((in_group(&tx, 7)?, in_group(&tx, 9)?), (vec![], vec![1, 2]));
    assert_eq!(users.take(&mut tx, 1)?, Some(user("z@x", &[9])));
    assert!(users.remove(&mut tx, 2)?);
    assert!(!users.remove(&mut tx, 2)?);
    assert_eq!(by_group.range(&tx, ..).count(), 0);
    for n in 0..3000_u32 {
        users.insert(&mut tx, n, &user(&format!("{n}@x"), &[n as u8]))?;
    }
    assert_eq!(users.pop_first(&mut tx)?, Some((0, user("0@x", &[0]))));
    assert_eq!(users.pop_last(&mut tx)?.map(|row| row.0), Some(2999));
    assert_eq!(users.remove_range(&mut tx, 10..2000)?, 1990);
    assert_eq!(by_email.range(&tx, ..).count() as u64, users.len(&tx)?);
    tx.commit()?;
    check(&db, &by_email, &by_group);
    db.transact(|tx| users.clear(tx))?;
    assert_eq!(by_email.range(&db.begin_read()?, ..).count(), 0);
    Ok(())
}

#[test]
fn ranges_of_an_index_end_where_they_say() -> Result<()> {
    let db = memory();
    let words: TypedTable<u8, String> = db.typed_table("words")?;
    let by_word = db.index(&words, "by word", |word| [word.to_string()])?;
    let all = ["a", "a", "ab", "b", "b\0", "c"];
    db.transact(|tx| (0_u8..).zip(all).try_for_each(|(n, word)| words.insert(tx, n, word)))?;
    let snapshot = db.begin_read()?;
    let ids = |range| -> Result<Vec<u8>> {
        let range: (std::ops::Bound<&str>, std::ops::Bound<&str>) = range;
        by_word.range(&snapshot, range).map(|row| Ok(row?.1)).collect()
    };
    use std::ops::Bound::{Excluded, Included, Unbounded};
    assert_eq!(ids((Included("a"), Included("a")))?, [0, 1]);
    assert_eq!(ids((Excluded("a"), Excluded("b")))?, [2]);
    assert_eq!(ids((Excluded("a"), Included("b")))?, [2, 3]);
    assert_eq!(ids((Excluded("b"), Unbounded))?, [4, 5]);
    assert_eq!(ids((Unbounded, Excluded("ab")))?, [0, 1]);
    let back: Vec<_> =
        by_word.range(&snapshot, .."b").rev().map(|row| row.map(|row| row.1)).collect::<Result<_>>()?;
    assert_eq!(back, [2, 1, 0]);
    Ok(())
}

#[test]
fn a_unique_key_of_two_rows_is_refused_and_nothing_changes() -> Result<()> {
    let db = memory();
    let (users, by_email, by_group) = open(&db);
    db.transact(|tx| users.insert(tx, 1, &user("a@x", &[1])))?;
    let mut tx = db.begin()?;
    users.insert(&mut tx, 2, &user("b@x", &[2]))?;
    let error = users.insert(&mut tx, 2, &user("a@x", &[3])).expect_err("taken");
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert!(error.to_string().contains("users/by email"), "{error}");
    users.insert(&mut tx, 1, &user("a@x", &[4]))?;
    users.insert(&mut tx, 3, &user("", &[]))?;
    users.insert(&mut tx, 4, &user("", &[]))?;
    tx.commit()?;
    assert_eq!(users.get(&db.begin_read()?, 2)?, Some(user("b@x", &[2])));
    check(&db, &by_email, &by_group);
    Ok(())
}

#[test]
fn of_concurrent_inserts_of_a_unique_key_one_succeeds() -> Result<()> {
    for (isolation, locking) in [
        (Isolation::Snapshot, Locking::Optimistic),
        (Isolation::ReadCommitted, Locking::Optimistic),
        (Isolation::Serializable, Locking::Optimistic),
        (Isolation::Serializable, Locking::Pessimistic),
    ] {
        let db = memory();
        let (users, by_email, by_group) = open(&db);
        let options = TransactionOptions::new().isolation(isolation).locking(locking);
        std::thread::scope(|scope| {
            for thread in 0..4_u32 {
                let (db, users) = (&db, &users);
                scope.spawn(move || {
                    for n in 0..60_u32 {
                        let row = user(&format!("{n}@x"), &[thread as u8]);
                        let inserted = db.transact_with(options, |tx| users.insert(tx, n * 4 + thread, &row));
                        let refused = inserted.err().map(|error| error.kind());
                        assert!(matches!(refused, None | Some(ErrorKind::AlreadyExists)), "{refused:?}");
                    }
                });
            }
        });
        assert_eq!(users.len(&db.begin_read()?)?, 60, "{options:?}");
        check(&db, &by_email, &by_group);
    }
    Ok(())
}

/// Changes a row at random, in a transaction. Two rows may get the same email, if `collide`.
fn change_row(db: &Database, users: &Users, random: &mut Random, collide: bool) {
    let (id, groups) = (random.below(300) as u32, [random.below(5) as u8, random.below(5) as u8]);
    let owner = if collide { 0 } else { id };
    let row = user(&format!("{owner} {}@x", random.below(1000)), &groups);
    let options = TransactionOptions::new().isolation(match random.below(3) {
        0 => Isolation::ReadCommitted,
        1 => Isolation::Snapshot,
        _ => Isolation::Serializable,
    });
    let changed = db.transact_with(options, |tx| match id % 4 {
        0 => users.remove(tx, id).map(drop),
        3 if id % 8 == 7 => users.remove_range(tx, id..id + 2).map(drop),
        1 => users.update(tx, id, |_| Some(row.clone())).map(drop),
        _ => users.insert(tx, id, &row),
    });
    if let Err(error) = changed {
        assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    }
}

/// Ends threads that work until it is set, also if the test fails.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn an_index_is_built_beside_changes() {
    for seed in 0..depth(60) {
        let db = memory();
        let users: Users = db.typed_table("users").expect("new");
        let mut random = Random::from_seed(seed);
        for id in 0..200 {
            let row = user(&format!("{}@x", 5000 + id), &[random.below(5) as u8]);
            db.transact(|tx| users.insert(tx, id, &row)).expect("free");
        }
        let (is_unique, done) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (db, users, is_unique, done) = (&db, &users, &is_unique, &done);
                scope.spawn(move || {
                    let mut random = Random::from_seed(seed * 10 + thread);
                    while !done.load(Ordering::Relaxed) {
                        change_row(db, users, &mut random, is_unique.load(Ordering::Relaxed));
                    }
                });
            }
            let _end = SetAtEnd(&done);
            let group = by_group(&db, &users).expect("there is room");
            let unique = by_email(&db, &users).expect("no two are equal");
            is_unique.store(true, Ordering::Relaxed);
            std::thread::sleep(std::time::Duration::from_millis(2));
            check(&db, &unique, &group);
        });
        let report = db.verify(None).expect("runs");
        assert!(report.problems.is_empty(), "seed {seed}: {report:?}");
    }
}

#[test]
fn rows_and_entries_are_recovered_together() {
    for seed in 0..depth(120) {
        let mut random = Random::from_seed(seed);
        let (disk, db) = tiny(MEMORY_BYTES).create(seed);
        let users: Users = db.typed_table("users").expect("new");
        for n in 0..60 {
            change_row(&db, &users, &mut random, true);
            if n == 20 {
                by_group(&db, &users).expect("there is room");
            }
            if n == 40 {
                drop(by_email(&db, &users));
            }
        }
        disk.stop();
        for _ in 0..6 {
            let at = random.below(disk.operations() as u64 + 1) as usize;
            let left = disk.crash(CrashKind::PowerCut, at, random.next_u64());
            let recovered = tiny(MEMORY_BYTES).open(&left);
            let users: Users = recovered.typed_table("users").expect("new or the same");
            let group = by_group(&recovered, &users).expect("there is room");
            let email = match by_email(&recovered, &users) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => None,
                opened => Some(opened.expect("there is room")),
            };
            recovered.transact(|tx| users.insert(tx, 999, &user("new@x", &[1]))).expect("all are open");
            let snapshot = recovered.begin_read().expect("free");
            assert_eq!(group.verify(&snapshot).expect("whole").problems, [""; 0], "seed {seed}");
            if let Some(email) = email {
                assert_eq!(email.verify(&snapshot).expect("whole").problems, [""; 0], "seed {seed}");
            }
        }
    }
}

#[test]
fn rows_cannot_change_until_all_indexes_are_open() -> Result<()> {
    let disk = SimulatedStorage::new(3);
    let db = tiny(MEMORY_BYTES).open(&disk);
    let (users, ..) = open(&db);
    db.transact(|tx| users.insert(tx, 1, &user("a@x", &[1])))?;
    db.close()?;
    let db = tiny(MEMORY_BYTES).open(&disk);
    let users: Users = db.typed_table("users")?;
    let error = db.transact(|tx| users.insert(tx, 2, &user("b@x", &[]))).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("`by email`"), "{error}");
    assert!(error.to_string().ends_with("open it before a change, or drop it"), "{error}");
    assert_eq!(users.get(&db.begin_read()?, 1)?, Some(user("a@x", &[1])), "reads need no index");
    let email = by_email(&db, &users)?;
    db.transact(|tx| users.remove(tx, 1)).expect_err("one is missing still");
    db.drop_index(&users, "by group")?;
    assert_eq!(db.drop_index(&users, "by group").expect_err("gone").kind(), ErrorKind::NotFound);
    db.transact(|tx| users.insert(tx, 2, &user("b@x", &[])))?;
    assert_eq!(email.get(&db.begin_read()?, "b@x")?.map(|row| row.0), Some(2));
    let again = by_email(&db, &users)?;
    assert!(again.contains_key(&db.begin_read()?, "b@x")?, "it is open already");
    let other = db.index(&users, "by email", |user: &User| [user.0.clone()]).expect_err("it is unique");
    assert_eq!(other.kind(), ErrorKind::InvalidArgument);
    drop((email, again));
    db.drop_typed_table(users)?;
    assert_eq!(db.tables(), ["quench.indexes"]);
    Ok(())
}

#[test]
fn composed_changes_keep_the_indexes() -> Result<()> {
    let db = memory();
    let (users, by_email, by_group) = open(&db);
    let (a, b) = (user("a@x", &[1, 2]), user("b@x", &[2]));
    db.transact(|tx| {
        assert!(users.compare_and_set(tx, 1, None, Some(&a))?);
        assert!(!users.compare_and_set(tx, 1, None, Some(&b))?);
        assert!(!users.compare_and_set(tx, 1, Some(&b), None)?);
        assert!(users.compare_and_set(tx, 2, None, None)?);
        assert!(users.compare_and_set(tx, 1, Some(&a), Some(&b))?);
        assert_eq!(by_email.get(tx, "a@x")?, None);
        assert_eq!(by_group.get(tx, 2).count(), 1);
        let taken = users.compare_and_set(tx, 2, None, Some(&b)).expect_err("another row has the email");
        assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
        assert_eq!(users.get_for_share(tx, 1)?, Some(b.clone()));
        assert_eq!(users.get_for_update(tx, 3)?, None);
        assert!(users.compare_and_set(tx, 1, Some(&b), None)?);
        assert!(by_email.get(tx, "b@x")?.is_none());
        users.insert(tx, 4, &a)
    })?;
    check(&db, &by_email, &by_group);
    let snapshot = db.begin_read()?;
    let keys = |range: std::ops::Range<u32>| users.keys(&snapshot, range).collect::<Result<Vec<_>>>();
    assert_eq!((keys(0..9)?, keys(5..9)?), (vec![4], vec![]));
    Ok(())
}

#[test]
fn removing_a_prefix_keeps_the_indexes_and_other_rows() -> Result<()> {
    let db = memory();
    let visits: TypedTable<(String, u32), String> = db.typed_table("visits")?;
    let by_day = db.index(&visits, "by guest", |guest: &str| [guest.to_string()])?;
    db.transact(|tx| {
        for (city, day, guest) in
            [("Graz", 1, "a"), ("Vienna", 1, "a"), ("Vienna", 2, "b"), ("Viennaa", 1, "a")]
        {
            visits.insert(tx, (city, day), guest)?;
        }
        assert_eq!(visits.remove_prefix(tx, ("Vienna",))?, 2);
        assert_eq!(by_day.get(tx, "a").count(), 2);
        Result::Ok(())
    })?;
    let snapshot = db.begin_read()?;
    let left: Vec<_> = visits.keys(&snapshot, ..).map(|key| Ok(key?.0)).collect::<Result<_>>()?;
    assert_eq!(left, ["Graz", "Viennaa"]);
    assert_eq!(by_day.verify(&snapshot)?.problems, [""; 0]);
    Ok(())
}

#[test]
fn rows_locked_through_a_typed_table_are_locked() -> Result<()> {
    let db = memory();
    let counts: TypedTable<u8, i64> = db.typed_table("counts")?;
    let mut first = db.begin()?;
    assert_eq!(counts.get_for_update(&mut first, 1)?, None);
    let mut second = db.begin()?;
    let refused = counts.insert(&mut second, 1, &2).expect_err("the row is locked");
    assert!(refused.is_retryable(), "{refused}");
    second.abort();
    counts.insert(&mut first, 1, &1)?;
    first.commit()?;
    let mut sharing = [db.begin()?, db.begin()?];
    for tx in &mut sharing {
        assert_eq!(counts.get_for_share(tx, 1)?, Some(1));
    }
    Ok(())
}

#[test]
fn a_unique_index_of_equal_keys_is_not_built() -> Result<()> {
    let db = memory();
    let users: Users = db.typed_table("users")?;
    db.transact(|tx| (0..2).try_for_each(|id| users.insert(tx, id, &user("same@x", &[]))))?;
    assert_eq!(by_email(&db, &users).expect_err("not unique").kind(), ErrorKind::AlreadyExists);
    assert_eq!(db.tables(), ["quench.indexes", "users"], "nothing is left");
    db.transact(|tx| users.remove(tx, 1))?;
    let email = by_email(&db, &users)?;
    assert!(email.contains_key(&db.begin_read()?, "same@x")?);
    Ok(())
}

#[test]
fn verify_reports_rows_that_bypassed_their_index() -> Result<()> {
    let db = memory();
    let (users, by_email, _) = open(&db);
    db.transact(|tx| users.insert(tx, 1, &user("a@x", &[1])))?;
    assert!(db.verify(None)?.problems.is_empty());
    db.transact(|tx| tx.remove(users.untyped(), 1_u32.to_key()).map(drop))?;
    let problems = db.verify(None)?.problems;
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems[0].contains("index `by email` of table `users`: it has 1 entries"), "{problems:?}");
    let error = by_email.get(&db.begin_read()?, "a@x").expect_err("its row is gone");
    assert_eq!(error.kind(), ErrorKind::Corruption);
    Ok(())
}

#[test]
fn rows_of_other_types_are_errors_that_name_the_key() -> Result<()> {
    let db = memory();
    let plain = db.create_table("t")?;
    db.transact(|tx| tx.insert(&plain, 7_u32.to_key(), "not four"))?;
    let typed: TypedTable<u32, u32> = db.typed_table("t")?;
    let error = typed.get(&db.begin_read()?, 7).expect_err("other type");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains(r"`\x00\x00\x00\x07` is no `u32`: it has 8 bytes, not 4"), "{error}");
    let snapshot = db.begin_read()?;
    let mut rows = typed.iter(&snapshot);
    assert!(rows.next().expect("a row").is_err());
    assert!(rows.next().is_none(), "after an error it ends");
    let error = db.typed_table::<u32, String>("t").expect_err("open with another type");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    Ok(())
}

#[test]
fn a_multimap_has_each_pair_once() -> Result<()> {
    let db = memory();
    let map: Multimap<String, u16> = db.multimap("tags")?;
    let mut model = BTreeMap::<String, BTreeSet<u16>>::new();
    let mut random = Random::from_seed(8);
    let mut tx = db.begin()?;
    for _ in 0..3000 {
        let (key, value) = (["", "a", "a\0", "b"][random.below(4) as usize], random.below(40) as u16);
        let values = model.entry(key.into()).or_default();
        match random.below(20) {
            0 => {
                assert_eq!(map.remove_all(&mut tx, key)?, values.len() as u64);
                values.clear();
            }
            1..8 => assert_eq!(map.remove(&mut tx, key, value)?, values.remove(&value)),
            _ => assert_eq!(map.insert(&mut tx, key, value)?, values.insert(value)),
        }
        assert_eq!(map.contains(&tx, key, value)?, values.contains(&value));
        assert!(map.get(&tx, key).eq_by_value(values.iter()));
    }
    let pairs: Vec<(String, u16)> = map.iter(&tx).collect::<Result<_>>()?;
    assert_eq!(map.len(&tx)?, pairs.len() as u64);
    let expected = model.iter().flat_map(|(key, values)| values.iter().map(|value| (key.clone(), *value)));
    assert!(pairs.into_iter().eq(expected));
    Ok(())
}

/// Regression: removing all values of a key bypassed the indexes of the table.
#[test]
fn removing_all_values_of_a_multimap_keeps_an_index() -> Result<()> {
    let db = memory();
    let pairs: TypedTable<(u8, u8), ()> = db.typed_table("pairs")?;
    let constant = db.index(&pairs, "constant", |()| [7_u8])?;
    let map: Multimap<u8, u8> = db.multimap("pairs")?;
    db.transact(|tx| {
        [(1, 1), (1, 2), (2, 1)].into_iter().try_for_each(|(k, v)| map.insert(tx, k, v).map(drop))
    })?;
    assert_eq!(db.transact(|tx| map.remove_all(tx, 1))?, 2);
    let snapshot = db.begin_read()?;
    let report = constant.verify(&snapshot)?;
    assert_eq!((report.rows, report.entries), (1, 1), "{report:?}");
    Ok(())
}

/// A place in a building.
#[derive(quenchdb::Key, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Place {
    building: String,
    floor: i8,
    room: Option<String>,
}

#[derive(quenchdb::Key, Clone, PartialEq, Debug)]
struct Visit(Place, u64);

#[test]
fn structs_are_keys_in_the_order_of_their_fields() -> Result<()> {
    let db = memory();
    let visits: TypedTable<Visit, i64> = db.typed_table("visits")?;
    let place = |building: &str, floor, room: Option<&str>| Place {
        building: building.into(),
        floor,
        room: room.map(str::to_string),
    };
    let mut places = vec![
        place("a", -1, None),
        place("a", 3, Some("")),
        place("a", 3, Some("kitchen")),
        place("a\0", -128, None),
        place("", 0, Some("b")),
    ];
    db.transact(|tx| {
        places.iter().try_for_each(|place| visits.add(tx, Visit(place.clone(), 7), 1).map(drop))
    })?;
    places.sort();
    let snapshot = db.begin_read()?;
    let found: Vec<Place> = visits.iter(&snapshot).map(|row| Ok(row?.0.0)).collect::<Result<_>>()?;
    assert_eq!(found, places);
    let from = Visit(place("a", 0, None), 0);
    assert_eq!(visits.range(&snapshot, from..).count(), 3);
    Ok(())
}

/// Compares results with values.
trait EqByValue<'a> {
    fn eq_by_value(self, values: impl Iterator<Item = &'a u16>) -> bool;
}

impl<'a, R: Iterator<Item = Result<u16>>> EqByValue<'a> for R {
    fn eq_by_value(self, values: impl Iterator<Item = &'a u16>) -> bool {
        self.map(|value| value.expect("whole")).eq(values.copied())
    }
}
