//! Nodes: the layout of a tree's page, and reading it.
//!
//! | offset | bytes | content (little-endian) |
//! |---|---|---|
//! | 0 | 32 | the store's |
//! | 32 | 1 | kind: 1 leaf, 2 inner |
//! | 33 | 1 | 1 if there is an upper fence |
//! | 34 | 2 | number of entries |
//! | 36 | 4 | start of the heap: the lowest byte in use by an entry |
//! | 40 | 4 | dead bytes in the heap |
//! | 44 | 2 | length of the prefix that all keys share |
//! | 46 | 2 | length of the lower fence |
//! | 48 | 2 | length of the upper fence |
//! | 50 | 6 | 0 |
//! | 56 | 8 | inner: child for keys at or above the last separator |
//! | 64 | 8 each | slots, in key order |
//! | … | | free |
//! | heap | | entries, 8-aligned |
//! | end | | upper fence, lower fence |
//!
//! A slot is one word, so that a step of a binary search is one load: bytes 0..2 offset of the entry / 8, bytes 2..4
//! length of the key without the prefix, bytes 4..8 the *head*: the first four of those bytes as a big-endian number.
//!
//! | leaf entry | bytes | content |
//! |---|---|---|
//! | 0 | 8 | stamp |
//! | 8 | 2 | length of the value |
//! | 10 | 2 | capacity for the value |
//! | 12 | 2 | flags: 1 tombstone |
//! | 14 | 2 | 0 |
//! | 16 | | key without the prefix, value, unused capacity |
//!
//! | inner entry | bytes | content |
//! |---|---|---|
//! | 0 | 8 | child for keys below the separator |
//! | 8 | | separator without the prefix |
//!
//! 1. Every key of a node is at or above its lower fence and below its upper fence; so it begins with their common prefix,
//!    which is stored once.
//! 2. A separator is the lower fence of the node to its right.
//! 3. What an optimistic reader finds here may be torn: nothing is believed before the guard is validated, and no value
//!    read from a page can make these functions panic or loop.

use crate::base::PageId;
use crate::buffer::PageBytes;
use std::cmp::Ordering;

pub(super) const KIND: usize = 32;
pub(super) const HAS_UPPER: usize = 33;
pub(super) const COUNT: usize = 34;
pub(super) const HEAP_START: usize = 36;
pub(super) const DEAD_BYTES: usize = 40;
pub(super) const PREFIX_LEN: usize = 44;
pub(super) const LOWER_LEN: usize = 46;
pub(super) const UPPER_LEN: usize = 48;
pub(super) const UPPER_CHILD: usize = 56;
pub(super) const SLOTS: usize = 64;
pub(super) const SLOT_BYTES: usize = 8;

pub(super) const LEAF: u8 = 1;
pub(super) const INNER: u8 = 2;

pub(super) const LEAF_HEAD_BYTES: usize = 16;
pub(super) const INNER_HEAD_BYTES: usize = 8;
pub(super) const TOMBSTONE: u16 = 1;

const _: () = assert!(crate::buffer::PAGE_HEADER_BYTES == KIND);

/// What an entry says besides key and value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryMeta {
    /// The transaction room's word; 0 is settled.
    pub stamp: u64,
    /// The key is deleted; the entry stays until nobody needs to know.
    pub tombstone: bool,
}

/// A slot's word.
#[derive(Clone, Copy)]
pub(super) struct Slot(pub(super) u64);

impl Slot {
    pub(super) fn new(offset: usize, key_len: usize, head: u32) -> Slot {
        Slot((offset as u64 / 8) | (key_len as u64) << 16 | u64::from(head) << 32)
    }

    #[inline]
    pub(super) fn offset(self) -> usize {
        (self.0 & 0xffff) as usize * 8
    }

    #[inline]
    pub(super) fn key_len(self) -> usize {
        (self.0 >> 16 & 0xffff) as usize
    }

