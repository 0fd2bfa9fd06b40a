//! Rank 5: where is this key?
//!
//! A [`Tree`] is a B+-tree of pages in a [`Pool`]. What its entries mean (who wrote them, who may see them) is for the
//! transaction layer, which it asks through a [`TreeObserver`].
//!
//! ```text
//!                 root (its page id never changes)       level 2
//!                /            |           \
//!            inner          inner        inner           level 1: separators, truncated to what tells children apart
//!           /  |  \          ...          ...
//!       leaf leaf leaf                                   level 0: entries with stamps; no sibling pointers
//! ```
//!
//! Invariants:
//! 1. A node covers the keys from its lower fence (inclusive) to its upper (exclusive); its children's ranges lie side by
//!    side and fill it. Whoever wants to go on behind a leaf descends again with its upper fence.
//! 2. *Optimistic latch coupling*: a descent holds nothing. The child's version is read before the parent is validated, so
//!    the child covered the key at the moment from which its guard counts ([`OptimisticGuard::child`]), and a page that has
//!    been freed and used again is never taken for the old one. What was read counts only after validation.
//! 3. Latches are only ever taken by turning an optimistic guard into an exclusive one, which does not wait. So there are no
//!    deadlocks; whoever does not get a latch drops what it has and starts over.
//! 4. A structure change (split, merge, root grows or shrinks) holds all pages concerned exclusively, has allocated what it
//!    needs, tells the observer once, and only then changes anything.
//! 5. A value that is too long for an entry lies in overflow pages ([`overflow`]); the entry holds a reference. The tree
//!    never frees them by itself, except in [`Tree::destroy`]: who else may see the value is for the transaction layer.
//! 6. Room rule: the capacity of an unsettled entry never shrinks (see [`TreeObserver::is_settled`]).

mod check;
pub mod content;
mod descent;
mod edit;
mod free;
pub mod image;
mod merge;
mod node;
pub mod overflow;
mod scan;
mod split;
mod survey;
#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
mod write;

pub use free::Subtree;
pub use node::{EntryMeta, Held, max_entry_bytes, max_key_bytes};
pub use overflow::{LargeReader, LargeReference, LargeWriter, REFERENCE_BYTES, VALUE_BYTES_MAX};
pub use scan::{BatchEntry, LeafBatch};
pub use survey::{PageDamage, Survey, TreeSummary};
pub use write::{LeafHint, LeafWrite};

use crate::base::{PageId, Result};
use crate::buffer::{ExclusiveGuard, HIDDEN_EPOCH, Interrupt, Pool};
use descent::Target;
use edit::{Fences, NodeMut};
use node::Node;
use std::sync::Arc;

#[cfg(doc)]
use crate::buffer::OptimisticGuard;

/// What the tree asks and tells the layer above.
///
/// 1. Called with latches held: must not use the tree.
/// 2. Once settled, a stamp stays settled.
pub trait TreeObserver: Send + Sync {
    /// Whether everybody may see what the stamp stands for, for ever. Never asked for 0, which is settled.
    fn is_settled(&self, stamp: u64) -> bool;
    /// The pages are about to change together, not by single entries. Pages that are new are not among them.
    fn before_structure_change(&self, participants: &[&ExclusiveGuard<'_>]);
}

/// A B+-tree; cloning gives another handle to the same tree.
#[derive(Clone)]
pub struct Tree {
    pool: Arc<Pool>,
    root: PageId,
    observer: Arc<dyn TreeObserver>,
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tree(root {})", self.root)
    }
}

impl Tree {
    /// A new empty tree.
    ///
    /// # Errors
    /// No memory for its root.
    pub fn create(pool: Arc<Pool>, observer: Arc<dyn TreeObserver>) -> Result<Tree> {
        let tree = Tree::create_hidden(pool, observer)?;
        tree.publish();
        Ok(tree)
    }

    /// As [`Tree::create`], with the root kept out of images from its first moment on: nobody knows of the tree yet, and a checkpoint
    /// would have a page that no table leads to. Until [`Tree::publish`] nothing may be put into the tree.
    ///
    /// # Errors
    /// As [`Tree::create`].
    pub fn create_hidden(pool: Arc<Pool>, observer: Arc<dyn TreeObserver>) -> Result<Tree> {
        let mut guard = pool.allocate()?;
        // While it is latched: a round that begins meanwhile waits for it, and sees.
        guard.set_imaged(HIDDEN_EPOCH);
        let everything = Fences { lower: Vec::new(), upper: None };
        NodeMut::new(guard.bytes_mut()).init(0, &everything, PageId(0));
        let root = guard.page_id();
        drop(guard);
        Ok(Tree { pool, root, observer })
    }

    /// The root of a tree that was created hidden is in images again. From now on checkpoints whose round begins later have the tree; no round begins meanwhile.
    pub fn publish(&self) {
        self.pool.frames().set_imaged(self.root, self.pool.frames().epoch());
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

    /// Where its pages are.
    #[must_use]
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The page of the root: identifies the tree for ever.
    #[must_use]
    pub fn root(&self) -> PageId {
        self.root
    }

    #[inline]
    fn is_settled(&self, stamp: u64) -> bool {
        self.observer.is_settled(stamp)
    }

    /// Fills `value` with what the entry at `key` holds, and tells what that is and whose. Holds and writes nothing shared.
    ///
    /// # Errors
    /// A page cannot be read.
    #[inline]
    pub fn lookup(&self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<EntryMeta>> {
        self.lookup_in_leaf(key, value).map(|(_, found)| found)
    }

    /// As [`Tree::lookup`], and in which leaf the key is, or would be.
    ///
    /// # Errors
    /// As [`Tree::lookup`].
    #[inline]
    pub fn lookup_in_leaf(&self, key: &[u8], value: &mut Vec<u8>) -> Result<(PageId, Option<EntryMeta>)> {
        match self.try_lookup(key, value) {
            Ok(found) => Ok(found),
            Err(interrupt) => self.retry_after(interrupt, || self.try_lookup(key, value)),
        }
    }

    #[inline]
    fn try_lookup(&self, key: &[u8], value: &mut Vec<u8>) -> Result<(PageId, Option<EntryMeta>), Interrupt> {
        value.clear();
        let leaf = self.descend(Target::At(key), 0)?.guard;
        let node = Node::new(leaf.bytes());
        let (index, found) = node.search(key);
        let meta = found.then(|| {
            let entry = node.entry(index);
            node.page.append_to(entry.value_offset(), entry.value_len, value);
            entry.meta
        });
        leaf.validate()?;
        Ok((leaf.page_id(), meta))
    }
}
