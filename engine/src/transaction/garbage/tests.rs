//! Which versions and deletions go, and when.

use super::super::view::{Outcome, View};
use super::*;
use crate::tree::Held;

/// Gives back what waits for an epoch, which takes until no thread of another test is in one.
fn run_pending_frees(versions: &Versions) {
    let waits = || versions.frees_pending() > 0;
    (0..10_000).take_while(|_| waits()).for_each(|_| {
        pin().flush();
        std::thread::sleep(std::time::Duration::from_millis(1));
    });
    assert!(!waits());
}

/// A version that had been pruned and waited for an epoch was itself pruned. The version it took
/// over was given back although its former successor still referred to it.
#[test]
fn a_pruned_version_takes_over_nothing() {
    let versions = Arc::new(Versions::new(1 << 20, &Arc::default()));
    let (descriptors, garbage) = (Descriptors::default(), Garbage::default());
    let chain = |csn, prior, before: &[u8], shard| {
        let undo = Undo { prior, before: Before::Value(before) };
        let handle = versions.create(0, Stamp::committed(Csn(csn)), undo, &pin()).expect("room");
        garbage.push(shard, Csn(csn), std::iter::once(handle), std::iter::empty());
        handle.word()
    };
    let ten = chain(10, 0, b"old", 0);
    let twenty = chain(20, ten, b"of 10", 0);
    let newest = chain(300, twenty, b"of 20", 1);
    let [old, middle] = [5, 15].map(|csn| {
        let id = descriptors.take().expect("free");
        descriptors.pin(id, || Csn(csn));
        id
    });
    let prune = |shard| {
        let horizon = Horizon { bound: Csn(300), descriptors: &descriptors };
        garbage.collect_shard(
            shard,
            Collection { versions: &versions, horizon: &horizon, most: usize::MAX, pruning: Pruning::Now },
        );
    };
    let seen_at_five = || {
        let view = View { snapshot: Csn(5), own: Stamp(0) };
        let mut value = b"of 300".to_vec();
        let outcome = view.resolve(newest, Held::Value, &mut value, &versions, &descriptors, &pin());
        (outcome, value)
    };
    let reader = pin();
    prune(1);
    descriptors.release(middle);
    prune(0);
    drop(reader);
    run_pending_frees(&versions);
    assert!(versions.is_settled(twenty));
    assert_eq!(seen_at_five(), (Outcome::Value(Csn(0)), b"old".to_vec()));
    prune(1);
    run_pending_frees(&versions);
    assert!(versions.is_settled(ten), "no snapshot needs it once the middle one is gone");
    assert_eq!(seen_at_five(), (Outcome::Value(Csn(0)), b"old".to_vec()));
    descriptors.release(old);
}

/// The version was given back, and its transaction stamped the next version in the slot.
#[test]
fn a_version_that_is_yet_to_be_stamped_is_not_pruned() {
    let versions = Arc::new(Versions::new(1 << 20, &Arc::default()));
    let (descriptors, garbage) = (Descriptors::default(), Garbage::default());
    let [snapshot, writer] = std::array::from_fn(|_| descriptors.take().expect("free"));
    descriptors.pin(snapshot, || Csn(1));
    let undo = |prior| Undo { prior, before: Before::Tombstone };
    let below = versions.create(0, descriptors.stamp(writer), undo(0), &pin()).expect("room");
    descriptors.set_preparing(writer);
    descriptors.set_ready(writer, Csn(20));
    let above = versions.create(0, Stamp::committed(Csn(30)), undo(below.word()), &pin()).expect("room");
    garbage.push(0, Csn(30), std::iter::once(above), std::iter::empty());
    let horizon = Horizon { bound: Csn(30), descriptors: &descriptors };
    garbage.collect_all(&versions, &horizon, Pruning::Now, &|| false);
    run_pending_frees(&versions);
    assert!(!versions.is_settled(below.word()));
}

