//! Unit tests of `value`.

use super::*;

fn bytes<V: Value>(value: &V::Borrowed) -> Vec<u8> {
    let mut out = b"before".to_vec();
    V::encode(value, &mut out).expect("it can be stored");
    assert_eq!(&out[..6], b"before", "a value is appended");
    out.split_off(6)
}

#[test]
fn values_read_back_and_other_lengths_are_errors() {
    assert_eq!(u32::decode(&bytes::<u32>(&7)), Ok(7));
    assert_eq!(bytes::<i64>(&-2), (-2_i64).to_be_bytes());
    assert_eq!(f64::decode(&bytes::<f64>(&-0.5)), Ok(-0.5));
    assert_eq!(bool::decode(&bytes::<bool>(&true)), Ok(true));
    assert_eq!(String::decode(&bytes::<String>("é")), Ok("é".to_string()));
    assert_eq!(<[u8; 3]>::decode(&bytes::<[u8; 3]>(&[1, 2, 3])), Ok([1, 2, 3]));
    assert_eq!(u32::decode(&[1, 2, 3]), Err("it has 3 bytes, not 4".into()));
    assert_eq!(<()>::decode(&[1]), Err("it has 1 bytes, not 0".into()));
    assert!(bool::decode(&[2]).is_err());
    assert!(String::decode(&[255]).is_err());
}

#[cfg(feature = "postcard")]
#[test]
fn values_of_serde_read_back_and_rests_are_errors() {
    type Pair = Postcard<(String, Option<u64>)>;
    let pair = ("alice".to_string(), Some(7));
    let stored = bytes::<Pair>(&pair);
    assert_eq!(Pair::decode(&stored), Ok(pair));
    assert!(Pair::decode(&stored[1..]).is_err());
    assert_eq!(Pair::decode(&[&stored[..], &[0]].concat()), Err("1 bytes are left behind it".into()));
}

#[cfg(feature = "zerocopy")]
#[test]
fn values_in_memory_read_back_and_wrong_bytes_are_errors() {
    type Number = Zerocopy<zerocopy::big_endian::U32>;
    let stored = bytes::<Number>(&7.into());
    assert_eq!(stored, [0, 0, 0, 7]);
    assert_eq!(Number::decode(&stored), Ok(7.into()));
    assert_eq!(Number::decode(&[0; 5]), Err("it has 5 bytes, not 4".into()));
    assert_eq!(Zerocopy::<bool>::decode(&[2]), Err("its bytes are not valid for the type".into()));
}
