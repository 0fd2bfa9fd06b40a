//! Arrays that may be far larger than memory: reserved address space, filled by the operating
//! system on first touch.
//!
//! Under Miri and the model checkers, which have no `mmap` or whose atomics are more than a word, a
//! region is an array on the heap instead, and small.
//!
//! **Huge pages.** With 4 KiB translations a pool of gigabytes misses the processor's translation
//! cache (some 6 MiB of reach) on nearly every page that a descent visits: tens of nanoseconds
//! each. [`Region::advise_huge`] asks for 2 MiB translations. The price is that memory is then
//! taken in steps of 2 MiB, and that the first touch of a step clears 2 MiB (some 100 us). It must
//! not be requested where pages are used sparsely: resident memory could exceed what the budget
//! counts.

use crate::base::Result;
#[cfg(not(any(loom, miri, feature = "shuttle")))]
use crate::base::{Error, ErrorKind};
use std::ops::Deref;
#[cfg(not(any(loom, miri, feature = "shuttle")))]
use std::os::fd::AsRawFd;

/// A type whose values equal to `T::default()` are all zero bytes.
///
/// # Safety
/// All-zero bytes must be a valid value, and dropping a value must do nothing.
pub(super) unsafe trait ZeroIsDefault: Default {}

// SAFETY: an integer in memory. (Under a model checker it is more than that, but there no zeroed
// memory is used.)
unsafe impl ZeroIsDefault for crate::sync::atomic::AtomicU64 {}

/// A fixed-size array of `T`, all of them zero at first.
#[cfg(not(any(loom, miri, feature = "shuttle")))]
pub(super) struct Region<T> {
    start: std::ptr::NonNull<T>,
    len: usize,
    /// The address that `mmap` returned; `start` is aligned up from it.
    mapping: *mut std::ffi::c_void,
    mapping_bytes: usize,
    /// Handle of this process, for advice on many stretches at once; `None` if the system does not
    /// support that.
    process: std::sync::OnceLock<Option<std::os::fd::OwnedFd>>,
}

#[cfg(not(any(loom, miri, feature = "shuttle")))]
// SAFETY: the region owns its memory alone, like a `Box<[T]>`.
unsafe impl<T: Send> Send for Region<T> {}
#[cfg(not(any(loom, miri, feature = "shuttle")))]
// SAFETY: shared access to the region gives only shared access to its elements.
unsafe impl<T: Sync> Sync for Region<T> {}

#[cfg(not(any(loom, miri, feature = "shuttle")))]
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Stretches that the system takes with one call, at most.
#[cfg(not(any(loom, miri, feature = "shuttle")))]
const STRETCHES_MAX: usize = 1024;

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
        debug_assert!(padding < HUGE_PAGE_BYTES, "the padding is inside the mapping");
        // SAFETY: the padding is less than one huge page, which the mapping has more than `bytes`.
        let start = unsafe { mapping.cast::<u8>().add(padding) }.cast::<T>();
        let start = std::ptr::NonNull::new(start).expect("mmap does not return null");
        Ok(Region { start, len, mapping, mapping_bytes, process: std::sync::OnceLock::new() })
    }

    /// Asks for huge pages for the first `len` values, or for none. Advice only: failure changes
    /// nothing but speed.
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

    /// Gives the memory of those ranges of values back to the system that consist of whole pages of
    /// the system; the values become zero. The caller needs none of them. Concurrent readers see
    /// old values or zeros, and zeros only after all earlier stores of the caller, because the
    /// system interrupts every processor that has the memory mapped. That costs some 18 us, once
    /// for all ranges where the system can do that (Linux 6.16).
    pub(super) fn discard(&self, ranges: impl Iterator<Item = std::ops::Range<usize>>) {
        // The system frees whole pages of its own and rounds outwards, so values beside the range
        // would be lost.
        let unit = rustix::param::page_size();
        let stretches = ranges.filter_map(|range| {
            let values = &self[range];
            let (start, bytes) = (values.as_ptr(), size_of_val(values));
            let is_whole = start.addr().is_multiple_of(unit) && bytes.is_multiple_of(unit);
            is_whole.then(|| libc::iovec { iov_base: start.cast_mut().cast(), iov_len: bytes })
        });
        let mut stretches: Vec<libc::iovec> = stretches.collect();
        while !stretches.is_empty() {
            let given_back = self.give_back_many(&stretches[..stretches.len().min(STRETCHES_MAX)]);
            for stretch in stretches.drain(..given_back.max(1)).skip(given_back) {
                give_back(stretch);
            }
        }
    }

    /// Gives back many stretches with one call. Returns how many, from the first on; 0 if the
    /// system cannot do that.
    fn give_back_many(&self, stretches: &[libc::iovec]) -> usize {
        use crate::device::descriptors::take_standard;
        use rustix::process::{PidfdFlags, getpid, pidfd_open};
        if stretches.len() < 2 {
            return 0;
        }
        let process = self.process.get_or_init(|| {
            take_standard();
            pidfd_open(getpid(), PidfdFlags::empty()).ok()
        });
        let Some(process) = process else { return 0 };
        let (list, count) = (stretches.as_ptr(), stretches.len());
        let advice = libc::MADV_DONTNEED;
        // SAFETY: the list is as long as said, and lives during the call; for the rest see
        // `give_back`.
        let advised = unsafe {
            libc::syscall(libc::SYS_process_madvise, process.as_raw_fd(), list, count, advice, 0_u32)
        };
        let mut left = usize::try_from(advised).unwrap_or(0);
        let is_done = |stretch: &&libc::iovec| {
            let done = stretch.iov_len <= left;
            left = left.saturating_sub(stretch.iov_len);
            done
        };
        stretches.iter().take_while(is_done).count()
    }
}

/// Gives back the memory of one stretch of whole pages inside a region.
#[cfg(not(any(loom, miri, feature = "shuttle")))]
fn give_back(stretch: libc::iovec) {
    use rustix::mm::{Advice, madvise};
    // SAFETY: inside the mapping; zero bytes are valid values, and every access to them is atomic
    // or excluded by the latch of the page.
    let done = unsafe { madvise(stretch.iov_base, stretch.iov_len, Advice::LinuxDontNeed) };
    if let Err(error) = done {
        tracing::debug!(%error, "memory not given back");
    }
}

#[cfg(not(any(loom, miri, feature = "shuttle")))]
impl<T> Deref for Region<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `start` is aligned and points to `len` values inside the mapping, which lives as
        // long as `self`; zero bytes are valid values (`ZeroIsDefault`), and changes go through
        // atomics.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

#[cfg(not(any(loom, miri, feature = "shuttle")))]
impl<T> Drop for Region<T> {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped in `new`; `&mut self` means that no reference into it is
        // left.
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

    pub(super) fn discard(&self, _ranges: impl Iterator<Item = std::ops::Range<usize>>) {}
}

#[cfg(any(loom, miri, feature = "shuttle"))]
impl<T> Deref for Region<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.values
    }
}
