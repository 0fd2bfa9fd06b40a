//! The types of tables: a table is opened only with the types that the database keeps of it,
//! whatever happened in between.

use crate::support::place;
use crate::support::test_database::{TestDatabase, tiny};
use quenchdb::internals::base::depth::depth;
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::simulated::{CrashKind, SimulatedStorage};
use quenchdb::{
    BackupOptions, Change, Database, Error, ErrorKind, Index, Key, Multimap, Postcard, RestoreOptions,
    Result, Settings, TableKind, TableTypes, TypeName, TypedTable, Value, Zerocopy,
};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use zerocopy::byteorder::{BigEndian, LittleEndian, U32};

fn settings() -> Settings {
    tiny(8 << 20)
}

#[derive(Key)]
struct Id(u64);

#[derive(Key)]
struct Number(u64);

#[derive(Key)]
struct Place {
    x: u32,
    y: u32,
}

#[derive(Serialize, Deserialize)]
struct Person {
    name: String,
    age: u32,
}

/// A value that an application stores itself.
#[derive(TypeName)]
struct Celsius(f32);

#[derive(TypeName)]
struct Fahrenheit(f32);

macro_rules! temperatures {
    ($($type:ident)*) => { $(
        impl Value for $type {
            type Owned = $type;
            type Borrowed = $type;

            fn encode(value: &$type, out: &mut Vec<u8>) -> Result<(), String> {
                f32::encode(&value.0, out)
            }

            fn decode(bytes: &[u8]) -> Result<$type, String> {
                f32::decode(bytes).map($type)
            }
        }
    )* };
}

temperatures! { Celsius Fahrenheit }

/// Types of the same names with other content.
mod other {
    use super::*;

    #[derive(Key)]
    pub struct Id(i64);

    #[derive(Key)]
    pub struct Place {
        y: u32,
        x: u32,
    }

    #[derive(Serialize, Deserialize)]
    pub struct Person {
        name: String,
        age: i32,
    }

    #[derive(Serialize, Deserialize)]
    pub enum Role {
        Guest,
        Member,
    }
}

#[derive(Serialize, Deserialize)]
enum Role {
    Guest,
    Member,
    Owner,
}

/// Opens the table with types of its own.
type Open = fn(&Database, &str) -> Result<()>;

fn table<K: Key, V: Value + 'static>(db: &Database, name: &str) -> Result<()> {
    db.typed_table::<K, V>(name).map(drop)
}

fn multimap<K: Key, V: Key>(db: &Database, name: &str) -> Result<()> {
    db.multimap::<K, V>(name).map(drop)
}

/// Two of these types are ways to open the same tables.
const PAIRS: [&str; 2] = ["table of (u64, String) to ()", "multimap of u64 to String"];

