//! Surveys beside writers.

use super::{Horizon, push_out};
use crate::base::{PageId, Result};
use crate::buffer::{PageSource, Pool};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::tree::{LeafHint, Tree};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// Images of which one cannot be read before it is let through.
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

/// The survey held the root while it had everything below brought in, so who had to split a child
/// of the root started over until it was done.
#[test]
fn a_survey_that_waits_for_a_page_keeps_nobody_from_splitting() {
    let images = Arc::new(Held::default());
    let pool = Pool::new(4096, 4000 * 4096, images.clone()).expect("small");
    let tree = Tree::create(pool, Arc::new(Horizon::default())).expect("room");
    (0..3000).for_each(|n| write(&tree, n * 1000));
    assert!(tree.check_invariants().expect("sound").pages > 60);
    let (last, _) = tree.lookup_in_leaf(&2_900_000_u32.to_be_bytes(), &mut Vec::new()).expect("readable");
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
            // Ahead of the survey there is nothing that is not held up, so behind it.
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

/// Who appends faster than pages can be checked kept the survey from its end.
#[test]
fn what_is_appended_while_a_survey_runs_is_not_waited_for() {
    let images = Arc::new(Held::default());
    let pool = Pool::new(4096, 4000 * 4096, images.clone()).expect("small");
    let tree = Tree::create(pool, Arc::new(Horizon::default())).expect("room");
    (0..3000).for_each(|n| write(&tree, n));
    let (held, _) = tree.lookup_in_leaf(&2000_u32.to_be_bytes(), &mut Vec::new()).expect("readable");
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
