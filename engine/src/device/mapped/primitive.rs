//! How a cache line is written back: the processor's instructions, found at run time.
//!
//! | primitive | a store is | then |
//! |---|---|---|
//! | CLWB | a store and CLWB of its lines | SFENCE |
//! | CLFLUSHOPT | a store and CLFLUSHOPT of its lines: they leave the cache, and the next store to the same line misses it | SFENCE |
//! | non-temporal | MOVNTI, past the cache | SFENCE |
//! | CLFLUSH | a store and CLFLUSH of its lines, each ordered after the one before | SFENCE |
//! | none, durable caches | a store | nothing on x86-64, whose stores reach the cache in their order; a fence elsewhere |
//! | none, unknown | a store | a fence: a processor without any of these |
//!
//! They are tried in this order, which is from fast to slow for small records: consecutive records
//! share a line, which CLWB leaves in the cache, and which the others fetch again.

use crate::base::settings::{MemoryCache, MemoryStore};
use crate::base::{Error, ErrorKind, Location, Result};
use std::fmt;

/// A cache line: the unit of write-back.
pub const LINE_BYTES: usize = 64;

/// See the module's text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Primitive {
    /// Lines are written back, or passed by, in this way.
    Store(MemoryStore),
    /// Caches are durable: nothing is written back.
    DurableCache,
    /// This processor cannot write a line back, as far as this build knows.
    Unknown,
}