/// The device was far behind when a queue was pruned, and versions that could not be judged counted
/// as needed by snapshots. The next pruning waited for twice as many, which did not fit in memory.
#[test]
fn awaited_memory_is_pruned_after_a_pruning_that_judged_little() {
    let versions = Arc::new(Versions::new(4 << 20, &Arc::default()));
    let (descriptors, garbage) = (Descriptors::default(), Garbage::default());
    let snapshot = descriptors.take().expect("free");
    descriptors.pin(snapshot, || Csn(1));
    let (mut csn, mut prior) = (1, 0);
    let mut change = |most: u64| {
        for _ in 0..most {
            csn += 1;
            let undo = Undo { prior, before: Before::Value(&[0; 100]) };
            let Ok(version) = versions.create(0, Stamp::committed(Csn(csn)), undo, &pin()) else { break };
            garbage.push(0, Csn(csn), std::iter::once(version), std::iter::empty());
            prior = version.word();
        }
        Csn(csn)
    };
    let collect = |bound, pruning| {
        garbage.collect_all(&versions, &Horizon { bound, descriptors: &descriptors }, pruning, &|| false);
        pin().flush();
    };
    change(14_000);
    collect(Csn(4200), Pruning::WhenItPays);
    let newest = change(u64::MAX);
    collect(newest, Pruning::Now);
    // Slots are given back when no thread of another test is in an epoch.
    let is_short = || versions.bytes().0 > 4096;
    (0..10_000).take_while(|_| is_short()).for_each(|_| {
        pin().flush();
        std::thread::sleep(std::time::Duration::from_millis(1));
    });
    assert!(!is_short(), "{:?}: all but one version are between two snapshots", versions.bytes());
    // Nothing new can be judged, unless a snapshot is gone.
    let worth = |pins: &[Csn]| is_worth_pruning(&garbage.shards[0].lock(), newest, pins, Pruning::Now);
    assert!(!worth(&[Csn(1)]) && !worth(&[Csn(1), newest]) && worth(&[newest]));
}

/// A transaction that waits a little before it begins waited for all that another thread collected,
/// and then collected the rest itself.
#[test]
fn timed_collection_ends_in_time_and_yields_to_a_collector() {
    let versions = Arc::new(Versions::new(1 << 20, &Arc::default()));
    let (descriptors, garbage) = (Descriptors::default(), Garbage::default());
    for shard in 0..SHARDS {
        let undo = Undo { prior: 0, before: Before::Absent };
        let version = versions.create(0, Stamp::committed(Csn(2)), undo, &pin()).expect("room");
        garbage.push(shard, Csn(2), std::iter::once(version), std::iter::empty());
    }
    let left = || garbage.shards.iter().filter(|shard| !shard.lock().versions.is_empty()).count();
    let horizon = Horizon { bound: Csn(2), descriptors: &descriptors };
    let other = garbage.collector.lock();
    garbage.collect_until(&versions, &horizon, || false);
    assert_eq!(left(), SHARDS);
    drop(other);
    garbage.collect_until(&versions, &horizon, || true);
    assert_eq!(left(), SHARDS - 1, "one shard is collected however little time there is");
    garbage.collect_until(&versions, &horizon, || false);
    assert_eq!(left(), 0);
}

/// Queues a change by transaction `csn` in a shard, with the key that it deleted, if it did.
fn commit_change(
    (garbage, shard): (&Garbage, usize),
    versions: &Versions,
    csn: u64,
    undo: Undo<'_>,
    (table, deleted): (&Arc<TableState>, Option<&[u8]>),
) -> u64 {
    let version = versions.create(0, Stamp::committed(Csn(csn)), undo, &pin()).expect("room");
    let delete = |key: &[u8]| {
        versions.add_bytes(Delete::bytes_for(key.len()));
        Delete { version, table: table.clone(), key: key.into() }
    };
    garbage.push(shard, Csn(csn), std::iter::once(version), deleted.map(delete).into_iter());
    version.word()
}

