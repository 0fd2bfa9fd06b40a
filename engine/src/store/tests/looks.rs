//! How much is looked at, and how much of it in one hold of the lock that every fault takes.
//! Examined are counted, so nothing depends on time.

use super::*;
use crate::store::yielding_lock::counted::{Examined, examined_by};

fn new_store(disk: &SimulatedStorage) -> Arc<PageStore> {
    PageStore::create(disk, DATABASE, PAGE).expect("created")
}

/// The end of a checkpoint counted all the pages that had changed in one hold.
#[test]
fn commit_of_a_checkpoint_yields_between_mapping_parts() {
    let most = [300, 3000].map(|pages| {
        let store = new_store(&new_disk());
        commit(&store, 1..=pages, 1);
        let checkpoint = begin(&store).expect("idle");
        (1..=pages).for_each(|page| write(&store, &checkpoint, page, 2).expect("the disk works"));
        checkpoint.record(PageId(pages), BlockRef::ABSENT);
        let looks = examined_by(|| {
            let finished = checkpoint.finish().expect("the disk works");
            assert_eq!(finished.root().pages, pages - 1);
            store.commit_checkpoint(finished);
        });
        assert!(looks.all >= pages as usize, "{looks:?}");
        looks.most
    });
    assert!(most.into_iter().all(|most| most <= references_per_block(PAGE)), "{most:?}");
}

/// A checkpoint that failed gave all its images to the next one in one hold.
#[test]
fn abandoned_checkpoint_yields_between_mapping_parts() {
    for pages in [300, 3000] {
        let store = new_store(&new_disk());
        commit(&store, 1..=pages, 1);
        let checkpoint = begin(&store).expect("idle");
        (1..=pages).for_each(|page| write(&store, &checkpoint, page, 2).expect("the disk works"));
        let looks = examined_by(|| drop(checkpoint));
        assert!(looks.all >= pages as usize, "{looks:?}");
        assert!(looks.most <= references_per_block(PAGE), "{looks:?}");
        let usage = store.usage();
        assert_eq!((usage.next, usage.in_checkpoint, usage.replaced), (pages, 0, pages));
        assert_eq!(store.check_space(), [""; 0]);
    }
}

/// Others read, and their pages leave memory and are freed, while a checkpoint goes back part by
/// part.
#[test]
fn what_happens_while_a_round_is_abandoned_counts() {
    const PAGES: u64 = 4000;
    let store = new_store(&new_disk());
    commit(&store, 1..=PAGES, 1);
    for version in 2..6 {
        let checkpoint = begin(&store).expect("idle");
        (1..=PAGES).for_each(|page| write(&store, &checkpoint, page, version).expect("the disk works"));
        let evicts = |page| {
            let image = &mut image(page, version + 10);
            let block =
                store.write_block(BlockKind::Page, page, image, Csn(version)).expect("the disk works");
            store.record(PageId(page), block, false);
        };
        std::thread::scope(|scope| {
            scope.spawn(|| (1..=PAGES).filter(|page| page % 7 == 1).for_each(evicts));
            scope.spawn(|| {
                (1..=PAGES).filter(|page| page % 7 == 2).for_each(|page| store.freed(PageId(page), 0));
            });
            scope.spawn(|| {
                for page in (1..=PAGES).filter(|page| page % 7 > 2) {
                    assert_eq!(version_of(&store, page).expect("there"), version);
                }
            });
            drop(checkpoint);
        });
        assert_eq!(store.check_space(), [""; 0]);
        commit(&store, [], 0);
        for page in 1..=PAGES {
            match page % 7 {
                1 => assert_eq!(version_of(&store, page).expect("there"), version + 10),
                2 => assert!(!store.contains(PageId(page)), "{page}"),
                _ => assert_eq!(version_of(&store, page).expect("there"), version),
            }
        }
        assert_eq!(store.check_space(), [""; 0]);
    }
}

