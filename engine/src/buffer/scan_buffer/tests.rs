//! Copies of evicted pages.

use super::*;
use crate::buffer::test_sources::{DAMAGED, Images, PAGE_BYTES, PANICS};
use crate::buffer::{Leaving, Pool, ReadAheadThread};
use std::time::{Duration, Instant};

const BYTE: usize = 64;

/// Makes a pool with memory for `pages`, and the pages 1 to 99 in the store.
fn pool(pages: u64) -> (Arc<Pool>, Arc<Images>) {
    let images = Arc::<Images>::default();
    let pool = Pool::new(PAGE_BYTES, pages * PAGE_BYTES as u64, images.clone()).expect("small");
    pool.restore((1..100).map(PageId)).expect("each id once");
    (pool, images)
}

fn byte(pool: &Pool, buffer: &mut ScanBuffer, page: u64) -> Option<u8> {
    buffer.find(pool.frames(), PageId(page)).map(|bytes| bytes.get_u8(BYTE))
}

fn pages(ids: impl IntoIterator<Item = u64>) -> Vec<PageId> {
    ids.into_iter().map(PageId).collect()
}

#[test]
fn copy_is_read_once_and_its_page_stays_evicted() {
    for with_thread in [false, true] {
        let (pool, images) = pool(256);
        let _thread = with_thread.then(|| ReadAheadThread::start(&pool).expect("a thread"));
        let mut buffer = ScanBuffer::default();
        assert!(buffer.is_empty() && buffer.find(pool.frames(), PageId(1)).is_none());
        assert_eq!(pool.window_pages(), 4);
        assert!(pool.fill_scan_buffer(&mut buffer, &pages(1..50)), "the first four");
        assert!(pool.fill_scan_buffer(&mut buffer, &pages(5..9)));
        let found: Vec<_> = (1..=9).map(|page| byte(&pool, &mut buffer, page)).collect();
        assert_eq!(found[..4], [Some(1), Some(2), Some(3), Some(4)]);
        assert_eq!(found[4..], [Some(5), Some(6), Some(7), Some(8), None]);
        // The scan is in the second window: the first is dropped.
        assert_eq!(byte(&pool, &mut buffer, 1), None);
        assert_eq!((images.reads.load(Ordering::Relaxed), pool.memory().resident_pages()), (8, 0));
        assert_eq!(pool.pages_copied(), 8);
    }
}

#[test]
fn copy_of_a_page_that_was_in_memory_since_is_not_used() {
    let (pool, _) = pool(256);
    let mut buffer = ScanBuffer::default();
    assert!(pool.fill_scan_buffer(&mut buffer, &pages([1, 2])));
    pool.exclusive(PageId(1)).expect("readable").bytes_mut().fill(0, PAGE_BYTES, 77);
    assert_eq!(
        (byte(&pool, &mut buffer, 1), byte(&pool, &mut buffer, 2)),
        (None, Some(2)),
        "it is in memory"
    );
    let version = pool.optimistic(PageId(1)).expect("in memory").version();
    let mut leaving = Leaving::default();
    leaving.push(pool.claim_unchanged(PageId(1), version).expect("not latched"));
    assert_eq!(leaving.evict(), 1);
    assert!(!pool.frames().is_resident(PageId(1)));
    assert_eq!(byte(&pool, &mut buffer, 1), None, "its image is another one");
}

#[test]
fn resident_or_unreadable_page_is_not_copied() {
    let (pool, images) = pool(256);
    drop(pool.shared(PageId(12)).expect("readable"));
    let mut buffer = ScanBuffer::default();
    assert!(pool.fill_scan_buffer(&mut buffer, &[PageId(12), DAMAGED, PageId(15), PageId(1000)]));
    assert_eq!(
        (byte(&pool, &mut buffer, 12), byte(&pool, &mut buffer, DAMAGED.0), byte(&pool, &mut buffer, 1000)),
        (None, None, None)
    );
    assert_eq!(byte(&pool, &mut buffer, 15), Some(15));
    assert_eq!(images.reads.load(Ordering::Relaxed), 3, "12, 13 and 15");
}

