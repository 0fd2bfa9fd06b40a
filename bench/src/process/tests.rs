//! Tests of `process`.

use super::*;
use std::time::Instant;

#[test]
fn memory_that_was_touched_and_given_back_is_remembered() {
    let begun = Instant::now();
    // Other tests of this process take and give back memory, too: until they hold still, and the
    // thread got to look.
    loop {
        let watch = MemoryWatch::start().expect("a thread");
        let before = watch.bytes_max();
        let touched = vec![1u8; 64 << 20];
        std::thread::sleep(4 * EVERY);
        assert_eq!(touched[touched.len() / 2], 1);
        drop(touched);
        // The maximum before this point was reset.
        let (after, most) = (resident_bytes(), watch.bytes_max());
        if most >= before.max(after) + (48 << 20) {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{before}, then {after}: at most {most}");
    }
}

#[test]
fn the_kernel_counts_for_this_process() {
    assert!(resident_bytes() > 100_000);
    assert_eq!(numbers("status", ["NoSuchLine"]), [0]);
    let before = cpu_seconds();
    assert!((0..3_000_000u64).fold(0, |a: u64, b| std::hint::black_box(a ^ b)) < u64::MAX);
    assert!(cpu_seconds() > before);
}
