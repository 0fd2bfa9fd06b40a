//! The size of log buffers follows the blocks that are sealed.

use super::*;

#[test]
fn it_grows_with_blocks_and_shrinks_in_calm_between_its_bounds() {
    let mut size = BufferSize::up_to(1 << 20, 16 << 10);
    assert_eq!(size.bytes(), 64 << 10);
    (0..100).for_each(|_| size.sealed(24 << 10));
    assert_eq!(size.bytes(), 64 << 10, "it fits well");
    (0..100).for_each(|_| size.sealed(40 << 10));
    assert_eq!(size.bytes(), 128 << 10, "once is enough for such blocks");
    (0..10).for_each(|_| size.sealed(size.bytes()));
    assert_eq!(size.bytes(), 1 << 20);
    (0..20 * CALM).for_each(|_| size.sealed(8 << 10));
    assert_eq!(size.bytes(), 64 << 10);
    size.make_fit(300 << 10);
    assert_eq!(size.bytes(), 512 << 10);
    for n in 0..20 * CALM {
        size.sealed(if n % 1000 == 0 { 200 << 10 } else { 4096 });
    }
    assert_eq!(size.bytes(), 512 << 10, "a long block comes now and then");
}

/// A buffer has whole sectors: one of another length than is looked for would be given up when it
/// comes back.
#[test]
fn it_is_always_as_long_as_a_buffer_can_be() {
    for (most, unit) in [(1_000_000, 300_000), (100_000, 4096), (70_000, 5000), (1 << 20, 100_000)] {
        let mut size = BufferSize::up_to(most, unit);
        for n in 0..4 * CALM as usize {
            size.sealed(if n % 3 == 0 && n < 30 { size.bytes() } else { 100 });
            assert!(size.bytes().is_multiple_of(SECTOR_BYTES), "{size:?}");
            assert!(size.bytes() <= size.most(), "{size:?}");
        }
        assert!(size.most() >= most);
    }
    assert!(BufferSize::fixed(70_001).bytes().is_multiple_of(SECTOR_BYTES));
}

#[test]
fn bounds_that_meet_leave_it_alone() {
    let most = [64 << 10, 512 << 10, 68 << 10];
    let sizes =
        [BufferSize::fixed(most[0]), BufferSize::up_to(most[1], 384 << 10), BufferSize::up_to(most[2], 4096)];
    for (mut size, most) in sizes.into_iter().zip(most) {
        (0..3 * CALM).for_each(|_| size.sealed(4096));
        (0..3).for_each(|_| size.sealed(most));
        assert_eq!(size.bytes(), most, "{size:?}");
    }
}
