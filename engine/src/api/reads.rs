//! Reading: the same methods for transactions and snapshots.

use super::range::{KeyRange, Range, Row, Source, prefix_range};
use super::snapshot::Snapshot;
use super::table::Table;
use super::transaction::Transaction;
use super::value::ValueReader;
use crate::base::Result;
use std::cell::Cell;

/// A longer buffer is not kept for the next read of the thread.
const KEPT_BYTES_MAX: usize = 64 << 10;

thread_local! {
    /// A buffer for values that the caller only looks at.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Calls `f` with the buffer of the thread. `f` may do the same again, and gets another buffer.
fn with_buffer<T>(f: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    let mut buffer = BUFFER.try_with(Cell::take).unwrap_or_default();
    let result = f(&mut buffer);
    if buffer.capacity() <= KEPT_BYTES_MAX {
        let _ = BUFFER.try_with(|kept| kept.set(buffer));
    }
    result
}

/// Defines the methods once: in the trait [`Reads`], and in each type as methods that call those of
/// the trait.
macro_rules! reads {
    (
        @trait $(#[$about:meta])*;
        $(
            $(#[$doc:meta])*
            fn $name:ident $([$generic:ident $($bound:tt)*])? ($reader:ident $(, $arg:ident: $arg_type:ty)*)
                -> $result:ty $body:block
        )*
    ) => {
        $(#[$about])*
        pub trait Reads: Source + Sized {
            $(
                $(#[$doc])*
                fn $name$(<$generic $($bound)*>)?(&self $(, $arg: $arg_type)*) -> $result {
                    let $reader = self;
                    $body
                }
            )*
        }
    };
    (
        @type $type:ident;
        $(
            $(#[$doc:meta])*
            fn $name:ident $([$generic:ident $($bound:tt)*])? ($reader:ident $(, $arg:ident: $arg_type:ty)*)
                -> $result:ty $body:block
        )*
    ) => {
        impl Reads for $type {}

        impl $type {
            $(
                $(#[$doc])*
                pub fn $name$(<$generic $($bound)*>)?(&self $(, $arg: $arg_type)*) -> $result {
                    Reads::$name(self $(, $arg)*)
                }
            )*
        }
    };
    ($(#[$about:meta])* for $first:ident and $second:ident; $($methods:tt)*) => {
        reads! { @trait $(#[$about])*; $($methods)* }
        reads! { @type $first; $($methods)* }
        reads! { @type $second; $($methods)* }
    };
}

reads! {
    /// What a [`Transaction`] and a [`Snapshot`] have in common. A function that reads from either
    /// takes `&impl Reads`. Elsewhere the trait need not be imported, because both types have these
    /// methods themselves.
    ///
    /// ```
    /// use quenchdb::{Database, Reads, Result, Table};
    ///
    /// fn total(reader: &impl Reads, table: &Table) -> Result<usize> {
    ///     reader.iter(table).map(|row| Ok(row?.1.len())).sum()
    /// }
    ///
    /// # fn main() -> Result<()> {
    /// let db = Database::builder().open_in_memory()?;
    /// let table = db.create_table("letters")?;
    /// db.transact(|tx| {
    ///     tx.insert(&table, "alice", "hello")?;
    ///     assert_eq!(total(tx, &table)?, 5);
    ///     tx.insert(&table, "bob", "bye")
    /// })?;
    /// assert_eq!(total(&db.begin_read()?, &table)?, 8);
    /// # Ok(())
    /// # }
    /// ```
    for Transaction and Snapshot;

    /// Returns the value of `key`; in a transaction, own changes included.
    ///
    /// ```
    /// # use quenchdb::Database;
    /// # let db = Database::builder().open_in_memory()?;
    /// # let table = db.create_table("words")?;
    /// # db.transact(|tx| [("ant", "1"), ("bee", "22")].into_iter().try_for_each(|(key, value)| tx.insert(&table, key, value)))?;
    /// let snapshot = db.begin_read()?;
    /// assert_eq!(snapshot.get(&table, "bee")?.as_deref(), Some(&b"22"[..]));
    /// assert_eq!(snapshot.get(&table, "cat")?, None);
    /// # Ok::<(), quenchdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` for a bad key, or if the database was closed and the pages of a snapshot
    /// have moved; `NotFound` for a dropped table; `Poisoned` where the answer of a snapshot could
    /// still be lost; `Deadlock` and `LockTimeout` in a transaction whose reads lock; I/O;
    /// `Corruption`.
    fn get(reader, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(reader.read(table, key.as_ref(), &mut value)?.then_some(value))
    }

    /// Reads `key` into a buffer that the caller reuses. Returns whether the key exists.
    ///
    /// ```
    /// # use quenchdb::Database;
    /// # let db = Database::builder().open_in_memory()?;
    /// # let table = db.create_table("words")?;
    /// # db.transact(|tx| [("ant", "1"), ("bee", "22")].into_iter().try_for_each(|(key, value)| tx.insert(&table, key, value)))?;
    /// let snapshot = db.begin_read()?;
    /// let mut value = Vec::new();
    /// assert!(snapshot.get_into(&table, "bee", &mut value)?);
    /// assert_eq!(value, b"22");
    /// # Ok::<(), quenchdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `get`.
    fn get_into(reader, table: &Table, key: impl AsRef<[u8]>, value: &mut Vec<u8>) -> Result<bool> {
        reader.read(table, key.as_ref(), value)
    }

    /// Calls `f` with the value of `key`, if the key exists, and returns what `f` returns.
    /// Allocates nothing for values up to 64 KiB: the value is in a buffer of the thread, not in
    /// the page, so `f` may take its time and use the database.
    ///
    /// ```
    /// # use quenchdb::Database;
    /// # let db = Database::builder().open_in_memory()?;
    /// # let table = db.create_table("words")?;
    /// # db.transact(|tx| [("ant", "1"), ("bee", "22")].into_iter().try_for_each(|(key, value)| tx.insert(&table, key, value)))?;
    /// let snapshot = db.begin_read()?;
    /// assert_eq!(snapshot.get_with(&table, "bee", |value| value.len())?, Some(2));
    /// assert_eq!(snapshot.get_with(&table, "cat", |value| value.len())?, None);
    /// # Ok::<(), quenchdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `get`.
    fn get_with[T](reader, table: &Table, key: impl AsRef<[u8]>, f: impl FnOnce(&[u8]) -> T)
        -> Result<Option<T>>
    {
        with_buffer(|buffer| Ok(reader.read(table, key.as_ref(), buffer)?.then(|| f(buffer))))
    }

    /// Returns whether `key` exists. Of a large value nothing is read.
    ///
    /// ```
    /// # use quenchdb::Database;
    /// # let db = Database::builder().open_in_memory()?;
    /// # let table = db.create_table("words")?;
    /// # db.transact(|tx| [("ant", "1"), ("bee", "22")].into_iter().try_for_each(|(key, value)| tx.insert(&table, key, value)))?;
    /// let snapshot = db.begin_read()?;
    /// assert!(snapshot.contains_key(&table, "bee")?);
    /// assert!(!snapshot.contains_key(&table, "cat")?);
    /// # Ok::<(), quenchdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `get`.
    fn contains_key(reader, table: &Table, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(reader.open(table, key.as_ref())?.is_some())
    }

    /// Opens the value of `key` to be read piece by piece. A transaction cannot write while the
    /// reader lives.
    ///
    /// ```
    /// # use quenchdb::Database;
    /// # let db = Database::builder().open_in_memory()?;
    /// # let table = db.create_table("words")?;
    /// # db.transact(|tx| [("ant", "1"), ("bee", "22")].into_iter().try_for_each(|(key, value)| tx.insert(&table, key, value)))?;
    /// let snapshot = db.begin_read()?;
    /// let mut value = snapshot.read_value(&table, "bee")?.expect("the key exists");
    /// let mut first = [0];
    /// assert_eq!((value.len(), value.read_at(0, &mut first)?), (2, 1));
    /// assert_eq!(first, *b"2");
    /// # Ok::<(), quenchdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `get`.
    fn read_value(reader, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<ValueReader<'_>>> {
        Ok(reader.open(table, key.as_ref())?.map(ValueReader::new))
    }

    /// Brings the pages of rows that are about to be read or written into memory, many at once
    /// instead of one after the other. The rows need not exist. Worth it with data larger than
    /// memory; has no other effect.
    ///
    /// ```
    /// # use quenchdb::Database;
    /// # let db = Database::builder().open_in_memory()?;
    /// # let table = db.create_table("words")?;
    /// # db.transact(|tx| [("ant", "1"), ("bee", "22")].into_iter().try_for_each(|(key, value)| tx.insert(&table, key, value)))?;
    /// let snapshot = db.begin_read()?;
    /// snapshot.prefetch(&table, ["ant", "bee"])?;
    /// # Ok::<(), quenchdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `get`.
    fn prefetch[K: AsRef<[u8]>](reader, table: &Table, keys: impl IntoIterator<Item = K>) -> Result<()> {
        let keys: Vec<K> = keys.into_iter().collect();
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        reader.prefetch_keys(table, &keys)
    }

    /// Returns the rows whose keys are in `range`, in the order of the keys, from both ends. An
    /// empty or inverted range has none. [`Range::next_row`] copies less than the iterator.
    ///
    /// ```
    /// # use quenchdb::Database;
    /// # let db = Database::builder().open_in_memory()?;
    /// # let table = db.create_table("words")?;
    /// # db.transact(|tx| [("ant", "1"), ("bee", "22")].into_iter().try_for_each(|(key, value)| tx.insert(&table, key, value)))?;
    /// let snapshot = db.begin_read()?;
    /// for row in snapshot.range(&table, "a".."b") {
    ///     let (key, value) = row?;
    ///     assert_eq!((&key[..], &value[..]), (&b"ant"[..], &b"1"[..]));
    /// }
    /// assert_eq!(snapshot.range(&table, ..).rev().count(), 2);
    /// # Ok::<(), quenchdb::Error>(())
    /// ```
    fn range(reader, table: &Table, range: impl KeyRange) -> Range<'_, Self> {
        Range::new(reader, table, range)
    }

    /// Calls `f` with key and value of each row in `range`, in the order of the keys. That is the
    /// fastest way to read many rows: key and value are borrowed from a copy of the leaf. So `f`
    /// may take its time and use the database. Ends with the first error of `f`.
    ///
    /// ```
    /// # use quenchdb::Database;
    /// # let db = Database::builder().open_in_memory()?;
    /// # let table = db.create_table("words")?;
    /// # db.transact(|tx| [("ant", "1"), ("bee", "22")].into_iter().try_for_each(|(key, value)| tx.insert(&table, key, value)))?;
    /// let (snapshot, mut bytes) = (db.begin_read()?, 0);
    /// snapshot.for_each(&table, .., |key, value| {
    ///     bytes += key.len() + value.len();
    ///     Ok(())
    /// })?;
    /// assert_eq!(bytes, 9);
    /// # Ok::<(), quenchdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `get`; those of `f`.
    fn for_each(
        reader,
        table: &Table,
        range: impl KeyRange,
        f: impl FnMut(&[u8], &[u8]) -> Result<()>
    ) -> Result<()> {
        Range::new(reader, table, range).visit(f)
    }

    /// Returns all rows of the table in the order of their keys, from both ends.
    ///
    /// ```
    /// # use quenchdb::Database;
    /// # let db = Database::builder().open_in_memory()?;
    /// # let table = db.create_table("words")?;
    /// # db.transact(|tx| [("ant", "1"), ("bee", "22")].into_iter().try_for_each(|(key, value)| tx.insert(&table, key, value)))?;
    /// let snapshot = db.begin_read()?;
    /// let keys: Vec<_> = snapshot.iter(&table).map(|row| Ok(row?.0)).collect::<quenchdb::Result<_>>()?;
    /// assert_eq!(keys, [b"ant", b"bee"]);
    /// # Ok::<(), quenchdb::Error>(())
    /// ```
    fn iter(reader, table: &Table) -> Range<'_, Self> {
        Range::new(reader, table, ..)
    }

    /// Returns the rows whose keys begin with `prefix`, in the order of the keys, from both ends.
    ///
    /// ```
    /// # use quenchdb::Database;
    /// # let db = Database::builder().open_in_memory()?;
    /// # let table = db.create_table("words")?;
    /// # db.transact(|tx| [("user:1", "ann"), ("user:2", "bob"), ("vat", "19")].into_iter().try_for_each(|(key, value)| tx.insert(&table, key, value)))?;
    /// let snapshot = db.begin_read()?;
    /// assert_eq!(snapshot.prefix(&table, "user:").count(), 2);
    /// # Ok::<(), quenchdb::Error>(())
    /// ```
    fn prefix(reader, table: &Table, prefix: impl AsRef<[u8]>) -> Range<'_, Self> {
        Range::new(reader, table, prefix_range(prefix.as_ref()))
    }

    /// Returns the row with the lowest key.
    ///
    /// ```
    /// # use quenchdb::Database;
    /// # let db = Database::builder().open_in_memory()?;
    /// # let table = db.create_table("words")?;
    /// # db.transact(|tx| [("ant", "1"), ("bee", "22")].into_iter().try_for_each(|(key, value)| tx.insert(&table, key, value)))?;
    /// let snapshot = db.begin_read()?;
    /// assert_eq!(snapshot.first(&table)?, Some((b"ant".to_vec(), b"1".to_vec())));
    /// # Ok::<(), quenchdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `get`.
    fn first(reader, table: &Table) -> Result<Option<Row>> {
        Range::new(reader, table, ..).next().transpose()
    }

    /// Returns the row with the highest key.
    ///
    /// ```
    /// # use quenchdb::Database;
    /// # let db = Database::builder().open_in_memory()?;
    /// # let table = db.create_table("words")?;
    /// # db.transact(|tx| [("ant", "1"), ("bee", "22")].into_iter().try_for_each(|(key, value)| tx.insert(&table, key, value)))?;
    /// let snapshot = db.begin_read()?;
    /// assert_eq!(snapshot.last(&table)?, Some((b"bee".to_vec(), b"22".to_vec())));
    /// # Ok::<(), quenchdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `get`.
    fn last(reader, table: &Table) -> Result<Option<Row>> {
        Range::new(reader, table, ..).next_back().transpose()
    }

    /// Returns the exact number of rows. Counts them: reads every leaf of the table, but no large
    /// value. That takes about as long as a scan with [`Range::next_row`]; an application that
    /// needs the number often should keep it in a row ([`Transaction::add`]).
    ///
    /// ```
    /// # use quenchdb::Database;
    /// # let db = Database::builder().open_in_memory()?;
    /// # let table = db.create_table("words")?;
    /// # db.transact(|tx| [("ant", "1"), ("bee", "22")].into_iter().try_for_each(|(key, value)| tx.insert(&table, key, value)))?;
    /// let snapshot = db.begin_read()?;
    /// assert_eq!(snapshot.len(&table)?, 2);
    /// # Ok::<(), quenchdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `get`.
    fn len(reader, table: &Table) -> Result<u64> {
        let mut count = 0;
        Range::new(reader, table, ..).keys().visit(|_, _| {
            count += 1;
            Ok(())
        })?;
        Ok(count)
    }

    /// Returns whether the table has no rows. Reads one leaf, unless many rows were just deleted.
    ///
    /// ```
    /// # use quenchdb::Database;
    /// # let db = Database::builder().open_in_memory()?;
    /// # let table = db.create_table("words")?;
    /// # db.transact(|tx| [("ant", "1"), ("bee", "22")].into_iter().try_for_each(|(key, value)| tx.insert(&table, key, value)))?;
    /// let snapshot = db.begin_read()?;
    /// assert!(!snapshot.is_empty(&table)?);
    /// # Ok::<(), quenchdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `get`.
    fn is_empty(reader, table: &Table) -> Result<bool> {
        Ok(Range::new(reader, table, ..).keys().next_row().transpose()?.is_none())
    }
}
