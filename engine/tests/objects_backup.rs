//! Backups of databases on disks and in stores of objects, to either kind. The machine that makes
//! one may stop at any moment.

use crate::objects::{connect, count, open, settings, store};
use crate::support::test_database::TestDatabase;
use crate::support::{Content, content, in_time, place};
use quenchdb::internals::base::depth::{depth, spread};
use quenchdb::internals::device::objects::ObjectStorage;
use quenchdb::internals::device::objects::simulated::{FaultKind, SimulatedStore};
use quenchdb::internals::device::simulated::SimulatedStorage;
use quenchdb::{BackupOptions, Database, Error, ErrorKind, Place, Preset, RestoreOptions, Result};
use std::sync::Arc;

fn of_store(storage: &Arc<ObjectStorage>) -> Place {
    Place::storage(storage.clone())
}

fn commit(db: &Database, transactions: u32) {
    let table = db.table_or_create("t").expect("free");
    for _ in 0..transactions {
        count(db, &table, 700).expect("commits");
    }
}

/// Backs up to an empty store of objects, with the increment that `base` asks for.
fn back_up(db: &Database, base: Option<&SimulatedStore>, appends: bool) -> SimulatedStore {
    let target = store(5, appends);
    let (client, storage) = connect(&target);
    let of_base = base.map(connect);
    let options =
        BackupOptions::default().with(|s| s.base = of_base.as_ref().map(|(_, base)| of_store(base)));
    db.backup(of_store(&storage), options).expect("a sound database");
    client.kill();
    of_base.into_iter().for_each(|(client, _)| client.kill());
    target
}

/// Restores to `target` and returns what a later open finds there.
fn restore(backups: &[SimulatedStore], target: Place) -> Result<()> {
    let machines: Vec<_> = backups.iter().map(connect).collect();
    let places = machines.iter().map(|(_, storage)| of_store(storage));
    let restored = Database::restore(places, target, RestoreOptions::default());
    machines.iter().for_each(|(client, _)| client.kill());
    restored.map(drop)
}

fn restored_in_store(backups: &[SimulatedStore], appends: bool) -> Content {
    let target = store(6, appends);
    let (client, storage) = connect(&target);
    restore(backups, of_store(&storage)).expect("sound backups");
    client.kill();
    let (client, db) = open(&settings(Preset::Auto), &target).expect("it is a database");
    let found = content(&db);
    assert_eq!(db.verify(None).expect("can be checked").problems, Vec::<String>::new());
    commit(&db, 3);
    db.close().expect("it works");
    client.kill();
    let (client, db) = open(&settings(Preset::Auto), &target).expect("it is a database");
    assert_eq!(content(&db).len(), found.len() + 3);
    drop(db);
    client.kill();
    found
}

fn restored_on_disk(backups: &[SimulatedStore]) -> Content {
    let disk = SimulatedStorage::new(8);
    restore(backups, place(&disk)).expect("sound backups");
    content(&settings(Preset::Auto).open(&disk))
}

/// Backs up `db` to two stores as it changes, and restores from them.
fn check_chain(db: &Database, appends: bool) {
    commit(db, 60);
    let first = content(db);
    let full = back_up(db, None, appends);
    commit(db, 5);
    let second = content(db);
    let increment = back_up(db, Some(&full), appends);
    let size = |store: &SimulatedStore| store.objects().values().map(|object| object.len()).sum::<usize>();
    assert!(size(&increment) < size(&full), "an increment of a few rows");
    assert_eq!(restored_on_disk(&[full.fork(1)]), first);
    assert_eq!(restored_in_store(&[full.fork(1)], appends), first);
    assert_eq!(restored_on_disk(&[full.fork(1), increment.fork(1)]), second);
    assert_eq!(restored_in_store(&[full.fork(1), increment], !appends), second);
    let (client, storage) = connect(&full);
    let read_only = settings(Preset::Auto).with(|s| s.read_only = true);
    let copy = Database::builder().settings(read_only).storage(storage).open("backup").expect("opens");
    assert_eq!(content(&copy), first);
    client.kill();
    let before = full.objects();
    let error = open(&settings(Preset::Auto), &full).map(drop).expect_err("writing would spoil it");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.to_string().contains("this is a backup"), "{error}");
    assert_eq!(full.objects(), before);
}

#[test]
fn a_database_on_a_disk_is_backed_up_to_objects() {
    in_time("backups to objects", 120, || {
        for appends in [true, false] {
            check_chain(&settings(Preset::Auto).open(&SimulatedStorage::new(1)), appends);
        }
    });
}

