//! Salvage: whatever block is damaged, everything outside it is recovered, and nothing else.

use crate::support::test_database::{TestDatabase, tiny};
use crate::support::{Content, content, place};
use quenchdb::internals::base::depth::spread;
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::simulated::SimulatedStorage;
use quenchdb::{Compression, Database, ErrorKind, Progress, Result, SalvageReport, Settings};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

const BLOCK: usize = 4096;
/// A row that is in the checkpoint, and deleted by the log.
const DELETED: &[u8] = b"b 00007";

fn settings() -> Settings {
    tiny(4 << 20)
}

fn fill(db: &Database, name: &str, rows: std::ops::Range<u32>, len: usize) {
    let table = db.table_or_create(name).expect("a table");
    db.transact(|tx| {
        rows.clone().try_for_each(|n| {
            tx.insert(&table, format!("{name} {n:05}"), vec![n as u8; len + n as usize % 50])
        })
    })
    .expect("commits");
}

/// Returns two tables with inner nodes and one with large values, closed or stopped with
/// transactions in the log.
fn sample(closed: bool, compression: Compression) -> (SimulatedStorage, Content) {
    let disk = SimulatedStorage::new(1);
    let settings = settings().with(|s| s.compression = compression);
    let db = settings.open(&disk);
    fill(&db, "a", 0..600, 300);
    fill(&db, "b", 0..200, 100);
    fill(&db, "large", 0..3, 9000);
    db.checkpoint().expect("a whole disk");
    fill(&db, "a", 100..130, 300);
    let table = db.table("b").expect("there");
    db.transact(|tx| tx.remove(&table, DELETED).map(drop)).expect("commits");
    fill(&db, "late", 0..20, 50);
    let expected = content(&db);
    if closed {
        db.close().expect("a whole disk");
    } else {
        disk.stop();
        drop(db);
    }
    (disk.duplicate(), expected)
}

fn salvage(disk: &SimulatedStorage) -> Result<(Content, SalvageReport)> {
    let target = SimulatedStorage::new(2);
    let report = Database::salvage(place(disk), place(&target), settings(), None)?;
    let db = settings().open(&target);
    assert_eq!(db.verify(None).expect("can be checked").problems, Vec::<String>::new());
    Ok((content(&db), report))
}

fn damage(disk: &SimulatedStorage, path: &str, at: usize) -> SimulatedStorage {
    let damaged = disk.duplicate();
    let mut bytes = damaged.read_file(path).expect("there");
    bytes[at] ^= 0x20;
    damaged.write_file(path, &bytes);
    damaged
}

#[test]
fn a_sound_database_is_salvaged_whole() {
    for closed in [false, true] {
        let (disk, expected) = sample(closed, Compression::Lz4);
        let (found, report) = salvage(&disk).expect("something is there");
        assert_eq!(found, expected);
        assert!(report.is_whole(), "{report:?}");
        assert_eq!(report.transactions > 0, !closed);
    }
}

/// Checks that `found` has exactly the rows of `expected` outside the report's lost ranges.
#[track_caller]
fn expect_all_but_lost(found: &Content, expected: &Content, report: &SalvageReport, context: &str) {
    // Keys show which table they belong to.
    let mut there = std::collections::BTreeSet::new();
    for ((table, key), value) in found {
        if table.starts_with("salvaged-") && key == DELETED {
            // The log deletes the row, but its table is no longer known.
            continue;
        }
        let (_, own) =
            expected.iter().find(|((_, other), _)| other == key).expect("a key that was committed");
        assert_eq!(own, value, "{context}: table {table}");
        let known = expected.contains_key(&(table.clone(), key.clone()));
        assert!(known || table.starts_with("salvaged-"), "{context}: table {table}");
        assert!(there.insert(key), "{context}: twice");
    }
    for (table, key) in expected.keys().filter(|(_, key)| !there.contains(key)) {
        let lost = report.tables.get(table).is_some_and(|salvaged| {
            let inside = |upper: &Option<Vec<u8>>| upper.as_ref().is_none_or(|upper| key < upper);
            salvaged.lost.iter().any(|lost| *key >= lost.lower && inside(&lost.upper))
        });
        let large = table == "large" && report.remarks.iter().any(|remark| remark.contains("large value"));
        assert!(lost || large, "{context}: {table} {} is missing: {report:?}", key.escape_ascii());
    }
}

