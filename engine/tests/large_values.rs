//! Values that do not fit in an entry: reads return what was written, and every page is freed.

use crate::support::test_database::TestDatabase;
use quenchdb::internals::base::depth::is_deep;
use quenchdb::internals::device::memory::MemoryStorage;
use quenchdb::internals::device::simulated::{CrashKind, Fault, FaultKind, OperationKind, SimulatedStorage};
use quenchdb::{Compression, Database, ErrorKind, Isolation, Settings, Table, VALUE_BYTES_MAX};
use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;

const KEY: &str = "key";

fn settings() -> Settings {
    Settings::default().with(|s| s.memory_bytes = 512 << 20)
}

/// The least memory possible: a value's pages are evicted while it is written.
fn tight() -> Settings {
    Settings::default().with(|s| {
        s.memory_bytes = 1 << 20;
        s.segment_bytes = 256 << 10;
        s.lab.log_buffer_bytes = 64 << 10;
        s.compression = Compression::None;
    })
}

fn open(storage: &Arc<MemoryStorage>) -> Database {
    Database::builder().settings(settings()).storage(storage.clone()).open("memory").expect("opens")
}

fn database() -> (Arc<MemoryStorage>, Database, Table) {
    let storage = Arc::new(MemoryStorage::default());
    let db = open(&storage);
    let table = db.create_table("t").expect("new");
    (storage, db, table)
}

/// Bytes in which no two pages are alike.
struct Pattern {
    seed: u64,
    at: u64,
    len: u64,
}

impl Pattern {
    fn new(seed: u64, len: u64) -> Pattern {
        Pattern { seed, at: 0, len }
    }

