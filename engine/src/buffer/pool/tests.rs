//! The pool through its guards.

use crate::base::{Error, ErrorKind, Location, PageId};
use crate::buffer::test_sources::{Images, PAGE_BYTES};
use crate::buffer::{Interrupt, OptimisticGuard, Pool, Restart, Version};
use crate::sync::atomic::Ordering;
use std::sync::Arc;

const FIRST: PageId = PageId(1);

fn pool(pages: u64) -> Arc<Pool> {
    Pool::new(PAGE_BYTES, pages * PAGE_BYTES as u64, Arc::new(Images::default())).expect("small")
}

fn restored(pages: u64, ids: &[u64]) -> Arc<Pool> {
    let pool = pool(pages);
    pool.restore(ids.iter().copied().map(PageId)).expect("each id once");
    pool
}

#[test]
fn new_page_is_zero_dirty_and_of_the_current_epoch() {
    let pool = pool(4);
    assert_eq!(pool.frames().begin_epoch(Ok).expect("begins"), 1);
    let guard = pool.allocate().expect("room");
    assert_eq!(guard.page_id(), FIRST);
    assert!((0..PAGE_BYTES / 8).all(|i| guard.bytes().word(i) == 0));
    assert!(guard.is_dirty() && pool.frames().is_dirty(FIRST) && pool.frames().is_allocated(FIRST));
    assert_eq!((guard.epoch(), pool.frames().epoch_of(FIRST), pool.frames().epoch()), (1, 1, 1));
    assert_eq!(pool.frames().begin_epoch(Ok).expect("begins"), 2);
    assert_eq!(guard.epoch(), 1);
    guard.set_imaged(2);
    assert_eq!(
        (pool.frames().epoch_of(FIRST), pool.frames().is_dirty(FIRST), pool.page_count()),
        (2, true, 2)
    );
    let version = guard.version_after();
    drop(guard);
    let claimed = pool.claim_unchanged(FIRST, version).expect("unchanged");
    claimed.set_clean(false);
    assert!(!pool.frames().is_dirty(FIRST) && !claimed.needs_no_image(false) && claimed.needs_no_image(true));
    drop(claimed);
    pool.exclusive(FIRST).expect("resident").mark_dirty();
    assert!(pool.frames().is_dirty(FIRST));
    assert!(
        pool.frames().begin_epoch(|_| Err::<(), _>(Error::invalid("no"))).is_err()
            && pool.frames().epoch() == 2
    );
}

#[test]
fn change_is_seen_by_later_and_stops_earlier_readers() {
    let pool = pool(4);
    let earlier = pool.allocate().expect("room").downgrade();
    assert_eq!(earlier.validate(), Ok(()));
    let mut writer = earlier.upgrade().expect("not latched");
    assert_eq!(earlier.validate(), Err(Restart));
    assert!(matches!(pool.try_exclusive(FIRST), Err(Interrupt::Restart)));
    writer.bytes_mut().set_u64(64, 42);
    let after = writer.version_after();
    drop(writer);
    assert!(earlier.validate().is_err() && earlier.upgrade().is_err());
    assert!(pool.optimistic_at(FIRST, earlier.version()).is_err());
    let later = pool.optimistic_at(FIRST, after).expect("unchanged since");
    assert_eq!((later.bytes().get_u64(64), later.validate()), (42, Ok(())));
    let shared = later.upgrade_shared().expect("unchanged");
    assert!(later.upgrade().is_err(), "a reader holds it");
    assert_eq!(shared.bytes().get_u64(64), 42);
}

#[test]
fn hold_without_a_change_keeps_the_version() {
    let pool = pool(1);
    let guard = pool.allocate().expect("room").downgrade();
    drop(pool.exclusive(FIRST).expect("resident"));
    assert_eq!(guard.validate(), Ok(()));
}

#[test]
fn freed_page_is_reused_zeroed_with_a_new_version() {
    let pool = pool(1);
    let mut guard = pool.allocate().expect("room");
    guard.bytes_mut().set_u64(100, 1);
    let stale = guard.downgrade();
    pool.free(pool.exclusive(FIRST).expect("resident"));
    assert!(!pool.frames().is_allocated(FIRST) && !pool.frames().is_dirty(FIRST));
    assert_eq!(pool.optimistic(FIRST).map(|_| ()).map_err(|e| e.kind()), Err(ErrorKind::Corruption));
    let again = pool.allocate().expect("the freed one");
    assert_eq!((again.page_id(), again.bytes().get_u64(100)), (FIRST, 0));
    drop(again);
    assert!(stale.validate().is_err());
}

