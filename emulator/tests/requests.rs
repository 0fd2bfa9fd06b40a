//! Each request of the client, with the answers of S3 and of a directory bucket.

use crate::support::*;
use quench_emulator::Options;
use quenchdb::internals::device::objects::{
    Condition, FailureKind, ObjectStore, ObjectUrl, Outcome, Request, S3Credentials, S3Options, S3Store,
    perform,
};
use std::time::Duration;

fn kind(outcome: Outcome) -> FailureKind {
    outcome.expect_err("must fail").kind
}

#[test]
fn conditions_hold_in_both_kinds_of_buckets() {
    let emulator = start(Options::default());
    for bucket in [Options::BUCKET, Options::DIRECTORY_BUCKET] {
        let store = connect(&emulator, bucket);
        let first = put(&store, "a", b"one", Condition::Absent).expect("new").version.expect("an ETag");
        assert_eq!(kind(put(&store, "a", b"two", Condition::Absent)), FailureKind::Refused);
        let second = put(&store, "a", b"two", Condition::Unchanged(first.clone())).expect("unchanged");
        assert_ne!(second.version.as_ref(), Some(&first));
        assert_eq!(kind(put(&store, "a", b"no", Condition::Unchanged(first.clone()))), FailureKind::Refused);
        assert_eq!(kind(put(&store, "b", b"no", Condition::Unchanged(first))), FailureKind::Absent);
        let read = get(&store, "a").expect("there");
        assert_eq!((&read.body[..], read.version), (&b"two"[..], second.version));
    }
}

#[test]
fn append_needs_the_offset_and_has_a_limit_of_parts() {
    let emulator = start(Options { parts_max: 4, ..Options::default() });
    let store = connect(&emulator, Options::DIRECTORY_BUCKET);
    let created = put(&store, "log", b"head", Condition::Absent).expect("new").version.expect("an ETag");
    assert_eq!(append(&store, "log", 4, b"-one").expect("at the end").len, 8);
    assert_eq!(kind(append(&store, "log", 4, b"-one")), FailureKind::Refused, "a second time");
    assert_eq!(kind(append(&store, "log", 9, b"-two")), FailureKind::Refused, "a gap");
    assert_eq!(kind(append(&store, "none", 4, b"-two")), FailureKind::Absent);
    let old = append_to(&store, "log", 8, b"-two", Some(created));
    assert_eq!(kind(old), FailureKind::Refused, "an old version");
    append(&store, "log", 8, b"-two").expect("at the end");
    append(&store, "log", 12, b"-three").expect("the fourth part");
    assert_eq!(kind(append(&store, "log", 18, b"-four")), FailureKind::Full);
    assert_eq!(&get(&store, "log").expect("there").body[..], b"head-one-two-three");
}

#[test]
fn general_purpose_bucket_takes_no_append() {
    let emulator = start(Options::default());
    let store = connect(&emulator, Options::BUCKET);
    put(&store, "log", b"head", Condition::Absent).expect("new");
    assert_eq!(kind(append(&store, "log", 4, b"x")), FailureKind::Denied);
}

#[test]
fn ranges_are_cut_at_the_end() {
    let emulator = start(Options::default());
    let store = connect(&emulator, Options::DIRECTORY_BUCKET);
    put(&store, "a", b"0123", Condition::Always).expect("new");
    let version = append(&store, "a", 4, b"456789").expect("at the end").version;
    let read = |range| perform(&store, Request::Get { name: "a".into(), range });
    for (range, body) in [
        (None, "0123456789"),
        (Some(0..10), "0123456789"),
        (Some(2..6), "2345"),
        (Some(8..20), "89"),
        (Some(9..u64::MAX), "9"),
        (Some(10..20), ""),
        (Some(100..200), ""),
        (Some(3..3), ""),
        (Some(0..0), ""),
    ] {
        let reply = read(range.clone()).expect("there");
        assert_eq!(reply.body, body.as_bytes(), "{range:?}");
        assert_eq!((reply.len, &reply.version), (10, &version), "{range:?}");
    }
    let absent = perform(&store, Request::Get { name: "none".into(), range: Some(0..4) });
    assert_eq!(kind(absent), FailureKind::Absent);
}

