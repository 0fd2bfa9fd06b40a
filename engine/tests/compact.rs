//! Compaction: the file becomes short, the content stays, and a crash at any moment loses nothing.

use crate::support::test_database::{TestDatabase, tiny};
use crate::support::{Model, rows};
use quenchdb::internals::base::depth::is_deep;
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::simulated::{CrashKind, SimulatedStorage};
use quenchdb::{Compression, Database, Settings, Table};
use std::sync::atomic::{AtomicBool, Ordering};

/// Blocks beyond the pages: those that the previous and the next checkpoint need besides pages, and
/// those reserved for a thread.
const FEW_BYTES: u64 = (16 + 8) * 4096;

fn settings(memory_bytes: u64, compression: Compression) -> Settings {
    tiny(memory_bytes).with(|s| {
        s.version_bytes = 1 << 20;
        s.compression = compression;
    })
}

/// Half of the value is compressible, so that a pack has two or three pages.
fn row(n: u32) -> ([u8; 4], Vec<u8>) {
    let mut random = Random::from_seed(n.into());
    let value = (0..350).map(|_| random.below(256) as u8).chain([n as u8; 350]);
    (n.to_be_bytes(), value.collect())
}

fn fill(db: &Database, table: &Table, rows: std::ops::Range<u32>) {
    for start in rows.clone().step_by(100) {
        db.transact(|tx| {
            (start..rows.end.min(start + 100)).try_for_each(|n| {
                let (key, value) = row(n);
                tx.insert(table, key, value)
            })
        })
        .expect("commits");
    }
}

fn remove(db: &Database, table: &Table, rows: impl Iterator<Item = u32>) {
    for chunk in rows.collect::<Vec<_>>().chunks(100) {
        db.transact(|tx| chunk.iter().try_for_each(|n| tx.remove(table, row(*n).0).map(drop)))
            .expect("commits");
    }
}

/// Returns a database with few rows left, spread all over the file.
fn thinned(rows: u32, memory_bytes: u64, compression: Compression) -> (SimulatedStorage, Database, Table) {
    thinned_to(10, rows, memory_bytes, compression)
}

/// Returns a database with so many percent of its rows left.
fn thinned_to(
    percent: u32,
    rows: u32,
    memory_bytes: u64,
    compression: Compression,
) -> (SimulatedStorage, Database, Table) {
    let (disk, db) = settings(memory_bytes, compression).create(1);
    let table = db.create_table("rows").expect("new");
    fill(&db, &table, 0..rows);
    db.checkpoint().expect("a whole disk");
    remove(&db, &table, (0..rows).filter(|n| n % 100 >= percent));
    (disk, db, table)
}

#[track_caller]
fn expect_compact(db: &Database) {
    let before = db.statistics().store_bytes;
    let report = db.compact(None).expect("a sound database");
    assert_eq!(report.bytes_before, before);
    assert_eq!(report.bytes_after, db.statistics().store_bytes);
    assert!(report.bytes_after <= report.bytes_used + (report.bytes_used / 20).max(FEW_BYTES), "{report:?}");
    assert!(report.bytes_after < report.bytes_before / 3, "{report:?}");
}

#[test]
fn a_database_of_which_little_is_left_takes_little() {
    let both = [Compression::None, Compression::Lz4];
    for (memory_bytes, compression) in [3 << 20, 32 << 20].into_iter().flat_map(|m| both.map(|c| (m, c))) {
        let (disk, db, table) = thinned(8_000, memory_bytes, compression);
        let before = rows(&db, "rows");
        expect_compact(&db);
        assert_eq!(rows(&db, "rows"), before);
        assert_eq!(db.verify(None).expect("can be checked").problems, Vec::<String>::new());
        fill(&db, &table, 30_000..30_500);
        let after = rows(&db, "rows");
        db.close().expect("a whole disk");
        let length = disk.read_file("pages/data").expect("there").len() as u64;
        let db = settings(memory_bytes, compression).open(&disk);
        assert_eq!((rows(&db, "rows"), db.statistics().store_bytes), (after, length));
        assert_eq!(db.verify(None).expect("can be checked").problems, Vec::<String>::new());
    }
}

