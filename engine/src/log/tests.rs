//! Tests of the log room: blocks that a peer carries, holes, room for long blocks.
#![cfg(not(any(loom, feature = "shuttle")))]

use super::segment::OpenBlocks;
use super::test_world::{DATABASE, SEGMENT_BYTES, Sealed, World};
use super::*;
use crate::base::{Csn, Epoch, Location, LogId};
use crate::device::memory::MemoryStorage;
use crate::device::{OpenMode, Storage};
use std::sync::Arc;

#[test]
fn a_stolen_block_is_its_owners_wherever_it_lies() {
    let mut world = World::new();
    let mine = world.append(1, 100);
    let first = world.seal(1);
    let (own, theirs) = (world.append(0, 100), world.append(1, 200));
    let (helper, piggybacked) = world.piggyback();
    let piggybacked = piggybacked.expect("there is room");
    assert_eq!(
        (piggybacked.segment, piggybacked.offset),
        (helper.segment, helper.offset + helper.len as u64)
    );
    assert_ne!(piggybacked.segment, first.segment);
    assert_eq!((piggybacked.log, piggybacked.sequence), (LogId(1), 2));
    let later = world.append(1, 100);
    assert_eq!(world.seal(1).segment, first.segment, "the owner goes on in its own segment");
    assert_eq!(world.found(1), (vec![mine.0, theirs.0, later.0], 0));
    assert_eq!(world.found(0), (vec![own.0], 0));
    let scanned = world.scan();
    let chain = scanned.chains.iter().find(|chain| chain.log == LogId(1)).expect("has blocks");
    let carriers: Vec<_> = chain.blocks.iter().map(ScannedBlock::carrier).collect();
    assert_eq!(carriers, [None, Some(LogId(0)), None]);
}

#[test]
fn what_is_torn_in_a_write_is_lost_alone() {
    for lose_own in [false, true] {
        let mut world = World::new();
        let (own, theirs) = (world.append(0, 5000), world.append(1, 5000));
        let (helper, piggybacked) = world.piggyback();
        let (own_later, later) = (world.append(0, 10), world.append(1, 10));
        world.seal(0);
        world.seal(1);
        // The second sector of one of them did not arrive.
        world.damage(if lose_own { &helper } else { piggybacked.as_ref().expect("there is room") }, 4100);
        let (whole, torn) = if lose_own { (1, 0) } else { (0, 1) };
        let expected = [[own, own_later], [theirs, later]].map(|csns| csns.map(|csn| csn.0).to_vec());
        assert_eq!(
            world.found(whole),
            (expected[whole as usize].clone(), 0),
            "a hole of the other hides nothing"
        );
        // Nothing says that the chain begins with the lost block: the later one follows one that is
        // not covered.
        assert_eq!(world.found(torn), (vec![], 1));
    }
}

#[test]
fn a_segment_stays_for_the_records_it_carries() {
    let mut world = World::new();
    world.append(0, 10);
    // The owner's CSN is the highest in the helper's segment.
    let theirs = world.append(1, 10);
    let (helper, piggybacked) = world.piggyback();
    assert!(piggybacked.is_some());
    // The helper fills its segment with nothing above.
    while {
        world.append(0, 20_000);
        world.seal(0).segment == helper.segment
    } {}
    let last_own = Csn(world.next - 2);
    let in_use = world.segments.bytes_in_use();
    world.segments.recycle(Csn(theirs.0 - 1), Csn(theirs.0 - 1)).expect("memory");
    assert_eq!(world.segments.bytes_in_use(), in_use, "nothing is covered");
    world.segments.recycle(last_own, last_own).expect("memory");
    assert!(world.segments.bytes_in_use() < in_use);
}

#[test]
fn the_highest_csn_of_a_segment_may_be_a_carried_one() {
    let mut world = World::new();
    world.append(0, 40_000);
    let highest = (0..5).map(|_| world.append(1, 10)).last().expect("five");
    let (helper, piggybacked) = world.piggyback();
    assert!(piggybacked.is_some());
    world.append(0, 40_000);
    assert_ne!(world.seal(0).segment, helper.segment, "the next segment");
    let in_use = world.segments.bytes_in_use();
    world.segments.recycle(Csn(highest.0 - 1), Csn(highest.0 - 1)).expect("memory");
    assert_eq!(world.segments.bytes_in_use(), in_use, "the theirs record is not covered");
    world.segments.recycle(highest, highest).expect("memory");
    assert!(world.segments.bytes_in_use() < in_use);
}

