//! Unit tests of the store: objects that are written again, versions, failures.

use super::*;
use std::path::Path;

fn open(directory: &Path) -> Store {
    let place = Place::Directory(directory.into());
    Store::open(&Options { place, buckets: vec!["b--x-s3".into()], ..Options::default() }).unwrap()
}

fn write_to(store: &Store, key: &str, offset: Option<u64>, body: &'static str) -> Result<Version, Refusal> {
    let write = Write { offset, demands: Demands::default() };
    Ok(store.write("b--x-s3", key, body.into(), &write)?.version.unwrap())
}

fn write(store: &Store, offset: Option<u64>, body: &'static str) -> Result<Version, Refusal> {
    write_to(store, "k", offset, body)
}

fn body(store: &Store, key: &str) -> Bytes {
    store.find("b--x-s3", key).unwrap().body()
}

#[test]
fn rewritten_object_keeps_its_bytes_version_and_parts() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    write(&store, None, "one").unwrap();
    let version = write(&store, Some(3), "-two").unwrap();
    write_to(&store, "empty", None, "").unwrap();
    store.lock().rewrite_log().unwrap();
    assert_eq!(body(&store, "k"), "one-two");
    drop(store);
    let store = open(directory.path());
    assert_eq!(body(&store, "k"), "one-two");
    let object = store.find("b--x-s3", "k").unwrap();
    assert_eq!((object.version(), object.parts()), (&version, 2));
    assert_eq!(body(&store, "empty"), "");
}

#[test]
fn version_is_never_used_again() {
    let directory = tempfile::tempdir().unwrap();
    let mut versions = std::collections::HashSet::new();
    for _ in 0..3 {
        let store = open(directory.path());
        for _ in 0..100 {
            assert!(versions.insert(write(&store, None, "").unwrap().0));
            store.delete("b--x-s3", "k", &Demands::default()).unwrap();
        }
    }
}

#[test]
fn bucket_with_objects_is_not_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    write(&store, None, "").unwrap();
    assert_eq!(store.delete_bucket("b--x-s3").unwrap_err().code, "BucketNotEmpty");
    store.delete("b--x-s3", "k", &Demands::default()).unwrap();
    store.delete_bucket("b--x-s3").unwrap();
    assert_eq!(write(&store, None, "").unwrap_err().code, "NoSuchBucket");
}