#[test]
fn what_is_compact_already_stays() {
    let db = settings(8 << 20, Compression::Lz4).create(1).1;
    let table = db.create_table("rows").expect("new");
    fill(&db, &table, 0..4000);
    db.compact(None).expect("a sound database");
    let report = db.compact(None).expect("a sound database");
    assert!(
        report.bytes_after <= report.bytes_before + report.bytes_before / 20 && report.pages_moved < 20,
        "{report:?}"
    );
}

/// Regression: the remaining checkpoints of the compaction marked the database as not closed.
#[test]
fn a_database_closed_during_compaction_stays_closed() {
    // With fewer rows the close would shorten the file.
    let (disk, db, table) = thinned_to(60, 4_000, 3 << 20, Compression::Lz4);
    drop(table);
    let mut other = Some(db.clone());
    let progress: quenchdb::Progress = Box::new(move |_, _, _| {
        if let Some(db) = other.take() {
            db.close().expect("a whole disk");
        }
    });
    let error = db.compact(Some(progress)).expect_err("it is closed");
    assert_eq!(error.kind(), quenchdb::ErrorKind::InvalidArgument, "{error}");
    drop(db);
    assert!(settings(3 << 20, Compression::Lz4).open(&disk).recovery().clean);
}

#[test]
fn writers_go_on_while_space_is_given_back() {
    let (disk, db, table) = thinned(12_000, 3 << 20, Compression::Lz4);
    let stop = AtomicBool::new(false);
    let mut expected = rows(&db, "rows");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let (mut random, mut written) = (Random::from_seed(1), Model::new());
            while !stop.load(Ordering::Relaxed) {
                let n = 100_000 + random.below(300) as u32;
                let value = vec![random.below(256) as u8; 50 + random.below(500) as usize];
                db.transact(|tx| tx.insert(&table, n.to_be_bytes(), &value)).expect("commits");
                written.insert(n.to_be_bytes().to_vec(), value);
            }
            written
        });
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                db.checkpoint().expect("a whole disk");
            }
        });
        for _ in 0..5 {
            db.compact(None).expect("a sound database");
        }
        stop.store(true, Ordering::Relaxed);
        expected.extend(writer.join().expect("commits"));
    });
    expect_small(&db);
    assert_eq!(rows(&db, "rows"), expected);
    assert_eq!(db.verify(None).expect("can be checked").problems, Vec::<String>::new());
    disk.stop();
    drop(db);
    let db = settings(3 << 20, Compression::Lz4).open(&disk.crash(CrashKind::PowerCut, disk.operations(), 1));
    assert_eq!(rows(&db, "rows"), expected);
}

#[track_caller]
fn expect_small(db: &Database) {
    let report = db.compact(None).expect("a sound database");
    assert!(report.bytes_after <= report.bytes_used + (report.bytes_used / 20).max(FEW_BYTES), "{report:?}");
}

#[test]
fn a_crash_at_any_moment_of_compacting_is_harmless() {
    crash_while_compacting(1500, Compression::None);
}

#[test]
fn a_crash_at_any_moment_of_compacting_packs_is_harmless() {
    crash_while_compacting(3000, Compression::Lz4);
}

fn crash_while_compacting(count: u32, compression: Compression) {
    // Versions count until they are freed. Threads of other tests share the epochs and delay this.
    let memory_bytes = 3 << 20;
    let (disk, db, _) = thinned(count, memory_bytes, compression);
    let expected = rows(&db, "rows");
    let start = disk.operations();
    expect_compact(&db);
    let end = disk.operations();
    assert!(end > start + 20);
    // An odd distance, so that both kinds occur.
    for at in (start..=end).step_by(if is_deep() { 1 } else { 3 }) {
        let kind = if at % 2 == 0 { CrashKind::PowerCut } else { CrashKind::Kill };
        let crashed = settings(memory_bytes, compression).open(&disk.crash(kind, at, at as u64));
        assert_eq!(rows(&crashed, "rows"), expected, "{kind:?} at {at}");
        let problems = crashed.verify(None).expect("can be checked").problems;
        assert_eq!(problems, Vec::<String>::new(), "{kind:?} at {at}");
        if at % 8 == 0 {
            expect_small(&crashed);
            assert_eq!(rows(&crashed, "rows"), expected);
        }
    }
}

