//! The policy for devices that store whole extents: where blocks are allocated, when extents are
//! discarded, and how much space dead blocks take.

use super::*;
use crate::base::random::Random;
use std::collections::BTreeMap;

const EXTENT: u64 = 8;

fn extents_disk(seed: u64) -> SimulatedStorage {
    SimulatedStorage::with_extents(EXTENT * PAGE as u64, seed)
}

/// Blocks that can be allocated, in the order of the allocator.
fn drain(space: &mut FreeSpace) -> Vec<u64> {
    std::iter::from_fn(|| space.allocate_run(1)).map(|(block, _)| block.0).collect()
}

/// Discards what can be discarded; returns the first blocks of these extents.
fn discard(space: &mut FreeSpace) -> Vec<u64> {
    let extents = space.bitmap.extents.as_mut().expect("the policy of extents");
    let discarded = std::iter::from_fn(|| {
        let (first, _) = extents.to_discard()?;
        extents.discarded(first);
        Some(first)
    });
    discarded.collect()
}

fn counts(space: &FreeSpace) -> (u64, u64, u64) {
    (space.bitmap.used_blocks(), space.bitmap.free_blocks(), space.bitmap.dead_blocks())
}

#[test]
fn blocks_are_allocated_in_order_and_dead_ones_are_not() {
    let mut space = FreeSpace::with_extents(1, Some(EXTENT));
    assert_eq!(counts(&space), (1, 0, 0));
    space.extend(24);
    assert_eq!(counts(&space), (1, 23, 0));
    assert_eq!(space.allocate_run(64), Some((BlockNumber(1), 7)), "the rest of the first extent");
    assert_eq!(space.allocate_run(3), Some((BlockNumber(8), 3)));
    space.release(BlockNumber(9));
    assert_eq!(counts(&space), (10, 13, 1));
    assert_eq!(drain(&mut space), (11..24).collect::<Vec<_>>(), "9 is dead");
    (8..16).filter(|block| *block != 9).for_each(|block| space.release(BlockNumber(block)));
    assert_eq!((counts(&space), space.allocate_run(1)), ((16, 0, 8), None), "X2");
    assert_eq!(discard(&mut space), [8]);
    assert_eq!(drain(&mut space), (8..16).collect::<Vec<_>>());
}

#[test]
fn open_extent_without_used_blocks_is_discarded() {
    let mut space = FreeSpace::with_extents(EXTENT * 3, Some(EXTENT));
    assert_eq!(counts(&space), (1, 16, 7), "the rest of the first extent may have been written");
    assert_eq!(space.allocate_run(2), Some((BlockNumber(8), 2)));
    (8..10).for_each(|block| space.release(BlockNumber(block)));
    assert_eq!(space.allocate_run(1), Some((BlockNumber(16), 1)), "X1");
    assert_eq!(discard(&mut space), [8]);
    assert_eq!(space.allocate_run(8), Some((BlockNumber(17), 7)), "the open extent continues");
    assert_eq!(space.allocate_run(8), Some((BlockNumber(8), 8)));
}

#[test]
fn blocks_returned_unwritten_are_allocated_again() {
    let disk = extents_disk(1);
    let store = PageStore::create(&disk, DATABASE, PAGE).expect("created");
    let mut writer = store.writer(&disk, 1 << 20).expect("memory");
    for page in 1..=20 {
        let mut push = |page| {
            writer.push(PageId(page), Csn(1), Heat::Hot, |out| {
                out.copy_from_slice(&image(page, 1));
                Some((ImageKind::Settled, 0))
            })
        };
        assert!(push(page).expect("the disk works"));
        let mut written = Vec::new();
        writer.reap(true, &mut written).expect("the disk works");
        let [image] = written[..] else { panic!("one image is reported: {written:?}") };
        assert_eq!(image.reference.block().0, page, "no block was skipped");
        store.record(image.page, image.reference, false);
    }
    assert_eq!((store.usage().dead_blocks, disk.overwrites()), (0, 0));
}

