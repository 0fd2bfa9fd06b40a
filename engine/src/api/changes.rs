//! Changes that are composed of a read and a write. Each is atomic at every isolation: the row does
//! not change in between.

use super::range::{KeyRange, Range, Row, prefix_range};
use super::table::Table;
use super::transaction::Transaction;
use crate::base::{Error, Location, Result};
use std::ops::Bound;

/// Keys that are collected before their rows are removed.
const KEYS_AT_ONCE: usize = 1024;

/// Returns the new value of a counter.
///
/// # Errors
/// `InvalidArgument` if it is no `i64`.
pub(crate) fn sum_of(table: &Table, before: i64, delta: i64) -> Result<i64> {
    before.checked_add(delta).ok_or_else(|| {
        Error::invalid(format!("the counter would leave the range of i64: {before} + {delta}"))
            .at(Location::Table(table.name().to_string()))
    })
}

impl Transaction {
    /// Sets `key` to `value` and returns the value before, if there was one.
    ///
    /// ```
    /// # use quenchdb::Database;
    /// # let db = Database::builder().open_in_memory()?;
    /// # let table = db.create_table("words")?;
    /// # let mut tx = db.begin()?;
    /// assert_eq!(tx.replace(&table, "ant", "1")?, None);
    /// assert_eq!(tx.replace(&table, "ant", "2")?, Some(b"1".to_vec()));
    /// # Ok::<(), quenchdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::insert`] and [`Transaction::get`].
    pub fn replace(
        &mut self,
        table: &Table,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<Option<Vec<u8>>> {
        let before = self.read_to_change(table, key.as_ref())?;
        self.insert(table, key, value)?;
        Ok(before)
    }

    /// Deletes `key` and returns its value, if there was one.
    ///
    /// ```
    /// # use quenchdb::Database;
    /// # let db = Database::builder().open_in_memory()?;
    /// # let table = db.create_table("words")?;
    /// # let mut tx = db.begin()?;
    /// # [("ant", "1"), ("bee", "22")].into_iter().try_for_each(|(key, value)| tx.insert(&table, key, value))?;
    /// assert_eq!(tx.take(&table, "ant")?, Some(b"1".to_vec()));
    /// assert_eq!(tx.take(&table, "ant")?, None);
    /// # Ok::<(), quenchdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::replace`].
    pub fn take(&mut self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let before = self.read_to_change(table, key.as_ref())?;
        if before.is_some() {
            self.remove(table, key)?;
        }
        Ok(before)
    }

    /// Calls `f` with the value of `key`, if there is one, and sets `key` to what `f` returns;
    /// `None` deletes the key. Returns the new value.
    ///
    /// ```
    /// # use quenchdb::Database;
    /// # let db = Database::builder().open_in_memory()?;
    /// # let table = db.create_table("words")?;
    /// # let mut tx = db.begin()?;
    /// # [("ant", "1"), ("bee", "22")].into_iter().try_for_each(|(key, value)| tx.insert(&table, key, value))?;
    /// let longer = tx.update(&table, "ant", |value| Some([value.unwrap_or_default(), b"!"].concat()))?;
    /// assert_eq!(longer, Some(b"1!".to_vec()));
    /// # Ok::<(), quenchdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::replace`].
    pub fn update<V: AsRef<[u8]>>(
        &mut self,
        table: &Table,
        key: impl AsRef<[u8]>,
        f: impl FnOnce(Option<&[u8]>) -> Option<V>,
    ) -> Result<Option<V>> {
        let before = self.read_to_change(table, key.as_ref())?;
        let after = f(before.as_deref());
        match &after {
            Some(value) => self.insert(table, key, value)?,
            None if before.is_some() => drop(self.remove(table, key)?),
            None => {}
        }
        Ok(after)
    }

    /// Sets `key` to `value` if the key does not exist. Returns whether it did not.
    ///
    /// ```
    /// # use quenchdb::Database;
    /// # let db = Database::builder().open_in_memory()?;
    /// # let table = db.create_table("words")?;
    /// # let mut tx = db.begin()?;
    /// # [("ant", "1"), ("bee", "22")].into_iter().try_for_each(|(key, value)| tx.insert(&table, key, value))?;
    /// assert!(!tx.insert_if_absent(&table, "ant", "2")?);
    /// assert!(tx.insert_if_absent(&table, "cat", "2")?);
    /// # Ok::<(), quenchdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::replace`].
    pub fn insert_if_absent(
        &mut self,
        table: &Table,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<bool> {
        let is_absent = self.read_to_change(table, key.as_ref())?.is_none();
        if is_absent {
            self.insert(table, key, value)?;
        }
        Ok(is_absent)
    }

    /// Sets `key` to `new` if its value is `expected`, where `None` stands for a key that does not
    /// exist. Returns whether it was.
    ///
    /// ```
    /// # use quenchdb::Database;
    /// # let db = Database::builder().open_in_memory()?;
    /// # let table = db.create_table("words")?;
    /// # let mut tx = db.begin()?;
    /// # [("ant", "1"), ("bee", "22")].into_iter().try_for_each(|(key, value)| tx.insert(&table, key, value))?;
    /// assert!(tx.compare_and_set(&table, "ant", Some(b"1"), Some(b"2"))?);
    /// assert!(!tx.compare_and_set(&table, "ant", Some(b"1"), None)?);
    /// assert!(tx.compare_and_set(&table, "cat", None, Some(b"3"))?);
    /// # Ok::<(), quenchdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::replace`].
    pub fn compare_and_set(
        &mut self,
        table: &Table,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool> {
        let is_expected = self.read_to_change(table, key.as_ref())?.as_deref() == expected;
        match new {
            Some(value) if is_expected => self.insert(table, key, value)?,
            None if is_expected && expected.is_some() => drop(self.remove(table, key)?),
            _ => {}
        }
        Ok(is_expected)
    }

    /// Adds `delta` to the counter at `key`, which is 0 if the key does not exist, and returns the
    /// sum. A counter is a value of 8 bytes: an `i64`, big-endian ([`i64::to_be_bytes`]).
    ///
    /// Transactions that add to one counter at a time run one after the other; the later ones get
    /// a conflict, after which [`Database::transact`](crate::Database::transact) repeats them.
    ///
    /// ```
    /// # use quenchdb::Database;
    /// # let db = Database::builder().open_in_memory()?;
    /// # let table = db.create_table("words")?;
    /// # let mut tx = db.begin()?;
    /// assert_eq!(tx.add(&table, "visits", 2)?, 2);
    /// assert_eq!(tx.add(&table, "visits", -1)?, 1);
    /// # Ok::<(), quenchdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if the value is not a counter, or if the sum is no `i64`: then the row is
    /// unchanged. As [`Transaction::replace`].
    pub fn add(&mut self, table: &Table, key: impl AsRef<[u8]>, delta: i64) -> Result<i64> {
        let before = self.read_to_change(table, key.as_ref())?;
        let before = match before.as_deref().map(<[u8; 8]>::try_from) {
            None => 0,
            Some(Ok(bytes)) => i64::from_be_bytes(bytes),
            Some(Err(_)) => {
                let len = before.map_or(0, |value| value.len());
                let what = format!("a counter is a value of 8 bytes, this one has {len}");
                return Err(Error::invalid(what).at(Location::Table(table.name().to_string())));
            }
        };
        let sum = sum_of(table, before, delta)?;
        self.insert(table, key, sum.to_be_bytes())?;
        Ok(sum)
    }

    /// Deletes the row with the lowest key and returns it.
    ///
    /// ```
    /// # use quenchdb::Database;
    /// # let db = Database::builder().open_in_memory()?;
    /// # let table = db.create_table("words")?;
    /// # let mut tx = db.begin()?;
    /// # [("ant", "1"), ("bee", "22")].into_iter().try_for_each(|(key, value)| tx.insert(&table, key, value))?;
    /// assert_eq!(tx.pop_first(&table)?, Some((b"ant".to_vec(), b"1".to_vec())));
    /// assert_eq!(tx.len(&table)?, 1);
    /// # Ok::<(), quenchdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::replace`].
    pub fn pop_first(&mut self, table: &Table) -> Result<Option<Row>> {
        self.pop(table, false)
    }

    /// Deletes the row with the highest key and returns it.
    ///
    /// ```
    /// # use quenchdb::Database;
    /// # let db = Database::builder().open_in_memory()?;
    /// # let table = db.create_table("words")?;
    /// # let mut tx = db.begin()?;
    /// # [("ant", "1"), ("bee", "22")].into_iter().try_for_each(|(key, value)| tx.insert(&table, key, value))?;
    /// assert_eq!(tx.pop_last(&table)?, Some((b"bee".to_vec(), b"22".to_vec())));
    /// # Ok::<(), quenchdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::replace`].
    pub fn pop_last(&mut self, table: &Table) -> Result<Option<Row>> {
        self.pop(table, true)
    }

    fn pop(&mut self, table: &Table, last: bool) -> Result<Option<Row>> {
        loop {
            let Some(key) = self.end_key(table, last)? else { return Ok(None) };
            // At read committed another transaction may have deleted the row meanwhile.
            if let Some(value) = self.take(table, &key)? {
                return Ok(Some((key, value)));
            }
        }
    }

    /// Returns the lowest or the highest key.
    pub(crate) fn end_key(&self, table: &Table, last: bool) -> Result<Option<Vec<u8>>> {
        let mut rows = Range::new(self, table, ..).keys();
        let row = if last { rows.next_row_back() } else { rows.next_row() };
        Ok(row.transpose()?.map(|(key, _)| key.to_vec()))
    }

    /// Returns the first keys of a range, at most `most`.
    pub(crate) fn keys_at_most(
        &self,
        table: &Table,
        range: impl KeyRange,
        most: usize,
    ) -> Result<Vec<Vec<u8>>> {
        let (mut rows, mut keys) = (Range::new(self, table, range).keys(), Vec::new());
        while keys.len() < most
            && let Some((key, _)) = rows.next_row().transpose()?
        {
            keys.push(key.to_vec());
        }
        Ok(keys)
    }

    /// Deletes all rows whose keys are in `range`, and returns their number. Takes the time, the
    /// log and the memory of deleting each row.
    ///
    /// ```
    /// # use quenchdb::Database;
    /// # let db = Database::builder().open_in_memory()?;
    /// # let table = db.create_table("words")?;
    /// # let mut tx = db.begin()?;
    /// # [("ant", "1"), ("bee", "22")].into_iter().try_for_each(|(key, value)| tx.insert(&table, key, value))?;
    /// assert_eq!(tx.remove_range(&table, "b"..)?, 1);
    /// assert!(tx.contains_key(&table, "ant")?);
    /// # Ok::<(), quenchdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::insert`] and [`Transaction::get`].
    pub fn remove_range(&mut self, table: &Table, range: impl KeyRange) -> Result<u64> {
        self.remove_each(table, range, |tx, key| tx.remove(table, key))
    }

    /// Calls `remove` with each key in `range`. Returns how often it returned true.
    pub(crate) fn remove_each(
        &mut self,
        table: &Table,
        range: impl KeyRange,
        mut remove: impl FnMut(&mut Transaction, &[u8]) -> Result<bool>,
    ) -> Result<u64> {
        let own = |bound: Bound<&[u8]>| bound.map(<[u8]>::to_vec);
        let (mut from, to) = (own(range.lower()), own(range.upper()));
        let mut removed = 0;
        loop {
            let mut keys = self.keys_at_most(table, (from, to.clone()), KEYS_AT_ONCE)?;
            for key in &keys {
                removed += u64::from(remove(self, key)?);
            }
            let Some(last) = keys.pop() else { return Ok(removed) };
            from = Bound::Excluded(last);
        }
    }

    /// Deletes all rows whose keys begin with `prefix`, and returns their number, as
    /// [`Transaction::remove_range`].
    ///
    /// ```
    /// # use quenchdb::Database;
    /// # let db = Database::builder().open_in_memory()?;
    /// # let table = db.create_table("words")?;
    /// # let mut tx = db.begin()?;
    /// # [("ant", "1"), ("bee", "22")].into_iter().try_for_each(|(key, value)| tx.insert(&table, key, value))?;
    /// assert_eq!(tx.remove_prefix(&table, "an")?, 1);
    /// # Ok::<(), quenchdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::remove_range`].
    pub fn remove_prefix(&mut self, table: &Table, prefix: impl AsRef<[u8]>) -> Result<u64> {
        self.remove_range(table, prefix_range(prefix.as_ref()))
    }

    /// Deletes all rows of the table, and returns their number, as [`Transaction::remove_range`].
    /// [`Database::clear_table`](crate::Database::clear_table) takes the same time for every table,
    /// but cannot be part of a transaction.
    ///
    /// ```
    /// # use quenchdb::Database;
    /// # let db = Database::builder().open_in_memory()?;
    /// # let table = db.create_table("words")?;
    /// # let mut tx = db.begin()?;
    /// # [("ant", "1"), ("bee", "22")].into_iter().try_for_each(|(key, value)| tx.insert(&table, key, value))?;
    /// assert_eq!(tx.clear(&table)?, 2);
    /// assert!(tx.is_empty(&table)?);
    /// # Ok::<(), quenchdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::remove_range`].
    pub fn clear(&mut self, table: &Table) -> Result<u64> {
        self.remove_range(table, ..)
    }
}
