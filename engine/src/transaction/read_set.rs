//! What a serializable optimistic transaction has read: keys, absent ones too, and intervals of
//! keys.
//!
//! The pin of the transaction's snapshot keeps what is needed to compare: as long as it is pinned,
//! newer versions keep a readable stamp, and the tombstones of deleted keys stay. So names are
//! remembered, not versions.
//!
//! The leaf of a key and its version are a hint: if both are as they were, the key has not changed.
//! A commit stamps versions and not leaves, so the hint counts only if no change was in progress
//! when the key was read.

use super::catalog::TableState;
use super::locks::Interval;
use crate::tree::ReadLeaf;
use std::ops::Bound;
use std::sync::Arc;

/// Bytes of remembered keys and bounds above which a transaction remembers one interval for each
/// table instead: the smallest that covers its reads.
const EXACT_BYTES_MAX: usize = 1 << 20;

/// A key that was read.
#[derive(Debug)]
struct ReadKey {
    key: Box<[u8]>,
    /// The leaf, if every snapshot as old as the transaction's sees the entry as it was in the
    /// leaf. Then the read is valid as long as the leaf has not changed.
    leaf: Option<ReadLeaf>,
}

/// A part of what was read in one table.
#[derive(Debug)]
struct ReadsOfTable {
    table: Arc<TableState>,
    keys: Vec<ReadKey>,
    intervals: Vec<Interval>,
    /// Replaces keys and intervals once they are too many.
    hull: Option<Interval>,
}

/// The reads of a transaction.
#[derive(Debug, Default)]
pub(super) struct ReadSet {
    tables: Vec<ReadsOfTable>,
    bytes: usize,
}

/// The interval that one end of a cursor has read so far.
#[derive(Clone, Copy, Debug)]
pub struct RememberedInterval {
    table: usize,
    interval: usize,
}

impl ReadSet {
    fn of(&mut self, table: &Arc<TableState>) -> usize {
        let known = self.tables.iter().position(|reads| Arc::ptr_eq(&reads.table, table));
        known.unwrap_or_else(|| {
            let (keys, intervals) = (Vec::new(), Vec::new());
            self.tables.push(ReadsOfTable { table: table.clone(), keys, intervals, hull: None });
            self.tables.len() - 1
        })
    }

    /// Remembers that `key` was read, in `leaf` if the entry there is what the transaction saw and
    /// was no change in progress.
    pub(super) fn add_key(&mut self, table: &Arc<TableState>, key: &[u8], leaf: Option<ReadLeaf>) {
        let at = self.of(table);
        let reads = &mut self.tables[at];
        if let Some(hull) = &mut reads.hull {
            return hull.extend_over(&point(key));
        }
        if reads.keys.last().is_none_or(|last| *last.key != *key) {
            reads.keys.push(ReadKey { key: key.into(), leaf });
            self.grow(key.len() + size_of::<ReadKey>());
        }
    }

    /// Remembers that a cursor has read an interval.
    pub(super) fn add_interval(&mut self, table: &Arc<TableState>, interval: Interval) -> RememberedInterval {
        let table = self.of(table);
        let reads = &mut self.tables[table];
        if let Some(hull) = &mut reads.hull {
            hull.extend_over(&interval);
            return RememberedInterval { table, interval: 0 };
        }
        let bytes = size_of::<Interval>() + interval.bytes();
        reads.intervals.push(interval);
        let interval = reads.intervals.len() - 1;
        self.grow(bytes);
        RememberedInterval { table, interval }
    }

    /// Remembers that the cursor has read as far as `bound`, its upper bound or, with `back`, its
    /// lower one.
    pub(super) fn extend_interval(&mut self, at: RememberedInterval, back: bool, bound: Bound<&[u8]>) {
        let reads = &mut self.tables[at.table];
        if let Some(hull) = &mut reads.hull {
            let bound = bound.map(<[u8]>::to_vec);
            let read = match back {
                false => Interval { from: hull.from.clone(), to: bound },
                true => Interval { from: bound, to: hull.to.clone() },
            };
            return hull.extend_over(&read);
        }
        let interval = &mut reads.intervals[at.interval];
        let before = interval.bytes();
        copy_bound(if back { &mut interval.from } else { &mut interval.to }, bound);
        let more = interval.bytes().saturating_sub(before);
        self.grow(more);
    }

    fn grow(&mut self, more: usize) {
        self.bytes += more;
        if self.bytes > EXACT_BYTES_MAX {
            self.tables.iter_mut().for_each(ReadsOfTable::use_hull);
            self.bytes = 0;
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.tables.clear();
        self.bytes = 0;
    }

    /// Returns whether nothing was read.
    pub(super) fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// Calls `f` with each key and each interval.
    ///
    /// # Errors
    /// That of `f`, which ends the calls.
    pub(super) fn try_each<E>(
        &self,
        mut f: impl FnMut(&Arc<TableState>, Read<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        for reads in &self.tables {
            reads.keys.iter().try_for_each(|read| f(&reads.table, Read::Key(&read.key, read.leaf)))?;
            reads.intervals.iter().chain(&reads.hull).try_for_each(|i| f(&reads.table, Read::Interval(i)))?;
        }
        Ok(())
    }
}

/// A remembered read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Read<'a> {
    Key(&'a [u8], Option<ReadLeaf>),
    Interval(&'a Interval),
}

impl ReadsOfTable {
    fn use_hull(&mut self) {
        let keys = self.keys.drain(..).map(|read| point(&read.key));
        let hull = keys.chain(self.intervals.drain(..)).chain(self.hull.take()).reduce(|mut hull, next| {
            hull.extend_over(&next);
            hull
        });
        self.hull = hull;
        self.keys.shrink_to_fit();
        self.intervals.shrink_to_fit();
    }
}

fn point(key: &[u8]) -> Interval {
    Interval { from: Bound::Included(key.to_vec()), to: Bound::Included(key.to_vec()) }
}

/// Copies a bound into the memory of another one.
fn copy_bound(to: &mut Bound<Vec<u8>>, from: Bound<&[u8]>) {
    match (to, from) {
        (Bound::Included(to), Bound::Included(from)) | (Bound::Excluded(to), Bound::Excluded(from)) => {
            to.clear();
            to.extend_from_slice(from);
        }
        (to, from) => *to = from.map(<[u8]>::to_vec),
    }
}
