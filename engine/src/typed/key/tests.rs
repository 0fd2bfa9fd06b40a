//! Unit tests of `key`.

use super::*;
use proptest::prelude::*;
use std::cmp::Ordering;
use std::fmt::Debug;

/// Checks that two keys are ordered as their bytes, and read back, alone and before others.
fn check<K: Key + PartialEq + Debug>(a: &K, b: &K, order: Ordering) {
    assert_eq!(a.to_key().cmp(&b.to_key()), order, "{a:?} and {b:?}");
    let part = |key: &K| {
        let mut out = Vec::new();
        key.encode_part(&mut out);
        out
    };
    let (first, second) = (part(a), part(b));
    assert_eq!(first.cmp(&second), order, "{a:?} and {b:?} before others");
    if order != Ordering::Equal {
        assert!(!first.starts_with(&second) && !second.starts_with(&first), "{a:?} and {b:?}");
    }
    for key in [a, b] {
        assert_eq!(K::from_key(&key.to_key()).as_ref(), Some(key));
        let bytes = [part(key), vec![7, 0, 255]].concat();
        let mut rest = &bytes[..];
        assert_eq!(K::decode_part(&mut rest).as_ref(), Some(key));
        assert_eq!(rest, [7, 0, 255], "{key:?} takes only its own bytes");
    }
}

/// Bytes of few kinds, so that beginnings are shared and zeros frequent.
fn few() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(vec![0_u8, 1, 2, 254, 255]), 0..6)
}

proptest! {
    #[test]
    fn integers_are_ordered_as_their_bytes(a: i64, b: i64, c: u16, d: u16, e: i128, f: i128) {
        check(&a, &b, a.cmp(&b));
        check(&c, &d, c.cmp(&d));
        check(&e, &f, e.cmp(&f));
        check(&(c as i8), &(d as i8), (c as i8).cmp(&(d as i8)));
    }

    #[test]
    fn floats_are_ordered_by_their_total_order(a in any::<u64>(), b in any::<u64>()) {
        let (a, b) = (f64::from_bits(a), f64::from_bits(b));
        prop_assert_eq!(a.to_key().cmp(&b.to_key()), a.total_cmp(&b));
        prop_assert_eq!(f64::from_key(&a.to_key()).map(f64::to_bits), Some(a.to_bits()));
        let (a, b) = (a as f32, b as f32);
        prop_assert_eq!(a.to_key().cmp(&b.to_key()), a.total_cmp(&b));
    }

    #[test]
    fn bytes_and_strings_are_ordered_as_their_bytes(a in few(), b in few(), c: String, d: String) {
        check(&a, &b, a.cmp(&b));
        check(&c, &d, c.cmp(&d));
    }

    #[test]
    fn composed_keys_are_ordered_part_by_part(
        a in (few(), any::<bool>(), few()),
        b in (few(), any::<bool>(), few()),
        c: Option<Option<u8>>,
        d: Option<Option<u8>>,
        e: (char, Option<String>),
        f: (char, Option<String>),
    ) {
        check(&a, &b, a.cmp(&b));
        check(&c, &d, c.cmp(&d));
        check(&e, &f, e.cmp(&f));
        let (g, h) = ((Reverse(a.0.clone()), e.clone()), (Reverse(b.0.clone()), f.clone()));
        check(&g, &h, g.cmp(&h));
        let (g, h) = ((a.1, Reverse(Some(a.2))), (b.1, Reverse(Some(b.2))));
        check(&g, &h, g.cmp(&h));
    }

    #[test]
    fn arbitrary_bytes_decode_to_a_key_with_these_bytes_or_to_none(bytes in few()) {
        fn stable<K: Key>(bytes: &[u8]) {
            if let Some(key) = K::from_key(bytes) {
                assert_eq!(key.to_key(), bytes);
            }
        }
        stable::<(Vec<u8>, Option<bool>)>(&bytes);
        stable::<(String, u8)>(&bytes);
        stable::<Reverse<(Vec<u8>, u8)>>(&bytes);
        stable::<Option<(bool, char)>>(&bytes);
    }
}

#[test]
fn borrowed_forms_have_the_bytes_of_the_key() {
    let owned: (String, u32, Vec<u8>) = ("a\0b".into(), 7, vec![0, 1]);
    let borrowed = ("a\0b", &7_u32, &[0, 1][..]);
    assert_eq!(AsKey::<(String, u32, Vec<u8>)>::to_key(&borrowed), owned.to_key());
    assert_eq!(AsKey::<String>::to_key("plain"), b"plain", "a string alone is as it is");
    assert_eq!(AsKey::<Option<String>>::to_key(&None::<&str>), [0]);
}
