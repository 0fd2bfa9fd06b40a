//! Tables are created and dropped while checkpoints are made: no checkpoint may have a root page
//! without its table, or a table without its root page. Regression: a checkpoint that began between
//! the creation of a root page and its exclusion from checkpoints contained the page (seed 142).

use quenchdb::internals::base::depth::depth;
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::simulated::{CrashKind, SimulatedStorage};
use quenchdb::internals::sync::simulation::{self, Plan};
use quenchdb::internals::sync::thread;
use quenchdb::{Builder, Database};
use std::sync::Arc;

const SEEDS: u64 = 150;
const CRASHES: u64 = 4;
const TABLES: u64 = 4;

fn opened_on(disk: &SimulatedStorage) -> Database {
    let builder: Builder = Database::builder().page_bytes(4096).memory_bytes(4 << 20).segment_bytes(64 << 10);
    builder.storage(Arc::new(disk.clone())).open("simulated").expect("it opens")
}

/// Creates tables with a row each and drops some of them, while checkpoints are made.
fn work(disk: &SimulatedStorage, seed: u64) {
    let db = opened_on(disk);
    let creator = db.clone();
    let mut random = Random::from_seed(seed);
    let created = thread::spawn("creator", move || {
        for number in 0..TABLES {
            let name = format!("table {number}");
            let table = creator.create_table(&name).expect("room");
            let mut tx = creator.begin().expect("open");
            tx.insert(&table, b"key", b"value").expect("room");
            tx.commit().expect("durable");
            drop(table);
            if random.chance(1, 3) {
                creator.drop_table(&name).expect("unused");
            }
        }
    });
    let created = created.expect("a thread");
    for _ in 0..TABLES {
        db.checkpoint().expect("room");
    }
    created.join().expect("no panic");
    disk.stop();
}

#[test]
fn a_checkpoint_has_a_root_if_and_only_if_it_has_the_table() {
    let _alone = crate::support::alone();
    let mut checkpoints_with_tables = 0;
    for seed in 0..depth(SEEDS) {
        let disk = SimulatedStorage::new(seed);
        simulation::run(Plan::of(seed), || work(&disk, seed));
        let mut random = Random::from_seed(seed);
        for _ in 0..CRASHES {
            let at = disk.operations() / 2 + random.below(disk.operations() as u64 / 2 + 1) as usize;
            let left = disk.crash(CrashKind::Kill, at, random.next_u64());
            simulation::run(Plan::of(seed), || {
                let db = opened_on(&left);
                let report = db.verify(None).expect("it runs");
                assert!(report.problems.is_empty(), "seed {seed}, kill after {at}: {:?}", report.problems);
                checkpoints_with_tables += u64::from(!db.tables().is_empty());
                left.stop();
            });
        }
    }
    assert!(checkpoints_with_tables > depth(SEEDS), "the crashes come too early: {checkpoints_with_tables}");
}
