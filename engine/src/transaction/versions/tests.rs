//! Tests of the table of version slots.

use super::*;
use crate::base::PageId;
use crate::sync::epoch::pin;

fn undo(bytes: &[u8]) -> Undo<'_> {
    Undo { prior: 0, before: Before::Value(bytes) }
}

#[test]
fn every_undo_reads_as_it_was_written() {
    let versions = Arc::new(Versions::new(1 << 20, &Arc::default()));
    let guard = pin();
    let large = LargeReference { root: PageId(7), len: 1 << 29, crc: 0xdead_beef };
    let contents = [
        Before::Absent,
        Before::Tombstone,
        Before::Unchanged,
        Before::Value(b""),
        Before::Value(&[3; 4000]),
        Before::Reference(large),
    ];
    for before in contents {
        let undo = Undo { prior: u64::MAX - 5, before };
        let used = versions.bytes().0;
        let handle = versions.create(0, Stamp::committed(Csn(5)), undo, &guard).expect("room");
        let read = versions.read(handle, &guard).expect("live").undo;
        assert_eq!((read.prior, read.before), (undo.prior, before));
        assert_eq!(versions.bytes().0, used + undo.bytes());
        versions.give_back(0, &[handle], &guard);
        assert_eq!(versions.bytes().0, used, "as many bytes are given back as were taken: {before:?}");
    }
}

#[test]
fn a_stale_handle_reads_as_settled() {
    let versions = Arc::new(Versions::new(1 << 20, &Arc::default()));
    let guard = pin();
    let stamp = Stamp::committed(Csn(5));
    let first = versions.create(0, stamp, undo(b"old"), &guard).expect("room");
    assert_eq!(versions.read(first, &guard).expect("live").stamp, stamp);
    assert!(!versions.is_settled(first.word()));
    versions.give_back(0, &[first], &guard);
    versions.give_back(0, &[first], &guard);
    assert_eq!(versions.count(), 0, "once is enough");
    let second = versions.create(0, stamp, undo(b"other"), &guard).expect("room");
    assert_eq!(first.index(), second.index());
    assert!(versions.read(first, &guard).is_none());
    assert!(versions.is_settled(first.word()) && versions.is_settled(0));
    assert_eq!(versions.count(), 1);
}

#[test]
fn a_full_budget_is_an_error_until_bytes_are_freed() {
    let versions = Arc::new(Versions::new(1000, &Arc::default()));
    let guard = pin();
    let stamp = Stamp::committed(Csn(1));
    let first = versions.create(0, stamp, undo(&[0; 700]), &guard).expect("room");
    let error = versions.create(0, stamp, undo(&[0; 700]), &guard).expect_err("full");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(error.to_string().contains("version_bytes"));
    versions.give_back(0, &[first], &guard);
    assert_eq!(versions.bytes().0, 0);
    versions.create(0, stamp, undo(&[0; 700]), &guard).expect("room again");
}

#[test]
fn a_deferred_slot_stays_readable_for_old_readers() {
    let versions = Arc::new(Versions::new(1 << 20, &Arc::default()));
    let reader = pin();
    let handle = versions.create(0, Stamp::committed(Csn(1)), undo(b"x"), &reader).expect("room");
    versions.set_stamp(handle, Stamp::ABORTED);
    versions.give_back_later(0, handle, &pin());
    assert_eq!(versions.read(handle, &reader).expect("still there").stamp, Stamp::ABORTED);
}

/// A thread that panicked after its commit stamped its versions again, when other transactions had
/// reused them.
#[test]
fn a_version_given_back_is_not_stamped_again() {
    let versions = Arc::new(Versions::new(1 << 20, &Arc::default()));
    let (own, other, committed) = (Stamp(1 << 63 | 1), Stamp(1 << 63 | 2), Stamp::committed(Csn(7)));
    let create = |stamp| versions.create(0, stamp, undo(b"x"), &pin()).expect("room");
    let (first, second) = (create(own), create(own));
    versions.give_back(0, &[first], &pin());
    let again = create(other);
    assert_eq!(again.index(), first.index());
    versions.change_stamp(first, own, committed);
    versions.change_stamp(second, own, committed);
    let stamp = |handle| versions.read(handle, &pin()).expect("live").stamp;
    assert_eq!((stamp(again), stamp(second)), (other, committed));
}

#[test]
fn the_charge_falls_once_readers_and_the_allocator_are_done() {
    let account = Arc::new(Account::default());
    let versions = Arc::new(Versions::new(8 << 20, &account));
    let stamp = Stamp::committed(Csn(1));
    let create = || versions.create(0, stamp, undo(&[0; 900]), &pin()).expect("room");
    let handles: Vec<_> = (0..5000).map(|_| create()).collect();
    let full = account.bytes();
    assert!(full >= 5000 * 900);
    let lower = || {
        versions.begin_lowering_charge();
        versions.lower_charge(u64::MAX);
    };
    let reader = pin();
    versions.give_back(0, &handles, &pin());
    assert_eq!(versions.bytes().0, 0);
    lower();
    assert!(account.bytes() >= full, "a reader may be looking at all of them");
    drop(reader);
    // The library frees some garbage each time; other tests' threads may be in an epoch.
    for _ in 0..10_000 {
        pin().flush();
        if versions.bytes_in_memory() == 0 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert_eq!(versions.surplus(), (full, full));
    lower();
    // Slots are kept.
    assert_eq!(account.bytes(), 5000 * FREE_SLOT_BYTES as u64);
    create();
    assert!(account.bytes() > 5000 * FREE_SLOT_BYTES as u64, "it rises again");
}
