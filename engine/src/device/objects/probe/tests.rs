//! Unit tests of `probe`, over a store in memory that breaks one promise at a time.

use super::super::request::{Failure, FailureKind, Reply, Request, Version};
use super::super::simulated::{BrokenPromises, Bucket, Change, SimulatedObject, StoreOptions};
use super::super::store::{Done, Outcome};
use super::promises::{CREATED, REPLACED};
use super::*;
use crate::base::ErrorKind;
use std::sync::{Arc, Mutex};

/// A promise that the store breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Broken {
    CreateOverwrites,
    CreateOverwritesAndRefuses,
    ReplaceIgnoresVersion,
    VersionStays,
    NoVersion,
    AppendOverwrites,
    AppendIgnoresOffset,
    AppendIgnoresLowOffset,
    AppendIgnoresHighOffset,
    AppendIgnoresVersion,
    AppendIsLost,
    AppendIsHalf,
    AppendCreates,
    WrongAppendIsRefusedAndApplied,
    RangeIsIgnored,
    RangeIsShifted,
    ReadIsOld,
    ListIsOld,
    ListIgnoresPrefix,
    DeleteIsIgnored,
    FirstAppendIsRefused,
}

#[derive(Debug, Default)]
struct State {
    bucket: Bucket,
    requests: Vec<(String, Option<FailureKind>)>,
    /// The reply to the n-th request, from 0, is this failure; the request is applied if `true`.
    failing: Vec<(usize, FailureKind, bool)>,
}

#[derive(Debug)]
struct Memory {
    facts: StoreFacts,
    broken: Option<Broken>,
    state: Mutex<State>,
}

/// Requests of a whole probe of a store with appends.
const REQUESTS: usize = 19;

fn memory(broken: Option<Broken>) -> Memory {
    let facts = StoreFacts {
        name: "memory".into(),
        endpoint: String::new(),
        appends: true,
        parts_max: 10_000,
        appends_check_version: true,
        streams: false,
    };
    Memory { facts, broken, state: Mutex::default() }
}

fn failed(kind: FailureKind) -> Failure {
    Failure { kind, what: format!("the test says {kind:?}") }
}

impl Memory {
    fn is(&self, broken: Broken) -> bool {
        self.broken == Some(broken)
    }

    fn options(&self) -> StoreOptions {
        let broken = BrokenPromises {
            creations_overwrite: self.is(Broken::CreateOverwrites),
            versions_ignored: self.is(Broken::ReplaceIgnoresVersion),
            appends_overwrite: self.is(Broken::AppendOverwrites),
            offsets_ignored: self.is(Broken::AppendIgnoresOffset),
            ..BrokenPromises::default()
        };
        StoreOptions {
            appends: self.facts.appends,
            appends_apart: false,
            appends_check_version: !self.is(Broken::AppendIgnoresVersion),
            broken,
            ..StoreOptions::new(1)
        }
    }

    /// Returns the request that the store carries out in place of the one that it was sent.
    fn altered(&self, state: &State, request: &Request) -> Request {
        let mut altered = request.clone();
        match (&mut altered, self.broken) {
            (Request::Append { name, offset, body, .. }, broken) => {
                let len = state.bucket.objects().get(name).map(|object| object.len());
                match (broken, len) {
                    (Some(Broken::AppendCreates), None) => *offset = 0,
                    (Some(Broken::AppendIgnoresLowOffset), Some(len)) => *offset = len.max(*offset),
                    (Some(Broken::AppendIgnoresHighOffset), Some(len)) => *offset = len.min(*offset),
                    (Some(Broken::AppendIsLost), _) => *body = vec![0; body.len()].into(),
                    (Some(Broken::AppendIsHalf), _) => {
                        let half = body.len() / 2;
                        *body = [&body[..half], &vec![0; body.len() - half]].concat().into();
                    }
                    _ => {}
                }
            }
            (Request::Get { range, .. }, Some(Broken::RangeIsIgnored)) => *range = None,
            (Request::Get { range: Some(range), .. }, Some(Broken::RangeIsShifted)) if range.start > 0 => {
                *range = range.start + 1..range.end + 1;
            }
            (Request::List { prefix }, Some(Broken::ListIgnoresPrefix)) => prefix.clear(),
            _ => {}
        }
        altered
    }