#[test]
fn nothing_is_piggybacked_without_room_or_onto_a_promised_place() {
    let mut world = World::new();
    world.append(0, 10);
    let own = world.logs[0].lock().seal().expect("has something");
    world.append(1, 10);
    // A record was appended to the helper's log: the place behind the block may be promised to it.
    world.append(0, 10);
    assert!(world.logs[0].lock().carry(&own, &mut world.logs[1].lock(), 1 << 16).is_none());
    let newest = world.logs[0].lock().seal().expect("has something");
    let carry = |behind, room| world.logs[0].lock().carry(behind, &mut world.logs[1].lock(), room);
    assert!(carry(&own, 1 << 16).is_none(), "the block behind that one has the place");
    assert!(carry(&newest, 4095).is_none(), "the buffer has no room");
    let theirs = carry(&newest, 4096).expect("now");
    assert_eq!(theirs.offset, own.offset + 2 * 4096);
    assert!(carry(&newest, 4096).is_none(), "nothing is left");
    assert_eq!(world.logs[1].lock().first_volatile_csn(), Some(Csn(2)), "it is not idle while they fly");
}

/// On a full disk a long segment that is being written had the space of others until it was full.
#[test]
fn log_leaves_a_long_segment_for_a_short_one() {
    let mut world = World::with_segments(16 << 10, 16 * SEGMENT_BYTES);
    let len_of = |world: &World| world.logs[0].active_segment().map_or(0, |(segment, _)| segment.len);
    let mut all = Vec::new();
    while len_of(&world) <= SEGMENT_BYTES {
        all.push(world.append(0, 10_000).0);
        world.seal(0);
        assert!(all.len() < 1000, "segments grow");
    }
    // A record that is not sealed has its place in the long segment.
    all.push(world.append(0, 5000).0);
    let in_use = world.segments.bytes_in_use();
    for attempt in 0.. {
        world.segments.give_up();
        world.logs[0].lock().leave_long_segment();
        if len_of(&world) == SEGMENT_BYTES {
            break;
        }
        assert!(attempt < 10_000, "no short segment is made");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert_eq!(world.segments.bytes_in_use(), in_use + SEGMENT_BYTES, "records are still needed");
    world.logs[0].lock().leave_long_segment();
    all.push(world.append(0, 5000).0);
    world.seal(0);
    assert_eq!(world.found(0), (all, 0));
    world.segments.recycle(Csn(world.next), Csn(world.next)).expect("memory");
    assert_eq!(world.segments.bytes_in_use(), SEGMENT_BYTES);
}

/// Once only the length of a segment counted: no checkpoint was made, and commits failed after
/// seconds.
#[test]
fn a_waiting_long_block_requests_a_checkpoint_below_the_bound() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let segments = SegmentPool::new(storage, SEGMENT_BYTES, 8 * SEGMENT_BYTES, 1).expect("memory");
    segments.start().expect("a thread");
    let take = |len| loop {
        segments.await_ready(1).expect("memory");
        if let Some(segment) = segments.take(len) {
            return segment;
        }
    };
    (1..=5).for_each(|csn| segments.retire(take(SEGMENT_BYTES), Csn(csn), OpenBlocks::default()));
    segments.press(false);
    assert!(!segments.is_pressed(), "there is room for three");
    assert!(segments.take(4 * SEGMENT_BYTES).is_none());
    segments.press(false);
    assert!(segments.is_pressed(), "but not for a block of four");
    segments.recycle(Csn(5), Csn(5)).expect("memory");
    assert!(!segments.is_pressed());
    assert_eq!(take(4 * SEGMENT_BYTES).len, 4 * SEGMENT_BYTES);
}

