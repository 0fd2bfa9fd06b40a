//! Checks whether a page is a node.
//!
//! [`check_page`] trusts nothing. It validates images from the store, and each page that a survey
//! comes to.

use super::node::{
    Held, INNER_ENTRY_HEADER, LEAF_ENTRY_HEADER, Node, SLOTS_OFFSET, WORD, inner_entry_bytes,
    max_entry_bytes, max_key_bytes,
};
use super::overflow::{self, LargeReference, REFERENCE_BYTES};
use crate::base::Result;
use crate::base::common_bytes::common_prefix;
use crate::buffer::PageBytes;

/// Returns the large values that the entries of a leaf refer to; none for an inner node.
pub(super) fn references(node: Node<'_>) -> Result<Vec<LargeReference>> {
    let entries = if node.is_leaf() { node.count() } else { 0 };
    (0..entries).filter_map(|index| reference_at(node, index).transpose()).collect()
}

/// Returns the large value that an entry of a leaf refers to, if any.
pub(super) fn reference_at(leaf: Node<'_>, index: usize) -> Result<Option<LargeReference>> {
    let entry = leaf.entry(index);
    if entry.meta.held() != Held::Reference {
        return Ok(None);
    }
    let mut bytes = Vec::with_capacity(REFERENCE_BYTES);
    leaf.page.append_to(entry.value_offset(), entry.value_len, &mut bytes);
    LargeReference::decode(&bytes).map(Some)
}