    fn byte(seed: u64, at: u64) -> u8 {
        ((at ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
    }

    fn all(seed: u64, len: usize) -> Vec<u8> {
        (0..len as u64).map(|at| Pattern::byte(seed, at)).collect()
    }
}

impl Read for Pattern {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let count = (self.len - self.at).min(into.len() as u64) as usize;
        for (n, byte) in into[..count].iter_mut().enumerate() {
            *byte = Pattern::byte(self.seed, self.at + n as u64);
        }
        self.at += count as u64;
        Ok(count)
    }
}

/// Returns the pages in use after all garbage is freed. Checks that none is leaked.
fn pages(db: &Database) -> u64 {
    db.flush().expect("a whole device");
    let report = db.verify(None).expect("runs");
    assert_eq!(report.problems, Vec::<String>::new());
    report.pages
}

fn put(db: &Database, table: &Table, seed: u64, len: usize) {
    db.transact(|tx| tx.insert(table, KEY, Pattern::all(seed, len))).expect("commits");
}

fn get(db: &Database, table: &Table) -> Option<Vec<u8>> {
    db.begin_read().expect("free").get(table, KEY).expect("readable")
}

#[test]
fn values_of_lengths_around_the_limits_are_read_back() {
    let (storage, db, table) = database();
    let entry = db.max_entry_bytes() - KEY.len();
    let page = 4096 - 48;
    let fanout = page / 8;
    let mut lengths = vec![0, 1, entry - 1, entry, entry + 1, 4095, 4096, 4097, 100 << 10, 5 << 20];
    lengths.extend([page - 1, page, page + 1, 2 * page, fanout * page - 1, fanout * page, fanout * page + 1]);
    for &len in &lengths {
        put(&db, &table, len as u64, len);
        assert!(get(&db, &table) == Some(Pattern::all(len as u64, len)), "{len} bytes");
        db.transact(|tx| tx.insert(&table, (len as u64).to_be_bytes(), Pattern::all(3, len)))
            .expect("commits");
    }
    pages(&db);
    let check = |db: &Database| {
        let table = db.table("t").expect("there");
        let snapshot = db.begin_read().expect("free");
        for &len in &lengths {
            let value = snapshot.get(&table, (len as u64).to_be_bytes()).expect("readable");
            assert!(value == Some(Pattern::all(3, len)), "{len} bytes");
        }
        let rows: Vec<usize> = snapshot.range(&table, ..).map(|row| row.expect("readable").1.len()).collect();
        let back: Vec<usize> =
            snapshot.range(&table, ..).rev().map(|row| row.expect("readable").1.len()).collect();
        let mut sorted = lengths.clone();
        sorted.sort_unstable();
        sorted.push(*lengths.last().expect("some"));
        assert_eq!(rows, sorted);
        assert_eq!(back, sorted.iter().rev().copied().collect::<Vec<_>>());
    };
    check(&db);
    db.close().expect("closes");
    let db = open(&storage);
    check(&db);
    pages(&db);
}

#[test]
fn sixty_four_mebibytes_stream_in_and_out() {
    const LEN: u64 = 64 << 20;
    let (storage, db, table) = database();
    let mut tx = db.begin().expect("free");
    assert_eq!(tx.insert_from(&table, KEY, Pattern::new(1, LEN)).expect("fits"), LEN);
    tx.commit().expect("commits");
    let check = |db: &Database| {
        let snapshot = db.begin_read().expect("free");
        let table = db.table("t").expect("there");
        let mut value = snapshot.read_value(&table, KEY).expect("readable").expect("there");
        assert_eq!(value.len(), LEN);
        let (mut expected, mut there, mut wanted) = (Pattern::new(1, LEN), vec![0; 8192], vec![0; 8192]);
        loop {
            let count = value.read(&mut there).expect("readable");
            if count == 0 {
                break;
            }
            expected.read_exact(&mut wanted[..count]).expect("as long");
            assert!(there[..count] == wanted[..count]);
        }
        assert_eq!(expected.at, LEN);
        value.seek(SeekFrom::Start(LEN - 3)).expect("inside");
        let mut end = Vec::new();
        value.read_to_end(&mut end).expect("readable");
        assert_eq!(end, [LEN - 3, LEN - 2, LEN - 1].map(|at| Pattern::byte(1, at)));
        assert!(value.seek(SeekFrom::Current(-(LEN as i64) - 1)).is_err());
    };
    check(&db);
    db.checkpoint().expect("fits");
    db.close().expect("closes");
    check(&open(&storage));
}

#[test]
fn overwriting_deleting_and_aborting_free_every_page() {
    let (_storage, db, table) = database();
    put(&db, &table, 1, 10);
    let few = pages(&db);
    put(&db, &table, 2, 1 << 20);
    let many = pages(&db);
    assert!(many > few + 250, "{few} and {many} pages");
    put(&db, &table, 3, 1 << 20);
    assert_eq!(pages(&db), many, "overwritten by a value of the same length");
    {
        let mut tx = db.begin().expect("free");
        tx.insert(&table, KEY, Pattern::all(4, 300_000)).expect("fits");
        tx.insert(&table, KEY, Pattern::all(5, 200_000)).expect("overwrites its own value in place");
        tx.insert(&table, "other", Pattern::all(6, 100_000)).expect("fits");
        assert_eq!(tx.get(&table, KEY).expect("readable"), Some(Pattern::all(5, 200_000)));
        tx.abort();
    }
    assert_eq!(pages(&db), many, "aborted");
    assert_eq!(get(&db, &table), Some(Pattern::all(3, 1 << 20)));
    {
        let mut tx = db.begin().expect("free");
        let start = tx.savepoint();
        tx.insert(&table, KEY, Pattern::all(7, 300_000)).expect("fits");
        let point = tx.savepoint();
        tx.insert(&table, KEY, Pattern::all(8, 400_000)).expect("fits");
        tx.remove(&table, KEY).expect("there");
        tx.insert(&table, "other", Pattern::all(9, 100_000)).expect("fits");
        tx.rollback_to(point).expect("its own");
        assert_eq!(tx.get(&table, KEY).expect("readable"), Some(Pattern::all(7, 300_000)));
        assert_eq!(tx.get(&table, "other").expect("readable"), None);
        tx.rollback_to(start).expect("its own");
        tx.insert(&table, "small", "1").expect("fits");
        tx.commit().expect("commits");
    }
    assert_eq!(pages(&db), many, "rolled back");
    {
        // Values that one transaction replaces after a savepoint live as long as its snapshot.
        let mut tx = db.begin().expect("free");
        tx.insert(&table, KEY, Pattern::all(10, 300_000)).expect("fits");
        tx.savepoint();
        tx.insert(&table, KEY, Pattern::all(11, 1 << 20)).expect("fits");
        tx.commit().expect("commits");
    }
    assert_eq!(pages(&db), many, "replaced twice in one transaction");
    assert_eq!(get(&db, &table), Some(Pattern::all(11, 1 << 20)));
    db.transact(|tx| tx.remove(&table, KEY)).expect("commits");
    assert_eq!(pages(&db), few, "deleted");
    put(&db, &table, 12, 1 << 20);
    db.drop_table("t").expect("unused");
    db.checkpoint().expect("fits");
    assert_eq!(pages(&db), 0, "dropped");
}

#[test]
fn an_old_snapshot_reads_the_value_that_it_saw() {
    let (storage, db, table) = database();
    put(&db, &table, 1, 500_000);
    let old = db.begin_read().expect("free");
    let mut reader = old.read_value(&table, KEY).expect("readable").expect("there");
    let mut half = vec![0; 250_000];
    reader.read_exact(&mut half).expect("readable");
    for seed in 2..40 {
        put(&db, &table, seed, 300_000);
    }
    db.checkpoint().expect("fits");
    db.transact(|tx| tx.remove(&table, KEY)).expect("commits");
    db.checkpoint().expect("fits");
    reader.read_to_end(&mut half).expect("readable, with a right checksum");
    assert!(half == Pattern::all(1, 500_000));
    assert!(old.get(&table, KEY).expect("readable") == Some(Pattern::all(1, 500_000)));
    let row = old.first(&table).expect("readable").expect("there");
    assert!(row.1 == Pattern::all(1, 500_000));
    let with_old = db.statistics().pages;
    // Values that no snapshot can see are freed, although an older snapshot exists.
    assert!(with_old < 3 * 500_000 / 4048 + 100, "{with_old} pages");
    drop(reader);
    drop(old);
    assert!(pages(&db) < 10);
    db.close().expect("closes");
    assert!(pages(&open(&storage)) < 10);
}

/// Regression: a lock on the row counted as the writer of its value. So the value was freed under a
/// snapshot older than the lock.
#[test]
fn a_value_that_was_only_locked_is_as_old_as_it_was() {
    let (_storage, db, table) = database();
    put(&db, &table, 1, 500_000);
    let old = db.begin_read().expect("free");
    db.transact(|tx| {
        tx.get_for_update(&table, KEY)?;
        tx.insert(&table, "another key", "committed with the lock")
    })
    .expect("commits");
    db.transact(|tx| tx.insert(&table, KEY, "small")).expect("commits");
    db.flush().expect("collects");
    put(&db, &table, 2, 500_000);
    assert!(old.get(&table, KEY).expect("readable") == Some(Pattern::all(1, 500_000)));
    drop(old);
    db.transact(|tx| tx.remove(&table, KEY)).expect("commits");
    assert!(pages(&db) < 10);
}

#[test]
fn a_read_committed_reader_keeps_its_value_during_later_reads() {
    let (_storage, db, table) = database();
    put(&db, &table, 1, 500_000);
    let tx = db.begin_with(Isolation::ReadCommitted).expect("free");
    let mut reader = tx.read_value(&table, KEY).expect("readable").expect("there");
    put(&db, &table, 2, 400_000);
    assert!(tx.get(&table, KEY).expect("readable") == Some(Pattern::all(2, 400_000)));
    db.flush().expect("collects");
    put(&db, &table, 3, 400_000);
    db.flush().expect("collects");
    let mut all = Vec::new();
    reader.read_to_end(&mut all).expect("readable");
    assert!(all == Pattern::all(1, 500_000));
    drop(reader);
    drop(tx);
    pages(&db);
}

#[test]
fn a_failing_reader_changes_nothing_in_its_transaction() {
    struct Failing(u64);
    impl Read for Failing {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            self.0 = self.0.checked_sub(1).ok_or_else(|| std::io::Error::other("the line is cut"))?;
            into.fill(7);
            Ok(into.len())
        }
    }
    let (storage, db, table) = database();
    put(&db, &table, 1, 100_000);
    let before = pages(&db);
    let mut tx = db.begin().expect("free");
    for pieces in [0, 1, 3, 20] {
        let error = tx.insert_from(&table, KEY, Failing(pieces)).expect_err("cut");
        assert!(error.to_string().contains("reader"), "{error}");
    }
    assert!(tx.get(&table, KEY).expect("readable") == Some(Pattern::all(1, 100_000)));
    tx.insert(&table, "other", "1").expect("continues");
    tx.commit().expect("commits");
    assert_eq!(pages(&db), before);
    // A conflict after the value was written leaves nothing either.
    let mut first = db.begin().expect("free");
    let mut second = db.begin().expect("free");
    first.insert(&table, KEY, "1").expect("free row");
    let error = second.insert(&table, KEY, Pattern::all(2, 50_000)).expect_err("held");
    assert_eq!(error.kind(), ErrorKind::Deadlock);
    second.insert(&table, "third", "3").expect("continues");
    second.commit().expect("commits");
    first.abort();
    assert_eq!(pages(&db), before);
    db.close().expect("closes");
    let db = open(&storage);
    let table = db.table("t").expect("there");
    assert!(get(&db, &table) == Some(Pattern::all(1, 100_000)));
}

