//! Tests of the follower over segments that are written again.

use super::super::test_world::{DATABASE, World};
use super::*;
use crate::device::simulated::{Fault, FaultKind, OperationKind, SimulatedStorage};
use std::collections::BTreeSet;

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

/// What was found in a segment before the next one could not be read was missing from then on.
#[test]
fn what_was_found_before_an_error_is_returned_after_it() {
    let mut failed = 0;
    for after in 0..4 {
        let storage = SimulatedStorage::new(after);
        let mut world = World::in_storage(Arc::new(storage.clone()), 64 << 10, 64 << 10);
        let mut ends = [0; 2];
        let wanted: BTreeSet<Csn> = (0..6)
            .map(|block| {
                let (log, csn) = (block % 2, world.append(block % 2, 100));
                let sealed = world.seal(log);
                ends[log] = sealed.offset + sealed.len as u64;
                csn
            })
            .collect();
        let view = || {
            let active = world.logs.iter().map(|log| log.active_segment().expect("was written").0);
            let readable = |(segment, end)| Readable { segment, part: 0, end, is_whole: false };
            let newest = Csn(world.next - 1);
            LogView { durable: Csn(world.next), segments: active.zip(ends).map(readable).collect(), newest }
        };
        storage.inject(Fault { operation: OperationKind::Read, after, kind: FaultKind::Once, error: 5 });
        let mut follower = Follower::new(DATABASE);
        let first = follower.find(view(), Csn::ZERO, true, 1 << 20);
        failed += u64::from(first.is_err());
        let mut found = first.unwrap_or_default();
        found.extend((0..5).filter_map(|_| follower.find(view(), Csn::ZERO, true, 1 << 20).ok()).flatten());
        let csns: Vec<Csn> = found.iter().map(|found| found.block.last_csn()).collect();
        assert_eq!(csns.len(), wanted.len(), "each block is found once: {csns:?}");
        assert_eq!(csns.into_iter().collect::<BTreeSet<Csn>>(), wanted, "a fault after {after} reads");
    }
    assert!(failed > 1, "the second segment could not be read once");
}
