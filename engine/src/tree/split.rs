//! Splits a full node.
//!
//! A node is split in place: its left part stays, its right part goes to a new page, and the parent
//! gets the separator. The root keeps its page id: both its parts go to new pages and it becomes
//! their parent. If the parent has no room for the separator, the parent is split instead, and the
//! caller tries again.

use super::descent::Target;
use super::edit::{Fences, NodeMut, Settled, rebuilt_bytes, rebuilt_slot_bytes, snapshot};
use super::handle::Tree;
use super::node::{Node, WORD, inner_entry_bytes};
use crate::base::PageId;
use crate::base::common_bytes::common_prefix;
use crate::base::planted::{self, Bug};
use crate::buffer::{ExclusiveGuard, Interrupt};

/// After this many inserts, each right after the one before, the split expects that the sequence
/// continues.
const SEQUENCE_RUN: usize = 3;

/// The division of a node.
struct Plan {
    /// Slots before this one stay left. In an inner node this slot is the separator, and its child
    /// the first of the right part.
    slot: usize,
    separator: Vec<u8>,
    /// True if a sequence of inserts continues in the right part.
    is_sequence: bool,
}

/// Returns the shortest key above `left` and not above `right`.
fn shortest_between(left: &[u8], right: &[u8]) -> Vec<u8> {
    let len = (common_prefix(left, right) + 1).min(right.len());
    right[..len].to_vec()
}

impl Tree {
    /// Splits the node of `level` that covers `key` unless the node has room for `needed` more
    /// bytes. If the parent is full, splits only the parent.
    pub(super) fn split(&self, key: &[u8], level: u8, needed: usize) -> Result<(), Interrupt> {
        let settled = |stamp| self.is_settled(stamp);
        let arrival = self.descend(Target::At(key), level)?;
        let Some((parent, index)) = arrival.parent else {
            let root = arrival.guard.upgrade()?;
            return match plan(Node::new(root.bytes()), key, needed, &settled) {
                Some(plan) => split_root(self, root, &plan),
                None => Ok(()),
            };
        };
        let parent = parent.upgrade()?;
        let node = arrival.guard.upgrade()?;
        let Some(plan) = plan(Node::new(node.bytes()), key, needed, &settled) else { return Ok(()) };
        let above = Node::new(parent.bytes());
        let suffix_len = plan.separator.len().saturating_sub(above.prefix_len());
        let needed_above = inner_entry_bytes(suffix_len) + WORD;
        if !has_room(above, needed_above, &settled) {
            drop((parent, node));
            return self.split(key, level + 1, needed_above);
        }
        split_below(self, parent, index, node, &plan)
    }
}

fn split_below(
    tree: &Tree,
    mut parent: ExclusiveGuard<'_>,
    index: usize,
    mut node: ExclusiveGuard<'_>,
    plan: &Plan,
) -> Result<(), Interrupt> {
    let mut right = tree.pool.allocate_behind(plan.is_sequence.then(|| node.page_id()))?;
    tree.observer.before_structure_change(&[&parent, &node]);
    inherit_epoch(&right, &node);
    let old = snapshot(node.bytes());
    let old = Node::new(old.bytes());
    build_left(tree, old, plan, &mut node);
    build_right(tree, old, plan, &mut right);
    let mut above = NodeMut::new(parent.bytes_mut());
    debug_assert_eq!(above.node().level(), old.level() + 1, "a parent is one level above");
    let suffix = above.node().suffix_of(&plan.separator);
    if above.node().gap() < inner_entry_bytes(suffix.len()) + WORD {
        above.compact(&|_| false);
    }
    if !planted::is(Bug::SeparatorLost) {
        above.insert_child(index, suffix, right.page_id());
    }
    parent.mark_dirty();
    node.mark_dirty();
    Ok(())
}

fn split_root(tree: &Tree, mut root: ExclusiveGuard<'_>, plan: &Plan) -> Result<(), Interrupt> {
    let mut left = tree.pool.allocate()?;
    let mut right = match tree.pool.allocate() {
        Ok(right) => right,
        Err(error) => {
            tree.pool.free(left);
            return Err(error.into());
        }
    };
    tree.observer.before_structure_change(&[&root]);
    inherit_epoch(&left, &root);
    inherit_epoch(&right, &root);
    let old = snapshot(root.bytes());
    let old = Node::new(old.bytes());
    build_left(tree, old, plan, &mut left);
    build_right(tree, old, plan, &mut right);
    let mut above = NodeMut::new(root.bytes_mut());
    above.init(old.level() + 1, &Fences::of(old), left.page_id());
    above.append_child(&plan.separator, right.page_id());
    root.mark_dirty();
    Ok(())
}

fn build_left(tree: &Tree, old: Node<'_>, plan: &Plan, target: &mut ExclusiveGuard<'_>) {
    let fences = Fences { lower: old.lower(), upper: Some(plan.separator.clone()) };
    let mut left = NodeMut::new(target.bytes_mut());
    if old.is_leaf() {
        left.init(0, &fences, PageId(0));
        left.append_entries(old, 0..plan.slot, &|stamp| tree.is_settled(stamp));
        if left.node().count() == plan.slot && old.last_insert().0 + 1 == plan.slot {
            left.continue_sequence(old.last_insert());
        }
    } else {
        left.init(old.level(), &fences, old.child(0));
        left.append_children(old, 0..plan.slot);
    }
}

