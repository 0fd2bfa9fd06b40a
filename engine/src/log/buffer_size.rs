//! How long a log's buffers are: as long as it takes, and no longer.
//!
//! | sign | what follows |
//! |---|---|
//! | a block is half as long as a buffer, or longer | the next buffers are twice as long |
//! | a record is longer than a buffer | the next one is long enough |
//! | [`CALM`] blocks in a row are an eighth as long as a buffer, or shorter | the next ones are half as long |
//!
//! While the device is slow more is appended between two writes, so blocks become longer, and so do buffers, before anybody has to wait for
//! one. A fast device gets short buffers, which stay in the processor's caches. A buffer of another length is given up when it comes back.

use crate::device::SECTOR_BYTES;

/// Blocks that say that less would do.
const CALM: u32 = if cfg!(feature = "simulation") { 8 } else { 1024 };
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
    /// Up to `most` bytes, and at least 64 KiB and two blocks of `flush_unit`, unless that is more. Whole sectors, as buffers are, or else
    /// none that comes back would have the length that is looked for.
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

    /// Of the next buffer.
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
    }

    fn double(&mut self) {
        self.bytes = (2 * self.bytes).min(self.most);
    }
}

#[cfg(all(test, not(feature = "simulation")))]
mod tests {
    use super::*;

    #[test]
    fn it_grows_with_blocks_and_shrinks_in_calm_between_its_bounds() {
        let mut size = BufferSize::up_to(1 << 20, 16 << 10);
        assert_eq!(size.bytes(), 64 << 10);
        (0..100).for_each(|_| size.sealed(24 << 10));
        assert_eq!(size.bytes(), 64 << 10, "it fits well");
        (0..100).for_each(|_| size.sealed(40 << 10));
        assert_eq!(size.bytes(), 128 << 10, "once is enough for such blocks");
        (0..10).for_each(|_| size.sealed(size.bytes()));
        assert_eq!(size.bytes(), 1 << 20);
        (0..20 * CALM).for_each(|_| size.sealed(8 << 10));
        assert_eq!(size.bytes(), 64 << 10);
        size.make_fit(300 << 10);
        assert_eq!(size.bytes(), 512 << 10);
        for n in 0..20 * CALM {
            size.sealed(if n % 1000 == 0 { 200 << 10 } else { 4096 });
        }
        assert_eq!(size.bytes(), 512 << 10, "a long block comes now and then");
    }

    /// A buffer has whole sectors: one of another length than is looked for would be given up when it comes back.
    #[test]
    fn it_is_always_as_long_as_a_buffer_can_be() {
        for (most, unit) in [(1_000_000, 300_000), (100_000, 4096), (70_000, 5000), (1 << 20, 100_000)] {
            let mut size = BufferSize::up_to(most, unit);
            for n in 0..4 * CALM as usize {
                size.sealed(if n % 3 == 0 && n < 30 { size.bytes() } else { 100 });
                assert!(size.bytes().is_multiple_of(SECTOR_BYTES), "{size:?}");
                assert!(size.bytes() <= size.most(), "{size:?}");
            }
            assert!(size.most() >= most);
        }
        assert!(BufferSize::fixed(70_001).bytes().is_multiple_of(SECTOR_BYTES));
    }

    #[test]
    fn bounds_that_meet_leave_it_alone() {
        let most = [64 << 10, 512 << 10, 68 << 10];
        let sizes = [
            BufferSize::fixed(most[0]),
            BufferSize::up_to(most[1], 384 << 10),
            BufferSize::up_to(most[2], 4096),
        ];
        for (mut size, most) in sizes.into_iter().zip(most) {
            (0..3 * CALM).for_each(|_| size.sealed(4096));
            (0..3).for_each(|_| size.sealed(most));
            assert_eq!(size.bytes(), most, "{size:?}");
        }
    }
}
