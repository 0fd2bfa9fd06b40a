//! Checks of what a page store says of its blocks.

use super::*;
use crate::base::{Csn, DatabaseId};
use crate::device::AlignedBuffer;
use crate::device::memory::MemoryStorage;
use crate::device::simulated::{Fault, FaultKind, OperationKind, SimulatedStorage};
use crate::store::block::BlockKind;
use crate::store::{Heat, ImageKind, OpenCheckpoint};
use std::sync::Arc;

#[test]
fn blocks_that_are_shared_or_marked_as_free_are_found() {
    let store = PageStore::create(&MemoryStorage::new(), DatabaseId(1), 4096).expect("memory");
    for csn in 1..=2 {
        let checkpoint = written(&store, csn, 600);
        assert_eq!(store.check_space(), [""; 0], "in the middle of a checkpoint");
        let finished = checkpoint.finish().expect("memory");
        store.commit_checkpoint(finished);
        assert_eq!(store.check_space(), [""; 0]);
    }
    let (first, second) = {
        let mut state = store.state.lock();
        let (first, second) = (state.images.mapping.get(PageId(7)), state.images.mapping.get(PageId(550)));
        state.images.mapping.set(PageId(7), second);
        state.blocks.free.release(first.block());
        (first, second)
    };
    let problems = store.check_space();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("page 7 and page 550 share a block"), "{problems:?}");
    {
        let mut state = store.state.lock();
        state.images.mapping.set(PageId(7), first);
        state.blocks.free.release(second.block());
    }
    let problems = store.check_space();
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems[0].contains("page 7 is marked as free"), "{problems:?}");
    assert!(problems[1].contains("page 550 is marked as free"), "{problems:?}");
}

/// A checkpoint that is to be finished, with an image of each of so many pages.
fn written(store: &Arc<PageStore>, csn: u64, pages: u64) -> OpenCheckpoint {
    let checkpoint = store.begin_checkpoint(csn as u32, Csn(csn)).expect("no other checkpoint");
    for page in 1..=pages {
        let mut image = AlignedBuffer::zeroed(4096);
        let block = store.write_block(BlockKind::Page, page, &mut image, Csn(csn)).expect("memory");
        checkpoint.record(PageId(page), block);
    }
    checkpoint.write_blob(b"catalog").expect("memory");
    checkpoint
}

fn checkpoints(store: &Arc<PageStore>, csns: std::ops::RangeInclusive<u64>) {
    for csn in csns {
        store.commit_checkpoint(written(store, csn, 20).finish().expect("memory"));
    }
}

#[test]
fn leaked_blocks_are_found_and_owned_ones_are_not() {
    let storage = MemoryStorage::new();
    let store = PageStore::create(&storage, DatabaseId(1), 4096).expect("memory");
    store.compress(crate::base::settings::Compression::Lz4);
    checkpoints(&store, 1..=2);
    let held = store.hold();
    checkpoints(&store, 3..=3);
    assert!(store.usage().held_blocks > 0);
    // A pack of three images: one gets into a table, one is given back, one is still with its
    // writer.
    let mut writer = store.writer(&storage, 256 << 10).expect("a queue");
    for page in 1..=3 {
        let image = |_: &mut [u8]| Some((ImageKind::Settled, 0));
        writer.push(PageId(page), Csn(4), Heat::Cold, image).expect("memory");
        assert_eq!(store.check_space(), [""; 0], "with the writer");
    }
    let mut written = Vec::new();
    writer.reap(true, &mut written).expect("memory");
    assert!(
        written.len() == 3 && written.iter().all(|w| w.reference.block() == written[0].reference.block())
    );
    assert_eq!(store.check_space(), [""; 0], "written");
    store.record(written[0].page, written[0].reference, false);
    assert_eq!(store.check_space(), [""; 0], "one is recorded");
    store.discard(written[1].reference);
    assert_eq!(store.check_space(), [""; 0], "and one given back");
    let pack = written[2].reference.block();
    // Forgotten by its writer.
    store.state.lock().blocks.in_flight.recorded(pack, 2);
    let problems = store.check_space();
    let is_leak = |problems: &[String], blocks| {
        problems.len() == 1 && problems[0].contains(&format!("leaked block: {blocks} are marked"))
    };
    assert!(is_leak(&problems, 1), "{problems:?}");
    store.state.lock().set_next(PageId(3), written[2].reference);
    assert_eq!(store.check_space(), [""; 0]);
    drop(held);
    assert_eq!(store.check_space(), [""; 0]);
    let (lost, _) = store.state.lock().blocks.free.allocate_run(2).expect("free blocks");
    let problems = store.check_space();
    assert!(is_leak(&problems, 2), "{problems:?}");
    let place = store.file.location(lost).to_string();
    assert!(problems[0].ends_with(&place), "{problems:?}");
    // A checkpoint has such blocks.
    let checkpoint = store.begin_checkpoint(4, Csn(4)).expect("no other checkpoint");
    assert_eq!(store.check_space(), [""; 0]);
    drop(checkpoint);
    assert!(is_leak(&store.check_space(), 2));
}

#[test]
fn failed_write_is_no_leak_and_a_double_free_is_found() {
    let disk = SimulatedStorage::new(1);
    let store = PageStore::create(&disk, DatabaseId(1), 4096).expect("a whole disk");
    checkpoints(&store, 1..=2);
    let free = store.usage().free_blocks;
    disk.inject(Fault { operation: OperationKind::Write, after: 0, kind: FaultKind::Once, error: 5 });
    let checkpoint = store.begin_checkpoint(3, Csn(3)).expect("no other checkpoint");
    checkpoint.write_blob(b"another catalog").expect_err("an error of the device");
    drop(checkpoint);
    assert_eq!((store.usage().free_blocks, store.check_space()), (free - 1, vec![]), "F3");
    {
        let mut state = store.state.lock();
        // Held for a reader of the last checkpoint, and still in the mapping.
        let (generation, reference) = (state.blocks.free.pins.hold(), state.images.mapping.get(PageId(5)));
        state.blocks.free.committed(generation + 1, Vec::new());
        state.blocks.free.release_image(PageId(5), reference.block());
    }
    let problems = store.check_space();
    assert!(problems.len() == 1 && problems[0].contains("but 1 are noted"), "{problems:?}");
}
