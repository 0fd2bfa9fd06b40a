//! Samples: databases that use every feature of the formats, and the files that keep them.

use crate::support::test_database::TestDatabase;
use quenchdb::internals::device::Storage;
use quenchdb::internals::device::mapped::MapOptions;
use quenchdb::internals::device::simulated::{CrashKind, SimulatedStorage};
use quenchdb::{
    BackupOptions, Compression, Database, Dependency, Durability, Layout, MemoryCache, Multimap, Preset,
    Settings, Table, TableTypes, TypeName, TypedTable, Value,
};
use std::cmp::Reverse;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::settings;
use crate::support::{Content, beside, content, place};

/// The version of samples that this build writes.
pub const NEWEST: u32 = 1;

/// A database and its expected content.
struct Sample {
    db: Database,
    expected: Content,
}

impl Sample {
    fn put(&mut self, table: &Table, name: &str, rows: impl Iterator<Item = (Vec<u8>, Vec<u8>)>) {
        let rows: Vec<_> = rows.collect();
        let put = |tx: &mut quenchdb::Transaction| {
            rows.iter().try_for_each(|(key, value)| tx.insert(table, key, value))
        };
        self.db.transact(put).expect("commits");
        self.expected.extend(rows.into_iter().map(|(key, value)| ((name.to_string(), key), value)));
    }

    fn remove(&mut self, table: &Table, name: &str, keys: impl Iterator<Item = Vec<u8>>) {
        let keys: Vec<_> = keys.collect();
        let remove =
            |tx: &mut quenchdb::Transaction| keys.iter().try_for_each(|key| tx.remove(table, key).map(drop));
        self.db.transact(remove).expect("commits");
        keys.into_iter().for_each(|key| drop(self.expected.remove(&(name.to_string(), key))));
    }

    /// Runs transactions with redo in chunks: rows, a large value, and one that rolls back into a
    /// chunk.
    fn fill_in_chunks(&mut self) {
        let long = self.db.table_or_create("long").expect("works");
        self.put(&long, "long", (0..120u8).map(|n| (vec![n], vec![n; 600])));
        self.put(&long, "long", [(vec![200], vec![7; 50_000])].into_iter());
        let mut tx = self.db.begin().expect("free");
        let key = |n: u8| vec![220, n];
        (0..20).for_each(|n| tx.insert(&long, key(n), vec![n; 600]).expect("fits"));
        let savepoint = tx.savepoint();
        (20..80).for_each(|n| tx.insert(&long, key(n), vec![n; 600]).expect("fits"));
        tx.rollback_to(savepoint).expect("own savepoint");
        tx.commit().expect("commits");
        self.expected.extend((0..20).map(|n| (("long".to_string(), key(n)), vec![n; 600])));
    }

    /// Runs transactions in two logs that read unwritten changes, so that their records list
    /// dependencies.
    fn fill_with_lists(&mut self) {
        let chain = self.db.table_or_create("chain").expect("works");
        let lazy = |n: u8| {
            let mut tx = self.db.begin_with(Durability::Lazy).expect("free");
            for earlier in n.saturating_sub(3)..n {
                assert!(tx.get(&chain, [earlier]).expect("readable").is_some());
            }
            tx.insert(&chain, [n], vec![n; 50]).expect("fits");
            tx.commit().expect("commits");
        };
        for n in (0..12).step_by(2) {
            // Threads are spread over the logs.
            beside(|| lazy(n), || lazy(n + 1));
        }
        self.expected.extend((0..12).map(|n| (("chain".to_string(), vec![n]), vec![n; 50])));
        self.put(&chain, "chain", (0..12).map(|n| (vec![100 + n], vec![n; 10])));
        let seen = self.db.transact(|tx| tx.get(&chain, [11])).expect("commits");
        assert!(seen.is_some(), "readers wait until it is durable");
    }

