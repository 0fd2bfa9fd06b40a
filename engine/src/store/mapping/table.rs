//! The mapping: page id to block.
//!
//! Two levels of blocks on storage, copied on write like the pages, so that a checkpoint writes
//! only changed parts; one flat table in memory.
//!
//! ```text
//!   manifest: directory[0], directory[1], ...
//!                  │
//!   directory block 0:  ref of mapping block 0, 1, 2, ...          (a 4 KiB block holds 508 references)
//!                                  │
//!   mapping block 1:    ref of page 508, 509, ...                  (absent = no such page)
//! ```
//!
//! | offset | bytes | field of a mapping or directory block |
//! |---|---|---|
//! | 0 | 32 | block header; subject = index of the block in its level |
//! | 32 | 8 each | [`BlockRef`], 0 = absent |
//!
//! A part without any reference has no block; its own reference is absent.
//!
//! # Invariants
//! - M1: blocks are untrusted when they are read. A reference outside the file, or a block with two
//!   references, is corruption. Only images may share a block, each counted as a use of it; whether
//!   it is a pack is checked when the block is read.

use super::super::block::{BLOCK_HEADER_BYTES, BlockRef, references_per_block};
use crate::base::PageId;

/// The references of one mapping block, and where they are stored.
#[derive(Debug)]
struct Part {
    stored: BlockRef,
    pages: Box<[BlockRef]>,
}

/// The table of one committed checkpoint.
#[derive(Debug)]
pub struct Mapping {
    per_block: usize,
    parts: Vec<Option<Part>>,
    directory: Vec<BlockRef>,
    pages: u64,
}

impl Mapping {
    /// A mapping without pages.
    #[must_use]
    pub fn empty(page_bytes: usize) -> Mapping {
        Mapping {
            per_block: references_per_block(page_bytes),
            parts: Vec::new(),
            directory: Vec::new(),
            pages: 0,
        }
    }

    /// Pages in a part.
    #[must_use]
    pub fn per_block(&self) -> usize {
        self.per_block
    }

    /// Pages that have an image.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// The directory blocks, for the manifest.
    #[must_use]
    pub fn directory(&self) -> &[BlockRef] {
        &self.directory
    }

    /// Number of parts.
    #[must_use]
    pub fn part_count(&self) -> usize {
        self.parts.len()
    }

    /// Returns the part and slot of a page.
    #[must_use]
    pub fn place(&self, page: PageId) -> (usize, usize) {
        let per_block = self.per_block as u64;
        ((page.0 / per_block) as usize, (page.0 % per_block) as usize)
    }

    /// Returns the image of `page`, absent if it has none.
    #[must_use]
    pub fn get(&self, page: PageId) -> BlockRef {
        let (part, slot) = self.place(page);
        match self.parts.get(part) {
            Some(Some(part)) => part.pages[slot],
            _ => BlockRef::ABSENT,
        }
    }

    /// Returns the page in a slot of a part.
    #[must_use]
    pub fn id(&self, part: usize, slot: usize) -> PageId {
        PageId((part * self.per_block + slot) as u64)
    }

    /// Sets the image of `page`; returns the old one.
    pub fn set(&mut self, page: PageId, reference: BlockRef) -> BlockRef {
        let (part, slot) = self.place(page);
        let before = std::mem::replace(&mut self.part_mut(part).pages[slot], reference);
        self.pages = self.pages + u64::from(!reference.is_absent()) - u64::from(!before.is_absent());
        before
    }

    /// Sets the block of part `index`; an absent reference removes a part without pages.
    pub fn set_stored(&mut self, index: usize, stored: BlockRef) {
        if stored.is_absent() {
            if let Some(part) = self.parts.get_mut(index) {
                debug_assert!(
                    part.iter().flat_map(|part| &part.pages).all(|page| page.is_absent()),
                    "only a part without pages has no block"
                );
                *part = None;
            }
        } else {
            self.part_mut(index).stored = stored;
        }
    }

    /// Sets the blocks of the directory.
    pub fn set_directory(&mut self, directory: Vec<BlockRef>) {
        debug_assert!(
            directory.last().is_none_or(|last| !last.is_absent()),
            "the directory ends with a block that exists"
        );
        self.directory = directory;
    }

