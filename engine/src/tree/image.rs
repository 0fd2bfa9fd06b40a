//! Makes the images of pages that the store keeps.
//!
//! A *settled* image shows a page as of some moment, with every entry settled. An image that a
//! checkpoint makes has no tombstones. The image of a page that leaves memory is a copy, so it may
//! contain a tombstone, which then means that the row does not exist. Older values for an image
//! come from the transaction layer. They fit because of the room rule: an entry that is not settled
//! has kept the capacity of every value since it was last settled.
//!
//! A *stamped* image is a copy of the page, for a page that leaves memory while a transaction may
//! still ask which transaction wrote its entries. After the run that wrote the image no transaction
//! can, and [`settle_image`] turns it into a settled one.

use super::check::{check_any_page, check_settled};
use super::edit::{Fences, NodeMut};
pub use super::node::{EntryMeta, Held};
use super::node::{Node, WORD};
use super::overflow;
use crate::base::{Error, PageId, Result};
use crate::buffer::{PAGE_HEADER_BYTES, PageBytes, ScratchPage};
use crate::store::ImageKind;

/// The form of an entry in the image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resolved {
    /// As in the page.
    Keep,
    /// As in the page, but with a change that may still be rolled back and changes nothing.
    Same,
    /// The older value filled in.
    Older,
    /// The reference filled in, to an older, large value.
    OlderReference,
    /// Absent from the image.
    Absent,
}

/// Decides the form of an entry. Gets its meta, its value, and an empty buffer for an older value.
pub type Resolve<'a> = &'a mut dyn FnMut(EntryMeta, &[u8], &mut Vec<u8>) -> Resolved;

/// How much of a page an image shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shown {
    /// Every entry as in the page.
    Newest,
    /// The page has something newer, if only a stamp.
    Older,
    /// No image: the page is part of a large value whose owner is absent from the image.
    Nothing,
}

/// Fills `out`, which is as long as the page, with the page's image, except the first
/// [`PAGE_HEADER_BYTES`], which are the store's. Calls `resolve` for each entry of a leaf; a
/// tombstone that is kept is left out. For an overflow page it is called once, for the owner of the
/// value. The caller keeps writers out.
pub fn image_page(page: PageBytes<'_>, out: &mut [u8], resolve: Resolve<'_>) -> Shown {
    debug_assert_eq!(out.len(), page.len(), "an image is as long as its page");
    if overflow::is_overflow(page) {
        let owner = EntryMeta { stamp: overflow::stamp_of(page), tombstone: false, large: true };
        if resolve(owner, &[], &mut Vec::new()) != Resolved::Keep {
            return Shown::Nothing;
        }
        page.copy_to(PAGE_HEADER_BYTES, &mut out[PAGE_HEADER_BYTES..]);
        overflow::settle(out);
        return Shown::Newest;
    }
    let node = Node::new(page);
    if !node.is_leaf() {
        page.copy_to(PAGE_HEADER_BYTES, &mut out[PAGE_HEADER_BYTES..]);
        clear_gap(node, out);
        return Shown::Newest;
    }
    let mut image = ScratchPage::new(page.len());
    let mut leaf = NodeMut::new(image.bytes_mut());
    leaf.init(0, &Fences::of(node), PageId(0));
    let (mut key, mut value, mut older) = (Vec::new(), Vec::new(), Vec::new());
    let mut all_kept = true;
    for index in 0..node.count() {
        let entry = node.entry(index);
        value.clear();
        older.clear();
        page.append_to(entry.value_offset(), entry.value_len, &mut value);
        let resolved = resolve(entry.meta, &value, &mut older);
        debug_assert!(older.len() <= entry.capacity, "the room rule: {entry:?} had {} bytes", older.len());
        all_kept &= resolved == Resolved::Keep;
        let (content, large) = match resolved {
            Resolved::Keep | Resolved::Same if entry.meta.tombstone => continue,
            Resolved::Keep | Resolved::Same => (&value, entry.meta.large),
            Resolved::Older => (&older, false),
            Resolved::OlderReference => (&older, true),
            Resolved::Absent => continue,
        };
        key.clear();
        node.append_key(index, &mut key);
        let at = leaf.node().count();
        let settled = EntryMeta { stamp: 0, tombstone: false, large };
        leaf.insert(at, node.suffix_of(&key), settled, content, content.len());
    }
    image.bytes().copy_to(PAGE_HEADER_BYTES, &mut out[PAGE_HEADER_BYTES..]);
    if all_kept { Shown::Newest } else { Shown::Older }
}

