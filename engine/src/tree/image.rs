//! What the store keeps of a page.
//!
//! A *settled* image shows a page as of some moment: every entry settled. One that a checkpoint makes has no tombstones; that of a page which
//! leaves memory is a copy, so a tombstone that nobody needs any more may be in it, and stands for nothing. The older values it needs come from
//! the transaction layer. They fit because of the room rule: an unsettled entry has kept the capacity of every value it had
//! since it was last settled.
//!
//! A *stamped* image is a page as it was, for one that leaves memory while somebody may still ask who wrote its entries. When
//! the run that wrote it is over nobody can, and [`settle_image`] makes a settled one of it.

use super::check::{check_any_page, check_settled};
use super::edit::{Fences, NodeMut};
use super::node::{Node, WORD};
use super::overflow;
pub use super::{EntryMeta, Held};
use crate::base::{Error, PageId, Result};
use crate::buffer::{PAGE_HEADER_BYTES, PageBytes, ScratchPage};
use crate::store::ImageKind;

/// What an entry is in the image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resolved {
    /// What it is in the page.
    Keep,
    /// The same, but a change of nothing lies on it that may still be taken back.
    Same,
    /// The older value that was filled in.
    Older,
    /// The reference to an older, large value that was filled in.
    OlderReference,
    /// Not there.
    Absent,
}

/// Says what an entry is: gets its meta, its value, and an empty buffer for an older one.
pub type Resolve<'a> = &'a mut dyn FnMut(EntryMeta, &[u8], &mut Vec<u8>) -> Resolved;

/// What an image shows of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shown {
    /// Every entry as it is in the page.
    Newest,
    /// Something in the page is newer, if only who holds it.
    Older,
    /// There is no image: the page is part of a large value whose owner is not there.
    Nothing,
}

/// Fills `out`, which is as long as the page, with the page's image; its first [`PAGE_HEADER_BYTES`] are
/// left for the store. `resolve` is asked about each entry of a leaf: its meta, its value, and where to put an older one.
/// A tombstone that is kept is left out. Of an overflow page it is asked once, about the owner of the value. The caller
/// keeps writers out.
pub fn image_page(page: PageBytes<'_>, out: &mut [u8], resolve: Resolve<'_>) -> Shown {
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

/// What is to become of a stamp in a stamped image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StampFate {
    /// Everybody sees what it stands for: it goes.
    Settled,
    /// It stays.
    Kept,
    /// There can be no image now.
    Refused,
}

/// Turns a copy of a page's bytes into its stamped image, asking what is to become of each stamp that is not 0. Returns whether
/// any stays, `None` if one was refused. The bytes may be torn; the image is then nonsense, and nothing else happens.
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

/// What is between slots and heap means nothing, and nothing compresses better than zeros.
fn clear_gap(node: Node<'_>, image: &mut [u8]) {
    let (end, gap) = (node.heap_start(), node.gap());
    if let Some(bytes) = image.get_mut(end - gap..end) {
        bytes.fill(0);
    }
}

/// The stamp of the owner of the large value that a page is part of, if it has one.
#[must_use]
pub fn owner_of(bytes: &[u8]) -> Option<u64> {
    let page = ScratchPage::from_image(bytes);
    let is_part = overflow::is_overflow(page.bytes());
    is_part.then(|| overflow::stamp_of(page.bytes())).filter(|stamp| *stamp != 0)
}

/// Makes a settled image of a stamped one of a run that is over: what it holds is committed, and there are no older values.
pub fn settle_image(bytes: &mut [u8]) {
    let page = ScratchPage::from_image(bytes);
    image_page(page.bytes(), bytes, &mut |_, _, _| Resolved::Keep);
}

/// Whether the bytes are an image of a node or of an overflow page. Nothing that passes can lead outside the page, nor keep a writer busy for ever;
/// nor can what does not pass lead outside, it only gives wrong answers.
///
/// # Errors
/// [`crate::base::ErrorKind::Corruption`].
pub fn validate_image(bytes: &[u8]) -> Result<()> {
    validate_image_of(ImageKind::Stamped, bytes)
}

/// As [`validate_image`], for an image that the store has as one of this kind.
///
/// # Errors
/// The same.
pub fn validate_image_of(kind: ImageKind, bytes: &[u8]) -> Result<()> {
    let page = ScratchPage::from_image(bytes);
    let checked = check_any_page(page.bytes()).and_then(|()| match kind {
        ImageKind::Settled => check_settled(page.bytes()),
        ImageKind::Stamped => Ok(()),
    });
    checked.map_err(|what| Error::corruption(format!("the image is not a node: {what}")))
}
