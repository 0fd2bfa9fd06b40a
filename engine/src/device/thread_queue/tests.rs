//! Unit tests of `thread_queue`.

use super::super::file::FileStorage;
use super::super::{AlignedBuffer, Directory, File, OpenMode, SECTOR_BYTES};
use super::*;
use crate::base::settings::DeviceTrust;

fn file() -> (tempfile::TempDir, Arc<dyn File>) {
    let directory = tempfile::tempdir().expect("a directory");
    let storage = FileStorage::open(directory.path(), DeviceTrust::Auto, true, true).expect("ours");
    let file = storage.open("f", OpenMode { create: true, read_only: false, direct: true });
    (directory, file.expect("created"))
}

fn request(file: &Arc<dyn File>, token: u64, len: usize) -> WriteRequest {
    let mut buffer = AlignedBuffer::zeroed(SECTOR_BYTES);
    buffer.fill(token as u8);
    let offset = token * SECTOR_BYTES as u64;
    WriteRequest { file: file.clone(), offset, buffer, len, durable: token.is_multiple_of(2), token }
}

#[test]
fn all_writes_complete_and_never_too_many_are_at_work() {
    let (_directory, file) = file();
    let mut queue = ThreadQueue::new(3);
    let mut done = Vec::new();
    for token in 0..20 {
        queue.submit(request(&file, token, SECTOR_BYTES)).expect("submitted");
        assert_eq!(queue.in_flight, queue.writers.iter().filter(|writer| writer.is_busy).count());
        assert!(queue.in_flight <= 3 && queue.writers.len() <= 3);
        queue.reap(false, &mut done).expect("reaped");
    }
    while queue.in_flight() > 0 {
        let before = done.len();
        queue.reap(true, &mut done).expect("reaped");
        assert!(done.len() > before, "it waits for one");
    }
    done.sort_by_key(|completion| completion.token);
    assert_eq!(done.len(), 20);
    for (token, Completion { token: of, buffer, result }) in done.into_iter().enumerate() {
        assert_eq!((of, result.is_ok()), (token as u64, true));
        let mut read = AlignedBuffer::zeroed(SECTOR_BYTES);
        file.read_at(of * SECTOR_BYTES as u64, &mut read).expect("written");
        assert_eq!(read[..], buffer[..]);
    }
    queue.reap(true, &mut Vec::new()).expect("an empty queue does not wait");
}

#[test]
fn a_panic_in_a_write_is_its_error_and_harms_no_other() {
    let (_directory, file) = file();
    let mut queue = ThreadQueue::new(1);
    let mut done = Vec::new();
    for (token, len) in [(0, SECTOR_BYTES), (1, 2 * SECTOR_BYTES), (2, SECTOR_BYTES)] {
        queue.submit(request(&file, token, len)).expect("submitted");
    }
    while queue.in_flight() > 0 {
        queue.reap(true, &mut done).expect("reaped");
    }
    done.sort_by_key(|completion| completion.token);
    let outcomes: Vec<bool> = done.iter().map(|completion| completion.result.is_ok()).collect();
    assert_eq!(outcomes, [true, false, true]);
    let error = done[1].result.as_ref().expect_err("longer than its buffer").to_string();
    assert!(error.contains("panicked") && error.contains('f'), "{error}");
}

#[test]
fn a_dropped_queue_waits_for_its_writes() {
    let (_directory, file) = file();
    for round in 0..20 {
        let mut queue = ThreadQueue::new(2);
        queue.submit(request(&file, round, SECTOR_BYTES)).expect("submitted");
        drop(queue);
        let mut read = AlignedBuffer::zeroed(SECTOR_BYTES);
        file.read_at(round * SECTOR_BYTES as u64, &mut read).expect("written");
        assert!(read.iter().all(|byte| *byte == round as u8));
    }
}