#[test]
fn a_database_in_objects_is_backed_up_to_objects() {
    in_time("backups of objects", 120, || {
        for appends in [true, false] {
            let (client, db) = open(&settings(Preset::Auto), &store(3, appends)).expect("opens");
            check_chain(&db, appends);
            let disk = SimulatedStorage::new(2);
            db.backup(place(&disk), BackupOptions::default()).expect("sound");
            let (target, expected) = (SimulatedStorage::new(8), content(&db));
            Database::restore([place(&disk)], place(&target), RestoreOptions::default()).expect("sound");
            assert_eq!(content(&settings(Preset::Auto).open(&target)), expected);
            drop(db);
            client.kill();
        }
    });
}

#[test]
fn the_log_in_objects_is_replayed_over_a_backup() {
    in_time("restores with a log", 120, || {
        for appends in [true, false] {
            let original = store(3, appends);
            let (client, db) = open(&settings(Preset::Auto), &original).expect("opens");
            commit(&db, 20);
            let backup = back_up(&db, None, appends);
            commit(&db, 20);
            let expected = content(&db);
            client.kill();
            std::mem::forget(db);
            original.finish_late();
            let (machine, storage) = connect(&original);
            let (other, source) = connect(&backup);
            let target = store(6, appends);
            let (third, onto) = connect(&target);
            let options = RestoreOptions::default().with(|s| s.log = Some(of_store(&storage)));
            let report = Database::restore([of_store(&source)], of_store(&onto), options).expect("sound");
            assert_eq!(report.replayed, 20);
            let (fourth, db) = open(&settings(Preset::Auto), &target).expect("it is a database");
            assert_eq!(content(&db), expected, "appends {appends}");
            drop(db);
            [machine, other, third, fourth].iter().for_each(|client| client.kill());
        }
    });
}

/// Asserts that an error says that something is not there or not whole, and that the machine that
/// made it stopped before the last change.
fn assert_unfinished(error: &Error, stopped_before: bool, context: &str) {
    let kinds = [ErrorKind::NotFound, ErrorKind::Corruption];
    assert!(kinds.contains(&error.kind()), "{context}: {error}");
    assert!(stopped_before, "{context}: {error}");
}

#[test]
fn an_interrupted_backup_to_objects_is_none() {
    in_time("interrupted backups", 200, || {
        let db = settings(Preset::Auto).open(&SimulatedStorage::new(1));
        commit(&db, 60);
        let expected = content(&db);
        for appends in [true, false] {
            let target = back_up(&db, None, appends);
            let (all, mut wholes) = (target.changes(), 0);
            for changes in spread(all as u64 + 1, 60) {
                let left = target.crash(changes as usize, 9);
                left.finish_late();
                let context = format!("appends {appends}, {changes} of {all} changes");
                let disk = SimulatedStorage::new(8);
                match restore(&[left.fork(1)], place(&disk)) {
                    Ok(()) => {
                        wholes += 1;
                        assert_eq!(content(&settings(Preset::Auto).open(&disk)), expected, "{context}");
                    }
                    Err(error) => assert_unfinished(&error, changes < all as u64, &context),
                }
            }
            assert!(wholes > 0);
        }
    });
}

#[test]
fn an_interrupted_restore_to_objects_is_no_database() {
    in_time("interrupted restores", 200, || {
        let db = settings(Preset::Auto).open(&SimulatedStorage::new(1));
        commit(&db, 60);
        let (expected, backup) = (content(&db), back_up(&db, None, true));
        let target = store(6, true);
        let (client, storage) = connect(&target);
        restore(&[backup], of_store(&storage)).expect("sound");
        client.kill();
        let (all, mut wholes) = (target.changes(), 0);
        for changes in spread(all as u64 + 1, 60) {
            let left = target.crash(changes as usize, 9);
            let context = format!("{changes} of {all} changes");
            let settings = settings(Preset::Auto).with(|s| s.create = false);
            match open(&settings, &left) {
                Ok((client, db)) => {
                    wholes += 1;
                    assert_eq!(content(&db), expected, "{context}");
                    drop(db);
                    client.kill();
                }
                Err(error) => assert_unfinished(&error, changes < all as u64, &context),
            }
        }
        assert!(wholes > 0);
    });
}

