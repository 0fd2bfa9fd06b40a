//! A device that stores the file of pages in whole extents: nothing is overwritten or lost, and
//! space stays bounded.

use crate::support::test_database::TestDatabase;
use crate::support::{Model, rows};
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::simulated::{CrashKind, SimulatedStorage};
use quenchdb::{Compression, Database, Settings, Table};

const PAGE: u64 = 4096;
const EXTENT: u64 = 16 * PAGE;

/// A pool much smaller than the data, so that pages are evicted, and checkpoints by log size.
fn settings(compression: Compression) -> Settings {
    Settings::default().with(|s| {
        s.memory_bytes = 1 << 20;
        s.lab.log_buffer_bytes = 64 << 10;
        s.segment_bytes = 256 << 10;
        s.log_bytes_max = 32 << 20;
        s.lab.checkpoint_log_bytes = 1 << 20;
        s.compression = compression;
    })
}

/// Overwrites and removes random rows, in the database and in the model.
fn change(db: &Database, table: &Table, model: &mut Model, random: &mut Random, transactions: u64) {
    for _ in 0..transactions {
        let changes: Vec<(Vec<u8>, Option<Vec<u8>>)> = (0..1 + random.below(6))
            .map(|_| {
                let key = format!("key {:08}", random.below(8000)).into_bytes();
                let value: Vec<u8> = (0..100 + random.below(300)).map(|_| random.below(256) as u8).collect();
                (key, random.chance(7, 8).then_some(value))
            })
            .collect();
        db.transact(|tx| {
            changes.iter().try_for_each(|(key, value)| match value {
                Some(value) => tx.insert(table, key, value),
                None => tx.remove(table, key).map(drop),
            })
        })
        .expect("commits");
        for (key, value) in changes {
            match value {
                Some(value) => model.insert(key, value),
                None => model.remove(&key),
            };
        }
    }
}

/// Bytes that the device has to store: blocks in use and dead ones.
fn stored_bytes(db: &Database) -> u64 {
    let statistics = db.statistics();
    statistics.store_bytes - statistics.store_free_bytes
}

#[track_caller]
fn expect_sound(db: &Database, disk: &SimulatedStorage, model: &Model, what: &str) {
    assert!(rows(db, "t") == *model, "{what}: not what was committed");
    assert_eq!(db.verify(None).expect("can be checked").problems, Vec::<String>::new(), "{what}");
    assert_eq!(disk.overwrites(), 0, "{what}");
}

#[test]
fn extents_are_never_overwritten_across_crashes() {
    for compression in [Compression::None, Compression::Lz4] {
        let mut random = Random::from_seed(compression as u64);
        let mut disk = SimulatedStorage::with_extents(EXTENT, 1);
        let settings = settings(compression);
        let mut db = settings.open(&disk);
        let mut model = Model::new();
        db.create_table("t").expect("new");
        for turn in 0..4 {
            let table = db.table("t").expect("there");
            for _ in 0..3 {
                change(&db, &table, &mut model, &mut random, 150);
                db.checkpoint().expect("the disk works");
            }
            change(&db, &table, &mut model, &mut random, 50);
            expect_sound(&db, &disk, &model, &format!("{compression:?}, turn {turn}"));
            let kind = if turn % 2 == 0 { CrashKind::PowerCut } else { CrashKind::Kill };
            let (left, recovered) = settings.crash(&disk, kind, turn);
            disk.stop();
            (disk, db) = (left, recovered);
            expect_sound(&db, &disk, &model, &format!("{compression:?}, recovered in turn {turn}"));
        }
        db.compact(None).expect("a sound database");
        expect_sound(&db, &disk, &model, "compacted");
        db.close().expect("the disk works");
        expect_sound(&settings.open(&disk), &disk, &model, "opened again");
    }
}

#[test]
fn space_in_extents_is_bounded_after_many_overwrites() {
    let disk = SimulatedStorage::with_extents(EXTENT, 1);
    let db = settings(Compression::None).open(&disk);
    let table = db.create_table("t").expect("new");
    let (mut model, mut random) = (Model::new(), Random::from_seed(5));
    for _ in 0..20 {
        change(&db, &table, &mut model, &mut random, 200);
        db.checkpoint().expect("the disk works");
    }
    // These free what the last relocations left behind.
    for _ in 0..3 {
        db.checkpoint().expect("the disk works");
    }
    let stored = stored_bytes(&db);
    let report = db.compact(None).expect("a sound database");
    assert!(stored <= 2 * report.bytes_used + 4 * EXTENT, "{stored}, {report:?}");
    assert!(stored_bytes(&db) <= stored + 2 * EXTENT, "{stored}, {report:?}");
    assert_eq!(report.bytes_after % EXTENT, 0);
    expect_sound(&db, &disk, &model, "compacted");
}
