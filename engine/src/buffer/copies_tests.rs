//! Copies of pages that are not in memory.

use super::test_sources::{DAMAGED, Images, PAGE_BYTES, PANICS};
use super::{Copies, Leaving, Pool, ReadAhead};
use crate::base::PageId;
use crate::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

const BYTE: usize = 64;

/// With memory for `pages`, and the pages 1 to 99 in the store.
fn pool(pages: u64) -> (Arc<Pool>, Arc<Images>) {
    let images = Arc::<Images>::default();
    let pool = Pool::new(PAGE_BYTES, pages * PAGE_BYTES as u64, images.clone()).expect("small");
    pool.restore((1..100).map(PageId)).expect("each id once");
    (pool, images)
}

fn byte(copies: &mut Copies, page: u64) -> Option<u8> {
    copies.find(PageId(page)).map(|bytes| bytes.get_u8(BYTE))
}

fn pages(ids: impl IntoIterator<Item = u64>) -> Vec<PageId> {
    ids.into_iter().map(PageId).collect()
}

#[test]
fn a_copy_is_read_once_and_its_page_stays_where_it_is() {
    for with_thread in [false, true] {
        let (pool, images) = pool(256);
        let _thread = with_thread.then(|| ReadAhead::start(&pool).expect("a thread"));
        let mut copies = Copies::default();
        assert!(copies.is_empty() && copies.find(PageId(1)).is_none());
        assert_eq!(pool.window_pages(), 4);
        assert!(copies.ask(&pool, &pages(1..50)), "the first four");
        assert!(copies.ask(&pool, &pages(5..9)));
        let found: Vec<_> = (1..=9).map(|page| byte(&mut copies, page)).collect();
        assert_eq!(found[..4], [Some(1), Some(2), Some(3), Some(4)]);
        assert_eq!(found[4..], [Some(5), Some(6), Some(7), Some(8), None]);
        // The second four were come to: the first are forgotten.
        assert_eq!(byte(&mut copies, 1), None);
        assert_eq!((images.reads.load(Ordering::Relaxed), pool.resident_pages()), (8, 0));
        assert_eq!(pool.pages_copied(), 8);
    }
}

#[test]
fn a_copy_of_a_page_that_was_in_memory_since_is_not_used() {
    let (pool, _) = pool(256);
    let mut copies = Copies::default();
    assert!(copies.ask(&pool, &pages([1, 2])));
    pool.exclusive(PageId(1)).expect("readable").bytes_mut().fill(0, PAGE_BYTES, 77);
    assert_eq!((byte(&mut copies, 1), byte(&mut copies, 2)), (None, Some(2)), "it is in memory");
    let version = pool.optimistic(PageId(1)).expect("in memory").version();
    let mut leaving = Leaving::default();
    leaving.push(pool.claim_unchanged(PageId(1), version).expect("nobody else"));
    assert_eq!(leaving.evict(), 1);
    assert!(!pool.is_resident(PageId(1)));
    assert_eq!(byte(&mut copies, 1), None, "its image is another one");
}

#[test]
fn what_is_in_memory_or_cannot_be_read_is_not_copied() {
    let (pool, images) = pool(256);
    drop(pool.shared(PageId(12)).expect("readable"));
    let mut copies = Copies::default();
    assert!(copies.ask(&pool, &[PageId(12), DAMAGED, PageId(15), PageId(1000)]));
    assert_eq!(
        (byte(&mut copies, 12), byte(&mut copies, DAMAGED.0), byte(&mut copies, 1000)),
        (None, None, None)
    );
    assert_eq!(byte(&mut copies, 15), Some(15));
    assert_eq!(images.reads.load(Ordering::Relaxed), 3, "12, 13 and 15");
}

#[test]
fn all_copies_take_an_eighth_of_the_memory_and_are_charged() {
    let (pool, _) = pool(256);
    let window = 4 * PAGE_BYTES as u64;
    let mut scans: Vec<Copies> = (0..9).map(|_| Copies::default()).collect();
    let has: Vec<bool> = scans.iter_mut().map(|copies| copies.ask(&pool, &pages([1]))).collect();
    assert_eq!(has.iter().filter(|has| **has).count(), 8, "of 4 pages each: 32 of 256");
    assert_eq!(pool.account().bytes(), 8 * window);
    assert!(!scans[8].ask(&pool, &pages([2])) && scans[8].is_empty());
    // Who has one window cannot have another, and keeps what it has.
    assert!(!scans[0].ask(&pool, &pages([2])));
    assert_eq!(byte(&mut scans[0], 1), Some(1));
    drop(scans);
    assert_eq!(pool.account().bytes(), 0);
    let mut copies = Copies::default();
    assert!(
        copies.ask(&pool, &pages([1])) && copies.ask(&pool, &pages([2])) && copies.ask(&pool, &pages([3]))
    );
    assert_eq!(pool.account().bytes(), 2 * window, "the first is used again");
}

/// A window was charged, and nobody asked whether the pages still fit beside it: they stayed until somebody needed one more.
#[test]
fn who_takes_memory_for_copies_asks_for_pages_to_leave() {
    let (pool, _) = pool(256);
    pool.set_evicting(true);
    let held: Vec<_> = (0..240).map(|_| pool.allocate().expect("room")).collect();
    pool.wait_for_pressure(Some(Duration::ZERO));
    assert!(!pool.is_over_budget());
    let mut scans: Vec<Copies> = (0..8).map(|_| Copies::default()).collect();
    assert!(scans.iter_mut().all(|copies| copies.ask(&pool, &pages([1]))));
    assert!(pool.is_over_budget());
    let (begun, long) = (Instant::now(), Duration::from_secs(10));
    pool.wait_for_pressure(Some(long));
    assert!(begun.elapsed() < long, "nobody has asked");
    drop(held);
}

#[test]
fn who_waits_for_copies_is_not_left_by_a_thread_that_panics_or_ends() {
    let (pool, _) = pool(256);
    let thread = ReadAhead::start(&pool).expect("a thread");
    let mut copies = Copies::default();
    assert!(copies.ask(&pool, &[PageId(1), PANICS, PageId(2)]));
    assert_eq!(
        (byte(&mut copies, 2), byte(&mut copies, 1)),
        (None, Some(1)),
        "what was read before is there"
    );
    // Its thread is gone: the scan reads them itself.
    assert!(copies.ask(&pool, &pages([3])));
    assert_eq!(byte(&mut copies, 3), Some(3));
    drop(thread);
    for _ in 0..if cfg!(miri) { 3 } else { 200 } {
        let thread = ReadAhead::start(&pool).expect("a thread");
        assert!(copies.ask(&pool, &pages([4, 5])));
        drop(thread);
        assert!(copies.ask(&pool, &pages([6])));
        assert_eq!(byte(&mut copies, 6), Some(6));
    }
}
