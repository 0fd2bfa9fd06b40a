//! The rules of several buckets, one by one: for each the order of requests that breaks a database
//! in which the rule is not kept.

use crate::objects_several::{Machine, Written, Zones, keys};
use quenchdb::internals::device::objects::RequestKind;
use quenchdb::internals::device::objects::simulated::{Fault, FaultKind};
use quenchdb::internals::device::{OpenMode, Roles, Storage};
use quenchdb::{Database, ErrorKind, SegmentId};
use std::time::Duration;

/// Writes a row whose block reaches only bucket `only`, and ends the process.
fn write_to_one(
    zones: &Zones,
    machine: &Machine,
    db: &Database,
    written: &mut Written,
    only: usize,
    key: &str,
) {
    for zone in (0..zones.stores.len()).filter(|zone| *zone != only) {
        let lost = Fault { prefix: "log/".into(), for_ever: true, ..Fault::once(FaultKind::LostRequest) };
        machine.clients[zone].inject(lost);
    }
    let blocks = || zones.objects(only).iter().filter(|(name, _)| name.starts_with("log/")).count();
    // The blocks before have arrived everywhere.
    std::thread::sleep(Duration::from_millis(50));
    let before = blocks();
    let table = db.table("t").expect("is there");
    written.add(db, &table, key).expect_err("it is in one bucket only");
    assert_eq!(blocks(), before + 1, "it is there");
    machine.kill();
}

/// Opens without one bucket.
fn open_without(zones: &Zones, missing: usize) -> (Machine, Database) {
    let machine = zones.connect();
    machine.clients[missing].partition();
    let db = machine.open().unwrap_or_else(|error| panic!("without {missing}: {error}"));
    (machine, db)
}

/// O33: the next recovery meets the other two buckets.
#[test]
fn what_a_takeover_served_from_one_bucket_survives_it() {
    let (zones, mut written) = (Zones::new(3, 30), Written::default());
    let machine = zones.connect();
    let db = machine.open().expect("opens");
    written.add_all(&db, "a", 3, "first");
    write_to_one(&zones, &machine, &db, &mut written, 0, "x");
    drop(db);
    let (machine, db) = open_without(&zones, 2);
    assert!(keys(&db, "second").contains("x"), "the block was in a bucket that was read");
    written.settle(&db, "second");
    machine.kill();
    drop(db);
    let (_, db) = open_without(&zones, 0);
    written.check(&db, "with the two that did not have it");
}

/// Claims the database, and returns the lengths of the segments of earlier writers.
fn lens_of_segments(machine: &Machine) -> Vec<(SegmentId, u64)> {
    let _lock = machine.storage.lock(true).expect("a majority is there");
    let segments = machine.storage.segments();
    let len = |id: SegmentId| {
        let mode = OpenMode { create: false, read_only: true, direct: false };
        (id, segments.open(id, mode).expect("is there").len().expect("is known"))
    };
    let lens = segments.list().expect("is known").into_iter().map(len).collect();
    machine.kill();
    lens
}

/// O34: a block that no fenced bucket had was discarded, and lies in the third one.
#[test]
fn what_a_takeover_discarded_does_not_come_back() {
    let (zones, mut written) = (Zones::new(3, 31), Written::default());
    let machine = zones.connect();
    let db = machine.open().expect("opens");
    written.add_all(&db, "a", 3, "first");
    write_to_one(&zones, &machine, &db, &mut written, 2, "x");
    drop(db);
    let machine = zones.connect();
    machine.clients[2].partition();
    let decided = lens_of_segments(&machine);
    assert!(decided.iter().any(|(_, len)| *len > 0), "there is a log: {decided:?}");
    for missing in 0..3 {
        let machine = zones.connect();
        machine.clients[missing].partition();
        assert_eq!(lens_of_segments(&machine), decided, "without {missing}");
    }
    written.unknown.remove("x");
    let (_, db) = open_without(&zones, 0);
    written.check(&db, "with the bucket that has it");
}

