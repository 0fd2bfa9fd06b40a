//! The bitmap of blocks in use. It is derived from the mapping at open and never stored.
//!
//! Two policies: a free block may be allocated at once, or, on a device that stores whole extents,
//! only as [`Extents`] allows.

use super::super::block::BlockNumber;
use super::super::yielding_lock::examined;
use super::extents::Extents;

/// See the module's text.
#[derive(Debug, Default)]
pub struct Bitmap {
    /// Bit set = in use. Bits at and above `blocks` do not exist.
    used: Vec<u64>,
    blocks: u64,
    free: u64,
    /// Where the next search begins. Each checkpoint resets it to 0, so that the file stays
    /// compact.
    cursor: u64,
    /// Where the next search for relocated images begins.
    relocation_cursor: u64,
    /// Present on a device that stores whole extents.
    pub extents: Option<Extents>,
}

impl Bitmap {
    /// Blocks of the file.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Returns an empty bitmap for a device that stores extents of `len` blocks.
    #[must_use]
    pub fn of_extents(len: u64) -> Bitmap {
        Bitmap { extents: Some(Extents::new(len)), ..Bitmap::default() }
    }

    /// Blocks that can be allocated.
    #[must_use]
    pub fn free_blocks(&self) -> u64 {
        self.extents.as_ref().map_or(self.free, Extents::allocatable)
    }

    /// Blocks that are not in use and cannot be allocated, because their extents are in use.
    #[must_use]
    pub fn dead_blocks(&self) -> u64 {
        debug_assert!(self.free_blocks() <= self.free, "a block that can be allocated is free");
        debug_assert!(self.free_blocks() <= self.free, "a block that can be allocated is free");
        self.free - self.free_blocks()
    }

    /// Returns the shortest length of the file, not below `blocks`, that ends an extent.
    #[must_use]
    pub fn whole_extents(&self, blocks: u64) -> u64 {
        self.extents.as_ref().map_or(blocks, |extents| blocks.next_multiple_of(extents.len()))
    }

    /// Blocks in use.
    #[must_use]
    pub fn used_blocks(&self) -> u64 {
        self.blocks - self.free
    }

    /// Extends the bitmap to `blocks` blocks; the new ones are free.
    pub fn extend(&mut self, blocks: u64) {
        debug_assert!(blocks >= self.blocks && blocks < BlockNumber::LIMIT);
        self.used.resize(blocks.div_ceil(64) as usize, 0);
        self.free += blocks - self.blocks;
        self.blocks = blocks;
        if let Some(extents) = &mut self.extents {
            extents.extend(blocks);
        }
    }

    /// Blocks up to the last one in use: the shortest length of the file.
    #[must_use]
    pub fn used_end(&self) -> u64 {
        let last = self.used.iter().rposition(|word| *word != 0);
        last.map_or(0, |at| at as u64 * 64 + 64 - u64::from(self.used[at].leading_zeros()))
    }

    /// Cuts the bitmap to `blocks` blocks. No block behind is in use.
    pub fn cut(&mut self, blocks: u64) {
        debug_assert!(blocks >= self.used_end() && blocks <= self.blocks);
        debug_assert!(
            self.used_blocks() == self.used.iter().map(|word| u64::from(word.count_ones())).sum::<u64>(),
            "the counts are those of the bits"
        );
        debug_assert!(
            self.used_blocks() == self.used.iter().map(|word| u64::from(word.count_ones())).sum::<u64>(),
            "the counts are those of the bits"
        );
        self.free -= self.blocks - blocks;
        self.blocks = blocks;
        self.used.truncate(blocks.div_ceil(64) as usize);
        self.cursor = self.cursor.min(blocks);
        if let Some(extents) = &mut self.extents {
            extents.cut(blocks);
        }
    }

    /// Resets both searches to the front of the file.
    pub fn rewind(&mut self) {
        (self.cursor, self.relocation_cursor) = (0, 0);
    }

    /// Returns whether a block is in use. A block behind the end is not.
    #[must_use]
    pub fn is_used(&self, block: BlockNumber) -> bool {
        self.used.get((block.0 / 64) as usize).is_some_and(|word| word >> (block.0 % 64) & 1 == 1)
    }

    /// Marks a free block as used.
    pub fn mark_used(&mut self, block: BlockNumber) {
        debug_assert!(block.0 < self.blocks, "a block lies in the file");
        debug_assert!(!self.is_used(block), "a block has one owner");
        debug_assert!(block.0 < self.blocks, "a block lies in the file");
        debug_assert!(!self.is_used(block), "a block has one owner");
        self.used[(block.0 / 64) as usize] |= 1 << (block.0 % 64);
        self.free -= 1;
        if let Some(extents) = &mut self.extents {
            extents.use_block(block);
        }
    }

    /// Marks a block in use as free.
    pub fn mark_free(&mut self, block: BlockNumber) {
        debug_assert!(self.is_used(block), "a block is freed once");
        debug_assert!(block.0 > 0, "the file's header is never free");
        debug_assert!(self.is_used(block), "a block is freed once");
        debug_assert!(block.0 > 0, "the file's header is never free");
        self.used[(block.0 / 64) as usize] &= !(1 << (block.0 % 64));
        self.free += 1;
        if let Some(extents) = &mut self.extents {
            extents.free_block(block);
        }
    }

    /// Takes at most `most` adjacent free blocks; `None` if no block can be allocated.
    pub fn take_run(&mut self, most: u64) -> Option<(BlockNumber, u64)> {
        if let Some(extents) = &mut self.extents {
            let (first, len) = extents.next_run(most)?;
            (first..first + len).for_each(|block| self.mark_used(BlockNumber(block)));
            return Some((BlockNumber(first), len));
        }
        self.take_any_run(most)
    }

    /// Takes at most `most` adjacent blocks that are not in use, also dead ones.
    pub fn take_any_run(&mut self, most: u64) -> Option<(BlockNumber, u64)> {
        let run = self.take_run_between(self.cursor, self.blocks, most)?;
        self.cursor = run.0.0 + run.1;
        Some(run)
    }

    /// As [`Bitmap::take_run`], of blocks before `bound`, for relocated images.
    pub fn take_run_before(&mut self, bound: u64, most: u64) -> Option<(BlockNumber, u64)> {
        let run = self.take_run_between(self.relocation_cursor, bound, most)?;
        self.relocation_cursor = run.0.0 + run.1;
        Some(run)
    }

    /// Searches from `from` to `end`, then from the front.
    fn take_run_between(&mut self, from: u64, end: u64, most: u64) -> Option<(BlockNumber, u64)> {
        if self.free == 0 || most == 0 {
            return None;
        }
        let end = end.min(self.blocks);
        let first = self.find(from, end).or_else(|| self.find(0, from.min(end)))?;
        let end = end.min(first.0.saturating_add(most));
        let mut len = 0;
        while first.0 + len < end && !self.is_used(BlockNumber(first.0 + len)) {
            self.mark_used(BlockNumber(first.0 + len));
            len += 1;
        }
        debug_assert!(len > 0 && len <= most, "a run has a block, and at most what was asked for");
        debug_assert!(len > 0 && len <= most, "a run has a block, and at most what was asked for");
        Some((first, len))
    }

    /// Returns the first free block in `from..to`.
    fn find(&self, from: u64, to: u64) -> Option<BlockNumber> {
        let mut at = from;
        while at < to {
            examined(1);
            let word = self.used[(at / 64) as usize] >> (at % 64);
            if word & 1 == 0 {
                return Some(BlockNumber(at));
            }
            at += u64::from(word.trailing_ones());
        }
        None
    }
}
