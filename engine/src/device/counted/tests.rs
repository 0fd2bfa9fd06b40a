//! Unit tests of `counted`.

use super::*;
use crate::device::memory::MemoryStorage;
use crate::device::{Directory, OpenMode};

#[cfg(not(miri))]
#[test]
fn counted_file_is_direct_if_the_inner_file_is() {
    let directory = tempfile::tempdir().expect("a directory");
    let trust = crate::base::settings::DeviceTrust::Auto;
    let storage = crate::device::file::FileStorage::open(directory.path(), trust, false, true).expect("ours");
    for direct in [false, true] {
        let file = storage.open("f", OpenMode { create: true, read_only: false, direct }).expect("created");
        let (wrapped, _) = CountedFile::wrap(file.clone());
        assert_eq!(wrapped.is_direct(), file.is_direct(), "asked for: {direct}");
    }
}

#[test]
fn only_successful_operations_are_counted() {
    let storage = MemoryStorage::new();
    let mode = OpenMode { create: true, read_only: false, direct: false };
    let (file, traffic) = CountedFile::wrap(storage.open("f", mode).expect("memory"));
    file.write_at(0, &[1; 100]).expect("memory");
    file.write_durable_at(100, &[2; 50]).expect("memory");
    let mut bytes = [0; 120];
    file.read_at(30, &mut bytes).expect("inside");
    file.read_at(31, &mut bytes).expect_err("beyond the end");
    assert_eq!((traffic.writes.get(), traffic.written_bytes.get()), (2, 150));
    assert_eq!((traffic.reads.get(), traffic.read_bytes.get()), (1, 120));
    let (mut first, mut beyond) = ([0; 10], [0; 10]);
    let mut reads = [(95, &mut first), (145, &mut beyond)].map(|(offset, buffer)| ReadRequest {
        offset,
        buffer,
        result: Ok(()),
    });
    file.read_many(&mut reads, &mut |_, _| ());
    assert_eq!(reads.map(|read| read.result.is_ok()), [true, false]);
    assert_eq!(first, [1, 1, 1, 1, 1, 2, 2, 2, 2, 2]);
    assert_eq!((traffic.reads.get(), traffic.read_bytes.get()), (2, 130));
}
