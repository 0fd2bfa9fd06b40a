//! Unit tests of `listing`.

use super::super::request::Condition;
use super::super::tests::memory_store::MemoryStore;
use super::super::{ObjectStorage, Options, perform};
use super::*;
use crate::base::{ErrorKind, SegmentId};
use crate::device::{File, Names, OpenMode, Pins, Roles, Storage};
use bytes::Bytes;
use std::sync::Arc;

const CREATE: OpenMode = OpenMode { create: true, read_only: false, direct: true };

/// Connects another machine.
fn connect(store: &MemoryStore) -> ObjectStorage {
    ObjectStorage::new(Arc::new(store.clone()), store.facts(), Options::default())
}

fn put(store: &MemoryStore, name: &str, bytes: usize) {
    let (name, body) = (name.to_string(), Bytes::from(vec![1; bytes]));
    perform(store, Request::Put { name, body, condition: Condition::Always }).expect("no fault");
}

fn segment(storage: &ObjectStorage, blocks: u64) {
    let file = storage.segments().create(SegmentId(1)).expect("new");
    file.zero_extend(64 << 10, &mut |_| ()).expect("no fault");
    storage.flush_names(Names::Segments).expect("no fault");
    (0..blocks).for_each(|block| file.write_durable_at(block * 4096, &[7; 4096]).expect("no fault"));
}

fn write_pages(pages: &dyn File, at: u64, bytes: usize) {
    pages.write_at(at, &vec![at as u8 + 1; bytes]).expect("no fault");
    pages.flush().expect("no fault");
}

fn list(store: &MemoryStore) -> BTreeMap<String, StoredObject> {
    let list = connect(store).list_objects().expect("readable");
    assert!(list.missing.is_empty(), "{:?}", list.missing);
    list.objects.into_iter().map(|object| (object.name.clone(), object)).collect()
}

fn live(object: &StoredObject) -> (u64, ObjectState) {
    match object.content {
        ObjectContent::Pages { live_bytes } => (live_bytes, object.state),
        _ => panic!("{object:?}"),
    }
}

fn log(object: &StoredObject) -> LogObject {
    match object.content {
        ObjectContent::Log(log) => log,
        _ => panic!("{object:?}"),
    }
}

#[test]
fn pages_are_live_pinned_recent_or_orphans() {
    let store = MemoryStore::new(true);
    let first = connect(&store);
    std::mem::forget(first.lock(true).expect("free"));
    let pages = first.pages(CREATE).expect("new");
    write_pages(&*pages, 0, 8192);
    write_pages(&*pages, 0, 4096);
    let second = connect(&store);
    let lock = second.lock(true).expect("claims it");
    let names: Vec<String> = store.names().into_iter().filter(|name| name.starts_with("pages/")).collect();
    let [older, newer] = &names[..] else { panic!("{names:?}") };
    let found = list(&store);
    assert_eq!(live(&found[older]), (4096, ObjectState::Used));
    assert_eq!(live(&found[newer]), (4096, ObjectState::Used));
    let view = second.hold().expect("there is a manifest");
    let pages = second.pages(CREATE).expect("there");
    write_pages(&*pages, 0, 4096);
    // Late uploads: of the writer before, and of this one.
    put(&store, "pages/000001-00000099", 100);
    put(&store, "pages/000002-00000099", 200);
    let found = list(&store);
    assert_eq!(live(&found[older]), (4096, ObjectState::Used));
    assert_eq!(live(&found[newer]), (0, ObjectState::Pinned));
    let orphan = &found["pages/000001-00000099"];
    assert_eq!((live(orphan), orphan.bytes), ((0, ObjectState::Orphan), 100));
    assert_eq!((orphan.epoch, orphan.number), (Some(1), Some(99)));
    assert_eq!(live(&found["pages/000002-00000099"]), (0, ObjectState::Recent));
    let pins: Vec<_> =
        found.values().filter(|found| matches!(found.content, ObjectContent::Pin(_))).collect();
    assert_eq!(pins.len(), 1);
    assert_eq!((pins[0].epoch, pins[0].state), (Some(1), ObjectState::Used));
    drop((view, pages, lock));
    let found = list(&store);
    assert_eq!(live(&found["pages/000002-00000099"]), (0, ObjectState::Orphan), "its writer has ended");
    // What the list says of orphans is what the next writer does.
    drop(connect(&store).lock(true).expect("claims it"));
    assert!(store.names().iter().all(|name| !name.ends_with("99")), "{:?}", store.names());
}