    /// Writes one of everything that the formats have in version 1. `at` selects the values, and
    /// the result is the same on every call.
    fn fill(&mut self, at: u8) {
        let rows = self.db.table_or_create("rows").expect("works");
        let large = self.db.table_or_create("large values").expect("works");
        let gone = self.db.table_or_create("gone").expect("works");
        self.put(&gone, "gone", (0..20).map(|n| (vec![n], vec![at; 100])));
        for some in 0..8u16 {
            let numbered = |n: u16| (n.to_be_bytes().to_vec(), vec![at; 60 + n as usize % 300]);
            self.put(&rows, "rows", (some * 80..some * 80 + 80).map(numbered));
        }
        // A patch: the same length, other bytes.
        let key = |n: u16| n.to_be_bytes().to_vec();
        let patched = |n: u16| [vec![at; 10], vec![at + 1; 5], vec![at; 45 + n as usize % 300]].concat();
        self.put(&rows, "rows", (0..30).map(|n| (key(n * 7), patched(n * 7))));
        self.remove(&rows, "rows", (0..100).map(|n| key(n * 6 + 1)));
        // Long enough for one page of their own, or for several.
        let long = |len: usize| (0..len).map(|n| at ^ (n / 1000) as u8).collect::<Vec<u8>>();
        let lens = [3_000, 5_000, 20_000, 9_000];
        self.put(&large, "large values", (0..4).map(|n| (vec![b'k', n], long(lens[n as usize]))));
        self.remove(&large, "large values", [vec![b'k', 3]].into_iter());
        drop(gone);
        self.db.drop_table("gone").expect("unused");
        self.expected.retain(|(table, _), _| table != "gone");
    }
}

/// Makes a database that is closed, or killed with a checkpoint and a log after it. The result is
/// the same on every call.
pub fn make(closed: bool) -> (SimulatedStorage, Content) {
    make_with(closed, Compression::Lz4)
}

pub fn make_with(closed: bool, compression: Compression) -> (SimulatedStorage, Content) {
    make_of(settings().with(|s| s.compression = compression), closed)
}

/// Makes a killed database with its newest commits in mapped memory, some of them in segments, too.
pub fn make_in_memory() -> (SimulatedStorage, Content) {
    make_of(settings_in_memory(), false)
}

pub fn settings_in_memory() -> Settings {
    let log_memory = Some(MEMORY.into());
    settings().with(|s| {
        s.preset = Preset::Passive;
        s.log_memory = log_memory;
        s.lab.log_memory_bytes = 1 << 20;
    })
}

fn make_of(mut settings: Settings, closed: bool) -> (SimulatedStorage, Content) {
    let disk = SimulatedStorage::new(1);
    settings.logs = 2;
    settings.protocol_mut().dependency = Some(Dependency::Exact);
    settings.protocol_mut().set_layout(Layout::ByPage);
    let builder = settings.on(&disk);
    let mut sample =
        Sample { db: builder.open("simulated").expect("an empty disk"), expected: Content::new() };
    sample.fill(10);
    // Pages that are evicted beside a snapshot keep their stamps.
    let snapshot = sample.db.begin_read().expect("free");
    sample.fill(15);
    let ballast = sample.db.create_table("ballast").expect("new");
    for some in 0..80u8 {
        sample.put(&ballast, "ballast", (0..20).map(|n| (vec![some, n], vec![some; 700])));
    }
    drop(snapshot);
    // An uncommitted value with evicted pages, which the checkpoint lists.
    let unfinished = (!closed).then(|| {
        let large = sample.db.table_or_create("large values").expect("works");
        let mut tx = sample.db.begin().expect("free");
        tx.insert(&large, "unfinished", vec![9; 1_200_000]).expect("it needs no more memory than there is");
        tx
    });
    sample.db.checkpoint().expect("works");
    sample.fill(20);
    sample.fill_in_chunks();
    sample.fill_with_lists();
    if closed {
        sample.db.close().expect("works");
        return (disk.duplicate(), sample.expected);
    }
    let expected = sample.expected;
    let killed = disk.crash(CrashKind::Kill, disk.operations(), 1).duplicate();
    disk.stop();
    drop(unfinished);
    (killed, expected)
}

