//! Unit tests of `chunks`.

use super::*;

#[test]
fn the_log_is_kept_for_transactions_in_progress() {
    let pins = Pins::new(1000);
    let cover = |csn| pins.cover(Csn(csn), &|_| 0).0;
    assert_eq!(cover(10), 10);
    let first = pins.announce(|| Csn(20));
    let second = pins.announce(|| Csn(30));
    assert_eq!(cover(15), 15, "its chunks are above the checkpoint");
    assert_eq!(cover(40), 20);
    pins.begin_commit(first).expect("not revoked").committed(Csn(45));
    pins.release(first);
    assert_eq!(cover(44), 20, "it committed after the checkpoint");
    assert_eq!(cover(45), 30);
    pins.release(second);
    assert_eq!(cover(50), 50);
}

#[test]
fn the_oldest_pin_is_revoked_if_too_much_is_kept() {
    let pins = Pins::new(1000);
    let old = pins.announce(|| Csn(20));
    let young = pins.announce(|| Csn(30));
    let kept = |covered: Csn| if covered < Csn(30) { 1001 } else { 1000 };
    assert_eq!(pins.cover(Csn(40), &kept), Csn(30));
    let error = pins.check(old).expect_err("revoked");
    assert!(error.kind() == ErrorKind::OutOfMemory && error.to_string().contains("log_bytes_max"));
    assert!(pins.begin_commit(old).is_err() && pins.check(young).is_ok());
    // One that is committing is not revoked, and one that gave up committing is.
    let committing = pins.begin_commit(young).expect("not revoked");
    assert_eq!(pins.cover(Csn(50), &|_| 1001), Csn(30));
    drop(committing);
    assert_eq!(pins.cover(Csn(50), &|_| 1001), Csn(50));
    assert!(pins.check(young).is_err());
}