#[test]
fn lanes_of_a_killed_writer_are_fenced() {
    let store = MemoryStore::new(true);
    let first = connect(&store);
    std::mem::forget(first.lock(true).expect("free"));
    segment(&first, 1);
    let logs = |found: &BTreeMap<String, StoredObject>| -> Vec<LogObject> {
        found.values().filter(|object| object.name.starts_with("log/")).map(log).collect()
    };
    let before = logs(&list(&store));
    assert_eq!(before.len(), Options::default().lanes);
    assert!(before.iter().all(|log| (log.segment, log.fenced_by) == (Some(1), None)), "{before:?}");
    let lanes: Vec<_> = before.iter().map(|log| log.lane).collect();
    assert_eq!(lanes, [Some(0), Some(1), Some(2), Some(3)]);
    let with_records =
        |logs: &[LogObject]| logs.iter().filter(|log| log.records == LogRecords::Unknown).count();
    assert_eq!(with_records(&before), 1, "{before:?}");
    let _lock = connect(&store).lock(true).expect("claims it");
    put(&store, "log/000001-00000099", 512);
    let found = list(&store);
    let late = &found["log/000001-00000099"];
    assert_eq!((log(late).records, log(late).segment), (LogRecords::Unnamed, None));
    assert_eq!(late.state, ObjectState::Orphan);
    let after: Vec<_> = logs(&found).into_iter().filter(|log| log.segment.is_some()).collect();
    assert!(after.iter().all(|log| log.fenced_by == Some(2)), "{after:?}");
    assert_eq!(with_records(&after), 1, "{after:?}");
}

#[test]
fn blocks_behind_a_fence_are_ignored() {
    let store = MemoryStore::new(false);
    let first = connect(&store);
    std::mem::forget(first.lock(true).expect("free"));
    segment(&first, 2);
    let second = connect(&store);
    let lock = second.lock(true).expect("claims it");
    put(&store, "log/000001-00000001/00000004", 4096);
    let found = list(&store);
    let of = |block: u64| log(&found[&format!("log/000001-00000001/{block:08}")]);
    let facts = |log: LogObject| (log.segment, log.lane, log.block, log.fenced_by, log.records);
    assert_eq!(facts(of(1)), (Some(1), None, Some(1), None, LogRecords::Unknown));
    assert_eq!(facts(of(2)), (Some(1), None, Some(2), None, LogRecords::Unknown));
    assert_eq!(facts(of(3)), (Some(1), None, Some(3), Some(2), LogRecords::Absent));
    assert_eq!(facts(of(4)), (Some(1), None, Some(4), None, LogRecords::Ignored));
    second.segments().remove(SegmentId(1)).expect("there");
    second.flush_names(Names::Segments).expect("no fault");
    let fence = &list(&store)["log/000001-00000001/00000003"];
    assert_eq!((log(fence).fenced_by, fence.state), (Some(2), ObjectState::Fence));
    drop(lock);
    drop(connect(&store).lock(true).expect("claims it"));
    assert!(store.names().contains(&fence.name), "the fence stays");
}

#[test]
fn files_and_foreign_objects_are_distinguished() {
    let store = MemoryStore::new(true);
    let storage = connect(&store);
    let _lock = storage.lock(true).expect("free");
    let file = storage.small_file("BACKUP", CREATE).expect("new");
    file.write_durable_at(0, b"of monday").expect("no fault");
    for name in ["notes.txt", "log/readme", "probe/7/object", "pages/1/2"] {
        put(&store, name, 3);
    }
    let found = list(&store);
    assert_eq!(
        (&found["manifest"].content, found["manifest"].state),
        (&ObjectContent::Manifest, ObjectState::Used)
    );
    let backup = found.values().find(|object| object.name.starts_with("files/")).expect("put");
    assert_eq!(
        (&backup.content, backup.state),
        (&ObjectContent::File { path: Some("BACKUP".into()) }, ObjectState::Used)
    );
    assert_eq!(found["probe/7/object"].content, ObjectContent::Probe);
    for name in ["notes.txt", "log/readme", "pages/1/2"] {
        assert_eq!(
            (&found[name].content, found[name].state),
            (&ObjectContent::Unknown, ObjectState::Foreign)
        );
    }
}

#[test]
fn objects_that_the_manifest_names_are_missed() {
    let store = MemoryStore::new(true);
    let error = connect(&store).list_objects().expect_err("nothing is there");
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    let storage = connect(&store);
    let _lock = storage.lock(true).expect("free");
    write_pages(&*storage.pages(CREATE).expect("new"), 0, 4096);
    let name = store.names().into_iter().find(|name| name.starts_with("pages/")).expect("put");
    store.remove(&name);
    assert_eq!(connect(&store).list_objects().expect("readable").missing, [name]);
    store.remove(MANIFEST_NAME);
    put(&store, "log/000001-00000001", 512);
    let error = connect(&store).list_objects().expect_err("no manifest");
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
}
