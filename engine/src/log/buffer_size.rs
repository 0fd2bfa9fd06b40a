//! How long a log's buffers are: as long as it takes, and no longer.
//!
//! | sign | what follows |
//! |---|---|
//! | a block is half as long as a buffer, or longer | the next buffers are twice as long |
//! | a record is longer than a buffer | the next one is long enough |
//! | [`CALM`] blocks in a row are at most an eighth as long as a buffer | they are half as long |
//!
//! While the device is slow more is appended between two writes, so blocks become longer, and so do
//! buffers, before a committer has to wait for one. A fast device gets short buffers, which stay in
//! the processor's caches. A buffer of another length is given up when it comes back.

use crate::base::scale::SCALE;
use crate::device::SECTOR_BYTES;

/// Blocks that say that less would do.
const CALM: u32 = SCALE.calm_blocks;
const LEAST: usize = 64 << 10;

/// The length of a log's next buffer, between two bounds.
#[derive(Clone, Copy, Debug)]
pub struct BufferSize {
    bytes: usize,
    least: usize,
    most: usize,
    /// Blocks in a row that a shorter buffer could have held.
    calm: u32,
}

impl BufferSize {
    /// Up to `most` bytes, and at least 64 KiB and two blocks of `flush_unit`, or `most` if that is
    /// less. Whole sectors, as buffers are, or else none that comes back would have the length that
    /// is looked for.
    #[must_use]
    pub fn up_to(most: usize, flush_unit: usize) -> BufferSize {
        let most = most.next_multiple_of(SECTOR_BYTES);
        let least = LEAST.max(2 * flush_unit).next_multiple_of(SECTOR_BYTES).min(most);
        BufferSize { bytes: least, least, most, calm: 0 }
    }

    /// Always the same: whole sectors.
    #[must_use]
    pub fn fixed(bytes: usize) -> BufferSize {
        let bytes = bytes.next_multiple_of(SECTOR_BYTES);
        BufferSize { bytes, least: bytes, most: bytes, calm: 0 }
    }

    /// Length of the next buffer.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The most that it becomes.
    #[must_use]
    pub fn most(&self) -> usize {
        self.most
    }

    /// A block of `len` bytes has to fit, which is no longer than the most.
    pub(super) fn make_fit(&mut self, len: usize) {
        debug_assert!(len <= self.most, "a longer record brings a buffer of its own");
        while self.bytes < len && self.bytes < self.most {
            self.double();
        }
    }

    /// A block of `len` bytes was sealed.
    pub(super) fn sealed(&mut self, len: usize) {
        if len >= self.bytes / 2 {
            self.double();
        }
        self.calm = if len > self.bytes / 8 { 0 } else { self.calm + 1 };
        if self.calm >= CALM {
            self.bytes = (self.bytes / 2 / SECTOR_BYTES * SECTOR_BYTES).max(self.least);
            self.calm = 0;
        }
        debug_assert!((self.least..=self.most).contains(&self.bytes), "the length is within its bounds");
    }

    fn double(&mut self) {
        self.bytes = (2 * self.bytes).min(self.most);
    }
}

#[cfg(all(test, not(feature = "simulation")))]
mod tests;