/// Regression: a reader returned a count larger than its buffer. The engine believed it, panicked,
/// and was poisoned.
#[test]
fn a_reader_that_reports_too_many_bytes_changes_nothing() {
    struct Boasting(u64, usize);
    impl Read for Boasting {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            into.fill(7);
            let honest = self.0 > 0;
            self.0 = self.0.saturating_sub(1);
            Ok(if honest { into.len() } else { into.len().saturating_add(self.1) })
        }
    }
    let (_storage, db, table) = database();
    put(&db, &table, 1, 100_000);
    let before = pages(&db);
    let mut tx = db.begin().expect("free");
    for pieces in [0, 1, 3, 20] {
        for more in [1, 1 << 20, usize::MAX] {
            let error = tx.insert_from(&table, KEY, Boasting(pieces, more)).expect_err("impossible");
            assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        }
    }
    assert!(tx.get(&table, KEY).expect("readable") == Some(Pattern::all(1, 100_000)));
    tx.insert(&table, "other", "1").expect("continues");
    tx.commit().expect("commits");
    assert_eq!(pages(&db), before);
    assert!(get(&db, &table) == Some(Pattern::all(1, 100_000)));
}

/// A reader's `NotFound` does not mean a missing table, and its full disk is not the database's.
#[test]
fn the_error_of_a_reader_is_io_whatever_it_is() {
    struct Failing(u64, std::io::ErrorKind);
    impl Read for Failing {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            self.0 = self.0.checked_sub(1).ok_or(self.1)?;
            into.fill(7);
            Ok(into.len())
        }
    }
    let (_storage, db, table) = database();
    let mut tx = db.begin().expect("free");
    for kind in [std::io::ErrorKind::NotFound, std::io::ErrorKind::StorageFull, std::io::ErrorKind::Other] {
        for pieces in [0, 20] {
            let error = tx.insert_from(&table, KEY, Failing(pieces, kind)).expect_err("it fails");
            assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        }
    }
}

