//! Unit tests of `type_name`.

use super::*;
use std::collections::HashSet;

#[test]
fn near_types_have_different_names() {
    let names = [
        u32::type_name(),
        i32::type_name(),
        f32::type_name(),
        char::type_name(),
        String::type_name(),
        Vec::<u8>::type_name(),
        <[u8; 16]>::type_name(),
        <[u8; 4]>::type_name(),
        <()>::type_name(),
        <(u8,)>::type_name(),
        u8::type_name(),
        <(u8, u16)>::type_name(),
        <(u16, u8)>::type_name(),
        <((u8, u16), u8)>::type_name(),
        <(u8, (u16, u8))>::type_name(),
        <(u8, u16, u8)>::type_name(),
        Option::<u8>::type_name(),
        Reverse::<u8>::type_name(),
        Option::<Reverse<u8>>::type_name(),
        Reverse::<Option<u8>>::type_name(),
    ];
    let different: HashSet<_> = names.iter().collect();
    assert_eq!(different.len(), names.len(), "{names:?}");
}

/// What a database has stored may never change.
#[test]
fn names_are_as_they_have_always_been() {
    assert_eq!(<(u8, Option<String>, Vec<u8>)>::type_name(), "(u8, Option<String>, Vec<u8>)");
    assert_eq!(<(i128,)>::type_name(), "(i128,)");
    assert_eq!(<([u8; 3], Reverse<f64>)>::type_name(), "([u8; 3], Reverse<f64>)");
    assert_eq!(<(u8, u8, u8, u8, bool, ())>::type_name(), "(u8, u8, u8, u8, bool, ())");
    #[cfg(feature = "uuid")]
    assert_eq!(uuid::Uuid::type_name(), "Uuid");
}

#[cfg(feature = "zerocopy")]
#[test]
fn names_of_numbers_say_their_byte_order() {
    use zerocopy::byteorder::{BigEndian, I16, LittleEndian, U32};
    assert_eq!(U32::<LittleEndian>::type_name(), "U32<LittleEndian>");
    assert_eq!(I16::<BigEndian>::type_name(), "I16<BigEndian>");
}
