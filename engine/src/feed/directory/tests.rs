//! Tests of what counts in a directory whose files cannot be flushed for a moment.

use super::*;
use crate::device::simulated::{Fault, FaultKind, OperationKind, SimulatedStorage};
use crate::log::test_world::{DATABASE, World};

const LOOK: Look =
    Look { position: Csn::ZERO, with_chunks: false, all: true, to_the_end: true, keep_bytes: 0 };

fn returned(log: &mut DirectoryLog) -> Vec<Csn> {
    let (found, _) = log.look(LOOK).expect("no fault");
    found.into_iter().map(|found| found.block.last_csn()).collect()
}

/// A flush after one that failed says nothing of what was written before both.
#[test]
fn no_second_flush_makes_what_a_failed_one_left_durable() {
    let storage = SimulatedStorage::new(1);
    let mut world = World::in_storage(Arc::new(storage.clone()), 64 << 10, 64 << 10);
    let base = Manifest { epoch: Epoch(1), first_csn: Csn(1), ..Manifest::new(DATABASE, 4096) };
    storage.note_epoch(1);
    let mut log = DirectoryLog::new(Arc::new(storage.clone()), &base).expect("on a disk");
    let first = world.append(0, 100);
    world.seal(0);
    assert_eq!(returned(&mut log), [], "no watermark vouches for it");
    storage.inject(Fault { operation: OperationKind::Flush, after: 0, kind: FaultKind::Once, error: 5 });
    log.look(LOOK).expect_err("the flush fails");
    let second = world.append(0, 100);
    world.seal(0);
    assert_eq!(returned(&mut log), []);
    assert_eq!(returned(&mut log), [second], "it was flushed");
    assert!(log.has_more());
    log.decided(&Manifest { checkpoint: second, ..base });
    assert_eq!(returned(&mut log), [first], "a checkpoint covers it");
    assert!(!log.has_more());
}

/// The note of the lock's holder could not be read for a moment, and what was durable was missing.
#[test]
fn what_is_durable_is_returned_although_a_look_failed() {
    let mut failed = 0;
    for after in 0..20 {
        let storage = SimulatedStorage::new(after);
        let mut world = World::in_storage(Arc::new(storage.clone()), 64 << 10, 64 << 10);
        let base = Manifest { epoch: Epoch(1), first_csn: Csn(1), ..Manifest::new(DATABASE, 4096) };
        storage.note_epoch(1);
        let mut log = DirectoryLog::new(Arc::new(storage.clone()), &base).expect("on a disk");
        let csns: Vec<Csn> = (0..2).map(|log| world.append(log, 100)).collect();
        (0..2).for_each(|log| assert!(world.seal(log).len > 0));
        storage.inject(Fault { operation: OperationKind::Read, after, kind: FaultKind::Once, error: 5 });
        let looks: Vec<_> = (0..6).map(|_| log.look(LOOK)).collect();
        failed += looks.iter().filter(|look| look.is_err()).count();
        let found = looks.into_iter().filter_map(Result::ok).flat_map(|(found, _)| found);
        let mut found: Vec<Csn> = found.map(|found| found.block.last_csn()).collect();
        found.sort_unstable();
        assert_eq!(found, csns, "a fault after {after} reads");
    }
    assert!(failed > 0, "some looks failed");
}