#[test]
fn partly_live_extent_is_not_refilled_after_an_open() {
    let disk = extents_disk(1);
    let store = PageStore::create(&disk, DATABASE, PAGE).expect("created");
    commit(&store, 1..=100, 1);
    let root = commit(&store, (1..=100).filter(|page| page % 2 == 0), 2);
    let (used, blocks) = (store.usage().used_blocks(), store.usage().blocks);
    assert_eq!(blocks % EXTENT, 0);
    drop(store);
    let store = reopen(&disk, &root).expect("opens");
    assert_eq!((store.usage().used_blocks(), store.usage().blocks), (used, blocks));
    let is_used = |block| store.state.lock().blocks.free.bitmap.is_used(BlockNumber(block));
    let live: Vec<u64> = (0..blocks).filter(|block| is_used(*block)).map(|block| block / EXTENT).collect();
    for page in 200..300 {
        let written = store.write_block(BlockKind::Page, page, &mut image(page, 3), Csn(3));
        let reference = written.expect("the disk works");
        assert!(!live.contains(&(reference.block().0 / EXTENT)), "{reference:?}");
        store.record(PageId(page), reference, false);
    }
    (1..=100).for_each(|page| assert_eq!(version_of(&store, page).expect("there"), 1 + (page + 1) % 2));
}

#[test]
fn extent_is_discarded_only_without_older_checkpoints() {
    let disk = extents_disk(1);
    let store = PageStore::create(&disk, DATABASE, PAGE).expect("created");
    commit(&store, 1..=64, 1);
    let references = store.references();
    let held = store.hold();
    commit(&store, 1..=64, 2);
    let mut seen = 0;
    let visited = store.visit_images(&references, &mut |_| {
        seen += 1;
        Ok(())
    });
    visited.expect("the held checkpoint is untouched");
    assert_eq!(seen, 64);
    let before = store.usage();
    drop(held);
    let after = store.usage();
    assert!(after.free_blocks >= before.free_blocks + 64 - 2 * EXTENT, "{before:?} {after:?}");
    store.visit_images(&references, &mut |_| Ok(())).expect_err("discarded");
}

#[test]
fn failed_discard_is_repeated() {
    let disk = extents_disk(1);
    let store = PageStore::create(&disk, DATABASE, PAGE).expect("created");
    commit(&store, 1..=64, 1);
    let checkpoint = begin(&store).expect("idle");
    (1..=64).for_each(|page| write(&store, &checkpoint, page, 2).expect("the disk works"));
    let finished = checkpoint.finish().expect("the disk works");
    fail_once(&disk, OperationKind::Write, 0);
    store.commit_checkpoint(finished);
    assert_eq!(disk.faults_struck(), 1);
    let dead = store.usage().dead_blocks;
    assert!(dead >= 64 - 2 * EXTENT, "{dead}");
    commit(&store, [1], 3);
    assert!(store.usage().dead_blocks < 2 * EXTENT, "{:?}", store.usage());
    assert_eq!(disk.overwrites(), 0);
}

/// Makes a checkpoint after relocating images while dead blocks are many.
fn relocate_and_commit(store: &Arc<PageStore>, disk: &SimulatedStorage) -> u64 {
    let is_sparse = store.usage().is_sparse();
    let moved = if is_sparse { empty_extents(store, disk, 64) } else { 0 };
    commit(store, [], 0);
    moved
}

fn empty_extents(store: &Arc<PageStore>, disk: &SimulatedStorage, most: usize) -> u64 {
    Relocation::new(store, disk, &|| ()).empty_extents(most).expect("the disk works")
}

#[test]
fn space_is_bounded_after_many_overwrites() {
    let disk = extents_disk(3);
    let store = PageStore::create(&disk, DATABASE, PAGE).expect("created");
    let mut random = Random::from_seed(3);
    let mut versions = BTreeMap::new();
    let (mut moved, mut longest) = (0, 0);
    for version in 1..200 {
        let checkpoint = begin(&store).expect("idle");
        let pages: std::collections::BTreeSet<u64> = (0..60).map(|_| 1 + random.below(800)).collect();
        for page in pages {
            write(&store, &checkpoint, page, version).expect("the disk works");
            versions.insert(page, version);
        }
        store.commit_checkpoint(checkpoint.finish().expect("the disk works"));
        moved += relocate_and_commit(&store, &disk);
        longest = longest.max(store.usage().blocks);
    }
    while relocate_and_commit(&store, &disk) > 0 {}
    let usage = store.usage();
    let stored = usage.used_blocks() + usage.dead_blocks;
    assert!(moved > 500, "{moved}");
    assert!(stored <= 2 * usage.used_blocks() + 4 * EXTENT, "{usage:?}");
    assert!(longest <= 4 * usage.used_blocks(), "extents are used again: {longest}, {usage:?}");
    assert_eq!((store.check_space(), disk.overwrites()), (Vec::new(), 0));
    for (page, version) in versions {
        assert_eq!(version_of(&store, page).expect("there"), version);
    }
}

