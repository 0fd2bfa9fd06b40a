//! Makes the processor fetch bytes before they are needed.
//!
//! Redo visits log bytes in the order of their keys, which is random in memory. Each visit would
//! wait for memory in turn; fetches requested ahead run side by side.

/// Bytes that the processor fetches together.
const LINE_BYTES: usize = 64;
/// Lines requested at a time, at most: a processor keeps about a dozen fetches in flight.
const LINES_MAX: usize = 4;

/// Makes the processor fetch `bytes`, or their first lines if there are many. Changes only speed.
#[inline]
pub fn prefetch(bytes: &[u8]) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for line in bytes.chunks(LINE_BYTES).take(LINES_MAX) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch has no effect on the program's state, and the address is inside a
        // slice.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (bytes, LINE_BYTES, LINES_MAX);
}