/// Different types, many of which have keys or values of the same length.
const TYPES: [(&str, Open); 42] = [
    ("table of u64 to i64", table::<u64, i64>),
    ("table of u64 to u64", table::<u64, u64>),
    ("table of u64 to f64", table::<u64, f64>),
    ("table of i64 to i64", table::<i64, i64>),
    ("table of f64 to i64", table::<f64, i64>),
    ("table of u32 to ()", table::<u32, ()>),
    ("table of i32 to ()", table::<i32, ()>),
    ("table of char to ()", table::<char, ()>),
    ("table of [u8; 4] to ()", table::<[u8; 4], ()>),
    ("table of bool to bool", table::<bool, bool>),
    ("table of u8 to bool", table::<u8, bool>),
    ("table of (u32, u32) to u64", table::<(u32, u32), u64>),
    ("table of (u8, u16) to u8", table::<(u8, u16), u8>),
    ("table of (u16, u8) to u8", table::<(u16, u8), u8>),
    ("table of (u8, (u8, u8)) to u8", table::<(u8, (u8, u8)), u8>),
    ("table of (u8, u8, u8) to u8", table::<(u8, u8, u8), u8>),
    ("table of String to String", table::<String, String>),
    ("table of Vec<u8> to String", table::<Vec<u8>, String>),
    ("table of String to Vec<u8>", table::<String, Vec<u8>>),
    ("table of (String,) to String", table::<(String,), String>),
    ("table of Option<u64> to i64", table::<Option<u64>, i64>),
    ("table of Reverse<u64> to i64", table::<Reverse<u64>, i64>),
    ("table of Uuid to u8", table::<uuid::Uuid, u8>),
    ("table of [u8; 16] to u8", table::<[u8; 16], u8>),
    ("table of u128 to u8", table::<u128, u8>),
    ("table of Id(u64) to u8", table::<Id, u8>),
    ("table of Id(i64) to u8", table::<other::Id, u8>),
    ("table of Number(u64) to u8", table::<Number, u8>),
    ("table of Place { x: u32, y: u32 } to u8", table::<Place, u8>),
    ("table of Place { y: u32, x: u32 } to u8", table::<other::Place, u8>),
    ("table of u8 to Postcard<Person { name: String, age: u32 }>", table::<u8, Postcard<Person>>),
    ("table of u8 to Postcard<Person { name: String, age: i32 }>", table::<u8, Postcard<other::Person>>),
    ("table of u8 to Postcard<(String, u32)>", table::<u8, Postcard<(String, u32)>>),
    ("table of u8 to Postcard<enum Role { Guest, Member, Owner }>", table::<u8, Postcard<Role>>),
    ("table of u8 to Postcard<enum Role { Guest, Member }>", table::<u8, Postcard<other::Role>>),
    ("table of u8 to Zerocopy<[u32; 2]>", table::<u8, Zerocopy<[u32; 2]>>),
    ("table of u8 to Zerocopy<[i32; 2]>", table::<u8, Zerocopy<[i32; 2]>>),
    ("table of u8 to Celsius(f32)", table::<u8, Celsius>),
    ("table of u8 to Fahrenheit(f32)", table::<u8, Fahrenheit>),
    ("table of (u64, String) to ()", table::<(u64, String), ()>),
    ("multimap of u64 to String", multimap::<u64, String>),
    ("multimap of u64 to Vec<u8>", multimap::<u64, Vec<u8>>),
];

#[track_caller]
fn expect_refused(opened: Result<()>, own: &str, wanted: &str) {
    let refused = opened.expect_err(&format!("{own} was opened as {wanted}"));
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
    let text = refused.to_string();
    assert!(text.contains(&format!("created as `{own}`, and is opened as `{wanted}`")), "{text}");
}

fn types_of(db: &Database, name: &str) -> Option<String> {
    db.table(name).expect("there").types().map(|types| types.to_string())
}

#[test]
fn tables_open_only_with_their_own_types() -> Result<()> {
    let (disk, db) = settings().create(1);
    for (own, open) in TYPES {
        open(&db, own)?;
    }
    db.close()?;
    let db = settings().open(&disk);
    for (own, _) in TYPES {
        assert_eq!(types_of(&db, own).as_deref(), Some(own));
        for (wanted, open) in TYPES {
            let opened = open(&db, own);
            // A multimap is a table of pairs.
            let is_same = own == wanted || [own, wanted].iter().all(|types| PAIRS.contains(types));
            if is_same { opened? } else { expect_refused(opened, own, wanted) }
        }
    }
    Ok(())
}

#[test]
fn types_of_zerocopy_say_their_byte_order() -> Result<()> {
    let db = settings().open_in_memory();
    table::<u8, Zerocopy<U32<LittleEndian>>>(&db, "t")?;
    let big = table::<u8, Zerocopy<U32<BigEndian>>>(&db, "t");
    expect_refused(
        big,
        "table of u8 to Zerocopy<U32<LittleEndian>>",
        "table of u8 to Zerocopy<U32<BigEndian>>",
    );
    Ok(())
}

#[test]
fn tables_of_bytes_have_no_types_until_opened_with_some() -> Result<()> {
    let (disk, db) = settings().create(1);
    let bytes = db.create_table("t")?;
    db.transact(|tx| tx.insert(&bytes, 7_u64.to_be_bytes(), (-1_i64).to_be_bytes()))?;
    db.close()?;
    let reader = Database::builder().read_only(true).storage(std::sync::Arc::new(disk.clone()));
    let reader = reader.open("simulated")?;
    table::<u8, u8>(&reader, "t")?;
    assert_eq!(types_of(&reader, "t"), None, "a reader keeps nothing");
    drop(reader);
    let db = settings().open(&disk);
    assert_eq!(types_of(&db, "t"), None);
    let typed: TypedTable<u64, i64> = db.typed_table("t")?;
    assert_eq!(typed.get(&db.begin_read()?, 7)?, Some(-1));
    assert_eq!(types_of(&db, "t").as_deref(), Some("table of u64 to i64"));
    expect_refused(table::<u64, u64>(&db, "t"), "table of u64 to i64", "table of u64 to u64");
    // As bytes it works as before.
    let bytes = db.table("t")?;
    db.transact(|tx| tx.insert(&bytes, 8_u64.to_be_bytes(), 5_i64.to_be_bytes()))?;
    assert_eq!(typed.get(&db.begin_read()?, 8)?, Some(5));
    let (_, recovered) = settings().crash(&disk, CrashKind::PowerCut, 3);
    expect_refused(table::<u64, u64>(&recovered, "t"), "table of u64 to i64", "table of u64 to u64");
    Ok(())
}

