//! Ranges of keys with types, and the rows in them.

use super::key::{AsKey, Key};
use super::value::Value;
use crate::api::{KeyRange, Range, Reads, Table};
use crate::base::{Error, Location, Result};
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// Any of Rust's ranges over keys of type `K`, or over what is looked up as such keys: `..`,
/// `5..10`, `"a"..="b"`, `(Bound<Q>, Bound<Q>)`.
pub trait KeysIn<K> {
    /// Returns the lower and the upper bound, each with what `encode` makes of the key.
    fn ends(&self, encode: fn(&dyn AsKey<K>) -> Vec<u8>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>);
}

macro_rules! ranges {
    ($($range:ty),*) => { $(
        impl<K, Q: AsKey<K>> KeysIn<K> for $range {
            fn ends(&self, encode: fn(&dyn AsKey<K>) -> Vec<u8>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
                let own = |bound: Bound<&Q>| bound.map(|key| encode(key));
                (own(RangeBounds::<Q>::start_bound(self)), own(RangeBounds::<Q>::end_bound(self)))
            }
        }
    )* };
}

ranges! {
    std::ops::Range<Q>, RangeInclusive<Q>, RangeFrom<Q>, RangeTo<Q>, RangeToInclusive<Q>, (Bound<Q>, Bound<Q>)
}

impl<K> KeysIn<K> for RangeFull {
    fn ends(&self, _: fn(&dyn AsKey<K>) -> Vec<u8>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        (Bound::Unbounded, Bound::Unbounded)
    }
}

/// Returns the bounds of a range of whole keys.
pub(super) fn bounds<K>(range: &impl KeysIn<K>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    range.ends(|key| key.to_key())
}

#[cold]
fn wrong(table: &Table, what: String) -> Error {
    let advice = "open the table with the types with which it was written";
    Error::invalid(what).with_advice(advice).at(Location::Table(table.name().to_string()))
}

/// Returns the key that has these bytes.
///
/// # Errors
/// `InvalidArgument` if no key of the type has them.
pub(super) fn decode_key<K: Key>(table: &Table, bytes: &[u8]) -> Result<K> {
    K::from_key(bytes).ok_or_else(|| not_a_key::<K>(table, bytes))
}

#[cold]
pub(super) fn not_a_key<K: Key>(table: &Table, bytes: &[u8]) -> Error {
    wrong(table, format!("the key `{}` is no `{}`", bytes.escape_ascii(), K::type_name()))
}

/// Returns the value that has these bytes.
///
/// # Errors
/// `InvalidArgument` if no value of the type has them.
pub(super) fn decode_value<V: Value>(table: &Table, key: &[u8], bytes: &[u8]) -> Result<V::Owned> {
    V::decode(bytes).map_err(|what| {
        let (shown, name) = (key.escape_ascii(), V::type_name());
        wrong(table, format!("the value of key `{shown}` is no `{name}`: {what}"))
    })
}

/// Returns the bytes of a value.
///
/// # Errors
/// `InvalidArgument` if the type refuses to store it.
pub(super) fn encode_value<V: Value>(table: &Table, value: &V::Borrowed) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    V::encode(value, &mut bytes).map_err(|what| {
        Error::invalid(format!("the value cannot be stored: {what}"))
            .at(Location::Table(table.name().to_string()))
    })?;
    Ok(bytes)
}

/// The rows of a [`TypedTable`](crate::TypedTable) in the order of their keys, from both ends.
/// After an error the iterator ends.
#[derive(Debug)]
#[must_use = "a range reads nothing before `next`"]
pub struct TypedRange<'a, S, K, V> {
    rows: Range<'a, S>,
    table: Table,
    failed: bool,
    types: PhantomData<fn() -> (K, V)>,
}

/// The keys of a [`TypedTable`](crate::TypedTable) in their order, from both ends. After an error
/// the iterator ends.
#[derive(Debug)]
#[must_use = "a range reads nothing before `next`"]
pub struct TypedKeys<'a, S, K> {
    rows: Range<'a, S>,
    table: Table,
    failed: bool,
    types: PhantomData<fn() -> K>,
}

impl<'a, S: Reads, K: Key> TypedKeys<'a, S, K> {
    pub(super) fn new(reader: &'a S, table: &Table, range: impl KeyRange) -> Self {
        let rows = reader.range(table, range).keys();
        TypedKeys { rows, table: table.clone(), failed: false, types: PhantomData }
    }

    fn step(&mut self, back: bool) -> Option<Result<K>> {
        if self.failed {
            return None;
        }
        let row = if back { self.rows.next_row_back() } else { self.rows.next_row() }?;
        let key = row.and_then(|(key, _)| decode_key(&self.table, key));
        self.failed = key.is_err();
        Some(key)
    }
}

impl<S: Reads, K: Key> Iterator for TypedKeys<'_, S, K> {
    type Item = Result<K>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(false)
    }
}

impl<S: Reads, K: Key> DoubleEndedIterator for TypedKeys<'_, S, K> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(true)
    }
}

impl<'a, S: Reads, K: Key, V: Value> TypedRange<'a, S, K, V> {
    pub(super) fn new(reader: &'a S, table: &Table, range: impl KeyRange) -> Self {
        let rows = reader.range(table, range);
        TypedRange { rows, table: table.clone(), failed: false, types: PhantomData }
    }

    fn step(&mut self, back: bool) -> Option<Result<(K, V::Owned)>> {
        if self.failed {
            return None;
        }
        let row = if back { self.rows.next_row_back() } else { self.rows.next_row() }?;
        let row = row.and_then(|(key, value)| {
            Ok((decode_key(&self.table, key)?, decode_value::<V>(&self.table, key, value)?))
        });
        self.failed = row.is_err();
        Some(row)
    }
}

impl<S: Reads, K: Key, V: Value> Iterator for TypedRange<'_, S, K, V> {
    type Item = Result<(K, V::Owned)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(false)
    }
}

impl<S: Reads, K: Key, V: Value> DoubleEndedIterator for TypedRange<'_, S, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(true)
    }
}
