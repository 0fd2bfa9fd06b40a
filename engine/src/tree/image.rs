//! What the store keeps of a page.
//!
//! An image shows a page as of some moment: every entry settled, no tombstones. The older values it needs come from the
//! transaction layer. They fit because of the room rule: an unsettled entry has kept the capacity of every value it had
//! since it was last settled.

pub use super::EntryMeta;
use super::check::check_page;
use super::edit::{Fences, NodeMut};
use super::node::Node;
use crate::base::{Error, PageId, Result};
use crate::buffer::{PAGE_HEADER_BYTES, PageBytes, ScratchPage};

/// What an entry is in the image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resolved {
    /// What it is in the page.
    Keep,
    /// The older value that was filled in.
    Older,
    /// Not there.
    Absent,
}

/// Says what an entry is: gets its meta, its value, and an empty buffer for an older one.
pub type Resolve<'a> = &'a mut dyn FnMut(EntryMeta, &[u8], &mut Vec<u8>) -> Resolved;

const SETTLED: EntryMeta = EntryMeta { stamp: 0, tombstone: false };

/// Fills `out`, which is as long as the page, with the page's image; its first [`PAGE_HEADER_BYTES`] are
/// left for the store. `resolve` is asked about each entry of a leaf: its meta, its value, and where to put an older one.
/// A tombstone that is kept is left out. Returns whether every entry was kept. The caller keeps writers out.
pub fn image_page(page: PageBytes<'_>, out: &mut [u8], resolve: Resolve<'_>) -> bool {
    let node = Node::new(page);
    if !node.is_leaf() {
        page.copy_to(PAGE_HEADER_BYTES, &mut out[PAGE_HEADER_BYTES..]);
        return true;
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
        let content = match resolved {
            Resolved::Keep if entry.meta.tombstone => continue,
            Resolved::Keep => &value,
            Resolved::Older => &older,
            Resolved::Absent => continue,
        };
        key.clear();
        node.append_key(index, &mut key);
        let at = leaf.node().count();
        leaf.insert(at, node.suffix_of(&key), SETTLED, content, content.len());
    }
    image.bytes().copy_to(PAGE_HEADER_BYTES, &mut out[PAGE_HEADER_BYTES..]);
    all_kept
}

/// Whether the bytes are an image of a node. Nothing that passes can lead outside the page; nor can what does not pass, it
/// only gives wrong answers.
///
/// # Errors
/// [`crate::base::ErrorKind::Corruption`].
pub fn validate_image(bytes: &[u8]) -> Result<()> {
    let page = ScratchPage::from_image(bytes);
    check_page(page.bytes()).map_err(|what| Error::corruption(format!("the image is not a node: {what}")))
}
