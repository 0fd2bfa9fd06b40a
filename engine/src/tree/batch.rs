//! Entries that a scan has copied.

use super::node::{EntryMeta, Node};
use crate::base::PageId;
use std::ops::Range;

/// Entries copied from leaves; reuse it to save allocations.
#[derive(Default, Debug)]
pub struct LeafBatch {
    bytes: Vec<u8>,
    items: Vec<Item>,
    pub(super) leaf: PageId,
    keys_only: bool,
}

#[derive(Debug)]
struct Item {
    key: Range<usize>,
    value_end: usize,
    meta: EntryMeta,
}

/// One entry of a [`LeafBatch`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchEntry<'b> {
    /// The whole key.
    pub key: &'b [u8],
    /// The value, or the reference to it; empty if it is a tombstone's, or left out.
    pub value: &'b [u8],
    /// The entry's meta.
    pub meta: EntryMeta,
}

impl LeafBatch {
    /// Removes the entries and keeps the memory.
    pub fn clear(&mut self) {
        self.cut((0, 0));
    }

    /// Copies no values from now on: those of the entries are empty.
    pub fn leave_out_values(&mut self) {
        self.keys_only = true;
    }

    /// The leaf of the entries appended last.
    #[must_use]
    pub fn leaf(&self) -> PageId {
        self.leaf
    }

    /// Returns the entries in the order of the scan.
    pub fn iter(&self) -> impl Iterator<Item = BatchEntry<'_>> {
        (0..self.items.len()).map(|index| self.entry(index))
    }

    /// Returns the entry with the given index, from 0 in the order of the scan.
    #[must_use]
    pub fn entry(&self, index: usize) -> BatchEntry<'_> {
        let item = &self.items[index];
        BatchEntry {
            key: &self.bytes[item.key.clone()],
            value: &self.bytes[item.key.end..item.value_end],
            meta: item.meta,
        }
    }

    /// Keeps the first `len` entries.
    pub fn truncate(&mut self, len: usize) {
        self.items.truncate(len);
    }

    /// Returns a mark for [`LeafBatch::cut`].
    pub(super) fn mark(&self) -> (usize, usize) {
        (self.items.len(), self.bytes.len())
    }

    /// Removes the entries appended after the mark.
    pub(super) fn cut(&mut self, mark: (usize, usize)) {
        self.items.truncate(mark.0);
        self.bytes.truncate(mark.1);
    }

    /// Appends an entry. The lengths are those of the bytes appended, because the page may be torn.
    pub(super) fn push(&mut self, node: Node<'_>, index: usize) {
        let start = self.bytes.len();
        node.append_key(index, &mut self.bytes);
        let end = self.bytes.len();
        let entry = node.entry(index);
        if !self.keys_only {
            node.page.append_to(entry.value_offset(), entry.value_len, &mut self.bytes);
        }
        self.items.push(Item { key: start..end, value_end: self.bytes.len(), meta: entry.meta });
    }
}
