//! An overlay: images that no durable manifest contains yet, above the mapping.
//!
//! A flat table in parts, like the mapping: 8 bytes for each page in a part that has any. A page
//! that is not in the overlay differs from a page that is in it as removed.

use super::super::block::BlockRef;
use crate::base::PageId;

/// Marks an empty slot. No reference has this number: blocks end below (`BlockNumber::LIMIT`).
const NOT_THERE: BlockRef = BlockRef(u64::MAX);

/// References of some pages.
#[derive(Debug)]
pub struct Overlay {
    per_part: usize,
    parts: Vec<Option<Box<[BlockRef]>>>,
    len: u64,
}

impl Overlay {
    /// An empty overlay with parts of `per_part` pages.
    #[must_use]
    pub fn new(per_part: usize) -> Overlay {
        Overlay { per_part, parts: Vec::new(), len: 0 }
    }

    /// Pages in the overlay, removed ones included.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    fn place(&self, page: PageId) -> (usize, usize) {
        let per_part = self.per_part as u64;
        ((page.0 / per_part) as usize, (page.0 % per_part) as usize)
    }

    /// Returns the image of `page`, absent if the page was removed; `None` if the page is not in
    /// the overlay.
    #[must_use]
    pub fn get(&self, page: PageId) -> Option<BlockRef> {
        let (part, slot) = self.place(page);
        let reference = self.parts.get(part)?.as_ref()?[slot];
        (reference != NOT_THERE).then_some(reference)
    }

    /// Sets the image of `page`; returns the old entry.
    pub fn set(&mut self, page: PageId, reference: BlockRef) -> Option<BlockRef> {
        debug_assert!(reference != NOT_THERE, "a page that is set is there");
        self.replace(page, reference)
    }

    /// Removes the entry of `page`.
    pub fn remove(&mut self, page: PageId) -> Option<BlockRef> {
        self.get(page)?;
        self.replace(page, NOT_THERE)
    }

    fn replace(&mut self, page: PageId, reference: BlockRef) -> Option<BlockRef> {
        let (part, slot) = self.place(page);
        if self.parts.len() <= part {
            self.parts.resize_with(part + 1, || None);
        }
        let per_part = self.per_part;
        let references = self.parts[part].get_or_insert_with(|| vec![NOT_THERE; per_part].into_boxed_slice());
        let before = std::mem::replace(&mut references[slot], reference);
        self.len += u64::from(reference != NOT_THERE);
        self.len -= u64::from(before != NOT_THERE);
        (before != NOT_THERE).then_some(before)
    }

    /// Number of parts; the last ones may be empty.
    #[must_use]
    pub fn part_count(&self) -> usize {
        self.parts.len()
    }

    /// Returns slot and reference of each page in a part.
    pub fn part(&self, index: usize) -> impl Iterator<Item = (usize, BlockRef)> + '_ {
        let references = self.parts.get(index).and_then(|part| part.as_deref()).unwrap_or_default();
        references.iter().copied().enumerate().filter(|(_, reference)| *reference != NOT_THERE)
    }

    /// Takes the pages of one part out of the overlay; `None` if it is empty.
    pub fn take_part(&mut self) -> Option<Vec<(PageId, BlockRef)>> {
        while let Some(last) = self.parts.pop() {
            let Some(references) = last else { continue };
            let first = (self.parts.len() * self.per_part) as u64;
            let pages: Vec<_> = (first..)
                .map(PageId)
                .zip(references.iter().copied())
                .filter(|(_, reference)| *reference != NOT_THERE)
                .collect();
            self.len -= pages.len() as u64;
            if !pages.is_empty() {
                return Some(pages);
            }
        }
        debug_assert!(self.len == 0, "pages are counted where they are");
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_and_unknown_pages_differ() {
        let mut overlay = Overlay::new(10);
        let reference = BlockRef(7 << 24);
        assert_eq!(overlay.set(PageId(25), reference), None);
        assert_eq!(overlay.set(PageId(3), BlockRef::ABSENT), None);
        assert_eq!(overlay.get(PageId(25)), Some(reference));
        assert_eq!(overlay.get(PageId(3)), Some(BlockRef::ABSENT));
        assert_eq!((overlay.get(PageId(4)), overlay.get(PageId(1 << 40))), (None, None));
        assert_eq!((overlay.len(), overlay.part_count()), (2, 3));
        assert_eq!(overlay.part(2).collect::<Vec<_>>(), [(5, reference)]);
        assert_eq!(overlay.remove(PageId(3)), Some(BlockRef::ABSENT));
        assert_eq!((overlay.remove(PageId(3)), overlay.len()), (None, 1));
        assert_eq!(overlay.take_part(), Some(vec![(PageId(25), reference)]));
        assert_eq!((overlay.take_part(), overlay.len()), (None, 0));
    }
}