/// O31: a checkpoint that one bucket has accepted is none, so the log stays.
#[test]
fn a_checkpoint_in_one_bucket_does_not_count() {
    let (zones, mut written) = (Zones::new(3, 32), Written::default());
    let machine = zones.connect();
    let db = machine.open().expect("opens");
    written.add_all(&db, "a", 20, "first");
    for zone in 1..3 {
        let (prefix, request) = ("manifest".into(), Some(RequestKind::Put));
        let lost = Fault { prefix, request, for_ever: true, ..Fault::once(FaultKind::LostRequest) };
        machine.clients[zone].inject(lost);
    }
    db.checkpoint().expect_err("one of three");
    machine.kill();
    drop(db);
    let (_, db) = open_without(&zones, 0);
    written.check(&db, "with the two that did not accept");
}

/// O31: of two manifests of one writer the newer one counts.
#[test]
fn a_claim_takes_the_newest_manifest_of_a_writer() {
    for stale in 0..3 {
        let (zones, mut written) = (Zones::new(3, 33), Written::default());
        let machine = zones.connect();
        let db = machine.open().expect("opens");
        written.add_all(&db, "a", 20, "first");
        machine.clients[stale].partition();
        written.add_all(&db, "b", 20, "then");
        // So much that the checkpoint removes segments of the log.
        let big = db.create_table("big").expect("new");
        for n in 0..100_u32 {
            db.transact(|tx| tx.insert(&big, n.to_be_bytes(), [n as u8; 2000])).expect("commits");
        }
        for _ in 0..2 {
            db.checkpoint().expect("a majority accepts");
        }
        drop(big);
        machine.kill();
        drop(db);
        for missing in (0..3).filter(|zone| *zone != stale) {
            let zones = zones.fork(missing as u64);
            zones.stores.iter().for_each(|store| store.lose_late());
            let (_, db) = open_without(&zones, missing);
            written.check(&db, &format!("{stale} is stale, {missing} is missing"));
            let problems = db.verify(None).expect("runs").problems;
            assert!(problems.is_empty(), "{stale} is stale, {missing} is missing: {problems:?}");
        }
    }
}

/// O31: a bucket that has promised a later claim accepts nothing of an earlier writer.
#[test]
fn a_checkpoint_of_a_writer_that_has_ended_changes_nothing() {
    let (zones, mut written) = (Zones::new(3, 34), Written::default());
    let first = zones.connect();
    let db = first.open().expect("opens");
    written.add_all(&db, "a", 5, "first");
    let second = zones.connect();
    let theirs = second.open().expect("takes over");
    written.add_all(&theirs, "b", 5, "second");
    db.checkpoint().expect_err("it was taken over");
    second.kill();
    first.kill();
    drop((db, theirs));
    for missing in 0..3 {
        let zones = zones.fork(missing as u64);
        let (_, db) = open_without(&zones, missing);
        written.check(&db, &format!("without {missing}"));
    }
}

/// O32: what comes between a look at a log and its fence is acknowledged.
#[test]
fn takeovers_beside_a_busy_writer_lose_nothing() {
    for seed in 0..12 {
        // So long that a block comes between.
        let latency = Duration::from_millis(2);
        let (zones, mut written) = (Zones::with_latency(3, 100 + seed, latency), Written::default());
        let first = zones.connect();
        let db = first.open().expect("opens");
        let table = db.table_or_create("t").expect("new");
        let second = zones.connect();
        let theirs = std::thread::scope(|scope| {
            let write = scope.spawn(|| {
                let mut n = 0;
                while written.add(&db, &table, &format!("a-{n}")).is_ok() {
                    n += 1;
                }
            });
            std::thread::sleep(Duration::from_millis(30 + 3 * seed));
            let theirs = second.open().expect("takes over");
            write.join().expect("it ends");
            theirs
        });
        written.check(&theirs, &format!("seed {seed}"));
        first.kill();
        second.kill();
        drop((table, db, theirs));
    }
}

/// O35: a bucket that came back old is no part of a majority.
#[test]
fn an_old_bucket_beside_a_missing_one_is_refused() {
    let (zones, mut written) = (Zones::new(3, 36), Written::default());
    let machine = zones.connect();
    let db = machine.open().expect("opens");
    written.add_all(&db, "a", 3, "first");
    let before = zones.objects(2);
    for _ in 0..2 {
        db.checkpoint().expect("no fault");
    }
    // The first bucket gets none of these blocks.
    machine.clients[0].hold_requests();
    written.add_all(&db, "b", 3, "then");
    machine.kill();
    drop(db);
    zones.stores[0].lose_late();
    zones.restore(2, &before);
    let other = zones.connect();
    other.clients[1].partition();
    let error = other.open().expect_err("what is left has not everything");
    assert!(matches!(error.kind(), ErrorKind::Io), "{error}");
    // With the bucket that has everything, it opens.
    let db = zones.connect().open().expect("opens");
    written.check(&db, "all");
}

