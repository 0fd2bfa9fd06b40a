//! Entries that a scan has copied.
//!
//! An entry lies in a leaf as *header, suffix, value*. A batch copies it in one piece, and puts the
//! prefix of the leaf's keys before the suffix, where the copy of the header is: so the whole key
//! and the value are slices of the copy.

use super::node::{EntryMeta, LEAF_ENTRY_HEADER, Node};
use crate::base::PageId;

/// Entries copied from leaves; reuse it to save allocations.
#[derive(Default, Debug)]
pub struct LeafBatch {
    bytes: Vec<u8>,
    items: Vec<Item>,
    /// The prefix of the keys of the leaf that is being copied.
    prefix: Vec<u8>,
    /// The same at the end of as many bytes as a header has, if it fits.
    prefix_in_header: [u8; LEAF_ENTRY_HEADER],
    pub(super) leaf: PageId,
    keys_only: bool,
}

/// Places in the bytes of a batch.
#[derive(Debug)]
struct Item {
    key: u32,
    value: u32,
    end: u32,
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
    #[inline]
    #[must_use]
    pub fn entry(&self, index: usize) -> BatchEntry<'_> {
        let item = &self.items[index];
        let (key, value, end) = (item.key as usize, item.value as usize, item.end as usize);
        BatchEntry { key: &self.bytes[key..value], value: &self.bytes[value..end], meta: item.meta }
    }

    /// Returns the key of the entry with the given index.
    #[inline]
    #[must_use]
    pub fn key(&self, index: usize) -> &[u8] {
        let item = &self.items[index];
        &self.bytes[item.key as usize..item.value as usize]
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

    /// Begins to append entries of a leaf.
    pub(super) fn begin(&mut self, leaf: PageId, node: Node<'_>) {
        self.leaf = leaf;
        self.prefix.clear();
        node.append_prefix(&mut self.prefix);
        if let Some(before) = LEAF_ENTRY_HEADER.checked_sub(self.prefix.len()) {
            self.prefix_in_header[before..].copy_from_slice(&self.prefix);
        }
    }

    /// Appends an entry of the leaf that was begun. An entry that does not lie in the page, because
    /// the page is torn or damaged, has neither key nor value.
    pub(super) fn push(&mut self, node: Node<'_>, index: usize) {
        let entry = node.entry(index);
        let value_len = if self.keys_only { 0 } else { entry.value_len };
        let len = LEAF_ENTRY_HEADER + entry.suffix_len + value_len;
        if let Some(more) = self.prefix.len().checked_sub(LEAF_ENTRY_HEADER) {
            self.bytes.resize(self.bytes.len() + more, 0);
        }
        let suffix = self.bytes.len() + LEAF_ENTRY_HEADER;
        node.page.append_to(entry.offset, len, &mut self.bytes);
        let end = self.bytes.len();
        if end != suffix - LEAF_ENTRY_HEADER + len {
            let end = end as u32;
            self.items.push(Item { key: end, value: end, end, meta: entry.meta });
            return;
        }
        let key = suffix - self.prefix.len();
        match self.prefix.len() <= LEAF_ENTRY_HEADER {
            // A copy of fixed length is two instructions.
            true => self.bytes[suffix - LEAF_ENTRY_HEADER..suffix].copy_from_slice(&self.prefix_in_header),
            false => self.bytes[key..suffix].copy_from_slice(&self.prefix),
        }
        let value = (suffix + entry.suffix_len) as u32;
        self.items.push(Item { key: key as u32, value, end: end as u32, meta: entry.meta });
    }
}