impl fmt::Display for Primitive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Primitive::Store(store) => write!(f, "{store} and fence"),
            Primitive::DurableCache if imp::STORES_IN_ORDER => f.write_str("durable caches, no fence"),
            Primitive::DurableCache => f.write_str("durable caches, fence only"),
            Primitive::Unknown => f.write_str("no write-back on this processor, fence only"),
        }
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Primitive {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The order in which they are tried.
const BEST_FIRST: [MemoryStore; 4] =
    [MemoryStore::Clwb, MemoryStore::ClflushOpt, MemoryStore::NonTemporal, MemoryStore::Clflush];

/// Those that this processor has, the best first.
#[must_use]
pub fn available() -> Vec<MemoryStore> {
    BEST_FIRST.into_iter().filter(|store| imp::has(*store)).collect()
}

impl Primitive {
    /// What to use.
    ///
    /// # Errors
    /// `InvalidArgument` if what is wanted is not there, or contradicts durable caches.
    pub(super) fn choose(cache: MemoryCache, wanted: Option<MemoryStore>) -> Result<Primitive> {
        let refuse = |kind, what: String| Err(Error::new(kind, what).at(Location::Setting("memory_store")));
        let available = available();
        match (cache, wanted) {
            (MemoryCache::Durable, Some(wanted)) => refuse(
                ErrorKind::InvalidArgument,
                format!("memory_cache = durable writes nothing back, so {wanted} would have no effect"),
            ),
            (MemoryCache::Durable, None) => Ok(Primitive::DurableCache),
            (MemoryCache::Volatile, Some(wanted)) if !available.contains(&wanted) => {
                let names: Vec<_> = available.iter().map(|store| store.name()).collect();
                let what =
                    format!("this processor has no {wanted}; it has {}", one_or_none(&names.join(", ")));
                refuse(ErrorKind::Unsupported, what)
            }
            (MemoryCache::Volatile, Some(wanted)) => Ok(Primitive::Store(wanted)),
            (MemoryCache::Volatile, None) => {
                Ok(available.first().map_or(Primitive::Unknown, |best| Primitive::Store(*best)))
            }
        }
    }

    /// Copies words to `to` and starts the write-back of their lines.
    ///
    /// # Safety
    /// `to` is 8-aligned and valid for writes of `bytes.len()`, a multiple of 8, and no other
    /// thread writes there now.
    #[inline]
    pub(super) unsafe fn store(self, to: *mut u8, bytes: &[u8]) {
        let words = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes")));
        if self == Primitive::Store(MemoryStore::NonTemporal) {
            for (i, word) in words.enumerate() {
                // SAFETY: inside what the caller vouches for, and aligned like it.
                unsafe { imp::store_past_cache(to.cast::<u64>().add(i), word) };
            }
            return;
        }
        for (i, word) in words.enumerate() {
            // SAFETY: as above. Volatile: one store for each word, neither split nor left out.
            unsafe { to.cast::<u64>().add(i).write_volatile(word) };
        }
        // SAFETY: as above.
        unsafe { self.write_back(to, bytes.len()) };
    }

    /// Starts the write-back of the lines of a range, whichever thread stored to them.
    ///
    /// # Safety
    /// The range is mapped.
    #[inline]
    pub(super) unsafe fn write_back(self, start: *const u8, len: usize) {
        let Primitive::Store(how) = self else { return };
        let first = start as usize & !(LINE_BYTES - 1);
        for line in (first..start as usize + len).step_by(LINE_BYTES) {
            // SAFETY: the line holds a byte of the range, so it is mapped. Writing a line back
            // changes no bytes.
            unsafe { imp::write_back_line(how, line as *const u8) };
        }
    }

    /// Returns whether a store is durable as soon as a later store of the same thread is visible to
    /// other threads, so that no fence is needed.
    #[inline]
    pub(super) fn is_durable_when_stored(self) -> bool {
        self == Primitive::DurableCache && imp::STORES_IN_ORDER
    }

    /// Whatever this thread started before is done when this returns.
    #[inline]
    pub(super) fn fence(self) {
        if self.is_durable_when_stored() {
            // The compiler must not move a store that acknowledges before the ones it acknowledges.
            std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
        } else {
            imp::fence();
        }
    }
}

fn one_or_none(names: &str) -> &str {
    if names.is_empty() { "none that this build knows" } else { names }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod imp {
    //! x86-64. The fence orders stores as any other fence does, and waits for write-backs.
    use crate::base::settings::MemoryStore;
    use std::arch::asm;
    use std::arch::x86_64::{__cpuid_count, __get_cpuid_max, _mm_sfence, _mm_stream_si64};
    use std::sync::OnceLock;

    /// Stores become visible in the order of the program (TSO).
    pub(super) const STORES_IN_ORDER: bool = true;

    const LEAF_FEATURES: u32 = 1;
    const LEAF_EXTENDED_FEATURES: u32 = 7;
    /// Of leaf 1, EDX.
    const CLFLUSH: u32 = 1 << 19;
    /// Of leaf 7, EBX.
    const CLFLUSHOPT: u32 = 1 << 23;
    const CLWB: u32 = 1 << 24;

    /// EDX of leaf 1 and EBX of leaf 7. Asking takes long where a hypervisor answers.
    #[allow(unused_unsafe)] // The functions are safe from Rust 1.94 on.
    fn features() -> (u32, u32) {
        static FEATURES: OnceLock<(u32, u32)> = OnceLock::new();
        *FEATURES.get_or_init(|| {
            // SAFETY: every x86-64 has the instruction.
            let most = unsafe { __get_cpuid_max(0).0 };
            // SAFETY: as above; the leaf exists.
            let ask = |leaf| (leaf <= most).then(|| unsafe { __cpuid_count(leaf, 0) });
            (
                ask(LEAF_FEATURES).map_or(0, |found| found.edx),
                ask(LEAF_EXTENDED_FEATURES).map_or(0, |f| f.ebx),
            )
        })
    }

    pub(super) fn has(store: MemoryStore) -> bool {
        let (basic, extended) = features();
        match store {
            MemoryStore::Clwb => extended & CLWB != 0,
            MemoryStore::ClflushOpt => extended & CLFLUSHOPT != 0,
            MemoryStore::Clflush => basic & CLFLUSH != 0,
            // SSE2, which every x86-64 has.
            MemoryStore::NonTemporal => true,
        }
    }

    /// # Safety
    /// `to` is aligned and valid for a write.
    #[inline]
    pub(super) unsafe fn store_past_cache(to: *mut u64, word: u64) {
        // SAFETY: the caller's; SSE2 is always there.
        unsafe { _mm_stream_si64(to.cast::<i64>(), word.cast_signed()) };
    }

    /// # Safety
    /// The line is mapped; `how` is one that `has` found.
    #[inline]
    pub(super) unsafe fn write_back_line(how: MemoryStore, line: *const u8) {
        // SAFETY: the caller's. Not marked as reading only: stores before it are not to be moved
        // behind it.
        unsafe {
            match how {
                MemoryStore::Clwb => asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)),
                MemoryStore::ClflushOpt => {
                    asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags));
                }
                MemoryStore::Clflush => asm!("clflush [{}]", in(reg) line, options(nostack, preserves_flags)),
                // A line that is in the cache all the same, as after a kill.
                MemoryStore::NonTemporal => {
                    asm!("clflush [{}]", in(reg) line, options(nostack, preserves_flags));
                }
            }
        }
    }

    #[inline]
    pub(super) fn fence() {
        // SAFETY: always there.
        unsafe { _mm_sfence() };
        // For the compiler, and for loads.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }
}

#[cfg(any(not(target_arch = "x86_64"), miri))]
mod imp {
    //! Processors whose write-back instructions this build does not know.
    use crate::base::settings::MemoryStore;

    pub(super) const STORES_IN_ORDER: bool = false;

    pub(super) fn has(_store: MemoryStore) -> bool {
        false
    }

    /// # Safety
    /// `to` is aligned and valid for a write.
    pub(super) unsafe fn store_past_cache(to: *mut u64, word: u64) {
        // SAFETY: the caller's.
        unsafe { to.write_volatile(word) };
    }

    /// # Safety
    /// None: does nothing.
    pub(super) unsafe fn write_back_line(_how: MemoryStore, _line: *const u8) {}

    pub(super) fn fence() {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests;
