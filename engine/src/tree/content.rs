//! Reads a page's image without its tree, for salvage.

use super::check::check_page;
use super::node::{Held, Node};
use super::overflow::{self, LargeReference};
use crate::base::{Error, PageId, Result};
use crate::buffer::ScratchPage;

/// A row in a leaf.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredRow {
    /// Its key.
    pub key: Vec<u8>,
    /// Its value, or a reference to it.
    pub value: StoredValue,
}

/// The value of a row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoredValue {
    /// The value.
    Inline(Vec<u8>),
    /// A value in overflow pages.
    Large(LargeReference),
}

/// A child of an inner node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredChild {
    /// The page.
    pub page: PageId,
    /// Its lower fence: the lowest key that it covers.
    pub lower: Vec<u8>,
    /// Its upper fence: the first key above; `None` without an upper bound.
    pub upper: Option<Vec<u8>>,
}

/// The content of a page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    /// A leaf's rows.
    Leaf(Vec<StoredRow>),
    /// An inner node's children.
    Inner(Vec<StoredChild>),
    /// A part of a large value: bytes, or pages with parts.
    Overflow(Result<Vec<u8>, Vec<PageId>>),
}

/// A page that was read without its tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredPage {
    /// 0 for leaves and for the bytes of large values.
    pub level: u8,
    /// Its lower fence: the lowest key that it covers.
    pub lower: Vec<u8>,
    /// Its upper fence: the first key above; `None` without an upper bound.
    pub upper: Option<Vec<u8>>,
    /// Its content.
    pub content: Content,
}

/// Reads an image of any kind; stamps count as settled.
///
/// # Errors
/// `Corruption` if the bytes are not an image.
pub fn read_content(image: &[u8]) -> Result<StoredPage> {
    let scratch = ScratchPage::from_image(image);
    let page = scratch.bytes();
    let wrong = |what: &str| Error::corruption(format!("the image is not a node: {what}"));
    if overflow::is_overflow(page) {
        overflow::check_page(page).map_err(wrong)?;
        let (level, content) = overflow::content_of(page);
        return Ok(StoredPage { level, lower: Vec::new(), upper: None, content: Content::Overflow(content) });
    }
    check_page(page).map_err(wrong)?;
    let node = Node::new(page);
    let (lower, upper) = (node.lower().to_vec(), node.upper().map(|upper| upper.to_vec()));
    if node.is_leaf() {
        let rows = (0..node.count()).filter_map(|index| row(node, index)).collect::<Result<Vec<_>>>()?;
        return Ok(StoredPage { level: 0, lower, upper, content: Content::Leaf(rows) });
    }
    let children = (0..=node.count()).map(|index| StoredChild {
        page: node.child(index),
        lower: if index == 0 { lower.clone() } else { node.key(index - 1) },
        upper: if index < node.count() { Some(node.key(index)) } else { upper.clone() },
    });
    let content = Content::Inner(children.collect());
    Ok(StoredPage { level: node.level(), lower, upper, content })
}

fn row(node: Node<'_>, index: usize) -> Option<Result<StoredRow>> {
    let entry = node.entry(index);
    let held = entry.meta.held();
    let mut value = Vec::new();
    node.page.append_to(entry.value_offset(), entry.value_len, &mut value);
    let value = match held {
        Held::Nothing => return None,
        Held::Value => Ok(StoredValue::Inline(value)),
        Held::Reference => LargeReference::decode(&value).map(StoredValue::Large),
    };
    Some(value.map(|value| StoredRow { key: node.key(index), value }))
}
