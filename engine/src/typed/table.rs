//! Tables whose keys and values have types.

use super::key::{AsKey, Key};
use super::maintain::Indexes;
use super::prefix::AsPrefix;
use super::range::{KeysIn, TypedKeys, TypedRange, bounds, decode_key, decode_value, encode_value};
use super::value::Value;
use crate::api::{KeyRange, Reads, Table, Transaction, prefix_range};
use crate::base::Result;
use std::borrow::Borrow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// What all handles of a table in a process share.
pub(super) struct Shared<V: Value> {
    pub(super) table: Table,
    pub(super) indexes: Indexes<V>,
}

/// A table with keys of type `K` and values of type `V`, which [`Database::typed_table`] opens.
/// Cloning is cheap, and any thread may use a handle.
///
/// The methods take the transaction or snapshot first. Each change keeps the indexes of the table
/// ([`Database::index`]) as it keeps the row. A key may be given in a borrowed form, such as `&str`
/// for a `String`, and in tuples `("alice", 7)` for a `(String, u64)`.
///
/// ```
/// use quenchdb::{Database, TypedTable};
///
/// # fn main() -> quenchdb::Result<()> {
/// # let db = Database::builder().open_in_memory()?;
/// // Visits by city and day.
/// let visits: TypedTable<(String, u32), u64> = db.typed_table("visits")?;
/// db.transact(|tx| {
///     visits.insert(tx, ("Vienna", 1), &70)?;
///     visits.insert(tx, ("Vienna", 2), &90)?;
///     visits.insert(tx, ("Graz", 2), &40)
/// })?;
/// let snapshot = db.begin_read()?;
/// assert_eq!(visits.get(&snapshot, ("Graz", 2))?, Some(40));
/// assert_eq!(visits.prefix(&snapshot, ("Vienna",)).count(), 2);
/// for row in visits.range(&snapshot, ("Vienna", 2)..) {
///     let ((city, day), count) = row?;
///     assert_eq!((city.as_str(), day, count), ("Vienna", 2, 90));
/// }
/// # Ok(())
/// # }
/// ```
///
/// A row that another program wrote with other types is an error (`InvalidArgument`) that names the
/// key. [`Database::table`] opens the same table without types.
///
/// [`Database::typed_table`]: crate::Database::typed_table
/// [`Database::table`]: crate::Database::table
/// [`Database::index`]: crate::Database::index
pub struct TypedTable<K, V: Value> {
    pub(super) shared: Arc<Shared<V>>,
    pub(super) keys: PhantomData<fn() -> K>,
}

/// The value of a row before a change.
#[derive(Clone, Copy)]
enum Before<'a, T: ?Sized> {
    /// It has not been read.
    NotRead,
    /// It has been read; none if the row did not exist.
    Read(Option<&'a T>),
}

impl<K, V: Value> Clone for TypedTable<K, V> {
    fn clone(&self) -> Self {
        TypedTable { shared: self.shared.clone(), keys: PhantomData }
    }
}

impl<K, V: Value> fmt::Debug for TypedTable<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypedTable").field("name", &self.shared.table.name()).finish_non_exhaustive()
    }
}

/// Reads.
impl<K: Key, V: Value> TypedTable<K, V> {
    /// Returns the same table without types, for reads. A change of its rows that bypasses this
    /// handle does not change the indexes; [`Database::verify`](crate::Database::verify) reports
    /// them then.
    #[must_use]
    pub fn untyped(&self) -> &Table {
        &self.shared.table
    }

    /// Returns the value of `key`.
    ///
    /// # Errors
    /// `InvalidArgument` for a value of another type; as [`Transaction::get`].
    pub fn get(&self, reader: &impl Reads, key: impl AsKey<K>) -> Result<Option<V::Owned>> {
        let (table, key) = (self.untyped(), key.to_key());
        reader.get_with(table, &key, |value| decode_value::<V>(table, &key, value))?.transpose()
    }