/// Checks everything that a page alone shows, be it a node or an overflow page.
pub(super) fn check_any_page(page: PageBytes<'_>) -> Result<(), &'static str> {
    if overflow::is_overflow(page) { overflow::check_page(page) } else { check_page(page) }
}

/// Checks everything that a node alone shows.
pub(super) fn check_page(page: PageBytes<'_>) -> Result<(), &'static str> {
    let node = Node::new(page);
    if !node.is_of(node.level()) {
        return Err("kind and level are not those of a node");
    }
    let header_count = usize::from(page.get_u16(super::node::HEADER_WORD * WORD + 2));
    let slots_end = SLOTS_OFFSET + header_count * WORD;
    if node.heap_start() > page.len() || slots_end > node.heap_start() {
        return Err("slots and heap overlap");
    }
    check_entries(node)
}

/// Words of the heap that are in use. No two entries or fences may share a word: changing one would
/// change the other's lengths.
struct Taken {
    words: [u64; HEAP_WORDS_MAX / u64::BITS as usize],
}

/// Words of the longest page.
const HEAP_WORDS_MAX: usize = (32 << 10) / WORD;

impl Taken {
    /// Takes the words of `bytes` at `offset`, which is the start of a word. Returns false if one
    /// of them is taken.
    #[inline]
    fn take(&mut self, offset: usize, bytes: usize) -> bool {
        let (mut at, end) = (offset / WORD, (offset + bytes).div_ceil(WORD));
        while at < end {
            let (index, first) = (at / u64::BITS as usize, at % u64::BITS as usize);
            let count = (end - at).min(u64::BITS as usize - first);
            let mask = u64::MAX >> (u64::BITS as usize - count) << first;
            match self.words.get_mut(index) {
                Some(word) if *word & mask == 0 => *word |= mask,
                _ => return false,
            }
            at += count;
        }
        true
    }
}

/// Checks the fences. Returns their bytes.
fn check_fences(node: Node<'_>, taken: &mut Taken) -> Result<usize, &'static str> {
    let (mut used, most) = (0, max_key_bytes(node.page.len()));
    for (offset, len) in [Some(node.lower_place()), node.upper_place()].into_iter().flatten() {
        if len > most {
            return Err("a fence is longer than any key");
        }
        if len > 0 && (offset < node.heap_start() || offset + len > node.page.len()) {
            return Err("a fence is outside the heap");
        }
        if !taken.take(offset, len) {
            return Err("fences overlap");
        }
        used += len.next_multiple_of(WORD);
    }
    let (lower, upper) = (node.lower(), node.upper());
    let prefix_len = upper.as_ref().map_or(0, |upper| common_prefix(&lower, upper));
    if upper.is_some_and(|upper| upper <= lower) {
        return Err("fences are not in order");
    }
    if node.prefix_len() != prefix_len {
        return Err("prefix is not what the fences have in common");
    }
    Ok(used)
}

fn check_entries(node: Node<'_>) -> Result<(), &'static str> {
    let mut taken = Taken { words: [0; _] };
    let mut used = check_fences(node, &mut taken)?;
    let (mut key, mut previous) = (Vec::new(), Vec::new());
    for index in 0..node.count() {
        let bytes = check_entry(node, index)?;
        let slot = node.slot(index);
        if !taken.take(slot.offset(), bytes) {
            return Err("an entry overlaps another, or a fence");
        }
        used += bytes;
        std::mem::swap(&mut key, &mut previous);
        key.clear();
        node.append_key(index, &mut key);
        if node.common_with_first(node.suffix_of(&key)) != node.common_len() {
            return Err("a suffix begins otherwise than all");
        }
        if slot.head() != node.head_at(index) {
            return Err("head is not that of the suffix");
        }
        if index > 0 && previous >= key {
            return Err("keys are not in order");
        }
        // A separator equal to the lower fence would leave an empty child before it.
        let first_is_lower = !node.is_leaf() && index == 0 && key == node.lower();
        // Keys between the first and the last are inside if these are.
        let is_outermost = index == 0 || index + 1 == node.count();
        if first_is_lower || is_outermost && !node.covers(&key) {
            return Err("key is outside the fences");
        }
    }
    if used + node.garbage() != node.page.len() - node.heap_start() {
        return Err("heap is not the sum of its parts");
    }
    Ok(())
}

/// Checks that the entry is inside the heap and no longer than a writer may make it, so that a
/// split always leaves two nodes with room. Returns the entry's bytes.
fn check_entry(node: Node<'_>, index: usize) -> Result<usize, &'static str> {
    let slot = node.slot(index);
    let header = if node.is_leaf() { LEAF_ENTRY_HEADER } else { INNER_ENTRY_HEADER };
    if slot.offset() < node.heap_start() || slot.offset() + header > node.page.len() {
        return Err("an entry is outside the heap");
    }
    let key_len = node.prefix_len() + slot.suffix_len();
    if key_len > max_key_bytes(node.page.len()) {
        return Err("a key is longer than any may be");
    }
    let bytes = if node.is_leaf() {
        let entry = node.entry(index);
        if entry.value_len > entry.capacity {
            return Err("a value is longer than its entry");
        }
        if key_len + entry.capacity > max_entry_bytes(node.page.len()) {
            return Err("an entry is longer than any may be");
        }
        if entry.meta.large {
            let mut bytes = Vec::with_capacity(REFERENCE_BYTES);
            node.page.append_to(entry.value_offset(), entry.value_len, &mut bytes);
            if entry.meta.tombstone || LargeReference::parse(&bytes).is_none() {
                return Err("a reference to a large value is malformed");
            }
        }
        entry.bytes()
    } else {
        inner_entry_bytes(slot.suffix_len())
    };
    if slot.offset() + bytes > node.page.len() {
        return Err("an entry is outside the heap");
    }
    Ok(bytes)
}

/// Checks that a settled image has no stamps.
pub(super) fn check_settled(page: PageBytes<'_>) -> Result<(), &'static str> {
    let node = Node::new(page);
    let entries = if node.is_leaf() { node.count() } else { 0 };
    let is_stamped = overflow::is_overflow(page) && overflow::stamp_of(page) != 0
        || (0..entries).any(|index| node.entry(index).meta.stamp != 0);
    if is_stamped { Err("a settled image has a stamp") } else { Ok(()) }
}
