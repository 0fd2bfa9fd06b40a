//! Databases in a small store in memory: takeovers, evictions, checkpoints.

mod creation;
mod log_reads;
mod many_writers;
pub(super) mod memory_store;

use super::simulated::{Fault, FaultKind, SimulatedStore, StoreOptions};
use super::{
    Done, Failure, FailureKind, MANIFEST_NAME, ObjectStorage, ObjectStore, Options, Request, StoreFacts,
};
use crate::base::SegmentId;
use crate::base::depth::is_deep;
use crate::base::settings::Settings;
use crate::device::{AlignedBuffer, Names, OpenMode, Roles, Storage, WriteRequest};
use crate::{Database, ErrorKind};
use memory_store::MemoryStore;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn open(store: &MemoryStore) -> crate::Result<Database> {
    let options = Options { patience: Duration::from_secs(2), ..Options::default() };
    let storage = Arc::new(ObjectStorage::new(Arc::new(store.clone()), store.facts(), options));
    let settings = Settings::default().with(|s| {
        s.memory_bytes = 16 << 20;
        s.segment_bytes = 1 << 20;
        s.log_bytes_max = 64 << 20;
        s.lab.checkpoint_log_bytes = 4 << 20;
    });
    Database::builder().settings(settings).storage(storage).open("objects")
}

/// Opens with appends, and without.
fn stores() -> [MemoryStore; 2] {
    [true, false].map(MemoryStore::new)
}

#[test]
fn a_database_survives_its_close() {
    for store in stores() {
        let db = open(&store).expect("opens");
        let table = db.create_table("t").expect("new");
        db.transact(|tx| tx.insert(&table, "key", "value")).expect("commits");
        drop(table);
        db.close().expect("closes");
        let db = open(&store).expect("opens again");
        let table = db.table("t").expect("is there");
        let value = db.begin_read().expect("free").get(&table, "key").expect("readable");
        assert_eq!(value.as_deref(), Some(&b"value"[..]));
    }
}

#[test]
fn a_second_writer_ends_the_first() {
    for store in stores() {
        let first = open(&store).expect("opens");
        let table = first.create_table("t").expect("new");
        first.transact(|tx| tx.insert(&table, "a", "1")).expect("commits");
        let second = open(&store).expect("takes over");
        let error = first.transact(|tx| tx.insert(&table, "b", "2")).expect_err("fenced");
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
        let error = first.transact(|tx| tx.insert(&table, "b", "2")).expect_err("fenced");
        assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
        let theirs = second.table("t").expect("is there");
        second.transact(|tx| tx.insert(&theirs, "c", "3")).expect("commits");
        let snapshot = second.begin_read().expect("free");
        let get = |key: &str| snapshot.get(&theirs, key).expect("readable").map(|value| value.to_vec());
        assert_eq!([get("a"), get("b"), get("c")], [Some(b"1".to_vec()), None, Some(b"3".to_vec())]);
        drop((snapshot, theirs));
        second.close().expect("closes");
        let segments = |prefix: &str| store.names().iter().filter(|name| name.starts_with(prefix)).count();
        assert!(segments("pages/000002") > 0, "{:?}", store.names());
    }
}

/// A store whose manifest cannot be seen yet in the first read.
#[derive(Debug)]
struct Early(MemoryStore, AtomicBool);

impl ObjectStore for Early {
    fn start(&self, request: Request, done: Done) {
        let is_first = request.name() == MANIFEST_NAME && !self.1.swap(true, Ordering::SeqCst);
        match is_first {
            true => done(Err(Failure { kind: FailureKind::Absent, what: "not yet".into() })),
            false => self.0.start(request, done),
        }
    }

    fn facts(&self) -> StoreFacts {
        self.0.facts()
    }
}

#[test]
fn database_created_by_another_meanwhile_is_no_damage() {
    for store in stores() {
        let db = open(&store).expect("opens");
        db.create_table("t").expect("new");
        let early = Arc::new(Early(store.clone(), AtomicBool::new(false)));
        let options = Options { patience: Duration::from_secs(2), ..Options::default() };
        let storage = Arc::new(ObjectStorage::new(early, store.facts(), options));
        let opened = Database::builder().memory_bytes(16 << 20).storage(storage).open("objects");
        // It looks as if nothing were there, unless the manifest is read again.
        match opened {
            Err(error) => assert_eq!(error.kind(), ErrorKind::Busy, "{error}"),
            Ok(db) => drop(db.table("t").expect("is there")),
        }
        open(&store).expect("sees it").table("t").expect("is there");
    }
}

