//! What requests do.

use super::*;

#[test]
fn put_obeys_its_condition() {
    let store = SimulatedStore::immediate(1);
    let client = store.client();
    let first = done(&client, put_if("a", "one", Condition::Absent)).version.expect("a version");
    assert_eq!(refused(&client, put_if("a", "two", Condition::Absent)), FailureKind::Refused);
    assert_eq!(text(&store, "a").as_deref(), Some("one"));
    let second = done(&client, put_if("a", "three", Condition::Unchanged(first.clone())));
    assert_eq!((second.len, text(&store, "a").as_deref()), (5, Some("three")));
    assert_eq!(refused(&client, put_if("a", "four", Condition::Unchanged(first))), FailureKind::Refused);
    let gone = put_if("b", "five", Condition::Unchanged(Version("v1".into())));
    assert_eq!(refused(&client, gone), FailureKind::Absent);
    done(&client, put("a", "six"));
    assert_eq!(text(&store, "a").as_deref(), Some("six"));
    assert_eq!((store.changes(), store.requests_of(RequestKind::Put)), (3, 6));
}

#[test]
fn only_created_objects_take_appends() {
    let client = SimulatedStore::immediate(1).client();
    done(&client, put("a", "one"));
    assert_eq!(refused(&client, append("a", 3, "+")), FailureKind::Denied);
    let version = done(&client, create("b", "one")).version.expect("a version");
    for replacement in [put("b", "two"), put_if("b", "two", Condition::Unchanged(version))] {
        assert_eq!(refused(&client, replacement), FailureKind::Denied);
    }
    assert_eq!(refused(&client, create("c", "")), FailureKind::Denied);
    done(&client, append("b", 3, "+"));
}

#[test]
fn version_never_returns_after_a_delete() {
    let client = SimulatedStore::immediate(1).client();
    let first = done(&client, put("a", "same")).version;
    done(&client, delete("a"));
    done(&client, delete("a"));
    let second = done(&client, put("a", "same")).version;
    assert_ne!(first, second);
    assert_eq!(done(&client, Request::Head { name: "a".into() }).version, second);
}

#[test]
fn append_needs_object_length_and_room() {
    let options = StoreOptions { delivery: Delivery::Immediate, parts_max: 3, ..StoreOptions::new(1) };
    let store = SimulatedStore::with(options);
    let client = store.client();
    assert_eq!(refused(&client, append("a", 3, "more")), FailureKind::Absent);
    done(&client, create("a", "one"));
    assert_eq!(refused(&client, append("a", 0, "more")), FailureKind::Denied);
    assert_eq!(refused(&client, append("a", 2, "more")), FailureKind::Refused);
    assert_eq!(refused(&client, append("a", 4, "more")), FailureKind::Refused);
    let reply = done(&client, append("a", 3, "+two"));
    assert_eq!((reply.len, text(&store, "a").as_deref()), (7, Some("one+two")));
    assert_eq!(store.object("a").map(|object| object.parts()), Some(2));
    done(&client, append("a", 7, "."));
    assert_eq!(refused(&client, append("a", 8, ".")), FailureKind::Full);
    assert_eq!(text(&store, "a").as_deref(), Some("one+two."));
}

#[test]
fn append_checks_a_version_if_the_store_can() {
    for checks in [true, false] {
        let options = StoreOptions { delivery: Delivery::Immediate, ..StoreOptions::new(1) };
        let store = SimulatedStore::with(StoreOptions { appends_check_version: checks, ..options });
        let client = store.client();
        assert_eq!(client.facts().appends_check_version, checks);
        let version = done(&client, create("a", "one")).version;
        let with = |offset, version| Request::Append {
            name: "a".into(),
            offset,
            body: Bytes::from_static(b"+"),
            version,
        };
        let second = done(&client, with(3, version.clone())).version;
        assert_eq!(perform(&*client, with(4, version)).is_err(), checks);
        let len = store.objects()["a"].len() as u64;
        assert!(perform(&*client, with(len, second)).is_ok(), "{checks}");
    }
}

#[test]
fn append_is_denied_without_appends() {
    let options = StoreOptions { delivery: Delivery::Immediate, ..StoreOptions::new(1) };
    let client = SimulatedStore::with(StoreOptions { appends: false, ..options }).client();
    done(&client, create("a", "one"));
    assert_eq!(refused(&client, append("a", 3, "+")), FailureKind::Denied);
    assert!(!client.facts().appends);
}