/// The types of the tables in a sample with types.
pub const TYPES: [(&str, Option<&str>); 6] = [
    ("ages", Some("table of (String, u8) to Option of ages")),
    ("ages/by age", Some("index by u32")),
    ("ages/by name", Some("unique index by String")),
    ("bytes", None),
    ("late", Some("table of i64 to Vec<u8>")),
    ("tags", Some("multimap of String to Reverse<u16>")),
];

/// An age that may be unknown.
struct Age;

impl TypeName for Age {
    fn type_name() -> String {
        "Option of ages".into()
    }
}

impl Value for Age {
    type Owned = Option<u32>;
    type Borrowed = Option<u32>;

    fn encode(value: &Option<u32>, out: &mut Vec<u8>) -> Result<(), String> {
        value.map_or(Ok(()), |age| u32::encode(&age, out))
    }

    fn decode(bytes: &[u8]) -> Result<Option<u32>, String> {
        if bytes.is_empty() { Ok(None) } else { u32::decode(bytes).map(Some) }
    }
}

/// Makes a database of tables with types: some in a checkpoint, some in the log alone, and one
/// whose types changed.
pub fn make_typed(closed: bool) -> (SimulatedStorage, Content) {
    let disk = SimulatedStorage::new(1);
    let db = settings().open(&disk);
    let ages: TypedTable<(String, u8), Age> = db.typed_table("ages").expect("new");
    db.index(&ages, "by age", |age: &Option<u32>| *age).expect("there is room");
    db.multimap::<String, u16>("tags").expect("new");
    db.create_table("bytes").expect("new");
    for n in 0..20_u32 {
        let age = (n % 3 > 0).then_some(n);
        db.transact(|tx| ages.insert(tx, (format!("person {n}"), n as u8), &age)).expect("commits");
    }
    db.checkpoint().expect("works");
    let types = TableTypes::multimap::<String, Reverse<u16>>().expect("short");
    db.set_types("tags", &types).expect("not open");
    let tags: Multimap<String, Reverse<u16>> = db.multimap("tags").expect("its types");
    let late: TypedTable<i64, Vec<u8>> = db.typed_table("late").expect("new");
    let name = |age: &Option<u32>| age.map(|age| format!("aged {age}"));
    db.unique_index(&ages, "by name", name).expect("there is room");
    for n in 0..20_u16 {
        db.transact(|tx| {
            tags.insert(tx, "number", Reverse(n))?;
            late.insert(tx, -i64::from(n), &n.to_be_bytes())
        })
        .expect("commits");
    }
    let expected = content(&db);
    if closed {
        drop((ages, tags, late));
        db.close().expect("works");
        return (disk.duplicate(), expected);
    }
    (disk.crash(CrashKind::Kill, disk.operations(), 1).duplicate(), expected)
}

/// Makes a backup of a closed database, and an increment that adds a table, each with the content
/// that it restores.
pub fn make_backups() -> [(SimulatedStorage, Content); 2] {
    let (disk, expected) = make(true);
    let (full, increment) = (SimulatedStorage::new(3), SimulatedStorage::new(4));
    let mut sample = Sample { db: settings().open(&disk), expected };
    sample.db.backup(place(&full), BackupOptions::default()).expect("sound");
    let of_full = sample.expected.clone();
    let later = sample.db.create_table("later").expect("new");
    sample.put(&later, "later", (0..40).map(|n| (vec![n], vec![n; 90])));
    let base = Some(place(&full));
    sample.db.backup(place(&increment), BackupOptions::default().with(|s| s.base = base)).expect("sound");
    sample.db.close().expect("works");
    [(full.duplicate(), of_full), (increment.duplicate(), sample.expected)]
}

/// Returns the names of the samples that users have.
pub fn names() -> Vec<String> {
    let kinds = ["backup", "closed", "increment", "killed", "mapped-memory", "typed-closed", "typed-killed"];
    kinds.map(|kind| format!("v{NEWEST}-{kind}.sample")).to_vec()
}

