//! A map of the file of pages: what each stretch of it is used for.

use super::block::BlockNumber;
use super::page_store::PageStore;
use super::yielding_lock::SLICE;

/// The blocks of a stretch of the file of pages, counted by their use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpaceCell {
    /// Blocks with page images that are in use, whole or in part.
    pub images: u64,
    /// Blocks with the mapping, the catalog, and the header of the file.
    pub other: u64,
    /// Blocks that only older checkpoints need: of readers, backups, or until the next checkpoint.
    pub held: u64,
    /// Free blocks.
    pub free: u64,
}

impl SpaceCell {
    /// Returns the number of blocks.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.images + self.other + self.held + self.free
    }
}

impl PageStore {
    /// Returns the file divided into at most `cells` stretches of equal length, and the length of a
    /// block. The blocks are looked at in slices, so writers are not held up.
    #[must_use]
    pub fn space_map(&self, cells: usize) -> (Vec<SpaceCell>, usize) {
        let blocks = self.state.lock().blocks.free.bitmap.blocks();
        let per_cell = blocks.div_ceil(cells.max(1) as u64).max(1);
        let mut map = vec![SpaceCell::default(); blocks.div_ceil(per_cell) as usize];
        let mut next = 0;
        while next < blocks {
            let state = self.state.lock();
            // The file may have been cut meanwhile.
            let end = blocks.min(next + SLICE as u64);
            let known = state.blocks.free.bitmap.blocks();
            for block in next..end {
                let number = BlockNumber(block);
                let (fills, cell) = (&state.blocks.free.fills, &mut map[(block / per_cell) as usize]);
                let count = match () {
                    () if block >= known || !state.blocks.free.bitmap.is_used(number) => &mut cell.free,
                    () if fills.is_held(number) => &mut cell.held,
                    () if fills.has_images(number) => &mut cell.images,
                    () => &mut cell.other,
                };
                *count += 1;
            }
            drop(state);
            self.state.yield_to_waiters();
            next = end;
        }
        (map, self.file.page_bytes)
    }
}
