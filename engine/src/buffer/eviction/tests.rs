//! Waiting for memory: when a waiter is woken, and when it gives up. The tests play the evictor.

use crate::base::{Error, ErrorKind, PageId, Result};
use crate::buffer::test_sources::{Images, PAGE_BYTES};
use crate::buffer::{ExclusiveGuard, Leaving, PageSource, Pool, ReadAheadThread};
use crate::sync::Mutex;
use crate::sync::atomic::Ordering;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Time until a thread that has asked for memory sleeps.
const A_MOMENT: Duration = Duration::from_millis(20);

/// Makes a pool with memory for `pages` and the tables of 399 page ids, and the pages 1 to 399 in
/// the store.
fn pool_with(pages: u64, source: Arc<dyn PageSource>) -> Arc<Pool> {
    let pool = Pool::new(PAGE_BYTES, pages * PAGE_BYTES as u64, source).expect("small");
    pool.restore((1..400).map(PageId)).expect("each id once");
    pool.eviction().set_attached(true);
    pool
}

/// Holds this many pages exclusively.
fn hold(pool: &Pool, pages: u64) -> Vec<ExclusiveGuard<'_>> {
    (100..100 + pages).map(|page| pool.exclusive(PageId(page)).expect("room")).collect()
}

/// Clears earlier requests for eviction.
fn clear_requests(pool: &Pool) {
    pool.eviction().wait_for_pressure(Some(Duration::ZERO));
}

/// Waits until a thread waits for memory; its first request is from before it waits.
fn await_waiter(pool: &Pool) {
    for _ in 0..2 {
        pool.eviction().wait_for_pressure(Some(Duration::from_secs(30)));
    }
}

/// Returns whether `give`, which gives memory back, wakes a thread that waits for memory, so that
/// it needs no timeout.
fn wakes_waiter(pool: &Pool, give: impl FnOnce()) -> bool {
    clear_requests(pool);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| drop(pool.exclusive(PageId(60)).expect("memory was given back")));
        await_waiter(pool);
        let before = pool.memory.eviction.freed.ticket();
        give();
        let woken = pool.memory.eviction.freed.ticket() != before;
        waiter.join().expect("no panic");
        woken
    })
}

#[test]
fn waiter_is_woken_when_a_page_is_freed() {
    let pool = pool_with(40, Arc::new(Images::default()));
    let freed = pool.exclusive(PageId(50)).expect("room");
    let _held = hold(&pool, pool.memory().resident_pages_max() - 1);
    assert!(wakes_waiter(&pool, || pool.free(freed)));
}

/// A source whose read of page 50 waits for the lock and then fails.
struct Late(Mutex<()>);

impl PageSource for Late {
    fn read_page(&self, page: PageId, _: bool, into: &mut [u8]) -> Result<()> {
        into.fill(0);
        if page != PageId(50) {
            return Ok(());
        }
        drop(self.0.lock());
        Err(Error::corruption("bad checksum"))
    }
}

#[test]
fn waiter_is_woken_when_a_page_cannot_be_read() {
    let source = Arc::new(Late(Mutex::new(())));
    let pool = pool_with(40, source.clone());
    let most = pool.memory().resident_pages_max();
    let _held = hold(&pool, most - 1);
    let late = source.0.lock();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| pool.shared(PageId(50)).map(drop).expect_err("damaged").kind());
        while pool.memory().resident_pages() < most {
            std::thread::yield_now();
        }
        let woken = wakes_waiter(&pool, || {
            drop(late);
            assert_eq!(reader.join().expect("no panic"), ErrorKind::Corruption);
        });
        assert!(woken);
    });
}

