//! What the client sees of each fault, and what the store holds afterwards.

use crate::support::*;
use quench_emulator::{Emulator, Faults, Options};
use quenchdb::internals::device::objects::{Condition, FailureKind, S3Store};
use std::time::{Duration, Instant};

/// Sends a put that meets the fault. Returns its outcome and whether the object is there at once.
fn put_with(fault: &str) -> (Emulator, S3Store, Result<(), FailureKind>, bool) {
    let emulator = start(Options::default());
    let store = connect(&emulator, Options::DIRECTORY_BUCKET);
    put(&store, "before", b"x", Condition::Absent).expect("no fault yet");
    emulator.set_faults(fault.parse().expect("a fault"));
    let outcome = put(&store, "a", b"bytes", Condition::Absent).map(drop).map_err(|failure| failure.kind);
    emulator.set_faults(Faults::default());
    let is_there = get(&store, "a").is_ok();
    (emulator, store, outcome, is_there)
}

#[test]
fn each_fault_has_its_outcome_and_its_effect() {
    use FailureKind::{Forbidden, Refused, Throttled, Unknown};
    for (fault, outcome, is_there) in [
        ("throttle=1", Err(Throttled), false),
        ("deny=1", Err(Forbidden), false),
        ("error-before=1", Err(Unknown), false),
        ("error-after=1", Err(Unknown), true),
        ("reset=1", Err(Unknown), false),
        ("lost=1", Err(Unknown), true),
        ("cut=1", Err(Unknown), false),
        ("twice=1", Err(Refused), true),
        ("slow=1:10ms", Ok(()), true),
    ] {
        let (_emulator, _store, found, was_there) = put_with(fault);
        assert_eq!((found, was_there), (outcome, is_there), "{fault}");
    }
}

#[test]
fn lost_reply_of_an_append_shows_in_the_object() {
    for (fault, len) in [("lost=1", 18), ("reset=1", 9)] {
        let emulator = start(Options::default());
        let store = connect(&emulator, Options::DIRECTORY_BUCKET);
        put(&store, "a", b"123456789", Condition::Absent).expect("no fault yet");
        emulator.set_faults(fault.parse().expect("a fault"));
        let failure = append(&store, "a", 9, b"123456789").expect_err("no answer");
        assert_eq!(failure.kind, FailureKind::Unknown);
        emulator.set_faults(Faults::default());
        assert_eq!(get(&store, "a").expect("there").len, len, "{fault}");
        // The same append again: refused if the first took effect.
        match append(&store, "a", 9, b"123456789") {
            Ok(reply) => assert_eq!((reply.len, len), (18, 9)),
            Err(failure) => assert_eq!((failure.kind, len), (FailureKind::Refused, 18)),
        }
        assert_eq!(get(&store, "a").expect("there").len, 18);
    }
}

#[test]
fn late_request_takes_effect_after_its_client_gave_up() {
    let (_emulator, store, outcome, was_there) = put_with("late=1:600ms");
    assert_eq!((outcome, was_there), (Err(FailureKind::Unknown), false));
    let began = Instant::now();
    while get(&store, "a").is_err() {
        assert!(began.elapsed() < Duration::from_secs(10), "never applied");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn read_that_is_cut_is_no_shorter_object() {
    let emulator = start(Options::default());
    let store = connect(&emulator, Options::DIRECTORY_BUCKET);
    put(&store, "a", &[7; 100_000], Condition::Absent).expect("no fault yet");
    emulator.set_faults("cut=1".parse().expect("a fault"));
    let failure = get(&store, "a").expect_err("half of an object");
    assert_eq!(failure.kind, FailureKind::Unknown, "{}", failure.what);
    emulator.set_faults("cut=0.5".parse().expect("a fault"));
    assert_eq!(get(&store, "a").expect("the client reads again").body.len(), 100_000);
    assert!(emulator.counts().faults > 0);
}

#[test]
fn latency_is_the_model_s() {
    let latency = "s3-express".parse().expect("a model");
    let emulator = start(Options { latency, ..Options::default() });
    let store = connect(&emulator, Options::DIRECTORY_BUCKET);
    put(&store, "log", b"head", Condition::Absent).expect("new");
    let mut times: Vec<Duration> = (0..21)
        .map(|number| {
            let began = Instant::now();
            append(&store, "log", 4 + number, b"x").expect("at the end");
            began.elapsed()
        })
        .collect();
    times.sort();
    // Above it, a busy machine has its share.
    assert!(times[10] >= Duration::from_millis(7), "{:?}", times[10]);
    assert!(times[10] <= Duration::from_millis(60), "{:?}", times[10]);
}