    #[inline]
    pub(super) fn head(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The head of a key without its prefix.
#[inline]
pub(super) fn head_of(suffix: &[u8]) -> u32 {
    let mut bytes = [0; 4];
    let len = suffix.len().min(4);
    bytes[..len].copy_from_slice(&suffix[..len]);
    u32::from_be_bytes(bytes)
}

/// Reading a node.
#[derive(Clone, Copy)]
pub(super) struct Node<'a> {
    pub(super) bytes: PageBytes<'a>,
}

impl<'a> Node<'a> {
    #[inline]
    pub(super) fn new(bytes: PageBytes<'a>) -> Node<'a> {
        Node { bytes }
    }

    #[inline]
    pub(super) fn is_leaf(self) -> bool {
        self.bytes.get_u8(KIND) == LEAF
    }

    #[inline]
    pub(super) fn is_inner(self) -> bool {
        self.bytes.get_u8(KIND) == INNER
    }

    /// Number of entries; never more than have slots in a page.
    #[inline]
    pub(super) fn count(self) -> usize {
        (self.bytes.get_u16(COUNT) as usize).min((self.bytes.len() - SLOTS) / SLOT_BYTES)
    }

    #[inline]
    pub(super) fn heap_start(self) -> usize {
        self.bytes.get_u32(HEAP_START) as usize
    }

    pub(super) fn dead_bytes(self) -> usize {
        self.bytes.get_u32(DEAD_BYTES) as usize
    }

    #[inline]
    pub(super) fn prefix_len(self) -> usize {
        self.bytes.get_u16(PREFIX_LEN) as usize
    }

    fn lower_start(self) -> usize {
        self.bytes.len().saturating_sub(self.bytes.get_u16(LOWER_LEN) as usize)
    }

    /// Appends the lower fence; an empty one is below every key.
    pub(super) fn lower_into(self, out: &mut Vec<u8>) {
        self.bytes.append_to(self.lower_start(), self.bytes.get_u16(LOWER_LEN) as usize, out);
    }

    pub(super) fn has_upper(self) -> bool {
        self.bytes.get_u8(HAS_UPPER) != 0
    }

    /// Appends the upper fence.
    pub(super) fn upper_into(self, out: &mut Vec<u8>) {
        let len = self.bytes.get_u16(UPPER_LEN) as usize;
        self.bytes.append_to(self.lower_start().saturating_sub(len), len, out);
    }

    pub(super) fn lower(self) -> Vec<u8> {
        let mut out = Vec::new();
        self.lower_into(&mut out);
        out
    }

    pub(super) fn upper(self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        self.upper_into(&mut out);
        self.has_upper().then_some(out)
    }

    /// True if the node is the one for `key`.
    pub(super) fn covers(self, key: &[u8]) -> bool {
        let lower_len = self.bytes.get_u16(LOWER_LEN) as usize;
        if self.bytes.compare(self.lower_start(), lower_len, key) == Ordering::Greater {
            return false;
        }
        let upper_len = self.bytes.get_u16(UPPER_LEN) as usize;
        let upper_start = self.lower_start().saturating_sub(upper_len);
        !self.has_upper() || self.bytes.compare(upper_start, upper_len, key) == Ordering::Greater
    }

    /// Where the heap ended when it was empty.
    pub(super) fn heap_end(self) -> usize {
        let fences = self.bytes.get_u16(LOWER_LEN) as usize + self.bytes.get_u16(UPPER_LEN) as usize;
        self.bytes.len().saturating_sub(fences) & !7
    }

    #[inline]
    pub(super) fn slot(self, index: usize) -> Slot {
        Slot(self.bytes.word(SLOTS / SLOT_BYTES + index))
    }

    /// Bytes between the slots and the heap.
    pub(super) fn free_bytes(self) -> usize {
        self.heap_start().saturating_sub(SLOTS + self.count() * SLOT_BYTES)
    }

    #[inline]
    fn key_start(self, slot: Slot) -> usize {
        slot.offset() + if self.is_leaf() { LEAF_HEAD_BYTES } else { INNER_HEAD_BYTES }
    }

    #[inline]
    fn compare(self, index: usize, suffix: &[u8], head: u32) -> Ordering {
        let slot = self.slot(index);
        slot.head().cmp(&head).then_with(|| self.bytes.compare(self.key_start(slot), slot.key_len(), suffix))
    }

    /// The key without the prefix.
    #[inline]
    pub(super) fn suffix_of(self, key: &[u8]) -> &[u8] {
        key.get(self.prefix_len()..).unwrap_or(&[])
    }

    /// The first entry at or above `key`, and whether it is `key`.
    #[inline]
    pub(super) fn search(self, key: &[u8]) -> (usize, bool) {
        let suffix = self.suffix_of(key);
        let head = head_of(suffix);
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = low.midpoint(high);
            match self.compare(middle, suffix, head) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return (middle, true),
            }
        }
        (low, false)
    }

