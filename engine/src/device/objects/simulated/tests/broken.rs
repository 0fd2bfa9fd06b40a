//! Promises that a store breaks.

use super::*;

fn broken(broken: BrokenPromises) -> (SimulatedStore, Arc<SimulatedClient>) {
    let options = StoreOptions { delivery: Delivery::Immediate, broken, ..StoreOptions::new(1) };
    let store = SimulatedStore::with(options);
    let client = store.client();
    (store, client)
}

#[test]
fn append_may_overwrite() {
    let (store, client) = broken(BrokenPromises { appends_overwrite: true, ..Default::default() });
    done(&client, put("a", "one"));
    done(&client, append("a", 77, "two"));
    assert_eq!(text(&store, "a").as_deref(), Some("two"));
}

#[test]
fn each_condition_may_be_ignored() {
    let (store, client) = broken(BrokenPromises { creations_overwrite: true, ..Default::default() });
    done(&client, create("a", "one"));
    done(&client, create("a", "two"));
    assert_eq!(text(&store, "a").as_deref(), Some("two"));
    let old = put_if("b", "two", Condition::Unchanged(Version("v0".into())));
    done(&client, put("b", "one"));
    assert_eq!(refused(&client, old.clone()), FailureKind::Refused);
    let (store, client) = broken(BrokenPromises { versions_ignored: true, ..Default::default() });
    done(&client, put("b", "one"));
    done(&client, old);
    assert_eq!(text(&store, "b").as_deref(), Some("two"));
    let (store, client) = broken(BrokenPromises { offsets_ignored: true, ..Default::default() });
    done(&client, create("c", "one"));
    done(&client, append("c", 77, "+"));
    assert_eq!(text(&store, "c").as_deref(), Some("one+"));
}

#[test]
fn lists_may_be_stale() {
    let (store, client) = broken(BrokenPromises { lists_are_stale: true, ..Default::default() });
    done(&client, put("a", "one"));
    assert_eq!(done(&client, list("")).listed.len(), 0);
    assert_eq!(done(&client, get("a")).body, "one");
    done(&client, put("b", "one"));
    assert_eq!(done(&client, list("")).listed.len(), 1);
    assert_eq!(store.fault_counts().of("stale list"), 2);
}

#[test]
fn reads_may_be_stale() {
    let (store, client) = broken(BrokenPromises { reads_are_stale: true, ..Default::default() });
    done(&client, put("a", "one"));
    assert_eq!(refused(&client, get("a")), FailureKind::Absent);
    done(&client, put("a", "two"));
    assert_eq!(done(&client, get("a")).body, "one");
    assert_eq!(done(&client, list("")).listed.len(), 1);
    assert_eq!(store.fault_counts().of("stale read"), 2);
}

#[test]
fn versions_may_repeat() {
    let (_, client) = broken(BrokenPromises { versions_repeat: true, ..Default::default() });
    let version = |body| done(&client, put("a", body)).version;
    let (first, second, third) = (version("one"), version("two"), version("one"));
    assert!(first == third && first != second);
    done(&client, create("b", "one"));
    assert_eq!(done(&client, append("b", 3, "+")).version, version("one+"));
}