/// Page images that are evicted wait in memory for others, so that they share an object.
#[test]
fn queued_writes_of_pages_share_an_object() {
    let store = MemoryStore::new(true);
    let storage = ObjectStorage::new(Arc::new(store.clone()), store.facts(), Options::default());
    let _lock = storage.lock(true).expect("free");
    let mode = OpenMode { create: true, read_only: false, direct: true };
    let file = storage.pages(mode).expect("new");
    let mut queue = storage.write_queue(4).expect("any depth");
    let mut done = Vec::new();
    for token in 0..20 {
        let (file, buffer, len) = (file.clone(), AlignedBuffer::zeroed(4096), 4096);
        let request = WriteRequest { file, offset: token * 4096, buffer, len, durable: false, token };
        queue.submit(request).expect("a right request");
        queue.reap(true, &mut done).expect("no fault");
    }
    assert_eq!(done.iter().map(|done| done.token).collect::<Vec<_>>(), (0..20).collect::<Vec<_>>());
    assert!(done.iter().all(|done| done.result.is_ok()));
    let pages = || store.names().iter().filter(|name| name.starts_with("pages/")).count();
    assert_eq!(pages(), 0);
    file.flush().expect("no fault");
    assert_eq!(pages(), 1);
}

/// Several writes are in flight when another writer claims the database. Whatever the order of
/// their failures and successes, each is reported.
#[test]
fn every_write_of_a_writer_that_has_ended_is_reported() {
    for (seed, appends) in (0..100).flat_map(|seed| [(seed, true), (seed, false)]) {
        let store = SimulatedStore::with(StoreOptions { appends, ..StoreOptions::new(seed) });
        let connect = || {
            let client = store.client();
            let storage = ObjectStorage::new(client.clone(), client.facts(), Options::default());
            (client, storage)
        };
        let (client, storage) = connect();
        let lock = storage.lock(true).expect("free");
        let file = storage.segments().create(SegmentId(1)).expect("new");
        file.zero_extend(64 << 10, &mut |_| ()).expect("no fault");
        storage.flush_names(Names::Segments).expect("no fault");
        client.hold_requests();
        // The second one is sent again, and ends after the first one has failed.
        let lost = Fault { prefix: "log/".into(), after: 1, ..Fault::once(FaultKind::LostRequest) };
        client.inject(lost);
        let (sender, outcomes) = std::sync::mpsc::channel();
        for write in 0..3_u64 {
            let sender = sender.clone();
            let done = Box::new(move |result: crate::Result<()>| drop(sender.send((write, result))));
            file.write_then(write * 4096, &vec![write as u8; 4096], done);
        }
        let (_other, successor) = connect();
        let _theirs = successor.lock(true).expect("claims it");
        client.release();
        for _ in 0..3 {
            let ended = outcomes.recv_timeout(Duration::from_secs(20));
            let (write, result) = ended.unwrap_or_else(|_| panic!("seed {seed}: a write has no outcome"));
            let error = result.expect_err("another writer has the database");
            assert_eq!(error.kind(), ErrorKind::Fenced, "seed {seed}, write {write}: {error}");
        }
        drop((file, lock));
    }
}

/// More data than memory, many checkpoints and evictions, and takeovers in between.
#[test]
fn rows_survive_evictions_checkpoints_and_takeovers() {
    for store in stores() {
        let mut expected = std::collections::BTreeMap::new();
        for round in 0..if is_deep() { 4_u32 } else { 2 } {
            // The writer before is not closed.
            let db = open(&store).expect("opens");
            let table = db.table_or_create("t").expect("is there or new");
            for batch in 0..60_u32 {
                let mut tx = db.begin().expect("free");
                for n in 0..100_u32 {
                    let key = (batch * 7919 + n * 104_729 + round).wrapping_mul(2_654_435_761) % 20_000;
                    let value = vec![(key % 251) as u8 ^ round as u8; 900];
                    tx.insert(&table, key.to_be_bytes(), &value).expect("no conflict");
                    expected.insert(key.to_be_bytes().to_vec(), value);
                }
                tx.commit().expect("commits");
                if batch % 20 == 13 {
                    db.checkpoint().expect("no fault");
                }
            }
            let snapshot = db.begin_read().expect("free");
            let rows = snapshot.range(&table, ..);
            let rows: Vec<_> = rows.map(|row| row.expect("readable")).collect();
            assert_eq!(rows.len(), expected.len());
            assert!(
                rows.iter()
                    .zip(&expected)
                    .all(|((k, v), (key, value))| (&k[..], &v[..]) == (&key[..], &value[..]))
            );
            std::mem::forget(snapshot);
            std::mem::forget(table);
            std::mem::forget(db);
        }
        let verified = open(&store).expect("opens").verify(None).expect("runs");
        assert!(verified.problems.is_empty(), "{verified:?}");
    }
}
