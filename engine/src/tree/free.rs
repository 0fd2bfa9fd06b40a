//! Freeing a tree: its nodes, and the large values of its entries.
//!
//! 1. A page that is free may be part of something else at once. So it is off the list of what is left in the step in which it is freed, and what
//!    was below it is on the list instead: whoever goes on after a failure frees nothing twice, and forgets nothing.
//! 2. A parent is freed before its children are looked at: a damaged page that refers to itself, or up, then meets a page that does
//!    not exist instead of waiting for a latch that this thread holds.

use super::node::Node;
use super::overflow::{self, LargeSubtree};
use super::{Tree, check};
use crate::base::planted::{self, Bug};
use crate::base::{ErrorKind, PageId, Result};
use crate::buffer::EmergencyReserve;

/// A page that is to be freed, with all below it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subtree {
    /// A node, with the large values of its entries.
    Node(PageId),
    /// A page of a large value whose leaf is free.
    Large(LargeSubtree),
}

impl Tree {
    /// Frees all pages, those of large values too. Nobody else may be using the tree.
    ///
    /// # Errors
    /// As [`Tree::free_pages`].
    pub fn destroy(self) -> Result<()> {
        self.free_pages(&mut vec![Subtree::Node(self.root)])
    }

    /// Frees the pages in `rest` and all below them; after a failure `rest` is what is left to be freed. A damaged page, and
    /// what is below it, stays allocated: nobody knows what was in it. Nobody else may be using the tree.
    ///
    /// # Errors
    /// A page cannot be read; or, with nothing left in `rest`, [`ErrorKind::Corruption`] of the first damaged page.
    pub fn free_pages(&self, rest: &mut Vec<Subtree>) -> Result<()> {
        // Each page that is brought in is freed at once.
        let _reserve = EmergencyReserve::begin();
        let mut damaged = Ok(());
        while let Some(subtree) = rest.pop() {
            let freed = match subtree {
                Subtree::Node(page) => self.free_node(page, rest),
                Subtree::Large(large) if planted::is(Bug::ValueFreedTwice) => {
                    overflow::free_by(&self.pool, large, &mut |guard| self.pool.free(guard))
                }
                Subtree::Large(large) => large
                    .free_top(&self.pool, &mut |guard| self.pool.free(guard))
                    .map(|below| rest.extend(below.into_iter().map(Subtree::Large))),
            };
            match freed {
                Err(error) if error.kind() != ErrorKind::Corruption => {
                    rest.push(subtree);
                    return Err(error);
                }
                freed => damaged = damaged.and(freed),
            }
        }
        damaged
    }

    /// Frees a node and appends what is below it. Of a damaged leaf the large values stay.
    fn free_node(&self, page: PageId, below: &mut Vec<Subtree>) -> Result<()> {
        let guard = self.pool.exclusive(page)?;
        let node = Node::new(guard.bytes());
        if !node.is_leaf() {
            below.extend((0..=node.count()).map(|index| Subtree::Node(node.child(index))));
        }
        let large = check::references(node);
        let subtree = |reference| Subtree::Large(LargeSubtree::whole(&self.pool, reference));
        below.extend(large.iter().flatten().map(subtree));
        self.pool.free(guard);
        large.map(drop)
    }
}
