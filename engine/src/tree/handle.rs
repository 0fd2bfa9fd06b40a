//! A tree: its pages, its root, and what it asks the layer above.

use super::edit::{Fences, NodeMut};
use crate::base::{PageId, Result};
use crate::buffer::{ExclusiveGuard, HIDDEN_EPOCH, Pool};
use std::sync::Arc;

/// Questions and notices of the tree to the layer above.
///
/// 1. Called with latches held: must not use the tree.
/// 2. Once settled, a stamp stays settled.
pub trait TreeObserver: Send + Sync {
    /// Returns whether every transaction, now and later, may see what the stamp stands for. Never
    /// called with 0, which is settled.
    fn is_settled(&self, stamp: u64) -> bool;
    /// Called before the pages change together, not by single entries. New pages are not among the
    /// participants.
    fn before_structure_change(&self, participants: &[&ExclusiveGuard<'_>]);
}

/// A B+-tree; cloning gives another handle to the same tree.
#[derive(Clone)]
pub struct Tree {
    pub(super) pool: Arc<Pool>,
    pub(super) root: PageId,
    pub(super) observer: Arc<dyn TreeObserver>,
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tree(root {})", self.root)
    }
}

impl Tree {
    /// Makes a new empty tree.
    ///
    /// # Errors
    /// No memory for its root.
    pub fn create(pool: Arc<Pool>, observer: Arc<dyn TreeObserver>) -> Result<Tree> {
        let tree = Tree::create_hidden(pool, observer)?;
        tree.publish();
        Ok(tree)
    }

    /// As [`Tree::create`], with the root kept out of images from its first moment on. No table
    /// leads to the tree yet, so a checkpoint would contain a page that nothing refers to. Until
    /// [`Tree::publish`] nothing may be put into the tree.
    ///
    /// # Errors
    /// As [`Tree::create`].
    pub fn create_hidden(pool: Arc<Pool>, observer: Arc<dyn TreeObserver>) -> Result<Tree> {
        let mut guard = pool.allocate()?;
        // Under the latch: an epoch that begins meanwhile waits for the latch, and then sees the
        // mark.
        guard.set_imaged(HIDDEN_EPOCH);
        let everything = Fences { lower: Vec::new(), upper: None };
        NodeMut::new(guard.bytes_mut()).init(0, &everything, PageId(0));
        let root = guard.page_id();
        drop(guard);
        Ok(Tree { pool, root, observer })
    }

    /// Lets the root of a hidden tree appear in images again. Checkpoints whose epoch begins later
    /// contain the tree. The caller makes sure that no epoch begins meanwhile.
    pub fn publish(&self) {
        let frames = self.pool.frames();
        debug_assert_eq!(frames.epoch_of(self.root), HIDDEN_EPOCH, "published once");
        frames.set_imaged(self.root, frames.epoch());
    }

    /// Returns the tree whose root is `root`.
    #[must_use]
    pub fn open(pool: Arc<Pool>, observer: Arc<dyn TreeObserver>, root: PageId) -> Tree {
        Tree { pool, root, observer }
    }

    /// Returns whether the tree's pages are in `pool`, hence in the database of `pool`.
    #[must_use]
    pub fn is_in(&self, pool: &Arc<Pool>) -> bool {
        Arc::ptr_eq(&self.pool, pool)
    }

    /// The pool that the tree's pages are in.
    #[must_use]
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The page of the root, which identifies the tree as long as it exists.
    #[must_use]
    pub fn root(&self) -> PageId {
        self.root
    }

    #[inline]
    pub(super) fn is_settled(&self, stamp: u64) -> bool {
        debug_assert!(stamp != 0, "0 is settled, and nobody asks for it");
        self.observer.is_settled(stamp)
    }
}
