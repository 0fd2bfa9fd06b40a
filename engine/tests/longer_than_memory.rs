//! Uncommitted large values longer than memory: their pages are evicted before the transaction
//! commits. Whatever happens then, no reader of a checkpoint sees them, and no block is leaked.

use crate::support::test_database::{TestDatabase, tiny};
use crate::support::{await_that, place};
use quenchdb::internals::base::depth::is_deep;
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::simulated::{CrashKind, SimulatedStorage};
use quenchdb::internals::store::Manifest;
use quenchdb::internals::store::manifest::SLOT_BYTES;
use quenchdb::{
    BackupOptions, Compression, Database, ErrorKind, Preset, RestoreOptions, Settings, Table, Transaction,
};
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

const MEMORY_BYTES: u64 = 1 << 20;
/// Length of each value. All pages in memory hold less.
const VALUE_BYTES: u64 = 640 << 10;
/// A catalog of one table is smaller; one that lists the pages of an uncommitted value is larger.
const LISTS_PAGES: u64 = 60;

fn settings(compression: Compression) -> Settings {
    tiny(MEMORY_BYTES).with(|s| {
        s.preset = Preset::Group;
        s.logs = 1;
        s.page_bytes = 4096;
        s.compression = compression;
        s.segment_bytes = 1 << 20;
        s.log_bytes_max = 64 << 20;
        s.lab.flush_unit_bytes = 0;
    })
}

/// A stream of bytes that follow from a seed.
struct Pattern {
    seed: u64,
    at: u64,
    len: u64,
}

impl Pattern {
    fn new(seed: u64) -> Pattern {
        Pattern { seed, at: 0, len: VALUE_BYTES }
    }
}

impl Read for Pattern {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let count = into.len().min((self.len - self.at) as usize);
        for byte in &mut into[..count] {
            let word = (self.at / 8).wrapping_add(self.seed << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            *byte = word.to_le_bytes()[(self.at % 8) as usize];
            self.at += 1;
        }
        Ok(count)
    }
}

fn insert(tx: &mut Transaction, table: &Table, key: &str, seed: u64) {
    let len = tx.insert_from(table, key, Pattern::new(seed)).expect("it needs no more memory than there is");
    assert_eq!(len, VALUE_BYTES);
}

/// Returns whether `key` exists, and checks that its value is that of `seed`.
fn holds(db: &Database, table: &Table, key: &str, seed: u64) -> bool {
    let snapshot = db.begin_read().expect("free");
    let Some(mut value) = snapshot.read_value(table, key).expect("readable") else { return false };
    let (mut expected, mut found) = (Pattern::new(seed), Vec::new());
    value.read_to_end(&mut found).expect("readable, with a right checksum");
    let mut wanted = Vec::new();
    expected.read_to_end(&mut wanted).expect("a pattern");
    assert!(found == wanted, "{key} is another value");
    true
}

#[track_caller]
fn assert_sound(db: &Database, context: &str) {
    assert_eq!(db.verify(None).expect("runs").problems, Vec::<String>::new(), "{context}");
}

fn catalog_bytes(disk: &SimulatedStorage) -> [u64; 2] {
    let manifest = disk.read_file("MANIFEST").expect("there");
    // A slot that was being written counts as empty.
    [0, SLOT_BYTES].map(|at| {
        let manifest = manifest.get(at..).and_then(|slot| Manifest::decode(slot).ok());
        manifest.and_then(|manifest| manifest.store.catalog).map_or(0, |catalog| catalog.len)
    })
}

/// Returns a database with one committed value, and an open transaction that has written another.
fn with_one_open(disk: &SimulatedStorage, compression: Compression) -> (Database, Table) {
    let db = settings(compression).open(disk);
    let table = db.create_table("t").expect("new");
    let mut tx = db.begin().expect("free");
    insert(&mut tx, &table, "committed", 1);
    tx.commit().expect("commits");
    (db, table)
}