#[test]
fn readers_refuse_other_types_too() -> Result<()> {
    let (disk, db) = settings().create(1);
    let ages: TypedTable<String, u32> = db.typed_table("ages")?;
    db.transact(|tx| ages.insert(tx, "alice", &40))?;
    db.checkpoint()?;
    let (own, wanted) = ("table of String to u32", "table of String to i32");
    let builder = || Database::builder().storage(std::sync::Arc::new(disk.clone()));
    let reader = builder().open_checkpoint("simulated")?;
    expect_refused(table::<String, i32>(&reader, "ages"), own, wanted);
    assert_eq!(reader.typed_table::<String, u32>("ages")?.get(&reader.begin_read()?, "alice")?, Some(40));
    drop(reader);
    db.close()?;
    let reader = builder().read_only(true).open("simulated")?;
    expect_refused(table::<String, i32>(&reader, "ages"), own, wanted);
    let changed = reader.set_types("ages", &TableTypes::table::<String, i32>()?);
    assert_eq!(changed.expect_err("read-only").kind(), ErrorKind::InvalidArgument);
    Ok(())
}

/// The error of an index; nothing else of it is of interest.
fn error_of<T>(opened: Result<T>) -> Result<()> {
    opened.map(drop)
}

#[test]
fn indexes_open_only_with_their_own_keys_and_kind() -> Result<()> {
    let (disk, db) = settings().create(1);
    let open = |db: &Database| db.typed_table::<u64, String>("users");
    let users = open(&db)?;
    let by_name: Index<String, u64, String> = db.index(&users, "by name", |name: &str| [name.to_string()])?;
    db.transact(|tx| users.insert(tx, 1, "alice"))?;
    let own = "index by String";
    for reopened in [false, true] {
        let db = if reopened {
            settings().open(&disk.crash(CrashKind::Kill, disk.operations(), 1))
        } else {
            db.clone()
        };
        let users = open(&db)?;
        let bytes = db.index(&users, "by name", |name: &str| [name.as_bytes().to_vec()]);
        expect_refused(error_of(bytes), own, "index by Vec<u8>");
        let number = db.index(&users, "by name", |name: &str| [name.len() as u64]);
        expect_refused(error_of(number), own, "index by u64");
        let unique = db.unique_index(&users, "by name", |name: &str| [name.to_string()]);
        expect_refused(error_of(unique), own, "unique index by String");
        expect_refused(table::<String, ()>(&db, "users/by name"), own, "table of String to ()");
        expect_refused(multimap::<String, u64>(&db, "users/by name"), own, "multimap of String to u64");
        let again = db.index(&users, "by name", |name: &str| [name.to_string()])?;
        assert_eq!(again.get(&db.begin_read()?, "alice").count(), 1);
    }
    drop(by_name);
    // An index is not put into a table that is open for another purpose.
    db.typed_table::<u64, u64>("users/by length")?;
    let refused = db.index(&users, "by length", |name: &str| [name.len() as u64]).expect_err("taken");
    assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
    // Dropped, it may have other keys.
    db.drop_index(&users, "by name")?;
    db.index(&users, "by name", |name: &str| [name.len() as u64])?;
    assert_eq!(types_of(&db, "users/by name").as_deref(), Some("index by u64"));
    Ok(())
}

