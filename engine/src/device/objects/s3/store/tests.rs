//! Unit tests of the client: the real SDK against a server that answers as a test says. The tests
//! of `quench-emulator` run it against a server that keeps objects.

use super::super::super::client::test_server::{Answer, Seen, Server, error, reply};
use super::super::super::request::{Condition, Failure, FailureKind, Version};
use super::super::super::store::perform;
use super::super::options::S3Credentials;
use super::*;
use crate::base::ErrorKind;
use bytes::Bytes;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tokio::runtime::Builder;

const DIRECTORY: &str = "s3://bucket--usw2-az1--x-s3/db";

fn options(endpoint: &str) -> S3Options {
    S3Options {
        endpoint: Some(endpoint.into()),
        region: Some("us-west-2".into()),
        credentials: Some(S3Credentials {
            key_id: "KEYHIDDEN".into(),
            secret: "SECRETHIDDEN".into(),
            token: Some("TOKENHIDDEN".into()),
        }),
        session_auth: Some(false),
        attempt_timeout: Duration::from_millis(700),
        read_deadline: Duration::from_secs(5),
        threads: 1,
        ..S3Options::default()
    }
}

fn open(url: &str, options: &S3Options) -> S3Store {
    S3Store::connect(&ObjectUrl::parse(url).unwrap(), options).unwrap()
}

fn store(server: &Server) -> S3Store {
    open("s3://bucket/db", &options(&server.url))
}

fn put(condition: Condition) -> Request {
    Request::Put { name: "a/b".into(), body: Bytes::from_static(b"123456789"), condition }
}

fn append(offset: u64) -> Request {
    Request::Append { name: "a/b".into(), offset, body: Bytes::from_static(b"123456789"), version: None }
}

fn get(range: Option<std::ops::Range<u64>>) -> Request {
    Request::Get { name: "a/b".into(), range }
}

fn head() -> Request {
    Request::Head { name: "a/b".into() }
}

fn delete() -> Request {
    Request::Delete { name: "a/b".into() }
}

#[track_caller]
fn failure(store: &S3Store, request: Request) -> Failure {
    let failure = perform(store, request).expect_err("a failure");
    assert!(!failure.what.contains("HIDDEN"), "{}", failure.what);
    failure
}

#[test]
fn put_carries_condition_checksum_and_length() {
    let server = Server::start(|_, _| reply(200, "etag: \"v1\"", ""));
    let store = store(&server);
    let created = perform(&store, put(Condition::Absent)).unwrap();
    assert_eq!((created.version, created.len), (Some(Version("\"v1\"".into())), 9));
    perform(&store, put(Condition::Unchanged(Version("\"v1\"".into())))).unwrap();
    perform(&store, put(Condition::Always)).unwrap();
    let seen = server.seen();
    let conditions = [(Some("*"), None), (None, Some("\"v1\"")), (None, None)];
    assert_eq!(seen.len(), conditions.len());
    for (seen, condition) in seen.iter().zip(conditions) {
        assert_eq!(seen.method, "PUT");
        assert!(seen.path.starts_with("/bucket/db/a/b"), "{}", seen.path);
        assert_eq!((seen.header("if-none-match"), seen.header("if-match")), condition);
        // The known check value of CRC-32C is 0xe3069283.
        assert_eq!(seen.header("x-amz-checksum-crc32c"), Some("4waSgw=="));
        assert_eq!(seen.header("content-length"), Some("9"));
        assert_eq!(seen.header("x-amz-content-sha256"), Some("UNSIGNED-PAYLOAD"));
        assert_eq!((seen.header("transfer-encoding"), seen.header("content-encoding")), (None, None));
        assert_eq!(seen.header("x-amz-write-offset-bytes"), None);
        assert_eq!(seen.body, b"123456789");
    }
}

#[test]
fn append_carries_offset_and_version() {
    let server = Server::start(|_, _| reply(200, "etag: \"v2\"\nx-amz-object-size: 16", ""));
    let store = open(DIRECTORY, &options(&server.url));
    assert!(store.facts().appends && store.facts().appends_check_version);
    let Request::Append { name, offset, body, .. } = append(7) else { unreachable!() };
    let version = Some(Version("\"v1\"".into()));
    let reply = perform(&store, Request::Append { name, offset, body, version }).unwrap();
    assert_eq!((reply.version, reply.len), (Some(Version("\"v2\"".into())), 16));
    let seen = &server.seen()[0];
    assert_eq!(seen.header("x-amz-write-offset-bytes"), Some("7"));
    assert_eq!(seen.header("if-match"), Some("\"v1\""));
    assert_eq!(seen.header("x-amz-checksum-crc32c"), Some("4waSgw=="));
}