#[test]
fn whatever_block_is_damaged_everything_else_is_there() {
    let cases = [true, false].into_iter().flat_map(|closed| {
        [Compression::None, Compression::Lz4].into_iter().map(move |compression| (closed, compression))
    });
    for (closed, compression) in cases {
        let (disk, expected) = sample(closed, compression);
        let mut random = Random::from_seed(1);
        let blocks = disk.read_file("pages/data").expect("there").len() / BLOCK;
        let (mut whole, mut most_lost) = (0, 0);
        for block in spread(blocks as u64, 50) {
            let block = block as usize;
            let context = format!("closed {closed}, {compression:?}, block {block}");
            let damaged = damage(&disk, "pages/data", block * BLOCK + random.below(BLOCK as u64) as usize);
            let (found, report) = salvage(&damaged).expect("something is there");
            if found == expected {
                whole += 1;
                continue;
            }
            assert!(!report.is_whole(), "{context}");
            expect_all_but_lost(&found, &expected, &report, &context);
            most_lost = most_lost.max(expected.len().saturating_sub(found.len()));
        }
        // A leaf holds a dozen rows of `a`, some dozens of `b`; a pack many leaves.
        let most = if compression == Compression::None { 40 } else { expected.len() - 1 };
        assert!(whole > 10 && (1..=most).contains(&most_lost), "{whole} {most_lost} of {blocks}");
    }
}

#[test]
fn salvage_without_a_manifest_uses_the_newest_whole_catalog() {
    let (disk, expected) = sample(true, Compression::Lz4);
    for remove in [true, false] {
        let damaged = disk.duplicate();
        if remove {
            damaged.remove_file("MANIFEST");
        } else {
            damaged.write_file("MANIFEST", &[7; 9000]);
        }
        assert!(settings().try_open(&damaged).is_err());
        let (found, report) = salvage(&damaged).expect("pages are there");
        assert_eq!(found, expected, "{remove}");
        assert!(!report.is_whole() && report.remarks.iter().any(|remark| remark.contains("manifest")));
    }
}

#[test]
fn without_any_catalog_tables_are_named_after_their_roots() {
    let (disk, expected) = sample(true, Compression::Lz4);
    let damaged = disk.duplicate();
    let mut bytes = damaged.read_file("pages/data").expect("there");
    // Kind 5 is a part of a blob.
    for block in bytes.chunks_exact_mut(BLOCK).filter(|block| block[4..7] == *b"QB\x05") {
        block[100] ^= 1;
    }
    damaged.write_file("pages/data", &bytes);
    assert!(settings().try_open(&damaged).is_err());
    let (found, report) = salvage(&damaged).expect("pages are there");
    let rows = |content: &Content| {
        let mut rows: Vec<_> = content.iter().map(|((_, key), value)| (key.clone(), value.clone())).collect();
        rows.sort();
        rows
    };
    assert_eq!(rows(&found), rows(&expected));
    assert!(report.tables.keys().all(|name| name.starts_with("salvaged-")), "{:?}", report.tables.keys());
}

#[test]
fn a_damaged_log_costs_what_it_held() {
    let (disk, expected) = sample(false, Compression::Lz4);
    for path in disk.files().iter().filter(|path| path.starts_with("log/")) {
        let len = disk.read_file(path).expect("listed").len();
        for sector in 0..len / BLOCK {
            let (found, _) = salvage(&damage(&disk, path, sector * BLOCK + 70)).expect("pages are there");
            let missing = expected.len() - found.len().min(expected.len());
            assert!(missing <= 20, "{path} {sector}: only table `late` was never in a checkpoint");
        }
    }
    let without = disk.duplicate();
    disk.files().iter().filter(|path| path.starts_with("log/")).for_each(|path| without.remove_file(path));
    let (found, report) = salvage(&without).expect("pages are there");
    assert!(found.len() > 700 && report.transactions == 0);
}

