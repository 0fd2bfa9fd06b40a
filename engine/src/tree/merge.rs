//! Merges nodes that have become small.
//!
//! A node is *small* when less than a quarter of it is used. It is merged with a neighbour under
//! the same parent only if both together fill at most three quarters. So neither a few inserts
//! split the result nor a few removals merge it again.

use super::descent::Target;
use super::edit::{Fences, NodeMut, Settled, rebuilt_bytes, snapshot};
use super::handle::Tree;
use super::node::{Node, WORD, inner_entry_bytes};
use crate::base::planted::{self, Bug};
use crate::base::{PageId, Result};
use crate::buffer::{ExclusiveGuard, Interrupt, OptimisticGuard};

impl Tree {
    /// Removes a settled tombstone, and merges leaves that have become small.
    ///
    /// # Errors
    /// A page cannot be read; `OutOfSpace`: the tombstone stays.
    pub fn purge(&self, key: &[u8]) -> Result<()> {
        let small = self.retry(|| {
            let mut leaf = self.leaf_to_purge(key)?;
            leaf.reserve()?;
            Ok(leaf.purge())
        })?;
        if small { self.shrink(key) } else { Ok(()) }
    }

    /// Merges the nodes that cover `key`, from the leaf up, as far as they are small.
    fn shrink(&self, key: &[u8]) -> Result<()> {
        let mut level = 0;
        while self.retry(|| merge(self, key, level))? {
            level += 1;
        }
        self.retry(|| lower_root(self))
    }
}

/// Merges the node of `level` that covers `key` with a neighbour. Returns whether it did.
fn merge(tree: &Tree, key: &[u8], level: u8) -> Result<bool, Interrupt> {
    if !has_level(tree, level)? {
        return Ok(false);
    }
    let arrival = tree.descend(Target::At(key), level)?;
    let small = Node::new(arrival.guard.bytes()).is_small();
    arrival.guard.validate()?;
    let (true, Some((parent, index))) = (small, arrival.parent) else { return Ok(false) };
    let separators = Node::new(parent.bytes()).count();
    parent.validate()?;
    if index < separators && merge_children(tree, parent, index)? {
        return Ok(true);
    }
    Ok(index > 0 && merge_children(tree, parent, index - 1)?)
}

/// Returns whether the root is above `level`. It may have become lower meanwhile; then no work is
/// left.
fn has_level(tree: &Tree, level: u8) -> Result<bool, Interrupt> {
    let root = tree.pool.optimistic(tree.root)?;
    let top = Node::new(root.bytes()).level();
    root.validate()?;
    Ok(level < top)
}

/// Merges child `index` and the next one if they fit.
fn merge_children(tree: &Tree, parent: OptimisticGuard<'_>, index: usize) -> Result<bool, Interrupt> {
    let above = Node::new(parent.bytes());
    let (left, right) = (above.child(index), above.child(index + 1));
    let left = tree.pool.child(&parent, left)?;
    let right = tree.pool.child(&parent, right)?;
    let separator = above.key(index);
    let parent = parent.upgrade()?;
    let (left, right) = (left.upgrade()?, right.upgrade()?);
    let settled = |stamp| tree.is_settled(stamp);
    if !fit_together(Node::new(left.bytes()), Node::new(right.bytes()), &separator, &settled) {
        // The pages are released unchanged, so optimistic readers continue and the caller's guard
        // stays valid.
        return Ok(false);
    }
    merge_latched(tree, parent, index, [left, right], &separator);
    Ok(true)
}

fn merge_latched(
    tree: &Tree,
    mut parent: ExclusiveGuard<'_>,
    index: usize,
    [mut left, right]: [ExclusiveGuard<'_>; 2],
    separator: &[u8],
) {
    tree.observer.before_structure_change(&[&parent, &left, &right]);
    let old = snapshot(left.bytes());
    let (old, other) = (Node::new(old.bytes()), Node::new(right.bytes()));
    let fences = Fences { lower: old.lower(), upper: other.upper() };
    let mut merged = NodeMut::new(left.bytes_mut());
    if old.is_leaf() {
        let settled = |stamp| tree.is_settled(stamp);
        merged.init(0, &fences, PageId(0));
        merged.append_entries(old, 0..old.count(), &settled);
        let left_out = usize::from(planted::is(Bug::MergeDropsRow) && other.count() > 0);
        merged.append_entries(other, 0..other.count() - left_out, &settled);
    } else {
        merged.init(old.level(), &fences, old.child(0));
        merged.append_children(old, 0..old.count());
        merged.append_child(separator, other.child(0));
        merged.append_children(other, 0..other.count());
    }
    debug_assert!(
        merged.node().gap() >= fences.room(old.page.len()) / 4,
        "a merged node is at most three quarters full"
    );
    NodeMut::new(parent.bytes_mut()).remove(index);
    parent.mark_dirty();
    left.mark_dirty();
    tree.pool.free(right);
}

/// As long as the root has a single child, replaces the root's content with the child's.
fn lower_root(tree: &Tree) -> Result<(), Interrupt> {
    loop {
        let root = tree.pool.optimistic(tree.root)?;
        let node = Node::new(root.bytes());
        let (lonely, only) = (!node.is_leaf() && node.count() == 0, node.child(0));
        root.validate()?;
        if !lonely {
            return Ok(());
        }
        let child = tree.pool.child(&root, only)?;
        let (mut root, child) = (root.upgrade()?, child.upgrade()?);
        tree.observer.before_structure_change(&[&root, &child]);
        NodeMut::new(root.bytes_mut()).copy_node(child.bytes());
        root.mark_dirty();
        tree.pool.free(child);
    }
}

/// Returns whether both nodes fit in one that is at most three quarters full.
fn fit_together(left: Node<'_>, right: Node<'_>, separator: &[u8], settled: &Settled<'_>) -> bool {
    if left.level() != right.level() {
        return false;
    }
    let fences = Fences { lower: left.lower(), upper: right.upper() };
    let prefix_len = fences.prefix_len();
    let mut bytes = rebuilt_bytes(left, prefix_len, settled) + rebuilt_bytes(right, prefix_len, settled);
    if !left.is_leaf() {
        bytes += inner_entry_bytes(separator.len().saturating_sub(prefix_len)) + WORD;
    }
    bytes <= fences.room(left.page.len()) / 4 * 3
}
