//! Memory whose address is a multiple of the sector size, as direct I/O wants it.
//!
//! Larger buffers are mapped: what is not needed any more goes back to the system at once, which an
//! allocator does when it pleases, and what is never touched takes no memory. The largest are
//! mapped in huge pages where the system has them: the system clears them in one step for 2 MiB,
//! and reading them at random misses the processor's translation cache less.

use crate::base::{Account, Charge};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

/// Writes are padded to, and buffers aligned to, this many bytes: the physical sector of the disks
/// we know (rule: a smaller unit would make the drive rewrite durable neighbours).
pub const SECTOR_BYTES: usize = 4096;

/// A zero-filled byte buffer, aligned to [`SECTOR_BYTES`], of a length that is a multiple of it.
pub struct AlignedBuffer {
    start: NonNull<u8>,
    len: usize,
    /// From here on all bytes are zero, if [`AlignedBuffer::pad`] is used.
    used: usize,
    /// The charge for the buffer, if it is charged.
    charge: Option<Charge>,
}

/// From this length on a buffer is mapped.
const MAPPED_FROM_BYTES: usize = 128 << 10;
/// From this length on huge pages are worth their clearing.
const HUGE_PAGES_FROM_BYTES: usize = 4 << 20;

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
        let start = if Self::is_mapped(len) {
            Self::map(len)
        } else {
            // SAFETY: the layout's size is not zero.
            NonNull::new(unsafe { alloc_zeroed(layout) })
        };
        let Some(start) = start else { handle_alloc_error(layout) };
        AlignedBuffer { start, len, used: 0, charge: None }
    }

    /// As [`AlignedBuffer::zeroed`], charged to `account` as long as the buffer lives.
    #[must_use]
    pub fn charged(len: usize, account: &Arc<Account>) -> AlignedBuffer {
        let mut buffer = AlignedBuffer::zeroed(len);
        buffer.charge = Some(account.charge(buffer.len as u64));
        buffer
    }

    /// For a buffer that is filled from its beginning, written, and filled again: fills bytes
    /// `end..to` with zeros, as far as an earlier use left anything there. The caller has written
    /// `..end` since, and notes other writes with [`AlignedBuffer::wrote_up_to`].
    pub fn pad(&mut self, end: usize, to: usize) {
        debug_assert!(end <= to && to <= self.len, "padding lies behind the bytes, in the buffer");
        let used = self.used;
        if end < used {
            self[end..used.min(to)].fill(0);
        }
        debug_assert!(self[end..to].iter().all(|byte| *byte == 0), "a write was not noted");
        self.used = if used > to { used } else { end };
    }

    /// Notes that bytes up to `end` were written.
    pub fn wrote_up_to(&mut self, end: usize) {
        debug_assert!(end <= self.len, "a write lies in its buffer");
        self.used = self.used.max(end);
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, SECTOR_BYTES).expect("a length that fits in memory and a power of two")
    }

    fn is_mapped(len: usize) -> bool {
        // Miri has no `mmap`; where pages are smaller than sectors a mapping need not be aligned.
        !cfg!(miri) && len >= MAPPED_FROM_BYTES && rustix::param::page_size() >= SECTOR_BYTES
    }

    /// `len` zero bytes of the system's; `None` if it has none.
    fn map(len: usize) -> Option<NonNull<u8>> {
        use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new anonymous mapping at an address of the system's choice overlaps nothing.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), len, access, MapFlags::PRIVATE) }.ok()?;
        if len >= HUGE_PAGES_FROM_BYTES {
            // SAFETY: the mapping that was just made; the advice does not change its content.
            // Without it all is only slower.
            let _ = unsafe { madvise(start, len, Advice::LinuxHugepage) };
        }
        NonNull::new(start.cast())
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
        if Self::is_mapped(self.len) {
            // SAFETY: exactly what was mapped in `map`; `&mut self` means that no reference into it
            // is left.
            let done = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
            debug_assert!(done.is_ok(), "the mapping is ours");
        } else {
            // SAFETY: allocated in `zeroed` with the same layout.
            unsafe { dealloc(self.start.as_ptr(), Self::layout(self.len)) };
        }
    }
}

impl std::fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuffer({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests;