/// O30, O31: claims at the same time end, and each writer continues from the one before it.
#[test]
fn rivals_take_over_from_each_other() {
    let zones = Zones::new(3, 37);
    zones.connect().open().expect("opens").create_table("t").expect("new");
    let writes = |name: usize| {
        let mut written = Written::default();
        for round in 0..4 {
            let machine = zones.connect();
            let Ok(db) = machine.open() else { continue };
            let Ok(table) = db.table("t") else { continue };
            for n in 0..5 {
                if written.add(&db, &table, &format!("{name}-{round}-{n}")).is_err() {
                    break;
                }
            }
        }
        written
    };
    let all = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3).map(|name| scope.spawn(move || writes(name))).collect();
        writers.into_iter().fold(Written::default(), |mut all, writer| {
            let Written { acknowledged, unknown } = writer.join().expect("it ends");
            all.acknowledged.extend(acknowledged);
            all.unknown.extend(unknown);
            all
        })
    });
    let db = zones.connect().open().expect("opens");
    all.check(&db, "after all");
}

/// O35: a bucket that was away, and returns as it was long ago, is not counted by a running writer.
#[test]
fn a_bucket_that_returns_old_to_a_writer_is_not_counted() {
    let (zones, mut written) = (Zones::new(3, 38), Written::default());
    let machine = zones.connect();
    let db = machine.open().expect("opens");
    written.add_all(&db, "a", 3, "first");
    let before = zones.objects(2);
    for _ in 0..2 {
        db.checkpoint().expect("no fault");
    }
    db.close().expect("closes");
    zones.restore(2, &before);
    let (machine, db) = open_without(&zones, 2);
    machine.clients[2].reconnect();
    for round in 0..2 {
        written.add_all(&db, &format!("b{round}"), 3, "second");
        db.checkpoint().expect("no fault");
    }
    machine.clients[0].partition();
    let table = db.table("t").expect("is there");
    written.add(&db, &table, "c").expect_err("one bucket has it, and one that does not count");
    machine.kill();
    drop((table, db));
    let db = zones.connect().open().expect("opens");
    written.check(&db, "all");
}

/// A bucket that was away takes part again, without a reopening.
#[test]
fn a_bucket_that_was_away_takes_part_again() {
    let (zones, mut written) = (Zones::new(3, 39), Written::default());
    zones.connect().open().expect("opens").close().expect("closes");
    let (machine, db) = open_without(&zones, 2);
    written.add_all(&db, "a", 3, "without it");
    machine.clients[2].reconnect();
    // The next manifest finds it, and the next segment uses it.
    let big = db.create_table("big").expect("new");
    for n in 0..100_u32 {
        db.transact(|tx| tx.insert(&big, n.to_be_bytes(), [n as u8; 2000])).expect("commits");
    }
    machine.clients[0].partition();
    written.add_all(&db, "b", 3, "with it");
    db.checkpoint().expect("two accept");
    machine.kill();
    drop((big, db));
    let (_, db) = open_without(&zones, 0);
    written.check(&db, "with it");
}

/// A bucket with another database is neither used nor cleaned.
#[test]
fn a_bucket_of_another_database_stays_as_it_is() {
    let zones = Zones::new(3, 40);
    let other = zones.fork(1);
    for (zones, name) in [(&zones, "a"), (&other, "b")] {
        let db = zones.connect().open().expect("opens");
        let mut written = Written::default();
        written.add_all(&db, name, 5, name);
        for _ in 0..5 {
            db.checkpoint().expect("no fault");
        }
        db.close().expect("closes");
    }
    let theirs = other.objects(2);
    zones.restore(2, &theirs);
    let db = zones.connect().open().expect("a majority is left");
    assert!(keys(&db, "ours").contains("a-0"));
    db.checkpoint().expect("no fault");
    db.close().expect("closes");
    let after = zones.objects(2);
    let missing: Vec<_> =
        theirs.iter().filter(|(name, _)| !after.iter().any(|(there, _)| there == name)).collect();
    assert!(missing.is_empty(), "{} objects are gone", missing.len());
}