#[test]
fn an_unreadable_log_sector_costs_only_its_transaction() {
    let (disk, expected) = sample(false, Compression::Lz4);
    let mut blocks: Vec<(u64, String, usize)> = Vec::new();
    for path in disk.files().into_iter().filter(|path| path.starts_with("log/")) {
        let bytes = disk.read_file(&path).expect("listed");
        for at in (0..bytes.len()).step_by(BLOCK).filter(|at| bytes[at + 4..at + 8] == *b"QLOG") {
            let sequence = u64::from_le_bytes(bytes[at + 32..at + 40].try_into().expect("eight bytes"));
            blocks.push((sequence, path.clone(), at));
        }
    }
    blocks.sort();
    // First rows that are written again unchanged; then the deletion, a table, and its rows.
    let (_, path, at) = &blocks[blocks.len() - 4];
    let start = *at as u64;
    disk.make_unreadable(path, start..start + 100);
    let (found, report) = salvage(&disk).expect("all else is there");
    let differ = expected.iter().find(|(key, value)| found.get(*key) != Some(*value)).map(|(key, _)| key);
    assert!(found == expected, "{differ:?}, {} rows of {}: {report:?}", found.len(), expected.len());
    let told = report
        .remarks
        .iter()
        .any(|remark| ["left out", path, &format!("byte {start}")].iter().all(|part| remark.contains(part)));
    assert!(told && report.remarks.iter().any(|remark| remark.contains("about 1 trans")), "{report:?}");
}

#[test]
fn nonsense_is_an_error_or_a_report_and_never_a_panic() {
    let (disk, _) = sample(false, Compression::Lz4);
    let mut random = Random::from_seed(9);
    for round in 0..60 {
        let damaged = disk.duplicate();
        for path in ["MANIFEST", "pages/data"] {
            let mut bytes = damaged.read_file(path).expect("there");
            for _ in 0..1 << random.below(8) {
                let at = random.below(bytes.len() as u64) as usize;
                let len = (1 + random.below(9000) as usize).min(bytes.len() - at);
                let from = random.below((bytes.len() - len + 1) as u64) as usize;
                match random.below(3) {
                    0 => bytes[at..at + len].fill(random.below(256) as u8),
                    1 => bytes.copy_within(from..from + len, at),
                    _ => bytes[at] ^= 1,
                }
            }
            if random.chance(1, 4) {
                bytes.truncate(random.below(bytes.len() as u64) as usize);
            }
            damaged.write_file(path, &bytes);
        }
        if let Err(error) = salvage(&damaged) {
            assert!(error.location().is_some(), "round {round}: {error}");
        }
    }
}

/// Regression: salvage ended at the first key that was too long for the pages of the new database,
/// and returned only what it had by then.
#[test]
fn a_key_that_only_a_longer_page_holds_is_salvaged() {
    for with_manifest in [true, false] {
        let disk = SimulatedStorage::new(1);
        let settings = settings().with(|s| s.memory_bytes = 16 << 20);
        let long = settings.clone().with(|s| s.page_bytes = 32768);
        let db = long.open(&disk);
        let table = db.create_table("t").expect("new");
        let key = vec![b'k'; 600];
        db.transact(|tx| tx.insert(&table, &key, "value")).expect("it fits");
        db.close().expect("a whole disk");
        if !with_manifest {
            disk.remove_file("MANIFEST");
        }
        let target = SimulatedStorage::new(2);
        Database::salvage(place(&disk), place(&target), settings, None).expect("everything is there");
        let db = self::settings().open(&target);
        assert_eq!(db.statistics().page_bytes, 32768);
        assert_eq!(content(&db), Content::from([(("t".to_string(), key), b"value".to_vec())]));
    }
}