#[test]
fn answers_of_the_store_become_kinds_of_failure() {
    use FailureKind::*;
    for (status, code, kind, advice) in [
        (412, "PreconditionFailed", Refused, ""),
        (400, "InvalidWriteOffset", Refused, ""),
        (404, "NoSuchKey", Absent, ""),
        (400, "TooManyParts", Full, ""),
        (409, "ConditionalRequestConflict", Again, ""),
        (503, "SlowDown", Throttled, ""),
        (500, "InternalError", Unknown, ""),
        (404, "NoSuchBucket", Denied, "create the bucket"),
        (403, "AccessDenied", Forbidden, "allow these credentials"),
        (403, "InvalidAccessKeyId", Forbidden, "AWS_ACCESS_KEY_ID"),
        (403, "SignatureDoesNotMatch", Forbidden, "AWS_SECRET_ACCESS_KEY"),
        (403, "RequestTimeTooSkewed", Forbidden, "set the clock"),
        (400, "ExpiredToken", Forbidden, "new credentials"),
        (301, "PermanentRedirect", Denied, "AWS_REGION"),
        (501, "NotImplemented", Denied, "use a store"),
    ] {
        let server = Server::start(move |_, _| error(status, code));
        let store = open(DIRECTORY, &options(&server.url));
        for request in [put(Condition::Absent), append(3)] {
            let failure = failure(&store, request);
            assert_eq!(failure.kind, kind, "{}", failure.what);
            let parts = [advice, code, "`a/b`", "`bucket--usw2-az1--x-s3`", &server.url, "it says"];
            assert!(parts.iter().all(|part| failure.what.contains(part)), "{}", failure.what);
        }
        assert_eq!(server.seen().len(), 2, "{code}");
    }
}

#[test]
fn writes_are_sent_once_whatever_happens() {
    let answers = || [error(500, "InternalError"), error(503, "SlowDown"), Answer::Close, Answer::Silence];
    let requests = || [put(Condition::Always), append(9), delete()];
    for request in 0..requests().len() {
        for answer in 0..answers().len() {
            let server = Server::start(move |_, _| answers()[answer].clone());
            let store = store(&server);
            let began = Instant::now();
            let failure = failure(&store, requests()[request].clone());
            assert!(failure.kind.is_ambiguous(), "{}", failure.what);
            assert!(began.elapsed() < Duration::from_secs(3), "{}", failure.what);
            std::thread::sleep(Duration::from_millis(100));
            assert_eq!(server.seen().len(), 1, "{}", failure.what);
        }
    }
}

#[test]
fn write_on_a_used_connection_is_sent_once() {
    let server = Server::start(|_, number| match number {
        0..3 => reply(200, "etag: \"v\"", ""),
        _ => Answer::Close,
    });
    let store = store(&server);
    for _ in 0..3 {
        perform(&store, append(9)).unwrap();
    }
    let failure = failure(&store, append(9));
    assert_eq!(failure.kind, FailureKind::Unknown, "{}", failure.what);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(server.seen().len(), 4);
}

#[test]
fn server_without_encryption_fails_an_encrypted_request() {
    let server = Server::start(|_, _| reply(200, "", ""));
    let store = open("s3://bucket/db", &options(&server.url.replace("http:", "https:")));
    let failure = failure(&store, put(Condition::Always));
    assert_eq!(failure.kind, FailureKind::Unknown, "{}", failure.what);
    assert!(server.seen().is_empty());
}

/// Fails the first requests in different ways.
fn flaky(seen: &Seen, number: usize) -> Answer {
    match number {
        0 => error(500, "InternalError"),
        1 => error(503, "SlowDown"),
        2 => Answer::Close,
        3 => Answer::Silence,
        4 if seen.method == "HEAD" => Answer::Close,
        4 => Answer::Cut { headers: "content-range: bytes 0-18/19\r\n".into(), body: b"123456789".into() },
        _ if seen.method == "HEAD" => reply(200, "content-length: 9\netag: \"v1\"", ""),
        _ if seen.path.contains("list-type") => reply(200, "", page(&["db/x"], None)),
        _ => reply(200, "etag: \"v1\"", "123456789"),
    }
}

