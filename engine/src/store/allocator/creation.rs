//! The creation generations: which checkpoint was the first to contain the content of a block.
//! Recorded only while a checkpoint is pinned; see `free`.
//!
//! Page images have a flat table in parts, like the mapping: 8 bytes for each page in a part that
//! has any. The table never grows by being copied, because a copy would delay every waiting thread.

use super::super::block::BlockNumber;
use crate::base::PageId;
use std::collections::HashMap;

/// Pages in a part.
const PART: usize = 512;

/// The content of a block, as a checkpoint sees it. A checkpoint has one image of a page.
#[derive(Clone, Copy, Debug)]
pub enum Content {
    /// The image of a page.
    Image(PageId),
    /// Other content, which fills its block.
    Other(BlockNumber),
}

/// Creation generations by content; 0 means unknown.
#[derive(Debug, Default)]
pub struct CreationTable {
    /// A part is empty while nothing in it is known.
    images: Vec<Box<[u64]>>,
    /// Parts that are not empty.
    parts: u64,
    /// Few entries.
    others: HashMap<BlockNumber, u64>,
}

impl CreationTable {
    /// Records that `generation` is the first with this content.
    pub fn note(&mut self, content: Content, generation: u64) {
        match content {
            Content::Other(block) => drop(self.others.insert(block, generation)),
            Content::Image(page) => {
                let (part, slot) = place(page);
                if self.images.len() <= part {
                    self.images.resize_with(part + 1, Box::default);
                }
                if self.images[part].is_empty() {
                    self.images[part] = vec![0; PART].into_boxed_slice();
                    self.parts += 1;
                }
                self.images[part][slot] = generation;
            }
        }
    }

    /// Removes the creation generation of content that was replaced, and returns it.
    pub fn take(&mut self, content: Content) -> u64 {
        match content {
            Content::Other(block) => self.others.remove(&block).unwrap_or(0),
            Content::Image(page) => {
                let (part, slot) = place(page);
                let created = self.images.get_mut(part).and_then(|part| part.get_mut(slot));
                created.map(std::mem::take).unwrap_or(0)
            }
        }
    }

    /// Forgets at most `most` parts. Returns whether any entry is left.
    pub fn forget(&mut self, most: usize) -> bool {
        let keep = self.images.len().saturating_sub(most);
        self.parts -= self.images.drain(keep..).filter(|part| !part.is_empty()).count() as u64;
        if keep == 0 {
            *self = CreationTable::default();
        }
        keep > 0
    }

    /// Bytes of memory of the table.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        debug_assert!(self.parts as usize <= self.images.len(), "each part that has memory is listed");
        debug_assert!(self.parts as usize <= self.images.len(), "each part that has memory is listed");
        let (images, others) = (self.images.capacity(), self.others.capacity());
        let tables = images * size_of::<Box<[u64]>>() + others * size_of::<(BlockNumber, u64)>();
        self.parts * (PART * size_of::<u64>()) as u64 + tables as u64
    }
}

fn place(page: PageId) -> (usize, usize) {
    ((page.0 / PART as u64) as usize, (page.0 % PART as u64) as usize)
}
