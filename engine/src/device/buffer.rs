//! Memory whose address is a multiple of the sector size, as direct I/O wants it.

use super::SECTOR_BYTES;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// A zero-filled byte buffer, aligned to [`SECTOR_BYTES`], of a length that is a multiple of it.
pub struct AlignedBuffer {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the buffer owns its memory alone, like a `Vec<u8>`.
unsafe impl Send for AlignedBuffer {}
// SAFETY: shared access only reads.
unsafe impl Sync for AlignedBuffer {}

impl AlignedBuffer {
    /// A buffer of `len` bytes, rounded up to a whole number of sectors (at least one).
    #[must_use]
    pub fn zeroed(len: usize) -> AlignedBuffer {
        let len = len.next_multiple_of(SECTOR_BYTES).max(SECTOR_BYTES);
        let layout = Self::layout(len);
        // SAFETY: the layout's size is not zero.
        let Some(start) = NonNull::new(unsafe { alloc_zeroed(layout) }) else { handle_alloc_error(layout) };
        AlignedBuffer { start, len }
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, SECTOR_BYTES).expect("a length that fits in memory and a power of two")
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` points to `len` initialised bytes that this value owns.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` excludes every other access.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with the same layout.
        unsafe { dealloc(self.start.as_ptr(), Self::layout(self.len)) };
    }
}

impl std::fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuffer({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_zeroed_and_rounded_up() {
        let buffer = AlignedBuffer::zeroed(5000);
        assert_eq!(buffer.len(), 2 * SECTOR_BYTES);
        assert_eq!(buffer.as_ptr() as usize % SECTOR_BYTES, 0);
        assert!(buffer.iter().all(|b| *b == 0));
    }
}