#[test]
fn an_index_left_by_a_cleared_table_is_built_again() -> Result<()> {
    let db = settings().open_in_memory();
    let open = || db.typed_table::<u64, String>("users");
    let by_name =
        |users: &TypedTable<u64, String>| db.index(users, "by name", |name: &str| [name.to_string()]);
    let users = open()?;
    let _index = by_name(&users)?;
    db.transact(|tx| users.insert(tx, 1, "alice"))?;
    db.clear_table("users")?;
    let users = open()?;
    let index = by_name(&users)?;
    db.transact(|tx| users.insert(tx, 2, "bob"))?;
    let snapshot = db.begin_read()?;
    assert_eq!(index.range(&snapshot, ..).count(), 1);
    assert!(index.verify(&snapshot)?.problems.is_empty());
    Ok(())
}

#[test]
fn set_types_changes_what_a_table_opens_with() -> Result<()> {
    let (disk, db) = settings().create(1);
    let people: TypedTable<u8, Postcard<Role>> = db.typed_table("people")?;
    db.transact(|tx| people.insert(tx, 1, &Role::Guest))?;
    let new = TableTypes::table::<u8, Postcard<other::Role>>()?;
    assert_eq!(new.kind(), TableKind::Table);
    assert_eq!((new.keys(), new.values()), ("u8", Some("Postcard<enum Role { Guest, Member }>")));
    let busy = db.set_types("people", &new).expect_err("open");
    assert_eq!(busy.kind(), ErrorKind::Busy, "{busy}");
    drop(people);
    db.set_types("people", &new)?;
    assert_eq!(db.set_types("nobody", &new).expect_err("missing").kind(), ErrorKind::NotFound);
    let people: TypedTable<u8, Postcard<other::Role>> = db.typed_table("people")?;
    assert!(matches!(people.get(&db.begin_read()?, 1)?, Some(other::Role::Guest)));
    let (_, recovered) = settings().crash(&disk, CrashKind::PowerCut, 3);
    table::<u8, Postcard<other::Role>>(&recovered, "people")?;
    table::<u8, Postcard<Role>>(&recovered, "people").expect_err("no longer");
    let index = TableTypes::index::<String>(true)?;
    assert_eq!((index.kind(), index.values()), (TableKind::UniqueIndex, None));
    Ok(())
}

#[test]
fn types_follow_the_table_through_rename_and_clear() -> Result<()> {
    let (disk, db) = settings().create(1);
    table::<u64, i64>(&db, "a")?;
    db.rename_table("a", "b")?;
    let own = Some("table of u64 to i64".to_string());
    assert_eq!(types_of(&db, "b"), own);
    db.clear_table("b")?;
    assert_eq!(types_of(&db, "b"), own);
    // The name alone has no types.
    table::<u8, u8>(&db, "a")?;
    table::<u64, i64>(&db, "c")?;
    db.drop_table("c")?;
    table::<u16, u16>(&db, "c")?;
    for checkpoint in [false, true] {
        if checkpoint {
            db.checkpoint()?;
        }
        let (_, recovered) = settings().crash(&disk, CrashKind::PowerCut, 3);
        assert_eq!(types_of(&recovered, "b"), own);
        assert_eq!(types_of(&recovered, "a").as_deref(), Some("table of u8 to u8"));
        assert_eq!(types_of(&recovered, "c").as_deref(), Some("table of u16 to u16"));
    }
    Ok(())
}

/// After a crash at any time a table that was created with types has them, and one whose types
/// changed has the old or the new ones.
#[test]
fn after_a_crash_no_table_opens_with_types_it_never_had() {
    for seed in 0..depth(40) {
        let mut random = Random::from_seed(seed);
        let (disk, db) = settings().create(seed);
        let created = disk.operations();
        table::<u64, i64>(&db, "a").expect("new");
        let a_durable = disk.operations();
        if random.chance(1, 2) {
            db.checkpoint().expect("no fault");
        }
        let bytes = db.create_table("bytes").expect("new");
        db.transact(|tx| tx.insert(&bytes, [0; 8], [0; 8])).expect("commits");
        table::<u64, u64>(&db, "bytes").expect("without types");
        let adopted = disk.operations();
        db.set_types("a", &TableTypes::table::<i64, i64>().expect("short")).expect("not open");
        let changed = disk.operations();
        if random.chance(1, 2) {
            db.checkpoint().expect("no fault");
        }
        disk.stop();
        for at in created..=disk.operations() {
            let kind = if random.chance(1, 2) { CrashKind::Kill } else { CrashKind::PowerCut };
            let recovered = settings().open(&disk.crash(kind, at, random.next_u64()));
            let has = |name: &str| recovered.tables().contains(&name.to_string());
            let context = format!("seed {seed}, {at} operations");
            let types = has("a").then(|| types_of(&recovered, "a").expect("created with types"));
            let may_be: &[&str] = match at {
                at if at >= changed => &["table of i64 to i64"],
                at if at >= adopted => &["table of u64 to i64", "table of i64 to i64"],
                _ => &["table of u64 to i64"],
            };
            assert!(at < a_durable || types.is_some(), "{context}");
            assert!(types.is_none_or(|types| may_be.contains(&types.as_str())), "{context}");
            if at >= adopted {
                assert_eq!(
                    types_of(&recovered, "bytes").as_deref(),
                    Some("table of u64 to u64"),
                    "{context}"
                );
            }
        }
    }
}