    /// Returns the block of part `index`.
    #[must_use]
    pub fn stored(&self, index: usize) -> BlockRef {
        match self.parts.get(index) {
            Some(Some(part)) => part.stored,
            _ => BlockRef::ABSENT,
        }
    }

    /// Returns a copy of part `index`, to be changed and written.
    #[must_use]
    pub fn copy_part(&self, index: usize) -> Vec<BlockRef> {
        match self.parts.get(index) {
            Some(Some(part)) => part.pages.to_vec(),
            _ => vec![BlockRef::ABSENT; self.per_block],
        }
    }

    /// Returns a copy of directory block `index`: the blocks of its parts.
    #[must_use]
    pub fn copy_directory(&self, index: usize) -> Vec<BlockRef> {
        (0..self.per_block).map(|slot| self.stored(index * self.per_block + slot)).collect()
    }

    /// Returns the ids of the pages in part `index`.
    #[must_use]
    pub fn page_ids(&self, index: usize) -> Vec<PageId> {
        let Some(Some(part)) = self.parts.get(index) else { return Vec::new() };
        let first = (index * self.per_block) as u64;
        let slots = part.pages.iter().enumerate().filter(|(_, reference)| !reference.is_absent());
        slots.map(|(slot, _)| PageId(first + slot as u64)).collect()
    }

    /// Adds a part that was loaded from its block.
    pub(super) fn add_part(&mut self, index: usize, stored: BlockRef, pages: Box<[BlockRef]>) {
        debug_assert!(pages.len() == self.per_block, "a part fills its block");
        debug_assert!(self.stored(index).is_absent(), "a part is added once");
        self.pages += pages.iter().filter(|reference| reference.0 != 0).count() as u64;
        *self.part_mut(index) = Part { stored, pages };
    }

    fn part_mut(&mut self, index: usize) -> &mut Part {
        if self.parts.len() <= index {
            self.parts.resize_with(index + 1, || None);
        }
        let per_block = self.per_block;
        self.parts[index].get_or_insert_with(|| Part {
            stored: BlockRef::ABSENT,
            pages: vec![BlockRef::ABSENT; per_block].into_boxed_slice(),
        })
    }
}

/// Returns the references in a verified mapping or directory block.
pub fn decode_references(image: &[u8]) -> Box<[BlockRef]> {
    let words = image[BLOCK_HEADER_BYTES..].chunks_exact(size_of::<u64>());
    words
        .map(|word| BlockRef(word.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))))
        .collect()
}

/// Writes references into a block image before it is sealed.
pub fn encode_references(references: &[BlockRef], image: &mut [u8]) {
    debug_assert!(
        references.len() * size_of::<u64>() <= image.len() - BLOCK_HEADER_BYTES,
        "the references of a part fit its block"
    );
    let words = image[BLOCK_HEADER_BYTES..].chunks_exact_mut(size_of::<u64>());
    for (word, reference) in words.zip(references) {
        word.copy_from_slice(&reference.0.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_counted_and_found_across_parts() {
        let mut mapping = Mapping::empty(4096);
        let ids = [1, 507, 508, 100_000].map(PageId);
        for (block, id) in ids.iter().enumerate() {
            mapping.set(*id, BlockRef((block as u64 + 1) << 24));
        }
        assert_eq!(mapping.pages(), 4);
        assert_eq!(mapping.get(PageId(508)).block().0, 3);
        assert!(mapping.get(PageId(509)).is_absent() && mapping.get(PageId(1 << 40)).is_absent());
        let listed: Vec<PageId> = (0..mapping.part_count()).flat_map(|part| mapping.page_ids(part)).collect();
        assert_eq!(listed, ids);
        mapping.set(PageId(508), BlockRef::ABSENT);
        assert_eq!(mapping.pages(), 3);
    }

    #[test]
    fn references_survive_encoding() {
        let references: Vec<BlockRef> = (0..references_per_block(4096) as u64).map(BlockRef).collect();
        let mut image = vec![0u8; 4096];
        encode_references(&references, &mut image);
        assert_eq!(&*decode_references(&image), &references[..]);
    }
}
