//! Entries that a scan has copied.
//!
//! An entry lies in a leaf as *header, suffix, value*. A batch copies it in one piece, or most of a
//! leaf in one piece, and puts the prefix of the leaf's keys before the suffix, where the copy of
//! the header is: so the whole key and the value are slices of the copy.

use super::node::{EntryMeta, LEAF_ENTRY_HEADER, LeafEntry, Node};
use crate::base::PageId;
use std::ops::Range;

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

    /// Removes the entries and keeps the memory, for another scan.
    pub fn reset(&mut self) {
        self.clear();
        self.keys_only = false;
    }

    /// Bytes that the entries may take without another allocation.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.bytes.capacity() + self.items.capacity() * size_of::<Item>()
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

    /// Number of entries.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // scans ask for the number alone
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns the entry with the given index, from 0 in the order of the scan.
    #[inline]
    #[must_use]
    pub fn entry(&self, index: usize) -> BatchEntry<'_> {
        let item = &self.items[index];
        let (key, value, end) = (item.key as usize, item.value as usize, item.end as usize);
        BatchEntry { key: &self.bytes[key..value], value: &self.bytes[value..end], meta: item.meta }
    }

    /// Returns how many entries at the beginning have a meta for which `is_wanted` holds.
    #[inline]
    pub fn count_first(&self, is_wanted: impl Fn(EntryMeta) -> bool) -> usize {
        self.items.iter().take_while(|item| is_wanted(item.meta)).count()
    }

    /// Returns how many entries at the beginning have a key for which `is_wanted` holds; behind the
    /// first for which it does not, it holds for none.
    pub fn count_keys(&self, is_wanted: impl Fn(&[u8]) -> bool) -> usize {
        match self.items.len().checked_sub(1) {
            Some(last) if !is_wanted(self.key(last)) => self
                .items
                .partition_point(|item| is_wanted(&self.bytes[item.key as usize..item.value as usize])),
            _ => self.items.len(),
        }
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

    /// Appends the entries `range` of the leaf that was begun, with `back` in the reverse order. An
    /// entry that does not lie in the page, because the page is torn or damaged, has neither key
    /// nor value.
    pub(super) fn push(&mut self, node: Node<'_>, range: Range<usize>, back: bool) {
        let is_most = 2 * range.len() >= node.count();
        if !is_most || self.prefix.len() > LEAF_ENTRY_HEADER {
            let copy = |index| self.push_one(node, index);
            return if back { range.rev().for_each(copy) } else { range.for_each(copy) };
        }
        let (heap, copy) = (node.heap_start(), self.bytes.len());
        node.page.append_to(heap, node.page.len().saturating_sub(heap), &mut self.bytes);
        let (prefix, keys_only) = (self.prefix.len(), self.keys_only);
        let (header, bytes) = (self.prefix_in_header, &mut self.bytes[..]);
        let copied = range.map(|index| {
            let entry = node.entry(index);
            // Not before the copy, where the entries of an earlier leaf may be.
            let at = entry.offset.checked_sub(heap).map_or(bytes.len(), |offset| copy + offset);
            let item = Item::at(at, &entry, prefix, keys_only);
            if item.end as usize > bytes.len() {
                return Item::nowhere(&entry);
            }
            // A copy of fixed length is two instructions.
            bytes[at..at + LEAF_ENTRY_HEADER].copy_from_slice(&header);
            item
        });
        // Makes room for all items at once.
        if back { self.items.extend(copied.rev()) } else { self.items.extend(copied) }
    }

    /// Copies an entry alone.
    fn push_one(&mut self, node: Node<'_>, index: usize) {
        let entry = node.entry(index);
        if let Some(more) = self.prefix.len().checked_sub(LEAF_ENTRY_HEADER) {
            self.bytes.resize(self.bytes.len() + more, 0);
        }
        let value_len = if self.keys_only { 0 } else { entry.value_len };
        let (at, len) = (self.bytes.len(), LEAF_ENTRY_HEADER + entry.suffix_len + value_len);
        node.page.append_to(entry.offset, len, &mut self.bytes);
        let item = Item::at(at, &entry, self.prefix.len(), self.keys_only);
        if item.end as usize > self.bytes.len() {
            return self.items.push(Item::nowhere(&entry));
        }
        let key = item.key as usize;
        self.bytes[key..key + self.prefix.len()].copy_from_slice(&self.prefix);
        self.items.push(item);
    }
}

impl Item {
    /// Returns the places of an entry that was copied to `at`. The prefix of its key belongs before
    /// the suffix, where the copy of the header is.
    #[inline]
    fn at(at: usize, entry: &LeafEntry, prefix_len: usize, keys_only: bool) -> Item {
        let suffix = at + LEAF_ENTRY_HEADER;
        let value = suffix + entry.suffix_len;
        let end = if keys_only { value } else { value + entry.value_len };
        Item { key: (suffix - prefix_len) as u32, value: value as u32, end: end as u32, meta: entry.meta }
    }

    /// Returns the item of an entry that does not lie in the page.
    fn nowhere(entry: &LeafEntry) -> Item {
        Item { key: 0, value: 0, end: 0, meta: entry.meta }
    }
}
