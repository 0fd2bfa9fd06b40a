//! Tests of `reads`.

use super::*;
use quenchdb::internals::device::Storage;
use quenchdb::internals::device::memory::MemoryStorage;
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
