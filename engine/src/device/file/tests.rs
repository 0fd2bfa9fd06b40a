//! Unit tests of `file`.

use super::super::WriteRequest;
use super::*;
use crate::device::SECTOR_BYTES;

#[test]
fn refused_ring_makes_writes_blocking_and_is_reported() {
    let directory = tempfile::tempdir().expect("a directory");
    let storage = FileStorage::open(directory.path(), DeviceTrust::Auto, true, true).expect("ours");
    let mut queue = storage.queue_of(Err(Error::io("cannot create an io_uring", Errno::MFILE.into())));
    assert!(storage.facts().io_uring.is_err());
    let mode = OpenMode { create: true, read_only: false, direct: true };
    let file = storage.open("f", mode).expect("created");
    let (mut buffer, len) = (AlignedBuffer::zeroed(SECTOR_BYTES), SECTOR_BYTES);
    buffer.fill(7);
    let request = WriteRequest { file: file.clone(), offset: 0, buffer, len, durable: true, token: 3 };
    queue.submit(request).expect("a write");
    let mut done = Vec::new();
    queue.reap(true, &mut done).expect("done");
    let [completion] = &done[..] else { panic!("{} completions", done.len()) };
    assert!(completion.token == 3 && completion.result.is_ok());
    let mut read = AlignedBuffer::zeroed(SECTOR_BYTES);
    file.read_at(0, &mut read).expect("written");
    assert!(read.iter().all(|byte| *byte == 7));
}

#[test]
fn failed_buffered_durable_write_fails_all_later_ones() {
    let (_reader, pipe) = std::io::pipe().expect("a pipe");
    let mut file = RealFile {
        not_inherited: OnceLock::new(),
        process: Process::current(),
        fd: pipe.into(),
        path: "f".into(),
        direct: false,
        failed: Mutex::new(false),
        method: DurabilityMethod::Plain,
        dsync_refused: Arc::new(AtomicBool::new(false)),
        many: None,
    };
    file.flush_cache().expect_err("there is nothing to flush");
    // As if the device worked again: the kernel does not write again what it has given up.
    file.fd = tempfile::tempfile().expect("a file").into();
    let error = file.write_durable_at(0, &[1; 8]).expect_err("believed");
    assert!(error.to_string().contains("an earlier durable write"), "{error}");
    file.flush().expect("that is not about a write");
}
