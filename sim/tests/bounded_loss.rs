//! A crash loses only bounded-loss commits that returned within the loss window before the crash.
//! The simulated clock gives the time of each return and of the crash.

use crate::support::bank::{Id, Tables, judge, step};
use crate::support::loss::{Bounded, Moment};
use quenchdb::internals::base::clock::Clock;
use quenchdb::internals::base::depth::{is_deep, spread};
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::simulated::{CrashKind, SimulatedStorage};
use quenchdb::internals::sync::simulation::{self, Plan};
use quenchdb::internals::sync::{Mutex, thread};
use quenchdb::{Database, Durability, Preset, Settings};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const LOSS_WINDOW: Duration = Duration::from_millis(8);
/// Longest time of a log write here, including the time until its thread runs again.
const WRITE: Duration = Duration::from_millis(1);
/// The thread that commits lazily.
const LAZY: u8 = 2;

fn settings(seed: u64, preset: Preset) -> Settings {
    crate::support::small(preset, 1 + seed as usize / Preset::ALL.len() % 3).with(|s| {
        s.loss_window = LOSS_WINDOW;
        s.lab.checkpoint_log_bytes = if seed.is_multiple_of(2) { 64 << 10 } else { 0 };
    })
}

fn open(disk: &SimulatedStorage, settings: &Settings) -> Database {
    let builder = Database::builder().settings(settings.clone()).storage(Arc::new(disk.clone()));
    builder.open("simulated").expect("a whole disk")
}

/// Runs two threads that commit with bounded loss, with pauses, and a third that commits lazily.
/// Lazy commits cause no log write and must not delay the other two threads. Returns the commits
/// whose loss window has passed, each with the number of disk operations at that time.
fn work(disk: &SimulatedStorage, seed: u64, settings: &Settings) -> Vec<(usize, Id)> {
    let db = open(disk, settings);
    let overdue: Arc<Mutex<Vec<(usize, Id)>>> = Arc::default();
    let shared =
        Arc::new((db.clone(), Tables::of(&db, false).expect("a whole disk"), disk.clone(), overdue.clone()));
    let threads = (0..3).map(|number| {
        let shared = shared.clone();
        let thread = thread::spawn("worker", move || {
            let (db, tables, disk, overdue) = &*shared;
            let mut random = Random::from_seed(seed ^ u64::from(number) << 32);
            let (clock, mut bounded) = (Clock::real(), Bounded::new(LOSS_WINDOW, WRITE));
            let now =
                || Moment { time: Duration::from_nanos(clock.now().0), leaps: simulation::preemptions() };
            let level = if number == LAZY { Durability::Lazy } else { Durability::BoundedLoss };
            for n in 0..12 {
                let id = [0, number, n, 0];
                loop {
                    let mut tx = db.begin_with(level).expect("a whole disk");
                    match step(&mut tx, tables, id, &mut random) {
                        Err(error) if error.is_retryable() => continue,
                        done => done.expect("a whole disk"),
                    }
                    tx.commit().expect("a whole disk");
                    break;
                }
                if number != LAZY {
                    bounded.returned(id, now());
                }
                thread::sleep(Duration::from_micros(random.below(6_000)));
                let due = bounded.overdue(now());
                overdue.lock().extend(due.into_iter().map(|id| (disk.operations(), id)));
            }
        });
        thread.expect("a thread")
    });
    for thread in threads.collect::<Vec<_>>() {
        thread.join().expect("no panic");
    }
    disk.stop();
    std::mem::take(&mut *overdue.lock())
}

#[test]
fn a_bounded_loss_commit_older_than_its_window_survives() {
    let _alone = crate::support::alone();
    let (mut overdue, mut lost) = (0, 0);
    // Seven seeds cover seven presets.
    for seed in spread(8 * Preset::ALL.len() as u64, 7) {
        let preset = Preset::ALL[seed as usize % Preset::ALL.len()];
        let (disk, settings) = (SimulatedStorage::new(seed), settings(seed, preset));
        let (due, _) = simulation::run(Plan::of(seed), || work(&disk, seed, &settings));
        overdue += due.len();
        let mut random = Random::from_seed(seed);
        for point in 0..12 {
            let at = random.below(disk.operations() as u64 + 1) as usize;
            let must: BTreeSet<Id> = due.iter().filter(|(then, _)| *then <= at).map(|(_, id)| *id).collect();
            let left = disk.crash(CrashKind::PowerCut, at, random.next_u64());
            let context = format!("seed {seed}, {preset}, point {point}, after {at}");
            simulation::run(Plan::of(seed), || {
                let db = open(&left, &settings);
                let found = judge(&db, &must, &context);
                let bounded = found.keys().filter(|(table, id)| table == "journal" && id[1] != LAZY);
                lost += 24 - bounded.count();
                left.stop();
            });
        }
    }
    println!("{overdue} commits overdue, {lost} missing after a crash");
    let part = if is_deep() { 1 } else { 20 };
    assert!(overdue > 500 / part && lost > 100 / part, "{overdue} overdue, {lost} lost");
}
