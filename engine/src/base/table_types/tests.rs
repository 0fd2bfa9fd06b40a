//! Unit tests of `table_types`.

use super::*;

fn types(kind: TableKind, keys: &str, values: &str) -> TableTypes {
    TableTypes::new(kind, keys.into(), values.into()).expect("short")
}

#[test]
fn types_read_back_and_other_bytes_are_refused() {
    for types in [
        types(TableKind::Table, "u64", "Vec<u8>"),
        types(TableKind::Multimap, "(u8, é)", "()"),
        types(TableKind::Index, "String", ""),
        types(TableKind::UniqueIndex, &"x".repeat(TYPE_BYTES_MAX), ""),
    ] {
        let mut bytes = Vec::new();
        types.encode(&mut bytes);
        let mut reader = Reader::new(&bytes);
        assert_eq!(TableTypes::decode(&mut reader), Some(types));
        assert!(reader.is_empty());
        for len in 0..bytes.len() {
            assert_eq!(TableTypes::decode(&mut Reader::new(&bytes[..len])), None);
        }
    }
    let refused = |bytes: &[u8]| TableTypes::decode(&mut Reader::new(bytes)).is_none();
    assert!(refused(&[0, 1, b'a', 0]), "an unknown kind");
    assert!(refused(&[5, 1, b'a', 0]), "an unknown kind");
    assert!(refused(&[1, 1, 255, 0]), "a name that is no text");
    assert!(refused(&[3, 1, b'a', 1, b'b']), "an index with values");
}

#[test]
fn a_multimap_opens_as_a_table_of_its_pairs_alone() {
    let multimap = types(TableKind::Multimap, "u8", "String");
    let pairs = types(TableKind::Table, "(u8, String)", "()");
    assert!(multimap.opens_as(&multimap) && multimap.opens_as(&pairs) && pairs.opens_as(&multimap));
    for other in [
        types(TableKind::Table, "u8", "String"),
        types(TableKind::Table, "(u8, String)", "bool"),
        types(TableKind::Table, "(String, u8)", "()"),
        types(TableKind::Multimap, "String", "u8"),
        types(TableKind::Index, "u8", ""),
    ] {
        assert!(!multimap.opens_as(&other) && !other.opens_as(&multimap), "{other}");
    }
}

#[test]
fn names_that_are_too_long_are_refused() {
    let long = "é".repeat(TYPE_BYTES_MAX);
    let refused = TableTypes::new(TableKind::Table, "u8".into(), long).expect_err("too long");
    assert!(refused.to_string().contains("has 8192 bytes"), "{refused}");
}
