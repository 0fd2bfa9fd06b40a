//! What the log gives up on a full disk. The calling thread prepares segments.

use super::super::file::{OpenBlocks, Segment};
use super::super::tests::{growing_pool, lengths, pool, prepare, take};
use super::*;
use crate::base::Csn;
use crate::base::clock::Clock;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn full_disk_gives_up_long_segments_and_keeps_short_ones() {
    let (mut pool, disk) = growing_pool();
    let clock = Clock::manual();
    Arc::get_mut(&mut pool).expect("nobody else has it").clock = clock.clone();
    let taken: Vec<Segment> = std::iter::from_fn(|| take(&pool, 1)).take(6).collect();
    prepare(&pool);
    pool.await_ready(2).expect("they are ready");
    let ready = || lengths(&pool.state.lock().ready);
    assert_eq!(ready(), [16, 16]);
    disk.set_capacity(Some(pool.file_bytes()));
    assert!(pool.can_give_up() && !pool.is_cramped());
    pool.give_up();
    assert_eq!(ready(), [16], "the last one stays until a short one is READY");
    prepare(&pool);
    pool.give_up();
    prepare(&pool);
    assert_eq!((ready(), pool.is_cramped()), (vec![1, 1], true));
    let (short, long): (Vec<_>, Vec<_>) = taken.into_iter().partition(|segment| segment.len <= FIRST_BYTES);
    long.into_iter()
        .zip(1..)
        .for_each(|(segment, csn)| pool.retire(segment, Csn(csn), OpenBlocks::default()));
    assert!(pool.can_give_up(), "a checkpoint frees them");
    pool.recycle(Csn(9), Csn(9)).expect("they are removed");
    assert_eq!((ready(), pool.file_bytes()), (vec![1, 1], (2 + short.len() as u64) * FIRST_BYTES));
    assert!(!pool.can_give_up(), "nothing but short ones is left");
    // Other users of the disk have the space, and segments stay short.
    disk.set_capacity(Some(pool.file_bytes()));
    assert_eq!(take(&pool, 1).expect("one is ready").len, FIRST_BYTES);
    clock.advance(Duration::from_secs(11));
    disk.set_capacity(None);
    assert_eq!(take(&pool, 1).expect("one is ready").len, FIRST_BYTES);
    prepare(&pool);
    assert!(ready().contains(&4), "there is space again: {:?}", ready());
}

/// A long segment was tried again and again, although there was space for a short one.
#[test]
fn nearly_full_disk_has_space_for_a_short_segment() {
    let (pool, disk) = growing_pool();
    let taken: Vec<Segment> = std::iter::from_fn(|| take(&pool, 1)).take(4).collect();
    prepare(&pool);
    disk.set_capacity(Some(pool.file_bytes() + 2 * FIRST_BYTES));
    let last = std::iter::from_fn(|| take(&pool, 1)).take(2).last().expect("two are ready");
    let short = take(&pool, 1).expect("there is space for it");
    assert_eq!((last.len, short.len), (16 * FIRST_BYTES, FIRST_BYTES), "{}", taken.len());
    assert!(!pool.is_disk_full());
}

#[test]
fn committer_waits_for_two_checkpoints_that_shorten_pages() {
    let (pool, disk, _) = pool(20);
    disk.set_capacity(Some(0));
    let ticket = pool.begin_waiting();
    for made in 0..3 {
        assert!(take(&pool, 1).is_none());
        assert_eq!(pool.refusal(ticket, true).is_some(), made == 2, "{made} checkpoints were made");
        pool.press(true);
        assert!(pool.is_pressed());
        pool.recycle(Csn::ZERO, Csn::ZERO).expect("no I/O");
    }
    assert!(take(&pool, 1).is_none());
    assert!(pool.refusal(pool.begin_waiting(), false).is_some(), "no checkpoint helps");
}

/// A checkpoint ended between the look for a segment and the decision to refuse.
#[test]
fn segment_that_became_ready_is_no_reason_to_refuse() {
    let (pool, disk, _) = pool(20);
    let only = take(&pool, 1).expect("there is room");
    while pool.take(1).is_some() {}
    disk.set_capacity(Some(0));
    let ticket = pool.begin_waiting();
    assert!(take(&pool, 1).is_none());
    assert!(pool.refusal(ticket, false).is_some());
    pool.put_back(only);
    assert!(pool.refusal(ticket, false).is_none());
    assert!(pool.take(1).is_some());
}
