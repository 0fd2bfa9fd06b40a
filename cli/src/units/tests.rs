//! Tests of `units`.

use super::*;

#[test]
fn sizes_have_the_unit_that_fits() {
    for (bytes, wanted) in [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        ((1 << 20) - 1, "1 MiB"),
        (2 << 20, "2 MiB"),
        (u64::MAX, "16384 PiB"),
    ] {
        assert_eq!(size(bytes), wanted);
    }
}

#[test]
fn thousands_are_separated() {
    let counts = [0, 999, 1000, 1_234_567].map(count);
    assert_eq!(counts, ["0", "999", "1,000", "1,234,567"]);
}
