//! Unit tests of `directory`.

use super::*;
use crate::device::objects::probe::{Rounds, probe, probe_races};
use crate::device::objects::store::perform;

fn put(store: &DirectoryStore, name: &str, body: &'static [u8], condition: Condition) -> Outcome {
    perform(store, Request::Put { name: name.into(), body: Bytes::from_static(body), condition })
}

fn kind_of(outcome: Outcome) -> Option<FailureKind> {
    outcome.err().map(|failure| failure.kind)
}

#[test]
fn the_probe_finds_a_store_without_appends() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let store = DirectoryStore::open(directory.path()).expect("opens");
    let facts = probe(&store).expect("it keeps its promises");
    assert!(!facts.appends);
    probe_races(&store, &facts, Rounds { races: 4, reads: 4 }).expect("one of several requests wins");
    let listed = perform(&store, Request::List { prefix: String::new() }).expect("readable").listed;
    assert_eq!(listed, [], "the probe removes its object");
}

#[test]
fn conditions_hold_beside_another_process() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let stores = [0, 1].map(|_| DirectoryStore::open(directory.path()).expect("opens"));
    let first = put(&stores[0], "a/b", b"1", Condition::Absent).expect("absent");
    assert_eq!(kind_of(put(&stores[1], "a/b", b"2", Condition::Absent)), Some(FailureKind::Refused));
    let version = first.version.expect("named");
    let second = put(&stores[1], "a/b", b"22", Condition::Unchanged(version.clone())).expect("unchanged");
    let late = put(&stores[0], "a/b", b"3", Condition::Unchanged(version));
    assert_eq!(kind_of(late), Some(FailureKind::Refused));
    let reply = perform(&stores[0], Request::Get { name: "a/b".into(), range: Some(1..9) }).expect("there");
    assert_eq!((&reply.body[..], reply.len, reply.version), (&b"2"[..], 2, second.version));
    assert_eq!(kind_of(perform(&stores[0], Request::Head { name: "a/c".into() })), Some(FailureKind::Absent));
}

#[test]
fn many_writers_replace_one_object_one_after_the_other() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let store = DirectoryStore::open(directory.path()).expect("opens");
    put(&store, "counter", b"", Condition::Absent).expect("absent");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut raised = 0;
                while raised < 10 {
                    let there = perform(&store, Request::Get { name: "counter".into(), range: None });
                    let there = there.expect("there");
                    let body = Bytes::from([&there.body[..], b"x"].concat());
                    let condition = Condition::Unchanged(there.version.expect("named"));
                    let ended = perform(&store, Request::Put { name: "counter".into(), body, condition });
                    raised += u32::from(ended.is_ok());
                }
            });
        }
    });
    let reply = perform(&store, Request::Head { name: "counter".into() }).expect("there");
    assert_eq!(reply.len, 40, "no replacement was lost");
}

#[test]
fn reading_creates_nothing_and_refuses_a_file() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let store = DirectoryStore::open(&directory.path().join("none")).expect("opens");
    assert_eq!(perform(&store, Request::List { prefix: String::new() }).expect("empty").listed, []);
    let get = || Request::Get { name: "manifest".into(), range: None };
    assert_eq!(kind_of(perform(&store, get())), Some(FailureKind::Absent));
    assert!(!directory.path().join("none").exists());
    put(&store, "a", b"1", Condition::Always).expect("creates the directory");
    let file = DirectoryStore::open(&directory.path().join("none/a")).expect("opens");
    assert_eq!(kind_of(perform(&file, get())), Some(FailureKind::Denied));
    assert_eq!(kind_of(put(&file, "b", b"1", Condition::Always)), Some(FailureKind::Denied));
}
