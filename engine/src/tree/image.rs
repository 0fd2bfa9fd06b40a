//! Images of pages for the store: what a leaf was for an older snapshot, and whether bytes from the store are a node.

use super::edit::{Fences, NewEntry, NodeMut};
use super::node::{
    INNER, KIND, LEAF, LOWER_LEN, Node, PREFIX_LEN, SLOT_BYTES, SLOTS, UPPER_LEN, head_of, max_key_bytes,
};
use crate::base::{Error, Result};
use crate::buffer::{PageBytes, ScratchPage};

pub use super::node::EntryMeta;

/// What an entry of a leaf is in its image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resolved {
    /// The page's value.
    Keep,
    /// The value that was put in the buffer.
    Older,
    /// Nothing.
    Absent,
}

/// Says what an entry is: gets its meta data, its value, and a buffer for an older one.
pub type Resolve<'a> = &'a mut dyn FnMut(EntryMeta, &[u8], &mut Vec<u8>) -> Resolved;

/// Writes the image of a latched page to `out`, which is as long as a page; the store's bytes are left zero. `resolve` is
/// asked for each entry of a leaf, with its value and a buffer for an older one. In the image every stamp is settled and
/// nothing is a tombstone. True if every entry was kept, so that the image is all there is to know of the page.
pub fn image_page(page: PageBytes<'_>, out: &mut [u8], resolve: Resolve<'_>) -> bool {
    let source = Node::new(page);
    if !source.is_leaf() {
        page.copy_to(KIND, &mut out[KIND..]);
        return true;
    }
    let mut scratch = ScratchPage::new(page.len());
    let mut newest = true;
    {
        let mut target = NodeMut::new(scratch.bytes_mut());
        target.init(LEAF, &Fences::of(source));
        let prefix_len = source.prefix_len();
        let (mut key, mut value, mut older) = (Vec::new(), Vec::new(), Vec::new());
        for index in 0..source.count() {
            value.clear();
            source.value_into(index, &mut value);
            let resolved = resolve(source.meta(index), &value, &mut older);
            newest &= resolved == Resolved::Keep;
            let value = match resolved {
                Resolved::Keep => &value,
                Resolved::Older => &older,
                Resolved::Absent => continue,
            };
            key.clear();
            source.key_into(index, &mut key);
            let meta = EntryMeta { stamp: 0, tombstone: false };
            let at = target.node().count();
            target.insert_leaf(at, &key[prefix_len..], NewEntry { meta, value, capacity: value.len() });
        }
    }
    scratch.bytes().copy_to(KIND, &mut out[KIND..]);
    newest
}

/// Checks that `bytes` are a node whose every offset and length lies inside the page and whose keys are in order.
///
/// # Errors
/// `Corruption`, without a place.
pub fn validate_image(bytes: &[u8]) -> Result<()> {
    let page = ScratchPage::from_image(bytes);
    match problem(Node::new(page.bytes())) {
        None => Ok(()),
        Some(what) => Err(Error::corruption(format!("a stored page is no valid node: {what}"))),
    }
}

/// What is wrong with a node on its own.
pub(super) fn problem(node: Node<'_>) -> Option<&'static str> {
    let bytes = node.bytes;
    let kind = bytes.get_u8(KIND);
    if kind != LEAF && kind != INNER {
        return Some("unknown kind");
    }
    let max_key = max_key_bytes(bytes.len());
    let (lower, upper) = (bytes.get_u16(LOWER_LEN) as usize, bytes.get_u16(UPPER_LEN) as usize);
    if lower > max_key || upper > max_key || !node.has_upper() && upper > 0 {
        return Some("fences are too long");
    }
    let prefix_len = bytes.get_u16(PREFIX_LEN) as usize;
    if prefix_len > lower || prefix_len > upper && node.has_upper() || prefix_len > 0 && !node.has_upper() {
        return Some("the prefix is longer than the fences");
    }
    let count = bytes.get_u16(super::node::COUNT) as usize;
    let (heap_start, heap_end) = (node.heap_start(), node.heap_end());
    if SLOTS + count * SLOT_BYTES > heap_start || heap_start > heap_end || heap_start % 8 != 0 {
        return Some("slots and heap overlap");
    }
    if kind == INNER && node.child(count).0 == 0 {
        return Some("a child is missing");
    }
    let mut previous: Option<Vec<u8>> = None;
    for index in 0..count {
        if let Some(what) = entry_problem(node, index, heap_start, heap_end, max_key) {
            return Some(what);
        }
        let key = node.key(index);
        // A separator may equal the lower fence of no node but its right child; in a leaf the fence is a possible key.
        if !node.covers(&key) || previous.as_ref().is_some_and(|previous| *previous >= key) {
            return Some("keys are out of order");
        }
        previous = Some(key);
    }
    None
}

fn entry_problem(
    node: Node<'_>,
    index: usize,
    heap_start: usize,
    heap_end: usize,
    max_key: usize,
) -> Option<&'static str> {
    let slot = node.slot(index);
    if slot.offset() < heap_start || slot.offset() + 16 > heap_end && node.is_leaf() {
        return Some("an entry lies outside the heap");
    }
    if slot.offset() + node.entry_bytes(index) > heap_end || slot.key_len() + node.prefix_len() > max_key {
        return Some("an entry reaches beyond the heap");
    }
    if node.is_leaf() && node.value_len(index) > node.capacity(index) {
        return Some("a value is longer than its room");
    }
    if !node.is_leaf() && node.child(index).0 == 0 {
        return Some("a child is missing");
    }
    let key = node.key(index);
    if head_of(&key[node.prefix_len()..]) != slot.head() {
        return Some("a head does not belong to its key");
    }
    None
}
