//! Unit tests of `encoding`.

use super::*;

#[test]
fn varints_read_back_and_short_input_is_none() {
    for value in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
        let mut out = Vec::new();
        put_varint(&mut out, value);
        assert_eq!(Reader::new(&out).varint(), Some(value));
        assert_eq!(Reader::new(&out[..out.len() - 1]).varint(), None);
    }
}

#[test]
fn overlong_and_oversized_varints_are_refused() {
    assert_eq!(Reader::new(&[0x80, 0x00]).varint(), None);
    assert_eq!(Reader::new(&[0xff; 10]).varint(), None);
    assert_eq!(Reader::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]).varint(), None);
}

#[test]
fn a_length_beyond_the_input_is_none() {
    assert_eq!(Reader::new(&[5, 1, 2]).bytes(), None);
    assert_eq!(Reader::new(&[2, 1, 2]).bytes(), Some(&[1u8, 2][..]));
}
