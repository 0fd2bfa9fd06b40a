//! Ranges of keys, and the rows in them.

use super::table::Table;
use crate::base::Result;
use crate::transaction::{OpenValue, RangeCursor};
use std::ops::{Bound, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// A key and its value.
pub type Row = (Vec<u8>, Vec<u8>);

/// The reads that a transaction and a snapshot have in common.
pub trait Source {
    /// Reads `key` into `value`. Returns whether the key exists.
    fn read(&self, table: &Table, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;
    /// Opens the value of `key`, if the key exists.
    fn open(&self, table: &Table, key: &[u8]) -> Result<Option<OpenValue>>;
    /// Reads the pages of `keys` ahead.
    fn prefetch_keys(&self, table: &Table, keys: &[&[u8]]) -> Result<()>;
    /// Moves a cursor to its next row, with `back` from the upper end. Returns false at the end.
    fn step(&self, cursor: &mut RangeCursor, back: bool) -> Result<bool>;
    /// Calls `each` with rows behind the current one that a cursor that reads forward has copied,
    /// as far as nothing has to be noted for reading them.
    fn visit_copied(
        &self,
        cursor: &mut RangeCursor,
        each: impl FnMut(&[u8], &[u8]) -> Result<()>,
    ) -> Result<()>;
}

/// A range of keys: any of Rust's ranges over keys, such as `..`, `"a".."b"`, `&key[..]..` and
/// `(Bound<K>, Bound<K>)`, where a key is anything that is [`AsRef<[u8]>`](AsRef).
///
/// ```
/// # use quenchdb::Database;
/// # let db = Database::builder().open_in_memory()?;
/// # let table = db.create_table("words")?;
/// # db.transact(|tx| ["ant", "bee", "cat"].iter().try_for_each(|key| tx.insert(&table, key, "")))?;
/// let snapshot = db.begin_read()?;
/// assert_eq!(snapshot.range(&table, ..).count(), 3);
/// assert_eq!(snapshot.range(&table, "ant".."bee").count(), 1);
/// assert_eq!(snapshot.range(&table, "ant"..="bee").count(), 2);
/// assert_eq!(snapshot.range(&table, b"b"..).count(), 2);
/// # Ok::<(), quenchdb::Error>(())
/// ```
pub trait KeyRange {
    /// Returns the lower bound.
    fn lower(&self) -> Bound<&[u8]>;
    /// Returns the upper bound.
    fn upper(&self) -> Bound<&[u8]>;
}

macro_rules! key_ranges {
    ($($range:ty),*) => { $(
        impl<K: AsRef<[u8]>> KeyRange for $range {
            fn lower(&self) -> Bound<&[u8]> {
                RangeBounds::<K>::start_bound(self).map(K::as_ref)
            }

            fn upper(&self) -> Bound<&[u8]> {
                RangeBounds::<K>::end_bound(self).map(K::as_ref)
            }
        }
    )* };
}

key_ranges! {
    std::ops::Range<K>, RangeInclusive<K>, RangeFrom<K>, RangeTo<K>, RangeToInclusive<K>, (Bound<K>, Bound<K>)
}

impl KeyRange for RangeFull {
    fn lower(&self) -> Bound<&[u8]> {
        Bound::Unbounded
    }

    fn upper(&self) -> Bound<&[u8]> {
        Bound::Unbounded
    }
}

impl<R: KeyRange + ?Sized> KeyRange for &R {
    fn lower(&self) -> Bound<&[u8]> {
        (**self).lower()
    }

    fn upper(&self) -> Bound<&[u8]> {
        (**self).upper()
    }
}

/// Returns the range of all keys that begin with `prefix`.
pub(crate) fn prefix_range(prefix: &[u8]) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    // The lowest key behind all of them: bytes of 255 have no successor.
    let end = prefix.iter().rposition(|byte| *byte < u8::MAX).map(|at| {
        let mut end = prefix[..=at].to_vec();
        end[at] += 1;
        end
    });
    (Bound::Included(prefix.to_vec()), end.map_or(Bound::Unbounded, Bound::Excluded))
}

/// The rows of a [`Transaction`](crate::Transaction) or [`Snapshot`](crate::Snapshot) in key order,
/// from both ends. After an error the iterator ends. A range of a snapshot may move to another
/// thread.
#[derive(Debug)]
#[must_use = "a range reads nothing before `next`"]
pub struct Range<'a, S> {
    source: &'a S,
    cursor: RangeCursor,
    failed: bool,
}

impl<'a, S: Source> Range<'a, S> {
    pub(super) fn new(source: &'a S, table: &Table, range: impl KeyRange) -> Range<'a, S> {
        let own = |bound: Bound<&[u8]>| bound.map(<[u8]>::to_vec);
        let cursor = RangeCursor::new(table.state.clone(), own(range.lower()), own(range.upper()));
        Range { source, cursor, failed: false }
    }

    /// Returns the same range with the keys alone: of a large value nothing is read. The values of
    /// its rows are empty, or what was read in passing.
    pub fn keys(mut self) -> Range<'a, S> {
        self.cursor.skip_values();
        self
    }

    /// Returns the next row, key and value, without the copies that [`Iterator::next`] makes.
    #[inline]
    pub fn next_row(&mut self) -> Option<Result<(&[u8], &[u8])>> {
        self.step(false)
    }

    /// Returns the next row from the upper end, as [`Range::next_row`].
    pub fn next_row_back(&mut self) -> Option<Result<(&[u8], &[u8])>> {
        self.step(true)
    }

    /// Calls `f` with each row.
    pub(super) fn visit(mut self, mut f: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
        self.cursor.expect_all();
        while self.source.step(&mut self.cursor, false)? {
            let (key, value) = self.cursor.row(false);
            f(key, value)?;
            self.source.visit_copied(&mut self.cursor, &mut f)?;
        }
        Ok(())
    }

    #[inline]
    fn step(&mut self, back: bool) -> Option<Result<(&[u8], &[u8])>> {
        if self.failed {
            return None;
        }
        let came = self.source.step(&mut self.cursor, back);
        self.failed = came.is_err();
        came.map(|came| came.then(|| self.cursor.row(back))).transpose()
    }
}

fn own((key, value): (&[u8], &[u8])) -> Row {
    (key.to_vec(), value.to_vec())
}

impl<S: Source> Iterator for Range<'_, S> {
    type Item = Result<Row>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(false).map(|row| row.map(own))
    }
}

impl<S: Source> DoubleEndedIterator for Range<'_, S> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(true).map(|row| row.map(own))
    }
}

#[cfg(test)]
mod tests;
