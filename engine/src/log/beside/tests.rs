//! Tests of the watcher of segments, with files that cannot be read for a moment.

use super::super::test_world::{DATABASE, World};
use super::*;
use crate::device::simulated::{Fault, FaultKind, OperationKind, SimulatedStorage};

/// What was found in a segment before the next one could not be read was missing from then on.
#[test]
fn what_was_found_before_an_error_is_returned_after_it() {
    let mut failed = 0;
    for after in 0..16 {
        let storage = SimulatedStorage::new(after);
        let mut world = World::in_storage(Arc::new(storage.clone()), 64 << 10, 64 << 10);
        let wanted: BTreeSet<Csn> = (0..6)
            .map(|block| {
                let csn = world.append(block % 2, 100);
                world.seal(block % 2);
                csn
            })
            .collect();
        storage.inject(Fault { operation: OperationKind::Read, after, kind: FaultKind::Once, error: 5 });
        let mut watcher = SegmentWatcher::new(Arc::new(storage), DATABASE);
        let look =
            Look { position: Csn::ZERO, with_chunks: true, all: true, to_the_end: true, keep_bytes: 1 << 20 };
        let first = watcher.look(look);
        failed += u64::from(first.is_err());
        let mut found = first.unwrap_or_default();
        found.extend((0..5).filter_map(|_| watcher.look(look).ok()).flatten());
        let csns: Vec<Csn> = found.iter().map(|found| found.block.last_csn()).collect();
        assert_eq!(csns.len(), wanted.len(), "each block is found once: {csns:?}");
        assert_eq!(csns.into_iter().collect::<BTreeSet<Csn>>(), wanted, "a fault after {after} reads");
    }
    assert!(failed > 1, "some looks failed");
}