#[test]
fn threads_that_open_a_table_with_different_types_agree_on_one() -> Result<()> {
    for has_table in [false, true] {
        let db = settings().open_in_memory();
        if has_table {
            db.create_table("t")?;
        }
        let openers: [(&str, Open); 4] = [
            ("table of u64 to i64", table::<u64, i64>),
            ("table of i64 to i64", table::<i64, i64>),
            ("table of u64 to u64", table::<u64, u64>),
            ("multimap of u64 to u64", multimap::<u64, u64>),
        ];
        let opened: Vec<_> = std::thread::scope(|scope| {
            let db = &db;
            let threads = openers.map(|(name, open)| (name, scope.spawn(move || open(db, "t"))));
            threads.into_iter().map(|(name, thread)| (name, thread.join().expect("no panic"))).collect()
        });
        let own = types_of(&db, "t").expect("opened with types");
        for (name, opened) in opened {
            if name == own { opened? } else { expect_refused(opened, &own, name) }
        }
    }
    Ok(())
}

/// Tables of each kind, some of them in the log only.
fn fill(db: &Database) -> Result<()> {
    let users: TypedTable<u64, String> = db.typed_table("users")?;
    db.index(&users, "by name", |name: &str| [name.to_string()])?;
    let tags: Multimap<String, u8> = db.multimap("tags")?;
    db.create_table("bytes")?;
    db.checkpoint()?;
    let late: TypedTable<i8, Postcard<Person>> = db.typed_table("late")?;
    db.transact(|tx| {
        users.insert(tx, 1, "alice")?;
        tags.insert(tx, "sea", 3)?;
        late.insert(tx, -1, &Person { name: "alice".into(), age: 7 })
    })?;
    drop(tags);
    db.set_types("tags", &TableTypes::multimap::<String, bool>()?)
}

#[track_caller]
fn check_filled(db: &Database) {
    let expected = [
        ("bytes", None),
        ("late", Some("table of i8 to Postcard<Person { name: String, age: u32 }>")),
        ("tags", Some("multimap of String to bool")),
        ("users", Some("table of u64 to String")),
        ("users/by name", Some("index by String")),
    ];
    for (name, types) in expected {
        assert_eq!(types_of(db, name).as_deref(), types, "{name}");
    }
}

#[test]
fn copies_of_a_database_keep_the_types() -> Result<()> {
    let (disk, db) = settings().create(1);
    fill(&db)?;
    check_filled(&db);
    // The log alone, salvaged and recovered.
    let killed = disk.crash(CrashKind::Kill, disk.operations(), 1);
    check_filled(&settings().open(&disk.crash(CrashKind::Kill, disk.operations(), 1)));
    let salvaged = SimulatedStorage::new(2);
    Database::salvage(place(&killed), place(&salvaged), settings(), None)?;
    check_filled(&settings().open(&salvaged));
    // Backup, restore, and the log behind the backup.
    let full = SimulatedStorage::new(3);
    db.backup(place(&full), BackupOptions::default())?;
    table::<u8, u8>(&db, "new")?;
    let killed = disk.crash(CrashKind::Kill, disk.operations(), 1);
    for with_log in [false, true] {
        let restored = SimulatedStorage::new(4);
        let log = with_log.then(|| place(&killed));
        let options = RestoreOptions::default().with(|s| s.log = log);
        Database::restore([place(&full)], place(&restored), options)?;
        let db = settings().open(&restored);
        check_filled(&db);
        assert_eq!(db.tables().contains(&"new".to_string()), with_log);
        if with_log {
            assert_eq!(types_of(&db, "new").as_deref(), Some("table of u8 to u8"));
        }
    }
    db.compact(None)?;
    db.close()?;
    let db = settings().open(&disk);
    check_filled(&db);
    db.close()?;
    // Without log: from the pages.
    let salvaged = SimulatedStorage::new(5);
    Database::salvage(place(&disk), place(&salvaged), settings(), None)?;
    check_filled(&settings().open(&salvaged));
    Ok(())
}

