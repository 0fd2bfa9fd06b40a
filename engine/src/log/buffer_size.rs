//! How long a log's buffers are: as long as it takes, and no longer.
//!
//! | sign | what follows |
//! |---|---|
//! | a record found no place: the buffer is full, and whoever writes the log is busy with those before | the next buffers are twice as long |
//! | a record is longer than a buffer | the next one is long enough |
//! | [`CALM`] blocks in a row: none longer than a quarter of a buffer, and every record found a place | the next ones are half as long |
//!
//! So a slow device gets few, long blocks, and a fast one short buffers that stay in the processor's caches. A buffer of another length
//! is given up when it comes back.

/// Blocks that say that less would do.
const CALM: u32 = 1024;
/// What a log begins with, if it may.
const FIRST: usize = 256 << 10;
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
    /// Up to `most` bytes, a whole number of sectors, and never less than two blocks of `flush_unit`, unless that is more.
    #[must_use]
    pub fn up_to(most: usize, flush_unit: usize) -> BufferSize {
        let least = LEAST.max(2 * flush_unit).min(most);
        BufferSize { bytes: FIRST.clamp(least, most), least, most, calm: 0 }
    }

    /// Always the same.
    #[must_use]
    pub fn fixed(bytes: usize) -> BufferSize {
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

    /// One was full before it could be written.
    pub(super) fn was_full(&mut self) {
        self.bytes = (2 * self.bytes).min(self.most);
        self.calm = 0;
    }

    /// A block of `len` bytes has to fit; it is no longer than the most.
    pub(super) fn make_fit(&mut self, len: usize) {
        while self.bytes < len && self.bytes < self.most {
            self.was_full();
        }
    }

    /// A block of `len` bytes was sealed.
    pub(super) fn sealed(&mut self, len: usize) {
        self.calm = if len > self.bytes / 4 { 0 } else { self.calm + 1 };
        if self.calm >= CALM {
            self.bytes = (self.bytes / 2 / 4096 * 4096).max(self.least);
            self.calm = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_with_need_and_shrinks_in_calm_between_its_bounds() {
        let mut size = BufferSize::up_to(1 << 20, 16 << 10);
        assert_eq!(size.bytes(), 256 << 10);
        (0..10).for_each(|_| size.was_full());
        assert_eq!(size.bytes(), 1 << 20);
        for _ in 0..20 * CALM {
            size.sealed(8 << 10);
            // It stays where one long block comes now and then.
            assert!(size.bytes() >= 64 << 10);
        }
        assert_eq!(size.bytes(), 64 << 10);
        size.make_fit(300 << 10);
        assert_eq!(size.bytes(), 512 << 10);
        for n in 0..20 * CALM {
            size.sealed(if n % 1000 == 0 { 200 << 10 } else { 4096 });
        }
        assert_eq!(size.bytes(), 512 << 10);
    }

    #[test]
    fn bounds_that_meet_leave_it_alone() {
        for mut size in [
            BufferSize::fixed(64 << 10),
            BufferSize::up_to(512 << 10, 384 << 10),
            BufferSize::up_to(68 << 10, 4096),
        ] {
            let before = size.bytes();
            (0..3 * CALM).for_each(|_| size.sealed(4096));
            size.was_full();
            assert!(size.bytes() <= size.most() && size.bytes() >= before.min(64 << 10), "{size:?}");
        }
    }
}
