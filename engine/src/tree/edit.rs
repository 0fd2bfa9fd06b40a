//! Changing a node that is held alone.

use super::node::{
    COUNT, DEAD_BYTES, EntryMeta, HAS_UPPER, HEAP_START, KIND, LEAF, LEAF_HEAD_BYTES, LOWER_LEN, Node,
    PREFIX_LEN, SLOT_BYTES, SLOTS, Slot, TOMBSTONE, UPPER_CHILD, UPPER_LEN, head_of, inner_entry_bytes,
    leaf_entry_bytes,
};
use crate::base::PageId;
use crate::buffer::{PageBytesMut, ScratchPage};

/// The range of keys of a node.
#[derive(Clone, Debug)]
pub(super) struct Fences {
    pub(super) lower: Vec<u8>,
    pub(super) upper: Option<Vec<u8>>,
}

impl Fences {
    pub(super) fn of(node: Node<'_>) -> Fences {
        Fences { lower: node.lower(), upper: node.upper() }
    }

    fn prefix_len(&self) -> usize {
        let Some(upper) = &self.upper else { return 0 };
        self.lower.iter().zip(upper).take_while(|(a, b)| a == b).count()
    }

    /// Bytes that fences and entries of `node` would take in a page with these fences.
    pub(super) fn bytes_with(&self, nodes: &[Node<'_>]) -> usize {
        let fences = self.lower.len() + self.upper.as_ref().map_or(0, Vec::len) + 8;
        let prefix_len = self.prefix_len();
        let mut sum = SLOTS + fences;
        for node in nodes {
            for index in 0..node.count() {
                let key_len = node.prefix_len() + node.slot(index).key_len();
                let suffix_len = key_len.saturating_sub(prefix_len);
                let entry = if node.is_leaf() {
                    leaf_entry_bytes(suffix_len, node.capacity(index))
                } else {
                    inner_entry_bytes(suffix_len)
                };
                sum += entry + SLOT_BYTES;
            }
        }
        sum
    }
}

/// An entry to be put into a leaf.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewEntry<'a> {
    pub(super) meta: EntryMeta,
    pub(super) value: &'a [u8],
    pub(super) capacity: usize,
}

/// A node and the right to change it.
pub(super) struct NodeMut<'a> {
    pub(super) bytes: PageBytesMut<'a>,
}

impl<'a> NodeMut<'a> {
    pub(super) fn new(bytes: PageBytesMut<'a>) -> NodeMut<'a> {
        NodeMut { bytes }
    }

    pub(super) fn node(&self) -> Node<'_> {
        Node::new(self.bytes.bytes())
    }

    /// Makes the page an empty node of `kind` for a range of keys. Leaves the store's bytes alone.
    pub(super) fn init(&mut self, kind: u8, fences: &Fences) {
        let len = self.bytes.bytes().len();
        self.bytes.fill(KIND, SLOTS - KIND, 0);
        self.bytes.set_u8(KIND, kind);
        let lower_start = len - fences.lower.len();
        self.bytes.set_u16(LOWER_LEN, fences.lower.len() as u16);
        self.bytes.copy_from(lower_start, &fences.lower);
        if let Some(upper) = &fences.upper {
            self.bytes.set_u8(HAS_UPPER, 1);
            self.bytes.set_u16(UPPER_LEN, upper.len() as u16);
            self.bytes.copy_from(lower_start - upper.len(), upper);
        }
        self.bytes.set_u16(PREFIX_LEN, fences.prefix_len() as u16);
        let heap_end = self.node().heap_end();
        self.bytes.set_u32(HEAP_START, heap_end as u32);
    }

    fn set_slot(&mut self, index: usize, slot: Slot) {
        self.bytes.set_word(SLOTS / SLOT_BYTES + index, slot.0);
    }

    fn allocate(&mut self, bytes: usize) -> usize {
        let start = self.node().heap_start() - bytes;
        debug_assert!(start >= SLOTS + self.node().count() * SLOT_BYTES);
        self.bytes.set_u32(HEAP_START, start as u32);
        start
    }

    fn add_dead(&mut self, bytes: usize) {
        let dead = self.node().dead_bytes() + bytes;
        self.bytes.set_u32(DEAD_BYTES, dead as u32);
    }

    fn open_slot(&mut self, index: usize) {
        let count = self.node().count();
        let start = SLOTS + index * SLOT_BYTES;
        self.bytes.move_within(start, start + SLOT_BYTES, (count - index) * SLOT_BYTES);
        self.bytes.set_u16(COUNT, count as u16 + 1);
    }

    /// Removes an entry.
    pub(super) fn remove(&mut self, index: usize) {
        let (count, dead) = (self.node().count(), self.node().entry_bytes(index));
        let start = SLOTS + index * SLOT_BYTES;
        self.bytes.move_within(start + SLOT_BYTES, start, (count - index - 1) * SLOT_BYTES);
        self.bytes.set_u16(COUNT, count as u16 - 1);
        self.add_dead(dead);
    }

    /// Inserts a leaf's entry; there is room for it.
    pub(super) fn insert_leaf(&mut self, index: usize, suffix: &[u8], entry: NewEntry<'_>) {
        self.open_slot(index);
        self.place_leaf(index, suffix, entry);
    }