#[test]
fn scan_buffers_take_an_eighth_of_memory_and_are_charged() {
    let (pool, _) = pool(256);
    let window = 4 * PAGE_BYTES as u64;
    let mut scans: Vec<ScanBuffer> = (0..9).map(|_| ScanBuffer::default()).collect();
    let has: Vec<bool> = scans.iter_mut().map(|buffer| pool.fill_scan_buffer(buffer, &pages([1]))).collect();
    assert_eq!(has.iter().filter(|has| **has).count(), 8, "of 4 pages each: 32 of 256");
    assert_eq!(pool.account().bytes(), 8 * window);
    assert!(!pool.fill_scan_buffer(&mut scans[8], &pages([2])) && scans[8].is_empty());
    // A scan with one window gets no other, and keeps its copies.
    assert!(!pool.fill_scan_buffer(&mut scans[0], &pages([2])));
    assert_eq!(byte(&pool, &mut scans[0], 1), Some(1));
    drop(scans);
    assert_eq!(pool.account().bytes(), 0);
    let mut buffer = ScanBuffer::default();
    assert!(
        pool.fill_scan_buffer(&mut buffer, &pages([1]))
            && pool.fill_scan_buffer(&mut buffer, &pages([2]))
            && pool.fill_scan_buffer(&mut buffer, &pages([3]))
    );
    assert_eq!(pool.account().bytes(), 2 * window, "the first is used again");
}

/// Regression: a window was charged without a check of the budget. Pages beyond it stayed until a
/// thread needed one more.
#[test]
fn window_that_exceeds_the_budget_makes_pages_leave() {
    let (pool, _) = pool(256);
    pool.eviction().set_attached(true);
    let held: Vec<_> = (0..240).map(|_| pool.allocate().expect("room")).collect();
    pool.eviction().wait_for_pressure(Some(Duration::ZERO));
    assert!(!pool.memory().is_over_budget());
    let mut scans: Vec<ScanBuffer> = (0..8).map(|_| ScanBuffer::default()).collect();
    assert!(scans.iter_mut().all(|buffer| pool.fill_scan_buffer(buffer, &pages([1]))));
    assert!(pool.memory().is_over_budget());
    let (begun, long) = (Instant::now(), Duration::from_secs(10));
    pool.eviction().wait_for_pressure(Some(long));
    assert!(begun.elapsed() < long, "eviction was not requested");
    drop(held);
}

#[test]
fn scan_does_not_wait_for_a_thread_that_panics_or_ends() {
    let (pool, _) = pool(256);
    let thread = ReadAheadThread::start(&pool).expect("a thread");
    let mut buffer = ScanBuffer::default();
    assert!(pool.fill_scan_buffer(&mut buffer, &[PageId(1), PANICS, PageId(2)]));
    assert_eq!(
        (byte(&pool, &mut buffer, 2), byte(&pool, &mut buffer, 1)),
        (None, Some(1)),
        "what was read before is there"
    );
    // The thread is gone: the scan reads the images itself.
    assert!(pool.fill_scan_buffer(&mut buffer, &pages([3])));
    assert_eq!(byte(&pool, &mut buffer, 3), Some(3));
    drop(thread);
    for _ in 0..if cfg!(miri) { 3 } else { 200 } {
        let thread = ReadAheadThread::start(&pool).expect("a thread");
        assert!(pool.fill_scan_buffer(&mut buffer, &pages([4, 5])));
        drop(thread);
        assert!(pool.fill_scan_buffer(&mut buffer, &pages([6])));
        assert_eq!(byte(&pool, &mut buffer, 6), Some(6));
    }
}

#[test]
fn scan_does_not_wait_for_a_window_that_is_never_handed_over() {
    let from = Arc::<Handover>::default();
    drop(Reading { window: None, to: EndOfHandover(from.clone()) });
    assert!(from.wait().is_none());
}

/// With a threshold a scan uses the buffer even if memory is free.
#[test]
fn threshold_replaces_the_look_at_memory() {
    let pool_from = |from| {
        let source = Arc::<Images>::default();
        Pool::with_scan_buffers(PAGE_BYTES, 256 * PAGE_BYTES as u64, from, source).expect("small")
    };
    let pool = pool_from(Some(5));
    assert!(!pool.needs_scan_buffer(4) && pool.needs_scan_buffer(5));
    let pool = pool_from(None);
    assert!(!pool.needs_scan_buffer(200), "all memory is free");
    let _held: Vec<_> = (0..240).map(|_| pool.allocate().expect("room")).collect();
    assert!(pool.needs_scan_buffer(200) && !pool.needs_scan_buffer(20));
}
