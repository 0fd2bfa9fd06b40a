//! Free space: which blocks are handed out, which are kept for readers, and how long.

use super::*;
use crate::store::manifest::READS_ANYTHING;
use crate::store::pack::PackTotals;

fn drain(space: &mut FreeSpace) -> Vec<u64> {
    std::iter::from_fn(|| space.allocate_run(1)).map(|(block, _)| block.0).collect()
}

fn set_readers(space: &mut FreeSpace, readers: Vec<u64>) {
    space.pins.set_readers(readers);
    while space.release_unneeded(1) {}
}

fn end_hold(space: &mut FreeSpace, generation: u64) {
    space.pins.end_hold(generation);
    while space.release_unneeded(1) {}
}

#[test]
fn every_block_but_the_header_is_handed_out_once() {
    let mut space = FreeSpace::new(200);
    assert_eq!(drain(&mut space), (1..200).collect::<Vec<_>>());
    assert_eq!(space.bitmap.free_blocks(), 0);
    space.extend(203);
    assert_eq!(drain(&mut space), [200, 201, 202]);
}

#[test]
fn a_run_ends_at_a_block_in_use_and_at_the_end_of_the_file() {
    let mut space = FreeSpace::new(100);
    assert!(space.claim(BlockNumber(10)));
    assert_eq!(space.allocate_run(64), Some((BlockNumber(1), 9)));
    assert_eq!(space.allocate_run(64), Some((BlockNumber(11), 64)));
    assert_eq!(space.allocate_run(64), Some((BlockNumber(75), 25)));
    assert_eq!(space.allocate_run(64), None);
    space.release(BlockNumber(3));
    assert_eq!(space.allocate_run(2), Some((BlockNumber(3), 1)));
}

#[test]
fn live_blocks_are_kept_while_a_checkpoint_with_them_is_held() {
    let mut space = FreeSpace::new(4);
    assert_eq!(drain(&mut space), [1, 2, 3]);
    let (first, again) = (space.pins.hold(), space.pins.hold());
    space.committed(5, Vec::new());
    space.release_live(BlockNumber(1));
    let second = space.pins.hold();
    space.committed(6, Vec::new());
    space.release_live(BlockNumber(2));
    end_hold(&mut space, first);
    assert_eq!((space.allocate_run(1), space.fills.held_blocks()), (None, 2), "F1");
    end_hold(&mut space, again);
    assert_eq!(drain(&mut space), [1], "the second does not have it");
    end_hold(&mut space, second);
    assert_eq!(drain(&mut space), [2]);
    space.release_live(BlockNumber(3));
    assert_eq!(drain(&mut space), [3]);
}

#[test]
fn live_blocks_are_kept_for_readers_of_older_checkpoints() {
    let mut space = FreeSpace::new(3);
    drain(&mut space);
    space.committed(7, vec![6]);
    space.release_live(BlockNumber(1));
    let held = space.pins.hold();
    space.committed(8, vec![6]);
    space.release_live(BlockNumber(2));
    assert!(space.waits_for_readers());
    set_readers(&mut space, vec![7]);
    assert_eq!(drain(&mut space), [1]);
    set_readers(&mut space, Vec::new());
    assert!(space.allocate_run(1).is_none() && !space.waits_for_readers(), "held in this process");
    end_hold(&mut space, held);
    assert_eq!(drain(&mut space), [2]);
}

#[test]
fn a_reader_holds_no_more_than_its_checkpoint() {
    let mut space = FreeSpace::new(100);
    let mut live = space.allocate_run(1).expect("free").0;
    let mut catalog = space.allocate_run(1).expect("free").0;
    space.committed(1, Vec::new());
    // A reader that is understood, one hold of this process, and later a reader that is not
    // understood.
    let mut held = None;
    for generation in 2..20 {
        let readers = match generation {
            2..4 => vec![],
            4..15 => vec![3],
            _ => vec![3, READS_ANYTHING],
        };
        space.committed(generation, readers);
        for block in [&mut live, &mut catalog] {
            let new = space.allocate_run(1).expect("free").0;
            space.release_live(std::mem::replace(block, new));
            space.pins.note_created(Content::Other(new));
        }
        if generation == 8 {
            held = Some(space.pins.hold());
        }
        let expected = match generation {
            2..4 => 0,
            4..9 => 2,
            9..15 => 4,
            _ => 4 + 2 * (generation - 14),
        };
        assert_eq!(space.fills.held_blocks(), expected, "generation {generation}");
    }
    set_readers(&mut space, vec![3]);
    assert_eq!(space.fills.held_blocks(), 4);
    end_hold(&mut space, held.expect("held"));
    assert_eq!(space.fills.held_blocks(), 2);
    set_readers(&mut space, Vec::new());
    assert_eq!((space.fills.held_blocks(), space.bitmap.free_blocks()), (0, 97));
}