#[test]
fn page_that_never_existed_is_an_error() {
    let pool = pool(2);
    for page in [0, 1, 3, 1 << 20, u64::MAX].map(PageId) {
        assert_eq!(pool.exclusive(page).expect_err("no such page").kind(), ErrorKind::Corruption);
        assert_eq!(pool.shared(page).expect_err("no such page").kind(), ErrorKind::Corruption);
        assert!(pool.optimistic_at(page, Version::default()).is_err());
        assert!(
            !pool.frames().is_allocated(page)
                && !pool.frames().is_dirty(page)
                && pool.frames().epoch_of(page) == 0
        );
        pool.frames().set_imaged(page, 0);
    }
}

#[test]
fn child_of_changed_parent_restarts_else_is_corruption() {
    let pool = pool(4);
    let parent = pool.allocate().expect("room").downgrade();
    let child = pool.allocate().expect("room").downgrade().page_id();
    assert_eq!(pool.child(&parent, child).expect("both there").page_id(), child);
    let nowhere = PageId(77);
    assert!(matches!(pool.child(&parent, nowhere), Err(Interrupt::Failed(_))));
    pool.exclusive(parent.page_id()).expect("resident").bytes_mut().set_u8(40, 1);
    assert!(matches!(pool.child(&parent, nowhere), Err(Interrupt::Restart)));
    assert!(matches!(pool.child(&parent, child), Err(Interrupt::Restart)));
}

#[test]
fn budget_is_refused_by_name_and_freeing_makes_room() {
    let pool = pool(2);
    let first = pool.allocate().expect("room");
    drop(pool.allocate().expect("room"));
    let error = pool.allocate().expect_err("full");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert_eq!(error.location(), Some(&Location::Setting("memory_bytes")));
    assert!(error.to_string().contains("memory_bytes"));
    pool.free(first);
    drop(pool.allocate().expect("one was freed"));
    assert_eq!((pool.memory().resident_pages(), pool.page_count()), (2, 3));
}

#[test]
fn restored_pages_are_read_when_first_used_and_clean() {
    let images = Arc::new(Images::default());
    let pool = Pool::new(PAGE_BYTES, 8 * PAGE_BYTES as u64, images.clone()).expect("small");
    pool.restore([PageId(2), PageId(5)].into_iter()).expect("each id once");
    assert_eq!((pool.page_count(), pool.memory().resident_pages()), (6, 0));
    assert!(
        pool.frames().is_allocated(PageId(5))
            && !pool.frames().is_resident(PageId(5))
            && !pool.frames().is_allocated(PageId(4))
    );
    let guard = pool.optimistic(PageId(5)).expect("has an image");
    assert_eq!((guard.bytes().get_u32(PAGE_BYTES - 4), guard.validate()), (0x0505_0505, Ok(())));
    drop(pool.exclusive(PageId(5)).expect("resident"));
    assert!(pool.frames().is_resident(PageId(5)) && !pool.frames().is_dirty(PageId(5)));
    assert_eq!(images.reads.load(Ordering::Relaxed), 1);
    let new: Vec<u64> = (0..4).map(|_| pool.allocate().expect("room").page_id().0).collect();
    assert_eq!(new, [1, 3, 4, 6], "holes are used first, the lowest before");
}

#[test]
fn failed_fault_leaves_the_page_as_it_was() {
    let pool = restored(4, &[13, 14]);
    for _ in 0..2 {
        let error = pool.shared(PageId(13)).expect_err("damaged");
        assert_eq!(error.kind(), ErrorKind::Corruption);
        assert_eq!(error.location(), Some(&Location::Page { page: PageId(13), offset: 13 << 12 }));
        let page_14 = std::panic::AssertUnwindSafe(|| pool.shared(PageId(14)).map(drop));
        assert!(std::panic::catch_unwind(page_14).is_err(), "the source's panic is passed on");
    }
    assert_eq!(pool.memory().resident_pages(), 0);
    assert!(!pool.frames().is_resident(PageId(13)) && !pool.frames().is_resident(PageId(14)));
}

#[test]
fn fault_over_budget_takes_memory_of_a_free_page() {
    let pool = restored(2, &[3, 4, 5]);
    pool.free(pool.exclusive(PageId(3)).expect("room"));
    drop(pool.shared(PageId(4)).expect("room"));
    assert_eq!(pool.memory().resident_pages(), 2, "the free page still has its memory");
    assert_eq!(pool.shared(PageId(5)).expect("in place of page 3").bytes().get_u8(99), 5);
    assert_eq!(pool.memory().resident_pages(), 2);
    assert_eq!(pool.allocate().expect_err("full").kind(), ErrorKind::OutOfMemory);
    pool.free(pool.exclusive(PageId(5)).expect("resident"));
    assert_eq!(pool.allocate().expect("room").bytes().get_u8(99), 0);
}