/// Regression: failed passes had begun while the ticket kept pages in memory. When the ticket was
/// returned, these passes were too many for a waiter, although the kept pages could leave then.
#[test]
fn waiter_does_not_give_up_when_a_ticket_is_returned() {
    let kept = PageId(50);
    let pool = pool_with(40, Arc::new(Images::default()));
    let ticket = pool.memory().take_ticket().expect("no thread holds it");
    let version = pool.optimistic(kept).expect("room").version();
    let _held = hold(&pool, pool.memory().resident_pages_max() - 1);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| pool.exclusive(PageId(60)).map(drop));
        for _ in 0..4 {
            pool.eviction().wait_for_pressure(None);
            pool.eviction().pass_failed(None);
        }
        pool.eviction().wait_for_pressure(None);
        drop(ticket);
        sleep(A_MOMENT);
        let mut leaving = Leaving::default();
        leaving.push(pool.claim_unchanged(kept, version).expect("not latched"));
        assert_eq!(leaving.evict(), 1);
        waiter.join().expect("no panic").expect("a page has left");
    });
}

/// Regression: the pass under way when a waiter came counted, although it had passed most pages. So
/// the waiter gave up after the first pass that began after it came.
#[test]
fn waiter_gives_up_after_two_passes_begun_after_it_came() {
    let kept = PageId(50);
    let pool = pool_with(40, Arc::new(Images::default()));
    let version = pool.optimistic(kept).expect("room").version();
    let _held = hold(&pool, pool.memory().resident_pages_max() - 1);
    clear_requests(&pool);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| pool.exclusive(PageId(60)).map(drop));
        await_waiter(&pool);
        // The pass under way, and the first that began later.
        for _ in 0..2 {
            pool.eviction().pass_failed(None);
            pool.eviction().wait_for_pressure(Some(Duration::from_secs(1)));
        }
        let mut leaving = Leaving::default();
        leaving.push(pool.claim_unchanged(kept, version).expect("not latched"));
        assert_eq!(leaving.evict(), 1);
        waiter.join().expect("no panic").expect("a page has left");
    });
}

#[test]
fn series_of_tickets_does_not_keep_a_waiter_for_ever() {
    let pool = pool_with(40, Arc::new(Images::default()));
    let _held = hold(&pool, pool.memory().resident_pages_max());
    clear_requests(&pool);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| pool.exclusive(PageId(60)).map(drop).expect_err("full").kind());
        await_waiter(&pool);
        for _ in 0..60 {
            let _ticket = pool.memory().take_ticket().expect("no thread holds it");
            pool.eviction().wait_for_pressure(Some(Duration::from_millis(10)));
            pool.eviction().pass_failed(None);
        }
        let begun = Instant::now();
        while !waiter.is_finished() && begun.elapsed() < Duration::from_secs(30) {
            sleep(A_MOMENT);
        }
        let gave_up = waiter.is_finished();
        // Otherwise the join below may wait for ever.
        pool.eviction().set_attached(false);
        assert!(gave_up, "after 60 passes");
        assert_eq!(waiter.join().expect("no panic"), ErrorKind::OutOfMemory);
    });
}

/// Regression: the thread held the pages that it had claimed, and waited two passes for each
/// further page. Threads that needed a claimed page waited, too.
#[test]
fn read_ahead_reads_its_claims_when_memory_runs_out() {
    let images = Arc::new(Images::default());
    let pool = pool_with(256, images.clone());
    let _held = hold(&pool, pool.memory().resident_pages_max() - 2);
    clear_requests(&pool);
    let before = images.reads.load(Ordering::Relaxed);
    let _thread = ReadAheadThread::start(&pool).expect("a thread");
    pool.read_ahead((20..40).map(PageId));
    let a_while = Duration::from_millis(50);
    while images.reads.load(Ordering::Relaxed) < before + 2 {
        let begun = Instant::now();
        pool.eviction().wait_for_pressure(Some(a_while));
        if begun.elapsed() < a_while {
            // The thread has asked for memory, and was not just slow.
            pool.eviction().pass_failed(None);
        }
    }
    let passes = pool.eviction().failed_passes();
    assert!(passes <= 10, "{passes} passes");
}
