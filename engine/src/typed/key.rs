//! Keys with types: encoded so that the order of the bytes is the order of the keys.
//!
//! | type | bytes |
//! |---|---|
//! | unsigned integer, `char` | big-endian |
//! | signed integer | big-endian, the sign bit inverted |
//! | `f32`, `f64` | big-endian; negative: all bits inverted, else the sign bit. [`f64::total_cmp`] |
//! | `bool` | 0 or 1 |
//! | `[u8; N]`, `Uuid` | as they are |
//! | `String`, `Vec<u8>`, last | as they are |
//! | `String`, `Vec<u8>`, before others | each byte 0 as 0, 255; then 0, 1 |
//! | `Option` | 0 for `None`; 1 and the key |
//! | `Reverse` | as the key before others, all bits inverted |
//! | tuple, struct | the parts, one after the other |
//!
//! Only the last part of a key may be as long as it likes without an end of its own. So a table
//! with keys of strings has the bytes of the strings as its keys.

use super::type_name::TypeName;
use std::cmp::Reverse;

/// The bits of `f32` and `f64` are compared with this sign bit.
const SIGN_32: u32 = 1 << 31;
const SIGN_64: u64 = 1 << 63;

/// Ends a string or bytes before other parts, and stands for a byte 0 inside.
const END: [u8; 2] = [0, 1];
const ZERO: [u8; 2] = [0, 255];

/// Something that is looked up as a key of type `K`: `K` itself, a reference, or a borrowed form,
/// such as `str` for `String`, also in a tuple.
pub trait AsKey<K> {
    /// Appends the key as a part before others: no encoded key is the beginning of another.
    fn encode_part(&self, out: &mut Vec<u8>);

    /// Appends the key as the last part, which needs no end.
    fn encode_last(&self, out: &mut Vec<u8>) {
        self.encode_part(out);
    }

    /// Returns the key as the only part.
    fn to_key(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(32);
        self.encode_last(&mut out);
        out
    }
}

/// The key of a [`TypedTable`](crate::TypedTable): an integer, a float, `bool`, `char`, `String`,
/// `Vec<u8>`, an array of bytes, a `Uuid` (feature `uuid`), an `Option`, a [`Reverse`], a tuple of
/// up to six keys, or a struct of keys with `#[derive(Key)]` (feature `derive`).
///
/// Keys are ordered as Rust orders them; floats by [`f64::total_cmp`]. A key has 1 to
/// [`Database::max_key_bytes`](crate::Database::max_key_bytes) bytes, so an empty string is no key
/// alone, but may be part of one.
pub trait Key: AsKey<Self> + TypeName + Sized {
    /// Takes a part that is not the last from the beginning of `bytes`. `None` if there is none.
    fn decode_part(bytes: &mut &[u8]) -> Option<Self>;

    /// Takes the last part: all of `bytes`.
    fn decode_last(bytes: &mut &[u8]) -> Option<Self> {
        Self::decode_part(bytes)
    }

    /// Returns the key that has exactly these bytes, if one has.
    fn from_key(mut bytes: &[u8]) -> Option<Self> {
        let key = Self::decode_last(&mut bytes)?;
        bytes.is_empty().then_some(key)
    }
}

impl<K, Q: AsKey<K> + ?Sized> AsKey<K> for &Q {
    fn encode_part(&self, out: &mut Vec<u8>) {
        (**self).encode_part(out);
    }

    fn encode_last(&self, out: &mut Vec<u8>) {
        (**self).encode_last(out);
    }
}

fn take<'a>(bytes: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(taken)
}

fn take_array<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    take(bytes, N)?.try_into().ok()
}

macro_rules! integers {
    ($($type:ident, $flip:expr;)*) => { $(
        impl AsKey<$type> for $type {
            fn encode_part(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&(self ^ $flip).to_be_bytes());
            }
        }

        impl Key for $type {
            fn decode_part(bytes: &mut &[u8]) -> Option<$type> {
                Some($type::from_be_bytes(take_array(bytes)?) ^ $flip)
            }
        }
    )* };
}

integers! {
    u8, 0; u16, 0; u32, 0; u64, 0; u128, 0;
    i8, i8::MIN; i16, i16::MIN; i32, i32::MIN; i64, i64::MIN; i128, i128::MIN;
}

macro_rules! floats {
    ($($type:ident, $bits:ident, $sign:ident;)*) => { $(
        impl AsKey<$type> for $type {
            fn encode_part(&self, out: &mut Vec<u8>) {
                let bits = self.to_bits();
                let flip = if bits & $sign == 0 { $sign } else { $bits::MAX };
                out.extend_from_slice(&(bits ^ flip).to_be_bytes());
            }
        }

        impl Key for $type {
            fn decode_part(bytes: &mut &[u8]) -> Option<$type> {
                let bits = $bits::from_be_bytes(take_array(bytes)?);
                let flip = if bits & $sign == 0 { $bits::MAX } else { $sign };
                Some($type::from_bits(bits ^ flip))
            }
        }
    )* };
}

floats! { f32, u32, SIGN_32; f64, u64, SIGN_64; }

impl AsKey<bool> for bool {
    fn encode_part(&self, out: &mut Vec<u8>) {
        out.push((*self).into());
    }
}

impl Key for bool {
    fn decode_part(bytes: &mut &[u8]) -> Option<bool> {
        match take_array(bytes)? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }
}

impl AsKey<char> for char {
    fn encode_part(&self, out: &mut Vec<u8>) {
        u32::from(*self).encode_part(out);
    }
}

impl Key for char {
    fn decode_part(bytes: &mut &[u8]) -> Option<char> {
        char::from_u32(u32::decode_part(bytes)?)
    }
}

