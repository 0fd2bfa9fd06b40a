//! A directory is taken over by the next emulator.

use crate::support::*;
use quench_emulator::{Emulator, Options, Place};
use quenchdb::internals::device::objects::{Condition, FailureKind};

fn at(directory: &std::path::Path) -> Options {
    Options { place: Place::Directory(directory.into()), ..Options::default() }
}

#[test]
fn objects_and_versions_survive_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let emulator = start(at(directory.path()));
    let store = connect(&emulator, Options::DIRECTORY_BUCKET);
    put(&store, "log", b"head", Condition::Absent).expect("new");
    let version = append(&store, "log", 4, b"-one").expect("at the end").version.expect("an ETag");
    put(&store, "gone", b"x", Condition::Absent).expect("new");
    delete(&store, "gone").expect("deleted");
    drop((store, emulator));
    let emulator = start(at(directory.path()));
    let store = connect(&emulator, Options::DIRECTORY_BUCKET);
    let read = get(&store, "log").expect("there");
    assert_eq!((&read.body[..], read.version), (&b"head-one"[..], Some(version.clone())));
    append_to(&store, "log", 8, b"-two", Some(version)).expect("the version is the same");
    assert_eq!(get(&store, "gone").expect_err("deleted").kind, FailureKind::Absent);
}

#[test]
fn second_emulator_of_a_directory_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let _first = start(at(directory.path()));
    let error = Emulator::start(at(directory.path())).expect_err("refused").to_string();
    assert!(error.contains("another emulator has the directory"), "{error}");
}

#[test]
fn port_in_use_is_named() {
    let first = start(Options::default());
    let error = Emulator::start(Options { listen: first.address(), ..Options::default() });
    let error = error.expect_err("in use").to_string();
    assert!(error.contains(&first.address().to_string()), "{error}");
}