#[test]
fn a_value_longer_than_memory_is_written_committed_and_read() {
    for compression in [Compression::None, Compression::Lz4] {
        let disk = SimulatedStorage::new(1);
        let (db, table) = with_one_open(&disk, compression);
        let evicted = db.statistics().store_writes;
        assert!(holds(&db, &table, "committed", 1));
        let mut tx = db.begin().expect("free");
        insert(&mut tx, &table, "second", 2);
        assert!(db.statistics().store_writes > evicted + 4, "its pages left memory");
        // The transaction reads its own value from evicted pages.
        let mut own = Vec::new();
        tx.read_value(&table, "second").expect("own").expect("there").read_to_end(&mut own).expect("own");
        assert_eq!(own.len() as u64, VALUE_BYTES);
        assert_sound(&db, "beside a value in progress");
        db.checkpoint().expect("a whole disk");
        let bytes = catalog_bytes(&disk);
        assert!(bytes.iter().all(|bytes| *bytes > LISTS_PAGES), "{bytes:?}");
        assert_sound(&db, "behind a checkpoint of a value in progress");
        tx.commit().expect("commits");
        assert!(holds(&db, &table, "second", 2));
        db.checkpoint().expect("a whole disk");
        assert!(catalog_bytes(&disk)[0] < LISTS_PAGES, "nothing is in progress");
        assert_sound(&db, "committed");
        drop(table);
        db.close().expect("closes");
        let db = settings(compression).open(&disk);
        let table = db.table("t").expect("created");
        assert!(holds(&db, &table, "committed", 1) && holds(&db, &table, "second", 2));
        assert_sound(&db, "reopened");
    }
}

fn in_use(db: &Database) -> u64 {
    db.checkpoint().expect("a whole disk");
    let statistics = db.statistics();
    statistics.store_bytes - statistics.store_free_bytes
}

/// Waits, because images of freed pages may still be in flight.
fn assert_comes_back_to(before: u64, db: &Database, context: &str) {
    await_that(&format!("{context}: {before} bytes were in use, more are"), || {
        in_use(db) <= before + (64 << 10)
    });
}

#[test]
fn what_is_taken_back_gives_its_blocks_back() {
    let disk = SimulatedStorage::new(2);
    let (db, table) = with_one_open(&disk, Compression::None);
    db.checkpoint().expect("a whole disk");
    let before = in_use(&db);
    for round in 0..3 {
        let mut tx = db.begin().expect("free");
        insert(&mut tx, &table, "taken back", 10 + round);
        let savepoint = tx.savepoint();
        insert(&mut tx, &table, "taken back too", 20 + round);
        db.checkpoint().expect("a whole disk");
        tx.rollback_to(savepoint).expect("its own");
        db.checkpoint().expect("a whole disk");
        assert_sound(&db, "rolled back");
        tx.abort();
        assert_sound(&db, "aborted");
        assert_comes_back_to(before, &db, "aborted");
    }
    // The caller's reader fails in the middle.
    let mut tx = db.begin().expect("free");
    let mut fails = Pattern::new(3).chain(FailsAtOnce);
    let error = tx.insert_from(&table, "cut", &mut fails).expect_err("cut");
    assert!(error.to_string().contains("the line is cut"), "{error}");
    tx.commit().expect("nothing to commit");
    assert_sound(&db, "cut");
    assert_comes_back_to(before, &db, "cut");
    assert!(holds(&db, &table, "committed", 1));
}

struct FailsAtOnce;

impl Read for FailsAtOnce {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        Err(std::io::Error::other("the line is cut"))
    }
}

#[test]
fn copies_of_a_checkpoint_have_nothing_of_a_value_in_progress() {
    let disk = SimulatedStorage::new(3);
    let (db, table) = with_one_open(&disk, Compression::Lz4);
    let mut tx = db.begin().expect("free");
    insert(&mut tx, &table, "open", 2);
    db.checkpoint().expect("a whole disk");
    let builder = settings(Compression::Lz4).on(&disk);
    let reader = builder.open_checkpoint("simulated").expect("opens");
    assert_sound(&reader, "a reader of the checkpoint");
    let seen = reader.table("t").expect("created");
    assert!(holds(&reader, &seen, "committed", 1) && !holds(&reader, &seen, "open", 2));
    drop((seen, reader));
    let (full, increment) = (SimulatedStorage::new(4), SimulatedStorage::new(5));
    db.backup(place(&full), BackupOptions::default()).expect("sound");
    // The value is longer now than the full backup recorded.
    insert(&mut tx, &table, "open too", 3);
    let base = Some(place(&full));
    db.backup(place(&increment), BackupOptions::default().with(|s| s.base = base)).expect("sound");
    tx.commit().expect("commits");
    for chain in [vec![place(&full)], vec![place(&full), place(&increment)]] {
        let restored = SimulatedStorage::new(6);
        Database::restore(chain, place(&restored), RestoreOptions::default()).expect("sound");
        let db = settings(Compression::Lz4).open(&restored);
        assert_sound(&db, "restored");
        let table = db.table("t").expect("created");
        assert!(holds(&db, &table, "committed", 1) && !holds(&db, &table, "open", 2));
        // The listed pages are reused.
        db.transact(|tx| (0..200u32).try_for_each(|n| tx.insert(&table, n.to_be_bytes(), [7; 500])))
            .expect("commits");
        db.checkpoint().expect("a whole disk");
        assert_sound(&db, "restored and used");
    }
}

