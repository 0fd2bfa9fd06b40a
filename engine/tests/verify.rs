//! `verify`: the problems that it must find, with their places, and those that it must not report.
//!
//! `damage.rs` checks the content of damaged databases; these tests check the report.

use crate::support::test_database::{TestDatabase, tiny};
use quenchdb::internals::base::depth::is_deep;
use quenchdb::internals::device::simulated::{CrashKind, Fault, FaultKind, OperationKind, SimulatedStorage};
use quenchdb::{Compression, Database, ErrorKind, Preset, Settings, VerifyReport};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const SECTOR: usize = 4096;

fn settings(preset: Preset) -> Settings {
    tiny(4 << 20).with(|s| {
        s.preset = preset;
        s.logs = if preset == Preset::Autonomous { 2 } else { 1 };
        s.log_bytes_max = 4 << 20;
        // So that tests find the rows that they damage.
        s.compression = Compression::None;
        // The log needs no new segments after an open: making one would take a fault of a read.
        s.trim_log = false;
    })
}

/// Returns the report on a database that is not open.
fn verify(disk: &SimulatedStorage) -> VerifyReport {
    let storage = Arc::new(disk.duplicate());
    let builder = Database::builder().settings(settings(Preset::Group)).storage(storage);
    builder.verify("simulated", None).expect("can be checked")
}

fn fill(db: &Database, table: &str, rows: std::ops::Range<u32>) {
    let table = db.table_or_create(table).expect("a whole disk");
    for n in rows {
        let mut tx = db.begin().expect("free");
        tx.insert(&table, format!("key {n:05}").as_bytes(), [n as u8; 200]).expect("free row");
        tx.commit().expect("a whole disk");
    }
}

/// A log block: file, offset, length, number, and last CSN.
#[derive(Clone, Debug)]
struct Block {
    path: String,
    offset: usize,
    len: usize,
    sequence: u64,
    last_csn: u64,
}

/// Returns all log blocks on the disk, ordered by number.
fn blocks(disk: &SimulatedStorage) -> Vec<Block> {
    let mut found = Vec::new();
    for path in disk.files().into_iter().filter(|path| path.starts_with("log/")) {
        let bytes = disk.read_file(&path).expect("listed");
        for offset in (0..bytes.len()).step_by(SECTOR) {
            let word = |at: usize| {
                u64::from_le_bytes(bytes[offset + at..offset + at + 8].try_into().expect("eight bytes"))
            };
            if bytes[offset + 4..offset + 8] == *b"QLOG" {
                let len = 80 + (word(40) & 0xffff_ffff) as usize;
                let (sequence, last_csn) = (word(32), word(56));
                found.push(Block { path: path.clone(), offset, len, sequence, last_csn });
            }
        }
    }
    found.sort_by_key(|block| block.sequence);
    found
}

fn flip(disk: &SimulatedStorage, path: &str, at: usize) {
    let mut bytes = disk.read_file(path).expect("a file of the database");
    bytes[at] ^= 1;
    disk.write_file(path, &bytes);
}

#[track_caller]
fn assert_finds(report: &VerifyReport, parts: &[&str]) {
    let found = report.problems.iter().any(|problem| parts.iter().all(|part| problem.contains(part)));
    assert!(found, "nothing with {parts:?} in {:#?}", report.problems);
}

#[track_caller]
fn assert_sound(report: &VerifyReport) {
    assert!(report.problems.is_empty(), "{:#?}", report.problems);
    assert!(extra_files(report).is_empty(), "{:#?}", report.files);
}

fn extra_files(report: &VerifyReport) -> Vec<&str> {
    report.files.iter().flat_map(|files| &files.extra_files).map(|extra| extra.path.as_str()).collect()
}

#[test]
fn a_flipped_log_bit_of_a_running_database_is_located() {
    let (disk, db) = settings(Preset::Group).create(1);
    fill(&db, "t", 0..60);
    db.checkpoint().expect("a whole disk");
    let checkpoint = db.statistics().checkpoint_csn.0;
    fill(&db, "t", 60..120);
    let report = db.verify(None).expect("runs");
    assert_sound(&report);
    assert_eq!((report.log_blocks, report.log_records), (60, 60));
    let blocks = blocks(&disk);
    assert!(blocks.len() >= 60);
    for block in &blocks {
        // Checksum, magic, epoch, sequence, payload.
        for at in [0, 5, 24, 33, 90, block.len - 1] {
            flip(&disk, &block.path, block.offset + at);
            let report = db.verify(None).expect("runs");
            if block.last_csn <= checkpoint {
                assert_sound(&report);
            } else {
                let place = format!("(at {}, byte {})", block.path, block.offset);
                assert_finds(&report, &["log 0, epoch 2", &format!("block {}:", block.sequence), &place]);
                assert_finds(&report, &["in no whole block", &format!("CSN {}", block.last_csn)]);
                assert_eq!(report.problems.len(), 2, "{:#?}", report.problems);
            }
            flip(&disk, &block.path, block.offset + at);
        }
    }
    assert_sound(&db.verify(None).expect("runs"));
}

