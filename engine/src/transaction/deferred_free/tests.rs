//! Tests of the queue of deferred frees.

use super::super::descriptor::Descriptors;
use super::*;
use crate::base::{PageId, PooledCharge, Result};
use crate::buffer::PageSource;
use crate::sync::atomic::AtomicBool;
use crate::tree::LargeWriter;
use std::sync::Arc;

fn value(created: u64, removed: u64) -> DeferredFree {
    let reference = LargeReference { root: PageId(removed), len: 1, crc: 0 };
    DeferredFree { created: Csn(created), removed: Csn(removed), reference }
}

#[test]
fn a_value_is_freed_when_no_pin_is_in_its_lifetime() {
    let frees = DeferredFrees::default();
    frees.push([value(0, 10), value(10, 20), value(20, 30), value(30, 40)].into_iter());
    let roots = |values: Vec<DeferredFree>| values.iter().map(|v| v.reference.root.0).collect::<Vec<_>>();
    // A snapshot at 10 sees the second; one above the bound may still be taken at 35.
    assert_eq!(roots(frees.take_unseen(&[Csn(10)], Csn(10), Csn(35), false)), [10, 30]);
    assert_eq!(roots(frees.take_unseen(&[Csn(10)], Csn(10), Csn(40), true)), [40]);
    assert_eq!(frees.all(), [value(10, 20).reference]);
    assert!(frees.take_unseen(&[Csn(19)], Csn(19), Csn(40), true).is_empty());
    assert_eq!(roots(frees.take_unseen(&[Csn(20)], Csn(20), Csn(40), true)), [20]);
}

#[test]
fn a_failed_free_is_listed_and_retried_by_a_thorough_look() {
    let frees = DeferredFrees::default();
    frees.keep(value(0, 10));
    let take = |thorough| frees.take_unseen(&[], Csn(50), Csn(50), thorough).len();
    assert_eq!((take(false), frees.all().len()), (0, 1));
    assert_eq!(frees.as_of(Csn(10), &frees.pause()).len(), 1);
    assert_eq!((take(true), frees.all().len()), (1, 0));
}

#[test]
fn a_checkpoint_lists_the_values_removed_by_then() {
    let frees = DeferredFrees::default();
    frees.push([value(0, 10), value(5, 20)].into_iter());
    let paused = frees.pause();
    assert_eq!(frees.as_of(Csn(15), &paused).len(), 1);
    assert_eq!(frees.as_of(Csn(20), &paused).len(), 2);
}

/// A source of pages that frees its first page only when a checkpoint waits to pause the frees.
struct FreesLate {
    frees: Arc<DeferredFrees>,
    began: AtomicBool,
}

impl PageSource for FreesLate {
    fn read_page(&self, _: PageId, _: bool, into: &mut [u8]) -> Result<()> {
        into.fill(0);
        Ok(())
    }

    fn freed(&self, _: PageId, _: u32) {
        if !self.began.swap(true, Ordering::SeqCst) {
            while !self.frees.freeing.is_wanted() {
                std::thread::yield_now();
            }
        }
    }
}

/// Threads that freed values one after the other kept a checkpoint waiting for as long as they
/// wrote.
#[test]
fn freeing_ends_with_one_value_when_a_checkpoint_waits() {
    let frees = Arc::new(DeferredFrees::default());
    let source = Arc::new(FreesLate { frees: frees.clone(), began: AtomicBool::new(false) });
    let pool = Pool::new(4096, 1 << 20, source.clone()).expect("a small pool");
    let values = (1..=3).map(|csn| {
        let mut writer = LargeWriter::new(pool.clone(), 0);
        writer.write(&[7; 10_000]).expect("there is room");
        let reference = writer.finish().expect("there is room");
        DeferredFree { created: Csn(0), removed: Csn(csn), reference }
    });
    frees.push(values);
    let uncommitted = UncommittedPages::new(PooledCharge::new(pool.account()));
    let descriptors = Descriptors::default();
    let horizon = Horizon { bound: Csn(10), descriptors: &descriptors };
    let listed = std::thread::scope(|scope| {
        let checkpoint = scope.spawn(|| {
            while !source.began.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            frees.as_of(Csn(10), &frees.pause()).len()
        });
        frees.collect(&pool, &uncommitted, &horizon, false, &|| false);
        checkpoint.join().expect("no panic")
    });
    assert_eq!(listed, 2, "one value was freed, and the others are listed");
    frees.collect(&pool, &uncommitted, &horizon, false, &|| false);
    assert!(frees.all().is_empty(), "the next collection frees them");
}
