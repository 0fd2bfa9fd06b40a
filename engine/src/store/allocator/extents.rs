//! Which blocks may be allocated on a device that stores whole extents.
//!
//! ```text
//!   free ──opened──▶ open: blocks in ascending order ──full──▶ closed ──last block freed──▶ unused ──discarded──▶ free
//! ```
//!
//! A block that is freed in an extent with other blocks in use is *dead*: it cannot be allocated
//! before the whole extent is free, because the device would store the extent a second time.
//!
//! # Invariants
//! - X1: between two discards of an extent each of its blocks is allocated at most once, except
//!   blocks that their writer returned without writing.
//! - X2: an extent is discarded when none of its blocks is in use, and before one is allocated
//!   again.

use super::super::block::BlockNumber;
use crate::base::planted::{self, Bug};
use std::collections::BTreeSet;

/// The extent from which blocks are allocated.
#[derive(Clone, Copy, Debug)]
struct Open {
    extent: u64,
    /// The next block; all blocks behind are free.
    next: u64,
}

/// See the module's text.
#[derive(Debug)]
pub struct Extents {
    /// Blocks of an extent.
    len: u64,
    /// Blocks of the file.
    blocks: u64,
    /// Blocks in use of each extent.
    used: Vec<u32>,
    /// Extents without blocks in use; they were discarded or not written since the open.
    free: BTreeSet<u64>,
    /// Extents without blocks in use that are to be discarded.
    unused: BTreeSet<u64>,
    open: Option<Open>,
    /// Blocks of free extents, and those left in the open one.
    allocatable: u64,
}

impl Extents {
    /// No file yet. An extent has `len` blocks.
    #[must_use]
    pub fn new(len: u64) -> Extents {
        let (used, free, unused) = Default::default();
        Extents { len, blocks: 0, used, free, unused, open: None, allocatable: 0 }
    }

    /// Blocks of an extent.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Blocks that can be allocated.
    #[must_use]
    pub fn allocatable(&self) -> u64 {
        self.allocatable
    }

    fn of(&self, block: u64) -> u64 {
        block / self.len
    }

    /// The first block of an extent, and the one behind its last.
    fn bounds(&self, extent: u64) -> (u64, u64) {
        let start = extent * self.len;
        (start, (start + self.len).min(self.blocks))
    }

    fn size(&self, extent: u64) -> u64 {
        let (start, end) = self.bounds(extent);
        end - start
    }

    fn left_open(&self) -> u64 {
        self.open.map_or(0, |open| self.bounds(open.extent).1 - open.next)
    }

    /// The file has grown. The new end of a partial extent continues it if no extent is open.
    pub fn extend(&mut self, blocks: u64) {
        let (old, last) = (self.blocks, self.of(self.blocks));
        let is_partial = !old.is_multiple_of(self.len);
        if is_partial && self.used[last as usize] > 0 && self.left_open() == 0 {
            self.open = Some(Open { extent: last, next: old });
        }
        self.blocks = blocks;
        let extents = blocks.div_ceil(self.len);
        self.free.extend(old.div_ceil(self.len)..extents);
        self.used.resize(extents as usize, 0);
        self.recount();
    }

    /// The file is about to be cut; no block behind is in use.
    pub fn cut(&mut self, blocks: u64) {
        debug_assert!(blocks <= self.blocks, "a cut does not extend");
        debug_assert!(
            self.used.iter().skip(blocks.div_ceil(self.len) as usize).all(|used| *used == 0),
            "no used block is cut off"
        );
        debug_assert!(blocks <= self.blocks, "a cut does not extend");
        debug_assert!(
            self.used.iter().skip(blocks.div_ceil(self.len) as usize).all(|used| *used == 0),
            "no used block is cut off"
        );
        self.blocks = blocks;
        let extents = blocks.div_ceil(self.len);
        self.used.truncate(extents as usize);
        self.free.split_off(&extents);
        self.unused.split_off(&extents);
        self.open = self.open.filter(|open| open.next < blocks);
        self.recount();
    }

    fn recount(&mut self) {
        let free: u64 = self.free.iter().map(|extent| self.size(*extent)).sum();
        debug_assert!(free + self.left_open() <= self.blocks, "what can be allocated lies in the file");
        debug_assert!(self.free.is_disjoint(&self.unused), "an extent is discarded before it is free");
        debug_assert!(free + self.left_open() <= self.blocks, "what can be allocated lies in the file");
        debug_assert!(self.free.is_disjoint(&self.unused), "an extent is discarded before it is free");
        self.allocatable = free + self.left_open();
    }

