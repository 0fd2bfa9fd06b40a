//! Rows with fields at fixed places. A changed field changes one range of bytes, and the engine
//! logs only the bytes that differ.
//!
//! ```text
//!   | fields of fixed width, frequent changes adjacent | texts, padded | one tail of any length |
//! ```
//! Numbers are little-endian. A layout is declared once, by [`record!`](macro@crate::record), and
//! gives each field its place.

use std::marker::PhantomData;

/// A number that can be a field.
pub trait Number: Copy {
    /// Reads from the beginning of `bytes`, which is long enough.
    fn read(bytes: &[u8]) -> Self;

    /// Writes to the beginning of `bytes`, which is long enough.
    fn write(self, bytes: &mut [u8]);
}

macro_rules! numbers {
    ($($number:ty),*) => {
        $(
            impl Number for $number {
                #[inline]
                fn read(bytes: &[u8]) -> $number {
                    let mut number = [0; size_of::<$number>()];
                    number.copy_from_slice(&bytes[..size_of::<$number>()]);
                    <$number>::from_le_bytes(number)
                }

                #[inline]
                fn write(self, bytes: &mut [u8]) {
                    bytes[..size_of::<$number>()].copy_from_slice(&self.to_le_bytes());
                }
            }
        )*
    };
}

numbers!(u8, u16, u32, u64, i16, i32, i64);

/// The place of a field.
#[derive(Clone, Copy, Debug)]
pub struct Field<T> {
    at: usize,
    holds: PhantomData<T>,
}

impl<T> Field<T> {
    /// Creates a field at byte `at`.
    #[must_use]
    pub const fn at(at: usize) -> Field<T> {
        Field { at, holds: PhantomData }
    }
}

impl<T: Number> Field<T> {
    /// Returns the number in `row`, which has all fixed fields.
    #[inline]
    #[must_use]
    pub fn get(self, row: &[u8]) -> T {
        T::read(&row[self.at..])
    }

    /// Sets the number.
    #[inline]
    pub fn set(self, row: &mut [u8], number: T) {
        number.write(&mut row[self.at..]);
    }

    /// Changes the number. Returns the new one.
    #[inline]
    pub fn add(self, row: &mut [u8], amount: T) -> T
    where
        T: std::ops::Add<Output = T>,
    {
        let sum = self.get(row) + amount;
        self.set(row, sum);
        sum
    }
}

impl<const N: usize> Field<[u8; N]> {
    /// Returns the bytes without the zeros at the end.
    #[must_use]
    pub fn text(self, row: &[u8]) -> &[u8] {
        let all = &row[self.at..self.at + N];
        let end = all.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        &all[..end]
    }

    /// Returns all bytes.
    #[must_use]
    pub fn bytes(self, row: &[u8]) -> &[u8] {
        &row[self.at..self.at + N]
    }

    /// Sets the text, which has at most `N` bytes.
    pub fn put(self, row: &mut [u8], text: &[u8]) {
        let place = &mut row[self.at..self.at + N];
        place[..text.len()].copy_from_slice(text);
        place[text.len()..].fill(0);
    }
}

/// Declares a row: a module with the place of each field, and `BYTES`, the length of all of them
/// together.
#[macro_export]
macro_rules! record {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        pub mod $name {
            use $crate::record::Field;

            /// What each number takes is its own size: no gaps.
            #[allow(non_snake_case)]
            #[repr(C, packed)]
            struct Layout { $($field: $type,)* }

            /// Bytes of all fields.
            pub const BYTES: usize = size_of::<Layout>();

            $($(#[$field_doc])* pub const $field: Field<$type> =
                Field::at(std::mem::offset_of!(Layout, $field));)*
        }
    };
}

#[cfg(test)]
mod tests;