#[test]
fn reads_are_sent_again_until_they_succeed() {
    for request in [get(None), head(), Request::List { prefix: String::new() }] {
        let server = Server::start(flaky);
        let outcome = perform(&store(&server), request.clone()).unwrap();
        assert!(outcome.len == 9 || outcome.listed.len() == 1, "{request:?}");
        assert_eq!(server.seen().len(), 6);
    }
}

#[test]
fn reads_end_at_their_deadline() {
    let server = Server::start(|_, _| error(503, "SlowDown"));
    let mut options = options(&server.url);
    options.read_deadline = Duration::from_millis(400);
    let store = open("s3://bucket/db", &options);
    let began = Instant::now();
    assert_eq!(failure(&store, get(None)).kind, FailureKind::Throttled);
    assert!(began.elapsed() < Duration::from_secs(2));
    assert!(server.seen().len() > 2);
}

#[test]
fn read_of_an_absent_object_is_not_sent_again() {
    let server = Server::start(|seen, _| match &seen.method[..] {
        "HEAD" => reply(404, "content-length: 0", ""),
        _ => error(404, "NoSuchKey"),
    });
    let store = store(&server);
    assert_eq!(failure(&store, get(None)).kind, FailureKind::Absent);
    assert_eq!(failure(&store, head()).kind, FailureKind::Absent);
    perform(&store, delete()).unwrap();
    assert_eq!(server.seen().len(), 3);
}

#[test]
fn answer_with_another_range_is_no_success() {
    let server = Server::start(|_, _| reply(200, "etag: \"v1\"", "123456789"));
    let ignored = failure(&store(&server), get(Some(2..5)));
    assert_eq!(ignored.kind, FailureKind::Denied);
    assert!(ignored.what.contains("ignores the range"), "{}", ignored.what);
    let server = Server::start(|_, _| reply(206, "etag: \"v1\"\ncontent-range: bytes 3-5/9", "456"));
    let mut options = options(&server.url);
    options.read_deadline = Duration::from_millis(100);
    let shifted = failure(&open("s3://bucket/db", &options), get(Some(2..5)));
    assert_eq!(shifted.kind, FailureKind::Unknown);
}

/// Returns a page of a list.
fn page(keys: &[&str], next: Option<&str>) -> String {
    let objects: String = keys
        .iter()
        .map(|key| format!("<Contents><Key>{key}</Key><Size>{}</Size></Contents>", key.len()))
        .collect();
    let (more, next) = match next {
        Some(next) => (true, format!("<NextContinuationToken>{next}</NextContinuationToken>")),
        None => (false, String::new()),
    };
    format!("<ListBucketResult><IsTruncated>{more}</IsTruncated>{next}{objects}</ListBucketResult>")
}

#[test]
fn list_joins_pages_sorted_and_relative() {
    let server = Server::start(|seen, _| match seen.path.contains("continuation-token=T1") {
        false => reply(200, "", page(&["db/log/3", "db/log/1"], Some("T1"))),
        true => reply(200, "", page(&["db/log/2"], None)),
    });
    let listed = perform(&store(&server), Request::List { prefix: "log/".into() }).unwrap().listed;
    let names: Vec<_> = listed.iter().map(|listed| (&listed.name[..], listed.len)).collect();
    assert_eq!(names, [("log/1", 8), ("log/2", 8), ("log/3", 8)]);
    let seen = server.seen();
    assert_eq!(seen.len(), 2);
    assert!(seen.iter().all(|seen| seen.path.contains("prefix=db%2Flog%2F")), "{seen:?}");
}

#[test]
fn list_outside_the_prefix_is_denied() {
    let server = Server::start(|_, _| reply(200, "", page(&["db/pages/1"], None)));
    let failure = failure(&store(&server), Request::List { prefix: "log/".into() });
    assert_eq!(failure.kind, FailureKind::Denied);
    assert!(failure.what.contains("ignores the prefix"), "{}", failure.what);
}