/// Regression: compaction cut the file down to the used blocks plus a twentieth. This gave away
/// space that was reserved for pages of a transaction in progress. Another process filled the disk,
/// the transaction committed, and no checkpoint succeeded any more.
#[test]
fn what_a_transaction_in_progress_was_promised_is_left_to_it() {
    let (disk, db, table) = thinned(20_000, 32 << 20, Compression::None);
    let mut expected = rows(&db, "rows");
    let mut tx = db.begin().expect("free");
    for n in (0..20_000).step_by(100) {
        let (key, mut value) = row(n);
        value[0] ^= 1;
        tx.insert(&table, key, &value).expect("fits");
        expected.insert(key.to_vec(), value);
    }
    let report = db.compact(None).expect("a sound database");
    assert!(report.bytes_after < report.bytes_before / 2, "{report:?}");
    let files = disk.files();
    let size: usize = files.iter().filter_map(|path| disk.read_file(path)).map(|bytes| bytes.len()).sum();
    disk.set_capacity(Some(size as u64));
    tx.commit().expect("there is room in the log");
    db.checkpoint().expect("the space was promised");
    assert_eq!(rows(&db, "rows"), expected);
    assert_eq!(db.verify(None).expect("can be checked").problems, Vec::<String>::new());
}

#[test]
fn a_large_file_that_is_mostly_free_shrinks_by_itself() {
    let db = settings(8 << 20, Compression::None).create(1).1;
    let table = db.create_table("rows").expect("new");
    // More than 64 MiB.
    for first in (0..110_000u32).step_by(1000) {
        let rows = first..first + 1000;
        db.transact(|tx| rows.clone().try_for_each(|n| tx.insert(&table, n.to_be_bytes(), [n as u8; 700])))
            .expect("commits");
    }
    db.checkpoint().expect("a whole disk");
    remove(&db, &table, (0..110_000).filter(|n| n % 1000 >= 100));
    let expected = rows(&db, "rows");
    let before = db.statistics().store_bytes;
    assert!(before > 64 << 20, "{before}");
    for _ in 0..8 {
        db.checkpoint().expect("a whole disk");
    }
    let after = db.statistics().store_bytes;
    assert!(after <= 64 << 20, "{before} {after}");
    assert_eq!(rows(&db, "rows"), expected);
    assert_eq!(db.verify(None).expect("can be checked").problems, Vec::<String>::new());
}

/// Changes `changes` rows all over the table. Waits for a checkpoint that is long overdue, because
/// the checkpoint thread may have to wait for a processor.
fn change_all_over(db: &Database, table: &Table, rows: u32, changes: u32) {
    let mut random = Random::from_seed(5);
    let mut last = db.statistics();
    for n in 0..changes / 8 {
        let now = db.statistics();
        if now.checkpoints > last.checkpoints {
            last = now;
        } else if now.store_bytes > last.store_bytes + (12 << 20) {
            let made = || db.statistics().checkpoints > last.checkpoints;
            crate::support::await_that("the file grows without a checkpoint", made);
        }
        let change = |tx: &mut quenchdb::Transaction| {
            (0..8).try_for_each(|_| {
                let (key, mut value) = row(random.below(rows.into()) as u32);
                value[0] = n as u8;
                tx.insert(table, key, value)
            })
        };
        db.transact(change).expect("commits");
    }
}

#[test]
fn the_file_stays_short_by_itself_while_rows_change_all_over_it() {
    const ROWS: u32 = 20_000;
    let disk = SimulatedStorage::new(1);
    let by_itself = settings(3 << 20, Compression::default()).with(|s| {
        s.lab.checkpoint_log_bytes = 1 << 30;
        s.log_bytes_max = 1 << 31;
    });
    let by_itself = by_itself.with(|s| {
        s.compression = Compression::None;
        s.recovery_seconds = 3600;
    });
    let db = by_itself.open(&disk);
    let table = db.create_table("rows").expect("new");
    fill(&db, &table, 0..ROWS);
    let live = db.checkpoint().expect("a whole disk");
    assert!(live.pages_written > 0);
    let (used, before) = (db.compact(None).expect("sound").bytes_used, db.statistics());
    change_all_over(&db, &table, ROWS, 40_000);
    let after = db.statistics();
    let made = after.checkpoints - before.checkpoints;
    assert!(made >= 3, "{made} checkpoints that only the space asked for");
    // Without extra checkpoints nearly every page would be stored twice.
    assert!(after.store_bytes < used * 17 / 10, "{} bytes for {used}", after.store_bytes);
    assert_eq!(db.verify(None).expect("can be checked").problems, Vec::<String>::new());
}