#[test]
fn a_flipped_log_bit_of_a_crashed_database_is_located() {
    let (disk, db) = settings(Preset::Group).create(1);
    fill(&db, "t", 0..40);
    let crashed = disk.duplicate();
    disk.stop();
    drop(db);
    assert_sound(&verify(&crashed));
    assert_eq!(verify(&crashed).log_records, 41, "with the creation of the table");
    let blocks = blocks(&crashed);
    let (last, rest) = blocks.split_last().expect("41 blocks");
    for block in rest {
        flip(&crashed, &block.path, block.offset + 100);
        let report = verify(&crashed);
        let place = format!("(at {}, byte {})", block.path, block.offset);
        assert_finds(&report, &["log 0, epoch 2", &format!("block {}:", block.sequence), &place]);
        assert!(report.problems[0].contains("a committed transaction is missing"), "{:?}", report.problems);
        flip(&crashed, &block.path, block.offset + 100);
    }
    // No later record proves the last one, so it may be a torn tail.
    flip(&crashed, &last.path, last.offset + 100);
    assert_sound(&verify(&crashed));
}

#[test]
fn a_sector_of_the_log_that_cannot_be_read_costs_its_block_only() {
    let (disk, db) = settings(Preset::Group).create(1);
    fill(&db, "t", 0..100);
    let whole = db.verify(None).expect("runs");
    assert_sound(&whole);
    let block = blocks(&disk)[50].clone();
    disk.make_unreadable(&block.path, block.offset as u64 + 512..block.offset as u64 + 513);
    let report = db.verify(None).expect("runs");
    assert_eq!(report.log_blocks, whole.log_blocks - 1, "{:#?}", report.problems);
    let place = format!("byte {}", block.offset);
    assert_finds(&report, &["cannot be read", &block.path, &place]);
    assert_finds(&report, &[&format!("block {}:", block.sequence), &place]);
    assert_finds(&report, &["1 committed transactions", &format!("CSN {}", block.last_csn)]);
    assert_eq!(report.problems.len(), 3, "{:#?}", report.problems);
}

#[test]
fn the_log_keeps_replayed_records_until_a_checkpoint() {
    let (disk, db) = settings(Preset::Group).create(1);
    fill(&db, "t", 0..40);
    let crashed = disk.duplicate();
    disk.stop();
    drop(db);
    let old = blocks(&crashed);
    let db = settings(Preset::Group).open(&crashed);
    fill(&db, "t", 40..50);
    assert_sound(&db.verify(None).expect("runs"));
    let block = &old[17];
    flip(&crashed, &block.path, block.offset + 100);
    let report = db.verify(None).expect("runs");
    let place = format!("(at {}, byte {})", block.path, block.offset);
    assert_finds(&report, &["log 0, epoch 2", &format!("block {}:", block.sequence), &place]);
    db.checkpoint().expect("a whole disk");
    assert_sound(&db.verify(None).expect("runs"));
}

#[test]
fn a_lost_segment_is_reported() {
    let (disk, db) = settings(Preset::Group).create(1);
    fill(&db, "t", 0..60);
    let paths: Vec<String> = blocks(&disk).into_iter().map(|block| block.path).collect();
    let (first, last) = (paths.first().expect("blocks").clone(), paths.last().expect("blocks").clone());
    let middle = paths.into_iter().find(|path| *path != first && *path != last).expect("three segments");
    disk.remove_file(&middle);
    let report = db.verify(None).expect("runs");
    assert_finds(&report, &["log 0, epoch 2, blocks 17 to 32"]);
    assert_finds(&report, &["16 committed transactions are in no whole block", "CSN 17 to 32"]);
}

