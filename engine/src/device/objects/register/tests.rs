//! Manifests that are read in pieces, and claims that wait for their turn.

use super::super::store::{Done, StoreFacts};
use super::super::tests::memory_store::MemoryStore;
use super::*;
use bytes::Bytes;

const PATIENCE: Duration = Duration::from_secs(20);
const REST: Duration = Duration::from_millis(300);

/// A store that changes what is read of the manifest.
#[derive(Debug)]
struct Changed {
    inner: MemoryStore,
    /// The age that reads have.
    age: Option<Duration>,
    /// The bodies of the next reads.
    bodies: Mutex<Vec<Bytes>>,
}

impl Changed {
    fn new(age: Option<Duration>) -> Arc<Changed> {
        Arc::new(Changed { inner: MemoryStore::new(true), age, bodies: Mutex::default() })
    }
}

impl ObjectStore for Changed {
    fn start(&self, request: Request, done: Done) {
        let body = match &request {
            Request::Get { .. } => self.bodies.lock().pop(),
            _ => None,
        };
        let age = self.age;
        let changed = move |outcome: Result<Reply, Failure>| {
            done(outcome.map(|reply| Reply { age, body: body.unwrap_or(reply.body.clone()), ..reply }));
        };
        self.inner.start(request, Box::new(changed));
    }

    fn facts(&self) -> StoreFacts {
        self.inner.facts()
    }
}

fn claim(store: &Arc<Changed>) -> Register {
    Register::claim(store.clone(), false, PATIENCE, REST).expect("no fault").0
}

/// Returns the manifests before and after a put, as bytes.
fn two_manifests(store: &Arc<Changed>, register: &Register) -> [Bytes; 2] {
    let read =
        || perform(&**store, Request::Get { name: MANIFEST_NAME.into(), range: None }).expect("there").body;
    let before = read();
    register.update(|body| body.contents = vec![7; 3000].into()).expect("no fault");
    [before, read()]
}

#[test]
fn manifest_that_is_torn_is_read_again_until_it_is_whole() {
    let store = Changed::new(None);
    let register = claim(&store);
    let [before, after] = two_manifests(&store, &register);
    let torn = |at: usize| Bytes::from([&after[..at], &before[at.min(before.len())..]].concat());
    *store.bodies.lock() = vec![torn(40), torn(60), torn(16), Bytes::new()];
    let found = look_up(&*store, PATIENCE).expect("whole in the end").expect("there");
    assert_eq!(found.body, register.body());
    assert!(store.bodies.lock().is_empty());
}

#[test]
fn manifest_that_is_torn_twice_the_same_is_damaged() {
    let store = Changed::new(None);
    let register = claim(&store);
    let [_, after] = two_manifests(&store, &register);
    let cut = after.slice(..after.len() - 1);
    *store.bodies.lock() = vec![cut.clone(), cut.clone(), after.slice(..20)];
    let error = look_up(&*store, PATIENCE).expect_err("damaged");
    assert_eq!(error.kind(), ErrorKind::Corruption);
    let what = format!("read 3 times: {} bytes, version ", cut.len());
    assert!(error.message().contains(&what), "{error}");
}

#[test]
fn claim_waits_for_a_young_manifest_unless_it_is_closed() {
    let clock = Clock::real();
    let claim_of = |store: &Arc<Changed>| {
        let begun = clock.now();
        (claim(store), clock.now().since(begun))
    };
    let young = Changed::new(Some(Duration::ZERO));
    let (first, took) = claim_of(&young);
    assert!(took < REST, "there is nothing to wait for: {took:?}");
    let (second, took) = claim_of(&young);
    assert!(took >= REST, "{took:?}");
    assert_eq!((first.epoch(), second.epoch()), (WriterEpoch(1), WriterEpoch(2)));
    second.update(|body| body.closed = true).expect("the newest writer");
    let (_, took) = claim_of(&young);
    assert!(took < REST, "it is closed: {took:?}");
    let old = Changed::new(Some(Duration::from_secs(60)));
    claim(&old);
    assert!(claim_of(&old).1 < REST, "its writer has had its time");
}

#[test]
fn claim_takes_over_from_a_writer_that_never_rests() {
    let store = Changed::new(Some(Duration::ZERO));
    let busy = claim(&store);
    let ended = {
        let busy = Arc::new(busy);
        std::thread::spawn(move || {
            loop {
                if let Err(error) = busy.update(|body| body.pages_len += 1) {
                    return error;
                }
                std::thread::sleep(REST / 4);
            }
        })
    };
    let clock = Clock::real();
    let begun = clock.now();
    assert_eq!(claim(&store).epoch(), WriterEpoch(2));
    let took = clock.now().since(begun);
    assert!(took >= CLAIM_WAIT_MAX && took < 3 * CLAIM_WAIT_MAX, "{took:?}");
    assert_eq!(ended.join().expect("no panic").kind(), ErrorKind::Fenced);
}
