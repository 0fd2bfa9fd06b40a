//! A thread of the engine, or a user thread inside a call, panics at each of its first operations
//! that may wait. No call waits for ever. After a crash every acknowledged transaction is present,
//! and every transaction is whole or absent. A panic is a bug of the engine or of a storage
//! implementation of the user; these panics are planned.

use crate::support::bank::{ALL_KINDS, CommitOutcome, Id, Tables, judge, one};
use crate::support::checked_rows::await_it;
use quenchdb::internals::base::depth::{is_deep, spread};
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::simulated::{CrashKind, SimulatedStorage};
use quenchdb::internals::sync::simulation::{self, Plan, PlannedPanic};
use quenchdb::internals::sync::{Mutex, thread};
use quenchdb::{BackupOptions, CommitHandle, Database, ErrorKind, Place, Settings};
use std::collections::BTreeSet;
use std::sync::Arc;

fn settings(seed: u64) -> Settings {
    crate::support::any_protocol(seed, &mut Random::from_seed(seed)).with(|s| {
        // So small that pages must be evicted.
        s.memory_bytes = 1 << 20;
        s.segment_bytes = 64 << 10;
        s.lab.log_buffer_bytes = 64 << 10;
        s.log_bytes_max = 8 << 20;
        s.lab.checkpoint_log_bytes = 64 << 10;
    })
}

fn opened_on(disk: &SimulatedStorage, settings: &Settings) -> quenchdb::Result<Database> {
    Database::builder().settings(settings.clone()).storage(Arc::new(disk.clone())).open("simulated")
}

/// Waits for all asynchronous commits, for every other one as a future, and notes the acknowledged.
fn wait_all(later: &mut Vec<(Id, CommitHandle)>, acknowledged: &Mutex<BTreeSet<Id>>) {
    for (id, handle) in later.drain(..) {
        let outcome = if id[2].is_multiple_of(2) { await_it(handle) } else { handle.wait() };
        if outcome.is_ok() {
            acknowledged.lock().insert(id);
        }
    }
}

/// Works until the panic. Adds acknowledged transactions, and returns the thread that panicked.
fn work(
    disk: &SimulatedStorage,
    seed: u64,
    threads: &'static str,
    after: u64,
    durable: &mut BTreeSet<Id>,
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
                    // The evictor works only after memory is full.
                    for n in 0..if threads == "quench-evictor" { 48 } else { 10 } {
                        let id = [0, number, n, 0];
                        match one(db, tables, id, ALL_KINDS, &mut random) {
                            Ok(CommitOutcome::Durable) => drop(acknowledged.lock().insert(id)),
                            Ok(CommitOutcome::Later(handle)) => later.push((id, handle)),
                            Ok(_) => {}
                            Err(error) if error.kind() == ErrorKind::OutOfMemory => {}
                            Err(_) => return,
                        }
                        if n % 3 == 2 {
                            wait_all(&mut later, acknowledged);
                            let _ = db.checkpoint();
                        }
                        if (number, n) == (0, 5) {
                            // A backup makes a checkpoint, too.
                            let target = Place::storage(Arc::new(SimulatedStorage::new(seed)));
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
            durable.append(&mut acknowledged.lock());
        }
        if seed.is_multiple_of(2) {
            let _ = db.close();
        } else {
            disk.stop();
        }
    }
    simulation::planned_panic()
}

/// Plans a panic at each of the first `operations` operations of `threads`, in one run each.
/// Returns true if at least `least` runs had their panic. A shallow run tries a tenth of the
/// operations.
fn panics(threads: &'static str, operations: u64, least: u64) -> bool {
    let _alone = crate::support::alone();
    let mut panicked = 0;
    for after in spread(operations, operations.div_ceil(10)) {
        let (disk, seed) = (SimulatedStorage::new(after), after);
        let mut durable = BTreeSet::new();
        let (thread, _) = simulation::run(Plan::of(seed), || work(&disk, seed, threads, after, &mut durable));
        panicked += u64::from(thread.is_some());
        let kind = if after.is_multiple_of(3) { CrashKind::PowerCut } else { CrashKind::Kill };
        let left = disk.crash(kind, disk.operations(), seed);
        simulation::run(Plan::of(seed), || {
            let context = format!("{threads} after {after}");
            let db =
                opened_on(&left, &settings(seed + 1)).unwrap_or_else(|error| panic!("{context}: {error}"));
            judge(&db, &durable, &context);
        });
    }
    println!("{threads}: {panicked} panics");
    panicked >= if is_deep() { least } else { least / 20 }
}

/// Regression: a flusher that panicked with wakers taken from their queue never called these wakers
/// (seed 1008131 of quench-sim).
#[test]
fn a_flusher_panic_anywhere_ends_every_wait() {
    assert!(panics("quench-flusher", 120, 50 + 1));
}

/// Regression: an open waited for its first log segment for ever.
#[test]
fn a_segment_thread_panic_anywhere_ends_every_wait() {
    assert!(panics("quench-segments", 60, 30 + 1));
}

/// Regression: a thread that needed memory waited for the panicked evictor for ever.
#[test]
fn an_evictor_panic_anywhere_ends_every_wait() {
    assert!(panics("quench-evictor", 80, 15 + 1));
}

/// Regression: later checkpoints used the state that the panic had left incomplete.
#[test]
fn a_maintenance_panic_anywhere_ends_every_wait() {
    assert!(panics("quench-maintain", 120, 45 + 1));
}

#[test]
fn a_read_ahead_or_deadline_panic_loses_nothing() {
    assert!(panics("quench-read-ahead", 10, 2));
    assert!(panics("quench-deadline", 20, 2));
}

/// Regressions: a commit that panicked after its CSN draw, before it was complete, blocked readers
/// of its rows for ever. A panicked table creation made the next checkpoint retry for ever (seed
/// 531086).
#[test]
fn a_panic_in_any_call_ends_every_wait() {
    assert!(panics("worker", 400, 300 + 1));
}
