//! Unit tests of `uring`.

use super::super::file::FileStorage;
use super::super::{Directory, File, OpenMode, SECTOR_BYTES};
use super::*;
use crate::base::settings::DeviceTrust;
use std::sync::Arc;
use std::time::Instant;

/// A queue and a file for it; none without io_uring.
fn queue(method: DurabilityMethod, direct: bool) -> Option<(tempfile::TempDir, Arc<dyn File>, UringQueue)> {
    if let Err(why) = available() {
        println!("SKIPPED: {why}");
        return None;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let storage = FileStorage::open(directory.path(), DeviceTrust::Auto, true, true).expect("ours");
    let file = storage.open("f", OpenMode { create: true, read_only: false, direct }).expect("created");
    let queue = UringQueue::new(4, method).expect("a ring");
    Some((directory, file, queue))
}

fn request(file: &Arc<dyn File>, token: u64) -> WriteRequest {
    let mut buffer = AlignedBuffer::zeroed(SECTOR_BYTES);
    buffer.fill(token as u8);
    let offset = token * SECTOR_BYTES as u64;
    WriteRequest { file: file.clone(), offset, buffer, len: SECTOR_BYTES, durable: true, token }
}

fn expect_written(file: &Arc<dyn File>, done: &[Completion], tokens: &[u64]) {
    let mut found: Vec<u64> = done.iter().map(|completion| completion.token).collect();
    found.sort_unstable();
    assert_eq!(found, tokens);
    for completion in done {
        assert!(completion.result.is_ok(), "{:?}", completion.result);
        let mut read = AlignedBuffer::zeroed(SECTOR_BYTES);
        file.read_at(completion.token * SECTOR_BYTES as u64, &mut read).expect("written");
        assert!(read.iter().all(|byte| *byte == completion.token as u8));
    }
}

fn pending(queue: &UringQueue, index: usize) -> Option<u32> {
    queue.slots[index].as_ref().map(|slot| slot.pending)
}

#[test]
fn kernel_without_a_needed_operation_is_refused() {
    assert_eq!(lacking(|_| true), None);
    // Linux 5.1 to 5.5.
    let old = [opcode::Readv::CODE, opcode::Writev::CODE, opcode::Fsync::CODE];
    assert_eq!(lacking(|code| old.contains(&code)), Some("write"));
    assert_eq!(lacking(|code| code != opcode::Read::CODE), Some("read"));
    assert_eq!(lacking(|code| code != opcode::Fsync::CODE), Some("flush"));
}

/// The log was on a file system that refuses O_DIRECT, its device's cache durable: what was in the
/// page cache only was acknowledged.
#[test]
fn buffered_durable_write_is_flushed_with_plain_completion() {
    for direct in [false, true] {
        let Some((_directory, file, mut queue)) = queue(DurabilityMethod::Plain, direct) else { return };
        queue.submit(request(&file, 1)).expect("submitted");
        let operations = if file.is_direct() { 1 } else { 2 };
        assert_eq!(pending(&queue, 0), Some(operations), "direct: {}", file.is_direct());
        let mut done = Vec::new();
        queue.reap(true, &mut done).expect("reaped");
        expect_written(&file, &done, &[1]);
    }
}

#[test]
fn link_is_lost_if_only_the_write_was_taken() {
    let pair = |slot: u64| [slot, slot | FLUSH_BIT];
    let offered: VecDeque<u64> = [&pair(3)[..], &[7], &pair(0), &[5 | FLUSH_BIT, 6]].concat().into();
    let lost: Vec<_> = (0..=offered.len()).map(|taken| lost_link(&offered, taken)).collect();
    assert_eq!(lost, [None, Some(3), None, None, Some(0), None, None, None]);
    assert_eq!(lost_link(&VecDeque::new(), 0), None);
    // What was taken before is not there any more: this flush's write went without it, and that is
    // known already.
    assert_eq!(lost_link(&[3 | FLUSH_BIT, 4].into(), 1), None);
}

#[test]
fn write_with_lost_link_is_flushed_before_completion() {
    let Some((_directory, file, mut queue)) = queue(DurabilityMethod::WriteThenFlush, true) else {
        return;
    };
    queue.submit(request(&file, 1)).expect("submitted");
    queue.slots[0].as_mut().expect("in flight").link_lost = true;
    let begun = Instant::now();
    // Both operations have ended when the slot is reused.
    while queue.slots[0].as_ref().is_some_and(|slot| slot.link_lost) {
        queue.take_completions().expect("taken");
        assert!(begun.elapsed() < Duration::from_secs(60), "they never end");
    }
    assert!(queue.done.is_empty(), "nothing has flushed it behind the write");
    assert_eq!(pending(&queue, 0), Some(1), "the flush");
    let mut done = Vec::new();
    queue.reap(true, &mut done).expect("reaped");
    expect_written(&file, &done, &[1]);
}

/// The kernel had no memory when a worker submitted; afterwards it only looked for completions, and
/// there were none.
#[test]
fn untaken_operations_are_offered_again_by_reap() {
    let Some((_directory, file, mut queue)) = queue(DurabilityMethod::WriteThenFlush, true) else {
        return;
    };
    let request = request(&file, 1);
    let descriptor = request.file.descriptor().expect("a real file");
    queue.slots[0] =
        Some(Slot { request, descriptor, written: 0, pending: 0, link_lost: false, error: None });
    queue.in_flight = 1;
    queue.offer(0);
    assert_eq!(queue.offered.len(), 2);
    let (begun, mut done) = (Instant::now(), Vec::new());
    while done.is_empty() {
        queue.reap(false, &mut done).expect("reaped");
        assert!(begun.elapsed() < Duration::from_secs(60), "nobody offers it again");
    }
    assert!(queue.offered.is_empty());
    expect_written(&file, &done, &[1]);
}

/// What had been taken with the one that failed was forgotten, and dropping the queue waited for it
/// for ever.
#[test]
fn queue_error_loses_no_completion() {
    let Some((_directory, file, mut queue)) = queue(DurabilityMethod::Plain, true) else { return };
    let nobodys = opcode::Nop::new().build().user_data(99);
    queue.push(&[nobodys]);
    for token in [1, 2] {
        queue.submit(request(&file, token)).expect("submitted");
    }
    let operations = 1 + (0..2).filter_map(|index| pending(&queue, index)).sum::<u32>() as usize;
    queue.ring.submit_and_wait(operations).expect("they end");
    let mut done = Vec::new();
    queue.reap(false, &mut done).expect_err("nobody asked for the first");
    expect_written(&file, &done, &[1, 2]);
    assert_eq!(queue.in_flight(), 0);
}