fn build_right(tree: &Tree, old: Node<'_>, plan: &Plan, target: &mut ExclusiveGuard<'_>) {
    let fences = Fences { lower: plan.separator.clone(), upper: old.upper() };
    let mut right = NodeMut::new(target.bytes_mut());
    if old.is_leaf() {
        right.init(0, &fences, PageId(0));
        right.append_entries(old, plan.slot..old.count(), &|stamp| tree.is_settled(stamp));
        let (last, run) = old.last_insert();
        if last + 1 >= plan.slot && right.node().count() == old.count() - plan.slot {
            right.continue_sequence((last.wrapping_sub(plan.slot), run));
        }
    } else {
        right.init(old.level(), &fences, old.child(plan.slot + 1));
        debug_assert_eq!(old.key(plan.slot), plan.separator, "the separator moves to the parent");
        right.append_children(old, plan.slot + 1..old.count());
    }
}

/// Gives a new page the checkpoint epoch of the page that its content comes from. Either the image
/// of that page holds the content, or both pages will be imaged
/// (`docs/internals/decisions/0004`). The epoch of the allocation would be wrong if the next epoch
/// began in between.
fn inherit_epoch(page: &ExclusiveGuard<'_>, source: &ExclusiveGuard<'_>) {
    page.set_imaged(source.epoch());
}

fn has_room(node: Node<'_>, needed: usize, settled: &Settled<'_>) -> bool {
    node.gap() >= needed
        || rebuilt_bytes(node, node.prefix_len(), settled) + needed <= Fences::of(node).room(node.page.len())
}

/// Plans a division that makes room around `key`. Returns `None` if there is room, or nothing to
/// divide.
fn plan(node: Node<'_>, key: &[u8], needed: usize, settled: &Settled<'_>) -> Option<Plan> {
    if node.count() < 2 || has_room(node, needed, settled) {
        return None;
    }
    if node.is_leaf() { plan_leaf(node, key, settled) } else { plan_inner(node, key, settled) }
}

fn plan_leaf(node: Node<'_>, key: &[u8], settled: &Settled<'_>) -> Option<Plan> {
    let (slot, found) = node.search(key);
    let (last, run) = node.last_insert();
    if !found
        && slot > 0
        && slot == last + 1
        && run >= SEQUENCE_RUN
        && let Some(plan) = plan_sequence(node, slot, key, settled)
    {
        return Some(plan);
    }
    let slot = middle(node, settled);
    let separator = shortest_between(&node.key(slot - 1), &node.key(slot));
    debug_assert!(node.covers(&separator), "a separator lies within the fences");
    debug_assert!(parts_fit(node, slot, &separator, settled), "a split leaves two nodes with room");
    Some(Plan { slot, separator, is_sequence: false })
}

/// Plans a division for a sequence whose next keys go to `slot` and after it. Entries after `slot`
/// move to the right node. Without any the left node stays full, because it gets no more inserts,
/// and the sequence continues in the right node.
fn plan_sequence(node: Node<'_>, slot: usize, key: &[u8], settled: &Settled<'_>) -> Option<Plan> {
    if slot < node.count() {
        let separator = shortest_between(key, &node.key(slot));
        let is_sequence = false;
        return parts_fit(node, slot, &separator, settled).then_some(Plan { slot, separator, is_sequence });
    }
    let (separator, is_sequence) = (shortest_between(&node.key(slot - 1), key), true);
    if parts_fit(node, slot, &separator, settled) {
        return Some(Plan { slot, separator, is_sequence });
    }
    // The left node needs some of its room for its new upper fence.
    (slot.saturating_sub(2).max(1)..slot).rev().find_map(|slot| {
        let separator = shortest_between(&node.key(slot - 1), &node.key(slot));
        parts_fit(node, slot, &separator, settled).then_some(Plan { slot, separator, is_sequence })
    })
}

fn plan_inner(node: Node<'_>, key: &[u8], settled: &Settled<'_>) -> Option<Plan> {
    let count = node.count();
    if node.upper_place().is_none() && node.child_of(key).0 == count {
        let separator = node.key(count - 1);
        if parts_fit(node, count - 1, &separator, settled) {
            return Some(Plan { slot: count - 1, separator, is_sequence: false });
        }
    }
    let slot = middle(node, settled);
    Some(Plan { slot, separator: node.key(slot), is_sequence: false })
}

/// Returns whether both parts have room for their entries and fences.
fn parts_fit(node: Node<'_>, slot: usize, separator: &[u8], settled: &Settled<'_>) -> bool {
    let prefix_len = node.prefix_len();
    let bytes = |range: std::ops::Range<usize>| -> usize {
        range.map(|index| rebuilt_slot_bytes(node, index, prefix_len, settled)).sum()
    };
    let left = Fences { lower: node.lower(), upper: Some(separator.to_vec()) };
    let right = Fences { lower: separator.to_vec(), upper: node.upper() };
    let page_bytes = node.page.len();
    bytes(0..slot) <= left.room(page_bytes) && bytes(slot..node.count()) <= right.room(page_bytes)
}

/// Returns the slot before which about half of the bytes are; neither the first nor after the last.
fn middle(node: Node<'_>, settled: &Settled<'_>) -> usize {
    debug_assert!(node.count() >= 2, "there is something to divide");
    let prefix_len = node.prefix_len();
    let half = rebuilt_bytes(node, prefix_len, settled) / 2;
    let mut bytes = 0;
    for index in 0..node.count() {
        bytes += rebuilt_slot_bytes(node, index, prefix_len, settled);
        if bytes >= half {
            return (index + 1).clamp(1, node.count() - 1);
        }
    }
    node.count() / 2
}
