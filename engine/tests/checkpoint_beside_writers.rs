//! Checkpoints, flushes, backups and compactions beside writers, where the data does not fit into
//! memory: each ends soon, whatever the writers do.

use crate::support::test_database::TestDatabase;
use quenchdb::internals::base::depth::{is_deep, some};
use quenchdb::internals::base::random::Random;
use quenchdb::{BackupOptions, Database, Durability, Preset, Result, Settings, Table, Transaction};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Threads that write.
const WRITERS: u64 = 3;
/// Longest time of one operation on a machine with nothing else to do.
const LONGEST: Duration = Duration::from_secs(2);
/// Changed pages that take a machine about as long as a checkpoint of all memory.
const COMPARED_PAGES: u64 = 3000;

/// What a transaction of a writer does.
type Change = fn(&mut Transaction, &Table, &mut Random) -> Result<()>;

/// What writers do, and about how many pages each transaction changes.
#[derive(Clone, Copy)]
struct Writers(Change, u64);

const TOGGLE: Writers = Writers(toggle, 3);
const REPLACE_LARGE: Writers = Writers(replace_large, 50);
const SPLIT_AND_MERGE: Writers = Writers(split_and_merge, 1);

/// Takes a row away, or inserts it with a value of up to some pages.
fn toggle(tx: &mut Transaction, table: &Table, random: &mut Random) -> Result<()> {
    let key = (random.below(5000) as u32).to_be_bytes();
    match tx.take(table, key)? {
        Some(_) => Ok(()),
        None => tx.insert(table, key, vec![random.next_u64() as u8; random.below(9000) as usize]),
    }
}

/// Replaces a value of up to a hundred pages.
fn replace_large(tx: &mut Transaction, table: &Table, random: &mut Random) -> Result<()> {
    let key = (random.below(60) as u32).to_be_bytes();
    tx.insert(table, key, vec![random.next_u64() as u8; random.below(400_000) as usize])
}

/// Inserts or deletes a small row, so that leaves split and merge.
fn split_and_merge(tx: &mut Transaction, table: &Table, random: &mut Random) -> Result<()> {
    let key = (random.below(60_000) as u32).to_be_bytes();
    match random.chance(1, 2) {
        true => tx.remove(table, key).map(drop),
        false => tx.insert(table, key, vec![random.next_u64() as u8; 200 + random.below(400) as usize]),
    }
}

/// Writes to one of four tables in turn.
fn write_until(
    db: &Database,
    tables: &[Table],
    change: Change,
    writer: u64,
    stop: &AtomicBool,
    done: &AtomicU64,
) {
    let mut random = Random::from_seed(writer);
    while !stop.load(Ordering::Relaxed) {
        let table = &tables[random.below(tables.len() as u64) as usize];
        let written = db.transact_with(Durability::BoundedLoss, |tx| change(tx, table, &mut random));
        // Two writers may have wanted the same row for too long.
        done.fetch_add(u64::from(written.is_ok()), Ordering::Relaxed);
    }
}

/// Waits until the writers have committed `more` transactions. Returns how long that took.
fn await_commits(done: &AtomicU64, more: u64) -> Duration {
    let (begun, before) = (Instant::now(), done.load(Ordering::Relaxed));
    while done.load(Ordering::Relaxed) < before + more {
        assert!(begun.elapsed() < Duration::from_secs(120), "the writers do not write");
        std::thread::sleep(Duration::from_millis(1));
    }
    begun.elapsed()
}

/// Repeats `operation` beside writers. Each time takes at most [`LONGEST`], or some times as long
/// as the writers take for [`COMPARED_PAGES`] on this machine.
fn ends_soon(
    preset: Preset,
    tables: u32,
    Writers(change, pages): Writers,
    context: &str,
    operation: &dyn Fn(&Database, &Path),
) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let settings = Settings::default().with(|s| {
        s.preset = preset;
        s.memory_bytes = 4 << 20;
        s.version_bytes = 2 << 20;
    });
    let db = settings.open_in(directory.path().join("database"));
    let tables: Vec<Table> =
        (0..tables).map(|n| db.create_table(&format!("t{n}")).expect("there is room")).collect();
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _stops = StopAtEnd(&stop);
        for writer in 0..WRITERS {
            let (db, tables, stop, done) = (&db, &tables, &stop, &done);
            scope.spawn(move || write_until(db, tables, change, writer, stop, done));
        }
        let compared = COMPARED_PAGES / pages;
        await_commits(&done, 2 * compared);
        for round in 0..if is_deep() { 30 } else { 2 } {
            let bound = LONGEST.max(4 * await_commits(&done, compared));
            let begun = Instant::now();
            operation(&db, &directory.path().join(format!("target{round}")));
            let took = begun.elapsed();
            assert!(took < bound, "{context}, {preset:?}: round {round} took {took:?}, more than {bound:?}");
        }
    });
    let report = db.verify(None).expect("the database is sound");
    assert!(report.problems.is_empty(), "{context}: {:?}", report.problems);
    drop(tables);
    let begun = Instant::now();
    db.close().expect("the directory is sound");
    assert!(begun.elapsed() < 10 * LONGEST, "{context}: the close took {:?}", begun.elapsed());
}

/// Stops the writers, also when an assertion fails.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn checkpoint(db: &Database, _: &Path) {
    db.checkpoint().expect("the directory is sound");
}

#[test]
fn checkpoint_beside_writers_of_values_of_some_pages_ends_soon() {
    for preset in some(&Preset::ALL, 2) {
        ends_soon(preset, 1, TOGGLE, "checkpoint", &checkpoint);
    }
    ends_soon(Preset::default(), 4, TOGGLE, "checkpoint of four tables", &checkpoint);
}

#[test]
fn checkpoint_beside_writers_of_large_values_ends_soon() {
    ends_soon(Preset::default(), 1, REPLACE_LARGE, "checkpoint beside large values", &checkpoint);
}

#[test]
fn checkpoint_beside_splits_and_merges_ends_soon() {
    ends_soon(Preset::default(), 1, SPLIT_AND_MERGE, "checkpoint beside splits", &checkpoint);
}

#[test]
fn flush_backup_and_compaction_beside_writers_end_soon() {
    ends_soon(Preset::default(), 1, TOGGLE, "flush", &|db, _| db.flush().expect("the directory is sound"));
    ends_soon(Preset::default(), 1, TOGGLE, "backup", &|db, target| {
        db.backup(target, BackupOptions::default()).map(drop).expect("there is room");
        std::fs::remove_dir_all(target).expect("it was made");
    });
    ends_soon(Preset::default(), 1, TOGGLE, "compaction", &|db, _| {
        db.compact(None).map(drop).expect("the directory is sound");
    });
}