    fn answer(&self, state: &mut State, request: &Request) -> Outcome {
        let request = &self.altered(state, request);
        let mut options = self.options();
        let mut judged = state.bucket.judge(&options, request);
        match (request, self.broken) {
            (Request::Append { .. }, Some(Broken::FirstAppendIsRefused)) => {
                return Err(failed(FailureKind::Refused));
            }
            (Request::Delete { .. }, Some(Broken::DeleteIsIgnored))
            | (Request::List { .. }, Some(Broken::ListIsOld)) => return Ok(Reply::default()),
            (Request::Put { .. } | Request::Create { .. }, Some(Broken::CreateOverwritesAndRefuses))
            | (Request::Append { .. }, Some(Broken::WrongAppendIsRefusedAndApplied)) => {
                let everything = BrokenPromises {
                    creations_overwrite: true,
                    versions_ignored: true,
                    offsets_ignored: true,
                    ..BrokenPromises::default()
                };
                if judged.as_ref().is_err_and(|failure| failure.kind == FailureKind::Refused) {
                    options.broken = everything;
                    let (change, _) = state.bucket.judge(&options, request)?;
                    change.iter().for_each(|change| state.bucket.apply(change));
                }
            }
            (Request::Put { name, .. }, Some(Broken::VersionStays)) => {
                if let (Some(old), Ok((Some(Change::Put { object, .. }), reply))) =
                    (state.bucket.objects().get(name), &mut judged)
                {
                    *object = Arc::new(SimulatedObject::restored(object.body(), old.version().clone(), 1));
                    reply.version = Some(old.version().clone());
                }
            }
            _ => {}
        }
        let (change, mut reply) = judged?;
        change.iter().for_each(|change| state.bucket.apply(change));
        if self.is(Broken::NoVersion) {
            reply.version = None;
        }
        if self.is(Broken::ReadIsOld) && reply.body.starts_with(REPLACED) {
            reply.body = CREATED.into();
        }
        Ok(reply)
    }

    fn requests(&self) -> usize {
        self.state.lock().unwrap().requests.len()
    }

    fn names(&self) -> Vec<String> {
        self.state.lock().unwrap().bucket.objects().keys().cloned().collect()
    }

    /// Probes the store once, without patience.
    fn probed(&self) -> Result<StoreFacts> {
        probe_within(self, &Clock::manual(), Duration::ZERO)
    }
}

impl ObjectStore for Memory {
    fn start(&self, request: Request, done: Done) {
        let outcome = {
            let mut state = self.state.lock().unwrap();
            let number = state.requests.len();
            let failing = state.failing.iter().find(|(at, ..)| *at == number).copied();
            let outcome = match failing {
                Some((_, kind, false)) => Err(failed(kind)),
                Some((_, kind, true)) => {
                    // Whether it is refused or not, the reply is lost.
                    let _ = self.answer(&mut state, &request);
                    Err(failed(kind))
                }
                None => self.answer(&mut state, &request),
            };
            let kind = outcome.as_ref().err().map(|failure| failure.kind);
            state.requests.push((request.name().to_string(), kind));
            outcome
        };
        done(outcome);
    }

    fn facts(&self) -> StoreFacts {
        self.facts.clone()
    }
}

#[test]
fn store_that_keeps_all_promises_passes() {
    let store = memory(None);
    assert_eq!(store.probed().unwrap(), store.facts);
    assert!(store.names().is_empty());
    assert_eq!(store.requests(), REQUESTS);
}

#[test]
fn store_without_appends_is_a_fact() {
    let mut store = memory(None);
    store.facts.appends = false;
    assert_eq!(store.probed().unwrap(), store.facts);
    let silent = store.requests();

    // The client believes that the store appends, and the store says that it does not.
    #[derive(Debug)]
    struct Believing(Memory);
    impl ObjectStore for Believing {
        fn start(&self, request: Request, done: Done) {
            self.0.start(request, done);
        }
        fn facts(&self) -> StoreFacts {
            StoreFacts { appends: true, ..self.0.facts() }
        }
    }
    let store = Believing(store);
    assert!(!probe(&store).unwrap().appends);
    assert_eq!(store.0.requests(), 2 * silent + 4);
    assert!(store.0.names().is_empty());
}

