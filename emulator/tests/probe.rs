//! The probe of QuenchDB accepts the emulator, and refuses each of its mistakes by name.

use crate::support::*;
use quench_emulator::{Mistake, Options};
use quenchdb::internals::device::objects::{Rounds, probe, probe_races, probe_to_open};

#[test]
fn right_server_passes_and_only_a_directory_bucket_appends() {
    let emulator = start(Options::default());
    assert!(probe(&connect(&emulator, Options::DIRECTORY_BUCKET)).expect("passes").appends);
    assert!(!probe(&connect(&emulator, Options::BUCKET)).expect("passes").appends);
}

#[test]
fn server_with_a_mistake_is_refused_by_its_name() {
    for (mistake, named) in [
        (Mistake::IgnoresOffset, "ignores the offset of an append"),
        (Mistake::IgnoresIfNoneMatch, "(If-None-Match: *)"),
        (Mistake::IgnoresIfMatch, "(If-Match)"),
        (Mistake::IgnoresRange, "ignores the range of a read"),
        (Mistake::ListsLate, "a list lacks an object just written"),
    ] {
        let emulator = start(Options { mistakes: vec![mistake], ..Options::default() });
        let error = probe(&connect(&emulator, Options::DIRECTORY_BUCKET)).expect_err("refused").to_string();
        assert!(error.contains(named), "{mistake:?}: {error}");
    }
}

/// As many rounds as an open runs.
const ROUNDS: Rounds = Rounds { races: 24, reads: 96 };

#[test]
fn right_server_passes_the_races() {
    for bucket in [Options::DIRECTORY_BUCKET, Options::BUCKET] {
        let emulator = start(Options::default());
        let store = connect(&emulator, bucket);
        let facts = probe(&store).expect("passes");
        probe_races(&store, &facts, ROUNDS).expect("passes");
    }
}

#[test]
fn races_survive_an_unreliable_network() {
    let faults = "throttle=0.01,error-after=0.01,lost=0.01,twice=0.01,reset=0.01".parse().expect("faults");
    let emulator = start(Options { faults, ..Options::default() });
    let store = connect(&emulator, Options::DIRECTORY_BUCKET);
    let facts = probe(&store).expect("passes");
    probe_races(&store, &facts, ROUNDS).expect("passes");
}

#[test]
fn server_whose_conditions_race_is_refused_by_its_name() {
    for (mistake, named) in [
        (Mistake::RacesIfNoneMatch, "does not keep `create if absent` (If-None-Match: *) when requests race"),
        (Mistake::RacesIfMatch, "does not keep `replace if unchanged` (If-Match) when requests race"),
        (Mistake::RacesOffset, "does not keep the offset of an append when requests race"),
        (Mistake::TearsReads, "shows an object half replaced"),
    ] {
        let emulator = start(Options { mistakes: vec![mistake], ..Options::default() });
        let store = connect(&emulator, Options::DIRECTORY_BUCKET);
        let facts = probe(&store).expect("one request at a time passes");
        let error = probe_races(&store, &facts, ROUNDS).expect_err("refused").to_string();
        assert!(error.contains(named), "{mistake:?}: {error}");
    }
}

#[test]
fn open_races_once_and_leaves_a_mark() {
    let emulator = start(Options::default());
    let requests = |bucket: &str| {
        let before: u64 = emulator.counts().requests.values().sum();
        let facts = probe_to_open(&connect(&emulator, bucket)).map_err(|error| error.to_string())?;
        assert_eq!(facts.appends, bucket == Options::DIRECTORY_BUCKET);
        Ok::<_, String>(emulator.counts().requests.values().sum::<u64>() - before)
    };
    let first = requests(Options::BUCKET).expect("passes");
    assert!(first > 1000, "{first} requests");
    let second = requests(Options::BUCKET).expect("passes");
    assert!(second < 20, "{second} requests");
    // A server that begins to race is found where no mark is.
    emulator.set_mistakes(vec![Mistake::RacesIfMatch]);
    assert_eq!(requests(Options::BUCKET), Ok(second));
    let error = requests(Options::DIRECTORY_BUCKET).expect_err("has no mark");
    assert!(error.contains("when requests race"), "{error}");
}

#[test]
fn every_mistake_has_a_name_that_parses() {
    for (name, mistake) in Mistake::ALL {
        assert_eq!(name.parse(), Ok(mistake));
    }
    assert!("ignores-all".parse::<Mistake>().is_err());
}
