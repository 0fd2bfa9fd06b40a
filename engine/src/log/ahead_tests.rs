//! Scanning a log in a store of objects: what is read together, and ahead.

use super::{Batch, Scan, ScanOptions, ScannedBlock, database_of, scan};
use crate::base::{Csn, DatabaseId, SegmentId};
use crate::device::objects::simulated::{SimulatedClient, SimulatedStore};
use crate::device::objects::{
    Done, Failure, FailureKind, ObjectStorage, ObjectStore, Options, Request, StoreFacts,
};
use crate::device::{Names, OpenMode, Roles, Storage};
use crate::sync::Mutex;
use crate::{Database, ErrorKind, Settings};
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Copy, Default)]
struct Gets {
    started: usize,
    in_flight: usize,
    most: usize,
    bytes: usize,
    /// The number of the one that fails, from 1.
    failing: Option<usize>,
}

/// Answers each read after a while, from a thread of its own.
#[derive(Clone)]
struct SlowStore {
    inner: Arc<SimulatedClient>,
    gets: Arc<Mutex<Gets>>,
}

impl std::fmt::Debug for SlowStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SlowStore")
    }
}

impl ObjectStore for SlowStore {
    fn start(&self, request: Request, done: Done) {
        if !matches!(request, Request::Get { .. }) {
            return self.inner.start(request, done);
        }
        let fails = {
            let mut gets = self.gets.lock();
            gets.started += 1;
            gets.in_flight += 1;
            gets.most = gets.most.max(gets.in_flight);
            gets.failing == Some(gets.started)
        };
        let (inner, gets) = (self.inner.clone(), self.gets.clone());
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(5));
            let ended: Done = Box::new(move |outcome| {
                let mut now = gets.lock();
                now.in_flight -= 1;
                now.bytes += outcome.as_ref().map_or(0, |reply| reply.body.len());
                drop(now);
                done(outcome);
            });
            if fails {
                return ended(Err(Failure { kind: FailureKind::Denied, what: "no".into() }));
            }
            inner.start(request, ended);
        });
    }

    fn facts(&self) -> StoreFacts {
        self.inner.facts()
    }
}

impl SlowStore {
    fn storage(&self) -> Arc<dyn Storage> {
        let options = Options { patience: Duration::from_millis(50), ..Options::default() };
        Arc::new(ObjectStorage::new(Arc::new(self.clone()), self.facts(), options))
    }
}

/// Scans a segment of 16 pieces without blocks, with one thread.
fn scan_slowly(store: &SlowStore, keep_bytes: u64, failing: Option<usize>) -> crate::Result<Scan> {
    let storage = store.storage();
    let _lock = storage.lock(true).expect("free");
    let (database, covered) = (DatabaseId(7), Csn::ZERO);
    let piece_bytes = 64 << 10;
    *store.gets.lock() = Gets { failing, ..Gets::default() };
    let options = ScanOptions { database, covered, threads: 1, read_only: false, piece_bytes, keep_bytes };
    scan(&storage, options, None, &|_, _| ())
}

fn filled() -> SlowStore {
    let store = SlowStore { inner: SimulatedStore::immediate(1).client(), gets: Arc::default() };
    let storage = ObjectStorage::new(Arc::new(store.clone()), store.facts(), Options::default());
    let _lock = storage.lock(true).expect("free");
    let file = storage.segments().create(SegmentId(1)).expect("new");
    file.zero_extend(1 << 20, &mut |_| ()).expect("no fault");
    storage.flush_names(Names::Segments).expect("no fault");
    for _ in 0..8 {
        file.write_durable_at(0, &vec![7; 128 << 10]).expect("no fault");
    }
    store
}

#[test]
fn a_scan_reads_each_byte_once_and_one_piece_ahead() {
    for keep_bytes in [0, 16 << 20] {
        let store = filled();
        scan_slowly(&store, keep_bytes, None).expect("readable");
        let gets = *store.gets.lock();
        assert_eq!((gets.bytes, gets.started, gets.in_flight), (1 << 20, 16, 0));
        assert_eq!(gets.most, 2, "the piece after the first is requested while that one is scanned");
    }
}

#[test]
fn a_scan_ends_with_the_error_of_any_piece() {
    for failing in [1, 2, 9, 16] {
        let store = filled();
        let error = scan_slowly(&store, 0, Some(failing)).expect_err("a piece is missing");
        assert_eq!(error.kind(), ErrorKind::Io, "{failing}: {error}");
        assert!(error.to_string().contains("an object cannot be read: no"), "{failing}: {error}");
    }
}

/// The blocks of a log lie in several objects by turns.
#[test]
fn blocks_of_all_lanes_are_read_together() {
    let store = SlowStore { inner: SimulatedStore::immediate(1).client(), gets: Arc::default() };
    let settings = Settings::default().with(|settings| settings.segment_bytes = 1 << 20);
    let db = Database::builder().settings(settings).storage(store.storage()).open("objects").expect("opens");
    let table = db.create_table("t").expect("new");
    for key in 0..200_u32 {
        db.transact(|tx| tx.insert(&table, key.to_be_bytes(), vec![key as u8; 5000])).expect("commits");
    }
    std::mem::forget((db, table));
    let storage = store.storage();
    let _lock = storage.lock(true).expect("takes over");
    let mode = OpenMode { create: false, read_only: true, direct: true };
    let ids = storage.segments().list().expect("no fault").into_iter();
    let mut files = ids.map(|id| storage.segments().open(id, mode).expect("there"));
    let database = files.find_map(|file| database_of(&*file)).expect("a block");
    let (covered, threads, read_only, piece_bytes, keep_bytes) = (Csn::ZERO, 1, true, 64 << 10, 0);
    let options = ScanOptions { database, covered, threads, read_only, piece_bytes, keep_bytes };
    let scan = scan(&storage, options, None, &|_, _| ()).expect("readable");
    let blocks = scan.chains.iter().flat_map(|chain| chain.accepted()).cloned();
    let blocks: Vec<ScannedBlock> = blocks.collect();
    let mut batch = Batch::first_of(&blocks, 256 << 10).expect("has blocks");
    let count = batch.blocks().len();
    assert!(count > 16 && batch.bytes() <= 256 << 10, "{count} blocks");
    *store.gets.lock() = Gets::default();
    assert!(batch.start(), "a store reads ahead");
    let gets = *store.gets.lock();
    assert!((2..=8).contains(&gets.started), "{} requests for {count} blocks", gets.started);
    let loaded = batch.load().expect("there");
    assert_eq!(store.gets.lock().started, gets.started);
    for (loaded, block) in loaded.iter().zip(&blocks) {
        let csns: Vec<Csn> = loaded.records().map(|record| record.expect("whole").1.header.csn).collect();
        assert_eq!(csns.first().copied(), Some(block.first_csn()));
        assert_eq!(csns.last().copied(), Some(block.last_csn()));
    }
}