#[test]
fn a_target_in_use_is_refused_and_its_writer_continues() {
    let used = store(3, true);
    let (client, owner) = open(&settings(Preset::Auto), &used).expect("opens");
    commit(&owner, 3);
    let db = settings(Preset::Auto).open(&SimulatedStorage::new(1));
    commit(&db, 3);
    let backup = back_up(&db, None, true);
    let (other, storage) = connect(&used);
    let error = db.backup(of_store(&storage), BackupOptions::default()).expect_err("it is in use");
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    let error = restore(&[backup.fork(1)], of_store(&storage)).expect_err("it is in use");
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    commit(&owner, 3);
    let (third, storage) = connect(&backup);
    let before = backup.objects();
    let error = db.backup(of_store(&storage), BackupOptions::default()).expect_err("there is one");
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    assert_eq!(backup.objects(), before, "nothing was changed");
    let foreign = store(4, true);
    foreign.set_object("photos/1.jpg", vec![1; 10]);
    let (fourth, storage) = connect(&foreign);
    let error = db.backup(of_store(&storage), BackupOptions::default()).expect_err("it is in use");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.to_string().contains("photos/1.jpg"), "{error}");
    assert_eq!(foreign.objects().len(), 1, "nothing was written");
    drop((db, owner));
    fourth.kill();
    [client, other, third].iter().for_each(|client| client.kill());
}

#[test]
fn copies_over_a_bad_network_are_whole() {
    in_time("copies over a bad network", 200, || {
        for seed in 0..depth(200) {
            let appends = seed.is_multiple_of(2);
            let [source, backup, restored] = [1, 2, 3].map(|n| store(3 * seed + n, appends));
            for store in [&source, &backup, &restored] {
                let faults = FaultKind::ALL.into_iter().filter(|kind| *kind != FaultKind::Denied);
                faults.for_each(|kind| store.set_odds(kind, 30));
            }
            let (client, db) = open(&settings(Preset::Auto), &source).expect("opens");
            commit(&db, 40);
            let machines = [&backup, &restored].map(connect);
            let [of_backup, of_restored] = [0, 1].map(|at| of_store(&machines[at].1));
            db.backup(of_backup.clone(), BackupOptions::default()).expect("sound");
            backup.finish_late();
            Database::restore([of_backup], of_restored, RestoreOptions::default()).expect("sound");
            restored.finish_late();
            let (other, copy) = open(&settings(Preset::Auto), &restored).expect("it is a database");
            assert_eq!(content(&copy), content(&db), "seed {seed}");
            drop((copy, db));
            machines.iter().for_each(|(client, _)| client.kill());
            [client, other].iter().for_each(|client| client.kill());
        }
    });
}

#[test]
fn two_backups_to_one_target_leave_one_or_none() {
    in_time("two backups to one target", 120, || {
        for seed in 0..8 {
            let dbs = [1, 2].map(|seed| settings(Preset::Auto).open(&SimulatedStorage::new(seed)));
            dbs.iter().zip([20, 30]).for_each(|(db, rows)| commit(db, rows));
            let target = SimulatedStore::new(seed);
            let machines = [0, 1].map(|_| connect(&target));
            let results: Vec<_> = std::thread::scope(|scope| {
                let run = |(db, (_, storage)): (&Database, &(_, Arc<ObjectStorage>))| {
                    let (db, to) = (db.clone(), of_store(storage));
                    scope.spawn(move || db.backup(to, BackupOptions::default()))
                };
                let threads: Vec<_> = dbs.iter().zip(&machines).map(run).collect();
                threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
            });
            machines.iter().for_each(|(client, _)| client.kill());
            let made: Vec<usize> = (0..2).filter(|at| results[*at].is_ok()).collect();
            assert!(made.len() <= 1, "seed {seed}: {results:?}");
            for at in made {
                assert_eq!(restored_on_disk(&[target.fork(1)]), content(&dbs[at]), "seed {seed}");
            }
        }
    });
}

#[test]
fn urls_are_targets_and_sources_of_copies() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let url = |name: &str| format!("file://{}/{name}", directory.path().display());
    let db = Database::open(directory.path().join("db")).expect("new");
    let table = db.create_table("t").expect("new");
    db.transact(|tx| tx.insert(&table, "a", "1")).expect("commits");
    let expected = content(&db);
    db.backup(&url("backup"), BackupOptions::default()).expect("sound");
    Database::restore([&url("backup")], &url("restored"), RestoreOptions::default()).expect("sound");
    let restored = Database::open(url("restored")).expect("a database");
    assert_eq!(content(&restored), expected);
    let error = restored.backup(&url("backup"), BackupOptions::default()).expect_err("there is one");
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    restored.backup(directory.path().join("back"), BackupOptions::default()).expect("sound");
    let error = restored.backup("ftp://host/x", BackupOptions::default()).expect_err("no such store");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
}
