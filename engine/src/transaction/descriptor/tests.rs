//! Tests of descriptors.

use super::*;

#[test]
fn a_stamp_follows_its_transaction() {
    let all = Descriptors::default();
    let id = all.take().expect("free");
    let stamp = all.stamp(id);
    assert_eq!(all.status(stamp), Status::InProgress(id));
    all.set_preparing(id);
    all.set_ready(id, Csn(7));
    assert_eq!(all.status(stamp), Status::Committed(Csn(7)));
    all.release(id);
    assert_eq!(all.status(stamp), Status::Finished);
    let again = all.take().expect("free");
    assert_eq!(again.slot, id.slot, "the same thread gets its slot back");
    assert_eq!(all.status(stamp), Status::Finished, "but in another generation");
    assert_eq!(all.status(Stamp::committed(Csn(3))), Status::Committed(Csn(3)));
    assert_eq!(all.status(Stamp::ABORTED), Status::Finished);
    assert_eq!(all.status(Stamp::ORPHANED), Status::Orphaned);
}

#[test]
fn the_oldest_pin_counts_a_snapshot_that_is_being_chosen() {
    let all = Descriptors::default();
    let (a, b) = (all.take().expect("free"), all.take().expect("free"));
    assert_eq!(all.oldest_pin(Csn(100)), Csn(100));
    all.pin(a, || {
        assert_eq!(all.oldest_pin(Csn(100)), Csn(0));
        Csn(40)
    });
    all.pin(b, || Csn(60));
    assert_eq!(all.oldest_pin(Csn(100)), Csn(40));
    all.release(a);
    assert_eq!(all.oldest_pin(Csn(100)), Csn(60));
}

/// A collector missed the snapshot of an open value: it had read the slot of the copy before the
/// copy was made, and the slot of the original after the original had moved.
#[test]
fn a_pin_copied_during_a_scan_is_not_missed() {
    let all = Descriptors::default();
    let [first, middle, last] = std::array::from_fn(|_| all.take_any().expect("free"));
    all.pin(middle, || Csn(100));
    all.pin(last, || Csn(10));
    all.release(first);
    let mut looks = 0;
    let pins: Vec<Csn> = all.scan_until_stable(|| {
        looks += 1;
        let mut pins = all.each_pin();
        let seen = pins.next();
        if looks == 1 {
            let copy = all.take_pinned_like(last).expect("free");
            assert_eq!(copy.slot, first.slot);
            all.pin(last, || Csn(50));
        }
        seen.into_iter().chain(pins).collect()
    });
    assert_eq!((looks, pins), (2, vec![Csn(10), Csn(100), Csn(50)]));
}

#[test]
fn the_transactions_that_change_a_table_are_known() {
    let all = Descriptors::default();
    let ids: Vec<DescriptorId> = (0..3).map(|_| all.take_any().expect("free")).collect();
    all.note_change_in(ids[1], TableId(7));
    (0..TABLES_NAMED as u32 + 1).for_each(|table| all.note_change_in(ids[2], TableId(100 + table)));
    assert_eq!(all.changers_of(TableId(7), ids[0]), [ids[1], ids[2]], "too many tables may be any");
    assert_eq!(all.changers_of(TableId(8), ids[0]), [ids[2]]);
    assert_eq!(all.changers_of(TableId(7), ids[1]), [ids[2]], "others only");
    all.release(ids[1]);
    all.release(ids[2]);
    assert_eq!(all.changers_of(TableId(7), ids[0]), []);
}

#[test]
fn a_released_row_is_held_no_longer() {
    let all = Descriptors::default();
    let holder = all.take().expect("free");
    let held = all.holder(holder);
    assert!(all.still_holds(held));
    all.rows_released(holder);
    assert!(!all.still_holds(held), "it may be another row, so the waiter looks again");
    assert!(all.still_holds(all.holder(holder)));
    all.release(holder);
    assert!(!all.still_holds(all.holder(holder)));
}