#[test]
fn get_cuts_ranges_at_the_end() {
    let client = SimulatedStore::immediate(1).client();
    done(&client, create("a", "abc"));
    done(&client, append("a", 3, "def"));
    done(&client, append("a", 6, "ghi"));
    let read = |range| done(&client, Request::Get { name: "a".into(), range: Some(range) });
    for from in 0..9_u64 {
        for to in from..9 {
            assert_eq!(read(from..to).body, &"abcdefghi"[from as usize..to as usize], "{from}..{to}");
        }
    }
    assert_eq!((read(7..100).body, read(7..100).len), (Bytes::from_static(b"hi"), 9));
    assert!(read(9..10).body.is_empty() && read(50..60).body.is_empty());
    assert_eq!(done(&client, get("a")).body, "abcdefghi");
    assert_eq!(refused(&client, get("b")), FailureKind::Absent);
    let head = done(&client, Request::Head { name: "a".into() });
    assert_eq!((head.len, head.body.len()), (9, 0));
    assert_eq!(refused(&client, Request::Head { name: "b".into() }), FailureKind::Absent);
}

#[test]
fn list_shows_names_below_a_prefix_in_order() {
    let client = SimulatedStore::immediate(1).client();
    for name in ["log/2", "log/10", "logs", "a", "pages/1"] {
        done(&client, put(name, "x"));
    }
    let names = |prefix| {
        let listed = done(&client, list(prefix)).listed;
        assert!(listed.iter().all(|object| object.len == 1));
        listed.into_iter().map(|object| object.name).collect::<Vec<_>>()
    };
    assert_eq!(names("log/"), ["log/10", "log/2"]);
    assert_eq!(names(""), ["a", "log/10", "log/2", "logs", "pages/1"]);
    assert_eq!(names("none/").len(), 0);
    assert_eq!(refused(&client, list("log")), FailureKind::Denied);
}

#[test]
fn network_performs_requests_of_many_threads() {
    let store = SimulatedStore::new(1);
    let threads: Vec<_> = (0..4)
        .map(|number: u64| {
            let client = store.client();
            let work = move || {
                let name = format!("log/{number}");
                done(&client, create(&name, "."));
                for len in 1..50 {
                    assert_eq!(done(&client, append(&name, len, "+")).len, len + 1);
                }
            };
            thread::spawn("machine", work).expect("a thread")
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    assert_eq!(store.objects().values().map(Bytes::len).collect::<Vec<_>>(), [50; 4]);
    assert_eq!((store.requests(), store.changes()), (200, 200));
}

#[test]
fn latency_delays_requests() {
    let options = StoreOptions { latency: Duration::from_millis(2), ..StoreOptions::new(1) };
    let client = SimulatedStore::with(options).client();
    let clock = crate::base::clock::Clock::real();
    let before = clock.now();
    (0..20).for_each(|_| drop(done(&client, put("a", "x"))));
    let time = clock.now().since(before);
    assert!(time > Duration::from_millis(10), "20 requests took {time:?}");
}

/// Waits until no thread of the store is left.
fn wait_for_end(store: &SimulatedStore) {
    for _ in 0..5000 {
        if !store.has_thread() {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("the thread of the network does not end");
}

#[test]
fn network_thread_ends_with_the_last_client() {
    let store = SimulatedStore::new(1);
    assert!(!store.has_thread());
    let (first, second) = (store.client(), store.client());
    done(&first, put("a", "x"));
    drop(first);
    done(&second, put("a", "y"));
    assert!(store.has_thread());
    second.kill();
    wait_for_end(&store);
    let third = store.client();
    assert_eq!(done(&third, get("a")).body, "y");
    drop(third);
    wait_for_end(&store);
}

#[test]
fn requests_end_after_their_client_was_dropped() {
    let store = SimulatedStore::new(1);
    let (client, outcomes) = (store.client(), Outcomes::default());
    (0..20).for_each(|number| start(&client, put("a", "x"), number, &outcomes));
    drop(client);
    wait_for_end(&store);
    assert_eq!(kinds(&outcomes), [None; 20]);
}

#[test]
fn any_object_takes_appends_unless_they_are_apart() {
    let options = StoreOptions { delivery: Delivery::Immediate, ..StoreOptions::new(1) };
    let store = SimulatedStore::with(StoreOptions { appends_apart: false, ..options });
    let client = store.client();
    done(&client, put("a", "one"));
    assert_eq!(done(&client, append("a", 3, "+")).len, 4);
    assert_eq!(refused(&client, append("a", 0, "+")), FailureKind::Refused);
    done(&client, put("a", "two"));
    assert_eq!(text(&store, "a").as_deref(), Some("two"));
    done(&client, append("b", 0, "new"));
    assert_eq!(text(&store, "b").as_deref(), Some("new"));
}