    /// Returns whether `key` exists.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn contains_key(&self, reader: &impl Reads, key: impl AsKey<K>) -> Result<bool> {
        reader.contains_key(self.untyped(), key.to_key())
    }

    /// Returns the rows of a range of keys in their order, from both ends.
    pub fn range<'a, S: Reads>(&self, reader: &'a S, range: impl KeysIn<K>) -> TypedRange<'a, S, K, V> {
        TypedRange::new(reader, self.untyped(), bounds(&range))
    }

    /// Returns all rows in the order of their keys, from both ends.
    pub fn iter<'a, S: Reads>(&self, reader: &'a S) -> TypedRange<'a, S, K, V> {
        TypedRange::new(reader, self.untyped(), ..)
    }

    /// Returns the rows whose keys begin with `prefix`: with the first characters of a string, or
    /// with the first parts of a tuple.
    pub fn prefix<'a, S: Reads>(&self, reader: &'a S, prefix: impl AsPrefix<K>) -> TypedRange<'a, S, K, V> {
        TypedRange::new(reader, self.untyped(), prefix_range(&prefix.to_prefix()))
    }

    /// Returns the keys of a range in their order, from both ends. No value is decoded, and of
    /// large ones nothing is read.
    ///
    /// ```
    /// # use quenchdb::{Database, Result, TypedTable};
    /// # let db = Database::builder().open_in_memory()?;
    /// let ages: TypedTable<String, u32> = db.typed_table("ages")?;
    /// db.transact(|tx| {
    ///     ages.insert(tx, "alice", &40)?;
    ///     ages.insert(tx, "bob", &50)
    /// })?;
    /// let snapshot = db.begin_read()?;
    /// let names: Vec<String> = ages.keys(&snapshot, "b"..).collect::<Result<_>>()?;
    /// assert_eq!(names, ["bob"]);
    /// assert_eq!(ages.keys(&snapshot, ..).next_back().transpose()?.as_deref(), Some("bob"));
    /// # Ok::<(), quenchdb::Error>(())
    /// ```
    pub fn keys<'a, S: Reads>(&self, reader: &'a S, range: impl KeysIn<K>) -> TypedKeys<'a, S, K> {
        TypedKeys::new(reader, self.untyped(), bounds(&range))
    }

    /// Returns the row with the lowest key.
    ///
    /// # Errors
    /// As [`TypedTable::get`].
    pub fn first(&self, reader: &impl Reads) -> Result<Option<(K, V::Owned)>> {
        self.iter(reader).next().transpose()
    }

    /// Returns the row with the highest key.
    ///
    /// # Errors
    /// As [`TypedTable::get`].
    pub fn last(&self, reader: &impl Reads) -> Result<Option<(K, V::Owned)>> {
        self.iter(reader).next_back().transpose()
    }

    /// Returns the exact number of rows, which it counts: see
    /// [`Snapshot::len`](crate::Snapshot::len).
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn len(&self, reader: &impl Reads) -> Result<u64> {
        reader.len(self.untyped())
    }

    /// Returns whether the table has no rows.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn is_empty(&self, reader: &impl Reads) -> Result<bool> {
        reader.is_empty(self.untyped())
    }
}

/// Reads that lock.
impl<K: Key, V: Value> TypedTable<K, V> {
    /// Reads `key` and locks the row, whether it exists or not, against other writers until the
    /// transaction ends, as [`Transaction::get_for_update`].
    ///
    /// ```
    /// # use quenchdb::{Database, Locking, TransactionOptions, TypedTable};
    /// # let db = Database::builder().open_in_memory()?;
    /// let seats: TypedTable<u32, u32> = db.typed_table("seats")?;
    /// db.transact(|tx| seats.insert(tx, 1, &3))?;
    /// let waiting = TransactionOptions::new().locking(Locking::Pessimistic);
    /// let left = db.transact_with(waiting, |tx| {
    ///     // Others that want seats of this row wait here.
    ///     let free = seats.get_for_update(tx, 1)?.unwrap_or(0);
    ///     seats.insert(tx, 1, &free.saturating_sub(2))?;
    ///     quenchdb::Result::Ok(free.saturating_sub(2))
    /// })?;
    /// assert_eq!(left, 1);
    /// # Ok::<(), quenchdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::get_for_update`] and [`TypedTable::get`].
    pub fn get_for_update(&self, tx: &mut Transaction, key: impl AsKey<K>) -> Result<Option<V::Owned>> {
        let (table, key) = (self.untyped(), key.to_key());
        let value = tx.get_for_update(table, &key)?;
        value.map(|value| decode_value::<V>(table, &key, &value)).transpose()
    }

