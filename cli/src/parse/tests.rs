//! Tests of `parse`.

use super::*;

#[test]
fn sizes_have_suffixes_and_everything_else_is_refused() {
    let right = [("0", 0), ("17", 17), ("4k", 4096), ("64M", 64 << 20), ("3g", 3 << 30), ("1t", 1 << 40)];
    for (text, expected) in right {
        assert_eq!(bytes(text), Ok(expected), "{text}");
    }
    for text in ["", "k", "1.5g", "-1", "+1", "12 m", "1kk", "99999999999t", "é", "18446744073709551616"] {
        assert!(bytes(text).is_err(), "{text}");
    }
}

#[test]
fn checkpoints_are_counted_in_seconds_or_made_back_to_back() {
    assert_eq!(every("continuous"), Ok(0.0));
    assert_eq!(every("2.5"), Ok(2.5));
    assert!(every("0").is_err() && every("often").is_err());
}