/// Makes the sample of that name again: its disks and its content.
pub fn make_named(name: &str) -> (Vec<SimulatedStorage>, Content) {
    let (_, kind) = name.split_once('-').expect("v, a number, a dash");
    let ((disk, expected), base) = match kind.strip_suffix(".sample").expect("made by this code") {
        "closed" => (make(true), None),
        "killed" => (make(false), None),
        "mapped-memory" => (make_in_memory(), None),
        "typed-closed" => (make_typed(true), None),
        "typed-killed" => (make_typed(false), None),
        backup => {
            let [full, increment] = make_backups();
            match backup {
                "backup" => (full, None),
                "increment" => (increment, Some(full.0)),
                other => panic!("{other}: no kind of sample"),
            }
        }
    };
    (base.into_iter().chain([disk]).collect(), expected)
}

pub fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

/// Packs a storage into one file. For each file: path, length, then runs. A run is a count and one
/// byte to repeat or, if the count's high bit is set, as many bytes.
pub fn pack(disk: &SimulatedStorage) -> Vec<u8> {
    const LITERAL: u32 = 1 << 31;
    let mut packed = Vec::new();
    let files = disk.files().into_iter().map(|path| (disk.read_file(&path).expect("listed"), path));
    let memory = Some((disk.read_memory(), MEMORY.to_string())).filter(|(bytes, _)| !bytes.is_empty());
    for (bytes, path) in files.chain(memory) {
        packed.extend(format!("{path}\n{}\n", bytes.len()).bytes());
        let mut literal: Vec<u8> = Vec::new();
        let flush = |literal: &mut Vec<u8>, packed: &mut Vec<u8>| {
            if !literal.is_empty() {
                packed.extend((literal.len() as u32 | LITERAL).to_le_bytes());
                packed.append(literal);
            }
        };
        for run in bytes.chunk_by(|a, b| a == b) {
            if run.len() < 8 {
                literal.extend(run);
            } else {
                flush(&mut literal, &mut packed);
                packed.extend((run.len() as u32).to_le_bytes());
                packed.push(run[0]);
            }
        }
        flush(&mut literal, &mut packed);
    }
    packed
}

pub fn unpack(packed: &[u8]) -> SimulatedStorage {
    fn line<'a>(rest: &mut &'a [u8]) -> &'a str {
        let end = rest.iter().position(|byte| *byte == b'\n').expect("a whole sample");
        let (line, after) = rest.split_at(end);
        *rest = &after[1..];
        std::str::from_utf8(line).expect("a path or a number")
    }
    fn take<'a>(rest: &mut &'a [u8], len: usize) -> &'a [u8] {
        let (taken, after) = rest.split_at(len);
        *rest = after;
        taken
    }
    let disk = SimulatedStorage::new(2);
    let mut rest = packed;
    while !rest.is_empty() {
        let path = line(&mut rest).to_string();
        let len: usize = line(&mut rest).parse().expect("a length");
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let count = u32::from_le_bytes(take(&mut rest, 4).try_into().expect("four bytes"));
            match count >> 31 {
                0 => bytes.resize(bytes.len() + count as usize, take(&mut rest, 1)[0]),
                _ => bytes.extend(take(&mut rest, (count & !(1 << 31)) as usize)),
            }
        }
        if path == MEMORY {
            let len = bytes.len() as u64;
            let (cache, latency) = (MemoryCache::Volatile, Duration::ZERO);
            let options = MapOptions {
                create: true,
                read_only: false,
                bytes: len,
                new_bytes: len,
                cache,
                store: None,
                latency,
            };
            let memory = disk.map_memory(Path::new(MEMORY), options).expect("simulated");
            memory.store(0, &bytes);
            memory.barrier();
            continue;
        }
        disk.write_file(&path, &bytes);
    }
    disk
}

/// The name of a simulated disk's mapped memory among the packed files.
pub const MEMORY: &str = "mapped-memory";
