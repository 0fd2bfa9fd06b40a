//! Unit tests of `google`.

use super::*;

#[test]
fn dates_in_headers_are_seconds() {
    for (date, seconds) in [
        ("Thu, 01 Jan 1970 00:00:00 GMT", Some(0)),
        ("Tue, 29 Feb 2000 23:59:59 GMT", Some(951_868_799)),
        ("Fri, 27 Nov 2026 10:34:19 GMT", Some(1_795_775_659)),
        ("Fri, 31 Dec 2100 00:00:00 GMT", Some(4_133_894_400)),
        ("2026-11-27T10:34:19Z", None),
        ("Fri, 27 Foo 2026 10:34:19 GMT", None),
        ("", None),
    ] {
        assert_eq!(seconds_of(date), seconds, "{date}");
    }
}

#[test]
fn ranges_in_headers_name_first_byte_and_length() {
    assert_eq!(first_and_len("bytes 10-19/100"), Some((10, 100)));
    assert_eq!(first_and_len("bytes */100"), None);
    assert_eq!(first_and_len("items 1-2/3"), None);
}

#[test]
fn numbers_may_be_texts() {
    let value = serde_json::json!({"a": "1795775659877945", "b": 7, "c": "x"});
    assert_eq!(
        ["a", "b", "c", "d"].map(|name| number(&value[name])),
        [Some(1_795_775_659_877_945), Some(7), None, None]
    );
}