fn encode_ended(bytes: &[u8], out: &mut Vec<u8>) {
    for piece in bytes.split_inclusive(|byte| *byte == 0) {
        match piece.split_last() {
            Some((0, before)) => {
                out.extend_from_slice(before);
                out.extend_from_slice(&ZERO);
            }
            _ => out.extend_from_slice(piece),
        }
    }
    out.extend_from_slice(&END);
}

fn decode_ended(bytes: &mut &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::new();
    loop {
        let zero = bytes.iter().position(|byte| *byte == 0)?;
        decoded.extend_from_slice(take(bytes, zero)?);
        match take_array(bytes)? {
            END => return Some(decoded),
            ZERO => decoded.push(0),
            _ => return None,
        }
    }
}

macro_rules! bytes_like {
    ($([$($n:ident)?] $borrowed:ty => $owned:ty;)*) => { $(
        impl$(<const $n: usize>)? AsKey<$owned> for $borrowed {
            fn encode_part(&self, out: &mut Vec<u8>) {
                encode_ended(self.as_ref(), out);
            }

            fn encode_last(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(self.as_ref());
            }
        }
    )* };
}

bytes_like! {
    [] String => String;
    [] str => String;
    [] Vec<u8> => Vec<u8>;
    [] [u8] => Vec<u8>;
    [N] [u8; N] => Vec<u8>;
}

impl Key for Vec<u8> {
    fn decode_part(bytes: &mut &[u8]) -> Option<Vec<u8>> {
        decode_ended(bytes)
    }

    fn decode_last(bytes: &mut &[u8]) -> Option<Vec<u8>> {
        Some(std::mem::take(bytes).to_vec())
    }
}

impl Key for String {
    fn decode_part(bytes: &mut &[u8]) -> Option<String> {
        String::from_utf8(decode_ended(bytes)?).ok()
    }

    fn decode_last(bytes: &mut &[u8]) -> Option<String> {
        String::from_utf8(std::mem::take(bytes).to_vec()).ok()
    }
}

impl<const N: usize> AsKey<[u8; N]> for [u8; N] {
    fn encode_part(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}

impl<const N: usize> Key for [u8; N] {
    fn decode_part(bytes: &mut &[u8]) -> Option<[u8; N]> {
        take_array(bytes)
    }
}

#[cfg(feature = "uuid")]
impl AsKey<uuid::Uuid> for uuid::Uuid {
    fn encode_part(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }
}

#[cfg(feature = "uuid")]
impl Key for uuid::Uuid {
    fn decode_part(bytes: &mut &[u8]) -> Option<uuid::Uuid> {
        Some(uuid::Uuid::from_bytes(take_array(bytes)?))
    }
}

impl<K, Q: AsKey<K>> AsKey<Option<K>> for Option<Q> {
    fn encode_part(&self, out: &mut Vec<u8>) {
        out.push(self.is_some().into());
        self.iter().for_each(|key| key.encode_part(out));
    }

    fn encode_last(&self, out: &mut Vec<u8>) {
        out.push(self.is_some().into());
        self.iter().for_each(|key| key.encode_last(out));
    }
}

impl<K: Key> Key for Option<K> {
    fn decode_part(bytes: &mut &[u8]) -> Option<Option<K>> {
        if bool::decode_part(bytes)? { K::decode_part(bytes).map(Some) } else { Some(None) }
    }

    fn decode_last(bytes: &mut &[u8]) -> Option<Option<K>> {
        if bool::decode_part(bytes)? { K::decode_last(bytes).map(Some) } else { Some(None) }
    }
}

fn invert(bytes: &mut [u8]) {
    bytes.iter_mut().for_each(|byte| *byte = !*byte);
}

impl<K, Q: AsKey<K>> AsKey<Reverse<K>> for Reverse<Q> {
    fn encode_part(&self, out: &mut Vec<u8>) {
        let from = out.len();
        self.0.encode_part(out);
        invert(&mut out[from..]);
    }
}

impl<K: Key> Key for Reverse<K> {
    fn decode_part(bytes: &mut &[u8]) -> Option<Reverse<K>> {
        let mut inverted = bytes.to_vec();
        invert(&mut inverted);
        let mut rest = &inverted[..];
        let key = K::decode_part(&mut rest)?;
        take(bytes, bytes.len() - rest.len())?;
        Some(Reverse(key))
    }
}

macro_rules! tuples {
    ($($($part:ident $query:ident $at:tt),* ; $last:ident $last_query:ident $last_at:tt)|*) => { $(
        impl<$($part, $query: AsKey<$part>,)* $last, $last_query: AsKey<$last>> AsKey<($($part,)* $last,)>
            for ($($query,)* $last_query,)
        {
            fn encode_part(&self, out: &mut Vec<u8>) {
                $(self.$at.encode_part(out);)*
                self.$last_at.encode_part(out);
            }

            fn encode_last(&self, out: &mut Vec<u8>) {
                $(self.$at.encode_part(out);)*
                self.$last_at.encode_last(out);
            }
        }

        impl<$($part: Key,)* $last: Key> Key for ($($part,)* $last,) {
            fn decode_part(bytes: &mut &[u8]) -> Option<Self> {
                Some(($($part::decode_part(bytes)?,)* $last::decode_part(bytes)?,))
            }

            fn decode_last(bytes: &mut &[u8]) -> Option<Self> {
                Some(($($part::decode_part(bytes)?,)* $last::decode_last(bytes)?,))
            }
        }
    )* };
}

tuples! {
    ; A P 0 |
    A P 0; B Q 1 |
    A P 0, B Q 1; C R 2 |
    A P 0, B Q 1, C R 2; D S 3 |
    A P 0, B Q 1, C R 2, D S 3; E T 4 |
    A P 0, B Q 1, C R 2, D S 3, E T 4; F U 5
}

#[cfg(test)]
mod tests;
