//! The tree against a `BTreeMap`, under threads, and on damaged pages.

mod checkpoint;
mod concurrent;
mod damaged;
mod interrupted;
mod model;
mod rules;
mod starved;
mod survey;
mod timing;

use super::{EntryMeta, LeafBatch, LeafHint, Tree, TreeObserver};
use crate::base::{Error, PageId, Result};
use crate::buffer::{ExclusiveGuard, Leaving, PageSource, Pool};
use crate::sync::atomic::{AtomicU64, Ordering};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// An observer to which stamps below `horizon` are settled; counts structure changes.
#[derive(Default)]
pub(super) struct Horizon {
    pub horizon: AtomicU64,
    pub changes: AtomicU64,
}

impl TreeObserver for Horizon {
    fn is_settled(&self, stamp: u64) -> bool {
        stamp < self.horizon.load(Ordering::Relaxed)
    }

    fn before_structure_change(&self, participants: &[&ExclusiveGuard<'_>]) {
        assert!(!participants.is_empty());
        self.changes.fetch_add(1, Ordering::Relaxed);
    }
}

struct NoImages;

impl PageSource for NoImages {
    fn read_page(&self, page: PageId, _: bool, _: &mut [u8]) -> Result<()> {
        Err(Error::corruption(format!("{page} has no image")))
    }
}

pub(super) fn pool(page_bytes: usize, pages: u64) -> Arc<Pool> {
    Pool::new(page_bytes, pages * page_bytes as u64, Arc::new(NoImages)).expect("small")
}

/// Evicts every page that is neither latched nor kept; `images` gets their images.
pub(super) fn push_out(pool: &Pool, images: &Mutex<HashMap<PageId, Vec<u8>>>) {
    let mut candidates = Vec::new();
    pool.memory().next_candidates(usize::MAX >> 1, 2 * pool.page_count(), &mut candidates);
    let mut leaving = Leaving::default();
    for page in candidates {
        let mut image = vec![0; pool.page_bytes()];
        let Some(state) = pool.look_at_marked(page, |bytes| bytes.copy_to(0, &mut image)) else {
            continue;
        };
        let Some(claimed) = pool.claim_unchanged(page, state.version) else { continue };
        images.lock().expect("no panic").insert(page, image);
        claimed.set_clean(false);
        leaving.push(claimed);
    }
    leaving.evict();
}

pub(super) fn tree(page_bytes: usize) -> (Tree, Arc<Horizon>) {
    let observer = Arc::new(Horizon::default());
    (Tree::create(pool(page_bytes, 20_000), observer.clone()).expect("room"), observer)
}

pub(super) fn put(tree: &Tree, key: &[u8], stamp: u64, tombstone: bool, value: &[u8]) {
    let mut hint = LeafHint::default();
    tree.write(key, value.len(), &mut hint).expect("room").put(stamp, tombstone, value);
}

pub(super) fn get(tree: &Tree, key: &[u8]) -> Option<(EntryMeta, Vec<u8>)> {
    let mut value = Vec::new();
    tree.lookup(key, &mut value).expect("readable").map(|meta| (meta, value))
}

/// Returns all keys and values, read by the forward scan.
pub(super) fn all(tree: &Tree, limit: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (mut batch, mut from) = (LeafBatch::default(), Some(Vec::new()));
    while let Some(key) = from {
        from = tree
            .scan_forward(
                std::ops::Bound::Included(&key),
                limit,
                &mut batch,
                &mut crate::buffer::ScanBuffer::default(),
            )
            .expect("readable");
    }
    batch.iter().map(|entry| (entry.key.to_vec(), entry.value.to_vec())).collect()
}
