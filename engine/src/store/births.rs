//! With which checkpoint the things in blocks were born, while somebody pins one; see `free`.
//!
//! A flat table in parts for the images of pages, like that of the mapping: 8 bytes for each page in a part that has any. It does not
//! grow by being copied, for that would keep everybody waiting.

use super::blocks::BlockNumber;
use crate::base::PageId;
use std::collections::HashMap;

/// Pages in a part.
const PART: usize = 512;

/// What a checkpoint has in a block. It has one image of a page.
#[derive(Clone, Copy, Debug)]
pub enum Content {
    /// The image of a page.
    Image(PageId),
    /// Something else that has the block to itself.
    Other(BlockNumber),
}

/// Generations, by what was born with them; 0 is not known.
#[derive(Debug, Default)]
pub struct Births {
    /// Empty where nothing is known.
    images: Vec<Box<[u64]>>,
    /// Parts that are not empty.
    parts: u64,
    /// Few.
    others: HashMap<BlockNumber, u64>,
}

impl Births {
    /// Notes that something was born with `generation`.
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

    /// The generation of something that is no more.
    pub fn take(&mut self, content: Content) -> u64 {
        match content {
            Content::Other(block) => self.others.remove(&block).unwrap_or(0),
            Content::Image(page) => {
                let (part, slot) = place(page);
                let born = self.images.get_mut(part).and_then(|part| part.get_mut(slot));
                born.map(std::mem::take).unwrap_or(0)
            }
        }
    }

    /// Forgets at most `most` parts. Returns whether anything is left.
    pub fn forget(&mut self, most: usize) -> bool {
        let keep = self.images.len().saturating_sub(most);
        self.parts -= self.images.drain(keep..).filter(|part| !part.is_empty()).count() as u64;
        if keep == 0 {
            *self = Births::default();
        }
        keep > 0
    }

    /// Bytes of memory that this takes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let (images, others) = (self.images.capacity(), self.others.capacity());
        let tables = images * size_of::<Box<[u64]>>() + others * size_of::<(BlockNumber, u64)>();
        self.parts * (PART * size_of::<u64>()) as u64 + tables as u64
    }
}

fn place(page: PageId) -> (usize, usize) {
    ((page.0 / PART as u64) as usize, (page.0 % PART as u64) as usize)
}