/// Entries of deleted keys were removed in the order of their deletion only. All others stayed
/// behind one that a snapshot saw, and a key that was deleted again and again filled the memory.
#[test]
fn pruned_deletions_do_not_wait_for_one_that_a_snapshot_sees() {
    let (_system, table) = crate::transaction::tests::system();
    let versions = Arc::new(Versions::new(256 << 20, &Arc::default()));
    let (descriptors, garbage) = (Descriptors::default(), Garbage::default());
    let snapshot = descriptors.take().expect("free");
    descriptors.pin(snapshot, || Csn(1));
    let change = |csn, prior, before, deleted: Option<&[u8]>| {
        commit_change((&garbage, 0), &versions, csn, Undo { prior, before }, (&table, deleted))
    };
    let value = || Before::Value(&[0; 8]);
    change(2, 0, value(), Some(b"seen"));
    let (mut prior, mut before, mut most) = (0, Before::Absent, 0);
    for csn in (3..200_000).step_by(2) {
        prior = change(csn, prior, before, None);
        prior = change(csn + 1, prior, value(), Some(b"key"));
        before = Before::Tombstone;
        if csn % 1000 == 1 {
            let horizon = Horizon { bound: Csn(csn + 1), descriptors: &descriptors };
            garbage.collect_shard(
                0,
                Collection {
                    versions: &versions,
                    horizon: &horizon,
                    most: COLLECT_MOST,
                    pruning: Pruning::Now,
                },
            );
            most = most.max(garbage.shards[0].lock().deletes.len());
        }
    }
    assert!(most < 100, "{most} deletions wait");
}

/// Before-images that are taken over are copies, which were not charged before the next version was
/// created.
#[test]
fn before_images_copied_by_pruning_are_charged() {
    let account = Arc::default();
    let versions = Arc::new(Versions::new(64 << 20, &account));
    let (descriptors, garbage) = (Descriptors::default(), Garbage::default());
    let snapshot = descriptors.take().expect("free");
    descriptors.pin(snapshot, || Csn(1));
    let mut prior = 0;
    for csn in 2..5000 {
        let undo = Undo { prior, before: Before::Value(&[0; 400]) };
        let version = versions.create(0, Stamp::committed(Csn(csn)), undo, &pin()).expect("room");
        garbage.push(0, Csn(csn), std::iter::once(version), std::iter::empty());
        prior = version.word();
    }
    // A reader in an epoch keeps replaced before-images.
    let _reader = pin();
    let before = versions.bytes_in_memory();
    let horizon = Horizon { bound: Csn(5000), descriptors: &descriptors };
    garbage.collect_all(&versions, &horizon, Pruning::Now, &|| false);
    assert!(versions.bytes_in_memory() > before + 1_000_000);
    assert!(account.bytes() >= versions.bytes_in_memory(), "{} bytes are charged", account.bytes());
}

/// As above, but the insertion after the deletion was in another shard, whose pruning gave the
/// deletion's version back.
#[test]
fn deletions_pruned_from_another_shard_are_purged() {
    let (_system, table) = crate::transaction::tests::system();
    let versions = Arc::new(Versions::new(1 << 20, &Arc::default()));
    let (descriptors, garbage) = (Descriptors::default(), Garbage::default());
    let snapshot = descriptors.take().expect("free");
    descriptors.pin(snapshot, || Csn(1));
    let change = |shard, csn, prior, before, deleted: Option<&[u8]>| {
        commit_change((&garbage, shard), &versions, csn, Undo { prior, before }, (&table, deleted))
    };
    let collect = |csn| {
        let horizon = Horizon { bound: Csn(csn), descriptors: &descriptors };
        garbage.collect_all(&versions, &horizon, Pruning::Now, &|| false);
        garbage.shards[0].lock().deletes.len()
    };
    change(0, 2, 0, Before::Value(&[0; 8]), Some(b"seen"));
    let deleted = change(0, 3, 0, Before::Value(&[0; 8]), Some(b"key"));
    assert_eq!(collect(3), 2);
    change(1, 4, deleted, Before::Tombstone, None);
    // The first may have come to the deletion before its version was pruned.
    collect(4);
    assert_eq!(collect(4), 1);
    descriptors.release(snapshot);
    assert_eq!(collect(4), 0);
    run_pending_frees(&versions);
    assert_eq!(versions.bytes().0, 0);
}