#[test]
fn each_broken_promise_is_refused_by_name() {
    use Broken::*;
    for (broken, named) in [
        (CreateOverwrites, "ignores the condition `create if absent`"),
        (CreateOverwritesAndRefuses, "`create if absent`"),
        (ReplaceIgnoresVersion, "ignores the condition `replace if unchanged`"),
        (VersionStays, "the object has the same version"),
        (NoVersion, "the reply has no version"),
        (AppendOverwrites, "ignores the offset of an append"),
        (AppendIgnoresOffset, "ignores the offset of an append"),
        (AppendIgnoresLowOffset, "an offset below the object's length"),
        (AppendIgnoresHighOffset, "an offset above the object's length"),
        (AppendIgnoresVersion, "ignores the version in an append"),
        (AppendIsLost, "ignores an append"),
        (AppendIsHalf, "ignores an append"),
        (AppendCreates, "ignores the offset of an append to an absent object"),
        (WrongAppendIsRefusedAndApplied, "a request was refused, and yet its bytes are in the object"),
        (RangeIsIgnored, "ignores the range of a read"),
        (RangeIsShifted, "the range of a read"),
        (ReadIsOld, "is not consistent"),
        (ListIsOld, "a list lacks an object"),
        (ListIgnoresPrefix, "ignores the prefix of a list"),
        (DeleteIsIgnored, "an object just deleted is still there"),
        (FirstAppendIsRefused, "an append at the end of the object fails"),
    ] {
        let store = memory(Some(broken));
        let other = SimulatedObject::restored(vec![1].into(), Version("v0".into()), 1);
        let other = Change::Put { name: "probe/other".into(), object: Arc::new(other) };
        store.state.lock().unwrap().bucket.apply(&other);
        let error = store.probed().expect_err(&format!("{broken:?}"));
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{broken:?}: {error}");
        let message = error.message();
        assert!(message.contains(named) && message.contains("the store memory "), "{broken:?}: {message}");
        assert!(message.contains("use another store"), "{broken:?}: {message}");
        let remain = if broken == DeleteIsIgnored { 3 } else { 1 };
        assert_eq!(store.names().len(), remain, "{broken:?} left an object behind");
    }
}

#[test]
fn version_in_appends_is_only_checked_if_claimed() {
    let mut store = memory(Some(Broken::AppendIgnoresVersion));
    store.facts.appends_check_version = false;
    assert_eq!(store.probed().unwrap(), store.facts);
}

#[test]
fn unclear_outcome_of_any_request_starts_again() {
    for kind in [FailureKind::Unknown, FailureKind::Throttled, FailureKind::Again] {
        for number in 0..REQUESTS {
            let store = memory(None);
            let applied = kind != FailureKind::Again;
            store.state.lock().unwrap().failing = vec![(number, kind, applied)];
            let facts = probe_within(&store, &Clock::manual(), PATIENCE).unwrap();
            assert_eq!(facts, store.facts, "{kind:?} at request {number}");
            assert_eq!(store.requests(), number + 1 + 2 + REQUESTS);
            assert!(store.names().is_empty(), "{kind:?} at request {number}");
        }
    }
}

#[test]
fn request_carried_out_twice_starts_again() {
    // Writes that have to succeed, by their number, and reads, lists and deletes behind them.
    for number in 0..REQUESTS {
        let store = memory(None);
        // The first copy took effect, and the answer is that of the second.
        store.state.lock().unwrap().failing = vec![(number, FailureKind::Refused, true)];
        let facts = probe_within(&store, &Clock::manual(), PATIENCE).unwrap();
        assert_eq!(facts, store.facts, "at request {number}");
    }
    // The first request of each of six probes; a probe that stops so has three more requests.
    let store = memory(None);
    store.state.lock().unwrap().failing = (0..6).map(|at| (4 * at, FailureKind::Refused, true)).collect();
    assert_eq!(probe_within(&store, &Clock::manual(), PATIENCE).unwrap(), store.facts);
    assert_eq!(store.requests(), 6 * 4 + REQUESTS);
}

#[test]
fn store_that_never_answers_is_given_up() {
    let store = memory(None);
    store.state.lock().unwrap().failing = (0..9).map(|at| (at, FailureKind::Unknown, true)).collect();
    let error = store.probed().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.message().contains("memory") && error.message().contains("Unknown"), "{error}");
    assert_eq!(store.requests(), 3);
}