    /// Reads `key` and locks the row, whether it exists or not, against changes until the
    /// transaction ends; others may read and lock it in the same way. As
    /// [`Transaction::get_for_share`].
    ///
    /// ```
    /// # use quenchdb::{Database, TypedTable};
    /// # let db = Database::builder().open_in_memory()?;
    /// let prices: TypedTable<String, u64> = db.typed_table("prices")?;
    /// let sold: TypedTable<u64, u64> = db.typed_table("sold")?;
    /// db.transact(|tx| prices.insert(tx, "apple", &30))?;
    /// db.transact(|tx| {
    ///     // The price does not change until this sale is committed.
    ///     let price = prices.get_for_share(tx, "apple")?.unwrap_or(0);
    ///     sold.insert(tx, 1, &price)
    /// })?;
    /// assert_eq!(sold.get(&db.begin_read()?, 1)?, Some(30));
    /// # Ok::<(), quenchdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::get_for_share`] and [`TypedTable::get`].
    pub fn get_for_share(&self, tx: &mut Transaction, key: impl AsKey<K>) -> Result<Option<V::Owned>> {
        let (table, key) = (self.untyped(), key.to_key());
        let value = tx.get_for_share(table, &key)?;
        value.map(|value| decode_value::<V>(table, &key, &value)).transpose()
    }
}

/// Changes. Each keeps the indexes, and is atomic at every isolation.
impl<K: Key, V: Value> TypedTable<K, V> {
    /// Sets `key` to `value`, whether the key exists or not.
    ///
    /// # Errors
    /// `AlreadyExists` if another row has a key of a unique index; `InvalidArgument` if an index
    /// is not open; as [`Transaction::insert`].
    pub fn insert(&self, tx: &mut Transaction, key: impl AsKey<K>, value: &V::Borrowed) -> Result<()> {
        self.put(tx, &key.to_key(), Before::NotRead, value)
    }

    /// Sets `key` to `value` and returns the value before, if there was one.
    ///
    /// # Errors
    /// As [`TypedTable::insert`] and [`TypedTable::get`].
    pub fn replace(
        &self,
        tx: &mut Transaction,
        key: impl AsKey<K>,
        value: &V::Borrowed,
    ) -> Result<Option<V::Owned>> {
        let key = key.to_key();
        let before = self.read_to_change(tx, &key)?;
        self.put(tx, &key, Before::Read(before.as_ref().map(Borrow::borrow)), value)?;
        Ok(before)
    }

    /// Deletes `key`. Returns whether it existed.
    ///
    /// # Errors
    /// As [`TypedTable::insert`].
    pub fn remove(&self, tx: &mut Transaction, key: impl AsKey<K>) -> Result<bool> {
        self.delete(tx, &key.to_key(), Before::NotRead)
    }

    /// Deletes `key` and returns its value, if there was one.
    ///
    /// # Errors
    /// As [`TypedTable::replace`].
    pub fn take(&self, tx: &mut Transaction, key: impl AsKey<K>) -> Result<Option<V::Owned>> {
        let key = key.to_key();
        let before = self.read_to_change(tx, &key)?;
        if let Some(before) = &before {
            self.delete(tx, &key, Before::Read(Some(before.borrow())))?;
        }
        Ok(before)
    }

    /// Calls `f` with the value of `key`, if there is one, and sets `key` to what `f` returns;
    /// `None` deletes the key. Returns the new value.
    ///
    /// ```
    /// # use quenchdb::{Database, TypedTable};
    /// # let db = Database::builder().open_in_memory()?;
    /// let ages: TypedTable<String, u32> = db.typed_table("ages")?;
    /// db.transact(|tx| ages.insert(tx, "alice", &40))?;
    /// let older = db.transact(|tx| ages.update(tx, "alice", |age| age.map(|age| age + 1)))?;
    /// assert_eq!(older, Some(41));
    /// # Ok::<(), quenchdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`TypedTable::replace`].
    pub fn update(
        &self,
        tx: &mut Transaction,
        key: impl AsKey<K>,
        f: impl FnOnce(Option<&V::Borrowed>) -> Option<V::Owned>,
    ) -> Result<Option<V::Owned>> {
        let key = key.to_key();
        let before = self.read_to_change(tx, &key)?;
        let before = before.as_ref().map(Borrow::borrow);
        let after = f(before);
        match &after {
            Some(value) => self.put(tx, &key, Before::Read(before), value.borrow())?,
            None if before.is_some() => drop(self.delete(tx, &key, Before::Read(before))?),
            None => {}
        }
        Ok(after)
    }

