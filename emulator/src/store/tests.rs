//! Unit tests of the store: moved objects, versions, failures.

use super::*;
use std::path::Path;

fn open(directory: &Path) -> Store {
    let place = Place::Directory(directory.into());
    Store::open(&Options { place, buckets: vec!["b--x-s3".into()], ..Options::default() }).unwrap()
}

fn body(store: &Store, key: &str) -> Bytes {
    let content = store.content("b--x-s3", key).unwrap();
    content.read(&(0..content.found.len)).unwrap()
}

#[test]
fn moved_object_keeps_its_bytes_version_and_parts() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    store.put("b--x-s3", "k", Bytes::from_static(b"one"), &Demands::default()).unwrap();
    let (version, _) =
        store.append("b--x-s3", "k", 3, Bytes::from_static(b"-two"), &Demands::default()).unwrap();
    store.lock().clean(1).unwrap();
    assert_eq!(body(&store, "k"), "one-two");
    drop(store);
    let store = open(directory.path());
    assert_eq!(body(&store, "k"), "one-two");
    assert_eq!(store.find("b--x-s3", "k").unwrap().version, version);
    assert_eq!(store.lock().buckets["b--x-s3"]["k"].parts, 2);
}

#[test]
fn version_is_never_used_again() {
    let directory = tempfile::tempdir().unwrap();
    let mut versions = std::collections::HashSet::new();
    for _ in 0..3 {
        let store = open(directory.path());
        for _ in 0..100 {
            let version = store.put("b--x-s3", "k", Bytes::new(), &Demands::default()).unwrap();
            assert!(versions.insert(version));
            store.delete("b--x-s3", "k", &Demands::default()).unwrap();
        }
    }
}

#[test]
fn bucket_with_objects_is_not_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    store.put("b--x-s3", "k", Bytes::new(), &Demands::default()).unwrap();
    assert_eq!(store.delete_bucket("b--x-s3").unwrap_err().code, "BucketNotEmpty");
    store.delete("b--x-s3", "k", &Demands::default()).unwrap();
    store.delete_bucket("b--x-s3").unwrap();
    assert_eq!(
        store.put("b--x-s3", "k", Bytes::new(), &Demands::default()).unwrap_err().code,
        "NoSuchBucket"
    );
}