#[test]
fn limits_are_clear_errors() {
    // Writing such a long value takes a while.
    if is_deep() {
        let (_storage, db, table) = database();
        let mut tx = db.begin().expect("free");
        let error = tx.insert_from(&table, KEY, Pattern::new(1, VALUE_BYTES_MAX + 1)).expect_err("too long");
        assert!(matches!(error.kind(), ErrorKind::InvalidArgument | ErrorKind::OutOfMemory), "{error}");
        tx.commit().expect("nothing to commit");
        pages(&db);
    }
    let storage = Arc::new(MemoryStorage::default());
    let small = settings().with(|s| s.memory_bytes = 8 << 20);
    let db = Database::builder().settings(small).storage(storage).open("memory").expect("opens");
    let table = db.create_table("t").expect("new");
    let mut tx = db.begin().expect("free");
    tx.insert(&table, KEY, vec![1; 16 << 20]).expect("its pages leave memory");
    tx.insert(&table, KEY, vec![1; 1 << 20]).expect("fits");
    tx.commit().expect("commits");
    for seed in 0..20 {
        // Each time the old value makes room for the new one.
        put(&db, &table, seed, 1 << 20);
    }
    pages(&db);
}

/// Values four times as long as memory: written, replaced, read in pieces and whole, rolled back,
/// and read after crashes.
#[test]
fn a_value_needs_no_more_than_a_quarter_of_it_in_memory() {
    let memory_bytes = if is_deep() { 16 << 20 } else { 4 << 20 };
    let len = 4 * memory_bytes;
    let disk = SimulatedStorage::new(1);
    let settings = settings().with(|s| {
        s.memory_bytes = memory_bytes;
        s.logs = 1;
    });
    let open = |disk: &SimulatedStorage| {
        let db = settings.open(disk);
        let table = db.table_or_create("t").expect("room");
        (db, table)
    };
    let holds = |db: &Database, table: &Table, seed: u64| {
        let snapshot = db.begin_read().expect("free");
        let mut value = snapshot.read_value(table, KEY).expect("readable").expect("there");
        let (mut expected, mut found, mut wanted) =
            (Pattern::new(seed, len), vec![0; 1 << 16], vec![0; 1 << 16]);
        assert_eq!(value.len(), len);
        for _ in 0..len >> 16 {
            value.read_exact(&mut found).expect("as long");
            expected.read_exact(&mut wanted).expect("a pattern");
            assert!(found == wanted, "another value than that of {seed}");
        }
        let s = db.statistics();
        assert!(s.pages * s.page_bytes <= memory_bytes, "{s:?}");
    };
    let put = |db: &Database, table: &Table, seed: u64| {
        let mut tx = db.begin().expect("free");
        assert_eq!(tx.insert_from(table, KEY, Pattern::new(seed, len)).expect("its pages leave memory"), len);
        tx
    };
    let (db, table) = open(&disk);
    put(&db, &table, 1).commit().expect("commits");
    holds(&db, &table, 1);
    put(&db, &table, 2).commit().expect("commits");
    holds(&db, &table, 2);
    put(&db, &table, 3).abort();
    holds(&db, &table, 2);
    let one_value = pages(&db);
    assert!(one_value < 2 * len / 4096, "{one_value} pages: what was replaced is free");

    // A power cut during the next value: the log or a checkpoint has it.
    let progress = put(&db, &table, 4);
    disk.stop();
    drop((progress, table, db));
    let disk = disk.crash(CrashKind::PowerCut, disk.operations(), 1);
    let (db, table) = open(&disk);
    holds(&db, &table, 2);
    assert!(pages(&db) <= one_value + 8);
    db.checkpoint().expect("a whole disk");
    drop((db, table));

    // Read whole, into the caller's memory. Committed, and in no checkpoint unless one is made
    // before the kill.
    let (db, table) = open(&disk);
    let before = disk.operations();
    db.transact(|tx| tx.insert(&table, KEY, Pattern::all(5, len as usize))).expect("commits");
    disk.stop();
    let is_in_a_checkpoint = disk.describe(before).iter().any(|line| line.contains(" MANIFEST "));
    drop((table, db));
    let (db, table) = open(&disk.crash(CrashKind::Kill, disk.operations(), 2));
    assert!(db.recovery().replayed > 0 || is_in_a_checkpoint);
    assert!(get(&db, &table) == Some(Pattern::all(5, len as usize)));
    holds(&db, &table, 5);
    assert!(pages(&db) <= one_value + 8);
    db.close().expect("closes");
}

