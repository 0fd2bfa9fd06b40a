//! The system has no further thread: whoever opens a database is told so, or does without; nobody waits for ever, and nothing is lost.

#[path = "../../engine/tests/support/mod.rs"]
mod support;

use quenchdb::base::surroundings::Surroundings;
use quenchdb::device::simulated::SimulatedStorage;
use quenchdb::sync::simulation::{self, Plan};
use quenchdb::{Database, Preset, Result, Settings};
use std::sync::Arc;

fn open(disk: &SimulatedStorage, settings: &Settings) -> Result<Database> {
    Database::builder().settings(settings.clone()).storage(Arc::new(disk.clone())).open("simulated")
}

/// Adds a row to what is there, and says how many there are.
fn add(db: &Database) -> Result<usize> {
    let table = db.table_or_create("t")?;
    let rows = db.begin_read()?.range::<&[u8]>(&table, ..).count();
    db.transact(|tx| tx.insert(&table, [rows as u8], [7]))?;
    Ok(rows + 1)
}

/// Opens without the thread with number `after` and the `times - 1` behind it, and again with all. Whether a thread was refused, and whether that was told.
fn without(disk: &SimulatedStorage, settings: &Settings, after: u64, times: u64) -> (bool, bool) {
    let own = Surroundings::of_this_thread().expect("simulated");
    let rows = add(&open(disk, settings).expect("whole")).expect("whole");
    own.refuse_threads(after, times);
    let what = format!("{}, {after}, {times}", settings.preset);
    let told = match open(disk, settings) {
        Ok(db) => {
            assert_eq!(add(&db).unwrap_or_else(|error| panic!("{what}: {error}")), rows + 1);
            db.close().unwrap_or_else(|error| panic!("{what}: {error}"));
            false
        }
        Err(error) => {
            assert!(error.to_string().contains("thread"), "{what}: {error}");
            true
        }
    };
    own.refuse_threads(0, 0);
    let expected = if told { rows + 1 } else { rows + 2 };
    assert_eq!(add(&open(disk, settings).expect("whole")).expect("whole"), expected, "{what}");
    (own.threads_refused() > 0, told)
}

#[test]
fn a_thread_that_cannot_be_started_is_an_error_or_can_be_done_without() {
    let _alone = support::alone();
    let (mut refusals, mut told) = (0, 0);
    for preset in Preset::ALL {
        // With a flusher for each log, where there is one.
        let settings = support::small(preset, 3);
        for times in [1, u64::MAX] {
            for after in 0.. {
                let disk = SimulatedStorage::new(after);
                let run = || without(&disk, &settings, after, times);
                let ((was_refused, was_told), _) = simulation::run(Plan::of(after), run);
                if !was_refused {
                    break;
                }
                refusals += 1;
                told += u32::from(was_told);
            }
        }
    }
    println!("{refusals} openings without a thread, {told} of them refused");
    assert!(refusals > 60 && told > 30, "{refusals} without a thread, {told} refused");
}