#[test]
fn what_was_free_at_open_may_belong_to_earlier_readers() {
    let mut space = FreeSpace::new(70);
    assert!(space.claim(BlockNumber(9)));
    space.committed(20, vec![18]);
    space.hold_all_free();
    assert_eq!((space.bitmap.free_blocks(), space.fills.held_blocks(), space.bitmap.used_end()), (0, 68, 70));
    space.extend(71);
    assert_eq!(drain(&mut space), [70]);
    set_readers(&mut space, vec![20]);
    assert_eq!(drain(&mut space).len(), 68);
}

#[test]
fn a_free_tail_can_be_cut_off_and_grown_again() {
    let mut space = FreeSpace::new(300);
    drain(&mut space);
    (70..300).for_each(|block| space.release(BlockNumber(block)));
    assert_eq!((space.bitmap.used_end(), space.bitmap.free_blocks()), (70, 230));
    space.cut(72);
    assert_eq!((space.bitmap.blocks(), space.bitmap.free_blocks()), (72, 2));
    space.extend(300);
    space.bitmap.rewind();
    assert_eq!(drain(&mut space), (70..300).collect::<Vec<_>>());
    assert_eq!(FreeSpace::new(1).bitmap.used_end(), 1);
}

#[test]
fn pack_with_a_held_image_is_not_freed() {
    let mut space = FreeSpace::new(3);
    assert_eq!(space.allocate_run(2), Some((BlockNumber(1), 2)));
    space.becomes_pack(BlockNumber(1), 4);
    assert_eq!(space.fills.totals().beyond_first, 3);
    space.committed(1, Vec::new());
    space.release(BlockNumber(1));
    let held = space.pins.hold();
    space.committed(2, Vec::new());
    space.release_image(PageId(1), BlockNumber(1));
    assert_eq!(
        (space.fills.live(BlockNumber(1)), space.fills.held_blocks()),
        (3, 0),
        "two others keep it anyway"
    );
    space.release(BlockNumber(1));
    assert!(!space.fills.is_sparse(BlockNumber(1)), "moving the last one would free nothing");
    space.release(BlockNumber(1));
    let users = space.fills.live(BlockNumber(1));
    assert_eq!((space.allocate_run(1), users, space.fills.held_blocks()), (None, 1, 1), "F1, F4");
    end_hold(&mut space, held);
    assert_eq!(space.allocate_run(1), Some((BlockNumber(1), 1)));
    assert_eq!((space.fills.totals(), space.fills.is_sparse(BlockNumber(1))), (PackTotals::default(), false));
    assert_eq!(space.fills.held_blocks(), 0);
}

#[test]
fn each_image_of_a_pack_is_held_from_its_own_birth_on() {
    let pack = BlockNumber(1);
    let mut space = FreeSpace::new(2);
    assert!(space.allocate_run(1).is_some());
    space.becomes_pack(pack, 3);
    // Page 1 is in it before any pin, page 2 from generation 6 on, page 3 from 8.
    space.committed(4, Vec::new());
    space.pins.note_created(Content::Image(PageId(1)));
    let fifth = {
        space.committed(5, Vec::new());
        space.pins.hold()
    };
    space.committed(6, Vec::new());
    space.pins.note_created(Content::Image(PageId(2)));
    space.committed(8, Vec::new());
    space.pins.note_created(Content::Image(PageId(3)));
    let eighth = space.pins.hold();
    space.committed(9, Vec::new());
    space.release_image(PageId(3), pack);
    space.release_image(PageId(2), pack);
    space.release_image(PageId(1), pack);
    assert_eq!((space.fills.live(pack), space.fills.held_blocks()), (3, 1));
    end_hold(&mut space, eighth);
    assert_eq!((space.fills.live(pack), space.fills.held_blocks()), (1, 1), "generation 5 has page 1 only");
    end_hold(&mut space, fifth);
    assert_eq!((space.fills.live(pack), space.fills.held_blocks(), space.bitmap.free_blocks()), (0, 0, 1));
}

