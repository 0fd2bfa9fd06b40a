//! Scenarios with a second disk, and scenarios that only read.

use super::databases::{closed, database, group};
use super::outcomes::{Deed, How, Size};
use super::{After, Scenario, Stage, judge_database};
use crate::support::test_database::TestDatabase;
use crate::support::{Content, content, place};
use quenchdb::internals::device::simulated::SimulatedStorage;
use quenchdb::{BackupOptions, Database, RestoreOptions, Settings};
use std::sync::Arc;

fn filled(settings: &Settings) -> (Vec<SimulatedStorage>, Vec<Deed>) {
    database(settings, true, |db, table, writer| {
        (0..3).for_each(|_| writer.put(db, table, Size(6, 700), How::Wait));
    })
}

fn with_target(settings: &Settings) -> (Vec<SimulatedStorage>, Vec<Deed>) {
    let (mut disks, deeds) = filled(settings);
    disks.push(SimulatedStorage::new(2));
    (disks, deeds)
}

fn back_up(stage: &mut Stage) {
    let (db, table) = stage.open_well();
    stage.arm();
    let done = db.backup(place(&stage.disks[1]), BackupOptions::default());
    if stage.attempt(done).is_some() {
        stage.note_done();
    }
    stage.writer.put(&db, &table, Size(1, 10), How::Wait);
}

fn restored(backups: &[&SimulatedStorage], context: &str) -> Option<Content> {
    let target = SimulatedStorage::new(8);
    Database::restore(backups.iter().map(|disk| place(disk)), place(&target), RestoreOptions::default())
        .ok()?;
    let db = group().try_open(&target).unwrap_or_else(|error| panic!("{context}: restored, but {error}"));
    let report = db.verify(None).unwrap_or_else(|error| panic!("{context}: {error}"));
    assert!(report.problems.is_empty(), "{context}: {:?}", report.problems);
    Some(content(&db))
}

/// Returns how many rows existed before faults were armed.
fn prepared_rows(content: &Content) -> usize {
    content.keys().filter(|(table, key)| table == "t" && key.len() == 3 && key[0] == 0 && key[1] < 3).count()
}

/// Checks that a reported backup can be restored, and that another one is refused or complete.
fn judge_backup(after: &After, context: &str) {
    judge_database(after, context);
    match restored(&[&after.disks[1]], context) {
        Some(content) => assert_eq!(prepared_rows(&content), 18, "{context}: not whole"),
        None => assert!(!after.done, "{context}: the backup was reported as made and cannot be restored"),
    }
}

/// Prepares the database, a full backup, and an empty disk for the increment.
fn with_full(settings: &Settings) -> (Vec<SimulatedStorage>, Vec<Deed>) {
    let (disks, deeds) = with_target(settings);
    let db = settings.open(&disks[0]);
    db.backup(place(&disks[1]), BackupOptions::default()).expect("well disks");
    let table = db.table("t").expect("there");
    let row = |tx: &mut quenchdb::Transaction| tx.insert(&table, "later", "value");
    db.transact(row).expect("a well disk");
    db.close().expect("a well disk");
    let full = disks[1].duplicate();
    (vec![disks[0].duplicate(), SimulatedStorage::new(3), full], deeds)
}

fn increment(stage: &mut Stage) {
    let (db, _) = stage.open_well();
    stage.arm();
    let base = Some(place(&stage.disks[2]));
    let done = db.backup(place(&stage.disks[1]), BackupOptions::default().with(|s| s.base = base));
    if stage.attempt(done).is_some() {
        stage.note_done();
    }
}

fn judge_increment(after: &After, context: &str) {
    judge_database(after, context);
    let full =
        restored(&[&after.disks[2]], context).unwrap_or_else(|| panic!("{context}: the full one is spoilt"));
    assert_eq!(prepared_rows(&full), 18, "{context}");
    match restored(&[&after.disks[2], &after.disks[1]], context) {
        Some(content) => {
            assert!(content.contains_key(&("t".into(), b"later".to_vec())), "{context}: not whole");
        }
        None => assert!(!after.done, "{context}: the increment was reported as made and cannot be restored"),
    }
}

/// Prepares a backup, a disk to restore to, and the log of the original, which was not closed.
fn with_log(settings: &Settings) -> (Vec<SimulatedStorage>, Vec<Deed>) {
    let (disks, _) = with_target(settings);
    let db = settings.open(&disks[0]);
    db.backup(place(&disks[1]), BackupOptions::default()).expect("well disks");
    let table = db.table("t").expect("there");
    for n in 0..4u8 {
        let rows = |tx: &mut quenchdb::Transaction| {
            (0..3u8).try_for_each(|row| tx.insert(&table, [77, n, row], [n; 500]))
        };
        db.transact(rows).expect("a well disk");
    }
    disks[0].stop();
    drop((db, table));
    (vec![SimulatedStorage::new(3), disks[1].duplicate(), disks[0].duplicate()], Vec::new())
}

