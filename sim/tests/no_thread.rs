//! The system has no further thread: whoever opens a database is told so, or does without; nobody
//! waits for ever, and nothing is lost.

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

/// Adds a row to what is there, and says how many there are.
fn add(db: &Database) -> Result<usize> {
    let table = db.table_or_create("t")?;
    let rows = db.begin_read()?.range::<&[u8]>(&table, ..).count();
    db.transact(|tx| tx.insert(&table, [rows as u8], [7]))?;
    Ok(rows + 1)
}

/// Opens without the thread with number `after` and the `times - 1` behind it, and again with all.
/// Whether a thread was refused, and whether that was told.
fn without(disk: &SimulatedStorage, settings: &Settings, after: u64, times: u64) -> (bool, bool) {
    let own = Environment::current().expect("simulated");
    let rows = add(&open(disk, settings).expect("whole")).expect("whole");
    own.fail_thread_starts(after, times);
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
    own.fail_thread_starts(0, 0);
    let expected = if told { rows + 1 } else { rows + 2 };
    assert_eq!(add(&open(disk, settings).expect("whole")).expect("whole"), expected, "{what}");
    (own.thread_starts_failed() > 0, told)
}

#[test]
fn a_thread_that_cannot_start_is_an_error_or_not_needed() {
    let _alone = crate::support::alone();
    let (mut refusals, mut told) = (0, 0);
    for preset in some(&Preset::ALL, 2) {
        // With a flusher for each log, where there is one.
        let settings = crate::support::small(preset, 3);
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
    let part = if is_deep() { 1 } else { 5 };
    assert!(refusals > 60 / part && told > 30 / part, "{refusals} without a thread, {told} refused");
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

/// Where the thread that calls wakers could not be started once, whoever acknowledged called them
/// for as long as the database was open.
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
                assert!(polled < 1000, "{preset}: {} tried to start it", own.thread_starts_failed());
            }
            db.close().expect("closes");
        };
        simulation::run(Plan::of(3), futures);
    }
}