#[test]
fn image_replaced_in_the_same_pack_has_a_later_creation() {
    let pack = BlockNumber(1);
    let mut space = FreeSpace::new(2);
    assert!(space.allocate_run(1).is_some());
    space.becomes_pack(pack, 2);
    space.committed(5, vec![5]);
    space.pins.note_created(Content::Image(PageId(1)));
    space.committed(6, vec![5]);
    space.release_image(PageId(1), pack);
    space.pins.note_created(Content::Image(PageId(1)));
    space.committed(7, vec![5]);
    space.release_image(PageId(1), pack);
    assert_eq!((space.fills.live(pack), space.fills.held_blocks()), (1, 1), "the reader has the first only");
    set_readers(&mut space, Vec::new());
    assert_eq!(space.bitmap.free_blocks(), 1);
}

#[test]
fn only_images_share_a_block() {
    let mut space = FreeSpace::new(5);
    assert!(space.claim(BlockNumber(1)) && !space.claim_image(BlockNumber(1)));
    assert!(space.claim_image(BlockNumber(2)) && !space.claim(BlockNumber(2)));
    assert!((1..64).all(|_| space.claim_image(BlockNumber(2))) && !space.claim_image(BlockNumber(2)));
    assert!(!space.claim_image(BlockNumber(0)) && !space.claim_image(BlockNumber(5)));
    space.learn(BlockNumber(2), 64);
    assert_eq!(
        (space.fills.totals().packs, space.fills.totals().live, space.fills.totals().made),
        (1, 64, 64)
    );
    assert!(space.claim_image(BlockNumber(3)));
    assert_eq!(space.fills.totals().packs, 1, "nobody has looked yet");
    space.learn(BlockNumber(3), 4);
    assert!(space.fills.is_sparse(BlockNumber(3)));
    assert_eq!(
        (space.fills.totals().packs, space.fills.totals().sparse, space.fills.totals().made),
        (2, 1, 68)
    );
}

#[test]
fn a_block_can_be_claimed_once_and_only_if_it_exists() {
    let mut space = FreeSpace::new(3);
    assert!(!space.claim(BlockNumber(0)));
    assert!(space.claim(BlockNumber(2)));
    assert!(!space.claim(BlockNumber(2)));
    assert!(!space.claim(BlockNumber(3)));
}

/// Between two slices any thread may pin, replace and allocate.
#[test]
fn held_content_released_in_slices_stays_held_until_examined() {
    let mut space = FreeSpace::new(12);
    drain(&mut space);
    space.committed(5, vec![5]);
    let fifth = space.pins.hold();
    space.committed(6, vec![5]);
    (1..8).for_each(|block| space.release_live(BlockNumber(block)));
    space.pins.end_hold(fifth);
    assert!(!space.release_unneeded(1), "a reader has them");
    space.pins.set_readers(vec![]);
    assert!(space.waits_for_readers() && space.release_unneeded(3));
    assert_eq!(drain(&mut space).len(), 3);
    let sixth = space.pins.hold();
    space.committed(7, vec![]);
    space.release_live(BlockNumber(8));
    assert!(space.release_unneeded(2) && space.fills.held_blocks() == 3);
    // One that is not understood, which may need all that was not given back yet.
    space.pins.set_readers(vec![READS_ANYTHING]);
    while space.release_unneeded(1) {}
    assert_eq!((space.fills.held_blocks(), drain(&mut space).len()), (3, 2));
    space.pins.set_readers(vec![5]);
    assert!(!space.release_unneeded(100));
    assert_eq!((space.fills.held_blocks(), drain(&mut space).len()), (3, 0), "F1");
    set_readers(&mut space, vec![]);
    assert_eq!((space.fills.held_blocks(), drain(&mut space).len()), (1, 2));
    end_hold(&mut space, sixth);
    assert_eq!(drain(&mut space), [8]);
}
