//! The bytes of the file of pages that were written and not discarded, on a device that stores
//! whole extents: writing to them again is a mistake of the engine.

use super::device::SECTOR;
use std::collections::BTreeSet;
use std::ops::Range;

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct WrittenPages {
    /// Sectors by their number.
    sectors: BTreeSet<u64>,
    /// Writes to sectors that were written before.
    pub(super) overwrites: u64,
}

impl WrittenPages {
    /// Adds bytes; returns false if some were written already.
    pub(super) fn add(&mut self, bytes: Range<u64>) -> bool {
        let sectors = bytes.start / SECTOR as u64..bytes.end.div_ceil(SECTOR as u64);
        let is_new = self.sectors.range(sectors.clone()).next().is_none();
        self.overwrites += u64::from(!is_new);
        self.sectors.extend(sectors);
        is_new
    }

    /// Forgets bytes: they were discarded or cut off.
    pub(super) fn forget(&mut self, bytes: Range<u64>) {
        let (start, end) = (bytes.start / SECTOR as u64, bytes.end.div_ceil(SECTOR as u64));
        let mut behind = self.sectors.split_off(&start);
        self.sectors.append(&mut behind.split_off(&end));
    }
}
