//! Queues of writes on a real directory: what the kernel does with the writes of an ended thread.

use quenchdb::DeviceTrust;
use quenchdb::internals::device::file::FileStorage;
use quenchdb::internals::device::{
    AlignedBuffer, Directory, OpenMode, SECTOR_BYTES, Storage, WriteQueue, WriteRequest,
};
use std::sync::Mutex;

const DEPTH: u64 = 8;

/// Submits `DEPTH` writes from a thread that ends at once, reaps them in this thread, and reads
/// them back.
fn round(storage: &FileStorage, queue: &Mutex<Box<dyn WriteQueue>>, len: usize, round: u64) {
    let mode = OpenMode { create: true, read_only: false, direct: true };
    let file = storage.open("f", mode).expect("created");
    let submit = || {
        for token in 0..DEPTH {
            let mut buffer = AlignedBuffer::zeroed(len);
            buffer.fill((round + token) as u8);
            let (file, offset) = (file.clone(), token * len as u64);
            let request = WriteRequest { file, offset, buffer, len, durable: true, token };
            queue.lock().expect("queue").submit(request).expect("submitted");
        }
    };
    std::thread::scope(|scope| scope.spawn(submit).join()).expect("submits");
    let (mut queue, mut done) = (queue.lock().expect("queue"), Vec::new());
    while queue.in_flight() > 0 {
        queue.reap(true, &mut done).expect("reaped");
    }
    assert_eq!(done.len() as u64, DEPTH);
    for completion in done {
        completion.result.unwrap_or_else(|error| panic!("round {round}: {error}"));
        let mut read = AlignedBuffer::zeroed(len);
        file.read_at(completion.token * len as u64, &mut read).expect("written");
        assert!(read.iter().all(|byte| *byte == (round + completion.token) as u8));
    }
}

/// Regression: a worker of the preset `autonomous` submitted its log's last block and ended. The
/// kernel cancelled the writes that it had not started for that thread, and the database was
/// poisoned.
#[test]
fn writes_of_a_thread_that_ends_are_written_all_the_same() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let storage =
        FileStorage::open(directory.path(), DeviceTrust::Flush, true, true).expect("a directory of ours");
    for sectors in [64, 1] {
        let queue = Mutex::new(storage.write_queue(DEPTH as usize).expect("a queue"));
        (0..40).for_each(|number| round(&storage, &queue, sectors * SECTOR_BYTES, number));
    }
}
