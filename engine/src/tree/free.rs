//! Frees a tree: its nodes, and the large values of its entries.
//!
//! 1. A free page may be part of another tree at once. So the step that frees a page also removes
//!    it from the list of remaining pages, and adds the pages below it. A caller that continues
//!    after a failure frees no page twice, and forgets none.
//! 2. A parent is freed before its children are read. A damaged page that refers to itself, or up,
//!    then leads to a page that does not exist, instead of a latch that this thread holds.

use super::check;
use super::handle::Tree;
use super::node::Node;
use super::overflow::{self, LargeSubtree};
use crate::base::planted::{self, Bug};
use crate::base::{ErrorKind, PageId, Result};
use crate::buffer::{EmergencyReserve, Pool};

/// A page to be freed, with all pages below it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subtree {
    /// A node, with the large values of its entries.
    Node(PageId),
    /// A page of a large value whose leaf was freed.
    Large(LargeSubtree),
}

impl Tree {
    /// Frees all pages, also of large values. No other thread may be using the tree.
    ///
    /// # Errors
    /// As [`Tree::free_pages`].
    pub fn destroy(self) -> Result<()> {
        self.free_pages(&mut vec![Subtree::Node(self.root)])
    }

    /// Frees the pages in `rest` and all below them; after a failure `rest` lists the remaining
    /// pages. A damaged page, and the pages below it, stay allocated, because its content is
    /// unknown. No other thread may be using the tree.
    ///
    /// # Errors
    /// A page cannot be read; or, with nothing left in `rest`, [`ErrorKind::Corruption`] of the
    /// first damaged page.
    pub fn free_pages(&self, rest: &mut Vec<Subtree>) -> Result<()> {
        // Each page that is brought in is freed at once.
        let _reserve = EmergencyReserve::begin();
        let mut damaged = Ok(());
        while let Some(subtree) = rest.pop() {
            let freed = match subtree {
                Subtree::Node(page) => free_node(&self.pool, page, rest),
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
}

/// Frees a node and appends the pages below it. The large values of a damaged leaf stay allocated.
fn free_node(pool: &Pool, page: PageId, below: &mut Vec<Subtree>) -> Result<()> {
    let guard = pool.exclusive(page)?;
    let node = Node::new(guard.bytes());
    if !node.is_leaf() {
        below.extend((0..=node.count()).map(|index| Subtree::Node(node.child(index))));
    }
    let large = check::references(node);
    let subtree = |reference| Subtree::Large(LargeSubtree::whole(pool, reference));
    below.extend(large.iter().flatten().map(subtree));
    pool.free(guard);
    large.map(drop)
}
