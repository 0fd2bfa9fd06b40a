//! Formats: databases of earlier versions open, or are refused with the version that opens them; newer versions are refused.
//!
//! The samples lie in `tests/data/`, one file for each database. They are made by
//!
//! ```text
//! cargo test -p quenchdb --test formats -- --ignored make_samples
//! ```
//!
//! when a format has changed and before that is released. Existing samples stay as they are: they are what users have.

mod support;

use quenchdb::base::checksum::crc;
use quenchdb::base::random::Random;
use quenchdb::device::Storage;
use quenchdb::device::mapped::MapOptions;
use quenchdb::device::simulated::{CrashKind, SimulatedStorage};
use quenchdb::{
    BackupOptions, Compression, Database, Dependency, Durability, Error, ErrorKind, Isolation, Layout,
    Location, MemoryCache, Preset, RestoreOptions, Result, Settings, Table,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use support::{Content, content, place};

const SECTOR: usize = 4096;
/// Block kind.
const PACK: u8 = 7;

/// So little memory that pages have to leave it: their images have stamps.
fn settings() -> Settings {
    Settings {
        memory_bytes: 2 << 20,
        version_bytes: 1 << 20,
        segment_bytes: 256 << 10,
        log_buffer_bytes: 64 << 10,
        log_bytes_max: 16 << 20,
        checkpoint_log_bytes: 0,
        flush_unit_bytes: 4096,
        ..Settings::default()
    }
}

fn open(disk: &SimulatedStorage) -> Result<Database> {
    Database::builder().settings(settings()).storage(Arc::new(disk.clone())).open("simulated")
}

/// A database and what must be in it.
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

    /// Transactions whose redo is in chunks: rows, a large value, and one that rolls back into a chunk.
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

    /// Transactions of two logs that read what is not durable yet: their records list it.
    fn fill_with_lists(&mut self) {
        let chain = self.db.table_or_create("chain").expect("works");
        let lazy = |n: u8| {
            let mut tx = self.db.begin_with(Isolation::Snapshot, Durability::Lazy).expect("free");
            for earlier in n.saturating_sub(3)..n {
                assert!(tx.get(&chain, [earlier]).expect("readable").is_some());
            }
            tx.insert(&chain, [n], vec![n; 50]).expect("fits");
            tx.commit().expect("commits");
        };
        for n in 0..12 {
            // Threads are spread over the logs.
            std::thread::scope(|scope| scope.spawn(|| lazy(n)).join()).expect("no panic");
        }
        self.expected.extend((0..12).map(|n| (("chain".to_string(), vec![n]), vec![n; 50])));
        self.put(&chain, "chain", (0..12).map(|n| (vec![100 + n], vec![n; 10])));
        let seen = self.db.transact(|tx| tx.get(&chain, [11])).expect("commits");
        assert!(seen.is_some(), "whoever reads it waits until it is durable");
    }

    /// One of everything that the formats have in version 1, `at` saying which values. The same on every call.
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
        // Long enough for pages of their own: one, and several.
        let long = |len: usize| (0..len).map(|n| at ^ (n / 1000) as u8).collect::<Vec<u8>>();
        let lens = [3_000, 5_000, 20_000, 9_000];
        self.put(&large, "large values", (0..4).map(|n| (vec![b'k', n], long(lens[n as usize]))));
        self.remove(&large, "large values", [vec![b'k', 3]].into_iter());
        drop(gone);
        self.db.drop_table("gone").expect("unused");
        self.expected.retain(|(table, _), _| table != "gone");
    }
}

/// Version of a log block with what came last.
const NEWEST_LOG: u16 = 4;
/// Of a manifest: that of a checkpoint with pages of large values in progress.
const NEWEST_MANIFEST: u32 = 5;

/// The version that the present build writes, of samples.
const NEWEST: u32 = 6;

/// Closed, or killed with a checkpoint and a log after it; with what there was in `version`, and the same on every call.
fn make(closed: bool, version: u32) -> (SimulatedStorage, Content) {
    make_with(closed, version, Compression::Lz4)
}

