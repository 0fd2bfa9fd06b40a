//! Every wait for a commit ends, in any order of threads.
//!
//! A thread that appends to a full log block seals the block. Regression: a flusher that looked for
//! work during the seal found neither the bytes nor the sealed block, and slept. The committer
//! waited until another commit requested a write. In seed 1018802 of quench-sim there was no other
//! commit: all threads waited for each other.

use crate::support::small;
use quenchdb::internals::base::depth::depth;
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::simulated::SimulatedStorage;
use quenchdb::internals::sync::simulation::{self, Plan};
use quenchdb::internals::sync::{Mutex, thread};
use quenchdb::{CommitHandle, Database, Durability, Preset, Settings};
use std::sync::Arc;

const SEEDS: u64 = 3_000;
const LEVELS: [Durability; 4] =
    [Durability::Durable, Durability::Durable, Durability::BoundedLoss, Durability::Lazy];

fn work(disk: &SimulatedStorage, settings: Settings, seed: u64) {
    let db = Database::builder().settings(settings).storage(Arc::new(disk.clone())).open("simulated");
    let db = db.expect("it opens");
    let table = db.create_table("rows").expect("room");
    let later: Arc<Mutex<Vec<CommitHandle>>> = Arc::default();
    let workers = (0..2_u64).map(|number| {
        let (db, table, later) = (db.clone(), table.clone(), later.clone());
        let mut random = Random::from_seed(seed ^ number << 32);
        thread::spawn("worker", move || {
            for n in 0..4_u64 {
                let level = LEVELS[random.below(4) as usize];
                let mut tx = db.begin_with(level).expect("open");
                tx.insert(&table, [number, n].map(|part| part as u8), b"value").expect("room");
                if random.chance(1, 4) {
                    later.lock().push(tx.commit_async().expect("room"));
                } else {
                    tx.commit().expect("room");
                }
            }
        })
    });
    let workers: Vec<_> = workers.collect();
    workers.into_iter().for_each(|worker| worker.expect("a thread").join().expect("no panic"));
    let later = std::mem::take(&mut *later.lock());
    later.into_iter().for_each(|handle| handle.wait().expect("durable"));
    disk.stop();
}

#[test]
fn a_wait_for_a_block_sealed_by_another_thread_ends() {
    let _alone = crate::support::alone();
    for seed in 0..depth(SEEDS) {
        let settings = small(Preset::PerTransaction, 1);
        let disk = SimulatedStorage::new(seed);
        simulation::run(Plan::of(seed), || work(&disk, settings, seed));
    }
}
