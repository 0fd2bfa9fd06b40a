//! Formats: databases of earlier versions open, or are refused with the version that opens them;
//! newer versions are refused.
//!
//! The samples lie in `tests/data/`, one file for each database. They are made by
//!
//! ```text
//!   cargo test -p quenchdb --test engine -- --ignored formats::make_samples
//! ```
//!
//! when a format has changed, before its release, with the new names in `QUENCH_SAMPLES=`. Existing
//! samples stay as they are, because they are what users have.

mod samples;

use crate::support::test_database::{TestDatabase, tiny};
use crate::support::{content, place};
use quenchdb::internals::base::checksum::crc;
use quenchdb::internals::base::depth::is_deep;
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::simulated::SimulatedStorage;
use quenchdb::{BackupOptions, Compression, Database, Error, ErrorKind, Location, RestoreOptions, Settings};
use samples::{MEMORY, TYPES, data, make, make_named, make_with, names, pack, settings_in_memory, unpack};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const SECTOR: usize = 4096;
/// Block kind.
const PACK: u8 = 7;

/// So little memory that pages are evicted: their images have stamps.
fn settings() -> Settings {
    tiny(2 << 20).with(|s| s.segment_bytes = 256 << 10)
}

/// Version of a log block.
const NEWEST_LOG: u16 = 1;
/// Version of a manifest.
const NEWEST_MANIFEST: u32 = 1;

/// Returns the kinds of all blocks of the page store, and of images in packs.
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
    let wanted = std::env::var("QUENCH_SAMPLES").unwrap_or_default();
    let is_wanted = |name: &&String| wanted.split(' ').any(|wanted| wanted == name.as_str());
    // A backup is made together with the increment that adds to it.
    for name in names().iter().filter(is_wanted).filter(|name| !name.contains("backup")) {
        let (disks, _) = make_named(name);
        for (disk, name) in disks.iter().rev().zip([name, &name.replace("increment", "backup")]) {
            let path = data().join(name);
            assert!(!path.exists(), "{} is what users have: it stays as it is", path.display());
            std::fs::write(path, pack(disk)).expect("the source tree");
        }
    }
}

#[test]
fn a_sample_has_one_of_everything() {
    for closed in [true, false] {
        let (disk, expected) = make(closed);
        let packed = pack(&disk);
        assert!(packed.len() < 400_000, "{} bytes", packed.len());
        let again = unpack(&packed);
        assert_eq!(again.files(), disk.files());
        assert!(disk.files().iter().all(|path| again.read_file(path) == disk.read_file(path)));
        let manifest = disk.read_file("MANIFEST").expect("there");
        let newest = u32::from(manifest[8].max(manifest[(1 << 20) + 8]));
        assert!(newest == NEWEST_MANIFEST, "manifest version {newest}");
        let kinds = kinds(&disk);
        assert!((1..=PACK).all(|kind| kinds.contains(&kind)), "block kinds {kinds:?}");
        let db = settings().open(&disk);
        assert_eq!(db.recovery().clean, closed);
        assert!(closed || db.recovery().replayed > 10);
        assert!(content(&db) == expected);
    }
}

#[test]
fn without_compression_there_are_no_packs() {
    for closed in [true, false] {
        let (disk, expected) = make_with(closed, Compression::None);
        assert!(!kinds(&disk).contains(&PACK));
        assert!(content(&settings().open(&disk)) == expected);
    }
}

fn stored(name: &str) -> SimulatedStorage {
    unpack(&std::fs::read(data().join(name)).unwrap_or_else(|error| panic!("{name}: {error}")))
}

#[test]
fn no_sample_is_missing_and_none_is_left_out() {
    let entries = std::fs::read_dir(data()).expect("part of the source");
    let mut found: Vec<String> =
        entries.map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned()).collect();
    found.sort();
    assert_eq!(found, names());
}

/// Checks that a database whose newest commits are only in mapped memory needs that memory.
fn expect_memory_is_missed(disk: &SimulatedStorage) {
    let missing = SimulatedStorage::new(3);
    disk.files().iter().for_each(|path| missing.write_file(path, &disk.read_file(path).expect("listed")));
    let opened = Database::builder().storage(Arc::new(missing)).open("sample");
    let error = opened.expect_err("the memory is missing");
    assert!(error.to_string().contains("memory-mapped log"), "{error}");
}

