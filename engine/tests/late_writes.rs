//! Writes of a killed process that land while the next one has the database open already.

mod support;

use quenchdb::base::random::Random;
use quenchdb::device::simulated::{CrashKind, SimulatedStorage};
use quenchdb::{Acknowledger, Database, Dependency, Preset, Result, Settings, Writer};
use std::sync::Arc;
use std::time::Duration;
use support::small;

fn settings() -> Settings {
    Settings {
        writer: Some(Writer::Worker),
        acknowledger: Some(Acknowledger::Workers),
        dependency: Some(Dependency::Dsn),
        flush_unit_bytes: 4096,
        flush_interval: Some(Duration::ZERO),
        memory_bytes: 4 << 20,
        log_bytes_max: 8 << 20,
        ..small(Preset::Autonomous, 1)
    }
}

fn open(disk: &SimulatedStorage) -> Result<Database> {
    Database::builder().settings(settings()).storage(Arc::new(disk.clone())).open("simulated")
}

/// Commits rows `from..to` and waits for none of them.
fn write(db: &Database, from: u32, to: u32) {
    let table = db.table_or_create("rows").expect("free");
    for n in from..to {
        let mut tx = db.begin().expect("free");
        tx.insert(&table, n.to_be_bytes(), vec![n as u8; 900]).expect("fits");
        tx.commit_async().expect("a whole disk");
    }
}

#[test]
fn a_segment_is_not_used_again_while_a_killed_process_may_still_write_to_it() {
    let (mut random, mut late) = (Random::from_seed(1), 0);
    for seed in 0..200 {
        let disk = SimulatedStorage::new(seed);
        let db = open(&disk).expect("a whole disk");
        write(&db, 0, 150);
        let at = random.below(disk.operations() as u64) as usize;
        disk.stop();
        drop(db);

        let disk = disk.crash(CrashKind::Kill, at, random.next_u64());
        disk.hold_late_writes(true);
        late += disk.late_writes();
        let db = open(&disk).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        // All that is there is in the checkpoint, and its segments are free for what follows.
        for from in [1000, 2000, 3000] {
            db.checkpoint().expect("a whole disk");
            write(&db, from, from + 200);
            db.flush().expect("a whole disk");
        }
        disk.hold_late_writes(false);
        let there = support::content(&db);
        let kill = disk.crash(CrashKind::Kill, disk.operations(), random.next_u64());
        disk.stop();
        drop(db);

        let db = open(&kill).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(support::content(&db) == there, "seed {seed}: something is missing");
    }
    assert!(late > 15, "only {late} writes were late");
}
