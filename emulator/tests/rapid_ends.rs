//! Ends of log objects in a zonal bucket: those that a writer has left, those that lost bytes, and
//! those that nothing names any more.

use crate::rapid::{check, count, odds, open, start};
use quench_emulator::{RapidEmulator, RapidFault, RapidFaults, RapidMistake, RapidOptions, RapidStep};
use quenchdb::internals::device::objects::simulated::SimulatedStore;
use quenchdb::{Database, Preset, Result, Table};
use std::time::{Duration, Instant};

/// Commits until a writer has left several segments. Returns the number of commits.
fn fill_segments(db: &Database, table: &Table) -> Result<u32> {
    let mut last = 0;
    for _ in 0..60 {
        last = count(db, table, 50_000)?;
    }
    Ok(last)
}

/// Returns how many log objects with blocks are finalized, and how many are not.
fn ends(emulator: &RapidEmulator) -> (usize, usize) {
    let objects = emulator.objects();
    let with_blocks = || objects.values().filter(|(len, _)| *len > 4096);
    let finals = with_blocks().filter(|(_, is_final)| *is_final).count();
    (finals, with_blocks().count() - finals)
}

/// A writer finalizes the lanes of a segment that it has left, whatever becomes of the request.
#[test]
fn lanes_that_a_writer_has_left_are_finalized() {
    let faults = RapidFault::ALL.into_iter().filter(|(_, fault)| fault.fits(RapidStep::Finalize));
    for fault in std::iter::once(None).chain(faults.map(Some)) {
        let context = fault.map_or("no fault", |(name, _)| name);
        let (emulator, rest) = (start(RapidOptions::default()), SimulatedStore::new(5));
        let mut armed = RapidFaults::default();
        fault.iter().for_each(|(_, fault)| armed.arm(RapidStep::Finalize, *fault, 1));
        emulator.set_faults(armed);
        let db = open(&emulator, &rest, Preset::Auto).expect("opens");
        let table = db.create_table("t").expect("new");
        let last = fill_segments(&db, &table).expect("commits");
        let begun = Instant::now();
        // Two lanes of the segment that is being filled.
        while ends(&emulator).1 > 2 {
            assert!(begun.elapsed() < Duration::from_secs(20), "{context}: {:?}", emulator.objects());
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(ends(&emulator).0 >= 4, "{context}: {:?}", emulator.objects());
        assert_eq!(emulator.counts().get("faults").copied().unwrap_or(0), u64::from(fault.is_some()));
        std::mem::forget((table, db));
        let db = open(&emulator, &rest, Preset::Auto).expect("takes over");
        assert_eq!(check(&db, context), last, "{context}");
        db.close().expect("closes");
        assert!(emulator.objects().values().all(|(_, is_final)| *is_final), "{context}");
    }
}

/// A service that deletes only what is finalized keeps no orphans of a writer that was killed.
#[test]
fn orphans_that_are_not_finalized_are_deleted() {
    for keeps_open_objects in [false, true] {
        for faults in ["", "before=0.05,after=0.05,late=0.05"] {
            let context = format!("refuses: {keeps_open_objects}, {faults}");
            let emulator = start(RapidOptions { keeps_open_objects, ..RapidOptions::default() });
            let rest = SimulatedStore::new(8);
            let db = open(&emulator, &rest, Preset::Auto).expect("opens");
            let table = db.create_table("t").expect("new");
            let last = fill_segments(&db, &table).expect("commits");
            let of_killed: Vec<String> = emulator.objects().into_keys().collect();
            assert!(ends(&emulator).1 > 0 && of_killed.len() > 4, "{context}: {:?}", emulator.objects());
            std::mem::forget((table, db));
            emulator.set_faults(odds(faults));
            let db = open(&emulator, &rest, Preset::Auto).expect("takes over");
            assert_eq!(check(&db, &context), last, "{context}");
            db.checkpoint().unwrap_or_else(|error| panic!("{context}: {error}"));
            emulator.set_faults(RapidFaults::default());
            db.close().expect("closes");
            // A delete without an answer leaves an orphan to the next writer.
            let db = open(&emulator, &rest, Preset::Auto).expect("opens");
            let begun = Instant::now();
            while of_killed.iter().any(|key| emulator.objects().contains_key(key)) {
                assert!(begun.elapsed() < Duration::from_secs(20), "{context}: {:?}", emulator.objects());
                std::thread::sleep(Duration::from_millis(5));
            }
            assert_eq!(check(&db, &context), last, "{context}");
        }
    }
}

/// A lane that is finalized at another length than its own has lost blocks: the writer stops.
#[test]
fn lane_that_is_finalized_too_short_stops_its_writer() {
    let mistakes = vec![RapidMistake::FinalizesShort];
    let emulator = start(RapidOptions { mistakes, ..RapidOptions::default() });
    let rest = SimulatedStore::new(6);
    let db = open(&emulator, &rest, Preset::Auto).expect("opens");
    let table = db.create_table("t").expect("new");
    let begun = Instant::now();
    let error = loop {
        match count(&db, &table, 50_000) {
            Ok(_) => assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", emulator.objects()),
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("its only writer has sent"), "{error}");
    count(&db, &table, 10).expect_err("the writer has stopped");
}