/// Each checkpoint looked at everything that was held, and the end of a backup gave all of it back,
/// in one hold; the memory was not charged.
#[test]
fn held_content_is_examined_in_slices_after_a_release() {
    for pages in [300, 3000] {
        let (store, memory) = (new_store(&new_disk()), Arc::new(Account::default()));
        store.charge_to(&memory);
        commit(&store, 1..=pages, 1);
        let before = memory.bytes();
        let held = store.hold();
        let replaced = examined_by(|| (2..=4).for_each(|version| drop(commit(&store, 1..=pages, version))));
        assert!(replaced.most <= references_per_block(PAGE), "{pages}: {replaced:?}");
        let (blocks, charged) = (store.usage().held_blocks, memory.bytes() - before);
        assert!(blocks >= pages && blocks <= pages + 20, "{blocks}: its own checkpoint, and no other");
        // A block and two generations of what is held, and when each page that is there was born.
        assert!(
            (pages * 32..pages * 64 + (64 << 10)).contains(&charged),
            "{charged} bytes for {pages} pages"
        );
        let free = store.usage().free_blocks;
        let ended = examined_by(|| drop(held));
        assert!(ended.most <= SLICE && ended.all >= pages as usize, "{ended:?}");
        assert_eq!((store.usage().held_blocks, store.usage().free_blocks), (0, free + blocks));
        assert_eq!((memory.bytes(), store.check_space()), (before, vec![]));
    }
}

/// Moves every second of so many images, which are in the second half of the file.
fn compacted(pages: u64) -> Examined {
    let disk = new_disk();
    let store = new_store(&disk);
    commit(&store, 1..=2 * pages, 1);
    let checkpoint = begin(&store).expect("idle");
    (1..=pages).for_each(|page| {
        checkpoint.record(PageId(2 * page - u64::from(page <= pages / 2)), BlockRef::ABSENT)
    });
    store.commit_checkpoint(checkpoint.finish().expect("the disk works"));
    let bound = store.disk_space().compact_blocks();
    let mut moved = 0;
    let looks = examined_by(|| {
        loop {
            let step = Relocation::new(&store, &disk, &|| ()).move_tail(bound, 128).expect("the disk works");
            moved += step;
            if step == 0 {
                break;
            }
        }
    });
    assert!(moved >= pages / 3, "{moved} of {pages}");
    looks
}

/// Each step began at the first page and at the first block.
#[test]
fn compacting_four_times_as_much_looks_at_four_times_as_much() {
    let (few, many) = (compacted(4000), compacted(16_000));
    assert!(many.all <= 5 * few.all, "{few:?} {many:?}");
    assert!(many.most <= 2 * SLICE.max(references_per_block(PAGE)), "{many:?}");
}

/// All of the mapping was looked at in one hold.
#[test]
fn space_is_checked_a_part_at_a_time() {
    for pages in [300, 3000] {
        let store = new_store(&new_disk());
        commit(&store, 1..=pages, 1);
        let held = store.hold();
        commit(&store, 1..=pages, 2);
        let looks = examined_by(|| assert_eq!(store.check_space(), [""; 0]));
        assert!(looks.all > 3 * pages as usize, "{looks:?}");
        assert!(looks.most <= 3 * references_per_block(PAGE) + 1, "{looks:?}");
        drop(held);
    }
}

#[test]
fn what_changes_while_space_is_checked_is_not_taken_for_damage() {
    let store = new_store(&new_disk());
    commit(&store, 1..=2000, 1);
    commit(&store, 1..=2000, 2);
    let ended = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for at in 0..20_000 {
                let page = at * 7919 % 2100 + 1;
                let block = {
                    // As a writer does.
                    let mut state = store.state.lock();
                    let (block, _) = store.space.allocate_run(&mut state, 1).expect("the disk works");
                    state.blocks.in_flight.begin(block, 1, false);
                    block
                };
                store.record(PageId(page), BlockRef::new(block, at as u32), false);
                if at % 5 == 0 {
                    store.freed(PageId(page), 2);
                }
            }
            ended.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        while !ended.load(std::sync::atomic::Ordering::Relaxed) {
            assert_eq!(store.check_space(), [""; 0]);
        }
    });
    assert_eq!(store.check_space(), [""; 0]);
    store.state.lock().blocks.free.allocate_run(1).expect("free");
    assert_eq!(store.check_space().len(), 1);
}
