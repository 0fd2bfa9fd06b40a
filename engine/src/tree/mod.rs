//! Rank 5: where is this key?
//!
//! A B+-tree of variable-length keys and values in pages of the buffer pool. It knows nothing of snapshots: an entry
//! carries a *stamp*, a word of the transaction room, and the tree only ever asks whether a stamp is settled.
//!
//! ```text
//!                    ┌───────── inner: separators, children ─────────┐
//!                    ▼                                               ▼
//!      leaf ["", "m")  a=1 c=2 k=9                    leaf ["m", ∞)  m=4 x=7
//! ```
//!
//! Every node stores the range of keys that it is for (its *fences*), so a reader knows whether it is in the right place,
//! keys need not repeat their common prefix, and cursors need no sibling pointers: they go on from a fence.
//!
//! # Concurrency
//! Optimistic lock coupling (Leis et al., 2016): readers take nothing, they validate. A writer latches only its leaf. A
//! structure change latches parent and node, top-down, by upgrading what it read: it never waits while it holds a latch,
//! so there is no deadlock, only starting over.
//!
//! 1. The root of a tree keeps its page: it grows by moving its content down, and shrinks by taking its only child's.
//! 2. **Room rule**: an entry's capacity never shrinks, and a tombstone never goes, while its stamp is not settled. So what an
//!    older snapshot sees of a leaf always fits in one page, and taking a change back never needs room.
//! 3. Before a structure change the observer is called with all participants latched; afterwards a new page has the
//!    checkpoint round of the page it was split from.
//! 4. Structure changes change no logical content and are not logged.

mod check;
mod cursor;
mod edit;
pub mod image;
mod leaf;
mod node;
mod split;
#[cfg(test)]
mod tests;

pub use check::TreeSummary;
pub use cursor::{BatchEntry, LeafBatch};
pub use leaf::{LeafHint, LeafWrite};
pub use node::{EntryMeta, max_entry_bytes, max_key_bytes};

use crate::base::{Error, Location, PageId, Result};
use crate::buffer::{ExclusiveGuard, Interrupt, OptimisticGuard, Pool};
use crate::sync::Backoff;
use edit::{Fences, NodeMut};
use node::{LEAF, Node};
use std::sync::Arc;

/// What the tree asks and tells the rooms above.
pub trait TreeObserver: Send + Sync {
    /// True if nobody needs to know any more who wrote an entry with this stamp, or what was there before.
    fn is_settled(&self, stamp: u64) -> bool;

    /// The structure of `participants` is about to change; all are latched.
    fn before_structure_change(&self, participants: &[&ExclusiveGuard<'_>]);
}

/// A tree. Cloning gives another handle of the same one.
#[derive(Clone)]
pub struct Tree {
    pool: Arc<Pool>,
    root: PageId,
    observer: Arc<dyn TreeObserver>,
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tree(root {:?})", self.root)
    }
}

/// A tree deeper than this is a cycle of corrupt pages.
const DEPTH_MAX: usize = 64;

/// Runs `step` until it is not interrupted.
fn retry<T>(mut step: impl FnMut() -> Result<T, Interrupt>) -> Result<T> {
    let mut backoff = Backoff::new();
    loop {
        match step() {
            Ok(value) => return Ok(value),
            Err(Interrupt::Restart) => backoff.pause(),
            Err(Interrupt::Failed(error)) => return Err(error),
        }
    }
}

fn corrupt(page: PageId, what: &str) -> Error {
    Error::corruption(what).at(Location::Page { page, offset: 0 })
}

/// Which leaf a descent is for.
#[derive(Clone, Copy)]
enum Target<'k> {
    /// The one that covers the key.
    Covering(&'k [u8]),
    /// The one with the keys right below the key.
    Below(&'k [u8]),
    /// The last one.
    Last,
}

impl Tree {
    /// An empty tree.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn create(pool: Arc<Pool>, observer: Arc<dyn TreeObserver>) -> Result<Tree> {
        let root = {
            let mut guard = pool.allocate()?;
            let everything = Fences { lower: Vec::new(), upper: None };
            NodeMut::new(guard.bytes_mut()).init(LEAF, &everything);
            guard.page_id()
        };
        Ok(Tree { pool, root, observer })
    }

    /// The tree whose root is `root`.
    #[must_use]
    pub fn open(pool: Arc<Pool>, observer: Arc<dyn TreeObserver>, root: PageId) -> Tree {
        Tree { pool, root, observer }
    }

    /// True if its pages are in `pool`, hence in the database of `pool`.
    #[must_use]
    pub fn is_in(&self, pool: &Arc<Pool>) -> bool {
        Arc::ptr_eq(&self.pool, pool)
    }

    /// The page of the root: identifies the tree for ever.
    #[must_use]
    pub fn root(&self) -> PageId {
        self.root
    }

    /// Looks at the leaf for `target`. Not validated.
    #[inline]
    fn descend(&self, target: Target<'_>) -> Result<OptimisticGuard<'_>, Interrupt> {
        let mut guard = self.pool.optimistic(self.root)?;
        for _ in 0..DEPTH_MAX {
            let node = Node::new(guard.bytes());
            if node.is_leaf() {
                return Ok(guard);
            }
            if !node.is_inner() {
                guard.validate()?;
                return Err(corrupt(guard.page_id(), "a page of a tree is no node").into());
            }
            let index = match target {
                Target::Covering(key) => node.child_index(key, false),
                Target::Below(key) => node.child_index(key, true),
                Target::Last => node.count(),
            };
            guard = guard.child(node.child(index))?;
        }
        guard.validate()?;
        Err(corrupt(self.root, "a tree is deeper than can be: its pages form a cycle").into())
    }

    /// Reads `key`'s entry: its value goes to `value`, which is cleared first. `None` if there is no entry.
    ///
    /// # Errors
    /// I/O, `Corruption`, `OutOfMemory` when a page has to be read.
    pub fn lookup(&self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<EntryMeta>> {
        retry(|| {
            value.clear();
            let guard = self.descend(Target::Covering(key))?;
            let node = Node::new(guard.bytes());
            let (index, found) = node.search(key);
            let entry = found.then(|| {
                node.value_into(index, value);
                node.meta(index)
            });
            guard.validate()?;
            Ok(entry)
        })
    }

    fn settled(&self, stamp: u64) -> bool {
        stamp == 0 || self.observer.is_settled(stamp)
    }

    /// Frees all pages. Nobody may use the tree during this or afterwards.
    ///
    /// # Errors
    /// I/O, `Corruption` while pages are read: the rest of the pages stays allocated.
    pub fn destroy(self) -> Result<()> {
        self.destroy_below(self.root, DEPTH_MAX)
    }

    fn destroy_below(&self, page: PageId, depth: usize) -> Result<()> {
        if depth == 0 {
            return Err(corrupt(page, "a tree is deeper than can be: its pages form a cycle"));
        }
        let guard = self.pool.exclusive(page)?;
        let children: Vec<PageId> = {
            let node = Node::new(guard.bytes());
            if node.is_inner() { (0..=node.count()).map(|i| node.child(i)).collect() } else { Vec::new() }
        };
        for child in children {
            self.destroy_below(child, depth - 1)?;
        }
        self.pool.free(guard);
        Ok(())
    }
}
