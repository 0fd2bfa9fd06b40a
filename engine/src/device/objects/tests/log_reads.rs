//! Reading objects of the log: what is read ahead, and what follows from a failed read.

use super::super::segment_reader::{Part, SegmentReader};
use super::super::{Condition, ObjectStore, Request};
use super::memory_store::MemoryStore;
use crate::ErrorKind;
use crate::device::File;
use std::sync::Arc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_millis(50);

fn put(store: &MemoryStore, name: &str, body: Vec<u8>) {
    let condition = Condition::Always;
    let put = Request::Put { name: name.into(), body: body.into(), condition };
    super::super::store::perform(store, put).expect("no fault");
}

/// A segment of two objects of 3000 and 2000 bytes, of which the first 100 do not count.
fn segment(store: &MemoryStore) -> (SegmentReader, Vec<u8>) {
    let bytes: Vec<u8> = (0..5000_u32).map(|n| (n % 251) as u8).collect();
    put(store, "log/a", [&[255; 100], &bytes[..2900]].concat());
    put(store, "log/b", [&[255; 100], &bytes[2900..4800]].concat());
    let part = |name: &str, end| Part { name: name.into(), range: 100..end };
    let parts = vec![part("log/a", 3000), part("log/b", 2000)];
    let store: Arc<dyn ObjectStore> = Arc::new(store.clone());
    (SegmentReader { store, path: "log/00000001.seg".into(), parts, patience: PATIENCE }, bytes)
}

#[test]
fn ranges_read_ahead_cross_objects() {
    let (reader, bytes) = segment(&MemoryStore::new(true));
    let mut ahead = reader.read_ahead(&[10..20, 2800..3000, 4700..4800]).expect("within the segment");
    let mut found = vec![0; 310];
    let (first, second) = found.split_at_mut(7);
    ahead.read(first).expect("there");
    ahead.read(second).expect("there");
    assert!(found == [&bytes[10..20], &bytes[2800..3000], &bytes[4700..4800]].concat());
    assert_eq!(ahead.read(&mut [0]).expect_err("no more").kind(), ErrorKind::Corruption);
    assert!(reader.read_ahead(std::slice::from_ref(&(4000..4801))).is_none(), "the segment ends there");
}

#[test]
fn an_error_of_a_read_ahead_is_that_of_a_read() {
    let store = MemoryStore::new(true);
    let (reader, _) = segment(&store);
    let both = |what: &str| {
        let mut found = [0; 300];
        let error = reader.read_at(2700, &mut found).expect_err(what);
        let mut ahead = reader.read_ahead(std::slice::from_ref(&(2700..3000))).expect("started");
        let early = ahead.read(&mut found).expect_err(what);
        assert_eq!((early.kind(), early.to_string()), (error.kind(), error.to_string()), "{what}");
        error.kind()
    };
    put(&store, "log/b", vec![0; 150]);
    assert_eq!(both("too short"), ErrorKind::Corruption);
    store.remove("log/b");
    assert_eq!(both("missing"), ErrorKind::NotFound);
}
