//! Tests of the follower over segments that are written again.

use super::super::test_world::{DATABASE, World};
use super::*;

/// The last records of the blocks that are found in the first `end` bytes of the segment of log 0.
fn find(follower: &mut Follower, world: &World, end: u64, durable: Csn) -> Vec<Csn> {
    let (segment, _) = world.logs[0].active_segment().expect("was written");
    let segments = vec![Readable { segment, part: 0, end, is_whole: false }];
    let view = LogView { durable, segments, newest: Csn(world.next - 1) };
    let found = follower.find(view, Csn::ZERO, true, 0).expect("memory");
    found.into_iter().map(|found| found.block.last_csn()).collect()
}

/// The new block was taken for the old one, and its transactions were missing.
#[test]
fn a_block_is_found_in_the_place_of_an_old_one_that_is_known() {
    let (mut world, mut follower) = (World::new(), Follower::new(DATABASE));
    let old = world.append(0, 100);
    let place = world.seal(0);
    let end = place.offset + place.len as u64;
    assert_eq!(find(&mut follower, &world, end, old), [old]);
    let new = world.append(1, 100);
    let block = world.logs[1].lock().seal().expect("has something").finish();
    let (segment, _) = world.logs[0].active_segment().expect("was written");
    segment.file.write_at(place.offset, &block.buffer[..block.len]).expect("memory");
    assert_eq!(find(&mut follower, &world, end, new), [new]);
    assert_eq!(find(&mut follower, &world, end, new.next()), []);
}