    /// Sets `key` to `value` if the key does not exist. Returns whether it did not.
    ///
    /// # Errors
    /// As [`TypedTable::replace`].
    pub fn insert_if_absent(
        &self,
        tx: &mut Transaction,
        key: impl AsKey<K>,
        value: &V::Borrowed,
    ) -> Result<bool> {
        let key = key.to_key();
        let is_absent = tx.read_to_change(self.untyped(), &key)?.is_none();
        if is_absent {
            self.put(tx, &key, Before::Read(None), value)?;
        }
        Ok(is_absent)
    }

    /// Sets `key` to `new` if its value is `expected`, where `None` stands for a key that does not
    /// exist. Returns whether it was. Values are compared as they are stored.
    ///
    /// ```
    /// # use quenchdb::{Database, TypedTable};
    /// # let db = Database::builder().open_in_memory()?;
    /// let owners: TypedTable<u64, String> = db.typed_table("owners")?;
    /// db.transact(|tx| {
    ///     assert!(owners.compare_and_set(tx, 7, None, Some("alice"))?);
    ///     assert!(!owners.compare_and_set(tx, 7, Some("bob"), Some("carol"))?);
    ///     assert!(owners.compare_and_set(tx, 7, Some("alice"), None)?);
    ///     quenchdb::Result::Ok(())
    /// })?;
    /// # Ok::<(), quenchdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`TypedTable::replace`].
    pub fn compare_and_set(
        &self,
        tx: &mut Transaction,
        key: impl AsKey<K>,
        expected: Option<&V::Borrowed>,
        new: Option<&V::Borrowed>,
    ) -> Result<bool> {
        let (table, key) = (self.untyped(), key.to_key());
        let expected = expected.map(|value| encode_value::<V>(table, value)).transpose()?;
        let before = tx.read_to_change(table, &key)?;
        if before != expected {
            return Ok(false);
        }
        let before = before.map(|value| decode_value::<V>(table, &key, &value)).transpose()?;
        let before = before.as_ref().map(Borrow::borrow);
        match new {
            Some(value) => self.put(tx, &key, Before::Read(before), value)?,
            None if before.is_some() => drop(self.delete(tx, &key, Before::Read(before))?),
            None => {}
        }
        Ok(true)
    }

    /// Deletes the row with the lowest key and returns it.
    ///
    /// # Errors
    /// As [`TypedTable::replace`].
    pub fn pop_first(&self, tx: &mut Transaction) -> Result<Option<(K, V::Owned)>> {
        self.pop(tx, false)
    }

    /// Deletes the row with the highest key and returns it.
    ///
    /// # Errors
    /// As [`TypedTable::replace`].
    pub fn pop_last(&self, tx: &mut Transaction) -> Result<Option<(K, V::Owned)>> {
        self.pop(tx, true)
    }

    /// Deletes all rows whose keys are in `range`, and returns their number.
    ///
    /// # Errors
    /// As [`TypedTable::replace`].
    pub fn remove_range(&self, tx: &mut Transaction, range: impl KeysIn<K>) -> Result<u64> {
        self.remove_between(tx, bounds(&range))
    }

    /// Deletes all rows whose keys begin with `prefix`, as [`TypedTable::prefix`] returns them, and
    /// returns their number.
    ///
    /// ```
    /// # use quenchdb::{Database, TypedTable};
    /// # let db = Database::builder().open_in_memory()?;
    /// let visits: TypedTable<(String, u32), u64> = db.typed_table("visits")?;
    /// let removed = db.transact(|tx| {
    ///     visits.insert(tx, ("Vienna", 1), &70)?;
    ///     visits.insert(tx, ("Vienna", 2), &90)?;
    ///     visits.insert(tx, ("Graz", 2), &40)?;
    ///     visits.remove_prefix(tx, ("Vienna",))
    /// })?;
    /// assert_eq!(removed, 2);
    /// # Ok::<(), quenchdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`TypedTable::replace`].
    pub fn remove_prefix(&self, tx: &mut Transaction, prefix: impl AsPrefix<K>) -> Result<u64> {
        self.remove_between(tx, prefix_range(&prefix.to_prefix()))
    }