#[test]
fn list_is_complete_and_in_order() {
    let emulator = start(Options::default());
    for bucket in [Options::BUCKET, Options::DIRECTORY_BUCKET] {
        let store = connect(&emulator, bucket);
        // More than a part of a list holds.
        let mut names: Vec<String> = (0..1050).map(|number| format!("log/{number}")).collect();
        for name in names.iter().chain([&"other".to_string()]) {
            put(&store, name, name.as_bytes(), Condition::Absent).expect("new");
        }
        names.sort();
        let reply = perform(&store, Request::List { prefix: "log/".into() }).expect("lists");
        let listed: Vec<String> = reply.listed.iter().map(|object| object.name.clone()).collect();
        assert_eq!(listed, names);
        assert_eq!(reply.listed[7].len, names[7].len() as u64);
        let all = perform(&store, Request::List { prefix: String::new() }).expect("lists");
        assert_eq!(all.listed.len(), 1051);
    }
}

#[test]
fn deleted_object_is_absent() {
    let emulator = start(Options::default());
    let store = connect(&emulator, Options::BUCKET);
    put(&store, "a", b"one", Condition::Absent).expect("new");
    for _ in 0..2 {
        delete(&store, "a").expect("also an absent one");
    }
    assert_eq!(kind(perform(&store, Request::Head { name: "a".into() })), FailureKind::Absent);
    assert_eq!(kind(get(&store, "a")), FailureKind::Absent);
    put(&store, "a", b"two", Condition::Absent).expect("absent again");
}

#[test]
fn session_is_shared_and_renewed() {
    // The SDK asks for a new session ten seconds before the old one ends.
    let emulator = start(Options { session: Duration::from_secs(12), ..Options::default() });
    let store = connect(&emulator, Options::DIRECTORY_BUCKET);
    for number in 0..20 {
        put(&store, &format!("{number}"), b"x", Condition::Absent).expect("new");
    }
    assert_eq!(emulator.counts().requests["CreateSession"], 1);
    std::thread::sleep(Duration::from_millis(2_200));
    put(&store, "later", b"x", Condition::Absent).expect("with a new session");
    assert!(emulator.counts().requests["CreateSession"] >= 2);
}

#[test]
fn wrong_credentials_and_buckets_are_named() {
    let emulator = start(Options::default());
    let right = client_options(&emulator);
    let credentials = |key_id: &str, secret: &str| {
        let credentials = S3Credentials { key_id: key_id.into(), secret: secret.into(), token: None };
        S3Options { credentials: Some(credentials), ..right.clone() }
    };
    let ask = |bucket: &str, options: &S3Options| {
        let url = ObjectUrl::parse(&format!("s3://{bucket}/db")).expect("a URL");
        let store = S3Store::connect(&url, options).expect("complete settings");
        let failure = get(&store, "a").expect_err("refused");
        // Credentials may be replaced, the name of a bucket is not.
        let is_of_bucket = failure.what.contains("NoSuchBucket");
        let kind = if is_of_bucket { FailureKind::Denied } else { FailureKind::Forbidden };
        assert_eq!(failure.kind, kind, "{}", failure.what);
        failure.what
    };
    for bucket in [Options::BUCKET, Options::DIRECTORY_BUCKET] {
        let what = ask(bucket, &credentials("emulator", "wrong-secret"));
        assert!(what.contains("SignatureDoesNotMatch") && what.contains("AWS_SECRET_ACCESS_KEY"), "{what}");
        assert!(!what.contains("wrong-secret"), "{what}");
        let what = ask(bucket, &credentials("stranger", "emulator-secret"));
        assert!(what.contains("InvalidAccessKeyId") && what.contains("AWS_ACCESS_KEY_ID"), "{what}");
    }
    for bucket in ["no-such-bucket", "none--local-az1--x-s3"] {
        let what = ask(bucket, &right);
        assert!(what.contains("NoSuchBucket") && what.contains("create the bucket"), "{what}");
    }
}

#[test]
fn emulator_that_is_gone_is_an_error_with_its_address() {
    let emulator = start(Options::default());
    let (store, url) = (connect(&emulator, Options::BUCKET), emulator.url());
    drop(emulator);
    let failure = store_is_down(&store);
    assert!(failure.contains(&url) && failure.contains("connection refused"), "{failure}");
}

fn store_is_down(store: &dyn ObjectStore) -> String {
    let failure = get(store, "a").expect_err("down");
    assert_eq!(failure.kind, FailureKind::Again, "{}", failure.what);
    failure.what
}
