//! Structure changes: splitting, growing and shrinking the root, merging.
//!
//! All take their latches by upgrading what they read on the way down, so they never wait for a latch while they hold one;
//! all allocate before they change anything, so that a full pool leaves the tree as it was.

use super::edit::{Fences, NodeMut, kept_capacity};
use super::leaf::LeafHint;
use super::node::{INNER, LEAF, Node, SLOT_BYTES, UPPER_CHILD, inner_entry_bytes, max_key_bytes};
use super::{DEPTH_MAX, Tree, corrupt, retry};
use crate::base::Result;
use crate::buffer::{ExclusiveGuard, Interrupt, OptimisticGuard, ScratchPage};

/// Where a leaf is split.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SplitAt {
    /// Half of the bytes go right.
    Middle,
    /// Everything stays: the next keys will be higher.
    End,
}

impl Tree {
    /// Splits the leaf that covers `key`, and full nodes above it on the way down.
    pub(super) fn split_leaf(&self, key: &[u8], at: SplitAt) -> Result<()> {
        retry(|| self.try_split(key, at))
    }

    fn try_split(&self, key: &[u8], at: SplitAt) -> Result<(), Interrupt> {
        let separator_bytes = inner_entry_bytes(max_key_bytes(self.pool.page_bytes())) + SLOT_BYTES;
        let mut parent: Option<OptimisticGuard<'_>> = None;
        let mut guard = self.pool.optimistic(self.root)?;
        for _ in 0..DEPTH_MAX {
            let node = Node::new(guard.bytes());
            let is_leaf = node.is_leaf();
            let full = is_leaf || node.free_bytes() < separator_bytes;
            if full {
                guard.validate()?;
                if !is_leaf && node.free_bytes() + node.dead_bytes() >= separator_bytes {
                    self.compact_inner(guard)?;
                } else if let Some(parent) = parent {
                    self.split_node(parent, guard, key, if is_leaf { at } else { SplitAt::Middle })?;
                } else {
                    self.grow_root(guard)?;
                    return Err(Interrupt::Restart);
                }
                // A full inner node made room for its child's separator: the leaf is next, from the root again.
                return if is_leaf { Ok(()) } else { Err(Interrupt::Restart) };
            }
            let child = guard.child(node.child(node.child_index(key, false)))?;
            parent = Some(std::mem::replace(&mut guard, child));
        }
        guard.validate()?;
        Err(corrupt(self.root, "a tree is deeper than can be: its pages form a cycle").into())
    }

    fn compact_inner(&self, guard: OptimisticGuard<'_>) -> Result<(), Interrupt> {
        let mut guard = guard.upgrade()?;
        let mut scratch = ScratchPage::new(self.pool.page_bytes());
        {
            let source = Node::new(guard.bytes());
            let mut target = NodeMut::new(scratch.bytes_mut());
            target.init(INNER, &Fences::of(source));
            target.append_from(source, 0..source.count(), &mut |_| None);
            target.set_child(source.count(), source.child(source.count()));
        }
        NodeMut::new(guard.bytes_mut()).copy_page(Node::new(scratch.bytes()));
        Ok(())
    }

    /// Moves the root's content to a new page, its only child.
    fn grow_root(&self, root: OptimisticGuard<'_>) -> Result<(), Interrupt> {
        let mut root = root.upgrade()?;
        let mut child = self.pool.allocate()?;
        self.observer.before_structure_change(&[&root]);
        child.set_imaged(root.round());
        NodeMut::new(child.bytes_mut()).copy_page(Node::new(root.bytes()));
        let mut node = NodeMut::new(root.bytes_mut());
        node.init(INNER, &Fences { lower: Vec::new(), upper: None });
        node.set_child(0, child.page_id());
        root.mark_dirty();
        Ok(())
    }

