//! Surveys of trees in use.

use super::{Horizon, push_out};
use crate::base::{PageId, Result};
use crate::buffer::{PageSource, Pool};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::tree::{LeafHint, Tree};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// Images, one of which cannot be read before the test allows it.
#[derive(Default)]
struct Held {
    images: Mutex<HashMap<PageId, Vec<u8>>>,
    held: AtomicU64,
    is_asked: AtomicBool,
    lets_through: AtomicBool,
}

impl PageSource for Held {
    fn read_page(&self, page: PageId, _: bool, into: &mut [u8]) -> Result<()> {
        if page.0 == self.held.load(Ordering::SeqCst) {
            self.is_asked.store(true, Ordering::SeqCst);
            while !self.lets_through.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        into.copy_from_slice(&self.images.lock().expect("no panic")[&page]);
        Ok(())
    }
}

fn write(tree: &Tree, key: u32) {
    let key = key.to_be_bytes();
    tree.write(&key, 100, &mut LeafHint::default()).expect("room").put(0, false, &[7; 100]);
}

/// Regression: the survey held the root during the faults of all pages below. A writer that had to
/// split a child of the root started over until the end of the survey.
#[test]
fn survey_that_waits_for_a_page_does_not_block_splits() {
    let images = Arc::new(Held::default());
    let pool = Pool::new(4096, 4000 * 4096, images.clone()).expect("small");
    let tree = Tree::create(pool, Arc::new(Horizon::default())).expect("room");
    (0..3000).for_each(|n| write(&tree, n * 1000));
    assert!(tree.check_invariants().expect("sound").pages > 60);
    let last = tree.lookup_in_leaf(&2_900_000_u32.to_be_bytes(), &mut Vec::new()).expect("readable").0.page;
    images.held.store(last.0, Ordering::SeqCst);
    push_out(tree.pool(), &images.images);
    let (done, is_done) = mpsc::channel();
    std::thread::scope(|scope| {
        let survey = scope.spawn(|| tree.check_invariants());
        while !images.is_asked.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        let tree = &tree;
        scope.spawn(move || {
            // All keys ahead of the survey are blocked, so the writer uses keys behind it.
            (0..2000).for_each(|n| write(tree, n * 1000 + 1));
            let _ = done.send(());
        });
        let splits = is_done.recv_timeout(Duration::from_secs(20));
        images.lets_through.store(true, Ordering::SeqCst);
        let counted = survey.join().expect("no panic").expect("sound");
        splits.expect("a writer waits for the survey");
        assert_eq!(counted.entries, 3000, "those that it had passed were not there yet");
    });
    assert_eq!(tree.check_invariants().expect("sound").entries, 5000);
}

/// Regression: a writer that appended faster than pages can be checked kept the survey running.
#[test]
fn survey_does_not_wait_for_rows_appended_meanwhile() {
    let images = Arc::new(Held::default());
    let pool = Pool::new(4096, 4000 * 4096, images.clone()).expect("small");
    let tree = Tree::create(pool, Arc::new(Horizon::default())).expect("room");
    (0..3000).for_each(|n| write(&tree, n));
    let held = tree.lookup_in_leaf(&2000_u32.to_be_bytes(), &mut Vec::new()).expect("readable").0.page;
    images.held.store(held.0, Ordering::SeqCst);
    push_out(tree.pool(), &images.images);
    let counted = std::thread::scope(|scope| {
        let survey = scope.spawn(|| tree.check_invariants());
        while !images.is_asked.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        (3000..6000).for_each(|n| write(&tree, n));
        images.lets_through.store(true, Ordering::SeqCst);
        survey.join().expect("no panic").expect("sound").entries
    });
    assert!((3000..3100).contains(&counted), "{counted} entries");
    assert_eq!(tree.check_invariants().expect("sound").entries, 6000);
}
