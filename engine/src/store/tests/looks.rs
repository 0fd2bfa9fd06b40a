//! How much is looked at, and how much of it in one hold of the lock that every fault takes. Looks are counted, so nothing depends on time.

use super::*;
use crate::store::lock::SLICE;
use crate::store::lock::counted::{Looks, looks};

fn new_store(disk: &SimulatedStorage) -> Arc<PageStore> {
    PageStore::create(disk, DATABASE, PAGE).expect("created")
}

/// The end of a checkpoint counted all the pages that had changed in one hold.
#[test]
fn the_end_of_a_checkpoint_lets_others_in_between_the_parts_of_the_mapping() {
    let most = [300, 3000].map(|pages| {
        let store = new_store(&new_disk());
        commit(&store, 1..=pages, 1);
        let round = begin(&store).expect("idle");
        (1..=pages).for_each(|page| write(&store, &round, page, 2).expect("the disk works"));
        round.record(PageId(pages), BlockRef::ABSENT);
        let looks = looks(|| {
            let finished = round.finish().expect("the disk works");
            assert_eq!(finished.root().pages, pages - 1);
            store.round_committed(finished);
        });
        assert!(looks.all >= pages as usize, "{looks:?}");
        looks.most
    });
    assert!(most.into_iter().all(|most| most <= mapping::references_per_block(PAGE)), "{most:?}");
}

/// Moves every second of so many images, which are in the second half of the file.
fn compacted(pages: u64) -> Looks {
    let disk = new_disk();
    let store = new_store(&disk);
    commit(&store, 1..=2 * pages, 1);
    let round = begin(&store).expect("idle");
    (1..=pages)
        .for_each(|page| round.record(PageId(2 * page - u64::from(page <= pages / 2)), BlockRef::ABSENT));
    store.round_committed(round.finish().expect("the disk works"));
    let bound = store.compact_blocks();
    let mut moved = 0;
    let looks = looks(|| {
        loop {
            let step = store.move_tail(&disk, bound, 128, &|| ()).expect("the disk works");
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
    assert!(many.most <= 2 * SLICE.max(mapping::references_per_block(PAGE)), "{many:?}");
}
