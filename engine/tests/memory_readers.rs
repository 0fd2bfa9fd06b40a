//! Reading a database whose log is or was in mapped memory, with and without settings for it.

use crate::support::test_database::TestDatabase;
use crate::support::{content, difference, small};
use quenchdb::internals::device::simulated::CrashKind;
use quenchdb::{Database, Preset, Settings, Writer};
use std::collections::BTreeSet;

fn settings(logs: usize) -> Settings {
    small(Preset::Passive, logs).with(|s| s.lab.log_memory_bytes = 1 << 20)
}

/// Without log memory.
fn plain() -> Settings {
    small(Preset::Group, 1)
}

/// Commits `commits` rows.
fn work(db: &Database, commits: u8) {
    let table = db.table_or_create("t").expect("made");
    for n in 0..commits {
        db.transact(|tx| tx.insert(&table, [n], [n; 20])).expect("durable");
    }
}

/// Regression: settings with a log in mapped memory were refused for reading a database that needs
/// no such memory: "preset passive has no log in mapped memory".
#[test]
fn settings_with_log_memory_read_a_database_without_any() {
    let auto = || settings(2).with(|s| s.preset = Preset::Auto);
    let by_writer = || {
        settings(2).with(|s| {
            s.protocol_mut().set_writer(Writer::Memory);
            s.preset = Preset::Pipelined;
        })
    };
    for writes in [settings(2), auto(), plain()] {
        let (disk, db) = writes.create(1);
        work(&db, 4);
        let written = content(&db);
        db.close().expect("closes");
        for reads in [settings(2), auto(), by_writer(), plain()] {
            let db = reads.clone().with(|s| s.read_only = true).open(&disk);
            let found = content(&db);
            assert!(found == written, "{}", difference(&written, &found));
            assert!(db.statistics().log_memory.is_none());
            drop(db);
            let builder = reads.on(&disk);
            let report = builder.verify("simulated", None).expect("opens for reading only");
            assert!(report.problems.is_empty(), "{report:#?}");
        }
    }
}

/// Regression: readers saw stores of a killed process that were not fenced, and a power cut then
/// discarded these.
#[test]
fn what_a_reader_saw_of_a_killed_process_survives_a_power_cut() {
    let (disk, db) = settings(2).create(1);
    work(&db, 6);
    disk.stop();
    drop(db);
    let mut shown = BTreeSet::new();
    for at in 0..disk.operations() {
        let killed = disk.crash(CrashKind::Kill, at, 1);
        // Before the first manifest there is nothing to read.
        let Ok(db) = settings(2).with(|s| s.read_only = true).try_open(&killed) else { continue };
        let seen = content(&db);
        drop(db);
        shown.insert(seen.len());
        for seed in 0..4 {
            let cut = killed.crash(CrashKind::PowerCut, killed.operations(), seed);
            let now = content(&settings(2).open(&cut));
            assert!(seen == now, "killed after {at}: {}", difference(&seen, &now));
        }
    }
    assert!(shown.len() > 4, "{shown:?}");
}