#[test]
fn endpoint_that_is_down_proves_that_nothing_was_sent() {
    let down = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", down.local_addr().unwrap());
    drop(down);
    let mut options = options(&url);
    options.read_deadline = Duration::from_millis(300);
    for (bucket, session) in [("s3://bucket", false), (DIRECTORY, true)] {
        options.session_auth = Some(session);
        let store = open(bucket, &options);
        for request in [put(Condition::Always), append(9), get(None)] {
            let failure = failure(&store, request);
            assert_eq!(failure.kind, FailureKind::Again, "{}", failure.what);
            assert!(failure.what.contains("connection refused"), "{}", failure.what);
        }
    }
}

const SESSION: &str = "<CreateSessionResult><Credentials><SessionToken>T</SessionToken>\
     <SecretAccessKey>S</SecretAccessKey><AccessKeyId>K</AccessKeyId>\
     <Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></CreateSessionResult>";

#[test]
fn directory_bucket_uses_a_session_unless_disabled() {
    for with in [true, false] {
        let server = Server::start(|seen, _| match seen.is_session() {
            true => reply(200, "", SESSION),
            false => reply(200, "etag: \"v\"", ""),
        });
        let store = open(DIRECTORY, &S3Options { session_auth: Some(with), ..options(&server.url) });
        perform(&store, append(3)).unwrap();
        perform(&store, append(12)).unwrap();
        let seen = server.seen();
        assert_eq!(seen.iter().filter(|seen| seen.is_session()).count(), usize::from(with));
        let last = seen.last().unwrap();
        assert_eq!(last.header("x-amz-s3session-token"), with.then_some("T"));
    }
}

#[test]
fn refused_session_sends_nothing_and_says_why() {
    for (answer, kind, says) in [
        (error(403, "AccessDenied"), FailureKind::Forbidden, "AccessDenied"),
        (error(404, "NoSuchBucket"), FailureKind::Denied, "create the bucket"),
        (error(503, "SlowDown"), FailureKind::Throttled, "SlowDown"),
        (error(500, "InternalError"), FailureKind::Again, "InternalError"),
        (Answer::Close, FailureKind::Again, "no answer"),
    ] {
        let server = Server::start(move |_, _| answer.clone());
        let store = open(DIRECTORY, &S3Options { session_auth: Some(true), ..options(&server.url) });
        let failure = failure(&store, append(3));
        assert_eq!(failure.kind, kind, "{}", failure.what);
        assert!(failure.what.contains("no session") && failure.what.contains(says), "{}", failure.what);
        assert!(server.seen().iter().all(Seen::is_session));
    }
}

#[test]
fn dropped_store_ends_its_requests() {
    let server = Server::start(|_, _| Answer::Silence);
    let mut options = options(&server.url);
    options.attempt_timeout = Duration::from_secs(30);
    let store = open("s3://bucket/db", &options);
    let (send, receive) = mpsc::channel();
    store.start(put(Condition::Always), Box::new(move |outcome| send.send(outcome).unwrap()));
    let began = Instant::now();
    // A thread of another runtime opens and drops stores, too.
    let other = Builder::new_multi_thread().worker_threads(1).build().unwrap();
    other.block_on(async move {
        drop(store);
        drop(open("s3://bucket/db", &options));
    });
    let failure = receive.recv_timeout(Duration::from_secs(5)).unwrap().unwrap_err();
    assert_eq!(failure.kind, FailureKind::Unknown);
    assert!(failure.what.contains("closed"), "{}", failure.what);
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[test]
fn url_of_another_store_is_refused() {
    let url = ObjectUrl::parse("gs://bucket/db").unwrap();
    let error = S3Store::connect(&url, &options("http://127.0.0.1:1")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn long_transfers_have_more_time() {
    let server = Server::start(|_, _| reply(200, "", ""));
    let store = store(&server);
    let time = |request: Request| store.0.time_for(&request).as_millis();
    let body = Bytes::from(vec![0; 3 << 20]);
    let put = Request::Put { name: "a/b".into(), body, condition: Condition::Always };
    assert_eq!((time(put), time(append(9)), time(head())), (3_700, 700, 700));
    assert_eq!((time(get(Some(0..4 << 20))), time(get(Some(5..u64::MAX)))), (4_700, 700));
}