/// Where a buffer is longer than a segment each record beyond that once took a new segment, a
/// sector longer than the one before, and gave that up empty: 48 files for a buffer of 256 KiB, all
/// of them in use until the next checkpoint.
#[test]
fn a_block_is_longer_than_a_segment_only_for_one_long_record() {
    let mut world = World::with_buffers(4 * SEGMENT_BYTES as usize);
    let lens = |world: &World| -> Vec<u64> {
        // None is being made.
        world.segments.await_ready(3).expect("memory");
        let mode = OpenMode { create: false, read_only: true, direct: false };
        let segments = world.storage.segments();
        let len = |id| segments.open(id, mode)?.len();
        segments.list().expect("memory").into_iter().map(|id| len(id).expect("there")).collect()
    };
    let records: Vec<u64> = (0..300).map(|_| world.append(0, 1000).0).collect();
    assert!(world.segments.bytes_in_use() <= (300 * 1024 / SEGMENT_BYTES + 2) * SEGMENT_BYTES);
    assert!(lens(&world).iter().all(|len| *len == SEGMENT_BYTES), "{:?}", lens(&world));
    let long = world.append(0, 2 * SEGMENT_BYTES as usize);
    let next = world.append(0, 1000);
    world.seal(0);
    let found = [records, vec![long.0, next.0]].concat();
    assert_eq!(world.found(0), (found, 0));
    let long = lens(&world).into_iter().filter(|len| *len > SEGMENT_BYTES).collect::<Vec<_>>();
    // With what was in the buffer: to wait until that is gone is to wait for ever where others
    // append.
    assert!(
        matches!(long[..], [len] if (2 * SEGMENT_BYTES..=3 * SEGMENT_BYTES + 4096).contains(&len)),
        "{long:?}"
    );
}

const LOG: LogId = LogId(1);

/// Blocks 1 to 5 of a log, one record each: the block's number is its CSN. Those of `lost` have a
/// wrong byte at `at`.
fn with_lost_blocks(lost: &[usize], at: u64) -> (LogContents, Vec<Sealed>) {
    let mut world = World::new();
    let mut block = || {
        world.append(1, 100);
        world.seal(1)
    };
    let blocks: Vec<Sealed> = (0..5).map(|_| block()).collect();
    lost.iter().for_each(|number| world.damage(&blocks[number - 1], at));
    let wanted = Wanted { database: DATABASE, covered: Csn::ZERO, memory: None, last_sequence: &|_, _| 5 };
    let contents = read_contents(&*world.storage, None, &wanted, &mut |_, _| (), &mut |_, _| ());
    (contents.expect("readable"), blocks)
}

#[test]
fn a_hole_is_told_by_its_blocks_its_csns_and_its_place() {
    let end = ChainEnd { log: LOG, epoch: Epoch(1), sequence: 5, last_csn: Csn(5), dense: true };
    // What is lost, what a checkpoint covers, the blocks and CSNs that are reported.
    type Hole = ((u64, u64), (u64, u64));
    let cases: [(&[usize], u64, Option<Hole>); 12] = [
        (&[], 0, None),
        (&[3], 0, Some(((3, 3), (2, 4)))),
        (&[3, 4], 0, Some(((3, 4), (2, 5)))),
        (&[5], 0, Some(((5, 5), (4, 6)))),
        (&[4, 5], 0, Some(((4, 5), (3, 6)))),
        (&[1], 0, Some(((1, 1), (0, 2)))),
        (&[1], 1, None),
        // Nothing says how many blocks there were before the first that is there.
        (&[1, 2], 0, Some(((2, 2), (0, 3)))),
        (&[1, 2], 2, None),
        (&[4], 3, Some(((4, 4), (3, 5)))),
        (&[1, 2, 3, 4, 5], 4, Some(((5, 5), (4, 6)))),
        (&[1, 2, 3, 4, 5], 5, None),
    ];
    // In the header, and in the records.
    for at in [0, 100] {
        for (lost, covered, hole) in cases {
            let (contents, blocks) = with_lost_blocks(lost, at);
            assert_eq!((contents.blocks, contents.records), (5 - lost.len() as u64, 5 - lost.len() as u64));
            let told = contents.damages(&[end], Csn(covered));
            let numbers = told.iter().map(|damage| (damage.blocks, (damage.csns.0.0, damage.csns.1.0)));
            assert_eq!(
                numbers.collect::<Vec<_>>(),
                Vec::from_iter(hole),
                "{lost:?} above {covered}: {told:?}"
            );
            let Some(((first, _), _)) = hole else { continue };
            let place = match &told[0].location {
                Location::File { offset, .. } | Location::Segment { offset, .. } => *offset,
                other => panic!("{other}"),
            };
            // A header that is whole names its block; where none is, the hole begins behind the
            // last block before it.
            let begins = if at > 0 { blocks[first as usize - 1].offset } else { 4096 * (lost[0] as u64 - 1) };
            let is_known = at > 0 || lost.len() < 5;
            assert_eq!(place, if is_known { begins } else { 0 }, "{lost:?} above {covered}, byte {at}");
        }
    }
}

