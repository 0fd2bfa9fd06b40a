//! Tests of the texts of reports.

use super::key_range;

#[test]
fn key_ranges_are_readable_for_all_keys() {
    assert_eq!(key_range(b"", None), "keys from the beginning to the end");
    assert_eq!(key_range(b"a\"\xff", Some(b"b\n")), r#"keys from "a\"\xff" to below "b\n""#);
    assert!(key_range(&[b'x'; 100], None).contains("… (100 bytes)"));
}
