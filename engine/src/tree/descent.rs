//! Descends from the root to the node that covers a key.

use super::handle::Tree;
use super::node::Node;
use super::retry::{WhenStarved, retry, retry_after};
use crate::base::{Error, PageId, Result};
use crate::buffer::{Interrupt, OptimisticGuard, PageBytes, Pool, Restart, ScanBuffer, SharedGuard};

/// The leaf, or inner node, to find.
#[derive(Clone, Copy)]
pub(super) enum Target<'k> {
    /// The node that covers the key.
    At(&'k [u8]),
    /// The node that covers the keys just below the key.
    Below(&'k [u8]),
    /// The last node.
    Last,
}

/// The end of a descent. It counts only after the guards are validated or upgraded.
pub(super) struct Arrival<'p> {
    pub guard: OptimisticGuard<'p>,
    /// The parent, and the index of `guard` among its children; `None` at the root.
    pub parent: Option<(OptimisticGuard<'p>, usize)>,
}

/// A leaf to copy entries from.
pub(super) enum Leaf<'a> {
    /// In memory; what was read counts when the guard is validated.
    Resident(OptimisticGuard<'a>),
    /// A scan's own copy of an evicted leaf: no thread changes it.
    Copy(PageId, PageBytes<'a>),
}

impl<'a> Leaf<'a> {
    pub(super) fn page_id(&self) -> PageId {
        match self {
            Leaf::Resident(guard) => guard.page_id(),
            Leaf::Copy(page, _) => *page,
        }
    }

    pub(super) fn node(&self) -> Node<'a> {
        match self {
            Leaf::Resident(guard) => Node::new(guard.bytes()),
            Leaf::Copy(_, bytes) => Node::new(*bytes),
        }
    }

    /// Keeps writers out as long as the result exists.
    pub(super) fn latch(&self) -> Result<Option<SharedGuard<'a>>, Restart> {
        match self {
            Leaf::Resident(guard) => guard.upgrade_shared().map(Some),
            Leaf::Copy(..) => Ok(None),
        }
    }

    pub(super) fn validate(&self) -> Result<(), Restart> {
        match self {
            Leaf::Resident(guard) => guard.validate(),
            Leaf::Copy(..) => Ok(()),
        }
    }
}

#[cold]
fn wrong_node(guard: &OptimisticGuard<'_>) -> Interrupt {
    match guard.validate() {
        Ok(()) => Interrupt::Failed(Error::corruption(format!(
            "{} is not the node of the tree that is expected there",
            guard.page_id()
        ))),
        Err(restart) => restart.into(),
    }
}

/// Returns the child of `parent` on page `page`, which has to be a node of `level`.
#[inline(always)]
fn child_of<'p>(
    pool: &'p Pool,
    parent: &OptimisticGuard<'p>,
    page: PageId,
    level: u8,
) -> Result<OptimisticGuard<'p>, Interrupt> {
    let child = pool.child(parent, page)?;
    if Node::new(child.bytes()).is_of(level) { Ok(child) } else { Err(wrong_node(&child)) }
}

/// Returns the index and the page of the child of an inner node that leads to the target.
#[inline(always)]
pub(super) fn child_at(node: Node<'_>, target: Target<'_>) -> (usize, PageId) {
    let index = match target {
        Target::At(key) => return node.child_of(key),
        // The node's upper fence is below the key too, and need not have the node's prefix.
        Target::Below(key) if node.covers(key) => node.search(key).0,
        Target::Below(_) | Target::Last => node.count(),
    };
    (index, node.child(index))
}

impl Tree {
    /// Repeats `attempt` until no writer interrupts it.
    pub(super) fn retry<T>(&self, attempt: impl FnMut() -> Result<T, Interrupt>) -> Result<T> {
        retry(&self.pool, attempt)
    }

    /// [`Tree::retry`] for a change.
    pub(super) fn retry_change<T>(&self, attempt: impl FnMut() -> Result<T, Interrupt>) -> Result<T> {
        retry_after(&self.pool, Interrupt::Restart, WhenStarved::Continue, attempt)
    }

    /// Descends to the node of `level` that covers the target. Every step goes one level down, so
    /// the descent ends even in a damaged tree.
    #[inline]
    pub(super) fn descend(&self, target: Target<'_>, level: u8) -> Result<Arrival<'_>, Interrupt> {
        match self.descend_in_memory(target, level) {
            Ok(arrival) => Ok(arrival),
            Err(Restart) => self.descend_any(target, level),
        }
    }

    /// [`Tree::descend`] through nodes that are in memory and that no writer holds.
    #[inline(always)]
    fn descend_in_memory(&self, target: Target<'_>, level: u8) -> Result<Arrival<'_>, Restart> {
        self.walk(target, level, |page| self.pool.optimistic_now(page), |_| Restart)
    }

    #[cold]
    fn descend_any(&self, target: Target<'_>, level: u8) -> Result<Arrival<'_>, Interrupt> {
        self.walk(target, level, |page| Ok(self.pool.optimistic(page)?), wrong_node)
    }

    #[inline(always)]
    fn walk<'p, E: From<Restart>>(
        &self,
        target: Target<'_>,
        level: u8,
        open: impl Fn(PageId) -> Result<OptimisticGuard<'p>, E>,
        wrong_node: impl Fn(&OptimisticGuard<'p>) -> E,
    ) -> Result<Arrival<'p>, E> {
        let mut guard = open(self.root)?;
        let mut parent = None;
        let mut node = Node::new(guard.bytes());
        let mut at = node.level();
        if !node.is_of(at) {
            return Err(wrong_node(&guard));
        }
        if at < level {
            return Err(Restart.into());
        }
        self.pool.visited(u64::from(at - level) + 1);
        while at > level {
            let (index, page) = child_at(node, target);
            at -= 1;
            // As in `Pool::child`: first the child, then the parent.
            let child = open(page);
            guard.validate()?;
            let child = child?;
            node = Node::new(child.bytes());
            if !node.is_of(at) {
                return Err(wrong_node(&child));
            }
            parent = Some((guard, index));
            guard = child;
        }
        Ok(Arrival { guard, parent })
    }

    /// Descends to the leaf that covers the target. Takes the leaf's copy from `buffer` if there is
    /// one, and otherwise brings the leaf into memory.
    pub(super) fn descend_to_leaf<'a>(
        &'a self,
        target: Target<'_>,
        buffer: &'a mut ScanBuffer,
    ) -> Result<Leaf<'a>, Interrupt> {
        if buffer.is_empty() || self.is_one_leaf()? {
            return Ok(Leaf::Resident(self.descend(target, 0)?.guard));
        }
        let parent = self.descend(target, 1)?.guard;
        let (_, page) = child_at(Node::new(parent.bytes()), target);
        // As with guards: first the child, then the parent, so that the page was the right one when
        // the copy equalled it.
        let copy = buffer.find(self.pool.frames(), page).filter(|bytes| Node::new(*bytes).is_of(0));
        match copy {
            Some(bytes) => {
                parent.validate()?;
                Ok(Leaf::Copy(page, bytes))
            }
            None => Ok(Leaf::Resident(child_of(&self.pool, &parent, page, 0)?)),
        }
    }

    /// Returns whether the root is a leaf.
    pub(super) fn is_one_leaf(&self) -> Result<bool, Interrupt> {
        let root = self.pool.optimistic(self.root)?;
        let is_leaf = Node::new(root.bytes()).is_leaf();
        root.validate()?;
        Ok(is_leaf)
    }
}