    fn close(&mut self) {
        self.allocatable -= self.left_open();
        self.open = None;
    }

    /// A block is in use from now on.
    pub fn use_block(&mut self, block: BlockNumber) {
        let extent = self.of(block.0);
        if self.free.remove(&extent) {
            self.allocatable -= self.size(extent);
        }
        self.unused.remove(&extent);
        if self.open.is_some_and(|open| open.extent == extent && open.next <= block.0) {
            self.close();
        }
        debug_assert!(
            u64::from(self.used[extent as usize]) < self.size(extent),
            "an extent has at most all its blocks in use"
        );
        debug_assert!(
            u64::from(self.used[extent as usize]) < self.size(extent),
            "an extent has at most all its blocks in use"
        );
        self.used[extent as usize] += 1;
    }

    /// A block is not in use any more.
    pub fn free_block(&mut self, block: BlockNumber) {
        let extent = self.of(block.0);
        debug_assert!(
            !self.free.contains(&extent) && !self.unused.contains(&extent),
            "an extent with a used block is not free"
        );
        debug_assert!(self.used[extent as usize] > 0, "a block is freed once");
        debug_assert!(
            !self.free.contains(&extent) && !self.unused.contains(&extent),
            "an extent with a used block is not free"
        );
        debug_assert!(self.used[extent as usize] > 0, "a block is freed once");
        let used = &mut self.used[extent as usize];
        *used -= 1;
        if *used > 0 {
            return;
        }
        if self.open.is_some_and(|open| open.extent == extent) {
            self.close();
        }
        if planted::is(Bug::ExtentNotDiscarded) {
            self.free.insert(extent);
            self.allocatable += self.size(extent);
            return;
        }
        self.unused.insert(extent);
    }

    /// A block that is not in use was never written after it was allocated: if it was allocated
    /// last, it can be allocated again.
    pub fn give_back(&mut self, block: BlockNumber) {
        if let Some(open) = &mut self.open
            && open.next == block.0 + 1
            && open.extent == block.0 / self.len
        {
            open.next = block.0;
            self.allocatable += 1;
        }
    }

    /// Returns the next at most `most` blocks of the open extent, or of the lowest free one. The
    /// caller calls [`Extents::use_block`] for each.
    pub fn next_run(&mut self, most: u64) -> Option<(u64, u64)> {
        if self.allocatable == 0 || most == 0 {
            return None;
        }
        if self.left_open() == 0 {
            let extent = self.free.pop_first()?;
            debug_assert!(self.used[extent as usize] == 0, "a free extent has no used block");
            debug_assert!(self.used[extent as usize] == 0, "a free extent has no used block");
            self.open = Some(Open { extent, next: self.bounds(extent).0 });
        }
        let len = self.left_open().min(most);
        let open = self.open.as_mut()?;
        let first = open.next;
        open.next += len;
        self.allocatable -= len;
        Some((first, len))
    }

    /// Returns the blocks of the lowest extent that is to be discarded: the first, and the one
    /// behind the last.
    #[must_use]
    pub fn to_discard(&self) -> Option<(u64, u64)> {
        self.unused.first().map(|extent| self.bounds(*extent))
    }

    /// The extent that begins with this block was discarded.
    pub fn discarded(&mut self, first: u64) {
        let extent = self.of(first);
        if self.unused.remove(&extent) {
            debug_assert!(self.used[extent as usize] == 0, "no used block is discarded");
            debug_assert!(self.used[extent as usize] == 0, "no used block is discarded");
            self.free.insert(extent);
            self.allocatable += self.size(extent);
        }
    }

    /// Returns extents of which at most half is in use, those with the fewest blocks in use first.
    /// Without the first extent, which has the header, and without the open one.
    #[must_use]
    pub fn sparse(&self) -> Vec<u64> {
        let used = self.used.iter().copied().enumerate().map(|(extent, used)| (used, extent as u64));
        let is_open = |extent| self.open.is_some_and(|open| open.extent == extent);
        let is_sparse = |used: u32| used > 0 && u64::from(used) * 2 <= self.len;
        let mut sparse: Vec<(u32, u64)> =
            used.skip(1).filter(|(used, extent)| is_sparse(*used) && !is_open(*extent)).collect();
        sparse.sort_unstable();
        sparse.into_iter().map(|(_, extent)| extent).collect()
    }
}
