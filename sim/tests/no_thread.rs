//! The system refuses to start a thread: the open fails with an error that says so, or works
//! without the thread. No call waits for ever, and nothing is lost.

use quenchdb::internals::base::depth::{is_deep, some};
use quenchdb::internals::base::environment::Environment;
use quenchdb::internals::device::simulated::SimulatedStorage;
use quenchdb::internals::sync::Event;
use quenchdb::internals::sync::simulation::{self, Plan};
use quenchdb::{CommitHandle, Database, Preset, Result, Settings};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

fn open(disk: &SimulatedStorage, settings: &Settings) -> Result<Database> {
    Database::builder().settings(settings.clone()).storage(Arc::new(disk.clone())).open("simulated")
}

/// Adds a row, and returns the number of rows.
fn add(db: &Database) -> Result<usize> {
    let table = db.table_or_create("t")?;
    let rows = db.begin_read()?.range(&table, ..).count();
    db.transact(|tx| tx.insert(&table, [rows as u8], [7]))?;
    Ok(rows + 1)
}

/// Opens a database while `times` thread starts fail after the first `after` ones, and then without
/// failures. Returns whether a thread start failed, and whether the open failed.
fn open_without_threads(
    disk: &SimulatedStorage,
    settings: &Settings,
    after: u64,
    times: u64,
) -> (bool, bool) {
    let own = Environment::current().expect("simulated");
    let rows = add(&open(disk, settings).expect("whole")).expect("whole");
    own.fail_thread_starts(after, times);
    let what = format!("{}, {after}, {times}", settings.preset);
    let open_failed = match open(disk, settings) {
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
    own.fail_thread_starts(0, 0);
    let expected = if open_failed { rows + 1 } else { rows + 2 };
    assert_eq!(add(&open(disk, settings).expect("whole")).expect("whole"), expected, "{what}");
    (own.thread_starts_failed() > 0, open_failed)
}

#[test]
fn a_thread_that_cannot_start_is_an_error_or_not_needed() {
    let _alone = crate::support::alone();
    let (mut refusals, mut failed_opens) = (0, 0);
    for preset in some(&Preset::ALL, 2) {
        // Three logs, so that presets with a flusher for each log have three.
        let settings = crate::support::small(preset, 3);
        for times in [1, u64::MAX] {
            for after in 0.. {
                let disk = SimulatedStorage::new(after);
                let run = || open_without_threads(&disk, &settings, after, times);
                let ((was_refused, open_failed), _) = simulation::run(Plan::of(after), run);
                if !was_refused {
                    break;
                }
                refusals += 1;
                failed_opens += u32::from(open_failed);
            }
        }
    }
    println!("{refusals} openings without a thread, {failed_opens} of them failed");
    let part = if is_deep() { 1 } else { 5 };
    assert!(
        refusals > 60 / part && failed_opens > 30 / part,
        "{refusals} without a thread, {failed_opens} failed"
    );
}

struct Wakes(Event);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.notify_all();
    }
}

fn block_on(mut handle: CommitHandle) -> Result<()> {
    let wakes = Arc::new(Wakes(Event::new()));
    let waker = Waker::from(wakes.clone());
    loop {
        let ticket = wakes.0.ticket();
        match Pin::new(&mut handle).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(outcome) => return outcome,
            Poll::Pending => wakes.0.wait(ticket, None),
        };
    }
}

/// Regression: after one failed start of the waker thread, acknowledging threads called all wakers
/// until the database was closed.
#[test]
fn futures_end_without_a_waker_thread_and_retry_to_start_it() {
    let _alone = crate::support::alone();
    for preset in [Preset::Group, Preset::Pipelined, Preset::Autonomous] {
        let futures = || {
            let own = Environment::current().expect("simulated");
            let db = open(&SimulatedStorage::new(1), &crate::support::small(preset, 3)).expect("whole");
            let table = db.create_table("t").expect("new");
            own.fail_thread_starts(0, 2);
            let mut polled = 0;
            while own.thread_starts_failed() < 2 {
                let mut tx = db.begin().expect("free");
                tx.insert(&table, [7], [7]).expect("a free row");
                block_on(tx.commit_async().expect("room")).expect("a whole disk");
                polled += 1;
                assert!(
                    polled < 1000,
                    "{preset}: {} attempts to start the waker thread",
                    own.thread_starts_failed()
                );
            }
            db.close().expect("closes");
        };
        simulation::run(Plan::of(3), futures);
    }
}
