//! Arrays that may be far larger than memory: reserved address space, filled by the operating system on first touch.
//!
//! Under Miri and the model checkers, which have no `mmap` or whose atomics are more than a word, a region is an array on
//! the heap instead, and small.
//!
//! **Huge pages.** With 4 KiB translations a pool of gigabytes misses the processor's translation cache (some 6 MiB of
//! reach) on nearly every page it descends through: tens of nanoseconds each. [`Region::advise_huge`] asks for 2 MiB
//! translations. The price is that memory is then taken in steps of 2 MiB, and that the first touch of a step clears 2 MiB
//! (some 100 us). It must not be asked for where pages are used sparsely, or resident memory could exceed what they count.

use crate::base::Result;
#[cfg(not(any(loom, miri, feature = "shuttle")))]
use crate::base::{Error, ErrorKind};
use std::ops::Deref;

/// Types of which a stretch of zero bytes is an array of values equal to `T::default()`.
///
/// # Safety
/// All-zero bytes are a valid value, and dropping a value does nothing.
pub(super) unsafe trait ZeroIsDefault: Default {}

// SAFETY: an integer in memory. (Under a model checker it is more than that, but there no zeroed memory is used.)
unsafe impl ZeroIsDefault for crate::sync::atomic::AtomicU64 {}

/// A fixed-size array of `T`, all of them zero at first.
#[cfg(not(any(loom, miri, feature = "shuttle")))]
pub(super) struct Region<T> {
    start: std::ptr::NonNull<T>,
    len: usize,
    /// What `mmap` returned: `start` is aligned up from it.
    mapping: *mut std::ffi::c_void,
    mapping_bytes: usize,
}

#[cfg(not(any(loom, miri, feature = "shuttle")))]
// SAFETY: the region owns its memory alone, like a `Box<[T]>`.
unsafe impl<T: Send> Send for Region<T> {}
#[cfg(not(any(loom, miri, feature = "shuttle")))]
// SAFETY: shared access to the region gives only shared access to its elements.
unsafe impl<T: Sync> Sync for Region<T> {}

#[cfg(not(any(loom, miri, feature = "shuttle")))]
const HUGE_PAGE_BYTES: usize = 2 << 20;

#[cfg(not(any(loom, miri, feature = "shuttle")))]
impl<T: ZeroIsDefault> Region<T> {
    /// Reserves address space for `len` values, at a multiple of the size of a huge page.
    pub(super) fn new(len: usize) -> Result<Self> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        let too_large = || Error::new(ErrorKind::OutOfMemory, "the address space is too small");
        let bytes = len.checked_mul(size_of::<T>()).ok_or_else(too_large)?;
        let mapping_bytes = bytes.checked_add(HUGE_PAGE_BYTES).ok_or_else(too_large)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the system's choice overlaps nothing.
        let mapping =
            unsafe { mmap_anonymous(std::ptr::null_mut(), mapping_bytes, access, flags) }.map_err(|e| {
                Error::io("cannot reserve address space", e.into()).with_kind(ErrorKind::OutOfMemory)
            })?;
        let padding = mapping.align_offset(HUGE_PAGE_BYTES);
        // SAFETY: the padding is less than one huge page, which the mapping has more than `bytes`.
        let start = unsafe { mapping.cast::<u8>().add(padding) }.cast::<T>();
        let start = std::ptr::NonNull::new(start).expect("mmap does not return null");
        Ok(Region { start, len, mapping, mapping_bytes })
    }

    /// Asks for huge pages behind the first `len` values. Advice only: failure changes nothing but speed.
    pub(super) fn advise_huge(&self, len: usize, wanted: bool) {
        use rustix::mm::{Advice, madvise};
        let bytes = (len.min(self.len) * size_of::<T>()) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
        let advice = if wanted { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
        // SAFETY: inside the mapping, and neither advice changes its content.
        let done = unsafe { madvise(self.start.as_ptr().cast(), bytes, advice) };
        if let Err(error) = done {
            tracing::debug!(%error, "no advice on huge pages");
        }
    }

    /// Gives the memory behind a range of values back to the system, if it is made of whole pages of the system: the values
    /// become zero. The caller has nothing to keep there; concurrent readers see old values or zeros, and they see zeros
    /// only after whatever the caller did before (the system interrupts every processor that has the memory mapped).
    pub(super) fn discard(&self, range: std::ops::Range<usize>) {
        use rustix::mm::{Advice, madvise};
        let values = &self[range];
        let (start, bytes) = (values.as_ptr().cast_mut().cast(), size_of_val(values));
        // The system gives back whole pages of its own, rounding outwards: values beside the range would be lost.
        let unit = rustix::param::page_size();
        if !values.as_ptr().addr().is_multiple_of(unit) || !bytes.is_multiple_of(unit) {
            return;
        }
        // SAFETY: inside the mapping; zero bytes are valid values of `T`, and every access to them is atomic or excluded
        // by the latch of the page.
        let done = unsafe { madvise(start, bytes, Advice::LinuxDontNeed) };
        if let Err(error) = done {
            tracing::debug!(%error, "memory not given back");
        }
    }
}

#[cfg(not(any(loom, miri, feature = "shuttle")))]
impl<T> Deref for Region<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `start` is aligned and points to `len` values inside the mapping, which lives as long as `self`; zero
        // bytes are valid values (`ZeroIsDefault`), and changes go through atomics.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

#[cfg(not(any(loom, miri, feature = "shuttle")))]
impl<T> Drop for Region<T> {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped in `new`; `&mut self` means that no reference into it is left.
        let done = unsafe { rustix::mm::munmap(self.mapping, self.mapping_bytes) };
        debug_assert!(done.is_ok(), "the mapping is ours");
    }
}

/// A fixed-size array of `T`, all of them zero at first.
#[cfg(any(loom, miri, feature = "shuttle"))]
pub(super) struct Region<T> {
    values: Box<[T]>,
}

#[cfg(any(loom, miri, feature = "shuttle"))]
impl<T: ZeroIsDefault> Region<T> {
    pub(super) fn new(len: usize) -> Result<Self> {
        Ok(Region { values: (0..len).map(|_| T::default()).collect() })
    }

    pub(super) fn advise_huge(&self, _len: usize, _wanted: bool) {}

    pub(super) fn discard(&self, _range: std::ops::Range<usize>) {}
}

#[cfg(any(loom, miri, feature = "shuttle"))]
impl<T> Deref for Region<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.values
    }
}
