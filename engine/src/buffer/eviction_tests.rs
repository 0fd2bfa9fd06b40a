//! Waiting for memory: who is told when some is given back, and when somebody gives up. The test is who evicts.

use super::test_sources::{Images, PAGE_BYTES};
use super::{ExclusiveGuard, Leaving, PageSource, Pool, ReadAhead};
use crate::base::{Error, ErrorKind, PageId, Result};
use crate::sync::Mutex;
use crate::sync::atomic::Ordering;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Until a thread that has asked for memory sleeps.
const A_MOMENT: Duration = Duration::from_millis(20);

/// With memory for `pages` and what 399 page ids need, and the pages 1 to 399 in the store.
fn pool_with(pages: u64, source: Arc<dyn PageSource>) -> Arc<Pool> {
    let pool = Pool::new(PAGE_BYTES, pages * PAGE_BYTES as u64, source).expect("small");
    pool.restore((1..400).map(PageId)).expect("each id once");
    pool.set_evicting(true);
    pool
}

/// Holds so many pages.
fn hold(pool: &Pool, pages: u64) -> Vec<ExclusiveGuard<'_>> {
    (100..100 + pages).map(|page| pool.exclusive(PageId(page)).expect("room")).collect()
}

/// What was asked before does not count.
fn forget_what_was_asked(pool: &Pool) {
    pool.wait_for_pressure(Some(Duration::ZERO));
}

/// Waits until somebody waits for memory: the first request is from before that.
fn await_waiter(pool: &Pool) {
    for _ in 0..2 {
        pool.wait_for_pressure(Some(Duration::from_secs(30)));
    }
}

/// Whether a thread that waits for memory is told when `give` has given some back, and does not find it later, unasked.
fn is_told_after(pool: &Pool, give: impl FnOnce()) -> bool {
    forget_what_was_asked(pool);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| drop(pool.exclusive(PageId(60)).expect("memory was given back")));
        await_waiter(pool);
        let before = pool.eviction.freed.ticket();
        give();
        let told = pool.eviction.freed.ticket() != before;
        waiter.join().expect("no panic");
        told
    })
}

#[test]
fn who_waits_for_memory_is_told_when_a_page_is_freed() {
    let pool = pool_with(40, Arc::new(Images::default()));
    let freed = pool.exclusive(PageId(50)).expect("room");
    let _held = hold(&pool, pool.resident_pages_max() - 1);
    assert!(is_told_after(&pool, || pool.free(freed)));
}

/// The image of page 50 cannot be read, as turns out when its lock can be taken.
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
fn who_waits_for_memory_is_told_when_a_page_cannot_be_read() {
    let source = Arc::new(Late(Mutex::new(())));
    let pool = pool_with(40, source.clone());
    let most = pool.resident_pages_max();
    let _held = hold(&pool, most - 1);
    let late = source.0.lock();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| pool.shared(PageId(50)).map(drop).expect_err("damaged").kind());
        while pool.resident_pages() < most {
            std::thread::yield_now();
        }
        let told = is_told_after(&pool, || {
            drop(late);
            assert_eq!(reader.join().expect("no panic"), ErrorKind::Corruption);
        });
        assert!(told);
    });
}

/// Passes that freed nothing began while the turn kept pages in memory. What leaves after it was no hope for who had waited beside
/// it: the moment it ended these passes were too many.
#[test]
fn who_waited_beside_a_turn_does_not_give_up_because_it_ends() {
    let kept = PageId(50);
    let pool = pool_with(40, Arc::new(Images::default()));
    let turn = pool.take_turn().expect("nobody has it");
    let version = pool.optimistic(kept).expect("room").version();
    let _held = hold(&pool, pool.resident_pages_max() - 1);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| pool.exclusive(PageId(60)).map(drop));
        for _ in 0..4 {
            pool.wait_for_pressure(None);
            pool.eviction_was_futile(None);
        }
        pool.wait_for_pressure(None);
        drop(turn);
        sleep(A_MOMENT);
        let mut leaving = Leaving::default();
        leaving.push(pool.claim_unchanged(kept, version).expect("nobody holds it"));
        assert_eq!(leaving.evict(), 1);
        waiter.join().expect("no panic").expect("a page has left");
    });
}

/// The pass that was under way when somebody came counted, and it had been past most pages: the second that counted was the first that
/// began after.
#[test]
fn who_waits_for_memory_gives_up_after_two_passes_that_began_after_it_came() {
    let kept = PageId(50);
    let pool = pool_with(40, Arc::new(Images::default()));
    let version = pool.optimistic(kept).expect("room").version();
    let _held = hold(&pool, pool.resident_pages_max() - 1);
    forget_what_was_asked(&pool);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| pool.exclusive(PageId(60)).map(drop));
        await_waiter(&pool);
        // Under way, and the first that began after.
        for _ in 0..2 {
            pool.eviction_was_futile(None);
            pool.wait_for_pressure(Some(Duration::from_secs(1)));
        }
        let mut leaving = Leaving::default();
        leaving.push(pool.claim_unchanged(kept, version).expect("nobody holds it"));
        assert_eq!(leaving.evict(), 1);
        waiter.join().expect("no panic").expect("a page has left");
    });
}

#[test]
fn turns_that_follow_each_other_keep_nobody_waiting_for_ever() {
    let pool = pool_with(40, Arc::new(Images::default()));
    let _held = hold(&pool, pool.resident_pages_max());
    forget_what_was_asked(&pool);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| pool.exclusive(PageId(60)).map(drop).expect_err("full").kind());
        await_waiter(&pool);
        for _ in 0..60 {
            let _turn = pool.take_turn().expect("nobody has it");
            pool.wait_for_pressure(Some(Duration::from_millis(10)));
            pool.eviction_was_futile(None);
        }
        let begun = Instant::now();
        while !waiter.is_finished() && begun.elapsed() < Duration::from_secs(30) {
            sleep(A_MOMENT);
        }
        let gave_up = waiter.is_finished();
        // Otherwise it is waited for, for ever.
        pool.set_evicting(false);
        assert!(gave_up, "after 60 passes");
        assert_eq!(waiter.join().expect("no panic"), ErrorKind::OutOfMemory);
    });
}

/// It holds what it has claimed. Each page that it asked for in vain took two passes, and whoever needed one of those it had waited.
#[test]
fn who_reads_ahead_reads_what_it_has_when_there_is_no_memory_for_more() {
    let images = Arc::new(Images::default());
    let pool = pool_with(256, images.clone());
    let _held = hold(&pool, pool.resident_pages_max() - 2);
    forget_what_was_asked(&pool);
    let before = images.reads.load(Ordering::Relaxed);
    let _thread = ReadAhead::start(&pool).expect("a thread");
    pool.read_ahead((20..40).map(PageId));
    let a_while = Duration::from_millis(50);
    while images.reads.load(Ordering::Relaxed) < before + 2 {
        let begun = Instant::now();
        pool.wait_for_pressure(Some(a_while));
        if begun.elapsed() < a_while {
            // It asked, and was not just late.
            pool.eviction_was_futile(None);
        }
    }
    let passes = pool.evictions_in_vain();
    assert!(passes <= 10, "{passes} passes");
}