#[test]
fn samples_of_every_version_open_and_are_whole() {
    let is_database =
        |name: &&String| ["closed.", "killed.", "memory.s"].iter().any(|end| name.contains(end));
    let names: Vec<String> = names().iter().filter(is_database).cloned().collect();
    assert_eq!(names.len(), 5);
    for name in names {
        let closed = name.contains("closed");
        let in_memory = name.contains(MEMORY);
        let (_, expected) = make_named(&name);
        let disk = stored(&name);
        assert_eq!(disk.read_memory().is_empty(), !in_memory, "{name}");
        if in_memory {
            expect_memory_is_missed(&disk);
        }
        let settings = if in_memory { settings_in_memory() } else { settings() };
        let check = |db: &Database, how: &str| {
            assert!(content(db) == expected, "{name} {how}: other content");
            let problems = db.verify(None).expect("runs").problems;
            assert_eq!(problems, Vec::<String>::new(), "{name} {how}");
        };
        let read = Database::builder().memory_bytes(16 << 20).storage(Arc::new(disk.clone())).read_only(true);
        let read = if in_memory { read.log_memory(MEMORY) } else { read };
        let reader = read.open("sample").unwrap_or_else(|error| panic!("{name}, read-only: {error}"));
        check(&reader, "read-only");
        drop(reader);
        let db = settings.try_open(&disk).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!((db.recovery().clean, db.recovery().discarded), (closed, 0), "{name}");
        assert!(closed || db.recovery().replayed > 10, "{name}: {:?}", db.recovery());
        check(&db, "opened");
        db.checkpoint().expect("works");
        check(&db, "after a checkpoint");
        let backup = SimulatedStorage::new(3);
        db.backup(place(&backup), BackupOptions::default()).expect("sound");
        db.close().expect("works");
        check(&settings.open(&disk), "reopened");
        let restored = SimulatedStorage::new(4);
        Database::restore([place(&backup)], place(&restored), RestoreOptions::default()).expect("sound");
        check(&self::settings().open(&restored), "restored");
    }
}

#[test]
fn samples_with_types_open_with_these_alone() {
    for closed in ["closed", "killed"] {
        let db = settings().open(&stored(&format!("v1-typed-{closed}.sample")));
        for (name, types) in TYPES {
            let found = db.table(name).expect("part of the sample").types().map(|types| types.to_string());
            assert_eq!(found.as_deref(), types, "{closed}: {name}");
        }
        let refused = db.typed_table::<u64, Vec<u8>>("late").expect_err("other types");
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
        let late = db.typed_table::<i64, Vec<u8>>("late").expect("its types");
        let snapshot = db.begin_read().expect("free");
        assert_eq!(late.get(&snapshot, -3).expect("whole"), Some(vec![0, 3]));
    }
}

#[test]
fn samples_without_types_get_those_of_their_first_open() {
    let disk = stored("v1-closed.sample");
    let db = settings().open(&disk);
    assert_eq!(db.table("rows").expect("part of the sample").types(), None);
    db.typed_table::<u16, Vec<u8>>("rows").expect("without types");
    db.close().expect("works");
    let db = settings().open(&disk);
    let refused = db.typed_table::<i16, Vec<u8>>("rows").expect_err("other types");
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    let rows = db.typed_table::<u16, Vec<u8>>("rows").expect("its types");
    assert_eq!(rows.get(&db.begin_read().expect("free"), 0).expect("whole").map(|value| value[0]), Some(20));
    assert_eq!(db.table("large values").expect("part of the sample").types(), None);
}

#[test]
fn backups_of_every_version_restore_and_can_be_added_to() {
    let chain = ["v1-backup.sample", "v1-increment.sample"];
    for parts in [&chain[..1], &chain[..]] {
        let (_, mut expected) = make_named(parts[parts.len() - 1]);
        let backups: Vec<SimulatedStorage> = parts.iter().map(|name| stored(name)).collect();
        let restored = SimulatedStorage::new(4);
        Database::restore(backups.iter().map(place), place(&restored), RestoreOptions::default())
            .unwrap_or_else(|error| panic!("{parts:?}: {error}"));
        let db = self::settings().open(&restored);
        assert!(content(&db) == expected, "{parts:?}: other content");
        assert_eq!(db.verify(None).expect("runs").problems, Vec::<String>::new(), "{parts:?}");
        let table = db.table_or_create("more").expect("works");
        db.transact(|tx| tx.insert(&table, "key", "value")).expect("commits");
        expected.insert(("more".into(), b"key".to_vec()), b"value".to_vec());
        assert!(content(&db) == expected, "{parts:?}: it can be written to");
        db.close().expect("works");
    }
}

/// Checks that the error names the file, the found and the supported version.
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

/// Raises the version to the one above `newest`.
fn raise_prefix_from(newest: u32, bytes: &mut [u8]) -> u32 {
    let version = newest + 1;
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    let check = crc(&bytes[..12]);
    bytes[12..16].copy_from_slice(&check.to_le_bytes());
    version
}

