//! Tests of `reads`.

use super::*;
use quenchdb::internals::device::memory::MemoryStorage;
use quenchdb::internals::device::objects::simulated::SimulatedStore;
use quenchdb::internals::device::objects::{ObjectStorage, ObjectStore, Options};
use quenchdb::internals::device::{Directory, Roles};
use std::sync::Arc;

fn file(bytes: u64) -> Arc<dyn File> {
    let storage = MemoryStorage::new();
    let mode = OpenMode { create: true, read_only: false, direct: true };
    let file = storage.open("f", mode).expect("memory");
    file.set_len(bytes).expect("memory");
    file
}

#[test]
fn parts_cover_the_file_and_stay_inside() {
    for (file_reads, readers) in [(1u64, 1usize), (1, 4), (7, 2), (8, 8), (5, 16)] {
        for index in 0..readers {
            let part = Part::of(file_reads, 4096, readers, index);
            assert!((0..100).all(|n| part.offset(n) + 4096 <= file_reads * 4096));
        }
    }
    let two = Part::of(8, 4096, 2, 1);
    assert_eq!((two.offset(0), two.offset(3), two.offset(4)), (16384, 28672, 16384));
}

#[test]
fn reads_of_files_shorter_than_a_read_and_of_empty_files() {
    let short = measure(&*file(3 * 4096), Pattern::Sequential, 1 << 20, 2, Duration::from_millis(2));
    let short = short.expect("memory");
    assert_eq!(short.bytes, 3 * 4096);
    assert!(short.reads_per_second > 0.0);
    measure(&*file(0), Pattern::Random, 4096, 1, Duration::from_millis(2)).expect_err("empty");
}

#[test]
fn bytes_that_no_request_returned_do_not_count() {
    let client = SimulatedStore::immediate(1).client();
    let storage = ObjectStorage::new(client.clone(), client.facts(), Options::default());
    let _lock = storage.lock(true).expect("free");
    let mode = OpenMode { create: true, read_only: false, direct: true };
    let pages = storage.pages(mode).expect("new");
    pages.set_len(64 << 20).expect("no fault");
    let measure = || floor_of(&storage, Pattern::Random, 1 << 20, 1, Duration::from_millis(5));
    assert_eq!(measure().expect("no fault").bytes_per_second, 0.0);
    (0..64).for_each(|n| pages.write_at(n << 20, &vec![1; 1 << 20]).expect("no fault"));
    pages.flush().expect("no fault");
    assert!(measure().expect("no fault").bytes_per_second > 0.0);
}