fn restore(stage: &mut Stage) {
    stage.arm();
    let log = Some(place(&stage.disks[2]));
    let options = RestoreOptions::default().with(|s| {
        s.log = log;
        s.settings = stage.settings.clone();
    });
    let done = Database::restore([place(&stage.disks[1])], place(&stage.disks[0]), options);
    if stage.attempt(done).is_some() {
        stage.note_done();
    }
}

/// Checks that a reported restore is complete. Otherwise the target is refused until a restore
/// succeeds, which can be repeated elsewhere.
fn judge_restore(after: &After, context: &str) {
    match after.settings.try_open(&after.disks[0]) {
        Ok(db) => {
            let rows = content(&db);
            let late = rows.keys().filter(|(_, key)| key[0] == 77).count();
            // A kill before the first mark leaves an empty directory.
            let is_empty = rows.is_empty() && db.tables().is_empty() && !after.done;
            assert!(is_empty || prepared_rows(&rows) == 18 && late == 12, "{context}: {late} late rows");
            let report = db.verify(None).unwrap_or_else(|error| panic!("{context}: {error}"));
            assert!(report.problems.is_empty(), "{context}: {:?}", report.problems);
        }
        Err(error) => assert!(!after.done, "{context}: restored, but {error}"),
    }
    let fresh = SimulatedStorage::new(4);
    let options = RestoreOptions::default().with(|s| {
        s.log = Some(place(&after.disks[2]));
        s.settings = after.settings.clone();
    });
    Database::restore([place(&after.disks[1])], place(&fresh), options)
        .unwrap_or_else(|error| panic!("{context}: backup and log are spoilt: {error}"));
}

fn salvage(stage: &mut Stage) {
    stage.arm();
    let done =
        Database::salvage(place(&stage.disks[0]), place(&stage.disks[1]), stage.settings.clone(), None);
    match stage.attempt(done) {
        Some(report) if report.is_whole() => stage.note_done(),
        _ => {}
    }
}

fn judge_salvage(after: &After, context: &str) {
    judge_database(after, context);
    if after.done {
        let db =
            after.settings.try_open(&after.disks[1]).unwrap_or_else(|error| panic!("{context}: {error}"));
        assert_eq!(prepared_rows(&content(&db)), 18, "{context}: reported as whole");
    }
}

fn verify(stage: &mut Stage) {
    stage.arm();
    let storage = Arc::new(stage.disks[0].clone());
    let verified =
        Database::builder().settings(stage.settings.clone()).storage(storage).verify("simulated", None);
    if let Some(report) = stage.attempt(verified) {
        let struck = stage.disks[0].faults_struck() > 0;
        for problem in &report.problems {
            assert!(
                struck && problem.contains("simulated failure"),
                "a sound database has problems: {problem}"
            );
        }
        stage.note_done();
    }
}

/// Reads the newest checkpoint while the writer continues.
fn read_checkpoint(stage: &mut Stage) {
    let (db, table) = stage.open_well();
    stage.arm();
    let builder = stage.settings.on(&stage.disks[0]);
    let reader = builder.open_checkpoint("simulated");
    let reader = stage.attempt(reader);
    stage.writer.put(&db, &table, Size(4, 600), How::Wait);
    let made = db.checkpoint();
    stage.attempt(made);
    if let Some(reader) = &reader {
        let rows = reader.table("t").and_then(|table| {
            let snapshot = reader.begin_read()?;
            snapshot.range(&table, ..).map(|row| row.map(drop)).collect::<quenchdb::Result<Vec<()>>>()
        });
        if let Some(rows) = stage.attempt(rows) {
            // Plus the row of the chain.
            assert_eq!(rows.len(), 18 + 1, "it sees the checkpoint that it opened");
        }
    }
    drop(reader);
    let made = db.checkpoint();
    stage.attempt(made);
    stage.writer.put(&db, &table, Size(1, 10), How::Wait);
}

const PLAIN: Scenario = Scenario {
    name: "",
    settings: group,
    prepare: closed,
    run: verify,
    judge: judge_database,
    reads_only: false,
    took_its_path: None,
};

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "backup", prepare: with_target, run: back_up, judge: judge_backup, ..PLAIN },
    Scenario {
        name: "incremental backup",
        prepare: with_full,
        run: increment,
        judge: judge_increment,
        ..PLAIN
    },
    Scenario { name: "restore with log", prepare: with_log, run: restore, judge: judge_restore, ..PLAIN },
    Scenario { name: "salvage", prepare: with_target, run: salvage, judge: judge_salvage, ..PLAIN },
    Scenario { name: "verify offline", prepare: filled, run: verify, reads_only: true, ..PLAIN },
    Scenario { name: "reader of a checkpoint", prepare: filled, run: read_checkpoint, ..PLAIN },
];
