//! Beginnings of keys.

use super::key::AsKey;

/// The beginning of keys of type `K`: for strings and bytes their first bytes, for tuples their
/// first parts as a shorter tuple.
pub trait AsPrefix<K> {
    /// Returns the bytes with which all such keys begin, and no other.
    fn to_prefix(&self) -> Vec<u8>;
}

impl AsPrefix<String> for str {
    fn to_prefix(&self) -> Vec<u8> {
        self.as_bytes().to_vec()
    }
}

impl AsPrefix<Vec<u8>> for [u8] {
    fn to_prefix(&self) -> Vec<u8> {
        self.to_vec()
    }
}

impl<K, P: AsPrefix<K> + ?Sized> AsPrefix<K> for &P {
    fn to_prefix(&self) -> Vec<u8> {
        (**self).to_prefix()
    }
}

macro_rules! beginnings {
    ($($($part:ident $query:ident $at:tt),* ; $($rest:ident),*)|*) => { $(
        impl<$($part, $query: AsKey<$part>,)* $($rest,)*> AsPrefix<($($part,)* $($rest,)*)> for ($($query,)*) {
            fn to_prefix(&self) -> Vec<u8> {
                let mut out = Vec::new();
                $(self.$at.encode_part(&mut out);)*
                out
            }
        }
    )* };
}

beginnings! {
    A P 0; B |
    A P 0; B, C |
    A P 0; B, C, D |
    A P 0; B, C, D, E |
    A P 0; B, C, D, E, F |
    A P 0, B Q 1; C |
    A P 0, B Q 1; C, D |
    A P 0, B Q 1; C, D, E |
    A P 0, B Q 1; C, D, E, F |
    A P 0, B Q 1, C R 2; D |
    A P 0, B Q 1, C R 2; D, E |
    A P 0, B Q 1, C R 2; D, E, F |
    A P 0, B Q 1, C R 2, D S 3; E |
    A P 0, B Q 1, C R 2, D S 3; E, F |
    A P 0, B Q 1, C R 2, D S 3, E T 4; F
}