fn files(disk: &SimulatedStorage) -> BTreeMap<String, Vec<u8>> {
    let with_bytes = |path: String| {
        let bytes = disk.read_file(&path).expect("listed");
        (path, bytes)
    };
    disk.files().into_iter().map(with_bytes).collect()
}

#[test]
fn what_is_in_the_target_is_refused_and_stays_as_it_is() {
    let (disk, _) = sample(true, Compression::Lz4);
    // It was not closed, so opening it would recover it.
    let (database, _) = sample(false, Compression::Lz4);
    let letter = SimulatedStorage::new(1);
    letter.write_file("letter", b"dear");
    for (target, kind) in [
        (&database, ErrorKind::AlreadyExists),
        (&letter, ErrorKind::InvalidArgument),
        (&disk, ErrorKind::AlreadyExists),
    ] {
        let before = files(target);
        let refused = Database::salvage(place(&disk), place(target), settings(), None);
        assert_eq!(refused.expect_err("it is not empty").kind(), kind);
        assert!(files(target) == before, "{kind:?}");
    }
}

#[test]
fn where_there_is_nothing_to_begin_with_the_target_stays_empty() {
    let (disk, expected) = sample(true, Compression::Lz4);
    let (nothing, target) = (SimulatedStorage::new(1), SimulatedStorage::new(2));
    let refused = Database::salvage(place(&nothing), place(&target), settings(), None);
    assert_eq!(refused.expect_err("there are no pages").kind(), ErrorKind::NotFound);
    assert_eq!(target.files(), Vec::<String>::new());
    Database::salvage(place(&disk), place(&target), settings(), None).expect("and is good for another");
    assert_eq!(content(&settings().open(&target)), expected);
}

/// Returns the names in a directory and its subdirectories, with the content of the files.
fn entries(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut entries = BTreeMap::new();
    for part in ["", "log", "pages"] {
        for entry in
            std::fs::read_dir(directory.join(part)).expect("there").map(|entry| entry.expect("readable"))
        {
            let name = format!("{part}/{}", entry.file_name().to_string_lossy());
            entries.insert(name, std::fs::read(entry.path()).unwrap_or_default());
        }
    }
    entries
}

#[test]
fn the_source_is_only_read_and_its_lock_is_respected() {
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary directory");
    let at = |name: &str| root.path().join(name);
    let source = at("source");
    let db = settings().open_in(&source);
    fill(&db, "a", 0..50, 100);
    let expected = content(&db);
    let refused = Database::salvage(&source, at("busy"), settings(), None);
    assert_eq!(refused.expect_err("it is open").kind(), ErrorKind::Busy);
    db.close().expect("closes");
    for (target, with_lock) in [("one", true), ("two", false)] {
        if !with_lock {
            // As in a copy of only the necessary files.
            std::fs::remove_file(source.join("LOCK")).expect("it was there");
        }
        let before = entries(&source);
        let report = Database::salvage(&source, at(target), settings(), None).expect("sound");
        assert!(report.is_whole(), "{report:?}");
        assert!(entries(&source) == before, "with a lock: {with_lock}");
        let db = settings().open_in(at(target));
        assert_eq!(content(&db), expected);
    }
}

#[test]
fn salvage_finds_owners_of_blocks_in_one_reported_pass() {
    let (disk, _) = sample(true, Compression::Lz4);
    disk.remove_file("MANIFEST");
    let len = disk.read_file("pages/data").expect("there").len() as u64;
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hears = heard.clone();
    let progress: Progress = Box::new(move |what, done, total| {
        if what == "bytes looked at" {
            hears.lock().expect("no thread panicked").push((done, total));
        }
    });
    let target = SimulatedStorage::new(2);
    Database::salvage(place(&disk), place(&target), settings(), Some(progress)).expect("pages are there");
    let pieces: Vec<(u64, u64)> = (0..len).step_by(1 << 20).map(|offset| (offset, len)).collect();
    assert_eq!(*heard.lock().expect("no thread panicked"), pieces);
}
