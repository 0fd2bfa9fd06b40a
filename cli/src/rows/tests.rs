//! Tests of `rows`.

use super::*;

#[test]
fn every_byte_round_trips() {
    let all: Vec<u8> = (0..=255).collect();
    let reversed: Vec<u8> = (0..=255).rev().collect();
    let mut line = Vec::new();
    encode_line(&all, &reversed, &mut line);
    assert_eq!(line.pop(), Some(b'\n'));
    assert!(!line.contains(&b'\n') && line.is_ascii());
    let (mut key, mut value) = (Vec::new(), Vec::new());
    decode_line(&line, &mut key, &mut value).expect("our own line");
    assert_eq!((key, value), (all, reversed));
}

#[test]
fn raw_bytes_are_accepted() {
    assert_eq!(unescape("grün".as_bytes()).expect("raw"), "grün".as_bytes());
}

#[test]
fn malformed_lines_name_the_column() {
    let column = |line: &[u8]| {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        decode_line(line, &mut key, &mut value).expect_err("malformed").column
    };
    assert_eq!(column(b"nothing"), 8);
    assert_eq!(column(b"a\tb\tc"), 4);
    assert_eq!(column(b"a\\q\tb"), 2);
    assert_eq!(column(b"a\tb\\x4"), 4);
    assert_eq!(column(b"a\tbc\\"), 5);
}
