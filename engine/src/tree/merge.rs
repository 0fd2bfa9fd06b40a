//! Merging nodes that have become small.
//!
//! A node is *small* when less than a quarter of it is used, and is merged with a neighbour under the same parent only if
//! both together fill at most three quarters: so neither a few inserts split the result nor a few removals merge it again.

use super::Tree;
use super::descent::Target;
use super::edit::{Fences, NodeMut, Settled, rebuilt_bytes, snapshot};
use super::node::{Node, SLOTS_OFFSET, WORD, inner_entry_bytes};
use crate::base::planted::{self, Bug};
use crate::base::{PageId, Result};
use crate::buffer::{ExclusiveGuard, Interrupt, OptimisticGuard};

/// Whether less than a quarter of the node is used.
pub(super) fn is_small(node: Node<'_>) -> bool {
    let unused = node.gap() + node.garbage();
    let all = node.page.len() - SLOTS_OFFSET;
    unused > all / 4 * 3
}

impl Tree {
    /// Takes a tombstone that everybody may see out of the tree, and merges leaves that have become small.
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
        while self.retry(|| self.merge(key, level))? {
            level += 1;
        }
        self.retry(|| self.lower_root())
    }

    /// Merges the node of `level` that covers `key` with a neighbour. Returns whether it did.
    fn merge(&self, key: &[u8], level: u8) -> Result<bool, Interrupt> {
        if !self.has_level(level)? {
            return Ok(false);
        }
        let arrival = self.descend(Target::At(key), level)?;
        let small = is_small(Node::new(arrival.guard.bytes()));
        arrival.guard.validate()?;
        let (true, Some((parent, index))) = (small, arrival.parent) else { return Ok(false) };
        let separators = Node::new(parent.bytes()).count();
        parent.validate()?;
        if index < separators && self.merge_children(parent, index)? {
            return Ok(true);
        }
        Ok(index > 0 && self.merge_children(parent, index - 1)?)
    }

    /// The root can get lower meanwhile, and then nothing is left to do.
    fn has_level(&self, level: u8) -> Result<bool, Interrupt> {
        let root = self.pool.optimistic(self.root)?;
        let top = Node::new(root.bytes()).level();
        root.validate()?;
        Ok(level < top)
    }

    /// Merges child `index` and the next one if they fit.
    fn merge_children(&self, parent: OptimisticGuard<'_>, index: usize) -> Result<bool, Interrupt> {
        let above = Node::new(parent.bytes());
        let (left, right) = (above.child(index), above.child(index + 1));
        let left = self.pool.child(&parent, left)?;
        let right = self.pool.child(&parent, right)?;
        let separator = above.key(index);
        let parent = parent.upgrade()?;
        let (left, right) = (left.upgrade()?, right.upgrade()?);
        let settled = |stamp| self.is_settled(stamp);
        if !fit_together(Node::new(left.bytes()), Node::new(right.bytes()), &separator, &settled) {
            // Given back unchanged, so that nobody's optimistic look is disturbed; the caller's guard stays valid.
            return Ok(false);
        }
        self.merge_latched(parent, index, [left, right], &separator);
        Ok(true)
    }

    fn merge_latched(
        &self,
        mut parent: ExclusiveGuard<'_>,
        index: usize,
        [mut left, right]: [ExclusiveGuard<'_>; 2],
        separator: &[u8],
    ) {
        self.observer.before_structure_change(&[&parent, &left, &right]);
        let old = snapshot(left.bytes());
        let (old, other) = (Node::new(old.bytes()), Node::new(right.bytes()));
        let fences = Fences { lower: old.lower(), upper: other.upper() };
        let mut merged = NodeMut::new(left.bytes_mut());
        if old.is_leaf() {
            let settled = |stamp| self.is_settled(stamp);
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
        NodeMut::new(parent.bytes_mut()).remove(index);
        parent.mark_dirty();
        left.mark_dirty();
        self.pool.free(right);
    }

    /// While the root has a single child, the child's content takes its place.
    fn lower_root(&self) -> Result<(), Interrupt> {
        loop {
            let root = self.pool.optimistic(self.root)?;
            let node = Node::new(root.bytes());
            let (lonely, only) = (!node.is_leaf() && node.count() == 0, node.child(0));
            root.validate()?;
            if !lonely {
                return Ok(());
            }
            let child = self.pool.child(&root, only)?;
            let (mut root, child) = (root.upgrade()?, child.upgrade()?);
            self.observer.before_structure_change(&[&root, &child]);
            NodeMut::new(root.bytes_mut()).copy_node(child.bytes());
            root.mark_dirty();
            self.pool.free(child);
        }
    }
}

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
