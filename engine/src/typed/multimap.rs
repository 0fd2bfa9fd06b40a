//! Keys with several values.

use super::key::{AsKey, Key};
use super::range::TypedRange;
use super::table::TypedTable;
use crate::api::{Reads, Transaction, prefix_range};
use crate::base::Result;
use std::fmt;

/// A table in which a key has any number of different values, in order; [`Database::multimap`]
/// opens it. Each pair of key and value is a row, so both together are at most
/// [`Database::max_key_bytes`] long.
///
/// ```
/// use quenchdb::{Database, Multimap};
///
/// # fn main() -> quenchdb::Result<()> {
/// # let db = Database::builder().open_in_memory()?;
/// let tags: Multimap<String, String> = db.multimap("tags")?;
/// db.transact(|tx| {
///     tags.insert(tx, "photo 1", "sea")?;
///     tags.insert(tx, "photo 1", "beach")?;
///     tags.insert(tx, "photo 2", "sea")
/// })?;
/// let snapshot = db.begin_read()?;
/// let first: Vec<String> = tags.get(&snapshot, "photo 1").collect::<quenchdb::Result<_>>()?;
/// assert_eq!(first, ["beach", "sea"]);
/// assert!(tags.contains(&snapshot, "photo 2", "sea")?);
/// # Ok(())
/// # }
/// ```
///
/// [`Database::multimap`]: crate::Database::multimap
/// [`Database::max_key_bytes`]: crate::Database::max_key_bytes
pub struct Multimap<K, V> {
    pub(super) pairs: TypedTable<(K, V), ()>,
}

impl<K, V> Clone for Multimap<K, V> {
    fn clone(&self) -> Self {
        Multimap { pairs: self.pairs.clone() }
    }
}

impl<K, V> fmt::Debug for Multimap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Multimap").field("pairs", &self.pairs).finish()
    }
}

impl<K: Key, V: Key> Multimap<K, V> {
    /// Adds a value to `key`. Returns whether the key did not have it.
    ///
    /// # Errors
    /// As [`TypedTable::replace`].
    pub fn insert(&self, tx: &mut Transaction, key: impl AsKey<K>, value: impl AsKey<V>) -> Result<bool> {
        self.pairs.insert_if_absent(tx, (key, value), &())
    }

    /// Removes a value of `key`. Returns whether the key had it.
    ///
    /// # Errors
    /// As [`TypedTable::remove`].
    pub fn remove(&self, tx: &mut Transaction, key: impl AsKey<K>, value: impl AsKey<V>) -> Result<bool> {
        self.pairs.remove(tx, (key, value))
    }

    /// Removes all values of `key`, and returns their number.
    ///
    /// # Errors
    /// As [`TypedTable::remove`].
    pub fn remove_all(&self, tx: &mut Transaction, key: impl AsKey<K>) -> Result<u64> {
        self.pairs.remove_between(tx, prefix_range(&part(&key)))
    }

    /// Returns whether `key` has the value.
    ///
    /// # Errors
    /// As [`TypedTable::get`].
    pub fn contains(&self, reader: &impl Reads, key: impl AsKey<K>, value: impl AsKey<V>) -> Result<bool> {
        self.pairs.contains_key(reader, (key, value))
    }

    /// Returns the values of `key` in order, from both ends.
    pub fn get<'a, S: Reads, Q: AsKey<K>>(
        &self,
        reader: &'a S,
        key: Q,
    ) -> impl DoubleEndedIterator<Item = Result<V>> + use<'a, S, Q, K, V> {
        let range = prefix_range(&part(&key));
        let pairs: TypedRange<'a, _, (K, V), ()> = TypedRange::new(reader, self.pairs.untyped(), range);
        pairs.map(|pair| Ok(pair?.0.1))
    }

    /// Returns all pairs of a key and a value in order, from both ends.
    pub fn iter<'a, S: Reads>(
        &self,
        reader: &'a S,
    ) -> impl DoubleEndedIterator<Item = Result<(K, V)>> + use<'a, S, K, V> {
        self.pairs.iter(reader).map(|pair| Ok(pair?.0))
    }

    /// Returns the exact number of pairs, which it counts.
    ///
    /// # Errors
    /// As [`TypedTable::get`].
    pub fn len(&self, reader: &impl Reads) -> Result<u64> {
        self.pairs.len(reader)
    }

    /// Returns whether there is no pair.
    ///
    /// # Errors
    /// As [`TypedTable::get`].
    pub fn is_empty(&self, reader: &impl Reads) -> Result<bool> {
        self.pairs.is_empty(reader)
    }
}

fn part<K>(key: &impl AsKey<K>) -> Vec<u8> {
    let mut bytes = Vec::new();
    key.encode_part(&mut bytes);
    bytes
}