#[test]
fn denied_request_ends_the_probe_with_its_reason() {
    for number in 0..REQUESTS {
        let store = memory(None);
        store.state.lock().unwrap().failing = vec![(number, FailureKind::Denied, false)];
        let outcome = store.probed();
        if number == 5 || number == 6 {
            // The creation for appends, and the first append: the store says that it has none.
            assert!(!outcome.unwrap().appends);
            continue;
        }
        let error = outcome.expect_err("a denied request");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "request {number}");
        assert!(error.message().contains("the test says Denied"), "{error}");
        assert!(store.names().is_empty(), "request {number}");
    }
}

#[test]
fn probes_use_different_names() {
    let store = memory(None);
    store.probed().unwrap();
    store.probed().unwrap();
    let state = store.state.lock().unwrap();
    assert!(state.requests.iter().all(|(name, _)| name.starts_with("probe/")));
    assert_ne!(state.requests.first().unwrap().0, state.requests.last().unwrap().0);
}

/// A few rounds: four of each kind race at the same time.
const FEW: Rounds = Rounds { races: 6, reads: 3 };

fn race(store: &Memory) -> Result<()> {
    try_until_clear(store, &Clock::manual(), Duration::ZERO, |trial| {
        Race::new(trial, store.facts.appends, FEW).run()
    })
}

#[test]
fn races_of_a_right_store_pass_and_leave_nothing() {
    for appends in [true, false] {
        let mut store = memory(None);
        store.facts.appends = appends;
        race(&store).unwrap();
        assert!(store.names().is_empty());
    }
}

#[test]
fn refused_rival_whose_bytes_are_there_is_a_fault() {
    let error = race(&memory(Some(Broken::CreateOverwritesAndRefuses))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().contains("the object holds other bytes"), "{error}");
    let error = race(&memory(Some(Broken::WrongAppendIsRefusedAndApplied))).unwrap_err();
    assert!(error.message().contains("16 appends"), "{error}");
}

#[test]
fn second_winner_of_each_kind_is_a_fault() {
    for (broken, named) in [
        (Broken::CreateOverwrites, "16 of 16 creations"),
        (Broken::ReplaceIgnoresVersion, "16 of 16 replacements"),
        (Broken::AppendIgnoresOffset, "16 of 16 appends"),
    ] {
        let store = memory(Some(broken));
        let error = race(&store).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.message().contains(named), "{error}");
        assert!(store.names().is_empty());
    }
}

#[test]
fn rivals_without_an_answer_leave_the_race() {
    for kind in [FailureKind::Throttled, FailureKind::Unknown, FailureKind::Again] {
        let store = memory(None);
        // All but one of the first race, and half of the second.
        store.state.lock().unwrap().failing =
            (0..15).chain(16..24).map(|number| (number, kind, false)).collect();
        race(&store).unwrap();
    }
    // A race without a winner decides nothing, and all of them are tried again.
    let store = memory(None);
    store.state.lock().unwrap().failing =
        (0..10_000).map(|number| (number, FailureKind::Throttled, false)).collect();
    assert_eq!(race(&store).unwrap_err().kind(), ErrorKind::Io);
    let store = memory(None);
    store.state.lock().unwrap().failing = vec![(3, FailureKind::Denied, false)];
    assert_eq!(race(&store).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn mark_is_believed_for_a_month_at_its_server() {
    let (store, clock) = (memory(None), Clock::manual());
    let mut facts = store.facts.clone();
    facts.endpoint = "http://one".into();
    clock.advance(Duration::from_secs(1000));
    assert!(!mark::is_there(&store, &facts, &clock));
    mark::put(&store, &facts, &clock);
    assert!(mark::is_there(&store, &facts, &clock));
    let elsewhere = StoreFacts { endpoint: "http://two".into(), ..facts.clone() };
    assert!(!mark::is_there(&store, &elsewhere, &clock));
    assert!(!mark::is_there(&store, &facts, &Clock::manual()), "it is of the future");
    clock.advance(Duration::from_secs(31 * 24 * 3600));
    assert!(!mark::is_there(&store, &facts, &clock));
    // Another open has the same name, so marks do not become many.
    mark::put(&store, &facts, &clock);
    assert_eq!(store.names().len(), 1);
}
