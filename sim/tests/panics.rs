//! A thread of the engine panics, or one of the user's inside a call, at each of its first
//! operations that may wait: nobody waits for ever, and after a crash everything acknowledged is
//! there, and nothing half done. Panics are bugs, of the engine or of a device that a user brought;
//! these are planned.

use crate::support::bank::{ALL_KINDS, Id, Tables, Told, judge, one};
use crate::support::shadow::await_it;
use quenchdb::internals::base::depth::{is_deep, spread};
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::Storage;
use quenchdb::internals::device::simulated::{CrashKind, SimulatedStorage};
use quenchdb::internals::sync::simulation::{self, Plan, PlannedPanic};
use quenchdb::internals::sync::{Mutex, thread};
use quenchdb::{BackupOptions, CommitHandle, Database, ErrorKind, Settings};
use std::collections::BTreeSet;
use std::sync::Arc;

fn settings(seed: u64) -> Settings {
    crate::support::any_protocol(seed, &mut Random::from_seed(seed)).with(|s| {
        // Pages have to leave it.
        s.memory_bytes = 1 << 20;
        s.segment_bytes = 64 << 10;
        s.log_buffer_bytes = 64 << 10;
        s.log_bytes_max = 8 << 20;
        s.checkpoint_log_bytes = 64 << 10;
    })
}

fn opened_on(disk: &SimulatedStorage, settings: &Settings) -> quenchdb::Result<Database> {
    Database::builder().settings(settings.clone()).storage(Arc::new(disk.clone())).open("simulated")
}

/// Whoever committed asynchronously waits, every other one as asynchronous code does, and is told.
fn wait_all(later: &mut Vec<(Id, CommitHandle)>, acknowledged: &Mutex<BTreeSet<Id>>) {
    for (id, handle) in later.drain(..) {
        let told = if id[2].is_multiple_of(2) { await_it(handle) } else { handle.wait() };
        if told.is_ok() {
            acknowledged.lock().insert(id);
        }
    }
}

/// Works until the panic. Says which thread it struck, and adds what was acknowledged.
fn live(
    disk: &SimulatedStorage,
    seed: u64,
    threads: &'static str,
    after: u64,
    told: &mut BTreeSet<Id>,
) -> Option<String> {
    simulation::panic_later(threads, after);
    if let Ok(db) = opened_on(disk, &settings(seed)) {
        if let Ok(tables) = Tables::of(&db, true) {
            let acknowledged: Arc<Mutex<BTreeSet<Id>>> = Arc::default();
            let shared = Arc::new((db.clone(), tables, acknowledged.clone()));
            let workers = (0..2).map(|number| {
                let shared = shared.clone();
                thread::spawn("worker", move || {
                    let (db, tables, acknowledged) = &*shared;
                    let mut random = Random::from_seed(seed ^ u64::from(number));
                    let mut later = Vec::new();
                    if number == 1 {
                        let _ = db.create_table("own").and_then(|_| db.drop_table("own"));
                    }
                    // Pages have to leave memory before their thread has anything to do.
                    for n in 0..if threads == "quench-evictor" { 48 } else { 10 } {
                        let id = [0, number, n, 0];
                        match one(db, tables, id, ALL_KINDS, &mut random) {
                            Ok(Told::Durable) => drop(acknowledged.lock().insert(id)),
                            Ok(Told::Later(handle)) => later.push((id, handle)),
                            Ok(_) => {}
                            Err(error) if error.kind() == ErrorKind::OutOfMemory => {}
                            Err(_) => return,
                        }
                        if n % 3 == 2 {
                            wait_all(&mut later, acknowledged);
                            let _ = db.checkpoint();
                        }
                        if (number, n) == (0, 5) {
                            // Makes one, too.
                            let target: Arc<dyn Storage> = Arc::new(SimulatedStorage::new(seed));
                            let _ = db.backup(target, BackupOptions::default());
                        }
                    }
                })
            });
            for worker in workers.collect::<Vec<_>>() {
                if let Err(panic) = worker.expect("a thread").join() {
                    assert!(panic.is::<PlannedPanic>(), "{threads} {after}: another panic");
                }
            }
            told.append(&mut acknowledged.lock());
        }
        if seed.is_multiple_of(2) {
            let _ = db.close();
        } else {
            disk.stop();
        }
    }
    simulation::planned_panic()
}

/// Panics at the first operations of `threads`, so many; returns whether they struck at least
/// `least` threads: a tenth of both if not deep.
fn panics(threads: &'static str, operations: u64, least: u64) -> bool {
    let _alone = crate::support::alone();
    let mut struck = 0;
    for after in spread(operations, operations.div_ceil(10)) {
        let (disk, seed) = (SimulatedStorage::new(after), after);
        let mut told = BTreeSet::new();
        let (hit, _) = simulation::run(Plan::of(seed), || live(&disk, seed, threads, after, &mut told));
        struck += u64::from(hit.is_some());
        let kind = if after.is_multiple_of(3) { CrashKind::PowerCut } else { CrashKind::Kill };
        let left = disk.crash(kind, disk.operations(), seed);
        simulation::run(Plan::of(seed), || {
            let context = format!("{threads} after {after}");
            let db =
                opened_on(&left, &settings(seed + 1)).unwrap_or_else(|error| panic!("{context}: {error}"));
            judge(&db, &told, &context);
        });
    }
    println!("{threads}: {struck} panics");
    struck >= if is_deep() { least } else { least / 20 }
}

/// Regression: wakers of futures that it had taken and called none of were lost (seed 1008131 of
/// quench-sim).
#[test]
fn a_flusher_panic_anywhere_ends_every_wait() {
    assert!(panics("quench-flusher", 120, 50 + 1));
}

/// Regression: an open waited for the first segment for ever.
#[test]
fn a_segment_thread_panic_anywhere_ends_every_wait() {
    assert!(panics("quench-segments", 60, 30 + 1));
}

/// Regression: whoever waited for memory waited for who makes room, for ever.
#[test]
fn an_evictor_panic_anywhere_ends_every_wait() {
    assert!(panics("quench-evictor", 80, 15 + 1));
}

/// Regression: checkpoints went on being made of what the panic had left half done.
#[test]
fn a_maintenance_panic_anywhere_ends_every_wait() {
    assert!(panics("quench-maintain", 120, 45 + 1));
}

#[test]
fn a_read_ahead_or_deadline_panic_loses_nothing() {
    assert!(panics("quench-read-ahead", 10, 2));
    assert!(panics("quench-deadline", 20, 2));
}

/// Regressions: a commit that had drawn its number and was not ready kept readers of its rows
/// waiting for ever; a creation of a table the next checkpoint, which looked again and again (seed
/// 531086).
#[test]
fn a_panic_in_any_call_ends_every_wait() {
    assert!(panics("worker", 400, 300 + 1));
}