pub fn verify_beside_writers_and_checkpoints_finds_nothing(preset: Preset) {
    let db = settings(preset).create(3).1;
    let (stop, commits) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut verified = 0;
    std::thread::scope(|scope| {
        for thread in 0..3u32 {
            let (db, stop, commits) = (&db, &stop, &commits);
            scope.spawn(move || {
                let table = db.table_or_create("shared").expect("a whole disk");
                for n in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let mut tx = db.begin().expect("free");
                    // Inserts and deletes rows, so that leaves split and merge.
                    let key = format!("{thread} {:04}", n * 7919 % 3000);
                    if n / 3000 % 2 == 0 {
                        tx.insert(&table, key.as_bytes(), [thread as u8; 150]).expect("own row");
                    } else {
                        tx.remove(&table, key.as_bytes()).expect("own row");
                    }
                    tx.commit().expect("a whole disk");
                    commits.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let (db_too, stop_too) = (&db, &stop);
        scope.spawn(move || {
            for n in 0.. {
                if stop_too.load(Ordering::Relaxed) {
                    break;
                }
                let name = format!("short-lived {n}");
                fill(db_too, &name, 0..30);
                db_too.checkpoint().expect("a whole disk");
                let table = db_too.table(&name).expect("just made");
                let mut tx = db_too.begin().expect("free");
                for n in 0..30 {
                    tx.remove(&table, format!("key {n:05}").as_bytes()).expect("own row");
                }
                tx.commit().expect("a whole disk");
                // Purging or `verify` may be using the table at this moment.
                db_too.drop_table(&name).expect("neither is a user");
            }
        });
        let begun = Instant::now();
        let enough = |verified| verified >= 5 && commits.load(Ordering::Relaxed) > 100;
        while begun.elapsed() < Duration::from_secs(if is_deep() { 2 } else { 0 })
            || begun.elapsed() < Duration::from_secs(60) && !enough(verified)
        {
            let report = db.verify(None).expect("runs");
            if !report.problems.is_empty() {
                stop.store(true, Ordering::Relaxed);
            }
            assert_sound(&report);
            verified += 1;
        }
        stop.store(true, Ordering::Relaxed);
    });
    let commits = commits.load(Ordering::Relaxed);
    assert!(commits > 100 && verified >= 5, "{preset:?}: {commits} commits, {verified} times");
    assert_sound(&db.verify(None).expect("runs"));
}

#[test]
fn a_damaged_page_is_reported_with_its_table_and_keys() {
    let (disk, db) = settings(Preset::Group).create(1);
    fill(&db, "a", 0..300);
    fill(&db, "b", 0..10);
    db.checkpoint().expect("a whole disk");
    let bytes = disk.read_file("pages/data").expect("a page store");
    let at = bytes.windows(200).position(|bytes| bytes == [150u8; 200]).expect("the row is stored");
    flip(&disk, "pages/data", at);
    // The page is in memory, undamaged.
    let report = db.verify(None).expect("runs");
    assert_finds(
        &report,
        &["table `a`, keys from \"key 00", "to below \"key 00", "stored page", "page store"],
    );
    db.close().expect("nothing changed");
    let report = verify(&disk);
    assert_finds(&report, &["table `a`, keys from \"key 00", "to below \"key 00"]);
    assert_eq!(report.problems.len(), 1, "{:#?}", report.problems);
}

#[test]
fn a_damaged_pack_is_reported_with_each_of_its_pages() {
    let disk = SimulatedStorage::new(1);
    let settings = settings(Preset::Group).with(|s| s.compression = Compression::Lz4);
    let db = settings.open(&disk);
    fill(&db, "a", 0..300);
    let pages = db.verify(None).expect("runs").pages;
    db.close().expect("a whole disk");
    assert_sound(&verify(&disk));
    let bytes = disk.read_file("pages/data").expect("a page store");
    let packs = (0..bytes.len()).step_by(SECTOR).filter(|at| bytes[at + 4..at + 7] == *b"QB\x07");
    for at in packs {
        let images = u64::from(bytes[at + 8]);
        assert!((2..=pages).contains(&images), "{images} of {pages}");
        flip(&disk, "pages/data", at + 3000);
        let report = verify(&disk);
        let named = |page: u64| report.problems.iter().any(|p| p.contains(&format!("page {page},")));
        let in_it = (0..images).map(|n| bytes[at + 32 + 28 * n as usize]);
        let missing: Vec<u8> = in_it.filter(|page| !named((*page).into())).collect();
        assert!(missing.is_empty(), "pages {missing:?} are not named: {:#?}", report.problems);
        flip(&disk, "pages/data", at + 3000);
    }
    assert_sound(&verify(&disk));
}

#[test]
fn pages_that_nobody_can_reach_are_reported() {
    let (disk, db) = settings(Preset::Group).create(1);
    fill(&db, "a", 0..300);
    fill(&db, "b", 0..30);
    db.close().expect("a whole disk");
    let bytes = disk.read_file("pages/data").expect("a page store");
    let at = bytes.windows(200).position(|bytes| bytes == [150u8; 200]).expect("the row is stored");
    flip(&disk, "pages/data", at);
    let db = settings(Preset::Group).open(&disk);
    // The pages below a damaged page are unknown, so it stays allocated when its table is dropped.
    db.drop_table("a").expect("not used");
    db.checkpoint().expect("the damage stops no caller");
    flip(&disk, "pages/data", at);
    let report = db.verify(None).expect("runs");
    assert_finds(&report, &["leaked page"]);
    assert_eq!(report.problems.len(), 1, "{:#?}", report.problems);
}

#[test]
fn a_dropped_table_that_cannot_be_freed_is_freed_later() {
    for after in [0, 3, 5] {
        let (disk, db) = settings(Preset::Group).create(1);
        for table in ["a", "b", "c", "d"] {
            fill(&db, table, 0..100);
        }
        db.close().expect("a whole disk");
        let db = settings(Preset::Group).open(&disk);
        for table in ["a", "b", "c"] {
            db.drop_table(table).expect("not used");
        }
        disk.inject(Fault { operation: OperationKind::Read, after, kind: FaultKind::Once, error: 5 });
        let error = db.checkpoint().expect_err("a page cannot be read");
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        db.checkpoint().expect("a whole disk again");
        let report = db.verify(None).expect("runs");
        assert_sound(&report);
        assert_eq!(report.stored_pages, report.pages, "pages of the dropped tables are gone");
        let after_crash = disk.crash(CrashKind::PowerCut, disk.operations(), 1);
        assert_sound(&verify(&after_crash));
    }
}

/// Regression: every checkpoint failed because of the page, and so the log filled up.
#[test]
fn unreadable_pages_of_dropped_tables_fail_one_checkpoint() {
    for closes in [false, true] {
        let (disk, db) = settings(Preset::Group).create(1);
        fill(&db, "a", 0..100);
        fill(&db, "b", 100..200);
        fill(&db, "c", 200..250);
        db.close().expect("a whole disk");
        let bytes = disk.read_file("pages/data").expect("a page store");
        let found = |of: u8| {
            bytes.windows(200).position(|bytes| bytes == [of; 200]).expect("the row is stored") as u64
        };
        let db = settings(Preset::Group).open(&disk);
        ["a", "c"].iter().for_each(|table| db.drop_table(table).expect("not used"));
        for row in [10, 90, 240] {
            disk.make_unreadable("pages/data", found(row)..found(row) + 1);
        }
        if closes {
            db.close().expect("no caller needs the page");
        } else {
            assert_eq!(db.checkpoint().expect_err("it may be readable again").kind(), ErrorKind::Io);
            db.checkpoint().expect("no caller needs the page");
            db.checkpoint().expect("no caller needs the page");
            db.close().expect("no caller needs the page");
        }
        let db = settings(Preset::Group).open(&disk);
        let table = db.table("b").expect("there");
        assert_eq!(db.begin_read().expect("free").range(&table, ..).count(), 100);
        // The pages stay allocated.
        let report = db.verify(None).expect("runs");
        assert_finds(&report, &["stored page", "Input/output error"]);
        assert_eq!(report.problems.len(), 3, "{:#?}", report.problems);
    }
}

/// Regression: after one page had failed twice, every other page was abandoned at its first
/// failure, and the pages below it stayed allocated forever.
#[test]
fn only_pages_that_fail_at_two_attempts_are_given_up() {
    let fail = |disk: &SimulatedStorage, after, error| {
        disk.inject(Fault { operation: OperationKind::Read, after, kind: FaultKind::Once, error });
    };
    for (root_fails, after) in [false, true].into_iter().flat_map(|fails| (0..6).map(move |n| (fails, n))) {
        let (disk, db) = settings(Preset::Group).create(1);
        fill(&db, "a", 0..100);
        db.close().expect("a whole disk");
        let bytes = disk.read_file("pages/data").expect("a page store");
        let row = bytes.windows(200).position(|bytes| bytes == [90; 200]).expect("the row is stored") as u64;
        let db = settings(Preset::Group).open(&disk);
        db.drop_table("a").expect("not used");
        if root_fails {
            fail(&disk, 0, 5);
            db.checkpoint().expect_err("the root cannot be read");
        }
        disk.make_unreadable("pages/data", row..row + 1);
        if !root_fails {
            db.checkpoint().expect_err("a leaf cannot be read");
        }
        // Another page fails once. The root would fail for the second time.
        fail(&disk, after + u64::from(root_fails), 5);
        let _ = db.checkpoint();
        disk.heal();
        let _ = db.checkpoint();
        db.checkpoint().expect("no caller needs the page");
        let report = db.verify(None).expect("runs");
        assert_finds(&report, &["stored page", "Input/output error"]);
        assert_eq!(report.problems.len(), 1, "{root_fails}, {after}: {:#?}", report.problems);
        assert_eq!(
            report.stored_pages, report.pages,
            "{root_fails}, {after}: pages that can be read are gone"
        );
    }
}

/// Regression: a page whose read had failed once for another reason was abandoned at its first read
/// error, here the root with all of the table.
#[test]
fn an_unrelated_error_does_not_give_up_a_page() {
    let (disk, db) = settings(Preset::Group).create(1);
    fill(&db, "a", 0..100);
    db.close().expect("a whole disk");
    let db = settings(Preset::Group).open(&disk);
    db.drop_table("a").expect("not used");
    for (error, kind) in [(28, ErrorKind::OutOfSpace), (5, ErrorKind::Io), (28, ErrorKind::OutOfSpace)] {
        disk.inject(Fault { operation: OperationKind::Read, after: 0, kind: FaultKind::Once, error });
        assert_eq!(db.checkpoint().expect_err("the root cannot be read").kind(), kind);
    }
    db.checkpoint().expect("a whole disk again");
    assert_sound(&db.verify(None).expect("runs"));
}

/// Everything that allocates blocks and segments frees them: after each step each has an owner.
#[test]
fn no_block_and_no_segment_is_leaked() {
    for compression in [Compression::None, Compression::Lz4] {
        let disk = SimulatedStorage::new(7);
        let open = |disk: &SimulatedStorage| {
            let settings = settings(Preset::Group).with(|s| {
                s.compression = compression;
                s.memory_bytes = 1 << 20;
            });
            settings.on(disk)
        };
        let mut db = open(&disk).open("simulated").expect("a whole disk");
        let sound = |db: &Database| assert_sound(&db.verify(None).expect("runs"));
        for round in 0..4u32 {
            fill(&db, "stays", round * 100..round * 100 + 200);
            sound(&db);
            fill(&db, "goes", 0..100);
            db.checkpoint().expect("a whole disk");
            sound(&db);
            // Blocks that only a reader's checkpoint uses, and later nothing uses.
            let reader = open(&disk).open_checkpoint("simulated").expect("there is one");
            db.drop_table("goes").expect("not used");
            fill(&db, "stays", round * 100..round * 100 + 150);
            db.checkpoint().expect("a whole disk");
            assert!(db.statistics().store_held_bytes > 0);
            sound(&db);
            drop(reader);
            db.checkpoint().expect("a whole disk");
            sound(&db);
            db.compact(None).expect("a whole disk");
            sound(&db);
            // A failed checkpoint must free its blocks, wherever it fails.
            for after in 0..12 {
                fill(&db, "stays", 0..20);
                let fault =
                    Fault { operation: OperationKind::Write, after, kind: FaultKind::Once, error: 28 };
                disk.inject(fault);
                let failed = db.checkpoint().err();
                disk.heal();
                if failed.is_some_and(|error| error.to_string().contains("MANIFEST")) {
                    // Only an open finds out which checkpoint is the newest.
                    let _ = db.close();
                    db = open(&disk).open("simulated").expect("a whole disk");
                }
                sound(&db);
            }
        }
        let left = disk.duplicate();
        disk.stop();
        drop(db);
        // Segments of a killed process are removed once a checkpoint covers them.
        let db = open(&left).open("simulated").expect("a whole disk");
        sound(&db);
        db.checkpoint().expect("a whole disk");
        sound(&db);
        let stray = left.files().into_iter().find(|path| path.starts_with("log/")).expect("a segment");
        left.write_file("log/00000999.seg", &left.read_file(&stray).expect("listed"));
        let report = db.verify(None).expect("runs");
        assert!(report.problems.is_empty(), "{report:#?}");
        assert_eq!(extra_files(&report), ["log/00000999.seg"]);
        left.remove_file("log/00000999.seg");
        db.close().expect("a whole disk");
        assert_sound(&verify(&left));
    }
}