/// It was once reported at the beginning of the segment of its log, where another block was.
#[test]
fn a_lost_piggybacked_block_is_located_among_the_helpers_blocks() {
    let mut world = World::new();
    let mut block = |log: usize| {
        world.append(log, 100);
        world.seal(log)
    };
    let (of_peer, mine) = ([block(0), block(0)], [block(1), block(1), block(1)]);
    let file = |segment| {
        let mode = OpenMode { create: false, read_only: false, direct: false };
        world.storage.segments().open(segment, mode).expect("there")
    };
    let shift = |block: &Sealed, to: u64| {
        let (file, mut bytes) = (file(block.segment), vec![0; 4096]);
        file.read_at(block.offset, &mut bytes).expect("memory");
        file.write_at(block.offset, &[0; 4096]).expect("memory");
        file.write_at(to, &bytes).expect("memory");
    };
    // Mine are side by side without the second, which was piggybacked between the peer's.
    shift(&mine[2], mine[1].offset);
    shift(&of_peer[1], of_peer[1].offset + 4096);
    file(of_peer[1].segment).write_at(of_peer[1].offset, &[0x77; 4096]).expect("memory");
    let wanted = Wanted { database: DATABASE, covered: Csn::ZERO, memory: None, last_sequence: &|_, _| 5 };
    let contents = read_contents(&*world.storage, None, &wanted, &mut |_, _| (), &mut |_, _| ());
    let end = ChainEnd { log: LOG, epoch: Epoch(1), sequence: 3, last_csn: Csn(5), dense: true };
    let told = contents.expect("readable").damages(&[end], Csn::ZERO);
    assert_eq!(told.iter().map(|damage| damage.blocks).collect::<Vec<_>>(), [(2, 2)]);
    let place = Location::File { path: path_of(of_peer[1].segment), offset: of_peer[1].offset };
    assert_eq!(told[0].location, place, "{}", told[0]);
}

#[test]
fn one_csn_below_the_watermark_vouches_for_all_blocks_before_it() {
    let end = |lost: &[usize], watermark| {
        let (contents, _) = with_lost_blocks(lost, 0);
        contents.end_below(LOG, Epoch(1), Csn(watermark)).map(|end| (end.sequence, end.last_csn.0))
    };
    assert_eq!(end(&[], 1), None);
    assert_eq!(end(&[], 2), Some((1, 1)));
    assert_eq!(end(&[], 4), Some((3, 3)));
    assert_eq!(end(&[], 9), Some((5, 5)));
    // The block behind a lost one says what was in it.
    assert_eq!(end(&[2], 3), Some((2, 2)));
    assert_eq!(end(&[2], 2), Some((1, 1)));
    assert_eq!(end(&[4, 5], 6), Some((3, 3)), "nothing says that there were more");
}

/// In mapped memory a record is durable before its block is written, so a checkpoint may cover one
/// that still waits for its write.
#[test]
fn the_place_of_a_block_that_is_not_written_is_nobody_elses() {
    let mut world = World::new();
    let last = world.append(0, 40_000);
    let waiting = world.logs[0].lock().seal().expect("has something");
    world.append(0, 40_000);
    let next = world.logs[0].lock().seal().expect("has something");
    assert_ne!(waiting.segment, next.segment, "the first segment is full");
    let in_use = world.segments.bytes_in_use();
    world.segments.recycle(last, last).expect("memory");
    assert_eq!(world.segments.bytes_in_use(), in_use);
    // Landed out of order: it is parked, and written all the same.
    world.write(next);
    world.segments.recycle(last, last).expect("memory");
    assert_eq!(world.segments.bytes_in_use(), in_use);
    world.write(waiting);
    world.segments.recycle(last, last).expect("memory");
    assert_eq!(world.segments.bytes_in_use(), in_use - SEGMENT_BYTES);
}