#[test]
fn indexes_of_a_salvaged_database_are_built_again() -> Result<()> {
    let (disk, db) = settings().create(1);
    // Other tables, so that the salvaged ones have other identifiers.
    db.create_table("a")?;
    db.create_table("z")?;
    db.drop_table("a")?;
    let users: TypedTable<u64, String> = db.typed_table("users")?;
    let by_name = |db: &Database, users: &TypedTable<u64, String>| {
        db.index(users, "by name", |name: &str| [name.to_string()])
    };
    let by_length = |db: &Database, users: &TypedTable<u64, String>| {
        db.unique_index(users, "by length", |name: &str| [name.len() as u64])
    };
    by_name(&db, &users)?;
    db.transact(|tx| users.insert(tx, 1, "alice"))?;
    for closed in [false, true] {
        if closed {
            db.clone().close()?;
        } else {
            db.checkpoint()?;
            by_length(&db, &users)?;
            db.transact(|tx| users.insert(tx, 2, "bob"))?;
        }
        let source = disk.crash(CrashKind::Kill, disk.operations(), 1);
        let salvaged = SimulatedStorage::new(2);
        Database::salvage(place(&source), place(&salvaged), settings(), None)?;
        let db = settings().open(&salvaged);
        assert_eq!(db.tables(), ["quench.indexes", "users", "users/by length", "users/by name", "z"]);
        let users: TypedTable<u64, String> = db.typed_table("users")?;
        db.transact(|tx| users.insert(tx, 3, "eve")).expect_err("no index is open");
        let (name, length) = (by_name(&db, &users)?, by_length(&db, &users)?);
        db.transact(|tx| users.insert(tx, 3, "carol!"))?;
        let snapshot = db.begin_read()?;
        assert_eq!((name.range(&snapshot, ..).count(), length.range(&snapshot, ..).count()), (3, 3));
        assert_eq!(name.verify(&snapshot)?.problems, [""; 0]);
        assert_eq!(length.verify(&snapshot)?.problems, [""; 0]);
    }
    Ok(())
}

#[test]
fn feeds_report_types_in_the_order_of_changes() -> Result<()> {
    let db = settings().open_in_memory();
    let mut changes = db.changes(db.begin_read()?.csn())?;
    table::<u8, u8>(&db, "a")?;
    db.create_table("b")?;
    table::<u16, u8>(&db, "b")?;
    db.set_types("b", &TableTypes::table::<i16, u8>()?)?;
    db.clear_table("b")?;
    let mut seen = Vec::new();
    while let Some(transaction) = changes.try_next()? {
        for change in transaction.changes() {
            let change = change?;
            let table = change.table().name().to_string();
            seen.push(match change {
                Change::CreateTable { .. } => format!("create {table}"),
                Change::DropTable { .. } => format!("drop {table}"),
                Change::SetTypes { types, .. } => format!("{table}: {types}"),
                other => panic!("{other:?}"),
            });
        }
    }
    let expected = [
        "create a",
        "a: table of u8 to u8",
        "create b",
        "b: table of u16 to u8",
        "b: table of i16 to u8",
        "drop b",
        "create b",
        "b: table of i16 to u8",
    ];
    assert_eq!(seen, expected);
    Ok(())
}

#[test]
fn names_of_types_that_are_too_long_are_refused() {
    struct Long;

    impl TypeName for Long {
        fn type_name() -> String {
            "x".repeat(5000)
        }
    }

    impl Value for Long {
        type Owned = ();
        type Borrowed = ();

        fn encode((): &(), _: &mut Vec<u8>) -> Result<(), String> {
            Ok(())
        }

        fn decode(_: &[u8]) -> Result<(), String> {
            Ok(())
        }
    }

    let db = settings().open_in_memory();
    let refused: Error = table::<u8, Long>(&db, "t").expect_err("too long");
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    assert!(db.tables().is_empty());
}
