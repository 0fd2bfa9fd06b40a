//! Unit tests of `routed`.

use super::super::request::Condition;
use super::super::simulated::SimulatedStore;
use super::super::store::perform;
use super::*;
use bytes::Bytes;

fn put(name: &str) -> Request {
    Request::Put { name: name.into(), body: Bytes::from_static(b"x"), condition: Condition::Always }
}

#[test]
fn names_of_the_log_go_to_its_store_and_lists_join_both() {
    let (log, rest) = (SimulatedStore::immediate(1), SimulatedStore::immediate(2));
    let store = RoutedStore::new(log.client(), rest.client());
    for name in ["manifest", "log/000001-00000001", "pages/000001-00000002", "probe/log-1", "probe/1"] {
        perform(&store, put(name)).expect("no fault");
    }
    assert_eq!(log.objects().into_keys().collect::<Vec<_>>(), ["log/000001-00000001", "probe/log-1"]);
    let list = |prefix: &str| {
        let reply = perform(&store, Request::List { prefix: prefix.into() }).expect("no fault");
        reply.listed.into_iter().map(|object| object.name).collect::<Vec<_>>()
    };
    assert_eq!(list("").len(), 5);
    assert!(list("").is_sorted());
    assert_eq!(list("probe/"), ["probe/1", "probe/log-1"]);
    assert_eq!(list("log/"), ["log/000001-00000001"]);
    assert_eq!(list("pages/"), ["pages/000001-00000002"]);
    let reply = perform(&store, Request::Head { name: "manifest".into() }).expect("there");
    assert_eq!(reply.len, 1);
}

#[test]
fn list_of_both_fails_when_one_store_fails() {
    let (log, rest) = (SimulatedStore::immediate(1), SimulatedStore::immediate(2));
    let gone = log.client();
    gone.stop();
    let store = RoutedStore::new(gone, rest.client());
    assert!(perform(&store, Request::List { prefix: String::new() }).is_err());
    assert!(perform(&store, Request::List { prefix: "pages/".into() }).is_ok());
}
