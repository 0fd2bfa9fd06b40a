//! The real client against a server that answers as a test says.

#[cfg(feature = "azure")]
use super::super::super::client::test_server::{Answer, Seen, error};
use super::super::super::client::test_server::{Server, reply};
use super::super::super::request::{Condition, Failure, FailureKind, Version};
use super::super::super::store::perform;
use super::*;
use bytes::Bytes;
use std::time::Duration;

/// "KEYHIDDEN" in base 64.
const KEY: &str = "S0VZSElEREVO";

fn open(url: &str, settings: &[(&str, &str)]) -> CloudStore {
    let settings = settings.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    let (attempt_timeout, read_deadline) = (Duration::from_millis(700), Duration::from_secs(5));
    let options = CloudOptions { settings, attempt_timeout, read_deadline, ..CloudOptions::default() };
    CloudStore::connect(&ObjectUrl::parse(url).unwrap(), &options).unwrap()
}

fn put(condition: Condition) -> Request {
    Request::Put { name: "a/b".into(), body: Bytes::from_static(b"123456789"), condition }
}

fn create() -> Request {
    Request::Create { name: "a/b".into(), body: Bytes::from_static(b"123456789") }
}

#[track_caller]
fn failure(store: &CloudStore, request: Request) -> Failure {
    let failure = perform(store, request).expect_err("a failure");
    assert!(!failure.what.contains("HIDDEN") && !failure.what.contains(KEY), "{}", failure.what);
    failure
}

#[cfg(feature = "azure")]
fn azure(server: &Server) -> CloudStore {
    let endpoint = format!("{}/me", server.url);
    open(
        "az://bucket/db",
        &[
            ("AZURE_STORAGE_ACCOUNT_NAME", "me"),
            ("AZURE_STORAGE_ACCOUNT_KEY", KEY),
            ("AZURE_STORAGE_ENDPOINT", &endpoint),
        ],
    )
}

#[cfg(feature = "azure")]
/// Whether a request is the first or the second part of a creation.
fn is_append(seen: &Seen) -> bool {
    seen.path.contains("comp=appendblock")
}

#[cfg(feature = "azure")]
#[test]
fn creation_on_azure_is_the_append_to_an_empty_blob() {
    let server = Server::start(|_, _| reply(201, "etag: \"v1\"", ""));
    let store = azure(&server);
    let created = perform(&store, create()).unwrap();
    assert_eq!((created.version, created.len), (Some(Version("\"v1\"".into())), 9));
    let seen = server.seen();
    let header = |at: usize, name| seen[at].header(name);
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0].path, "/me/bucket/db/a/b");
    assert_eq!((header(0, "x-ms-blob-type"), header(0, "if-none-match")), (Some("AppendBlob"), Some("*")));
    assert_eq!((header(0, "content-length"), header(1, "content-length")), (Some("0"), Some("9")));
    assert_eq!(seen[1].path, "/me/bucket/db/a/b?comp=appendblock");
    assert_eq!(header(1, "x-ms-blob-condition-appendpos"), Some("0"));
    assert!((0..2).all(|at| header(at, "authorization").unwrap().starts_with("SharedKey me:")), "{seen:?}");
}

#[cfg(feature = "azure")]
#[test]
fn empty_blob_on_azure_is_no_object() {
    use FailureKind::*;
    // The answers to both parts, what follows, and the number of requests.
    for (first, second, kind, requests) in [
        ((409, "BlobAlreadyExists"), (412, "AppendPositionConditionNotMet"), Refused, 2),
        ((409, "BlobAlreadyExists"), (404, "BlobNotFound"), Again, 2),
        ((201, ""), (500, "InternalError"), Unknown, 2),
        ((201, ""), (503, "ServerBusy"), Throttled, 2),
        ((500, "InternalError"), (201, ""), Again, 1),
        ((503, "ServerBusy"), (201, ""), Again, 1),
        ((404, "ContainerNotFound"), (201, ""), Denied, 1),
    ] {
        let server = Server::start(move |seen, _| {
            let (status, code) = if is_append(seen) { second } else { first };
            if status < 300 { reply(status, "etag: \"v1\"", "") } else { error(status, code) }
        });
        let failure = failure(&azure(&server), create());
        assert_eq!((failure.kind, server.seen().len()), (kind, requests), "{first:?}, {second:?}");
    }
    let taken = |seen: &Seen, _| match is_append(seen) {
        true => reply(201, "etag: \"v1\"", ""),
        false => error(409, "BlobAlreadyExists"),
    };
    assert!(perform(&azure(&Server::start(taken)), create()).is_ok());
    let empty = "etag: \"v1\"\nlast-modified: Wed, 25 Nov 2026 22:00:00 GMT\ncontent-length: 0";
    let server = Server::start(move |_, _| reply(200, empty, ""));
    assert_eq!(failure(&azure(&server), Request::Head { name: "a/b".into() }).kind, Absent);
}

#[cfg(feature = "azure")]
#[test]
fn writes_are_sent_once_and_reads_again() {
    let write = |request: &Request| !matches!(request, Request::Get { .. });
    let append =
        Request::Append { name: "a/b".into(), offset: 9, body: Bytes::from_static(b"x"), version: None };
    let delete = Request::Delete { name: "a/b".into() };
    let get = Request::Get { name: "a/b".into(), range: None };
    for request in [put(Condition::Always), append, delete, get] {
        for answer in [error(503, "ServerBusy"), error(500, "InternalError"), Answer::Close] {
            let server = Server::start(move |_, _| answer.clone());
            assert!(failure(&azure(&server), request.clone()).kind.is_ambiguous());
            assert_eq!(server.seen().len() == 1, write(&request), "{request:?}");
        }
    }
    let silent = Server::start(|_, _| Answer::Silence);
    let failure = failure(&azure(&silent), put(Condition::Always));
    assert!(failure.kind == FailureKind::Unknown && failure.what.contains("no answer within"), "{failure:?}");
}

#[cfg(feature = "gcs")]
#[test]
fn versions_of_google_are_generations() {
    let described = r#"{"name": "db/a/b", "generation": "77", "size": "9"}"#;
    let server = Server::start(move |_, _| reply(200, "content-type: application/json", described));
    let store = open("gs://bucket/db", &[("STORAGE_EMULATOR_HOST", &server.url)]);
    let created = perform(&store, create()).unwrap();
    assert_eq!(created.version, Some(Version("77".into())));
    perform(&store, put(Condition::Unchanged(Version("77".into())))).unwrap();
    perform(&store, put(Condition::Always)).unwrap();
    let seen = server.seen();
    let put = "/upload/storage/v1/b/bucket/o?uploadType=media&name=db%2Fa%2Fb";
    let paths: Vec<_> = seen.iter().map(|seen| &seen.path[..]).collect();
    assert_eq!(paths, [&format!("{put}&ifGenerationMatch=0"), &format!("{put}&ifGenerationMatch=77"), put]);
    assert!(seen.iter().all(|seen| seen.method == "POST" && seen.header("authorization").is_none()));
    let append =
        Request::Append { name: "a/b".into(), offset: 9, body: Bytes::from_static(b"x"), version: None };
    assert_eq!(failure(&store, append).kind, FailureKind::Denied);
}
