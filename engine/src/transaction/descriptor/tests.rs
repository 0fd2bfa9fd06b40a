//! Tests of descriptors.

use super::*;

fn seconds(most: u64) -> RowWait {
    RowWait::begin(Duration::from_secs(most))
}

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
fn waiting_for_the_own_thread_is_a_conflict() {
    let all = Descriptors::default();
    let (a, b) = (all.take().expect("free"), all.take().expect("free"));
    let error = all.wait_for(a, all.holder(b), &seconds(60), &|| Ok(())).expect_err("would never end");
    assert_eq!(error.kind(), ErrorKind::Conflict);
}

#[test]
fn a_cycle_of_waits_is_a_conflict_for_one_waiter() {
    let all = std::sync::Arc::new(Descriptors::default());
    let a = all.take().expect("free");
    let other = all.clone();
    let (send, receive) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let b = other.take().expect("free");
        send.send(b).expect("receiver lives");
        let result = other.wait_for(b, other.holder(a), &seconds(20), &|| Ok(()));
        other.release(b);
        result.is_ok()
    });
    let b = receive.recv().expect("sender lives");
    let mine = all.wait_for(a, all.holder(b), &seconds(20), &|| Ok(())).is_ok();
    all.release(a);
    let theirs = thread.join().expect("no panic");
    assert!(mine != theirs || !mine, "two waits for each other cannot both succeed first");
}

#[test]
fn a_waiter_is_woken_when_the_other_finishes() {
    let all = std::sync::Arc::new(Descriptors::default());
    let a = all.take().expect("free");
    let other = all.clone();
    let thread = std::thread::spawn(move || {
        let b = other.take().expect("free");
        let result = other.wait_for(b, other.holder(a), &seconds(20), &|| Ok(()));
        other.release(b);
        result
    });
    std::thread::sleep(Duration::from_millis(10));
    all.release(a);
    thread.join().expect("no panic").expect("no conflict");
}

/// A thread gets its last slot again. The search mistook a transaction in the slot for the previous
/// one, which was over, and followed the waits of a waiter that was being woken: a conflict in the
/// middle of a queue for a row.
#[test]
fn a_wait_for_an_ended_transaction_is_not_for_its_successor() {
    let all = Descriptors::default();
    let before = all.take().expect("free");
    let waiter = std::thread::scope(|scope| {
        let takes = scope.spawn(|| all.take_any().expect("free"));
        takes.join().expect("no panic")
    });
    // The waiter is woken when the transaction ends, and has no processor yet.
    all.get(waiter.slot).waits_for.store(all.stamp(before).0, Ordering::SeqCst);
    assert!(all.closes_a_cycle(before, waiter));
    all.release(before);
    let next = all.take().expect("free");
    assert_eq!(next.slot, before.slot, "the same thread gets its slot back");
    assert!(!all.closes_a_cycle(next, waiter));
    // A transaction that is over waits for none.
    all.get(next.slot).waits_for.store(all.stamp(waiter).0, Ordering::SeqCst);
    assert!(all.closes_a_cycle(waiter, next));
    assert!(!all.closes_a_cycle(waiter, before));
}

/// The search for cycles followed the wait of a transaction that was about to wake up, because its
/// row had been restored by a rollback to a savepoint.
#[test]
fn a_wait_for_a_released_row_is_in_no_cycle() {
    let all = Descriptors::default();
    let holder = all.take().expect("free");
    let waiter = std::thread::scope(|scope| {
        let takes = scope.spawn(|| all.take_any().expect("free"));
        takes.join().expect("no panic")
    });
    let mine = all.get(waiter.slot);
    let held = all.holder(holder);
    mine.waits_since.store(held.releases, Ordering::SeqCst);
    mine.waits_for.store(all.stamp(holder).0, Ordering::SeqCst);
    assert!(all.closes_a_cycle(holder, waiter));
    all.rows_released(holder);
    assert!(!all.closes_a_cycle(holder, waiter));
    all.wait_for(waiter, held, &seconds(60), &|| Ok(())).expect("the row is released");
}
