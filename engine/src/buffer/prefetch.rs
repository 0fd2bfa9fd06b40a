//! Having the processor fetch bytes before they are needed.
//!
//! Redo visits log bytes in the order of their keys, which is random in memory: each visit would wait for memory, one after
//! the other. Fetches that were asked for go on side by side.

/// Bytes that the processor fetches together.
const LINE_BYTES: usize = 64;
/// No more lines than this at a time: a processor keeps a dozen fetches or so in flight.
const LINES_MAX: usize = 4;

/// Has the processor fetch `bytes` (the first lines of them, if there are many). Changes nothing but speed.
#[inline]
pub fn prefetch(bytes: &[u8]) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for line in bytes.chunks(LINE_BYTES).take(LINES_MAX) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch has no effect on the program's state, and the address is inside a slice.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (bytes, LINE_BYTES, LINES_MAX);
}