    /// Moves the upper part of a node to a new page on its right; the parent has room for the separator.
    fn split_node(
        &self,
        parent: OptimisticGuard<'_>,
        node: OptimisticGuard<'_>,
        key: &[u8],
        at: SplitAt,
    ) -> Result<(), Interrupt> {
        let mut parent = parent.upgrade()?;
        let mut left = node.upgrade()?;
        let source = Node::new(left.bytes());
        let Some((middle, separator)) = split_point(source, key, at) else {
            return Err(corrupt(left.page_id(), "a full node has too few entries to split").into());
        };
        let mut right = self.pool.allocate()?;
        self.observer.before_structure_change(&[&parent, &left]);
        right.set_imaged(left.round());
        let fences = Fences::of(source);
        let mut scratch = ScratchPage::new(self.pool.page_bytes());
        let is_settled = |stamp| self.settled(stamp);
        let mut keep = |index| kept_capacity(source, index, &is_settled);
        let (kind, count) = if source.is_leaf() { (LEAF, source.count()) } else { (INNER, source.count()) };
        let mut low = NodeMut::new(scratch.bytes_mut());
        low.init(kind, &Fences { lower: fences.lower, upper: Some(separator.clone()) });
        low.append_from(source, 0..middle, &mut keep);
        let mut high = NodeMut::new(right.bytes_mut());
        high.init(kind, &Fences { lower: separator.clone(), upper: fences.upper });
        if kind == LEAF {
            high.append_from(source, middle..count, &mut keep);
        } else {
            // The middle separator moves up; its child becomes the last one of the left node.
            low.bytes.set_u64(UPPER_CHILD, source.child(middle).0);
            high.append_from(source, middle + 1..count, &mut keep);
            high.bytes.set_u64(UPPER_CHILD, source.child(count).0);
        }
        NodeMut::new(left.bytes_mut()).copy_page(Node::new(scratch.bytes()));
        let mut above = NodeMut::new(parent.bytes_mut());
        let index = above.node().child_index(&separator, false);
        above.insert_inner(index, &separator, left.page_id());
        above.set_child(index + 1, right.page_id());
        for guard in [&parent, &left, &right] {
            guard.mark_dirty();
        }
        Ok(())
    }

    /// Removes `key`'s entry if it is a tombstone that nobody needs, and merges the leaf with a neighbour if both are
    /// nearly empty.
    ///
    /// # Errors
    /// I/O, `Corruption` when a page has to be read.
    pub fn purge(&self, key: &[u8]) -> Result<()> {
        let sparse = {
            let mut hint = LeafHint::default();
            let mut leaf = self.write(key, 0, &mut hint)?;
            match leaf.entry() {
                Some(entry) if entry.tombstone && self.settled(entry.stamp) => leaf.remove(),
                _ => return Ok(()),
            }
            leaf.used_bytes() < self.pool.page_bytes() / 4
        };
        if !sparse {
            return Ok(());
        }
        match self.try_merge(key) {
            // Somebody was in the way: the next purge in this leaf tries again.
            Ok(()) | Err(Interrupt::Restart) => Ok(()),
            Err(Interrupt::Failed(error)) => Err(error),
        }
    }

    fn try_merge(&self, key: &[u8]) -> Result<(), Interrupt> {
        let mut parent: Option<OptimisticGuard<'_>> = None;
        let mut guard = self.pool.optimistic(self.root)?;
        for _ in 0..DEPTH_MAX {
            let node = Node::new(guard.bytes());
            if node.is_leaf() {
                break;
            }
            let child = guard.child(node.child(node.child_index(key, false)))?;
            parent = Some(std::mem::replace(&mut guard, child));
        }
        let Some(parent) = parent else { return Ok(()) };
        let above = Node::new(parent.bytes());
        if above.count() == 0 {
            return self.merge_only_child(parent, guard);
        }
        let index = above.child_index(key, false);
        let (index, left, right) = if index < above.count() {
            (index, guard, parent.child(above.child(index + 1))?)
        } else {
            (index - 1, parent.child(above.child(index - 1))?, guard)
        };
        self.merge(parent.upgrade()?, index, left.upgrade()?, right.upgrade()?);
        Ok(())
    }