fn make_with(closed: bool, version: u32, compression: Compression) -> (SimulatedStorage, Content) {
    let disk = SimulatedStorage::new(1);
    let mut settings = Settings { compression, ..settings() };
    if version >= 4 {
        (settings.logs, settings.dependency) = (2, Some(Dependency::Exact));
    }
    if version >= 5 {
        settings.layout = Some(Layout::ByPage);
    }
    let builder = Database::builder().settings(settings).storage(Arc::new(disk.clone()));
    let mut sample =
        Sample { db: builder.open("simulated").expect("an empty disk"), expected: Content::new() };
    sample.fill(10);
    // Pages that leave memory beside a snapshot keep their stamps.
    let snapshot = sample.db.begin_read().expect("free");
    sample.fill(15);
    let ballast = sample.db.create_table("ballast").expect("new");
    for some in 0..80u8 {
        sample.put(&ballast, "ballast", (0..20).map(|n| (vec![some, n], vec![some; 700])));
    }
    drop(snapshot);
    // A value in progress of which there are pages that have left memory: the checkpoint lists them.
    let unfinished = (version >= 6 && !closed).then(|| {
        let large = sample.db.table_or_create("large values").expect("works");
        let mut tx = sample.db.begin().expect("free");
        tx.insert(&large, "unfinished", vec![9; 1_200_000]).expect("it needs no more memory than there is");
        tx
    });
    sample.db.checkpoint().expect("works");
    sample.fill(20);
    if version >= 2 {
        sample.fill_in_chunks();
    }
    if version >= 4 {
        sample.fill_with_lists();
    }
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

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

/// A storage in one file: for each file path and length, then runs: count, and one byte to repeat or, with the high bit of the
/// count, as many bytes.
fn pack(disk: &SimulatedStorage) -> Vec<u8> {
    const LITERAL: u32 = 1 << 31;
    let mut packed = Vec::new();
    for path in disk.files() {
        let bytes = disk.read_file(&path).expect("listed");
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

fn unpack(packed: &[u8]) -> SimulatedStorage {
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

/// The mapped memory of a simulated disk, among the files of a packed one.
const MEMORY: &str = "mapped-memory";

/// Made by a build of before manifests of version 5: killed while its newest commits were in mapped memory alone. 200 rows of lengths that
/// grow, one after the other; every fifth commit took the row of half its number away.
#[test]
fn a_database_of_manifest_version_4_with_its_log_in_mapped_memory_opens() {
    let packed = std::fs::read(data().join("v5-mapped-memory.packed")).expect("part of the source");
    let disk = unpack(&packed);
    let manifest = disk.read_file("MANIFEST").expect("there");
    assert_eq!((manifest[8], manifest[(1 << 20) + 8]), (4, 4), "the version of both slots");
    let mut expected = Content::new();
    for n in 0..200u8 {
        expected.insert(("rows".into(), vec![n]), vec![n; usize::from(n) * 9]);
        if n.is_multiple_of(5) {
            expected.remove(&("rows".into(), vec![n / 2]));
        }
    }
    let settings = Settings { preset: Preset::Passive, log_memory: Some(MEMORY.into()), ..settings() };
    let builder = |settings: Settings| Database::builder().settings(settings).storage(Arc::new(disk.clone()));
    let missing = SimulatedStorage::new(3);
    disk.files().iter().for_each(|path| missing.write_file(path, &disk.read_file(path).expect("listed")));
    let error =
        Database::builder().storage(Arc::new(missing)).open("sample").expect_err("the memory is missing");
    assert!(error.to_string().contains("memory-mapped log"), "{error}");
    for again in [false, true] {
        let db =
            builder(settings.clone()).open("sample").unwrap_or_else(|error| panic!("again {again}: {error}"));
        assert_eq!(db.recovery().discarded, 0);
        assert!(db.recovery().replayed > 10 || again, "{:?}", db.recovery());
        assert!(content(&db) == expected, "again {again}: other content");
        assert_eq!(db.verify(None).expect("runs").problems, Vec::<String>::new());
        db.close().expect("works");
    }
}

/// Kinds of the blocks of the page store, and of the images in packs, whatever counts of them.
fn kinds(disk: &SimulatedStorage) -> Vec<u8> {
    let bytes = disk.read_file("pages/data").expect("there");
    let blocks = || bytes.chunks(SECTOR).filter(|block| block[4..6] == *b"QB");
    let packs = blocks().filter(|block| block[6] == PACK);
    let packed = packs.flat_map(|block| block[32..].chunks(28).take(block[8].into()).map(|entry| entry[20]));
    let mut kinds: Vec<u8> = blocks().map(|block| block[6]).chain(packed).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

#[test]
#[ignore = "writes samples into the source tree: see the file's text"]
fn make_samples() {
    let version = format!("v{NEWEST}");
    for (closed, name) in [(true, "closed"), (false, "killed")] {
        let (disk, _) = make(closed, NEWEST);
        let path = data().join(format!("{version}-{name}.sample"));
        assert!(!path.exists(), "{} is what users have: it stays as it is", path.display());
        std::fs::create_dir_all(data()).expect("the source tree");
        std::fs::write(path, pack(&disk)).expect("the source tree");
    }
}

#[test]
fn a_sample_has_one_of_everything() {
    for closed in [true, false] {
        let (disk, expected) = make(closed, NEWEST);
        let packed = pack(&disk);
        assert!(packed.len() < 400_000, "{} bytes", packed.len());
        let again = unpack(&packed);
        assert_eq!(again.files(), disk.files());
        assert!(disk.files().iter().all(|path| again.read_file(path) == disk.read_file(path)));
        let manifest = disk.read_file("MANIFEST").expect("there");
        let newest = u32::from(manifest[8].max(manifest[(1 << 20) + 8]));
        assert!(closed || newest == NEWEST_MANIFEST, "manifest version {newest}");
        let kinds = kinds(&disk);
        assert!((1..=PACK).all(|kind| kinds.contains(&kind)), "block kinds {kinds:?}");
        let db = open(&disk).expect("its own version");
        assert_eq!(db.recovery().clean, closed);
        assert!(closed || db.recovery().replayed > 10);
        assert!(content(&db) == expected);
    }
}

#[test]
fn without_compression_nothing_says_that_there_could_be_packs() {
    for closed in [true, false] {
        // Nor that there could be pages of values in progress.
        let (disk, expected) = make_with(closed, 5, Compression::None);
        assert!(!kinds(&disk).contains(&PACK));
        let bytes = disk.read_file("pages/data").expect("there");
        let mut blocks = bytes.chunks(SECTOR).filter(|block| block[4..6] == *b"QB");
        assert!(blocks.all(|block| block[7] == 1), "the version of blocks");
        let manifest = disk.read_file("MANIFEST").expect("there");
        assert_eq!((manifest[8], manifest[(1 << 20) + 8]), (2, 2), "the version of both slots");
        assert!(content(&open(&disk).expect("opens")) == expected);
    }
}

#[test]
fn samples_of_every_version_open_and_are_whole() {
    let mut samples: Vec<PathBuf> = std::fs::read_dir(data())
        .expect("part of the source")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "sample"))
        .collect();
    samples.sort();
    assert!(samples.len() >= 2);
    for path in samples {
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        let packed = std::fs::read(&path).expect("readable");
        let closed = name.contains("closed");
        let version = name[1..].split('-').next().and_then(|n| n.parse().ok()).expect("v, a number, a dash");
        let (_, expected) = make(closed, version);
        let disk = unpack(&packed);
        let check = |db: &Database, how: &str| {
            assert!(content(db) == expected, "{name} {how}: other content");
            let problems = db.verify(None).expect("runs").problems;
            assert_eq!(problems, Vec::<String>::new(), "{name} {how}");
        };
        let read = Database::builder().memory_bytes(16 << 20).storage(Arc::new(disk.clone())).read_only(true);
        let reader = read.open("sample").unwrap_or_else(|error| panic!("{name}, read-only: {error}"));
        check(&reader, "read-only");
        drop(reader);
        let db = open(&disk).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!((db.recovery().clean, db.recovery().discarded), (closed, 0), "{name}");
        check(&db, "opened");
        db.checkpoint().expect("works");
        check(&db, "after a checkpoint");
        let backup = SimulatedStorage::new(3);
        db.backup(place(&backup), BackupOptions::default()).expect("sound");
        db.close().expect("works");
        check(&open(&disk).expect("closed"), "reopened");
        let restored = SimulatedStorage::new(4);
        Database::restore([place(&backup)], place(&restored), RestoreOptions::default()).expect("sound");
        check(&open(&restored).expect("restored"), "restored");
    }
}

/// Names file, found and supported version.
#[track_caller]
fn expect_newer(error: &Error, path: &str, found: u32, context: &str) {
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{context}: {error}");
    expect_named(&error.to_string(), found, context);
    let place = match error.location() {
        Some(Location::File { path, .. }) => path.clone(),
        other => panic!("{context}: {other:?}: {error}"),
    };
    assert_eq!(place, path, "{context}");
}

#[track_caller]
fn expect_named(message: &str, found: u32, context: &str) {
    let numbers: Vec<u32> =
        message.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect();
    assert!(numbers.contains(&found) && numbers.contains(&(found - 1)), "{context}: {message}");
}

fn changed(disk: &SimulatedStorage, path: &str, change: impl FnOnce(&mut Vec<u8>)) -> SimulatedStorage {
    let changed = disk.duplicate();
    let mut bytes = changed.read_file(path).expect("there");
    change(&mut bytes);
    changed.write_file(path, &bytes);
    changed
}

/// Raises the version in 16 bytes that mean the same in every version: magic, version, checksum.
fn raise_prefix(bytes: &mut [u8]) -> u32 {
    raise_prefix_from(u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes")), bytes)
}

/// The same above `newest`.
fn raise_prefix_from(newest: u32, bytes: &mut [u8]) -> u32 {
    let version = newest + 1;
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    let check = crc(&bytes[..12]);
    bytes[12..16].copy_from_slice(&check.to_le_bytes());
    version
}

#[test]
fn a_newer_manifest_is_refused() {
    let (disk, _) = make(true, NEWEST);
    for slot in [0, 1 << 20] {
        let mut found = 0;
        let newer = changed(&disk, "MANIFEST", |bytes| {
            found = raise_prefix_from(NEWEST_MANIFEST, &mut bytes[slot..]);
        });
        expect_newer(&open(&newer).expect_err("newer"), "MANIFEST", found, "opened");
        let builder = || Database::builder().settings(settings()).storage(Arc::new(newer.clone()));
        let error = builder().read_only(true).open("sample").expect_err("newer");
        expect_newer(&error, "MANIFEST", found, "read-only");
        let error = builder().open_checkpoint("sample").expect_err("newer");
        expect_newer(&error, "MANIFEST", found, "checkpoint");
    }
}

#[test]
fn newer_log_blocks_are_refused() {
    let (disk, _) = make(false, NEWEST);
    let segments: Vec<String> = disk.files().into_iter().filter(|path| path.starts_with("log/")).collect();
    let (mut blocks, mut versions) = (0, BTreeSet::new());
    for path in segments {
        let bytes = disk.read_file(&path).expect("listed");
        for at in (0..bytes.len()).step_by(SECTOR).filter(|at| bytes[at + 4..at + 8] == *b"QLOG") {
            // The header's checksum covers it to its end, wherever that is in this version.
            let covered = |end: &usize| bytes[at..at + 4] == crc(&bytes[at + 4..at + end]).to_le_bytes();
            let end = (40..256).step_by(4).find(covered).expect("a block's header");
            versions.insert(u16::from_le_bytes([bytes[at + 8], bytes[at + 9]]));
            let found = NEWEST_LOG + 1;
            let newer = changed(&disk, &path, |bytes| {
                bytes[at + 8..at + 10].copy_from_slice(&found.to_le_bytes());
                let check = crc(&bytes[at + 4..at + end]);
                bytes[at..at + 4].copy_from_slice(&check.to_le_bytes());
            });
            expect_newer(&open(&newer).expect_err("newer"), &path, found.into(), &format!("block at {at}"));
            blocks += 1;
        }
    }
    assert!(blocks > 5);
    assert!(versions.len() > 1 && versions.last() == Some(&NEWEST_LOG), "not all need it: {versions:?}");
}

#[test]
fn newer_blocks_of_the_page_store_are_refused_wherever_they_are_read() {
    refuse_newer_blocks(Compression::None, [1, 2, 3, 4, 5]);
    refuse_newer_blocks(Compression::Lz4, [1, 3, 4, 5, PACK]);
}

/// In a database that has blocks of these kinds, at least.
fn refuse_newer_blocks(compression: Compression, expected_kinds: [u8; 5]) {
    let (disk, expected) = make_with(true, NEWEST, compression);
    let path = "pages/data";
    let bytes = disk.read_file(path).expect("there");
    let mut refused = BTreeMap::<u8, u32>::new();
    for at in (0..bytes.len()).step_by(SECTOR).filter(|at| bytes[at + 4..at + 6] == *b"QB") {
        let (kind, found) = (bytes[at + 6], u32::from(bytes[at + 7]) + 1);
        let newer = changed(&disk, path, |bytes| {
            bytes[at + 7] = found as u8;
            let check = crc(&bytes[at + 4..at + SECTOR]);
            bytes[at..at + 4].copy_from_slice(&check.to_le_bytes());
        });
        let context = format!("block of kind {kind} at {at}");
        let read = Database::builder().settings(settings()).storage(Arc::new(newer.clone())).read_only(true);
        match read.open("sample") {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{context}: {error}");
                expect_named(&error.to_string(), found, &context);
                assert!(error.location().is_some(), "{context}: {error}");
                *refused.entry(kind).or_default() += 1;
            }
            Ok(db) => {
                let problems = db.verify(None).expect("runs").problems;
                if problems.is_empty() {
                    // An old image: nothing refers to it.
                    assert!(content(&db) == expected, "{context}");
                    continue;
                }
                assert!(
                    problems.iter().any(|problem| problem.contains("version")),
                    "{context}: {problems:?}"
                );
                expect_named(&problems.join(" "), found, &context);
                *refused.entry(kind).or_default() += 1;
            }
        }
    }
    let kinds: Vec<u8> = refused.keys().copied().collect();
    assert!(expected_kinds.iter().all(|kind| kinds.contains(kind)), "{refused:?}");
}

#[test]
fn a_newer_backup_is_refused() {
    let (disk, _) = make(true, NEWEST);
    let (backup, target) = (SimulatedStorage::new(5), SimulatedStorage::new(6));
    open(&disk).expect("closed").backup(place(&backup), BackupOptions::default()).expect("sound");
    let mut found = 0;
    let newer = changed(&backup, "BACKUP", |bytes| found = raise_prefix(bytes));
    let restored = Database::restore([place(&newer)], place(&target), RestoreOptions::default());
    expect_newer(&restored.expect_err("newer"), "BACKUP", found, "restored");
    let base = Some(place(&newer));
    let increment = open(&disk)
        .expect("closed")
        .backup(place(&SimulatedStorage::new(7)), BackupOptions { base, ..BackupOptions::default() });
    expect_newer(&increment.expect_err("newer"), "BACKUP", found, "as a base");
}

#[test]
fn damage_is_not_taken_for_a_newer_version() {
    let (disk, _) = make(true, NEWEST);
    let mut random = Random::from_seed(1);
    for _ in 0..20 {
        // The version without its checksum, in both slots.
        let flip = 1 << random.below(8);
        let damaged = changed(&disk, "MANIFEST", |bytes| {
            for slot in [0, 1 << 20] {
                bytes[slot + 8 + random.below(4) as usize] ^= flip;
            }
        });
        assert_eq!(open(&damaged).expect_err("damaged").kind(), ErrorKind::Corruption);
    }
}