/// Writes, commits and rolls back values while checkpoints run; then the power fails at any moment.
#[test]
fn a_power_cut_at_any_moment_loses_no_page_and_serves_no_part() {
    let mut listed = 0;
    for seed in 0..if is_deep() { 6u64 } else { 3 } {
        let disk = SimulatedStorage::new(seed);
        let compression = if seed % 2 == 0 { Compression::Lz4 } else { Compression::None };
        let (db, table) = with_one_open(&disk, compression);
        let begun = disk.operations();
        let mut committed: Vec<(usize, String, u64)> = Vec::new();
        let made = AtomicU64::new(0);
        let (until_the_end, end) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let until_the_end = until_the_end;
            let (db, made) = (&db, &made);
            scope.spawn(move || {
                while end.recv_timeout(Duration::from_millis(3)) == Err(RecvTimeoutError::Timeout) {
                    db.checkpoint().expect("a whole disk");
                    made.fetch_add(1, Ordering::Relaxed);
                }
            });
            let mut random = Random::from_seed(seed);
            for n in 0..5u64 {
                let mut tx = db.begin().expect("free");
                let key = format!("row {}", n % 3);
                insert(&mut tx, &table, &key, 100 + n);
                if n % 2 == 0 {
                    // The next one may have begun before the value was there.
                    let before = made.load(Ordering::Relaxed);
                    await_that("no checkpoint", || made.load(Ordering::Relaxed) >= before + 2);
                }
                tx.insert(&table, "small", n.to_le_bytes()).expect("fits");
                if random.chance(1, 3) {
                    tx.abort();
                } else {
                    tx.commit().expect("commits");
                    committed.push((disk.operations(), key, 100 + n));
                }
            }
            drop(until_the_end);
        });
        let end = disk.operations();
        disk.stop();
        drop((table, db));
        let mut random = Random::from_seed(seed);
        for kind in [CrashKind::PowerCut, CrashKind::Kill, CrashKind::PowerCut].repeat(3) {
            let at = begun + random.below((end - begun) as u64 + 1) as usize;
            let context = format!("seed {seed}, {kind:?} after operation {at} of {end}");
            let crashed = disk.crash(kind, at, random.next_u64());
            listed += u32::from(catalog_bytes(&crashed).iter().any(|bytes| *bytes > LISTS_PAGES));
            let db = settings(compression).open(&crashed);
            assert_sound(&db, &context);
            let table = db.table("t").unwrap_or_else(|error| panic!("{context}: {error}"));
            assert!(holds(&db, &table, "committed", 1), "{context}");
            for (_, key, seed) in committed.iter().filter(|(acknowledged, ..)| *acknowledged <= at) {
                let newer = committed.iter().any(|(_, other, later)| other == key && later > seed);
                assert!(newer || holds(&db, &table, key, *seed), "{context}: {key} is missing");
            }
            let mut tx = db.begin().expect("free");
            insert(&mut tx, &table, "after", 7);
            tx.commit().expect("commits");
            db.checkpoint().expect("a whole disk");
            assert_sound(&db, &context);
        }
    }
    println!("{listed} checkpoints listed pages");
    assert!(listed > if is_deep() { 5 } else { 2 }, "{listed} checkpoints listed pages");
}

/// Uncommitted rows stay in memory. A transaction with more of them than fit is refused, and the
/// error says what to do.
#[test]
fn too_many_changed_rows_are_refused_with_advice() {
    let disk = SimulatedStorage::new(7);
    let (db, table) = with_one_open(&disk, Compression::Lz4);
    let mut tx = db.begin().expect("free");
    let refused = (0..1_000_000u32).find_map(|n| tx.insert(&table, n.to_be_bytes(), [3; 40]).err());
    let error = refused.expect("it does not fit in 1 MiB");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    let message = error.to_string();
    assert!(message.contains("memory_bytes") || message.contains("version_bytes"), "{message}");
    // The changes so far are whole: the transaction can commit or abort.
    tx.abort();
    assert_sound(&db, "aborted");
    assert_eq!(db.begin_read().expect("free").range(&table, ..).count(), 1);
    insert(&mut db.begin().expect("free"), &table, "continues", 9);
}
