//! Descents whose pages leave memory as fast as they can be brought in.
//!
//! Each read of a page takes so long that all other pages in memory that are not latched have left
//! when it ends. Without fairness tickets no descent of more than two levels ever arrives.

use super::Horizon;
use crate::base::{PageId, Result};
use crate::buffer::{PageSource, Pool, ScanBuffer};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::tree::{LeafBatch, LeafHint, Tree};
use std::collections::HashMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, OnceLock, Weak};

const PAGE_BYTES: usize = 4096;
const ROWS: u64 = 2000;

/// Images of pages, and the pool that all others leave during a read.
#[derive(Default)]
struct SlowImages {
    images: Mutex<HashMap<PageId, Vec<u8>>>,
    pool: OnceLock<Weak<Pool>>,
    reads: AtomicU64,
}

impl SlowImages {
    fn pool(&self) -> Arc<Pool> {
        self.pool.get().and_then(Weak::upgrade).expect("set before anything is read")
    }

    /// Evicts every page that is neither latched nor kept.
    fn push_out(&self) {
        super::push_out(&self.pool(), &self.images);
    }
}

impl PageSource for SlowImages {
    fn read_page(&self, page: PageId, _: bool, into: &mut [u8]) -> Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.push_out();
        into.copy_from_slice(&self.images.lock().expect("no panic")[&page]);
        Ok(())
    }
}

fn key(n: u64) -> Vec<u8> {
    // Long keys, so that the tree has three or more levels.
    format!("{n:0300}").into_bytes()
}

/// Makes a tree in memory; each later read pushes out all other pages.
fn slow_tree() -> (Tree, Arc<SlowImages>) {
    let images = Arc::new(SlowImages::default());
    let pool = Pool::new(PAGE_BYTES, 4000 * PAGE_BYTES as u64, images.clone()).expect("small");
    images.pool.set(Arc::downgrade(&pool)).expect("once");
    let tree = Tree::create(pool, Arc::new(Horizon::default())).expect("room");
    for n in 0..ROWS {
        tree.write(&key(n), 100, &mut LeafHint::default()).expect("room").put(0, false, &[7; 100]);
    }
    (tree, images)
}

#[test]
fn descent_arrives_if_each_page_pushes_out_the_previous() {
    let (tree, images) = slow_tree();
    let before = images.reads.load(Ordering::Relaxed);
    let mut value = Vec::new();
    for n in (0..ROWS).step_by(97) {
        images.push_out();
        assert!(tree.lookup(&key(n), &mut value).expect("the descent arrives").is_some());
        images.push_out();
        let mut hint = LeafHint::default();
        tree.write(&key(n), 100, &mut hint).expect("the descent arrives").put(0, false, &[8; 100]);
        images.push_out();
        let mut batch = LeafBatch::default();
        tree.scan_forward(Bound::Included(&key(n)), 1, &mut batch, &mut ScanBuffer::default())
            .expect("the descent arrives");
        assert_eq!(batch.entry(0).value, [8; 100]);
    }
    let (reads, descents) = (images.reads.load(Ordering::Relaxed) - before, 3 * ROWS.div_ceil(97));
    assert!(reads > 20 * descents, "{reads} reads by {descents} descents that are not starved");
    assert!(reads < 40 * descents, "{reads} reads by {descents} descents");
}