    /// Takes the right leaf's entries into the left one, if both together leave room.
    fn merge(
        &self,
        mut parent: ExclusiveGuard<'_>,
        index: usize,
        mut left: ExclusiveGuard<'_>,
        right: ExclusiveGuard<'_>,
    ) {
        let page_bytes = self.pool.page_bytes();
        let mut scratch = ScratchPage::new(page_bytes);
        {
            let (low, high) = (Node::new(left.bytes()), Node::new(right.bytes()));
            if !low.is_leaf() || !high.is_leaf() {
                return;
            }
            let fences = Fences { lower: low.lower(), upper: high.upper() };
            // An empty leaf goes in any case: it would never become sparser.
            let empty = low.count() == 0 || high.count() == 0;
            let bytes_max = if empty { page_bytes } else { page_bytes / 4 * 3 };
            if fences.bytes_with(&[low, high]) > bytes_max {
                return;
            }
            self.observer.before_structure_change(&[&parent, &left, &right]);
            let is_settled = |stamp| self.settled(stamp);
            let mut target = NodeMut::new(scratch.bytes_mut());
            target.init(LEAF, &fences);
            for source in [low, high] {
                target.append_from(source, 0..source.count(), &mut |i| kept_capacity(source, i, &is_settled));
            }
        }
        NodeMut::new(left.bytes_mut()).copy_page(Node::new(scratch.bytes()));
        let mut above = NodeMut::new(parent.bytes_mut());
        above.set_child(index + 1, left.page_id());
        above.remove(index);
        let last = above.node().count() == 0;
        parent.mark_dirty();
        left.mark_dirty();
        self.pool.free(right);
        if last && parent.page_id() == self.root {
            self.shrink_root(parent, left);
        }
    }

    fn merge_only_child(
        &self,
        parent: OptimisticGuard<'_>,
        child: OptimisticGuard<'_>,
    ) -> Result<(), Interrupt> {
        if parent.page_id() != self.root {
            return Ok(());
        }
        let (parent, child) = (parent.upgrade()?, child.upgrade()?);
        self.observer.before_structure_change(&[&parent, &child]);
        self.shrink_root(parent, child);
        Ok(())
    }

    /// The root takes the content of its only child. Both were announced as participants.
    fn shrink_root(&self, mut root: ExclusiveGuard<'_>, child: ExclusiveGuard<'_>) {
        NodeMut::new(root.bytes_mut()).copy_page(Node::new(child.bytes()));
        root.mark_dirty();
        self.pool.free(child);
    }
}

/// First entry that goes right, and the separator: above everything left, at or below everything right.
fn split_point(node: Node<'_>, key: &[u8], at: SplitAt) -> Option<(usize, Vec<u8>)> {
    let count = node.count();
    if count < 2 {
        return None;
    }
    if !node.is_leaf() {
        let middle = middle_of(node).clamp(1, count - 1);
        return Some((middle, node.key(middle)));
    }
    if at == SplitAt::End {
        let last = node.key(count - 1);
        let separator = separator_between(&last, key);
        let fences = Fences { lower: node.lower(), upper: Some(separator.clone()) };
        if last.as_slice() < key && fences.bytes_with(&[node]) <= node.bytes.len() {
            return Some((count, separator));
        }
    }
    let middle = middle_of(node).clamp(1, count - 1);
    Some((middle, separator_between(&node.key(middle - 1), &node.key(middle))))
}

/// The entry at which half of the bytes are passed.
fn middle_of(node: Node<'_>) -> usize {
    let total: usize = (0..node.count()).map(|i| node.entry_bytes(i) + SLOT_BYTES).sum();
    let mut sum = 0;
    for index in 0..node.count() {
        sum += node.entry_bytes(index) + SLOT_BYTES;
        if sum * 2 >= total {
            return index + usize::from(node.is_leaf());
        }
    }
    node.count() / 2
}

/// The shortest key above `low` and at or below `high`: a prefix of `high`.
fn separator_between(low: &[u8], high: &[u8]) -> Vec<u8> {
    let common = low.iter().zip(high).take_while(|(a, b)| a == b).count();
    high[..(common + 1).min(high.len())].to_vec()
}
