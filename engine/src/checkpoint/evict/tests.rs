//! The evictor, and what keeps pages in memory.

use super::Evictor;
use crate::base::clock::Clock;
use crate::base::{Csn, DatabaseId, PageId};
use crate::buffer::Pool;
use crate::buffer::test_sources::Zeros;
use crate::device::simulated::{Fault, FaultKind, OperationKind, SimulatedStorage};
use crate::store::{Demand, PageStore, ReservedFor};
use crate::sync::atomic::Ordering;
use crate::sync::thread;
use crate::transaction::{Limits, TransactionSystem};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn await_that(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Clean pages could leave although writes failed, and the evictor took that for success: it slept
/// until a thread asked for memory.
#[test]
fn pages_leave_after_a_failure_without_a_request() {
    let disk = SimulatedStorage::new(7);
    let store = PageStore::create(&disk, DatabaseId(1), 4096).expect("the disk works");
    let pool = Pool::new(4096, 256 << 12, Arc::new(Zeros)).expect("small");
    pool.restore((1..400).map(PageId)).expect("each id once");
    let limits = Limits::for_page(4096, 1 << 20, Duration::from_millis(50));
    let system = Arc::new(TransactionSystem::new(pool.clone(), limits, 1 << 20, Clock::real()));
    (1..100).for_each(|page| pool.exclusive(PageId(page)).expect("room").mark_dirty());
    (100..200).for_each(|page| drop(pool.shared(PageId(page)).expect("room")));
    let _evictor =
        Evictor::start(system, pool.clone(), store, Some(Arc::new(disk.clone()))).expect("a thread");
    for operation in [OperationKind::Write, OperationKind::DurableWrite] {
        disk.inject(Fault { operation, after: 0, kind: FaultKind::ForEver, error: 5 });
    }
    let _charge = pool.account().charge(200 << 12);
    pool.memory().check_budget();
    await_that("writes fail and clean pages leave", || {
        pool.eviction().has_error() && pool.eviction().pages_evicted() >= 90
    });
    disk.heal();
    await_that("pages leave", || !pool.memory().is_over_budget());
}

/// Each attempt, of ten in a second, lost the blocks that it tried.
#[test]
fn failing_writes_leak_a_bounded_number_of_blocks() {
    let disk = SimulatedStorage::new(7);
    let store = PageStore::create(&disk, DatabaseId(1), 4096).expect("the disk works");
    let pool = Pool::new(4096, 256 << 12, Arc::new(Zeros)).expect("small");
    pool.restore((1..400).map(PageId)).expect("each id once");
    let limits = Limits::for_page(4096, 1 << 20, Duration::from_millis(50));
    let system = Arc::new(TransactionSystem::new(pool.clone(), limits, 1 << 20, Clock::real()));
    (1..100).for_each(|page| pool.exclusive(PageId(page)).expect("room").mark_dirty());
    store.disk_space().keep_reserve(pool.frames().demand(), Clock::real());
    store.disk_space().reserve(ReservedFor::Change).expect("the disk is large");
    let _evictor =
        Evictor::start(system, pool.clone(), store.clone(), Some(Arc::new(disk.clone()))).expect("a thread");
    for operation in [OperationKind::Write, OperationKind::DurableWrite] {
        disk.inject(Fault { operation, after: 0, kind: FaultKind::ForEver, error: 5 });
    }
    let lost = || store.usage().blocks - store.usage().free_blocks;
    let charge = pool.account().charge(200 << 12);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(4) {
        pool.memory().check_budget();
        thread::sleep(Duration::from_millis(1));
    }
    assert!((16..200).contains(&lost()), "{} blocks", lost());
    disk.heal();
    await_that("pages leave", || !pool.memory().is_over_budget());
    drop(charge);
}

/// A checkpoint that had made its images had still to write its mapping, and the evictor used the
/// last blocks for pages meanwhile.
#[test]
fn eviction_on_a_full_disk_leaves_blocks_for_the_mapping() {
    let disk = SimulatedStorage::new(7);
    let store = PageStore::create(&disk, DatabaseId(1), 4096).expect("the disk works");
    let demand = Arc::new(Demand::default());
    store.disk_space().keep_reserve(demand.clone(), Clock::real());
    // A block for each page that is to leave.
    demand.dirty.store(256, Ordering::Relaxed);
    store.disk_space().reserve(ReservedFor::Change).expect("the disk is large");
    demand.dirty.store(0, Ordering::Relaxed);
    let free_blocks = store.usage().free_blocks;
    // The mapping is as long as what is free, and longer.
    demand.page_ids.store(free_blocks << 10, Ordering::Relaxed);
    let checkpoint = store.begin_checkpoint(1, Csn(1)).expect("the first");
    // As a checkpoint does: its imager runs no more.
    checkpoint.close();
    disk.set_capacity(Some(0));

    let pool = Pool::new(4096, 256 << 12, Arc::new(Zeros)).expect("small");
    pool.restore((1..400).map(PageId)).expect("each id once");
    let limits = Limits::for_page(4096, 1 << 20, Duration::from_millis(50));
    let system = Arc::new(TransactionSystem::new(pool.clone(), limits, 1 << 20, Clock::real()));
    (1..150).for_each(|page| pool.exclusive(PageId(page)).expect("room").mark_dirty());
    let storage = Arc::new(disk.clone());
    let _evictor = Evictor::start(system, pool.clone(), store.clone(), Some(storage)).expect("a thread");
    let _charge = pool.account().charge(200 << 12);
    pool.memory().check_budget();
    await_that("pages stay because of the checkpoint", || pool.eviction().has_error());
    assert_eq!(store.usage().free_blocks, free_blocks);

    store.commit_checkpoint(checkpoint.finish().expect("its blocks are there"));
    await_that("pages leave after it", || !pool.memory().is_over_budget());
    assert!(store.usage().free_blocks < free_blocks);
}
