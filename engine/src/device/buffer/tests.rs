//! Unit tests of `buffer`.

use super::*;

#[test]
fn aligned_zeroed_and_rounded_up() {
    // Miri looks at every byte, and maps none.
    let most = if cfg!(miri) { 3 * SECTOR_BYTES } else { MAPPED_FROM_BYTES };
    let huge = if cfg!(miri) { most } else { HUGE_PAGES_FROM_BYTES };
    for len in [5000, most - 1, most, 2 * most + 1, huge] {
        let mut buffer = AlignedBuffer::zeroed(len);
        assert_eq!(buffer.len(), len.next_multiple_of(SECTOR_BYTES));
        assert_eq!(buffer.as_ptr() as usize % SECTOR_BYTES, 0);
        assert!(buffer.iter().all(|b| *b == 0));
        buffer.fill(1);
        assert!(buffer.iter().all(|b| *b == 1));
    }
}
