//! Tests of the queue of deferred frees.

use super::*;
use crate::base::PageId;

fn value(created: u64, removed: u64) -> DeferredFree {
    let reference = LargeReference { root: PageId(removed), len: 1, crc: 0 };
    DeferredFree { created: Csn(created), removed: Csn(removed), reference }
}

#[test]
fn a_value_is_freed_when_no_pin_is_in_its_lifetime() {
    let frees = DeferredFrees::default();
    frees.push([value(0, 10), value(10, 20), value(20, 30), value(30, 40)].into_iter());
    let roots = |values: Vec<DeferredFree>| values.iter().map(|v| v.reference.root.0).collect::<Vec<_>>();
    // A snapshot at 10 sees the second; one above the bound may still be taken at 35.
    assert_eq!(roots(frees.take_unseen(&[Csn(10)], Csn(10), Csn(35), false)), [10, 30]);
    assert_eq!(roots(frees.take_unseen(&[Csn(10)], Csn(10), Csn(40), true)), [40]);
    assert_eq!(frees.all(), [value(10, 20).reference]);
    assert!(frees.take_unseen(&[Csn(19)], Csn(19), Csn(40), true).is_empty());
    assert_eq!(roots(frees.take_unseen(&[Csn(20)], Csn(20), Csn(40), true)), [20]);
}

#[test]
fn a_failed_free_is_listed_and_retried_by_a_thorough_look() {
    let frees = DeferredFrees::default();
    frees.keep(value(0, 10));
    let take = |thorough| frees.take_unseen(&[], Csn(50), Csn(50), thorough).len();
    assert_eq!((take(false), frees.all().len()), (0, 1));
    assert_eq!(frees.as_of(Csn(10), &frees.pause()).len(), 1);
    assert_eq!((take(true), frees.all().len()), (1, 0));
}

#[test]
fn a_checkpoint_lists_the_values_removed_by_then() {
    let frees = DeferredFrees::default();
    frees.push([value(0, 10), value(5, 20)].into_iter());
    let paused = frees.pause();
    assert_eq!(frees.as_of(Csn(15), &paused).len(), 1);
    assert_eq!(frees.as_of(Csn(20), &paused).len(), 2);
}