    /// Deletes all rows, and returns their number.
    ///
    /// # Errors
    /// As [`TypedTable::replace`].
    pub fn clear(&self, tx: &mut Transaction) -> Result<u64> {
        self.remove_between(tx, ..)
    }

    /// Deletes all rows between two bounds, and returns their number.
    pub(super) fn remove_between(&self, tx: &mut Transaction, range: impl KeyRange) -> Result<u64> {
        tx.remove_each(self.untyped(), range, |tx, key| self.delete(tx, key, Before::NotRead))
    }

    fn pop(&self, tx: &mut Transaction, last: bool) -> Result<Option<(K, V::Owned)>> {
        loop {
            let Some(key) = tx.end_key(self.untyped(), last)? else { return Ok(None) };
            // At read committed another transaction may have deleted the row meanwhile.
            let Some(before) = self.read_to_change(tx, &key)? else { continue };
            if self.delete(tx, &key, Before::Read(Some(before.borrow())))? {
                return Ok(Some((decode_key(self.untyped(), &key)?, before)));
            }
        }
    }

    fn read_to_change(&self, tx: &mut Transaction, key: &[u8]) -> Result<Option<V::Owned>> {
        let before = tx.read_to_change(self.untyped(), key)?;
        before.map(|value| decode_value::<V>(self.untyped(), key, &value)).transpose()
    }

    /// Sets `key` to `value`.
    fn put(
        &self,
        tx: &mut Transaction,
        key: &[u8],
        before: Before<'_, V::Borrowed>,
        value: &V::Borrowed,
    ) -> Result<()> {
        let bytes = encode_value::<V>(self.untyped(), value)?;
        self.change(tx, key, before, Some(value), |tx, table| tx.insert(table, key, &bytes))
    }

    /// Deletes `key`. Returns whether it existed.
    fn delete(&self, tx: &mut Transaction, key: &[u8], before: Before<'_, V::Borrowed>) -> Result<bool> {
        self.change(tx, key, before, None, |tx, table| tx.remove(table, key))
    }

    /// Changes a row with `change`, and its entries in all indexes.
    fn change<T>(
        &self,
        tx: &mut Transaction,
        key: &[u8],
        before: Before<'_, V::Borrowed>,
        after: Option<&V::Borrowed>,
        change: impl FnOnce(&mut Transaction, &Table) -> Result<T>,
    ) -> Result<T> {
        let indexes = &self.shared.indexes;
        let current = indexes.current(self.untyped())?;
        let Some(open) = &current.open else {
            let done = change(tx, self.untyped())?;
            return indexes.check(&current, tx).map(|()| done);
        };
        let read;
        let before = match before {
            Before::Read(before) => before,
            Before::NotRead => {
                read = self.read_to_change(tx, key)?;
                read.as_ref().map(Borrow::borrow)
            }
        };
        let plans = open.iter().map(|index| Ok((index, index.plan(tx, key, before, after)?)));
        let plans = plans.collect::<Result<Vec<_>>>()?;
        let done = plans
            .into_iter()
            .try_for_each(|(index, plan)| index.apply(tx, plan))
            .and_then(|()| change(tx, self.untyped()));
        let done = done.inspect_err(|error| tx.can_only_abort(error))?;
        indexes.check(&current, tx).map(|()| done)
    }
}

impl<K: Key> TypedTable<K, i64> {
    /// Adds `delta` to the counter at `key`, which is 0 if the key does not exist, and returns the
    /// sum. As [`Transaction::add`], and keeps the indexes.
    ///
    /// # Errors
    /// `InvalidArgument` if the sum is no `i64`; as [`TypedTable::replace`].
    pub fn add(&self, tx: &mut Transaction, key: impl AsKey<K>, delta: i64) -> Result<i64> {
        let key = key.to_key();
        let before = self.read_to_change(tx, &key)?;
        let sum = crate::api::sum_of(self.untyped(), before.unwrap_or(0), delta)?;
        self.put(tx, &key, Before::Read(before.as_ref()), &sum)?;
        Ok(sum)
    }
}
