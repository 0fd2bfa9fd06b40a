//! The probe of QuenchDB accepts the emulator, and refuses each of its mistakes by name.

use crate::support::*;
use quench_emulator::{Mistake, Options};
use quenchdb::internals::device::objects::probe;

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

#[test]
fn every_mistake_has_a_name_that_parses() {
    for (name, mistake) in Mistake::ALL {
        assert_eq!(name.parse(), Ok(mistake));
    }
    assert!("ignores-all".parse::<Mistake>().is_err());
}