#[test]
fn wrong_restore_lists_and_settings_are_refused() {
    let kind = |ids: &[u64]| pool(2).restore(ids.iter().copied().map(PageId)).expect_err("wrong").kind();
    assert_eq!(kind(&[3, 3]), ErrorKind::Corruption);
    assert_eq!(kind(&[0]), ErrorKind::Corruption);
    assert_eq!(kind(&[1 << 40]), ErrorKind::OutOfMemory);
    for page_bytes in [0, 32, 4095] {
        let error = Pool::new(page_bytes, 1 << 20, Arc::new(Images::default())).expect_err("wrong");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
}

#[cfg(not(miri))]
#[test]
fn address_space_that_does_not_exist_is_refused() {
    for memory_bytes in [1 << 50, u64::MAX] {
        let error = Pool::new(PAGE_BYTES, memory_bytes, Arc::new(Images::default())).expect_err("too much");
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    }
}

#[cfg(not(miri))]
#[test]
fn large_pool_costs_nothing_until_it_is_used() {
    let pool = pool((64 << 30) / PAGE_BYTES as u64);
    let mut guard = pool.allocate().expect("room");
    assert!(guard.bytes_mut().set_u64(PAGE_BYTES - 8, 1));
    assert_eq!(pool.memory().resident_pages(), 1);
}

const STEPS: u64 = if cfg!(miri) { 20 } else { 20_000 };

/// The first and the last words of the part of a page that users have.
fn pair(guard: &OptimisticGuard<'_>) -> (u64, u64) {
    (guard.bytes().get_u64(32), guard.bytes().get_u64(PAGE_BYTES - 8))
}

#[test]
fn optimistic_readers_never_validate_half_a_change() {
    let pool = pool(2);
    drop(pool.allocate().expect("room"));
    let write = || {
        for i in 0..STEPS {
            let optimistic = pool.optimistic(FIRST).expect("resident");
            let mut guard = match optimistic.upgrade() {
                Ok(guard) => guard,
                Err(Restart) => pool.exclusive(FIRST).expect("resident"),
            };
            let next = guard.bytes().get_u64(32) + 1;
            guard.bytes_mut().set_u64(32, next);
            if i % 64 == 0 {
                std::thread::yield_now();
            }
            guard.bytes_mut().set_u64(PAGE_BYTES - 8, next);
        }
    };
    let read = || {
        let mut last = 0;
        while last < 2 * STEPS {
            let guard = pool.optimistic(FIRST).expect("resident");
            let (a, b) = pair(&guard);
            if guard.validate().is_ok() {
                assert_eq!(a, b, "torn");
                assert!(a >= last, "went back in time");
                last = a;
            } else {
                let shared = pool.shared(FIRST).expect("resident");
                assert_eq!(shared.bytes().get_u64(32), shared.bytes().get_u64(PAGE_BYTES - 8));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(write);
            scope.spawn(read);
        }
    });
}

#[test]
fn threads_that_allocate_and_free_never_share_a_page() {
    let pool = pool(8);
    std::thread::scope(|scope| {
        for me in 1..=4_u64 {
            let pool = &pool;
            scope.spawn(move || {
                for _ in 0..STEPS / 10 {
                    let mut guard = pool.allocate().expect("two pages for each thread");
                    assert_eq!(guard.bytes().get_u64(64), 0);
                    guard.bytes_mut().set_u64(64, me);
                    let page = guard.downgrade().page_id();
                    let guard = pool.exclusive(page).expect("mine");
                    assert_eq!(guard.bytes().get_u64(64), me);
                    pool.free(guard);
                }
            });
        }
    });
    assert!(pool.page_count() <= 9 && pool.memory().resident_pages() <= 8);
}

#[test]
fn page_needed_by_many_threads_is_read_once() {
    let images = Arc::new(Images::default());
    let pool = Pool::new(PAGE_BYTES, 64 * PAGE_BYTES as u64, images.clone()).expect("small");
    let pages = if cfg!(miri) { 3 } else { 12 };
    pool.restore((1..=pages).map(PageId)).expect("each id once");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for page in (1..=pages).map(PageId) {
                    let guard = pool.optimistic(page).expect("has an image");
                    assert_eq!(
                        (guard.bytes().get_u8(PAGE_BYTES - 1), guard.validate()),
                        (page.0 as u8, Ok(()))
                    );
                }
            });
        }
    });
    assert_eq!(
        (u64::from(images.reads.load(Ordering::Relaxed)), pool.memory().resident_pages()),
        (pages, pages)
    );
}