/// Regression: a page of an obsolete value could not be read when it was freed. The pages below it
/// stayed allocated forever.
#[test]
fn a_value_unreadable_when_freed_leaks_no_page() {
    let mut struck = 0;
    for after in 0..30 {
        let disk = SimulatedStorage::new(after);
        let open = || tight().open(&disk);
        let db = open();
        let table = db.create_table("t").expect("new");
        let before = pages(&db);
        // More than fits in memory: nearly all of it is evicted.
        put(&db, &table, 1, 2 << 20);
        put(&db, &table, 2, 2 << 20);
        db.checkpoint().expect("a whole device");
        disk.inject(Fault { operation: OperationKind::Read, after, kind: FaultKind::Once, error: 5 });
        if db.transact(|tx| tx.remove(&table, KEY)).is_err() {
            db.transact(|tx| tx.remove(&table, KEY)).expect("once only");
        }
        // The next checkpoint frees the value at the latest.
        db.checkpoint().expect("a whole device");
        if disk.faults_struck() == 0 {
            break;
        }
        struck += 1;
        // Unreadable pages are listed, and an open finds them again.
        if after % 2 == 0 {
            db.close().expect("a whole device");
            let db = open();
            db.checkpoint().expect("a whole device");
            assert_eq!(pages(&db), before, "after {after}, opened again");
        } else {
            assert!(pages(&db) >= before, "after {after}");
            db.checkpoint().expect("a whole device");
            assert_eq!(pages(&db), before, "after {after}");
        }
    }
    // How much has to be read depends on evictions.
    assert!(struck >= 1, "{struck} faults that struck");
}