    fn place_leaf(&mut self, index: usize, suffix: &[u8], entry: NewEntry<'_>) {
        let offset = self.allocate(leaf_entry_bytes(suffix.len(), entry.capacity));
        self.set_slot(index, Slot::new(offset, suffix.len(), head_of(suffix)));
        self.bytes.copy_from(offset + LEAF_HEAD_BYTES, suffix);
        self.bytes.set_u16(offset + 10, entry.capacity as u16);
        self.bytes.set_u16(offset + 14, 0);
        self.set_content(index, entry.meta, entry.value);
    }

    /// Replaces value and stamp in place; the value fits in the capacity.
    pub(super) fn set_content(&mut self, index: usize, meta: EntryMeta, value: &[u8]) {
        let slot = self.node().slot(index);
        let offset = slot.offset();
        self.bytes.set_u64(offset, meta.stamp);
        self.bytes.set_u16(offset + 8, value.len() as u16);
        self.bytes.set_u16(offset + 12, if meta.tombstone { TOMBSTONE } else { 0 });
        self.bytes.copy_from(offset + LEAF_HEAD_BYTES + slot.key_len(), value);
    }

    /// Moves an entry to a larger place.
    pub(super) fn grow_leaf(&mut self, index: usize, suffix: &[u8], entry: NewEntry<'_>) {
        self.add_dead(self.node().entry_bytes(index));
        self.place_leaf(index, suffix, entry);
    }

    pub(super) fn set_stamp(&mut self, index: usize, stamp: u64) {
        let offset = self.node().slot(index).offset();
        self.bytes.set_u64(offset, stamp);
    }

    /// Inserts a separator; there is room for it.
    pub(super) fn insert_inner(&mut self, index: usize, separator: &[u8], child: PageId) {
        let prefix_len = self.node().prefix_len();
        let suffix = &separator[prefix_len..];
        self.open_slot(index);
        let offset = self.allocate(inner_entry_bytes(suffix.len()));
        self.set_slot(index, Slot::new(offset, suffix.len(), head_of(suffix)));
        self.bytes.set_u64(offset, child.0);
        self.bytes.copy_from(offset + 8, suffix);
    }

    /// Sets the child at `index`; the last one is behind all separators.
    pub(super) fn set_child(&mut self, index: usize, child: PageId) {
        let offset = if index < self.node().count() { self.node().slot(index).offset() } else { UPPER_CHILD };
        self.bytes.set_u64(offset, child.0);
    }

    /// Appends entries `from..to` of another node whose keys belong here. `keep` gives each leaf entry's capacity, or
    /// drops it.
    pub(super) fn append_from(
        &mut self,
        source: Node<'_>,
        range: std::ops::Range<usize>,
        keep: &mut dyn FnMut(usize) -> Option<usize>,
    ) {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for index in range {
            key.clear();
            source.key_into(index, &mut key);
            let at = self.node().count();
            if !source.is_leaf() {
                self.insert_inner(at, &key, source.child(index));
                continue;
            }
            let Some(capacity) = keep(index) else { continue };
            value.clear();
            source.value_into(index, &mut value);
            let prefix_len = self.node().prefix_len();
            let entry = NewEntry { meta: source.meta(index), value: &value, capacity };
            self.insert_leaf(at, &key[prefix_len..], entry);
        }
    }

    /// Takes over the whole content of another page, less the store's bytes.
    pub(super) fn copy_page(&mut self, source: Node<'_>) {
        for index in KIND / SLOT_BYTES..source.bytes.len() / SLOT_BYTES {
            self.bytes.set_word(index, source.bytes.word(index));
        }
    }

    /// Rewrites a leaf without dead bytes: capacities and tombstones of settled entries go.
    pub(super) fn compact(&mut self, is_settled: &dyn Fn(u64) -> bool) {
        let mut scratch = ScratchPage::new(self.bytes.bytes().len());
        {
            let source = self.node();
            let mut target = NodeMut::new(scratch.bytes_mut());
            target.init(LEAF, &Fences::of(source));
            target.append_from(source, 0..source.count(), &mut |index| {
                kept_capacity(source, index, is_settled)
            });
        }
        self.copy_page(Node::new(scratch.bytes()));
    }
}

/// The room rule: what an entry must keep, or `None` if it may go.
pub(super) fn kept_capacity(node: Node<'_>, index: usize, is_settled: &dyn Fn(u64) -> bool) -> Option<usize> {
    let meta = node.meta(index);
    if !is_settled(meta.stamp) {
        return Some(node.capacity(index));
    }
    (!meta.tombstone).then(|| node.value_len(index))
}

/// Bytes that [`NodeMut::compact`] would make free.
pub(super) fn reclaimable_bytes(node: Node<'_>, is_settled: &dyn Fn(u64) -> bool) -> usize {
    let mut sum = node.dead_bytes();
    for index in 0..node.count() {
        let key_len = node.slot(index).key_len();
        let now = node.entry_bytes(index);
        sum += match kept_capacity(node, index, is_settled) {
            Some(capacity) => now - leaf_entry_bytes(key_len, capacity),
            None => now + SLOT_BYTES,
        };
    }
    sum
}