#[test]
fn a_newer_manifest_is_refused() {
    let (disk, _) = make(true);
    for slot in [0, 1 << 20] {
        let mut found = 0;
        let newer = changed(&disk, "MANIFEST", |bytes| {
            found = raise_prefix_from(NEWEST_MANIFEST, &mut bytes[slot..]);
        });
        expect_newer(&settings().try_open(&newer).expect_err("newer"), "MANIFEST", found, "opened");
        let builder = || settings().on(&newer);
        let error = builder().read_only(true).open("sample").expect_err("newer");
        expect_newer(&error, "MANIFEST", found, "read-only");
        let error = builder().open_checkpoint("sample").expect_err("newer");
        expect_newer(&error, "MANIFEST", found, "checkpoint");
    }
}

#[test]
fn newer_log_blocks_are_refused() {
    let (disk, _) = make(false);
    let segments: Vec<String> = disk.files().into_iter().filter(|path| path.starts_with("log/")).collect();
    let (mut blocks, mut versions) = (0, BTreeSet::new());
    for path in segments {
        let bytes = disk.read_file(&path).expect("listed");
        for at in (0..bytes.len()).step_by(SECTOR).filter(|at| bytes[at + 4..at + 8] == *b"QLOG") {
            // The header's checksum covers the header to its end, which depends on the version.
            let covered = |end: &usize| bytes[at..at + 4] == crc(&bytes[at + 4..at + end]).to_le_bytes();
            let end = (40..256).step_by(4).find(covered).expect("a block's header");
            versions.insert(u16::from_le_bytes([bytes[at + 8], bytes[at + 9]]));
            let found = NEWEST_LOG + 1;
            let newer = changed(&disk, &path, |bytes| {
                bytes[at + 8..at + 10].copy_from_slice(&found.to_le_bytes());
                let check = crc(&bytes[at + 4..at + end]);
                bytes[at..at + 4].copy_from_slice(&check.to_le_bytes());
            });
            expect_newer(
                &settings().try_open(&newer).expect_err("newer"),
                &path,
                found.into(),
                &format!("block at {at}"),
            );
            blocks += 1;
        }
    }
    assert!(blocks > 5);
    assert_eq!(Vec::from_iter(versions), [NEWEST_LOG]);
}

#[test]
fn newer_blocks_of_the_page_store_are_refused_at_every_read() {
    refuse_newer_blocks(Compression::None, [1, 2, 3, 4, 5]);
    refuse_newer_blocks(Compression::Lz4, [1, 3, 4, 5, PACK]);
}

/// Blocks of each kind of which a newer version must be refused.
fn blocks_of_a_kind() -> u32 {
    if is_deep() { u32::MAX } else { 3 }
}

/// Uses a database that has blocks of at least these kinds.
fn refuse_newer_blocks(compression: Compression, expected_kinds: [u8; 5]) {
    let (disk, expected) = make_with(true, compression);
    let path = "pages/data";
    let bytes = disk.read_file(path).expect("there");
    let mut refused = BTreeMap::<u8, u32>::new();
    for at in (0..bytes.len()).step_by(SECTOR).filter(|at| bytes[at + 4..at + 6] == *b"QB") {
        let (kind, found) = (bytes[at + 6], u32::from(bytes[at + 7]) + 1);
        if refused.get(&kind).is_some_and(|refused| *refused >= blocks_of_a_kind()) {
            continue;
        }
        let newer = changed(&disk, path, |bytes| {
            bytes[at + 7] = found as u8;
            let check = crc(&bytes[at + 4..at + SECTOR]);
            bytes[at..at + 4].copy_from_slice(&check.to_le_bytes());
        });
        let context = format!("block of kind {kind} at {at}");
        let read = settings().on(&newer).read_only(true);
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
                    // An old image, which nothing refers to.
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
    let (disk, _) = make(true);
    let (backup, target) = (SimulatedStorage::new(5), SimulatedStorage::new(6));
    settings().open(&disk).backup(place(&backup), BackupOptions::default()).expect("sound");
    let mut found = 0;
    let newer = changed(&backup, "BACKUP", |bytes| found = raise_prefix(bytes));
    let restored = Database::restore([place(&newer)], place(&target), RestoreOptions::default());
    expect_newer(&restored.expect_err("newer"), "BACKUP", found, "restored");
    let base = Some(place(&newer));
    let increment = settings()
        .open(&disk)
        .backup(place(&SimulatedStorage::new(7)), BackupOptions::default().with(|s| s.base = base));
    expect_newer(&increment.expect_err("newer"), "BACKUP", found, "as a base");
}

#[test]
fn damage_is_not_taken_for_a_newer_version() {
    let (disk, _) = make(true);
    let mut random = Random::from_seed(1);
    for _ in 0..20 {
        // Damages the version in both slots without updating the checksum.
        let flip = 1 << random.below(8);
        let damaged = changed(&disk, "MANIFEST", |bytes| {
            for slot in [0, 1 << 20] {
                bytes[slot + 8 + random.below(4) as usize] ^= flip;
            }
        });
        assert_eq!(settings().try_open(&damaged).expect_err("damaged").kind(), ErrorKind::Corruption);
    }
}