/// Regression: a checkpoint that freed a dropped table could not read a page of a value. The next
/// one freed the leaf's values again from the beginning. By then their pages belonged to another
/// table, and committed rows were lost.
#[test]
fn values_written_after_a_failed_drop_outlive_the_table() {
    const LEN: usize = 300 << 10;
    let mut interrupted = 0;
    for after in 0..12 {
        let (disk, db) = tight().create(after);
        let before = pages(&db);
        let insert = |table: &Table, keys: std::ops::Range<u64>| {
            for key in keys {
                db.transact(|tx| tx.insert(table, key.to_be_bytes(), Pattern::all(key, LEN)))
                    .expect("inserts");
            }
        };
        // More than fits in memory: most of it is evicted.
        insert(&db.create_table("dropped").expect("new"), 0..8);
        let other = db.create_table("other").expect("new");
        db.checkpoint().expect("a whole device");
        db.drop_table("dropped").expect("no transaction uses it");
        disk.inject(Fault {
            operation: OperationKind::Read,
            after: after * 5,
            kind: FaultKind::Once,
            error: 5,
        });
        interrupted += u32::from(db.checkpoint().is_err());
        insert(&other, 8..12);
        // The rest of the dropped table still belongs to it.
        pages(&db);
        db.checkpoint().expect("a whole device");
        for key in 8..12u64 {
            let value = db.transact(|tx| tx.get(&other, key.to_be_bytes())).expect("readable");
            assert!(value.expect("there") == Pattern::all(key, LEN), "after {after}");
        }
        drop(other);
        db.drop_table("other").expect("no transaction uses it");
        db.checkpoint().expect("a whole device");
        assert_eq!(pages(&db), before, "after {after}: nothing is lost");
    }
    assert!(interrupted > 6, "{interrupted} checkpoints that were interrupted");
}

/// Regression: a checkpoint listed a value as waiting to be freed. The value was freed before the
/// epoch was closed, so it was not in the checkpoint's mapping. After a crash its pages were given
/// to other values, and then it was freed again.
#[test]
fn a_value_released_while_a_checkpoint_is_made_is_freed_once() {
    const LEN: usize = 100 << 10;
    let mut meanwhile = 0;
    for seed in 0..5 {
        let disk = SimulatedStorage::new(seed);
        let open = |disk: &SimulatedStorage| settings().open(disk);
        let db = open(&disk);
        let (table, other) = (db.create_table("t").expect("new"), db.create_table("other").expect("new"));
        put(&db, &table, 1, LEN);
        db.checkpoint().expect("a whole disk");
        let snapshot = db.begin_read().expect("free");
        put(&db, &table, 2, LEN);
        // So that the checkpoint takes a while.
        (3..20u64).for_each(|n| {
            db.transact(|tx| tx.insert(&other, n.to_be_bytes(), Pattern::all(n, LEN))).expect("commits");
        });
        disk.set_delay(std::time::Duration::from_millis(3));
        let before = disk.operations();
        std::thread::scope(|scope| {
            let checkpoint = scope.spawn(|| db.checkpoint().expect("a whole disk"));
            while disk.operations() < before + 2 && !checkpoint.is_finished() {
                std::thread::yield_now();
            }
            meanwhile += u32::from(!checkpoint.is_finished());
            drop(snapshot);
        });
        disk.stop();
        drop((table, other, db));

        let disk = disk.crash(CrashKind::Kill, disk.operations(), seed);
        let db = open(&disk);
        let (table, other) = (db.table("t").expect("there"), db.table("other").expect("there"));
        let rows = 20..24u64;
        for n in rows.clone() {
            db.transact(|tx| tx.insert(&other, n.to_be_bytes(), Pattern::all(n, LEN))).expect("commits");
        }
        db.checkpoint().expect("retired values are readable and have no owner");
        for n in 3..rows.end {
            let value = db.begin_read().expect("free").get(&other, n.to_be_bytes()).expect("readable");
            assert!(value == Some(Pattern::all(n, LEN)), "seed {seed}, row {n}");
        }
        assert!(get(&db, &table) == Some(Pattern::all(2, LEN)), "seed {seed}");
        pages(&db);
    }
    assert!(meanwhile > 0, "no snapshot ended while a checkpoint was made");
}