    /// Index of the child for `key`: its position among the separators. With `below`, the child for the keys right below
    /// `key`.
    #[inline]
    pub(super) fn child_index(self, key: &[u8], below: bool) -> usize {
        let (index, equal) = self.search(key);
        if equal && !below { index + 1 } else { index }
    }

    /// The child at `index`; the last one is behind all separators.
    #[inline]
    pub(super) fn child(self, index: usize) -> PageId {
        if index < self.count() {
            PageId(self.bytes.get_u64(self.slot(index).offset()))
        } else {
            PageId(self.bytes.get_u64(UPPER_CHILD))
        }
    }

    /// Appends the whole key of an entry.
    pub(super) fn key_into(self, index: usize, out: &mut Vec<u8>) {
        let slot = self.slot(index);
        self.bytes.append_to(self.lower_start(), self.prefix_len(), out);
        self.bytes.append_to(self.key_start(slot), slot.key_len(), out);
    }

    pub(super) fn key(self, index: usize) -> Vec<u8> {
        let mut out = Vec::new();
        self.key_into(index, &mut out);
        out
    }

    #[inline]
    pub(super) fn meta(self, index: usize) -> EntryMeta {
        let offset = self.slot(index).offset();
        EntryMeta {
            stamp: self.bytes.get_u64(offset),
            tombstone: self.bytes.get_u16(offset + 12) & TOMBSTONE != 0,
        }
    }

    pub(super) fn value_len(self, index: usize) -> usize {
        self.bytes.get_u16(self.slot(index).offset() + 8) as usize
    }

    pub(super) fn capacity(self, index: usize) -> usize {
        self.bytes.get_u16(self.slot(index).offset() + 10) as usize
    }

    /// Appends the value of a leaf's entry.
    #[inline]
    pub(super) fn value_into(self, index: usize, out: &mut Vec<u8>) {
        let slot = self.slot(index);
        let start = slot.offset() + LEAF_HEAD_BYTES + slot.key_len();
        self.bytes.append_to(start, self.value_len(index), out);
    }

    /// Bytes that an entry takes in the heap.
    pub(super) fn entry_bytes(self, index: usize) -> usize {
        let key_len = self.slot(index).key_len();
        if self.is_leaf() {
            leaf_entry_bytes(key_len, self.capacity(index))
        } else {
            inner_entry_bytes(key_len)
        }
    }
}

/// Bytes in the heap of a leaf's entry.
pub(super) fn leaf_entry_bytes(suffix_len: usize, capacity: usize) -> usize {
    (LEAF_HEAD_BYTES + suffix_len + capacity).next_multiple_of(8)
}

/// Bytes in the heap of an inner node's entry.
pub(super) fn inner_entry_bytes(suffix_len: usize) -> usize {
    (INNER_HEAD_BYTES + suffix_len).next_multiple_of(8)
}

/// Longest key that a tree with this page size holds.
#[must_use]
pub fn max_key_bytes(page_bytes: usize) -> usize {
    page_bytes / 8
}

/// Most bytes of a key and its value together: four entries and two longest fences fit in a page.
#[must_use]
pub fn max_entry_bytes(page_bytes: usize) -> usize {
    let heap = page_bytes - SLOTS - 2 * max_key_bytes(page_bytes) - 8;
    (heap / 4 - SLOT_BYTES - LEAF_HEAD_BYTES - 8) & !7
}