#[test]
fn explicit_relocation_frees_all_sparse_extents() {
    let disk = extents_disk(3);
    let store = PageStore::create(&disk, DATABASE, PAGE).expect("created");
    commit(&store, 1..=400, 1);
    let checkpoint = begin(&store).expect("idle");
    (1..=400)
        .filter(|page| page % 10 != 0)
        .for_each(|page| checkpoint.record(PageId(page), BlockRef::ABSENT));
    store.commit_checkpoint(checkpoint.finish().expect("the disk works"));
    assert!(store.usage().dead_blocks > 250, "{:?}", store.usage());
    let mut moved = 0;
    loop {
        let step = empty_extents(&store, &disk, 10);
        assert!(step <= 10 + EXTENT, "about as many as wanted: {step}");
        moved += step;
        if step == 0 {
            break;
        }
    }
    assert!((30..=40).contains(&moved), "each image moves once: {moved}");
    commit(&store, [], 0);
    let usage = store.usage();
    assert!(usage.dead_blocks <= 2 * EXTENT, "{usage:?}");
    (1..=40).for_each(|n| assert_eq!(version_of(&store, n * 10).expect("there"), 1));
    assert_eq!(disk.overwrites(), 0);
}

#[test]
fn random_life_overwrites_no_extent_and_loses_no_block() {
    for seed in 0..6 {
        let disk = extents_disk(seed);
        let mut random = Random::from_seed(seed);
        let mut store = PageStore::create(&disk, DATABASE, PAGE).expect("created");
        let mut model = BTreeMap::new();
        let (mut root, mut at_root) = (store.root(), model.clone());
        let mut held = None;
        for version in 1..500 {
            let some: Vec<u64> = (0..1 + random.below(9)).map(|_| 1 + random.below(300)).collect();
            match random.below(16) {
                0 if version > 20 => {
                    // A crash: what is not in the checkpoint is gone.
                    drop(held.take());
                    store = reopen(&disk, &root).expect("opens");
                    model = at_root.clone();
                }
                1..=3 => drop(empty_extents(&store, &disk, 20)),
                4..=7 => {
                    let checkpoint = begin(&store).expect("idle");
                    for page in &some {
                        write(&store, &checkpoint, *page, version).expect("the disk works");
                        model.insert(*page, version);
                    }
                    if random.chance(1, 4) {
                        drop(checkpoint);
                    } else {
                        let finished = checkpoint.finish().expect("the disk works");
                        (root, at_root) = (finished.root().clone(), model.clone());
                        store.commit_checkpoint(finished);
                    }
                }
                8 => held = if held.is_some() { None } else { Some(store.hold()) },
                9 => {
                    for page in some {
                        store.freed(PageId(page), 0);
                        model.remove(&page);
                    }
                }
                _ => {
                    for page in some {
                        let written =
                            store.write_block(BlockKind::Page, page, &mut image(page, version), Csn(version));
                        let reference = written.expect("the disk works");
                        if random.chance(1, 5) {
                            store.discard(reference);
                        } else {
                            store.record(PageId(page), reference, false);
                            model.insert(page, version);
                        }
                    }
                }
            }
            if version % 10 == 0 {
                let usage = store.usage();
                assert_eq!(store.check_space(), [""; 0], "seed {seed}, {version}");
                assert_eq!(usage.blocks % EXTENT, 0, "seed {seed}, {version}: {usage:?}");
            }
        }
        for (page, version) in model {
            assert_eq!(version_of(&store, page).expect("there"), version, "seed {seed}, page {page}");
        }
        assert_eq!(disk.overwrites(), 0, "seed {seed}");
    }
}