/// The decision about a stamp in a stamped image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StampFate {
    /// It is settled, and is removed.
    Settled,
    /// It is kept.
    Kept,
    /// No image can be made now.
    Refused,
}

/// Turns a copy of a page's bytes into its stamped image; `fate` decides about each stamp that is
/// not 0. Returns whether any stamp is kept, `None` if one was refused. The bytes may be torn; the
/// image is then nonsense, without other harm.
pub fn stamped_image(bytes: &mut [u8], fate: &mut dyn FnMut(u64) -> StampFate) -> Option<bool> {
    let page = ScratchPage::from_image(bytes);
    let node = Node::new(page.bytes());
    let mut stamped = false;
    if overflow::is_overflow(page.bytes()) {
        return match overflow::stamp_of(page.bytes()) {
            0 => Some(false),
            stamp => match fate(stamp) {
                StampFate::Settled => {
                    overflow::settle(bytes);
                    Some(false)
                }
                StampFate::Kept => Some(true),
                StampFate::Refused => None,
            },
        };
    }
    clear_gap(node, bytes);
    if !node.is_leaf() {
        return Some(false);
    }
    for index in 0..node.count() {
        let entry = node.entry(index);
        if entry.meta.stamp == 0 {
            continue;
        }
        match fate(entry.meta.stamp) {
            StampFate::Settled => {
                if let Some(stamp) = bytes.get_mut(entry.offset..entry.offset + WORD) {
                    stamp.fill(0);
                }
            }
            StampFate::Kept => stamped = true,
            StampFate::Refused => return None,
        }
    }
    Some(stamped)
}

/// Clears the bytes between slots and heap: they mean nothing, and zeros compress best.
fn clear_gap(node: Node<'_>, image: &mut [u8]) {
    let (end, gap) = (node.heap_start(), node.gap());
    if let Some(bytes) = image.get_mut(end - gap..end) {
        bytes.fill(0);
    }
}

/// Returns the stamp of the owner of the large value that a page is part of, if any.
#[must_use]
pub fn owner_of(bytes: &[u8]) -> Option<u64> {
    let page = ScratchPage::from_image(bytes);
    let is_part = overflow::is_overflow(page.bytes());
    is_part.then(|| overflow::stamp_of(page.bytes())).filter(|stamp| *stamp != 0)
}

/// Turns a stamped image of an earlier run into a settled one: its content is committed, and there
/// are no older values.
pub fn settle_image(bytes: &mut [u8]) {
    let page = ScratchPage::from_image(bytes);
    image_page(page.bytes(), bytes, &mut |_, _, _| Resolved::Keep);
}

/// Checks that the bytes are an image of a node or of an overflow page. An image that passes cannot
/// lead outside the page, nor keep a writer busy for ever. Other bytes cannot lead outside either;
/// they only give wrong answers.
///
/// # Errors
/// [`crate::base::ErrorKind::Corruption`].
#[cfg(feature = "internals")]
pub fn validate_image(bytes: &[u8]) -> Result<()> {
    validate_image_of(ImageKind::Stamped, bytes)
}

/// As [`validate_image`], for an image of the kind that the store has noted.
///
/// # Errors
/// As [`validate_image`].
pub fn validate_image_of(kind: ImageKind, bytes: &[u8]) -> Result<()> {
    let page = ScratchPage::from_image(bytes);
    let checked = check_any_page(page.bytes()).and_then(|()| match kind {
        ImageKind::Settled => check_settled(page.bytes()),
        ImageKind::Stamped => Ok(()),
    });
    checked.map_err(|what| Error::corruption(format!("the image is not a node: {what}")))
}
