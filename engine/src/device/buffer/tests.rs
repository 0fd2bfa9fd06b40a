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

#[test]
fn padding_is_zero_whatever_was_there_before() {
    let mut buffer = AlignedBuffer::zeroed(2 * SECTOR_BYTES);
    // Ends of what is written, and of the block; the second block carries another one behind it.
    for (end, to, carried) in [
        (8000, 2 * SECTOR_BYTES, 0),
        (100, SECTOR_BYTES, 50),
        (30, SECTOR_BYTES, 0),
        (90, 2 * SECTOR_BYTES, 0),
    ] {
        buffer[..end].fill(7);
        buffer.pad(end, to);
        assert!(buffer[..end].iter().all(|byte| *byte == 7) && buffer[end..to].iter().all(|byte| *byte == 0));
        if carried > 0 {
            buffer[to..to + carried].fill(9);
            buffer.wrote_up_to(to + carried);
        }
    }
}
